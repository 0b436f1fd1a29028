//go:build unix

package process

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/leftout"
	"github.com/waybill-dev/waybill/test/office"
	"github.com/waybill-dev/waybill/test/oracle"
)

// S1: a limit of one, and one open order a key, over 12 partitions, while instances are killed: an agent never has two
// attempts under the limit, nor two orders of a key. WAYBILL_TURNS says how many orders of each kind there are.
func TestOneAtATimeWhileInstancesAreKilled(t *testing.T) {
	leftout.UnlessLong(t, "turns while instances are killed")
	t.Parallel()
	const keys = 6
	each := number(t, "WAYBILL_TURNS", 120)
	c := newCluster(t, kafka.Container(t))
	c.createTopicsOf(12)
	one, two, three := c.serve("one"), c.serve("two"), c.serve("three")
	all := []*serve{one, two, three}
	for _, i := range all {
		i.ready(i.client)
	}
	oracle.Until(t, "the namespace is in the newest format", func() error { return office.NewestFormat(t.Context(), one.client) })
	waybill(t, "limit", "apply", fileOf(t, "limit: one\natATime: 1"), "--server", one.http)
	registerSource(t, one.http, "{workflow: call, steps: [{name: call, agent: crm, limit: one, timeout: 1m}]}")
	registerSource(t, one.http, "{workflow: invoice, concurrency: {key: input.customer}, steps: [{name: read, agent: ledger, timeout: 1m}, {name: book, agent: ledger, timeout: 1m}]}")
	one.owned(all...)

	type customer struct {
		Customer int `json:"customer"`
	}
	var mu sync.Mutex
	has := make(map[int]string) // by customer; 0 is the limit's
	until := make(map[int]time.Time)
	begins := func(key int, order string, complete time.Time) {
		mu.Lock()
		defer mu.Unlock()
		if other := has[key]; other != "" && other != order && time.Now().Before(until[key]) {
			t.Errorf("orders %s and %s are at work under %d", other, order, key)
		}
		has[key], until[key] = order, complete
	}
	ends := func(key int, order string) {
		mu.Lock()
		defer mu.Unlock()
		if has[key] == order {
			delete(has, key)
		}
	}
	c.agent("crm", agents.Operations{"call": agents.Do(func(ctx context.Context, r agents.Request[any]) (any, error) {
		begins(0, r.Order, r.CompleteBy)
		defer ends(0, r.Order)
		select { // long enough for another to be seen
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
		return nil, nil
	})})
	c.agent("ledger", agents.Operations{
		"read": agents.Do(func(_ context.Context, r agents.Request[customer]) (any, error) {
			begins(r.Input.Customer, r.Order, r.CompleteBy.Add(time.Minute))
			return nil, nil
		}),
		"book": agents.Do(func(_ context.Context, r agents.Request[customer]) (any, error) {
			begins(r.Input.Customer, r.Order, r.CompleteBy)
			defer ends(r.Input.Customer, r.Order)
			return nil, nil
		}),
	})

	client := c.broker.Client(t)
	submit := func(id, format string, args ...any) {
		client.Produce(t.Context(), &kgo.Record{Topic: c.topics.Orders, Key: []byte(id), Value: fmt.Appendf(nil, format, args...)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	for n := range each {
		submit(fmt.Sprintf("c-%d", n), `{"workflow":"call"}`)
		submit(fmt.Sprintf("i-%d", n), `{"workflow":"invoice","input":{"customer":%d}}`, 1+n%keys)
	}
	for n, i := range all {
		one.state(one.client, fmt.Sprintf("c-%d", (n+1)*each/8), projections.Processed)
		i.kill()
		i.again()
		i.ready(i.client)
	}
	for n := range each {
		one.state(one.client, fmt.Sprintf("c-%d", n), projections.Processed)
		one.state(one.client, fmt.Sprintf("i-%d", n), projections.Processed)
	}

	found := audit.Namespace(t, c.broker.Brokers, c.topics, true)
	t.Log(found)
	for key := 1; key <= keys; key++ {
		home := events.TurnID("invoice", fmt.Sprint(key))
		granted := 0
		for _, e := range found.Histories[home] {
			if e.Type == events.PlaceGranted {
				granted++
			}
		}
		if want := (each + keys - key) / keys; granted != want {
			t.Errorf("%s gave %d turns, of %d", home, granted, want)
		}
	}
	for _, i := range all {
		i.stop()
	}
}

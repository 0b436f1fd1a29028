//go:build unix

package process

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/leftout"
)

// S1, T4: signals under keys, half of them before an order waits and half after, each sent twice, while
// instances are killed: each acts once. WAYBILL_SIGNALS says how many each half has.
func TestSignalsUnderKeysWhileInstancesAreKilled(t *testing.T) {
	leftout.UnlessLong(t, "signals under keys while instances are killed")
	t.Parallel()
	half := number(t, "WAYBILL_SIGNALS", 200)
	c := newCluster(t, kafka.Container(t))
	c.createTopics()
	one, two := c.two()
	registerSource(t, one.http, "{workflow: bill, steps: [{name: paid, listen: payment, key: input.ref}]}")
	one.owned(one, two)

	client := c.broker.Client(t)
	put := func(topic, key, format string, args ...any) {
		client.Produce(t.Context(), &kgo.Record{Topic: topic, Key: []byte(key), Value: fmt.Appendf(nil, format, args...)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	id := func(n int) string { return fmt.Sprintf("o-%d", n) }
	twice := func(from, to int, during func()) {
		for n := from; n < to; n++ {
			for again := range 2 { // not side by side, nor to the same partition
				put(c.topics.Signals, fmt.Sprint(n, again), `{"signal":"payment","key":"ref-%d","id":"p-%d","data":%d}`, n, n, n)
			}
			if n == (from+to)/2 {
				during()
			}
		}
	}
	twice(0, half, func() { two.kill() })
	two.again()
	two.ready(two.client)
	for n := range 2 * half {
		put(c.topics.Orders, id(n), `{"workflow":"bill","input":{"ref":"ref-%d"}}`, n)
		if n == half {
			one.kill()
		}
	}
	one.again()
	one.ready(one.client)
	for n := range 2 * half {
		if n < half {
			one.state(one.client, id(n), projections.Processed)
			continue
		}
		one.until(id(n)+" waits, and its key's home knows", func() error {
			_, err := one.client.Order(t.Context(), events.CorrelationID("payment", fmt.Sprintf("ref-%d", n)))
			return err
		})
	}
	twice(half, 2*half, func() { one.kill(); two.kill() })
	one.again()
	two.again()
	one.ready(one.client)
	two.ready(two.client)
	for n := range 2 * half {
		one.state(one.client, id(n), projections.Processed)
	}

	if err := client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := audit.Namespace(t, c.broker.Brokers, c.topics, true)
	t.Log(found)
	for n := range 2 * half {
		var heard []string
		for _, e := range found.Histories[id(n)] {
			if e.Type == events.StepHeard {
				heard = append(heard, string(e.Data))
			}
		}
		if strings.Join(heard, " ") != fmt.Sprint(n) {
			t.Errorf("order %s heard %v", id(n), heard)
		}
	}
	one.stop()
	two.stop()
}

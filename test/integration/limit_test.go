package integration

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
)

// S1, V6: orders of all partitions call an agent that takes one call at a time, and undo what it did, while instances
// come, go, and lose their stores: no two calls are made at a time, each order comes to its end, and no place is left taken.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		first, second := w.Run("i-1", t.TempDir()), w.Begin("i-2", t.TempDir())
		w.Register(first, `
workflow: call
steps:
  - {name: enter, agent: crm, do: enter, undo: leave, limit: {name: crm, key: input.customer}, timeout: 1h}
  - {name: bill, agent: payment, do: bill, timeout: 1h, retry: {attempts: 1}, exhausted: compensate}
`)
		home := events.LimitID("crm")
		apply := func(id, limit string) {
			w.Produce(&kgo.Record{Topic: w.Topics.Commands, Key: []byte(home), Value: fmt.Appendf(nil, `{"command":"apply","id":%q,"limit":%s}`, id, limit)})
		}
		apply("c-1", `{"atATime":1}`)
		w.order(first, home, func(o *projections.Order) bool { return o.Places.Says != nil })

		var calls, most, made atomic.Int64
		w.serve("crm", func(ctx context.Context, _ agents.Request[any]) (any, error) {
			if n := calls.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer calls.Add(-1)
			made.Add(1)
			select { // long enough for another to be seen
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
			return nil, nil
		}, "enter", "leave")
		w.serve("payment", func(_ context.Context, r agents.Request[any]) (any, error) {
			if r.Order[len(r.Order)-1]%2 == 0 {
				return nil, &agents.Error{Code: "declined", Permanent: true}
			}
			return nil, nil
		}, "bill")
		const n = 60
		lives := make(map[int32]bool)
		for k := range n {
			id := fmt.Sprintf("o-%d", k)
			lives[first.Partition(id)] = true
			w.Submit(id, fmt.Sprintf(`{"workflow":"call","input":{"customer":%d}}`, k%4))
		}
		if len(lives) != partitions {
			t.Errorf("the orders live in %d partitions", len(lives))
		}
		w.until("a third of the calls", func() error {
			if made.Load() < n/3 {
				return fmt.Errorf("%d were made", made.Load())
			}
			return nil
		})
		first.Stop()
		third := w.Run("i-3", t.TempDir())
		w.until("most of the calls", func() error {
			if made.Load() < n {
				return fmt.Errorf("%d were made", made.Load())
			}
			return nil
		})
		second.Stop()
		for k := range n {
			id, end := fmt.Sprintf("o-%d", k), projections.Processed
			if id[len(id)-1]%2 == 0 {
				end = projections.Compensated
			}
			w.order(third, id, in(end))
		}
		w.order(third, home, func(o *projections.Order) bool { return o.Places.Taken+o.Places.Waiting == 0 })
		if most.Load() != 1 || made.Load() != n+n/2 {
			t.Errorf("%d calls were made, at most %d at a time", made.Load(), most.Load())
		}
	})
}

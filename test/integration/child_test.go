package integration

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/waybill"
	kit "github.com/waybill-dev/waybill/test/world"
)

// T4, C1, C3: orders on all partitions have orders on others do their steps, while the partitions change
// their owners, and these have lost their stores: each child begins once and ends once, and so do the
// steps that they do. Those whose last step fails are undone as a whole.
func TestChildrenDoTheirStepsOnce(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: book
steps:
  - {name: reserve, agent: any, undo: release, timeout: 1h, retry: {attempts: 1}}
  - {name: pay, agent: any, undo: refund, timeout: 1h, retry: {attempts: 1}}
`)
		w.Register(i, `
workflow: trip
steps:
  - {name: hotel, order: book, with: '{"what": "hotel"}', after: []}
  - {name: car, order: book, with: '{"what": "car"}', after: []}
  - {name: confirm, agent: any, timeout: 1h, retry: {attempts: 1}, exhausted: compensate, after: [hotel, car]}
`)
		const n = 24
		replied := func(least int) {
			w.until("some replies", func() error {
				if have := len(w.read(w.Topics.Replies)); have < least {
					return fmt.Errorf("%d of %d", have, least)
				}
				return nil
			})
		}
		gate, passed := make(chan struct{}), 0
		w.Answering("any", func(r kit.Request) string {
			if passed++; passed > n { // the others wait until somebody else owns their partitions
				<-gate
			}
			if r.Step == "confirm" && r.Order[len(r.Order)-1]%2 == 1 {
				return `"status":"failed","error":{"code":"no","permanent":true}`
			}
			return kit.Gave(fmt.Sprintf("%q", r.IdempotencyKey))
		})
		id := func(k int) string { return fmt.Sprintf("o-%d", k) }
		for k := range n {
			w.Submit(id(k), `{"workflow":"trip"}`)
		}
		replied(n)
		i.Stop()
		i = w.Run("i-2", t.TempDir())
		close(gate)
		replied(3 * n)
		i.Stop()
		i = w.Run("i-3", t.TempDir())
		partitions := make(map[[2]int32]bool)
		for k := range n {
			want := projections.Processed
			if id(k)[len(id(k))-1]%2 == 1 {
				want = projections.Compensated
			}
			w.order(i, id(k), in(want))
			for _, step := range []string{"hotel", "car"} {
				child := events.ChildID(id(k) + "/" + step)
				w.order(i, child, in(want))
				partitions[[2]int32{i.Partition(id(k)), i.Partition(child)}] = true
			}
		}
		if len(partitions) < waybill.Partitions*waybill.Partitions {
			t.Errorf("children are on the partitions %v of those of their parents", slices.Collect(maps.Keys(partitions)))
		}
		for k := range n {
			own, child := "order.accepted step.ordered step.ordered step.completed step.completed step.started step.completed order.completed", "order.accepted step.started step.completed step.started step.completed order.completed"
			if id(k)[len(id(k))-1]%2 == 1 {
				own = "order.accepted step.ordered step.ordered step.completed step.completed step.started step.failed order.compensating undo.ordered undo.ordered undo.completed undo.completed order.compensated"
				child += " order.compensating undo.started undo.completed undo.started undo.completed order.compensated"
			}
			for id, want := range map[string]string{id(k): own, events.ChildID(id(k) + "/hotel"): child, events.ChildID(id(k) + "/car"): child} {
				if got := w.types(id); got != want {
					t.Errorf("the journal has of %s: %s", id, got)
				}
			}
		}
	})
}

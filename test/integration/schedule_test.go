package integration

import (
	"fmt"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/timetable"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/waybill"
)

// T4, V2: schedules on all partitions begin an order every second, while the partitions change their owner, who
// has lost its store, and two instances are there: each tick is decided on once, in its order, and began one order,
// which lives wherever its id belongs, or none for a reason. What the record has of a schedule's history does not grow.
func TestSchedulesBeginOrders(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, "workflow: bill\nsteps:\n  - {name: nap, sleep: 200ms}\n")
		const n = 8
		name := func(k int) string { return fmt.Sprintf("s%d", k) }
		partitions := make(map[int32]bool)
		command := func(i *waybill.Instance, id string, c *events.Command) {
			t.Helper()
			if err := i.Command(t.Context(), id, c, nil); err != nil {
				t.Fatalf("%s %s: %v", c.Command, id, err)
			}
		}
		overlaps := []string{events.OverlapAllow, events.OverlapQueue, events.OverlapSkip, events.OverlapCancel}
		for k := range n {
			id := events.ScheduleID(name(k))
			command(i, id, &events.Command{Command: events.CommandApply, Schedule: &events.Schedule{Every: "1s", Workflow: "bill", Overlap: overlaps[k%len(overlaps)], CatchUp: events.CatchUpAll}})
			partitions[i.Partition(id)] = true
		}
		if len(partitions) < waybill.Partitions {
			t.Fatalf("the schedules are on the partitions %v", partitions)
		}
		started := func(n int) func(o *projections.Order) bool {
			return func(o *projections.Order) bool { return o.Schedule.Started >= n }
		}
		for round := range 3 {
			for k := range n {
				w.order(i, events.ScheduleID(name(k)), started(2*(round+1)))
			}
			other := w.Run(fmt.Sprint("i-", round+2), t.TempDir())
			i.Stop()
			i = other
		}
		for k := range n {
			id := events.ScheduleID(name(k))
			w.order(i, id, started(8))
			command(i, id, &events.Command{Command: events.CommandPause})
			w.order(i, id, func(o *projections.Order) bool { return len(o.Schedule.Open) == 0 })
		}

		histories := make(map[string][]events.Event)
		for _, r := range w.read(w.Topics.Journal) {
			if e, err := events.Decode[events.Event](r.Value); err != nil {
				t.Fatal(err)
			} else if e.Order != "" {
				histories[e.Order] = append(histories[e.Order], e)
			}
		}
		begun := make(map[string]bool)
		for k := range n {
			id := events.ScheduleID(name(k))
			history := histories[id]
			table, err := timetable.Of(history[0].Schedule)
			if err != nil {
				t.Fatal(err)
			}
			next := history[0].Next
			for _, e := range history[1:] {
				last := e.Last
				switch e.Type {
				case events.ScheduleStarted:
					last, begun[e.Child] = e.Tick, true
					if order := histories[e.Child]; len(order) == 0 || order[0].Type != events.OrderAccepted || order[len(order)-1].Type != events.OrderCompleted && history[0].Schedule.Overlap != events.OverlapCancel {
						t.Errorf("of tick %v of %s came %+v", e.Tick, id, order)
					}
				case events.ScheduleSkipped:
				default:
					continue
				}
				for ; !next.After(last); next = table.Next(next) {
				}
				if !e.Next.Equal(next) {
					t.Errorf("%s: behind %v comes %v, and event %d says %v", id, last, next, e.Seq, e.Next)
				}
			}
		}
		for id, history := range histories {
			if history[0].Parent != "" && !begun[id] {
				t.Errorf("order %s was begun by no tick", id)
			}
		}
	})
}

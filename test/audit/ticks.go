package audit

import (
	"fmt"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// Ticks are what became of the ticks of a schedule of every second.
type Ticks struct {
	Decided int
	Begun   int            // those that began an order
	Skipped map[string]int // the others, by why
	Next    time.Time      // the first that was not decided on
	Wrong   []string
}

// Ticks goes over the ticks of a schedule of every second: each was decided on once, and began one order, or none for
// a reason. A schedule that was never applied has none.
func (b *Books) Ticks(schedule string) *Ticks {
	t := &Ticks{Skipped: make(map[string]int)}
	history := b.Histories[schedule]
	first := slices.IndexFunc(history, func(e events.Event) bool { return e.Type == events.ScheduleApplied })
	if first < 0 {
		return t
	}
	from, skipped := history[first].Next, 0
	t.Next = from
	for _, e := range history[first:] {
		switch e.Type {
		case events.ScheduleStarted:
			t.Begun++
			if child := b.Histories[e.Child]; len(child) == 0 || child[0].Parent != schedule {
				t.Wrong = append(t.Wrong, fmt.Sprintf("tick %s of %s began no order", events.TickText(e.Tick), schedule))
			}
		case events.ScheduleSkipped:
			t.Skipped[e.Reason] += e.Count
			skipped += e.Count
		default:
			continue
		}
		t.Next = e.Next
	}
	t.Decided = int(t.Next.Sub(from) / time.Second)
	if t.Begun+skipped != t.Decided {
		t.Wrong = append(t.Wrong, fmt.Sprintf("of %d ticks of %s %d began an order, and %d none for a reason", t.Decided, schedule, t.Begun, skipped))
	}
	return t
}

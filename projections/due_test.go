package projections

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func look(t *testing.T, p *Partition, now time.Time, limit int) []string {
	t.Helper()
	due, err := p.Due(now, limit)
	must(t, err)
	var found []string
	for _, d := range due {
		found = append(found, fmt.Sprintf("%s %s %.0f", d.Order, d.Step, d.At.Sub(start).Seconds()))
	}
	return found
}

func wants(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, not %q", what, got, want)
	}
}

func TestDue(t *testing.T) {
	j := newJournal()
	j.add(accepted("a", "flow"), started("a", "s0", 1, at(30)), started("a", "s1", 1, at(10)))
	j.add(accepted("b", "flow"), started("b", "s0", 1, at(20)))
	_, p := folded(t, j)

	wants(t, "before all", look(t, p, at(9), 10))
	wants(t, "at the first", look(t, p, at(10), 10), "a s1 10")
	// Handled: the step completes.
	j.add(done("a", "s1"))
	must(t, fold(p, j.records))
	must(t, p.Flush())
	wants(t, "earliest first, without what was handled", look(t, p, at(40), 10), "b s0 20", "a s0 30")
	j.add(done("a", "s0"), done("b", "s0"))
	must(t, fold(p, j.records))
	must(t, p.Flush())
	wants(t, "all is handled", look(t, p, at(50), 10))
	p.Rescan()
	wants(t, "all is handled, from the beginning", look(t, p, at(50), 10))
}

// A deadline that is set before the time that was looked at last is found.
func TestDueInThePast(t *testing.T) {
	j := newJournal()
	_, p := folded(t, j)
	wants(t, "nothing is there", look(t, p, at(100), 10))
	j.add(accepted("a", "flow"), started("a", "s0", 1, at(5)))
	must(t, fold(p, j.records))
	wants(t, "not flushed", look(t, p, at(100), 10))
	must(t, p.Flush())
	wants(t, "set in the past", look(t, p, at(100), 10), "a s0 5")
	wants(t, "the clock goes back", look(t, p, at(1), 10))
}

// A retry's start is a deadline as well, and Error ends them.
func TestDueOfRetries(t *testing.T) {
	j := newJournal()
	j.add(accepted("a", "flow"), started("a", "s0", 1, at(10)),
		events.Event{Type: events.StepExpired, Order: "a", Step: "s0", Attempt: 1},
		events.Event{Type: events.StepRetried, Order: "a", Step: "s0", Attempt: 2, Due: at(20)})
	s, p := folded(t, j)
	wants(t, "a retry", look(t, p, at(30), 10), "a s0 20")
	if o, _, err := s.Order(0, "a"); err != nil || !o.CompleteBy(at(19)).Equal(at(20)) {
		t.Errorf("%+v, %v", o, err)
	}
	j.add(events.Event{Type: events.OrderErrored, Order: "a", Reason: "no"})
	must(t, fold(p, j.records))
	must(t, p.Flush())
	p.Rescan()
	wants(t, "in Error", look(t, p, at(30), 10))
}

// Looking page by page comes to an end, even if what is due at one moment is
// more than a page and what was handled is not committed yet: a lane flushes
// only after the transaction.
func TestDueByPages(t *testing.T) {
	j := newJournal()
	var want []string
	for i := range 7 {
		j.add(accepted(fmt.Sprint("o-", i), "flow"), started(fmt.Sprint("o-", i), "s0", 1, at(10)))
		want = append(want, fmt.Sprintf("o-%d s0 10", i))
	}
	_, p := folded(t, j)
	var found []string
	for range 4 {
		found = append(found, look(t, p, at(10), 2)...)
	}
	slices.Sort(found)
	wants(t, "four pages of two", found, want...)
}

// Whatever is set, moved and handled, looking finds what a plain list says,
// at every pace of flushing and looking.
func TestDueFindsWhatAListFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := Temporary()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		p, err := s.Partition(0)
		if err != nil {
			t.Fatal(err)
		}
		j := newJournal()
		running := make(map[string]time.Time)
		attempt := make(map[string]int)
		now := 0
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			now += rapid.IntRange(-1, 5).Draw(t, "advance")
			id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "order")
			var batch []events.Event
			if j.seq[id] == 0 {
				batch = append(batch, accepted(id, "flow"))
			}
			if _, ok := running[id]; ok {
				batch = append(batch, events.Event{Type: events.StepFailed, Order: id, Step: "s0", Attempt: attempt[id]})
				delete(running, id)
			} else {
				attempt[id]++
				by := at(now + rapid.IntRange(-3, 6).Draw(t, "by"))
				batch = append(batch, started(id, "s0", attempt[id], by))
				running[id] = by
			}
			j.add(batch...)
			if err := fold(p, j.records[len(j.records)-len(batch):]); err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "look") {
				if err := p.Flush(); err != nil {
					t.Fatal(err)
				}
				due, err := p.Due(at(now), 10)
				if err != nil {
					t.Fatal(err)
				}
				found := make(map[string]bool)
				var handled []events.Event
				for _, d := range due {
					found[d.Order] = true
					handled = append(handled, events.Event{Type: events.StepExpired, Order: d.Order, Step: d.Step, Attempt: attempt[d.Order]})
				}
				for id, by := range running {
					if expired := !by.After(at(now)); expired != found[id] {
						t.Fatalf("%s with the deadline %v was found at %v: %t", id, by, at(now), found[id])
					}
				}
				if len(handled) > 0 {
					j.add(handled...)
					if err := fold(p, j.records[len(j.records)-len(handled):]); err != nil {
						t.Fatal(err)
					}
				}
				for id := range found {
					delete(running, id)
				}
			}
		}
	})
}

// The order's own deadline has an entry without a step, and undos have one
// each; both are moved and removed like those of steps.
func TestDueOfOrdersAndUndos(t *testing.T) {
	a := accepted("o-1", "flow")
	a.Deadline = at(50)
	j := newJournal()
	add := func(p *Partition, batch ...events.Event) {
		t.Helper()
		for i := range batch {
			batch[i].Order = "o-1"
		}
		n := len(j.records)
		j.add(batch...)
		must(t, fold(p, j.records[n:]))
		must(t, p.Flush())
		p.Rescan()
	}
	_, p := temporary(t)
	add(p, a, started("o-1", "s0", 1, at(10)))
	wants(t, "step and order", look(t, p, at(100), 10), "o-1 s0 10", "o-1  50")
	add(p, events.Event{Type: events.OrderPaused})
	wants(t, "paused", look(t, p, at(100), 10), "o-1 s0 10")
	add(p, events.Event{Type: events.OrderResumed})
	add(p, done("o-1", "s0"))
	wants(t, "resumed, and the step is done", look(t, p, at(100), 10), "o-1  50")
	add(p, events.Event{Type: events.OrderCompensating, End: "Cancelled"})
	wants(t, "nothing is due of it", look(t, p, at(100), 10))
	begin := undoStarted(1)
	begin.Expires = at(93)
	add(p, begin)
	wants(t, "an undo runs", look(t, p, at(100), 10), "o-1 s0 93")
	retried := of(events.UndoRetried, "s0", 2)
	retried.Due = at(95)
	add(p, failing(events.UndoExpired, "s0", 1, "expired"), retried)
	wants(t, "its retry is armed", look(t, p, at(100), 10), "o-1 s0 95")
	add(p, events.Event{Type: events.UndoSkipped, Step: "s0"})
	wants(t, "it is passed over", look(t, p, at(100), 10))
}

// V7: a scan costs what expired. What still waits, and what was scanned before,
// is not even read: a key there that would be an error is not noticed.
func TestV7AScanReadsOnlyWhatExpired(t *testing.T) {
	j := newJournal()
	j.add(accepted("a", "flow"), started("a", "s0", 1, at(10)))
	s, p := folded(t, j)
	trap := func(seconds int) { must(t, s.db.Set(append(deadlineBound(0, at(seconds)), "no step"...), nil, nil)) }

	trap(30)
	wants(t, "before what waits", look(t, p, at(20), 10), "a s0 10")
	trap(15)
	wants(t, "behind what was scanned", look(t, p, at(25), 10))
	if _, err := p.Due(at(40), 10); !errors.Is(err, ErrDamaged) {
		t.Errorf("the trap did not snap: %v", err)
	}
}

// What sleeps is due like all else, and is not among the deadlines of attempts, however many sleep.
func TestDeadlinesOfAttempts(t *testing.T) {
	j := newJournal()
	sleeps := func(order, step string, due time.Time) events.Event {
		return events.Event{Type: events.StepSleeping, Order: order, Step: step, Attempt: 1, Due: due}
	}
	j.add(accepted("a", "flow"), sleeps("a", "s0", at(10)), started("a", "s1", 1, at(30)))
	j.add(accepted("b", "flow"), sleeps("b", "s0", at(20)))
	_, p := folded(t, j)
	due, err := p.Deadlines(at(0), 1)
	must(t, err)
	if len(due) != 1 || due[0].Order != "a" || due[0].Step != "s1" {
		t.Errorf("the next attempt that ends is %+v", due)
	}
	wants(t, "all that is due", look(t, p, at(40), 10), "a s0 10", "b s0 20", "a s1 30")

	j.add(events.Event{Type: events.StepWoke, Order: "a", Step: "s0", Attempt: 1})
	must(t, fold(p, j.records))
	must(t, p.Flush())
	p.Rescan()
	wants(t, "one woke", look(t, p, at(40), 10), "b s0 20", "a s1 30")
}

package projections

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// Whoever watches an order is told once readers see what was written of it, and of no other. What is written before
// anybody looks is told once.
func TestWatch(t *testing.T) {
	j := newJournal()
	s, p := temporary(t)
	j.claim("i-1", 1, events.JournalFormat)
	first, second, other := s.Watch(0, "o-1"), s.Watch(0, "o-1"), s.Watch(1, "o-1")
	told := func(w *Watch) bool {
		select {
		case <-w.Written:
			return true
		default:
			return false
		}
	}
	j.add(accepted("o-1", "flow"), started("o-1", "s0", 1, start.Add(time.Minute)))
	j.add(accepted("o-2", "flow"))
	must(t, fold(p, j.records))
	if told(first) {
		t.Error("it is told before readers see it")
	}
	must(t, p.Flush())
	j.add(done("o-1", "s0"))
	must(t, fold(p, j.records))
	must(t, p.Flush())
	if !told(first) || told(first) || !told(second) || told(other) {
		t.Error("it is not told once to all who watch the order")
	}
	second.Close()
	j.add(accepted("o-3", "flow"))
	must(t, fold(p, j.records))
	must(t, p.Flush())
	if told(first) {
		t.Error("it is told of another order")
	}
	j.add(started("o-1", "s1", 1, start.Add(time.Minute)))
	must(t, fold(p, j.records))
	must(t, p.Flush())
	if !told(first) || told(second) {
		t.Error("it is not told to who watches still, alone")
	}
	first.Close()
	other.Close()
	if n := s.watches.some.Load(); n != 0 || len(s.watches.of) != 0 {
		t.Errorf("%d watches are left: %v", n, s.watches.of)
	}
}

// A feed has what was written of the orders, as listings have them, and says when something is missing.
func TestFeed(t *testing.T) {
	j := newJournal()
	s, p := temporary(t)
	j.claim("i-1", 1, events.JournalFormat)
	j.add(accepted("o-0", "flow"))
	flush := func() {
		t.Helper()
		must(t, fold(p, j.records))
		must(t, p.Flush())
	}
	f := s.Feed()
	flush()
	if changes, lost := f.Take(); len(changes) > 0 || lost {
		t.Errorf("of a partition that is not known there is %v, lost: %t", changes, lost)
	}
	p.CaughtUp()
	if _, lost := f.Take(); !lost {
		t.Error("what was written before it was known is not lost")
	}
	p.CaughtUp()
	j.add(events.Event{Type: events.OrderAccepted, Order: "o-1", Workflow: "flow", Version: 1, Steps: []string{"s0"}, Input: []byte(`"secret"`)}, started("o-1", "s0", 1, start.Add(time.Minute)))
	j.add(events.Event{Type: events.OrderCancelled, Order: "o-0"})
	flush()
	select {
	case <-f.Written:
	default:
		t.Error("it does not say that there is something")
	}
	changes, lost := f.Take()
	if lost || len(changes) != 2 {
		t.Fatalf("%+v, lost: %t", changes, lost)
	}
	fresh, was, is := changes[0], changes[1].Was, changes[1].Is
	if fresh.Was != nil || fresh.Is.ID != "o-1" || fresh.Is.State != Processing || fresh.Is.Input != nil || fresh.Is.LockedBy != "i-1" || was == nil || was.State != Pending || is.State != Cancelled {
		t.Errorf("%+v, %+v, then %+v", fresh.Is, was, is)
	}
	if page, err := s.List(t.Context(), 1, Filter{State: Processing}); err != nil || !reflect.DeepEqual(page.Orders, []*Order{fresh.Is}) {
		t.Errorf("a listing has %+v, %v; the feed %+v", page.Orders, err, fresh.Is)
	}

	// Nobody takes what is too much.
	large := []byte(`"` + strings.Repeat("x", 1<<20) + `"`)
	for n := range feedBytes>>20 + 1 {
		j.add(events.Event{Type: events.OrderAccepted, Order: fmt.Sprint("large-", n), Workflow: "flow", Version: 1, Steps: []string{"s0"}, Input: large})
	}
	flush()
	if changes, lost := f.Take(); !lost || len(changes) > 0 {
		t.Errorf("%d of too many are there, lost: %t", len(changes), lost)
	}
	p.FellBehind()
	if _, lost := f.Take(); !lost {
		t.Error("it is not said that a partition fell behind")
	}
	f.Close()
	if n := s.watches.some.Load(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

package projections

import (
	"errors"
	"maps"
	"path/filepath"
	"testing"

	"github.com/waybill-dev/waybill/events"
)

// counted are the counts of partition 0, and wants that the indexes list just as much.
func counted(t *testing.T, s *Store) Counts {
	t.Helper()
	s.counting.Lock()   // once what was there is counted
	s.counting.Unlock() //nolint:staticcheck // it is waited for
	is, known := s.Counts(0)
	view := s.db.NewSnapshot()
	defer view.Close()
	listed, err := s.countIn(view, 0)
	must(t, err)
	if !known || !maps.Equal(is.Orders, listed.Orders) || is.Alerts != listed.Alerts || is.Approvals != listed.Approvals || is.Held != listed.Held {
		t.Errorf("counted are %+v (known: %t), and listed %+v", is, known, listed)
	}
	return is
}

// How much waits is counted as it changes, and once where a store is opened that has some.
func TestWhatWaitsIsCounted(t *testing.T) {
	j := newJournal()
	j.add(accepted("o-1", "a"), started("o-1", "s0", 1, start))
	j.add(accepted("o-2", "a"), events.Event{Type: events.OrderErrored, Order: "o-2", Reason: "it failed"}, events.Event{Type: events.AlertRaised, Order: "o-2", Reason: "it failed"})
	j.add(accepted("o-3", "b"), events.Event{Type: events.StepApproving, Order: "o-3", Step: "s0", Attempt: 1, Roles: []string{"boss"}, Outcomes: []string{"yes"}})
	j.add(accepted("o-4", "b"), events.Event{Type: events.OrderCancelled, Order: "o-4"})
	panics := func(id string) []events.Event {
		return []events.Event{{Type: events.OrderErrored, Order: id, Reason: "it panicked", Held: true}, {Type: events.AlertRaised, Order: id, Reason: "it panicked"}}
	}
	j.add(append([]events.Event{accepted("o-5", "a")}, panics("o-5")...)...)
	j.add(append([]events.Event{accepted("o-6", "a")}, append(panics("o-6"), events.Event{Type: events.OrderCancelled, Order: "o-6"})...)...)
	const limit = "@/limit.crm"
	j.add(append([]events.Event{{Type: events.LimitApplied, Order: limit, Limit: &events.Limit{AtATime: 1}}}, panics(limit)...)...)
	dir := filepath.Join(t.TempDir(), "store")
	s := mustOpen(t, dir)
	if _, known := s.Counts(0); known {
		t.Error("nobody has the partition open, and its counts are known")
	}
	foldAll(t, s, j, func(*Partition) { counted(t, s) })
	is := counted(t, s)
	waits := 0
	for _, n := range is.Orders {
		waits += n
	}
	if is.Orders[Standing{"a", Processing}] != 1 || is.Orders[Standing{"a", Error}] != 2 || waits != 4 || is.Alerts != 3 || is.Approvals != 1 || is.Held != 2 {
		t.Errorf("counted are %+v", is)
	}
	must(t, s.Close())

	s = mustOpen(t, dir)
	p := partition(t, s, 0)
	if again := counted(t, s); !maps.Equal(again.Orders, is.Orders) || again.Alerts != 3 || again.Approvals != 1 || again.Held != 2 {
		t.Errorf("counted are %+v once it was opened again, and were %+v", again, is)
	}
	j.records = nil
	j.add(events.Event{Type: events.OrderCancelled, Order: "o-2"}, events.Event{Type: events.OrderReleased, Order: limit})
	must(t, fold(p, j.records))
	must(t, p.Flush())
	if after := counted(t, s); after.Alerts != 1 || after.Held != 1 {
		t.Errorf("counted are %+v once one order has ended, and the limit is released", after)
	}
	j.records = nil
	j.add(events.Event{Type: events.OrderReleased, Order: "o-5"})
	must(t, fold(p, j.records))
	must(t, p.Flush())
	if after := counted(t, s); after.Orders[Standing{"a", Error}] != 0 || after.Alerts != 0 || after.Held != 0 {
		t.Errorf("counted are %+v once one order has ended, and the other is released", after)
	}
	must(t, p.Reset())
	if none := counted(t, s); len(none.Orders) > 0 || none.Alerts+none.Approvals+none.Held > 0 {
		t.Errorf("counted are %+v of nothing", none)
	}
	must(t, s.Close())
}

// The index of alerts knows of a hold that began, or ended, in the millisecond in which the order was in Error without it.
func TestAHoldInTheMillisecondOfAnAlert(t *testing.T) {
	s, _ := temporary(t)
	failed := &Order{ID: "o-1", State: Error, Alert: &events.Alert{At: start}}
	held := &Order{ID: "o-1", State: Error, Alert: &events.Alert{At: start}, Hold: &Hold{State: Error, Alert: failed.Alert}}
	for n, change := range [][2]*Order{{{}, failed}, {failed, held}, {held, failed}, {failed, held}, {held, {}}} {
		b := s.db.NewBatch()
		must(t, indexAlert(b, 0, "o-1", change[0], change[1]))
		must(t, b.Commit(nil))
		view := s.db.NewSnapshot()
		is, err := s.countIn(view, 0)
		must(t, errors.Join(err, view.Close()))
		want := Counts{Orders: make(map[Standing]int)}
		if want.has(change[1], 1); is.Alerts != want.Alerts || is.Held != want.Held {
			t.Errorf("change %d: counted are %+v, and not %+v", n, is, want)
		}
	}
}

// Whatever stands in journals that other releases wrote is counted as it is listed.
func TestJournalsOfBeforeAreCounted(t *testing.T) {
	journals, err := filepath.Glob("testdata/golden/*/journal.jsonl")
	if must(t, err); len(journals) < 3 {
		t.Fatalf("there are %d", len(journals))
	}
	for _, journal := range journals {
		if is := counted(t, foldGolden(t, journal).store); len(is.Orders) == 0 {
			t.Errorf("%s: no order waits", journal)
		}
	}
}

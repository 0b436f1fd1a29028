package projections

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

// applied is a schedule of every minute.
func applied(name string) events.Event {
	return events.Event{
		Type: events.ScheduleApplied, Order: events.ScheduleID(name), Incarnation: 1, Next: at(60),
		Schedule: &events.Schedule{Every: "1m", Workflow: "flow"},
	}
}

// tick begins an order, and has it end if it is to.
func tick(j *journal, name string, n int, ends bool) {
	id := events.ScheduleID(name)
	child := events.TickID(name, 1, at(60*n))
	j.add(events.Event{Type: events.ScheduleStarted, Order: id, Workflow: "flow", Tick: at(60 * n), Child: child, Next: at(60 * (n + 1))})
	if ends {
		j.add(events.Event{Type: events.ScheduleEnded, Order: id, Tick: at(60 * n), Child: child, End: "Processed", Source: "waybill.internal/0/7"})
	}
}

// However often a schedule has ticked, its record has the size of before, and the last of its history; and it
// is the same, whenever it was flushed.
func TestTheRecordOfAScheduleDoesNotGrow(t *testing.T) {
	const ticks = 1_000
	j := newJournal()
	j.add(applied("a"))
	for n := range ticks {
		tick(j, "a", n+1, true)
	}
	var first string
	rapid.Check(t, func(rt *rapid.T) {
		s, p := foldedInParts(rt, j)
		defer s.Close()
		value, err := s.get(s.db, orderKey(0, "@a"))
		must(t, err)
		if first == "" {
			first = string(value)
		}
		if len(value) > 1_000 || string(value) != first {
			t.Errorf("the record has %d bytes, the same as before: %t", len(value), string(value) == first)
		}
		without, offsets, err := s.Journal(0, "@a")
		must(t, err)
		if n := len(offsets); n < keptEvents || n >= 2*keptEvents || without+uint64(n) != 2*ticks+1 || offsets[n-1] != j.records[len(j.records)-1].offset || offsets[0] != j.records[without].offset {
			t.Errorf("it has %d offsets, %v, behind %d events", n, offsets, without)
		}
		if o, err := p.Peek("@a"); err != nil || o.Schedule.Started != ticks || len(o.Schedule.Open) != 0 {
			t.Errorf("%+v, %v", o, err)
		}
	})
}

// A schedule is listed while there is one, apart from orders, and looked at when its next tick is due, unless it is
// paused or an order is in its way.
func TestSchedulesAreListedAndLookedAt(t *testing.T) {
	j := newJournal()
	j.add(accepted("o-1", "flow"))
	for _, name := range []string{"c", "a", "b"} {
		j.add(applied(name))
	}
	j.add(events.Event{Type: events.CommandRefused, Order: "@none", Reason: "no", Operation: "apply"})
	j.add(events.Event{Type: events.SchedulePaused, Order: "@b"})
	tick(j, "c", 1, false)
	s, p := folded(t, j)

	names := func(limit int, visible func(string) bool) (all []string) {
		var after []byte
		for {
			page, next, err := s.Schedules(t.Context(), 1, nil, after, limit, visible)
			must(t, err)
			for _, o := range page {
				all = append(all, o.ID)
			}
			if after = next; next == nil {
				return all
			}
		}
	}
	for _, limit := range []int{1, 2, 100} {
		if all := names(limit, nil); fmt.Sprint(all) != "[@a @b @c]" {
			t.Errorf("%q, %d at a time", all, limit)
		}
	}
	if all := names(1, func(string) bool { return false }); len(all) > 0 {
		t.Errorf("%q are visible", all)
	}
	page, err := s.List(t.Context(), 1, Filter{})
	must(t, err)
	if len(page.Orders) != 1 || page.Orders[0].ID != "o-1" {
		t.Errorf("as orders are listed %v", page.Orders)
	}
	if due := look(t, p, at(3600), 10); fmt.Sprint(due) != "[@a  60]" {
		t.Errorf("%q is due", due)
	}

	j.add(events.Event{Type: events.ScheduleDeleted, Order: "@a"})
	must(t, fold(p, j.records[len(j.records)-1:]))
	must(t, p.Flush())
	if all := names(100, nil); fmt.Sprint(all) != "[@b @c]" {
		t.Errorf("%q are left", all)
	}
	if o, err := p.Order("@a"); err != nil || o.Schedule.Says != nil || o.Schedule.Incarnation != 1 {
		t.Errorf("%+v, %v", o.Schedule, err)
	}
	p.Rescan()
	if due := look(t, p, at(3600), 10); len(due) != 0 {
		t.Errorf("%q is due", due)
	}
}

// What follows no schedule shows that the journal lost something.
func TestEventsOfNoSchedule(t *testing.T) {
	for _, history := range [][]events.Event{
		{{Type: events.SchedulePaused, Order: "@a"}},
		{accepted("o-1", "flow"), {Type: events.SchedulePaused, Order: "o-1"}},
		{applied("a"), {Type: events.ScheduleDeleted, Order: "@a"}, {Type: events.ScheduleStarted, Order: "@a"}},
	} {
		o, err := &Order{}, error(nil)
		for i := range history {
			history[i].Seq = uint64(i + 1)
			if err = o.Apply(&history[i]); i < len(history)-1 && err != nil {
				t.Fatal(err)
			}
		}
		if !errors.Is(err, ErrGap) {
			t.Errorf("%v: %v", history[len(history)-1].Type, err)
		}
	}
}

// The order of a tick is forgotten when its workflow says so, and tells what becomes of it as others do.
func TestAnOrderOfATickIsNobodysChild(t *testing.T) {
	first := accepted("@a/1/x", "flow")
	first.Parent, first.ParentStep, first.Keep = "@a", "x", 60
	o := record(t, first)
	if o.Quiet {
		t.Error("it tells nobody")
	}
	e := events.Event{Type: events.OrderCompleted, At: at(10)}
	apply(t, o, e)
	if got := o.Forgets(); !got.Equal(at(70)) {
		t.Errorf("it is forgotten at %v", got)
	}
	if r := o.Reports(&e); r == nil || r.Parent != "@a" || r.Step != "x" || r.State != "Processed" || r.Output != nil {
		t.Errorf("it tells %+v", r)
	}
}

// A schedule waits for as long as its orders are in the way.
func TestWhenAScheduleWaits(t *testing.T) {
	for overlap, want := range map[string]bool{"": true, events.OverlapQueue: true, events.OverlapAllow: false, events.OverlapCancel: false} {
		first := applied("a")
		first.Schedule.Overlap = overlap
		o := record(t, first, events.Event{Type: events.ScheduleStarted, Order: "@a", Tick: at(60), Child: "@a/1/x", Next: at(120)})
		if waits := o.Schedule.Waits(); waits != want || o.Ticks().IsZero() != want {
			t.Errorf("%q waits: %t, until %v", overlap, waits, o.Ticks())
		}
		apply(t, o, events.Event{Type: events.ScheduleRecalled, Order: "@a", Tick: at(60), Child: "@a/1/x", Reason: "r"})
		if waits := o.Schedule.Waits(); waits != (overlap != events.OverlapAllow) {
			t.Errorf("%q waits once it was recalled: %t", overlap, waits)
		}
		apply(t, o, events.Event{Type: events.ScheduleEnded, Order: "@a", Tick: at(60), Child: "@a/1/x", At: at(90)})
		if o.Schedule.Waits() || !o.Ticks().Equal(at(120)) || !o.Schedule.Free.Equal(at(90)) {
			t.Errorf("%q: %+v", overlap, o.Schedule)
		}
	}
}

// A schedule knows its pauses while a tick waits that may be of them, and no longer.
func TestPausesOfWhichTicksWait(t *testing.T) {
	pause := func(from, until int) []events.Event {
		return []events.Event{{Type: events.SchedulePaused, Order: "@a", At: at(from)}, {Type: events.ScheduleResumed, Order: "@a", At: at(until)}}
	}
	first := applied("a")
	o := record(t, append([]events.Event{first}, pause(10, 20)...)...)
	then := func(all ...events.Event) {
		for _, e := range all {
			apply(t, o, e)
		}
	}
	then(pause(30, 40)...)
	if s := o.Schedule; s.Pauses != nil || !s.PausedUntil(at(30)).Equal(at(40)) || !s.PausedUntil(at(40)).IsZero() || !s.PausedUntil(at(29)).IsZero() {
		t.Errorf("before any tick it knows %+v, and %v to %v", s.Pauses, s.PausedAt, s.Resumed)
	}
	for n := range 3 {
		then(pause(100+20*n, 110+20*n)...)
	}
	s := o.Schedule
	if want := []Pause{{at(100), at(110)}, {at(120), at(130)}}; !slices.Equal(s.Pauses, want) || !s.PausedAt.Equal(at(140)) {
		t.Errorf("while the tick of %v waits it knows %+v, and that of %v", s.Next, s.Pauses, s.PausedAt)
	}
	for second, until := range map[int]int{99: 0, 100: 110, 109: 110, 110: 0, 125: 130, 149: 150, 150: 0} {
		want := at(until)
		if until == 0 {
			want = time.Time{}
		}
		if is := s.PausedUntil(at(second)); !is.Equal(want) {
			t.Errorf("at %v it was paused until %v", at(second), is)
		}
	}
	apply(t, o, events.Event{Type: events.ScheduleSkipped, Order: "@a", Tick: at(60), Last: at(60), Count: 1, Next: at(120), Reason: events.SkippedMissed})
	if want := []Pause{{at(120), at(130)}}; !slices.Equal(o.Schedule.Pauses, want) {
		t.Errorf("then it knows %+v", o.Schedule.Pauses)
	}
	apply(t, o, events.Event{Type: events.ScheduleSkipped, Order: "@a", Tick: at(120), Last: at(120), Count: 1, Reason: events.SkippedPaused})
	if o.Schedule.Pauses != nil {
		t.Errorf("without a next tick it knows %+v", o.Schedule.Pauses)
	}
}

// Of an order that a schedule began nothing is left once it is forgotten, whenever that was flushed: a schedule of
// every second does not fill the store.
func TestOfAForgottenTickNothingIsLeft(t *testing.T) {
	j := newJournal()
	j.add(applied("a"))
	tick(j, "a", 1, true)
	id := events.TickID("a", 1, at(60))
	first := accepted(id, "flow")
	first.Parent, first.ParentStep, first.Keep = "@a", events.TickText(at(60)), 60
	first.Labels = map[string]string{"schedule": "a"}
	j.add(first, started(id, "s0", 1, at(90)))
	j.add(done(id, "s0"), started(id, "s1", 1, at(90)), done(id, "s1"), events.Event{Type: events.OrderCompleted, Order: id})
	j.add(events.Event{Type: events.OrderForgotten, Order: id})
	rapid.Check(t, func(rt *rapid.T) {
		s, p := foldedInParts(rt, j)
		defer s.Close()
		for key := range dump(t, s, 0) {
			if strings.Contains(key, id) {
				t.Errorf("%q is left", key)
			}
		}
		if o, err := p.Order(id); o != nil || err != nil {
			t.Errorf("%+v, %v", o, err)
		}
	})
}

// A backfill with room is looked at at once, however long ago its ticks were: times before 1970 have no place in the
// index of deadlines.
func TestABackfillIsLookedAt(t *testing.T) {
	long := time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)
	backfill := events.Event{Type: events.ScheduleBackfilled, Order: "@a", Backfill: 1, Tick: long, Last: long, Count: 1, AtOnce: 1}
	if o := record(t, applied("a"), backfill); !o.Ticks().Equal(time.Unix(0, 0)) {
		t.Errorf("it is looked at at %v", o.Ticks())
	}
	begun := events.Event{Type: events.ScheduleStarted, Order: "@a", Backfill: 1, Tick: long, Child: "@a/1/x/1", Workflow: "flow"}
	if o := record(t, applied("a"), backfill, begun); !o.Ticks().Equal(at(60)) {
		t.Errorf("then it is looked at at %v", o.Ticks())
	}
}

// A page of schedules ends behind one that is visible, or before all of a partition, so that its place names none that is
// not; whatever its bound, each that is visible is on one page.
func TestPagesOfSchedulesNameNoOthers(t *testing.T) {
	s, _ := temporary(t)
	for p, names := range map[int32][]string{0: {"hid-1", "a", "hid-2", "hid-3", "b"}, 1: {"hid-4", "hid-5"}, 2: {"hid-6", "c", "hid-7"}} {
		j := newJournal()
		for _, name := range names {
			e := applied(name)
			if e.Schedule.Workflow = "seen"; strings.HasPrefix(name, "hid") {
				e.Schedule.Workflow = "hidden"
			}
			j.add(e)
		}
		writer := partition(t, s, p)
		must(t, fold(writer, j.records))
		must(t, writer.Flush())
	}
	visible := func(workflow string) bool { return workflow == "seen" }
	for _, most := range []int{1, 2, 3, 100} {
		for _, limit := range []int{1, 2, 100} {
			var all []string
			var place []byte
			for pages := 0; ; pages++ {
				read := s.summaries()
				read.most = most
				page, next, err := read.allApplied(t.Context(), kindSchedule, events.ScheduleID, 3, nil, place, limit, visible)
				must(t, err)
				for _, o := range page {
					all = append(all, o.ID)
				}
				if strings.Contains(string(next), "hid") || next != nil && checkPlace(next, 3, kindSchedule) != nil {
					t.Errorf("a page of %d ends at %q", limit, next)
				}
				if place = next; next == nil || pages > 20 {
					break
				}
			}
			if fmt.Sprint(all) != "[@a @b @c]" {
				t.Errorf("%q, %d at a time, %d looked at", all, limit, most)
			}
		}
	}
}

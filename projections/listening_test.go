package projections

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

// hearing is the beginning of an order that waits for signals.
func hearing(id string, seconds int, flow string, names ...string) []events.Event {
	return []events.Event{
		{Type: events.OrderAccepted, Order: id, Workflow: flow, Version: 1, Steps: []string{"a", "b"}, At: at(seconds)},
		{Type: events.StepListening, Order: id, Step: "a", Attempt: 1, Listen: events.ListenAll, Signals: names, At: at(seconds)},
	}
}

// listening are the orders that wait for signals, page by page.
func listening(t *testing.T, s *Store, which Listeners, limit int, visible func(string) bool) (ids []string) {
	t.Helper()
	for place := (*OpenPlace)(nil); ; {
		page, err := s.Listening(t.Context(), which, 2, nil, place, limit, visible)
		must(t, err)
		for _, o := range page.Orders {
			ids = append(ids, o.ID)
		}
		if place = page.Next; place == nil {
			return ids
		}
		if len(ids) > 100 {
			t.Fatalf("the pages have no end: %q", ids)
		}
	}
}

// What waits for signals is listed by when it changed last, of all partitions, as long as it waits, whatever else it is.
func TestOrdersThatWaitForSignals(t *testing.T) {
	j, other := newJournal(), newJournal()
	for i, id := range []string{"heard", "paused", "timed", "ended", "held", "quiet"} {
		j.add(hearing(id, i+1, "flow", "deposit", "documents")...)
	}
	other.add(hearing("beside", 4, "other", "deposit")...)
	j.add(accepted("none", "flow"), started("none", "s0", 1, at(60)))
	j.add(
		events.Event{Type: events.StepHeard, Order: "heard", Step: "a", Attempt: 1, Signal: "deposit", At: at(20)},
		events.Event{Type: events.OrderPaused, Order: "paused", By: "kim", At: at(19)},
		events.Event{Type: events.OrderErrored, Order: "held", Held: true, Reason: "it panicked", At: at(21)},
		events.Event{Type: events.OrderTerminated, Order: "ended", At: at(22), Reason: "enough"},
		events.Event{Type: events.StepTimedOut, Order: "timed", At: at(23), Step: "a", Attempt: 1},
	)
	s, p := folded(t, j)
	second := partition(t, s, 1)
	must(t, fold(second, other.records))
	must(t, second.Flush())
	for _, limit := range []int{1, 2, 100} {
		expect(t, "who waits", listening(t, s, Listeners{}, limit, nil), []string{"beside", "quiet", "paused", "heard", "held"})
		expect(t, "who waits for it", listening(t, s, Listeners{Signal: "deposit"}, limit, nil), []string{"beside", "quiet", "paused", "held"})
		expect(t, "who of them is of a workflow", listening(t, s, Listeners{Signal: "documents", Workflow: "flow"}, limit, nil), []string{"quiet", "paused", "heard", "held"})
		expect(t, "who is of the other", listening(t, s, Listeners{Workflow: "other"}, limit, nil), []string{"beside"})
		expect(t, "who of them is visible", listening(t, s, Listeners{}, limit, func(flow string) bool { return flow == "other" }), []string{"beside"})
	}
	since := func(id string) string {
		o, err := p.Peek(id)
		must(t, err)
		return fmt.Sprint(o.ListeningSince(&o.Steps[0]).Equal(o.UpdatedAt), o.ListeningSince(&o.Steps[0]).IsZero(), o.ListeningSince(&o.Steps[1]).IsZero())
	}
	expect(t, "since when", []string{since("quiet"), since("heard"), since("timed")}, []string{"true false true", "false true true", "false true true"})

	before := len(j.records)
	j.add(
		events.Event{Type: events.StepHeard, Order: "heard", Step: "a", Attempt: 1, Signal: "documents", At: at(30)},
		events.Event{Type: events.OrderCompensating, Order: "quiet", End: "Cancelled", At: at(31)},
		events.Event{Type: events.OrderReleased, Order: "held", At: at(32)},
	)
	must(t, fold(p, j.records[before:]))
	must(t, p.Flush())
	expect(t, "who waits then", listening(t, s, Listeners{}, 10, nil), []string{"beside", "paused", "held"})
}

// listens holds the index of those that wait for signals against all records there are.
func listens(t testing.TB, s *Store) (orders int) {
	t.Helper()
	var want, have [][]byte
	it, err := s.db.NewIter(&pebble.IterOptions{UpperBound: metaKey})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		switch k := bytes.Clone(it.Key()); k[4] {
		case kindListens:
			have = append(have, k)
		case kindOrder:
			o, _, err := decodeRecord(string(k[5:]), it.Value())
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(o.Steps, func(s Step) bool { return s.State == Listening }) && !o.State.Final() {
				want = append(want, openKey(kindListens, int32(k[3]), o.UpdatedAt, o.ID))
			}
		}
	}
	slices.SortFunc(want, bytes.Compare)
	if !slices.EqualFunc(have, want, bytes.Equal) {
		t.Fatalf("the index has %q, and the records %q", have, want)
	}
	return len(have)
}

// An order that ends while it waits for signals waits no more, and none that is forgotten then is left in the index,
// whatever of that is written when.
func TestAnOrderThatEndsWaitsForNoSignals(t *testing.T) {
	for _, end := range []events.Type{events.OrderTerminated, events.OrderCancelled} {
		for _, flushed := range []string{"both", "the wait", "the end"} {
			t.Run(fmt.Sprint(end, ", ", flushed, " written apart"), func(t *testing.T) {
				s, p := temporary(t)
				j := newJournal()
				write := func(when bool, all ...events.Event) {
					before := len(j.records)
					j.add(all...)
					must(t, fold(p, j.records[before:]))
					if when {
						must(t, p.Flush())
						listens(t, s)
					}
				}
				write(flushed != "the end", hearing("o-1", 0, "flow", "x")...)
				write(flushed != "the wait", events.Event{Type: end, Order: "o-1", At: at(1)})
				write(true, events.Event{Type: events.OrderForgotten, Order: "o-1", At: at(2)})
				if n := listens(t, s); n > 0 {
					t.Errorf("%d orders wait", n)
				}
			})
		}
	}
}

// Whatever happens to orders, the index has those that wait for signals, each once.
func TestTheIndexOfSignalsIsThatOfRecords(t *testing.T) {
	for _, journal := range []string{"ae33b53", "099af1c"} {
		if n := listens(t, foldGolden(t, filepath.Join("testdata/golden", journal, "journal.jsonl")).store); (n > 0) != (journal == "099af1c") {
			t.Errorf("%s: %d orders wait", journal, n)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		s, err := Temporary()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		p, err := s.Partition(0)
		if err != nil {
			t.Fatal(err)
		}
		j, folded, seconds := newJournal(), 0, 0
		for range rapid.IntRange(1, 12).Draw(r, "transactions") {
			seconds += rapid.IntRange(0, 2).Draw(r, "seconds") // some at the same time
			id := rapid.SampledFrom([]string{"o-1", "o-2", "o-3"}).Draw(r, "order")
			o, err := p.Order(id)
			if err != nil {
				t.Fatal(err)
			}
			e := events.Event{Order: id, At: at(seconds), Step: rapid.SampledFrom([]string{"a", "b"}).Draw(r, "step"), Attempt: 1}
			switch {
			case o == nil:
				e = hearing(id, seconds, "flow")[0]
			case o.Forgotten:
				continue
			case o.State.Final():
				e.Type = events.OrderForgotten
			case o.Hold != nil:
				e.Type = events.OrderReleased
			default:
				e.Type = rapid.SampledFrom([]events.Type{
					events.StepListening, events.StepListening, events.StepHeard, events.StepTimedOut, events.StepSkipped, events.StepCompleted, events.OrderPaused, events.OrderResumed,
					events.SignalKept, events.OrderErrored, events.OrderCompensating, events.OrderTerminated, events.OrderCancelled, events.OrderMigrated,
				}).Draw(r, "type")
			}
			switch e.Type {
			case events.StepListening:
				e.Listen, e.Signals = events.ListenAll, []string{"x", "y"}
			case events.StepHeard:
				e.Signal = rapid.SampledFrom([]string{"x", "y"}).Draw(r, "signal")
			case events.OrderErrored:
				e.Step, e.Held = "", rapid.Bool().Draw(r, "held")
			case events.OrderCompensating:
				e.End = "Cancelled"
			case events.OrderMigrated:
				e.Step, e.From, e.Version, e.Steps, e.Renamed, e.Renewed = "", 1, 2, []string{"b", "c"}, map[string]string{"c": "a"}, []string{"b"}
				if o.Step("a") == nil {
					e.Steps, e.Renamed, e.Renewed = []string{"a", "b"}, map[string]string{"a": "c"}, nil
				}
			}
			if e.Type == events.OrderForgotten || e.Type == events.OrderReleased {
				e.Step, e.Attempt = "", 0
			}
			if e.Step != "" && o != nil && o.Step(e.Step) == nil {
				e.Step = "c"
			}
			j.add(e)
			if err := fold(p, j.records[folded:]); err != nil {
				t.Fatalf("%+v: %v", e, err)
			}
			if folded = len(j.records); rapid.Bool().Draw(r, "is flushed with the next") {
				continue
			}
			if err := p.Flush(); err != nil {
				t.Fatal(err)
			}
			listens(t, s)
		}
	})
}

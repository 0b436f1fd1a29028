package projections

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

// Of an order that is forgotten a key is left with at most 30 bytes and the name of its workflow, whatever it had before and
// whenever that was flushed: no payload, no place in an index, nobody who looks at it.
func TestAForgottenOrderLeavesLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := newJournal()
		first := accepted("o-1", "flow")
		first.Labels, first.Keep = map[string]string{"customer": "c-7"}, 3600
		first.Steps = append(first.Steps, "s2")
		first.Digest = strings.Repeat("d", 22)
		approving := of(events.StepApproving, "s0", 1)
		approving.Roles, approving.Outcomes, approving.Input = []string{"clerk"}, []string{"yes"}, input("shown")
		emits := emitting("o-1", "shop.a", 1)
		emits.Step = "s2"
		history := append([]events.Event{
			first, approving, started("o-1", "s1", 1, at(60)), emits, failing(events.StepFailed, "s1", 1, "gone"),
			{Type: events.OrderErrored, Order: "o-1", Reason: "s1 is gone"},
			{Type: events.AlertRaised, Order: "o-1", Reason: "s1 is gone"},
		},
			rapid.SampledFrom([][]events.Event{
				{{Type: events.OrderTerminated, Order: "o-1", Reason: "enough"}},
				{{Type: events.OrderCompensating, Order: "o-1", End: "Compensated", Reason: "s1"}, {Type: events.OrderCompensated, Order: "o-1"}},
			}).Draw(t, "end")...)
		for _, e := range history {
			j.add(e)
		}
		j.add(events.Event{Type: events.OrderForgotten, Order: "o-1"})
		s, p := foldedInParts(t, j)
		defer s.Close()
		keys := 0
		err := s.Dump(0, func(Head) error { return nil }, func(key, value []byte) error {
			if strings.Contains(string(key), "o-1") || strings.Contains(string(value), "o-1") {
				if keys++; len(value) > 30+len("flow") {
					t.Errorf("of %q %d bytes are left", key, len(value))
				}
			}
			return nil
		})
		if err != nil || keys != 1 {
			t.Errorf("%d keys are left, %v", keys, err)
		}
		if _, _, err := s.Order(0, "o-1"); !errors.Is(err, ErrForgotten) {
			t.Errorf("the order: %v", err)
		}
		if _, _, err := s.Journal(0, "o-1"); !errors.Is(err, ErrForgotten) {
			t.Errorf("its history: %v", err)
		}
		if _, err := s.Showing(0, "o-1"); !errors.Is(err, ErrForgotten) {
			t.Errorf("what it shows: %v", err)
		}
		o, err := p.Peek("o-1")
		if err != nil || !o.Forgotten || !o.State.Final() || o.Digest != first.Digest || o.Seq != uint64(len(history)+1) {
			t.Errorf("its record is %+v, %v", o, err)
		}
		if due, err := p.Due(start.AddDate(10, 0, 0), 10); len(due) != 0 || err != nil {
			t.Errorf("%v is due, %v", due, err)
		}
	})
}

// No new layout makes an order of what is forgotten: its record stays as it is.
func TestForgottenOrdersAreMigrated(t *testing.T) {
	j := newJournal()
	j.claim("i-1", 1, events.JournalFormat)
	j.add(accepted("o-1", "flow"), events.Event{Type: events.OrderForgotten, Order: "o-1"})
	dir, states := written(t, j)
	for from := 13; from < layout; from++ {
		db, err := pebble.Open(dir, options(vfs.Default, silent))
		must(t, err)
		b := db.NewBatch()
		must(t, (&meta{Identity: identity, Layout: from}).write(b))
		must(t, b.Commit(pebble.Sync))
		must(t, db.Close())
		s := mustOpen(t, dir)
		partition(t, s, 0)
		if got, want := dump(t, s, 0), states[j.end-1]; !maps.Equal(got, want) {
			t.Errorf("a store of layout %d has %q, not %q", from, got, want)
		}
		if _, _, err := s.Order(0, "o-1"); !errors.Is(err, ErrForgotten) {
			t.Errorf("the order of a store of layout %d: %v", from, err)
		}
		must(t, s.Close())
	}
}

// When an order is forgotten counts from its end, whatever comes after, and from its last end where an order
// that did a step of another is undone after all. While it is kept the one that it did a step of keeps it.
func TestWhenAnOrderIsForgotten(t *testing.T) {
	first := accepted("o-1", "flow")
	first.Keep = 60
	o := record(t, first, events.Event{Type: events.OrderCompleted, At: at(10)})
	if got := o.Forgets(); !got.Equal(at(70)) {
		t.Errorf("it is forgotten at %v", got)
	}
	apply(t, o, events.Event{Type: events.OrderLabelled, At: at(20)})
	if got := o.Forgets(); !got.Equal(at(70)) {
		t.Errorf("once it has other labels it is forgotten at %v", got)
	}
	apply(t, o, events.Event{Type: events.OrderCompensating, End: "Compensated", Reason: "no more", At: at(30)})
	if got := o.Forgets(); !got.IsZero() {
		t.Errorf("while it is undone it is forgotten at %v", got)
	}
	apply(t, o, events.Event{Type: events.OrderCompensated, At: at(40)})
	if got := o.Forgets(); !got.Equal(at(100)) {
		t.Errorf("it is forgotten at %v", got)
	}
	for _, detached := range []bool{false, true} {
		first.Parent, first.ParentStep, first.Detached = "p-1", "s0", detached
		o := record(t, first, events.Event{Type: events.OrderCompleted, At: at(10)})
		if got := o.Forgets(); got.Equal(at(70)) != detached || got.IsZero() == detached {
			t.Errorf("detached: %t, it is forgotten at %v", detached, got)
		}
	}
	first.Parent, first.Keep = "", 0
	if got := record(t, first, events.Event{Type: events.OrderCompleted, At: at(10)}).Forgets(); got != (time.Time{}) {
		t.Errorf("one that is kept for ever is forgotten at %v", got)
	}
}

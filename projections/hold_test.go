package projections

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

func heldInput(n int, value []byte) events.Event {
	return events.Event{
		Type: events.InputHeld, Source: fmt.Sprint("waybill.replies/0/", n),
		Raw: &events.Raw{Written: at(n), Key: []byte("o-1"), Value: value, Headers: []events.RawHeader{{Key: "h", Value: []byte("v")}}},
	}
}

var poisoned = events.Event{Type: events.OrderErrored, Held: true, Reason: "it panicked"}

// An order that is held keeps what it was: its deadlines count again afterwards.
func TestHeldAndReleased(t *testing.T) {
	a := accepted("o-1", "flow")
	a.Deadline = at(100)
	retried := of(events.StepRetried, "s1", 2)
	retried.Due = at(30)
	o := record(t, a, started("o-1", "s0", 1, at(60)), started("o-1", "s1", 1, at(70)), failing(events.StepFailed, "s1", 1, "busy"), retried)
	was := o.Clone()
	apply(t, o, poisoned)
	apply(t, o, events.Event{Type: events.AlertRaised, Reason: "it panicked"})
	apply(t, o, heldInput(1, []byte("{}")))
	if o.State != Error || o.LockedBy != "" || o.Hold == nil || len(o.Waiting) != 1 || !o.Overdue().IsZero() || !o.Attention(&o.Steps[0]).IsZero() || !o.Attention(&o.Steps[1]).IsZero() {
		t.Fatalf("%+v", o)
	}
	for name, e := range map[string]events.Event{
		"another input": {Type: events.InputReleased, Source: "waybill.replies/0/2"},
		"no input":      {Type: events.InputHeld, Source: "waybill.replies/0/2"},
	} {
		e.Order, e.Seq = "o-1", o.Seq+1
		if err := o.Apply(&e); !errors.Is(err, ErrGap) {
			t.Errorf("%s: %v", name, err)
		}
	}
	late := o.Clone()
	apply(t, o, events.Event{Type: events.OrderReleased, LockedBy: "i-2", At: at(99)})
	if o.State != Processing || o.LockedBy != "i-2" || o.Hold != nil || o.Alert != nil || o.Reason != "" || !o.Overdue().Equal(at(100)) {
		t.Errorf("%+v", o)
	}
	for i := range o.Steps {
		expect(t, "when the supervisor looks", o.Attention(&o.Steps[i]), was.Attention(&was.Steps[i]))
	}
	apply(t, o, events.Event{Type: events.InputReleased, Source: "waybill.replies/0/1"})
	expect(t, "what waits", len(o.Waiting), 0)
	apply(t, late, events.Event{Type: events.OrderReleased, LockedBy: "i-2", At: at(100)})
	expect(t, "the deadline of one released at it", late.Overdue(), time.Time{})
}

// One that was in Error is in Error again, with the alert that it had.
func TestHeldInError(t *testing.T) {
	o := record(t, inError()...)
	alert, reason := o.Alert, o.Reason
	apply(t, o, poisoned)
	apply(t, o, events.Event{Type: events.AlertRaised, Reason: "it panicked"})
	expect(t, "the reason while it is held", o.Reason, "it panicked")
	apply(t, o, events.Event{Type: events.OrderReleased})
	if o.State != Error || o.Alert != alert || o.Reason != reason || o.Hold != nil {
		t.Errorf("%+v", o)
	}
	e := events.Event{Type: events.OrderReleased, Order: "o-1", Seq: o.Seq + 1}
	if err := o.Apply(&e); !errors.Is(err, ErrGap) {
		t.Errorf("a second release: %v", err)
	}
}

// T1: what waits, small or large, is what a replay gives back, and leaves
// nothing behind in the store.
func TestT1WhatWaits(t *testing.T) {
	j := newJournal()
	history := []events.Event{accepted("o-1", "flow"), started("o-1", "s0", 1, at(60)), poisoned}
	for i, size := range []int{10, 5 * inlinePayload, inlinePayload, inlinePayload + 1} {
		history = append(history, heldInput(i, payloadOf(size)))
	}
	history = append(history, events.Event{Type: events.OrderReleased, LockedBy: "i-1"})
	for i, kind := range []events.Type{events.InputReleased, events.InputDiscarded, events.InputReleased, events.InputReleased} {
		history = append(history, events.Event{Type: kind, Source: fmt.Sprint("waybill.replies/0/", i), Reason: "r"})
	}
	often, p := temporary(t)
	for i, e := range history {
		e.Order = "o-1"
		j.add(e)
		must(t, fold(p, j.records[len(j.records)-1:]))
		must(t, p.Flush())
		once, _ := folded(t, j)
		if !maps.Equal(dump(t, often, 0), dump(t, once, 0)) {
			t.Fatalf("after %s, event %d, what was stored bit by bit is not what a replay gives back", e.Type, i+1)
		}
		o, _, err := often.Order(0, "o-1")
		must(t, err)
		for k := range o.Waiting {
			if h := &o.Waiting[k]; len(h.Value) == 0 || string(h.Key) != "o-1" || string(h.Headers[0].Value) != "v" || h.Written.IsZero() {
				t.Fatalf("after event %d there waits %+v", i+1, h)
			}
		}
	}
	for key := range dump(t, often, 0) {
		if strings.Contains(key, ":held:") {
			t.Errorf("left behind is %q", key)
		}
	}
}

// Why an order is compensated is known as long as it is, also once an undo that
// failed was resubmitted.
func TestWhyOutlastsAnUndo(t *testing.T) {
	o := record(t, append(compensating(), undoStarted(1), failing(events.UndoFailed, "s0", 1, "gone"),
		events.Event{Type: events.OrderErrored, Reason: "an undo failed"})...)
	expect(t, "why it is in Error", o.StandingReason(), "an undo failed")
	apply(t, o, events.Event{Type: events.OrderResubmitted})
	expect(t, "why it is compensated", o.StandingReason(), "s1 is gone")
}

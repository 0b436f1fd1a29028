package oracle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

func after(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// trip is two steps, the second after the first: a has two attempts and is
// compensated for, b has an undo.
func trip(string, int) *Flow {
	flow, err := ReadFlow([]byte(`{"workflow":"trip","version":1,"overdue":"error","steps":[
		{"name":"a","agent":"x","do":"a","undo":"back","after":[],"timeout":"10s","exhausted":"error",
			"retry":{"attempts":2,"backoff":"1s","multiplier":2,"max":"30s","jitter":0}},
		{"name":"b","agent":"y","do":"b","undo":"back","after":["a"],"timeout":"10s","exhausted":"compensate",
			"retry":{"attempts":1,"backoff":"1s","multiplier":2,"max":"30s","jitter":0}}]}`))
	if err != nil {
		panic(err)
	}
	return flow
}

// history is one that breaks no rule: a is tried twice, b fails and the order
// is compensated; an operator has to help with the undo of a.
func history() []events.Event {
	started := func(seconds int, step, agent string, attempt int) events.Event {
		return events.Event{
			Type: events.StepStarted, At: after(seconds), Step: step, Attempt: attempt, Agent: agent, Operation: step,
			IdempotencyKey: "o/" + step, CompleteBy: after(seconds + 10), LockedBy: "i-1",
		}
	}
	undo := func(seconds int, step, agent, key, outcome string, attempt int) events.Event {
		e := started(seconds, step, agent, attempt)
		e.Type, e.Operation, e.IdempotencyKey, e.Outcome = events.UndoStarted, "back", key, outcome
		return e
	}
	busy := &events.Error{Code: "busy"}
	gone := &events.Error{Code: "gone", Permanent: true}
	h := []events.Event{
		{Type: events.OrderAccepted, At: after(0), Workflow: "trip", Version: 1, Steps: []string{"a", "b"}},
		started(0, "a", "x", 1),
		{Type: events.StepFailed, At: after(1), Step: "a", Attempt: 1, Error: busy},
		{Type: events.StepRetried, At: after(1), Step: "a", Attempt: 2, Due: after(2)},
		started(2, "a", "x", 2),
		{Type: events.ReplyDiscarded, At: after(3), Step: "a", Attempt: 1, Reason: events.DiscardStale},
		{Type: events.StepCompleted, At: after(3), Step: "a", Attempt: 2},
		started(3, "b", "y", 1),
		{Type: events.StepExpired, At: after(13), Step: "b", Attempt: 1, Error: &events.Error{Code: "expired"}},
		{Type: events.OrderCompensating, At: after(13), Step: "b", Reason: "b expired", Error: &events.Error{Code: "expired"}, End: "Compensated"},
		undo(13, "b", "y", "o/b:undo", events.OutcomeUnknown, 1),
		{Type: events.UndoCompleted, At: after(14), Step: "b", Attempt: 1},
		undo(14, "a", "x", "o/a:undo", events.OutcomeCompleted, 1),
		{Type: events.UndoFailed, At: after(15), Step: "a", Attempt: 1, Error: gone},
		{Type: events.OrderErrored, At: after(15), Step: "a", Reason: "1 of the undos failed"},
		{
			Type: events.AlertRaised, At: after(15), Step: "a", Reason: "1 of the undos failed", Action: "repair it",
			Errors: []events.Error{{Code: "gone", Permanent: true, Step: "a", Attempt: 1, Undo: true}, {Code: "expired", Step: "b", Attempt: 1}},
		},
		{Type: events.OrderResubmitted, At: after(20)},
		undo(20, "a", "x", "o/a:undo:2", events.OutcomeCompleted, 2),
		{Type: events.UndoCompleted, At: after(21), Step: "a", Attempt: 2},
		{Type: events.OrderCompensated, At: after(21), Undone: []string{"a", "b"}},
		{Type: events.CommandRefused, At: after(22), Operation: "cancel", Reason: "it has ended"},
	}
	return h
}

// poisoned is one that breaks no rule either: deciding on a's reply panics, and
// again after a first release, which gave up the reply before it.
func poisoned() []events.Event {
	panicked := &events.Error{Code: "internal", Message: "it panicked", Permanent: true}
	held := func(seconds int) []events.Event {
		return []events.Event{
			{Type: events.OrderErrored, At: after(seconds), Held: true, Reason: "it panicked", Error: panicked},
			{Type: events.AlertRaised, At: after(seconds), Reason: "it panicked", Errors: []events.Error{*panicked}, Action: "release it"},
		}
	}
	input := func(kind events.Type, seconds, n int) events.Event {
		e := events.Event{Type: kind, At: after(seconds), Source: fmt.Sprint("replies/0/", n)}
		switch kind {
		case events.InputHeld:
			e.Raw = &events.Raw{Value: []byte("{}")}
		case events.InputDiscarded:
			e.Reason = "why"
		}
		return e
	}
	return slices.Concat(history()[:2], held(1), []events.Event{
		input(events.InputHeld, 1, 1),
		input(events.InputHeld, 2, 2),
		{Type: events.CommandRefused, At: after(2), Operation: "cancel", Reason: "it is held"},
		input(events.InputHeld, 3, 3),
		input(events.InputDiscarded, 3, 4),
		{Type: events.OrderReleased, At: after(4), LockedBy: "i-1"},
		input(events.InputDiscarded, 4, 1),
	}, held(4), []events.Event{
		{Type: events.OrderReleased, At: after(5), LockedBy: "i-1"},
		input(events.InputReleased, 5, 2),
		{Type: events.StepFailed, At: after(5), Step: "a", Attempt: 1, Error: &events.Error{Code: "busy"}},
		{Type: events.StepRetried, At: after(5), Step: "a", Attempt: 2, Due: after(6)},
		input(events.InputReleased, 5, 3),
		{Type: events.ReplyDiscarded, At: after(5), Step: "a", Attempt: 1, Reason: events.DiscardRepeated},
	})
}

func follow(h []events.Event) error {
	l := NewLedger("o", trip)
	for i := range h {
		h[i].Order, h[i].Seq = "o", uint64(i+1)
		if err := l.Add(&h[i]); err != nil {
			return err
		}
	}
	return l.Rest()
}

func TestLedgerTakesAHistory(t *testing.T) {
	h := history()
	if err := follow(h); err != nil {
		t.Fatal(err)
	}
	// At some of its places nothing more is to be decided, at others it is.
	var rests []int
	for n := 1; n <= len(h); n++ {
		if follow(history()[:n]) == nil {
			rests = append(rests, n)
		}
	}
	if want := []int{2, 4, 5, 6, 8, 11, 13, 16, 18, 20, 21}; !slices.Equal(rests, want) {
		t.Errorf("it may rest after %v, and not after %v", rests, want)
	}
}

// TestLedgerOfAHeldOrder: each input that is held is decided or discarded once, in
// order, and until the release nothing else is decided.
func TestLedgerOfAHeldOrder(t *testing.T) {
	if err := follow(poisoned()); err != nil {
		t.Fatal(err)
	}
	for i, e := range poisoned() {
		name := fmt.Sprint(i+1, " ", strings.TrimPrefix(string(e.Type), "waybill."))
		passive := e.Type == events.CommandRefused || e.Type == events.ReplyDiscarded || e.Source == "replies/0/4"
		if err := follow(slices.Delete(poisoned(), i, i+1)); err == nil && !passive {
			t.Errorf("%s is lost, and nobody notices", name)
		}
		if err := follow(slices.Insert(poisoned(), i, e)); err == nil && e.Type != events.CommandRefused && e.Type != events.ReplyDiscarded {
			t.Errorf("%s comes twice, and nobody notices", name)
		}
	}
	for name, e := range map[string]events.Event{
		"a step expires":     {Type: events.StepExpired, At: after(11), Step: "a", Attempt: 1, Error: &events.Error{Code: "expired"}},
		"a reply counts":     {Type: events.StepCompleted, At: after(3), Step: "a", Attempt: 1},
		"a reply does not":   {Type: events.ReplyDiscarded, At: after(3), Step: "b", Attempt: 1, Reason: events.DiscardUnknownStep},
		"it is resubmitted":  {Type: events.OrderResubmitted, At: after(3)},
		"it is released":     {Type: events.OrderReleased, At: after(3), LockedBy: "i-1"},
		"an input is let by": {Type: events.InputReleased, At: after(3), Source: "replies/0/1"},
		"an input is lost":   {Type: events.InputDiscarded, At: after(3), Source: "replies/0/1", Reason: "why"},
	} {
		if err := follow(slices.Insert(poisoned(), 6, e)); err == nil {
			t.Errorf("%s while the order is held, and nobody notices", name)
		}
	}
	h := poisoned()
	var released []int
	for i := range h {
		if h[i].Type == events.InputReleased {
			released = append(released, i)
		}
	}
	first, second := &h[released[0]], &h[released[1]]
	first.Source, second.Source = second.Source, first.Source
	if follow(h) == nil {
		t.Error("inputs change places, and nobody notices")
	}
	if err := follow(poisoned()[:10]); err == nil {
		t.Error("inputs wait of an order that was released, and nobody notices")
	}
}

// TestLedgerRefuses: whatever event is lost, comes twice or is another one, the
// ledger notices.
func TestLedgerRefuses(t *testing.T) {
	last := len(history()) - 1
	passive := func(e *events.Event) bool { return e.Type == events.ReplyDiscarded || e.Type == events.CommandRefused }
	for i, e := range history() {
		if passive(&e) {
			continue
		}
		name := fmt.Sprint(i+1, " ", strings.TrimPrefix(string(e.Type), "waybill."))
		if err := follow(slices.Delete(history(), i, i+1)); err == nil {
			t.Errorf("%s is lost, and nobody notices", name)
		}
		if err := follow(slices.Insert(history(), i, e)); err == nil {
			t.Errorf("%s comes twice, and nobody notices", name)
		}
		if next := history()[min(i+1, last)]; !passive(&next) && next.Type != e.Type {
			h := history()
			h[i], h[i+1] = h[i+1], h[i]
			if err := follow(h); err == nil {
				t.Errorf("%s comes too late, and nobody notices", name)
			}
		}
	}
	for name, change := range map[string]func(h []events.Event){
		"a number is left out":              func(h []events.Event) { h[1].Seq = 9 },
		"another key for a retry":           func(h []events.Event) { h[4].IdempotencyKey = "o/a:2" },
		"the old key after a resubmission":  func(h []events.Event) { h[17].IdempotencyKey = "o/a:undo" },
		"another complete-by":               func(h []events.Event) { h[1].CompleteBy = after(11) },
		"nobody holds the lock":             func(h []events.Event) { h[1].LockedBy = "" },
		"another agent":                     func(h []events.Event) { h[1].Agent = "z" },
		"a retry too early":                 func(h []events.Event) { h[3].Due = after(1) },
		"a retry too late":                  func(h []events.Event) { h[3].Due = after(9) },
		"a retry of a permanent error":      func(h []events.Event) { h[2].Error = &events.Error{Permanent: true} },
		"it expires before its time":        func(h []events.Event) { h[8].At = after(12) },
		"a reply discarded for no reason":   func(h []events.Event) { h[5].Reason = events.DiscardLate },
		"an undo that knows too much":       func(h []events.Event) { h[10].Outcome = events.OutcomeCompleted },
		"an alert without an error":         func(h []events.Event) { h[15].Errors = h[15].Errors[:1] },
		"an alert without a way out":        func(h []events.Event) { h[15].Action = "" },
		"an outcome that forgets a step":    func(h []events.Event) { h[19].Undone = []string{"b"} },
		"an outcome in another order":       func(h []events.Event) { h[19].Undone = []string{"b", "a"} },
		"another end":                       func(h []events.Event) { h[19].Type = events.OrderCancelled },
		"a reply to nothing that was asked": func(h []events.Event) { h[6].Attempt = 3 },
	} {
		h := history()
		for i := range h {
			h[i].Order, h[i].Seq = "o", uint64(i+1)
		}
		change(h)
		l := NewLedger("o", trip)
		var err error
		for i := range h {
			if err = l.Add(&h[i]); err != nil {
				break
			}
		}
		if err == nil {
			t.Errorf("%s, and nobody notices", name)
		}
	}
}

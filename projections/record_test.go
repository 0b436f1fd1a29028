package projections

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// record folds the history of one order with the steps s0 and s1. Events that
// have no time of their own come a second apart.
func record(t *testing.T, history ...events.Event) *Order {
	t.Helper()
	o := &Order{}
	for i := range history {
		apply(t, o, history[i])
	}
	return o
}

func apply(t *testing.T, o *Order, e events.Event) {
	t.Helper()
	e.Order, e.Seq = "o-1", o.Seq+1
	if e.At.IsZero() {
		e.At = at(int(o.Seq))
	}
	must(t, o.Apply(&e))
}

func ran(step string) []events.Event {
	return []events.Event{started("o-1", step, 1, at(60)), done("o-1", step)}
}

func of(kind events.Type, step string, attempt int) events.Event {
	return events.Event{Type: kind, Order: "o-1", Step: step, Attempt: attempt}
}

func failing(kind events.Type, step string, attempt int, code string) events.Event {
	e := of(kind, step, attempt)
	e.Error = &events.Error{Code: code}
	return e
}

// compensating is an order of which s0 ran and s1 failed.
func compensating() []events.Event {
	return append(append([]events.Event{accepted("o-1", "flow")}, ran("s0")...),
		started("o-1", "s1", 1, at(60)), failing(events.StepFailed, "s1", 1, "gone"),
		events.Event{Type: events.OrderCompensating, End: "Compensated", Reason: "s1 is gone", Step: "s1"})
}

// undoStarted begins an attempt to undo s0.
func undoStarted(attempt int) events.Event {
	e := of(events.UndoStarted, "s0", attempt)
	e.CompleteBy, e.IdempotencyKey, e.LockedBy = at(90), events.UndoKey(events.IdempotencyKey("o-1", "s0", 0), 0), "i-1"
	return e
}

func expect(t *testing.T, what string, is, want any) {
	t.Helper()
	if !reflect.DeepEqual(is, want) {
		t.Errorf("%s is %v, not %v", what, is, want)
	}
}

// T3: there is one record for each step, and one for its undo once that began.
func TestT3UndoHasARecord(t *testing.T) {
	o := record(t, compensating()...)
	expect(t, "state", o.State, Compensating)
	expect(t, "what it leads to", o.Toward, Compensated)
	expect(t, "reason", o.Reason, "s1 is gone")
	if o.Steps[0].Undo != nil {
		t.Errorf("an undo that has not begun has a record: %+v", o.Steps[0].Undo)
	}

	apply(t, o, undoStarted(1))
	undo := o.Steps[0].Undo
	expect(t, "undo", undo.State, Running)
	expect(t, "its complete-by", undo.CompleteBy, at(90))
	expect(t, "its key", undo.IdempotencyKey, "o-1/s0:undo")
	expect(t, "locked by", o.LockedBy, "i-1")
	expect(t, "the order's complete-by", o.CompleteBy(at(100)), at(90))
	expect(t, "the step", o.Steps[0].State, Completed)
	expect(t, "the step's deadline", o.Steps[0].Deadline(), at(90))

	apply(t, o, of(events.UndoCompleted, "s0", 1))
	expect(t, "undo", undo.State, Completed)
	expect(t, "the step", o.Steps[0].State, Undone)
	expect(t, "locked by", o.LockedBy, "")
	expect(t, "deadline", o.Steps[0].Deadline(), time.Time{})
	expect(t, "state", o.State, Compensating)

	apply(t, o, events.Event{Type: events.OrderCompensated, Undone: []string{"s0"}})
	expect(t, "state", o.State, Compensated)
	if o.State.Final() != true || o.Alert != nil {
		t.Errorf("%+v", o)
	}
}

// T2: what compensation needs is kept: what completed, with which output, and
// what may have run.
func TestT2WhatMayHaveRun(t *testing.T) {
	o := record(t, accepted("o-1", "flow"), started("o-1", "s0", 1, at(1)), failing(events.StepExpired, "s0", 1, "expired"))
	step := &o.Steps[0]
	if !step.Unknown || !step.Ran() || !step.Unanswered {
		t.Errorf("an attempt expired, and it is not known that it may have run: %+v", step)
	}
	apply(t, o, started("o-1", "s0", 2, at(9)))
	if !step.Ran() || step.Unanswered {
		t.Errorf("the next one started: %+v", step)
	}
	apply(t, o, failing(events.StepFailed, "s0", 2, "busy"))
	if !step.Ran() {
		t.Errorf("that failed; what became of the first is still not known: %+v", step)
	}
	apply(t, o, started("o-1", "s0", 3, at(9)))
	apply(t, o, done("o-1", "s0"))
	if step.Unknown || !step.Ran() || len(step.Output) == 0 {
		t.Errorf("the step completed: %+v", step)
	}
	apply(t, o, started("o-1", "s1", 1, at(9)))
	apply(t, o, failing(events.StepFailed, "s1", 1, "busy"))
	if o.Steps[1].Ran() {
		t.Errorf("an error says that it did not run: %+v", o.Steps[1])
	}
}

// V4: the counts of attempts, of failures, of those of this round, of rounds
// and of resubmissions are in the record, for the step and for its undo each
// its own.
func TestV4Counts(t *testing.T) {
	retried := func(kind events.Type, attempt, round int) events.Event {
		e := of(kind, "s0", attempt)
		e.Due, e.Round = at(30), round
		return e
	}
	type counts struct{ attempt, failures, tried, round, resubmissions int }
	have := func(w *Work) counts {
		return counts{w.Attempt, w.FailureCount, w.Tried, w.Round, w.Resubmissions}
	}
	o := record(t, accepted("o-1", "flow"), started("o-1", "s0", 1, at(9)), failing(events.StepFailed, "s0", 1, "busy"), retried(events.StepRetried, 2, 0))
	step := &o.Steps[0]
	expect(t, "after a failure", have(&step.Work), counts{1, 1, 1, 0, 0})
	expect(t, "the retry's due time", step.Due, at(30))
	apply(t, o, started("o-1", "s0", 2, at(60)))
	apply(t, o, failing(events.StepExpired, "s0", 2, "expired"))
	expect(t, "after an expiry", have(&step.Work), counts{2, 2, 2, 0, 0})
	apply(t, o, retried(events.StepRetried, 3, 1))
	expect(t, "in a new round", have(&step.Work), counts{2, 2, 0, 1, 0})
	apply(t, o, started("o-1", "s0", 3, at(90)))
	apply(t, o, failing(events.StepFailed, "s0", 3, "busy"))
	apply(t, o, events.Event{Type: events.OrderErrored, Step: "s0", Reason: "busy"})
	expect(t, "in Error", have(&step.Work), counts{3, 3, 1, 1, 0})
	apply(t, o, events.Event{Type: events.OrderResubmitted})
	expect(t, "resubmitted", have(&step.Work), counts{3, 3, 0, 0, 1})
	expect(t, "the order's failures", o.FailureCount, 3)

	o = record(t, append(compensating(), undoStarted(1), failing(events.UndoFailed, "s0", 1, "busy"), retried(events.UndoRetried, 2, 0))...)
	undo := o.Steps[0].Undo
	expect(t, "the undo after a failure", have(undo), counts{1, 1, 1, 0, 0})
	expect(t, "its step's", have(&o.Steps[0].Work), counts{attempt: 1})
	expect(t, "the deadline", o.Steps[0].Deadline(), at(30))
	apply(t, o, undoStarted(2))
	apply(t, o, failing(events.UndoExpired, "s0", 2, "expired"))
	apply(t, o, retried(events.UndoRetried, 3, 1))
	expect(t, "the undo in a new round", have(undo), counts{2, 2, 0, 1, 0})
	// A request that could not be made has no start, and takes the next number.
	apply(t, o, failing(events.UndoFailed, "s0", 3, "request-refused"))
	expect(t, "the undo that could not begin", have(undo), counts{3, 3, 1, 1, 0})
	expect(t, "the order's failures", o.FailureCount, 4)
	var codes []string
	for _, e := range undo.Errors {
		codes = append(codes, e.Code)
	}
	expect(t, "its errors", codes, []string{"busy", "expired", "request-refused"})
	expect(t, "its last error's attempt", undo.Errors[2].Attempt, 3)
}

// C2 asks for every error of an undo; the record keeps the last hundred.
func TestErrorsAreBounded(t *testing.T) {
	o := record(t, compensating()...)
	for i := range 150 {
		apply(t, o, undoStarted(i+1))
		apply(t, o, failing(events.UndoFailed, "s0", i+1, "busy"))
	}
	errs := o.Steps[0].Undo.Errors
	if len(errs) != maxErrors || errs[0].Attempt != 51 || errs[maxErrors-1].Attempt != 150 {
		t.Errorf("%d errors, from %+v", len(errs), errs[0])
	}
}

// A copy can be changed, whatever happens to the original.
func TestCloneSharesNothingThatChanges(t *testing.T) {
	o := record(t, append(compensating(), undoStarted(1), failing(events.UndoFailed, "s0", 1, "busy"))...)
	same := record(t, append(compensating(), undoStarted(1), failing(events.UndoFailed, "s0", 1, "busy"))...)
	one, two := o.Clone(), o.Clone()
	apply(t, one, undoStarted(2))
	apply(t, one, failing(events.UndoFailed, "s0", 2, "gone"))
	apply(t, two, undoStarted(2))
	apply(t, two, failing(events.UndoExpired, "s0", 2, "expired"))
	expect(t, "the original", o, same)
	expect(t, "the last error of one", one.Steps[0].Undo.Errors[1].Code, "gone")
	expect(t, "the last error of the other", two.Steps[0].Undo.Errors[1].Code, "expired")
}

// Neither what a step that listens has heard, nor what it waits for, is that of a copy.
func TestCloneSharesNoListener(t *testing.T) {
	listening := func(how string, count int, signals ...string) *Order {
		e := of(events.StepListening, "s0", 1)
		e.Listen, e.Signals, e.Count = how, signals, count
		kept := events.Event{Type: events.SignalKept, Signal: "a", SignalID: "kept", Source: "signals/0/1", Due: at(90), Data: []byte("0")}
		return record(t, accepted("o-1", "flow"), kept, e)
	}
	heard := func(o *Order, signal, source string) {
		e := of(events.StepHeard, "s0", 1)
		e.Signal, e.SignalID, e.Source, e.Data = signal, source, source, []byte("1")
		apply(t, o, e)
	}
	for _, begin := range []func() *Order{
		func() *Order { return listening(events.ListenOne, 3, "a") },
		func() *Order { return listening(events.ListenAll, 0, "a", "b") },
	} {
		o, same := begin(), begin()
		one, two := o.Clone(), o.Clone()
		heard(one, "a", "signals/0/1") // which is kept
		heard(two, "a", "signals/0/2")
		expect(t, "the original", o, same)
		expect(t, "the output of one", string(one.Steps[0].Output) != string(two.Steps[0].Output), true)
		expect(t, "the signals of the other", len(two.Signals), 2)
	}
}

// S2: what waits for its agent has no complete-by, and since when it waits is told.
func TestS2WhatWaitsHasNoCompleteBy(t *testing.T) {
	retried := func(step string, due int) events.Event {
		e := of(events.StepRetried, step, 1)
		e.Due = at(due)
		return e
	}
	o := record(t, accepted("o-1", "flow"), retried("s0", 30), retried("s1", 20))
	for _, c := range []struct {
		now               int
		completeBy, since time.Time
	}{{19, at(20), time.Time{}}, {20, at(30), at(20)}, {30, time.Time{}, at(20)}} {
		expect(t, fmt.Sprint("its complete-by at ", c.now), o.CompleteBy(at(c.now)), c.completeBy)
		expect(t, fmt.Sprint("since when it waits at ", c.now), o.WaitsSince(at(c.now)), c.since)
	}
	held := o.Clone()
	apply(t, held, events.Event{Type: events.OrderErrored, Held: true, Reason: "it panicked"})
	expect(t, "the complete-by of one that is held", held.CompleteBy(at(40)), time.Time{})
	expect(t, "since when one waits that is held", held.WaitsSince(at(40)), time.Time{})
	apply(t, o, started("o-1", "s1", 1, at(35)))
	expect(t, "the complete-by of what runs", o.CompleteBy(at(40)), at(35))
	expect(t, "since when the other waits", o.WaitsSince(at(40)), at(30))

	o = record(t, append(compensating(), undoStarted(1), failing(events.UndoFailed, "s0", 1, "busy"))...)
	again := of(events.UndoRetried, "s0", 2)
	again.Due = at(50)
	apply(t, o, again)
	expect(t, "since when an undo waits", o.WaitsSince(at(50)), at(50))
}

// V4: attempts that the retry policy does not count are failures all the same, and told
// apart, in all rounds.
func TestV4Uncounted(t *testing.T) {
	silent := failing(events.StepExpired, "s0", 1, "expired")
	silent.Uncounted = true
	o := record(t, accepted("o-1", "flow"), started("o-1", "s0", 1, at(9)), silent)
	if w := o.Steps[0].Work; w.FailureCount != 1 || w.Uncounted != 1 || w.Tried != 0 {
		t.Errorf("%+v", w)
	}
	again := of(events.StepRetried, "s0", 2)
	again.Round = 1
	apply(t, o, again)
	apply(t, o, started("o-1", "s0", 2, at(9)))
	apply(t, o, failing(events.StepExpired, "s0", 2, "expired"))
	if w := o.Steps[0].Work; w.FailureCount != 2 || w.Uncounted != 1 || w.Tried != 1 {
		t.Errorf("%+v", w)
	}
	silent = failing(events.UndoExpired, "s0", 1, "expired")
	silent.Uncounted = true
	o = record(t, append(compensating(), undoStarted(1), silent)...)
	if w := o.Steps[0].Undo; w.FailureCount != 1 || w.Uncounted != 1 || w.Tried != 0 || o.Steps[0].Uncounted != 0 {
		t.Errorf("%+v", w)
	}
}

// V5: how often in a row an agent did not know an operation ends with any other answer, with a
// resubmission, and with the next key.
func TestV5NotKnown(t *testing.T) {
	unknown := func(kind events.Type, attempt int) events.Event {
		e := failing(kind, "s0", attempt, events.UnknownOperation)
		e.Uncounted = true
		return e
	}
	begun := func() *Order {
		return record(t, accepted("o-1", "flow"), started("o-1", "s0", 1, at(9)), unknown(events.StepFailed, 1), started("o-1", "s0", 2, at(9)), unknown(events.StepFailed, 2))
	}
	expect(t, "answers", begun().Steps[0].NotKnown, 2)
	again := of(events.StepRepeated, "s0", 3)
	again.Count, again.Due = 1, at(60)
	resubmitted := of(events.OrderResubmitted, "", 0)
	for what, then := range map[string][]events.Event{
		"another answer": {started("o-1", "s0", 3, at(9)), failing(events.StepFailed, "s0", 3, "busy")},
		"no answer":      {started("o-1", "s0", 3, at(9)), failing(events.StepExpired, "s0", 3, "expired")},
		"a resubmission": {resubmitted},
		"the next time":  {started("o-1", "s0", 3, at(9)), again},
	} {
		o := begun()
		for _, e := range then {
			apply(t, o, e)
		}
		expect(t, "answers after "+what, o.Steps[0].NotKnown, 0)
	}
}

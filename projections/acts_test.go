package projections

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// inError is an order whose first step failed for good.
func inError() []events.Event {
	return []events.Event{
		accepted("o-1", "flow"), started("o-1", "s0", 1, at(60)), failing(events.StepFailed, "s0", 1, "gone"),
		{Type: events.OrderErrored, Step: "s0", Reason: "gone"},
		{Type: events.AlertRaised, Step: "s0", Reason: "gone", Errors: []events.Error{{Code: "gone"}}, Action: "do something"},
	}
}

func TestResubmitted(t *testing.T) {
	o := record(t, inError()...)
	if o.State != Error || o.Alert == nil || o.Alert.Action != "do something" {
		t.Fatalf("%+v", o)
	}
	apply(t, o, events.Event{Type: events.OrderResubmitted, Step: "s0", Input: []byte(`{"n":2}`), Command: "c-1", By: "ana"})
	step := &o.Steps[0]
	if o.State != Pending || o.Alert != nil || o.Reason != "" || o.Command != "c-1" || o.Refusal != "" {
		t.Errorf("%+v", o)
	}
	if step.State != NotStarted || step.Attempt != 1 || step.Resubmissions != 1 || string(step.Input) != `{"n":2}` {
		t.Errorf("%+v", step)
	}
	// With the same key nothing counts up; steps that did not fail stay as they are.
	o = record(t, inError()...)
	apply(t, o, events.Event{Type: events.OrderResubmitted, Step: "s1", Input: []byte(`3`), SameKey: true})
	if o.Steps[0].Resubmissions != 0 || o.Steps[0].Input != nil || string(o.Steps[1].Input) != "3" || o.Steps[1].Resubmissions != 0 {
		t.Errorf("%+v", o.Steps)
	}
}

// A3: what the event names keeps its key. What may have run under the one before, with
// the input that it got, stays known, and is undone under that one, too.
func TestResubmittedUnderOtherKeys(t *testing.T) {
	history := []events.Event{
		accepted("o-1", "flow"),
		started("o-1", "s0", 1, at(1)), failing(events.StepExpired, "s0", 1, "expired"),
		started("o-1", "s1", 1, at(1)), failing(events.StepExpired, "s1", 1, "expired"),
		{Type: events.OrderErrored, Reason: "gone"},
	}
	old := record(t, history...)
	apply(t, old, events.Event{Type: events.OrderResubmitted, Step: "s0", Input: payloadOf(9)})
	if s := &old.Steps[0]; s.Resubmissions != 1 || !s.Unknown || s.Earlier != nil || s.Undoing() != nil || string(s.UndoInput()) != string(payloadOf(9)) {
		t.Errorf("before format 3: %+v", s)
	}

	before := record(t, history...)
	o := before.Clone()
	apply(t, o, events.Event{Type: events.OrderResubmitted, Step: "s0", Input: payloadOf(9), Kept: []string{"s1"}, MayHaveRun: []string{"s0"}})
	if s := &o.Steps[1]; s.Resubmissions != 0 || !s.Unknown || s.Earlier != nil || s.State != NotStarted {
		t.Errorf("the one that keeps its key: %+v", s)
	}
	s := &o.Steps[0]
	if s.Resubmissions != 1 || s.Unknown || !s.Ran() || len(s.Earlier) != 1 || s.Earlier[0].Resubmissions != 0 || s.Earlier[0].Input != nil || before.Steps[0].Earlier != nil {
		t.Errorf("the one that gets another: %+v", s)
	}
	if s.Undoing() != &s.Earlier[0] || s.UndoInput() != nil {
		t.Errorf("it is undone under %+v", s.Undoing())
	}

	// Again, and then it completes: there are three keys to undo, the newest first.
	apply(t, o, started("o-1", "s0", 2, at(2)))
	apply(t, o, failing(events.StepExpired, "s0", 2, "expired"))
	apply(t, o, events.Event{Type: events.OrderErrored, Reason: "gone"})
	apply(t, o, events.Event{Type: events.OrderResubmitted, MayHaveRun: []string{"s0"}})
	apply(t, o, started("o-1", "s0", 3, at(3)))
	apply(t, o, done("o-1", "s0"))
	apply(t, o, events.Event{Type: events.OrderCompensating, End: "Compensated", Reason: "why"})
	apply(t, o, undoStarted(1))
	if s.Undoing() != nil {
		t.Errorf("it is undone under %+v at first", s.Undoing())
	}
	retried := of(events.UndoRetried, "s0", 2)
	retried.Round = 1
	apply(t, o, failing(events.UndoFailed, "s0", 1, "busy"))
	apply(t, o, retried)
	for n, resubmissions := range []int{1, 0} {
		begin := undoStarted(2 + n)
		begin.Input = payloadOf(7)
		apply(t, o, begin)
		s.Undo.NotKnown = 1
		apply(t, o, of(events.UndoCompleted, "s0", 2+n))
		if key := s.Undoing(); key == nil || key.Resubmissions != resubmissions {
			t.Errorf("it is undone under %+v, after %d others", key, n+1)
		}
		if u := s.Undo; u.State != NotStarted || u.Done != n+1 || u.Tried != 0 || u.NotKnown != 0 || u.Round != 0 || u.Input != nil || u.FailureCount != 1 || u.Attempt != 2+n {
			t.Errorf("the next undo: %+v", u)
		}
		if s.State != Completed || !s.Ran() {
			t.Errorf("it is undone with keys left: %+v", s)
		}
	}
	apply(t, o, undoStarted(4))
	apply(t, o, of(events.UndoCompleted, "s0", 4))
	if s.State != Undone || s.Ran() || s.Undo.State != Completed || s.Undo.Done != 0 {
		t.Errorf("%+v, undo %+v", s, s.Undo)
	}
}

// ADR 0018: nobody noted before format 3 under which key an attempt expired. So once the
// partition is raised, the step may have run under each that it has had.
func TestInDoubtWhenTheFormatRises(t *testing.T) {
	history := []events.Event{accepted("o-1", "flow")}
	for n := range 2 {
		history = append(history, started("o-1", "s0", 1+n, at(1)), failing(events.StepExpired, "s0", 1+n, "expired"),
			events.Event{Type: events.OrderErrored, Reason: "gone"}, events.Event{Type: events.OrderResubmitted, Step: "s0", Input: payloadOf(9)})
	}
	history = append(history, started("o-1", "s0", 3, at(3)))
	for _, format := range []int{events.KeysFormat - 1, events.KeysFormat} {
		o := record(t, history...)
		o.In(format)
		o.In(format)
		keys := o.Steps[0].Earlier
		if format < events.KeysFormat && keys != nil {
			t.Errorf("it was not raised: %+v", keys)
		} else if format >= events.KeysFormat && (len(keys) != 2 || keys[0].Resubmissions != 0 || keys[1].Resubmissions != 1 || string(keys[1].Input) != string(payloadOf(9)) || !o.Steps[0].Unknown) {
			t.Errorf("%+v", o.Steps[0])
		}
	}

	// What is known of each key stays so, and what was answered is in no doubt.
	o := &Order{}
	o.In(events.KeysFormat)
	for _, e := range history {
		apply(t, o, e)
		o.In(events.KeysFormat)
	}
	if o.Steps[0].Earlier != nil {
		t.Errorf("it began in format 3: %+v", o.Steps[0].Earlier)
	}
	o = record(t, inError()...)
	apply(t, o, events.Event{Type: events.OrderResubmitted})
	if o.In(events.KeysFormat); o.Steps[0].Earlier != nil || o.Steps[0].Ran() {
		t.Errorf("every attempt was answered: %+v", o.Steps[0])
	}
}

// ADR 0018: what ended with an answer that was no good may have run, from format 3 on.
func TestAnswersThatWereNoGood(t *testing.T) {
	for _, format := range []int{events.KeysFormat - 1, events.KeysFormat} {
		for code, untold := range map[string]bool{events.OutputRefused: true, events.ReplyTooLarge: true, "request-refused": false, "gone": false} {
			o := &Order{}
			for _, e := range append(compensating(), undoStarted(1), failing(events.UndoFailed, "s0", 1, code)) {
				if o.In(format); e.Type == events.StepFailed {
					e.Error = &events.Error{Code: code}
				}
				apply(t, o, e)
			}
			if untold = untold && format >= events.KeysFormat; o.Steps[1].Unknown != untold || o.Steps[0].Undo.Doubtful != untold {
				t.Errorf("format %d, %s: %+v, undo of the other %+v", format, code, o.Steps[1], o.Steps[0].Undo)
			}
		}
	}
}

// An undo that gets another key is none under keys that were answered.
func TestUndoUnderAnotherKey(t *testing.T) {
	o := &Order{}
	undo := undoStarted(1)
	undo.IdempotencyKey = events.UndoKey(events.IdempotencyKey("o-1", "s0", 1), 0)
	for _, e := range append(inError(), events.Event{Type: events.OrderResubmitted},
		started("o-1", "s0", 2, at(1)), failing(events.StepExpired, "s0", 2, "expired"),
		events.Event{Type: events.OrderCompensating, End: "Compensated", Reason: "why"},
		undo, failing(events.UndoFailed, "s0", 1, "gone"), events.Event{Type: events.OrderErrored, Reason: "gone"},
		events.Event{Type: events.OrderResubmitted}) {
		o.In(events.KeysFormat)
		apply(t, o, e)
	}
	if s := &o.Steps[0]; s.Earlier != nil || s.Undo.Resubmissions != 1 || s.Undoing() != nil {
		t.Errorf("%+v, undo %+v", s, s.Undo)
	}
}

// Of an order that is being compensated it is the undo that begins again.
func TestUndoResubmitted(t *testing.T) {
	o := record(t, append(compensating(), undoStarted(1), failing(events.UndoFailed, "s0", 1, "gone"),
		events.Event{Type: events.OrderErrored, Reason: "gone"})...)
	if o.State != Error || o.Toward != Compensated {
		t.Fatalf("%+v", o)
	}
	apply(t, o, events.Event{Type: events.OrderResubmitted, Step: "s0", Input: []byte(`2`)})
	undo := o.Steps[0].Undo
	if o.State != Compensating || undo.State != NotStarted || undo.Resubmissions != 1 || string(undo.Input) != "2" || o.Steps[0].Input != nil {
		t.Errorf("%+v, undo %+v", o, undo)
	}
	if len(undo.Errors) != 1 {
		t.Errorf("its errors are forgotten: %+v", undo)
	}
}

func TestSkipped(t *testing.T) {
	o := record(t, inError()...)
	apply(t, o, events.Event{Type: events.StepSkipped, Step: "s0", Output: []byte(`4`), By: "ana"})
	if o.State != Pending || o.Alert != nil || o.Steps[0].State != Skipped || string(o.Steps[0].Output) != "4" {
		t.Errorf("%+v", o)
	}
	// While something that failed is left, the order stays in Error.
	o = record(t, inError()...)
	apply(t, o, events.Event{Type: events.StepSkipped, Step: "s1"})
	if o.State != Error || o.Alert == nil || o.Steps[1].State != Skipped {
		t.Errorf("%+v", o)
	}
	// What runs meanwhile is locked again by whoever let the order go on.
	o = record(t, accepted("o-1", "flow"), started("o-1", "s0", 1, at(60)), started("o-1", "s1", 1, at(60)), failing(events.StepFailed, "s0", 1, "gone"),
		events.Event{Type: events.OrderErrored, Step: "s0", Reason: "gone"})
	expect(t, "the lock in Error", o.LockedBy, "")
	apply(t, o, events.Event{Type: events.StepSkipped, Step: "s0", LockedBy: "i-2"})
	if o.State != Processing || o.LockedBy != "i-2" {
		t.Errorf("%+v", o)
	}
}

// What an operator passed over is not undone, and may have run all the same.
func TestUndoSkipped(t *testing.T) {
	o := record(t, append(compensating(), undoStarted(1), failing(events.UndoFailed, "s0", 1, "gone"),
		events.Event{Type: events.OrderErrored, Reason: "gone"}, events.Event{Type: events.UndoSkipped, Step: "s0", By: "ana"})...)
	if s := &o.Steps[0]; o.State != Compensating || s.State != Completed || s.Undo.State != Skipped || !s.Ran() {
		t.Errorf("%+v", o)
	}
	apply(t, o, events.Event{Type: events.OrderCancelled, NotUndone: []string{"s0"}})
	expect(t, "state", o.State, Cancelled)
}

// A pause arms nothing, and what runs goes on.
func TestPaused(t *testing.T) {
	retried := of(events.StepRetried, "s0", 2)
	retried.Due = at(30)
	o := record(t, accepted("o-1", "flow"), started("o-1", "s0", 1, at(60)), started("o-1", "s1", 1, at(70)), failing(events.StepFailed, "s0", 1, "busy"), retried)
	apply(t, o, events.Event{Type: events.OrderPaused, By: "ana", Command: "c-1"})
	if !o.Paused || !o.Steps[0].Due.IsZero() || !o.CompleteBy(at(2)).Equal(at(70)) || o.State != Processing {
		t.Errorf("%+v", o)
	}
	apply(t, o, events.Event{Type: events.OrderResumed, Command: "c-2"})
	if o.Paused || o.Command != "c-2" {
		t.Errorf("%+v", o)
	}
	// A cancellation ends the pause, and closes the alert.
	apply(t, o, events.Event{Type: events.OrderPaused})
	apply(t, o, events.Event{Type: events.OrderCompensating, End: "Cancelled", LockedBy: "i-2"})
	if o.Paused || o.State != Compensating || o.Toward != Cancelled || o.LockedBy != "i-2" {
		t.Errorf("%+v", o)
	}
}

func TestRefusedCommandsAndStatuses(t *testing.T) {
	a := accepted("o-1", "flow")
	a.ReplyTo = "shop.status"
	o := record(t, a, events.Event{Type: events.CommandRefused, Operation: "resume", Reason: "it is not paused", Command: "c-1"})
	if o.Command != "c-1" || o.Refusal != "it is not paused" || o.State != Pending {
		t.Errorf("%+v", o)
	}
	apply(t, o, events.Event{Type: events.OrderPaused, Command: "c-2"})
	if o.Command != "c-2" || o.Refusal != "" {
		t.Errorf("%+v", o)
	}
	apply(t, o, events.Event{Type: events.StatusRefused, ReplyTo: "shop.status", Reason: "no such topic"})
	expect(t, "where status messages go", o.ReplyTo, "")
	apply(t, o, events.Event{Type: events.ReplyDiscarded, Step: "s9", Attempt: 1, ToUndo: true, Reason: events.DiscardUnknownStep})
	if o.Steps[0].Undo != nil || o.Command != "c-2" {
		t.Errorf("%+v", o)
	}
}

// The order's own deadline is looked at while it goes on by itself. An operator
// who lets it go on after it has passed, lets it go on without.
func TestOverdue(t *testing.T) {
	a := accepted("o-1", "flow")
	a.Deadline = at(100)
	o := record(t, a)
	expect(t, "while it is Pending", o.Overdue(), at(100))
	apply(t, o, started("o-1", "s0", 1, at(60)))
	expect(t, "while it is Processing", o.Overdue(), at(100))
	paused := o.Clone()
	apply(t, paused, events.Event{Type: events.OrderPaused})
	expect(t, "while it is paused", paused.Overdue(), time.Time{})
	cancelled := o.Clone()
	apply(t, cancelled, events.Event{Type: events.OrderCompensating, End: "Cancelled"})
	expect(t, "while it is undone", cancelled.Overdue(), time.Time{})

	apply(t, o, failing(events.StepFailed, "s0", 1, "gone"))
	apply(t, o, events.Event{Type: events.OrderErrored, Reason: "gone"})
	expect(t, "in Error", o.Overdue(), time.Time{})
	early, late := o.Clone(), o
	apply(t, early, events.Event{Type: events.OrderResubmitted, At: at(99)})
	expect(t, "resubmitted in time", early.Overdue(), at(100))
	apply(t, late, events.Event{Type: events.OrderResubmitted, At: at(100)})
	expect(t, "resubmitted at the deadline", late.Overdue(), time.Time{})
}

// An attempt ends later than its complete-by by the allowance for clock skew.
func TestExpires(t *testing.T) {
	begin := started("o-1", "s0", 1, at(60))
	begin.Expires = at(62)
	o := record(t, accepted("o-1", "flow"), begin)
	expect(t, "what callers see", o.CompleteBy(at(2)), at(60))
	expect(t, "when the supervisor looks", o.Steps[0].Deadline(), at(62))
	apply(t, o, done("o-1", "s0"))
	expect(t, "afterwards", o.Steps[0].Expires, time.Time{})
}

// ADR 0026: of the commands whose author is known an order keeps the last 16, each once, with
// what it asked for, and when the newest was signed that it keeps no more.
func TestKnownCommands(t *testing.T) {
	o := record(t, accepted("o-1", "flow"))
	act := func(id string, seconds int) {
		t.Helper()
		apply(t, o, events.Event{Type: events.OrderPaused, Command: id, By: "ana", Actor: &events.Actor{Method: "key", At: at(seconds)}})
	}
	acted := func(o *Order, id string) string { command, _ := o.Acted(id); return command }
	act("first", 40)
	act("first", 50) // it has two events
	for n := range 14 {
		act(fmt.Sprint("c-", n), n)
	}
	apply(t, o, events.Event{Type: events.CommandRefused, Operation: "cancel", Reason: "no", Command: "refused", Actor: &events.Actor{Method: "key", At: at(14)}})
	apply(t, o, events.Event{Type: events.OrderResumed, Command: "claimed", By: "ana"})
	if len(o.Acts) != 16 || acted(o, "first") != events.CommandPause || acted(o, "refused") != events.CommandCancel || acted(o, "claimed") != "" || !o.ActedBefore.IsZero() {
		t.Fatalf("%d: %+v, before %v", len(o.Acts), o.Acts, o.ActedBefore)
	}
	before := o.Clone()
	act("c-15", 15)
	if len(o.Acts) != 16 || acted(o, "first") != "" || acted(o, "c-0") == "" || !o.ActedBefore.Equal(at(40)) {
		t.Errorf("%d: %+v, before %v", len(o.Acts), o.Acts, o.ActedBefore)
	}
	act("c-16", 16) // an older one goes
	if acted(o, "c-0") != "" || !o.ActedBefore.Equal(at(40)) {
		t.Errorf("%+v, before %v", o.Acts, o.ActedBefore)
	}
	if acted(before, "first") == "" || len(before.Acts) != 16 {
		t.Errorf("the order before has changed: %+v", before.Acts)
	}
}

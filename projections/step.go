package projections

import (
	"cmp"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// StepState is the state of one step (S2).
type StepState string

// The states of a step, and of its undo.
const (
	NotStarted StepState = "not-started"
	Running    StepState = "running"
	Completed  StepState = "completed"
	Failed     StepState = "failed"
	Expired    StepState = "expired"
	Skipped    StepState = "skipped"
	Repeating  StepState = "repeating" // of a step only: it was done, and is to be done again
	Sleeping   StepState = "sleeping"  // of a step only: it waits for time to pass, and asks nobody
	Listening  StepState = "listening" // of a step only: it waits for signals, and asks nobody
	Approving  StepState = "approving" // of a step only: it waits for people to decide
	TimedOut   StepState = "timed-out" // of a step only: it has waited for signals, or for people, for as long as it may
	Undone     StepState = "undone"    // of a step only: its undo completed
	DidRaise   StepState = "raised"    // of a step only: it had the order fail
)

// Idle says that a step in this state waits for what no agent does: for time to pass, for a
// signal, or for people.
func (s StepState) Idle() bool { return s == Sleeping || s == Listening || s == Approving }

// Step is the state record of one step.
type Step struct {
	Name string
	// Alias is the name under which it is known outside, if that is another: to agents, to orders that do
	// it, and in idempotency keys. See [Step.Known].
	Alias string
	Work
	Output jsontext.Value
	// Earlier are the idempotency keys of before under which the step may have run,
	// too, oldest first. Unknown is about the present one.
	Earlier []Key
	// Undo is the record of the step's undo, nil before it begins.
	Undo *Work
	// Repeats is how many times the step was done before, without what it is done for, and
	// RepeatsBefore how many of them were before its last resubmission.
	Repeats, RepeatsBefore int
	// AttemptsBefore is how many attempts there were before the present time.
	AttemptsBefore int
	// Wakes is when a step wakes that sleeps, nil if that is no time of the calendar. Left is what is left of its sleep during
	// a pause, if it is none.
	Wakes *time.Time
	Left  time.Duration
	// Listens is there once the step has begun to wait for signals: it is no operation of an agent
	// either. Its Due is when it waits no more, and Left what is left of that during a pause; both
	// are zero if it waits for ever.
	Listens *Listen
	// Child is the order that does the step, nil unless there is one, or was.
	Child *Child
	// LeftBy says which of its children those were, oldest first: how many resubmissions were behind the step when it was
	// ordered. What ended before [events.LeftByFormat] is not among them.
	LeftBy []int
	// Emits is there once the step has begun to give a topic an event of the user's: it asks no agent
	// either.
	Emits *Emission
	// Each is there once the step has begun to be done for each item of a list, which is its input: it
	// asks no agent either.
	Each *Each
	// Approves is there once the step has begun to wait for people: it is no operation of an agent
	// either. Its Due is when they are reminded, or it waits no more, and Left what is left of that
	// during a pause.
	Approves *Approval

	// Unknown says that an attempt expired without an answer and none completed
	// since: the step may have run, or not. From [events.KeysFormat] on so it is with
	// one whose answer was no good, see [events.OutputRefused].
	Unknown bool
	// Sleeps says that the step has begun to sleep: it is no operation of an agent. Its Due is
	// when it wakes, but during a pause: see Wakes and Left.
	Sleeps bool
	// Leaves says that an order which did the step, or an item of it, ended with something that ran there, or may
	// have run, and was not undone. What others do later does not change that.
	Leaves bool
}

// Known is the name under which a step is known outside, which no migration changes: to agents, to
// orders that do it, and in idempotency keys.
func (s *Step) Known() string { return cmp.Or(s.Alias, s.Name) }

// WakesAt is the time of the calendar at which a step wakes that sleeps, zero if there is none.
func (s *Step) WakesAt() time.Time {
	if s.Wakes == nil {
		return time.Time{}
	}
	return *s.Wakes
}

// Fresh says that nobody was asked for the step, and nothing is known of it that a migration must keep.
func (s *Step) Fresh() bool {
	return s.IdempotencyKey == "" && s.Child == nil && s.Each == nil && (s.State == NotStarted || s.State == Failed) && !s.Passed
}

// Gone says that the step may be left out of the order: nobody knows of it.
func (s *Step) Gone() bool {
	return s.Fresh() || s.State == Skipped && s.IdempotencyKey == "" && s.Child == nil && s.Each == nil && s.Attempt == 0
}

// asks says that the step is an operation of an agent, as far as that is known, or leaves something
// behind as one does: what was emitted, and what another order did.
func (s *Step) asks() bool { return !s.Sleeps && s.Listens == nil && s.Approves == nil }

// Work is what an agent is asked for, attempt by attempt: a step, or its undo.
type Work struct {
	State StepState
	// Attempt counts from 1 over all rounds; 0 before the first.
	Attempt int
	// FailureCount counts the attempts that failed or expired (V4), Tried those
	// of this round that the retry policy counts.
	FailureCount, Tried int
	// Uncounted are those of FailureCount that the retry policy never counted.
	Uncounted int
	// NotKnown are those of them which said, one after the other and up to now, that the agent does
	// not know the operation. A resubmission, and what is done under another key, begin with 0.
	NotKnown int
	// Round counts the extended waits, each of which began a new round of
	// attempts. A resubmission begins with 0 again.
	Round int
	// Resubmissions counts those that began a new idempotency key.
	Resubmissions int
	// CompleteBy ends the running attempt, Expires is when it counts as expired:
	// later by the allowance for clock skew, or zero. Both are zero unless running.
	CompleteBy, Expires time.Time
	// ExtendTo is up to when CompleteBy may be moved, Timeout by how much behind a sign of the
	// agent, and Extended by how much it was. All are zero unless the attempt runs and
	// CompleteBy may be moved.
	ExtendTo          time.Time
	Timeout, Extended time.Duration
	// Due is when the next attempt starts, further items are ordered, or a sleep ends. Zero unless a
	// retry is armed, items are left to another decision, or the step sleeps.
	Due            time.Time
	IdempotencyKey string
	// Proof says that the last attempt's request had a token, and whether the reply must
	// repeat it: see [events.ProofRequire]. Agent is whose it is, empty without one.
	Proof, Agent string
	Input        jsontext.Value // nil: the order's
	Error        *events.Error  // of the last attempt that failed
	// Errors are those of all attempts of an undo, the last hundred of them: an
	// operator sees every one (C2). Of a step there are none.
	Errors []events.Error
	// Done counts, of an undo, the keys of its step under which it completed, while
	// there are others left.
	Done int
	// Turn is the number of the order's event with which a place was asked for, which the attempt has or waits for; 0 if
	// it was asked for none, or needs it no more. See [Work.Waits].
	Turn uint64
	// Unanswered says that the last attempt expired, whatever came after.
	Unanswered bool
	// Passed says that the step failed for good, and the order goes on without it.
	Passed bool
	// Doubtful says, of an undo, that an attempt under its present key was not answered,
	// or with what was no good, and none completed since. It is not known before [events.KeysFormat].
	Doubtful bool
}

// Key is an idempotency key that a step had.
type Key struct {
	Resubmissions int            // that had begun a new key by then
	Input         jsontext.Value // what the step got under it; nil: the order's
}

// maxErrors bounds [Work.Errors].
const maxErrors = 100

// Broken says that the last attempt failed or expired, none followed yet, and the order did
// not go on without it.
func (w *Work) Broken() bool { return (w.State == Failed || w.State == Expired) && !w.Passed }

// Ends is when the running attempt counts as expired.
func (w *Work) Ends() time.Time {
	if !w.Expires.IsZero() {
		return w.Expires
	}
	return w.CompleteBy
}

// FirstCompleteBy is the complete-by that the running attempt began with.
func (w *Work) FirstCompleteBy() time.Time { return w.CompleteBy.Add(-w.Extended) }

// deadline is the time at which the supervisor must look: the end of the
// running attempt or of a sleep, the start of an armed retry or of items, else zero.
func (w *Work) deadline() time.Time {
	if w.State == Running && w.Due.IsZero() {
		return w.Ends()
	}
	return w.Due
}

// Deadline is the time at which the supervisor must look at the step or its
// undo: the end of a running attempt or of a sleep, the start of an armed retry, else zero.
func (s *Step) Deadline() time.Time {
	if at := s.deadline(); !at.IsZero() || s.Undo == nil {
		return at
	}
	return s.Undo.deadline()
}

// Over says that what comes after the step need not wait for it.
func (s *Step) Over() bool {
	return s.State == Completed || s.State == Skipped || s.State == TimedOut || s.Passed
}

// Ran says that the step completed or may have run, under whichever key, and is not
// undone.
func (s *Step) Ran() bool {
	return s.State != Undone && (s.ranNow() || len(s.Earlier) > 0)
}

// ranNow says that the step completed or may have run under its present key.
func (s *Step) ranNow() bool {
	if s.Each != nil {
		return s.Each.Done > 0 || s.Each.NotUndone > 0 || s.Undo != nil && s.Undo.State == Running
	}
	return s.State == Completed && s.asks() || s.Repeats > 0 || s.Unknown
}

// Undoing is the earlier key under which the step is undone now, or is next, nil for its
// present one: the newest comes first.
func (s *Step) Undoing() *Key {
	done := 0
	if s.Undo != nil {
		done = s.Undo.Done
	}
	if s.ranNow() {
		done--
	}
	if i := len(s.Earlier) - 1 - done; i >= 0 && i < len(s.Earlier) {
		return &s.Earlier[i]
	}
	return nil
}

// Under is how many resubmissions were behind the step when that was done which is undone now, or next.
func (s *Step) Under() int {
	if key := s.Undoing(); key != nil {
		return key.Resubmissions
	}
	return s.Resubmissions
}

// UndoInput is what the undo works on, unless the workflow or an operator says
// otherwise: what the step got under the key that is undone; nil for the order's.
func (s *Step) UndoInput() jsontext.Value {
	if key := s.Undoing(); key != nil {
		return key.Input
	}
	return s.Input
}

package projections

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// State is the ProcessState of an order.
type State string

// The states of an order. Processed, Rejected, Compensated and Cancelled are
// its ends; Error waits for an operator.
const (
	Pending      State = "Pending"    // nobody works on it: just accepted, or waiting for a retry
	Processing   State = "Processing" // an agent was asked, and its complete-by runs
	Processed    State = "Processed"
	Error        State = "Error"
	Compensating State = "Compensating"
	Compensated  State = "Compensated"
	Cancelled    State = "Cancelled"
	Rejected     State = "Rejected"
)

// States lists all states.
var States = []State{Pending, Processing, Processed, Error, Compensating, Compensated, Cancelled, Rejected}

// Final says that no event will follow, save discarded replies, refused commands
// and what becomes of inputs.
func (s State) Final() bool {
	return s == Processed || s == Rejected || s == Compensated || s == Cancelled
}

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
	Undone     StepState = "undone" // of a step only: its undo completed
)

// Order is the state record of an order: the fold of its events, and nothing
// else. It is a value with shared parts: change it only through [Order.Apply]
// on a [Order.Clone].
type Order struct {
	ID       string
	Workflow string
	Version  int
	State    State
	// LockedBy is the instance that works on the order, empty while nobody
	// does. The lock itself is the partition's claim: whoever claims the
	// partition next holds the locks of all its orders.
	LockedBy string
	// FailureCount counts the attempts of all steps, and of their undos, that
	// failed or expired.
	FailureCount int

	Input       jsontext.Value
	ReplyTo     string // empty: the namespace's status topic
	Priority    events.Priority
	Deadline    time.Time // of the whole order; zero if it has none
	Traceparent string

	// Seq is the number of the last event.
	Seq        uint64
	AcceptedAt time.Time
	UpdatedAt  time.Time
	// Reason says why the order was rejected, is in Error, or was compensated.
	Reason string
	cause  string // see Why
	// Alert is the open alert, nil when no operator is called.
	Alert *events.Alert

	// Paused says that an operator lets nothing new start.
	Paused bool
	// Toward is Compensated or Cancelled once compensation began: the state that
	// it leads to. It stays while a failed undo keeps the order in Error.
	Toward State
	// Command is the id of the last operator's command, and Refusal says why it
	// could not be done, empty if it was.
	Command, Refusal string

	// Hold is there while the order is held: deciding on it panicked, and nothing
	// is decided until an operator releases it. Waiting are the inputs that came
	// since, in order, with the one that panicked before them.
	Hold    *Hold
	Waiting []Held

	// Steps has one record for each step (T3), as the workflow file orders them.
	Steps []Step
}

// Hold is what an order was before it was held, and will be after its release.
type Hold struct {
	State  State
	Reason string
	Alert  *events.Alert
}

// Held is an input that waits for the release of its order.
type Held struct {
	// Source is where it was: topic/partition/offset.
	Source string
	events.Raw
}

// Step is the state record of one step.
type Step struct {
	Name string
	Work
	Output jsontext.Value
	// Unknown says that an attempt expired without an answer and none completed
	// since: the step may have run, or not.
	Unknown bool
	// Undo is the record of the step's undo, nil before it begins.
	Undo *Work
}

// Work is what an agent is asked for, attempt by attempt: a step, or its undo.
type Work struct {
	State StepState
	// Attempt counts from 1 over all rounds; 0 before the first.
	Attempt int
	// FailureCount counts the attempts that failed or expired (V4), Tried those
	// of this round.
	FailureCount, Tried int
	// Round counts the extended waits, each of which began a new round of
	// attempts. A resubmission begins with 0 again.
	Round int
	// Resubmissions counts those that began a new idempotency key.
	Resubmissions int
	// CompleteBy ends the running attempt, Expires is when it counts as expired:
	// later by the allowance for clock skew, or zero. Both are zero unless running.
	CompleteBy, Expires time.Time
	// Due is when the next attempt starts. Zero unless a retry is armed.
	Due            time.Time
	IdempotencyKey string
	Input          jsontext.Value // nil: the order's
	Error          *events.Error  // of the last attempt that failed
	// Unanswered says that the last attempt expired, whatever came after.
	Unanswered bool
	// Errors are those of all attempts of an undo, the last hundred of them: an
	// operator sees every one (C2). Of a step there are none.
	Errors []events.Error
}

// maxErrors bounds [Work.Errors].
const maxErrors = 100

// Broken says that the last attempt failed or expired, and none followed yet.
func (w *Work) Broken() bool { return w.State == Failed || w.State == Expired }

// Ends is when the running attempt counts as expired.
func (w *Work) Ends() time.Time {
	if !w.Expires.IsZero() {
		return w.Expires
	}
	return w.CompleteBy
}

// deadline is the time at which the supervisor must look: the end of the
// running attempt, the start of an armed retry, else zero.
func (w *Work) deadline() time.Time {
	if w.State == Running {
		return w.Ends()
	}
	return w.Due
}

// Deadline is the time at which the supervisor must look at the step or its
// undo: the end of a running attempt, the start of an armed retry, else zero.
func (s *Step) Deadline() time.Time {
	if at := s.deadline(); !at.IsZero() || s.Undo == nil {
		return at
	}
	return s.Undo.deadline()
}

// Attention is when the supervisor must look at a step of the order: its
// deadline, zero while the order is held.
func (o *Order) Attention(s *Step) time.Time {
	if o.Hold != nil {
		return time.Time{}
	}
	return s.Deadline()
}

// Why is the order's Reason, and where it has none, why it is or was
// compensated: that outlasts the failure and the resubmission of an undo.
func (o *Order) Why() string { return cmp.Or(o.Reason, o.cause) }

// Ran says that the step completed or may have run, and is not undone.
func (s *Step) Ran() bool {
	return s.State == Completed || s.Unknown && s.State != Undone
}

// ErrGap says that an event does not follow the ones before it: the journal
// lost or tore a transaction, and must not be folded further.
var ErrGap = errors.New("gap in the journal")

// ErrNewer says that the journal was written by a newer release, by rules that
// this one does not know: whatever it made of it could be wrong.
var ErrNewer = errors.New("the journal was written by a newer release; upgrade this one")

// Clone returns a copy that can be changed without changing o.
func (o *Order) Clone() *Order {
	c := *o
	c.Steps = slices.Clone(o.Steps)
	for i := range c.Steps {
		if undo := c.Steps[i].Undo; undo != nil {
			c.Steps[i].Undo = new(*undo)
		}
	}
	return &c
}

// Step returns the record of the step, nil if the order has none of that name.
func (o *Order) Step(name string) *Step {
	for i := range o.Steps {
		if o.Steps[i].Name == name {
			return &o.Steps[i]
		}
	}
	return nil
}

// CompleteBy is the earliest complete-by, or start of an armed retry, of the
// order's steps and undos; zero when it waits for nothing.
func (o *Order) CompleteBy() time.Time {
	var first time.Time
	look := func(w *Work) {
		at := w.Due
		if w.State == Running {
			at = w.CompleteBy
		}
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	for i := range o.Steps {
		look(&o.Steps[i].Work)
		if undo := o.Steps[i].Undo; undo != nil {
			look(undo)
		}
	}
	return first
}

// Overdue is when the supervisor must look at the order as a whole: its
// deadline, zero if it has none or the deadline does not matter any more.
func (o *Order) Overdue() time.Time {
	if o.State != Pending && o.State != Processing || o.Paused {
		return time.Time{}
	}
	return o.Deadline
}

// Output is the output of a processed order; see [Order.Result].
func (o *Order) Output() jsontext.Value {
	if o.State != Processed {
		return nil
	}
	return o.Result()
}

// Result is the output of the last step in the file that has completed.
func (o *Order) Result() jsontext.Value {
	for i := range slices.Backward(o.Steps) {
		if s := &o.Steps[i]; s.State == Completed {
			return s.Output
		}
	}
	return nil
}

// Running says whether an attempt of a step, or of an undo, is with its agent.
func (o *Order) Running() bool {
	return slices.ContainsFunc(o.Steps, func(s Step) bool {
		return s.State == Running || s.Undo != nil && s.Undo.State == Running
	})
}

// Broken says whether a step failed, or an undo once the order is compensated,
// and nothing was tried since.
func (o *Order) Broken() bool {
	for i := range o.Steps {
		if w := o.working(&o.Steps[i]); w != nil && w.Broken() {
			return true
		}
	}
	return false
}

// brokenAt is [Order.Broken] for one step.
func (o *Order) brokenAt(step string) bool {
	s := o.Step(step)
	if s == nil {
		return false
	}
	w := o.working(s)
	return w != nil && w.Broken()
}

// working returns what the order's phase asks of the step's agent: the step, or
// its undo, nil before it begins.
func (o *Order) working(s *Step) *Work {
	if o.Toward != "" {
		return s.Undo
	}
	return &s.Work
}

// Apply folds the next event into o. It fails with [ErrGap] when e is not the
// event that follows, with [ErrNewer] when its type is not known, and then leaves
// o as it was.
func (o *Order) Apply(e *events.Event) error {
	if e.Seq != o.Seq+1 {
		return fmt.Errorf("%w: order %q has event %d, then came %d (%s)", ErrGap, e.Order, o.Seq, e.Seq, e.Type)
	}
	step := o.Step(e.Step)
	var work *Work
	switch e.Type {
	case events.StepStarted, events.StepCompleted, events.StepFailed, events.StepExpired, events.StepRetried, events.StepSkipped,
		events.UndoStarted, events.UndoCompleted, events.UndoFailed, events.UndoExpired, events.UndoRetried, events.UndoSkipped:
		if step == nil {
			return fmt.Errorf("%w: order %q: %s names step %q, which the order does not have", ErrGap, e.Order, e.Type, e.Step)
		}
		work = &step.Work
	}
	switch {
	case e.Type == events.OrderReleased && o.Hold == nil:
		return fmt.Errorf("%w: order %q: %s, and the order is not held", ErrGap, e.Order, e.Type)
	case e.Type == events.InputHeld && e.Raw == nil, e.Type == events.InputReleased && !o.first(e.Source):
		return fmt.Errorf("%w: order %q: %s of %q, which does not wait", ErrGap, e.Order, e.Type, e.Source)
	}
	switch e.Type {
	case events.UndoStarted, events.UndoCompleted, events.UndoFailed, events.UndoExpired, events.UndoRetried, events.UndoSkipped:
		if step.Undo == nil {
			step.Undo = &Work{State: NotStarted}
		}
		work = step.Undo
	}

	switch e.Type {
	case events.OrderAccepted:
		o.State, o.AcceptedAt = Pending, e.At
		o.Workflow, o.Version = e.Workflow, e.Version
		o.Input, o.ReplyTo, o.Priority = e.Input, e.ReplyTo, e.Priority
		o.Deadline, o.Traceparent = e.Deadline, e.Traceparent
		o.Steps = make([]Step, len(e.Steps))
		for i, name := range e.Steps {
			o.Steps[i] = Step{Name: name, Work: Work{State: NotStarted}}
		}
	case events.OrderRejected:
		o.State, o.AcceptedAt = Rejected, e.At
		o.Workflow, o.Version, o.ReplyTo, o.Reason = e.Workflow, e.Version, e.ReplyTo, e.Reason
	case events.OrderCompleted:
		o.State = Processed
	case events.OrderErrored:
		o.stop(e)
	case events.OrderReleased:
		o.State, o.Reason, o.Alert, o.Hold = o.Hold.State, o.Hold.Reason, o.Hold.Alert, nil
		if o.State != Error {
			o.lapse(e.At)
		}
	case events.InputHeld:
		o.Waiting = append(o.Waiting[:len(o.Waiting):len(o.Waiting)], Held{e.Source, *e.Raw})
	case events.InputReleased, events.InputDiscarded:
		if o.first(e.Source) {
			o.Waiting = slices.Clone(o.Waiting[1:])
		}
	case events.OrderResubmitted:
		o.resubmit(e)
	case events.OrderCompensating:
		o.State, o.Toward, o.Reason, o.Alert, o.Paused = Compensating, State(e.End), e.Reason, nil, false
		o.cause = e.Reason
		o.disarm()
	case events.OrderCompensated:
		o.State = Compensated
	case events.OrderCancelled:
		o.State = Cancelled
	case events.OrderPaused:
		o.Paused = true
		o.disarm()
	case events.OrderResumed:
		o.Paused = false
	case events.StatusRefused:
		o.ReplyTo = ""
	case events.CommandRefused, events.ReplyDiscarded:
	case events.AlertRaised:
		o.Alert = &events.Alert{Order: e.Order, Step: e.Step, Reason: e.Reason, Errors: e.Errors, Action: e.Action, At: e.At}

	case events.StepStarted, events.UndoStarted:
		work.State, work.Attempt, work.IdempotencyKey = Running, e.Attempt, e.IdempotencyKey
		work.CompleteBy, work.Expires, work.Due = e.CompleteBy, e.Expires, time.Time{}
		work.Unanswered = false
		if e.Input != nil {
			work.Input = e.Input
		}
	case events.StepCompleted:
		work.end(Completed, nil)
		step.Output, step.Unknown = e.Output, false
	case events.UndoCompleted:
		work.end(Completed, nil)
		step.State = Undone
	case events.StepFailed:
		o.fail(work, Failed, e.Error)
	case events.StepExpired:
		o.fail(work, Expired, e.Error)
		step.Unknown = true
	case events.UndoFailed:
		work.Attempt = e.Attempt // one that could not even begin has no start
		o.fail(work, Failed, e.Error)
		work.keep(e)
	case events.UndoExpired:
		o.fail(work, Expired, e.Error)
		work.keep(e)
	case events.StepRetried, events.UndoRetried:
		work.Due = e.Due
		if e.Round > 0 {
			work.Round, work.Tried = e.Round, 0
		}
	case events.StepSkipped, events.UndoSkipped:
		work.end(Skipped, work.Error)
		if e.Type == events.StepSkipped {
			step.Output = e.Output
		}
		o.relieve(e)

	default:
		return fmt.Errorf("%w: order %q: event %d is %s", ErrNewer, e.Order, e.Seq, e.Type)
	}
	o.ID, o.Seq, o.UpdatedAt = e.Order, e.Seq, e.At
	if e.Command != "" {
		o.Command, o.Refusal = e.Command, ""
	}
	if e.Type == events.CommandRefused {
		o.Refusal = e.Reason
	}
	o.settle(e.LockedBy)
	return nil
}

func (w *Work) end(state StepState, fault *events.Error) {
	w.State, w.Error = state, fault
	w.CompleteBy, w.Expires, w.Due = time.Time{}, time.Time{}, time.Time{}
}

func (o *Order) fail(w *Work, state StepState, fault *events.Error) {
	w.end(state, fault)
	w.FailureCount++
	w.Tried++
	w.Unanswered = state == Expired
	o.FailureCount++
}

// keep remembers the error of an attempt.
func (w *Work) keep(e *events.Event) {
	if e.Error == nil {
		return
	}
	fault := *e.Error
	fault.Attempt = e.Attempt
	w.Errors = append(w.Errors[max(0, len(w.Errors)-maxErrors+1):len(w.Errors):len(w.Errors)], fault)
}

// stop takes the order into Error. Of one that is held everything stays as it is.
func (o *Order) stop(e *events.Event) {
	if e.Held {
		o.Hold = &Hold{o.State, o.Reason, o.Alert}
	} else {
		o.disarm()
	}
	o.State, o.Reason = Error, e.Reason
}

// first says that the input from source is the one that has waited longest.
func (o *Order) first(source string) bool {
	return len(o.Waiting) > 0 && o.Waiting[0].Source == source
}

// disarm has whatever waits for a retry wait no more.
func (o *Order) disarm() {
	for i := range o.Steps {
		o.Steps[i].Due = time.Time{}
		if undo := o.Steps[i].Undo; undo != nil {
			undo.Due = time.Time{}
		}
	}
}

// resubmit lets what failed begin again.
func (o *Order) resubmit(e *events.Event) {
	for i := range o.Steps {
		s := &o.Steps[i]
		w := o.working(s)
		if w == nil {
			continue
		}
		if s.Name == e.Step && e.Input != nil {
			w.Input = e.Input
		}
		if w.Broken() {
			w.State, w.Tried, w.Round = NotStarted, 0, 0
			if !e.SameKey {
				w.Resubmissions++
			}
		}
	}
	o.leave(e)
}

// leave takes the order out of Error.
func (o *Order) leave(e *events.Event) {
	o.State, o.Reason, o.Alert = Pending, "", nil
	o.lapse(e.At)
}

// lapse drops a deadline that passed: it counts no more, since it was an
// operator who let the order go on.
func (o *Order) lapse(now time.Time) {
	if !o.Deadline.After(now) {
		o.Deadline = time.Time{}
	}
}

// relieve takes the order out of Error once nothing that failed is left.
func (o *Order) relieve(e *events.Event) {
	if o.State == Error && !o.Broken() {
		o.leave(e)
	}
}

// settle gives an order that goes on the state that its steps have, and holds
// its lock, for the instance by if it is new, while one of them runs.
func (o *Order) settle(by string) {
	if o.State == Error || o.State.Final() {
		o.LockedBy = ""
		return
	}
	running := o.Running()
	switch {
	case o.Toward != "":
		o.State = Compensating
	case running:
		o.State = Processing
	default:
		o.State = Pending
	}
	if !running {
		o.LockedBy = ""
	} else if by != "" {
		o.LockedBy = by
	}
}

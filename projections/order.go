package projections

import (
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

// Final says that no event will follow, save discarded replies.
func (s State) Final() bool {
	return s == Processed || s == Rejected || s == Compensated || s == Cancelled
}

// StepState is the state of one step (S2).
type StepState string

// The states of a step.
const (
	NotStarted StepState = "not-started"
	Running    StepState = "running"
	Completed  StepState = "completed"
	Failed     StepState = "failed"
	Expired    StepState = "expired"
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
	// FailureCount counts the attempts of all steps that failed or expired.
	FailureCount int

	Input       jsontext.Value
	ReplyTo     string // empty: the namespace's status topic
	Priority    events.Priority
	Deadline    time.Time
	Traceparent string

	// Seq is the number of the last event.
	Seq        uint64
	AcceptedAt time.Time
	UpdatedAt  time.Time
	// Reason says why the order was rejected or is in Error.
	Reason string
	// Alert is the open alert, nil when no operator is called.
	Alert *events.Alert

	// Steps has one record for each step (T3), as the workflow file orders them.
	Steps []Step
}

// Step is the state record of one step.
type Step struct {
	Name  string
	State StepState
	// Attempt counts from 1; 0 before the first.
	Attempt int
	// FailureCount counts the attempts that failed or expired (V4).
	FailureCount int
	// CompleteBy ends the running attempt. Zero unless running.
	CompleteBy time.Time
	// Due is when the next attempt starts. Zero unless a retry is armed.
	Due            time.Time
	IdempotencyKey string
	Output         jsontext.Value
	Error          *events.Error // of the last attempt that failed
}

// Deadline is the time at which the supervisor must look at the step: its
// complete-by while it runs, the start of its retry while one is armed, else
// zero.
func (s *Step) Deadline() time.Time {
	if s.State == Running {
		return s.CompleteBy
	}
	return s.Due
}

// ErrGap says that an event does not follow the ones before it: the journal
// lost or tore a transaction, and must not be folded further.
var ErrGap = errors.New("gap in the journal")

// Clone returns a copy that can be changed without changing o.
func (o *Order) Clone() *Order {
	c := *o
	c.Steps = slices.Clone(o.Steps)
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

// CompleteBy is the earliest deadline of the order's steps, zero when it waits
// for nothing.
func (o *Order) CompleteBy() time.Time {
	var first time.Time
	for i := range o.Steps {
		if d := o.Steps[i].Deadline(); !d.IsZero() && (first.IsZero() || d.Before(first)) {
			first = d
		}
	}
	return first
}

// Output is the output of a processed order: that of its last step.
func (o *Order) Output() jsontext.Value {
	if o.State != Processed || len(o.Steps) == 0 {
		return nil
	}
	return o.Steps[len(o.Steps)-1].Output
}

// Apply folds the next event into o. It fails with [ErrGap] when e is not the
// event that follows, and leaves o as it was. Types that it does not know
// change nothing but the sequence: a newer release wrote them.
func (o *Order) Apply(e *events.Event) error {
	if e.Seq != o.Seq+1 {
		return fmt.Errorf("%w: order %q has event %d, then came %d (%s)", ErrGap, e.Order, o.Seq, e.Seq, e.Type)
	}
	step := o.Step(e.Step)
	switch e.Type {
	case events.StepStarted, events.StepCompleted, events.StepFailed, events.StepExpired, events.StepRetried:
		if step == nil {
			return fmt.Errorf("%w: order %q: %s names step %q, which the order does not have", ErrGap, e.Order, e.Type, e.Step)
		}
	}
	o.ID, o.Seq, o.UpdatedAt = e.Order, e.Seq, e.At

	switch e.Type {
	case events.OrderAccepted:
		o.State, o.AcceptedAt = Pending, e.At
		o.Workflow, o.Version = e.Workflow, e.Version
		o.Input, o.ReplyTo, o.Priority = e.Input, e.ReplyTo, e.Priority
		o.Deadline, o.Traceparent = e.Deadline, e.Traceparent
		o.Steps = make([]Step, len(e.Steps))
		for i, name := range e.Steps {
			o.Steps[i] = Step{Name: name, State: NotStarted}
		}
	case events.OrderRejected:
		o.State, o.AcceptedAt = Rejected, e.At
		o.Workflow, o.Version, o.ReplyTo, o.Reason = e.Workflow, e.Version, e.ReplyTo, e.Reason
	case events.StatusRefused:
		o.ReplyTo = ""
	case events.OrderCompleted:
		o.State, o.LockedBy = Processed, ""
	case events.OrderErrored:
		o.State, o.LockedBy, o.Reason = Error, "", e.Reason
		for i := range o.Steps { // whatever waited for a retry waits no more
			o.Steps[i].Due = time.Time{}
		}
	case events.AlertRaised:
		o.Alert = &events.Alert{Order: e.Order, Step: e.Step, Reason: e.Reason, Errors: e.Errors, At: e.At}

	case events.StepStarted:
		step.State, step.Attempt, step.IdempotencyKey = Running, e.Attempt, e.IdempotencyKey
		step.CompleteBy, step.Due = e.CompleteBy, time.Time{}
		o.State, o.LockedBy = Processing, e.LockedBy
	case events.StepCompleted:
		step.State, step.Output, step.Error, step.CompleteBy = Completed, e.Output, nil, time.Time{}
		o.rest()
	case events.StepFailed:
		step.State, step.Error, step.CompleteBy = Failed, e.Error, time.Time{}
		step.FailureCount++
		o.FailureCount++
		o.rest()
	case events.StepExpired:
		step.State, step.Error, step.CompleteBy = Expired, e.Error, time.Time{}
		step.FailureCount++
		o.FailureCount++
		o.rest()
	case events.StepRetried:
		step.Due = e.Due
	}
	return nil
}

// rest gives the order back, Pending and unlocked, once none of its steps runs.
func (o *Order) rest() {
	if o.State != Processing {
		return
	}
	for i := range o.Steps {
		if o.Steps[i].State == Running {
			return
		}
	}
	o.State, o.LockedBy = Pending, ""
}

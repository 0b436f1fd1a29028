package projections

import (
	"cmp"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// State is the ProcessState of an order.
type State string

// The states of an order. Processed, Rejected, Compensated, Cancelled, Raised
// and Terminated are its ends; Error waits for an operator.
const (
	Pending      State = "Pending"    // nobody works on it: just accepted, or waiting for a retry
	Processing   State = "Processing" // an agent was asked, and its complete-by runs
	Processed    State = "Processed"
	Error        State = "Error"
	Compensating State = "Compensating"
	Compensated  State = "Compensated"
	Cancelled    State = "Cancelled"
	Raised       State = "Raised"     // a step of its workflow had it fail
	Terminated   State = "Terminated" // an operator had it end as it was
	Rejected     State = "Rejected"
)

// States lists all states.
var States = []State{Pending, Processing, Processed, Error, Compensating, Compensated, Cancelled, Raised, Terminated, Rejected}

// Final says that no event will follow, save discarded replies, refused commands,
// labels, a conflict, what becomes of inputs, what a parent is told, and that the order is
// forgotten. One that is Processed and does a step of another may be compensated all the same.
func (s State) Final() bool {
	return s == Processed || s == Rejected || s == Compensated || s == Cancelled || s == Raised || s == Terminated
}

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
	// Tracestate and Baggage are those of the submission.
	Tracestate, Baggage string

	// Parent is the order of which this one does a step, nil if it does none.
	Parent *Parent
	// Schedule is there if this is no order, but the record of a schedule.
	Schedule *Schedule
	// Correlation is there if this is no order, but the record of a key under which steps wait for signals.
	Correlation *Correlation
	// Places is there if this is no order, but the record of places that orders ask for.
	Places *Places
	// Turns are the places that it asked for. They are not changed in place.
	Turns []Turn
	// Asked is the number of the event since which it waits until no other is open under its key, 0 if it need not,
	// TurnKey is the key, and TurnHome its home. See Started.
	Asked             uint64
	TurnHome, TurnKey string
	// Keep is for how long it is known after EndedAt; 0 is for ever.
	Keep    time.Duration
	EndedAt time.Time // zero unless it has ended, and is kept for some time only
	// Pinned are the versions that workflows had, by their names, when the order was accepted, of
	// those that do its steps. It is not changed in place.
	Pinned map[string]int64

	// SubmittedBy is who submitted the order, as far as that was said.
	SubmittedBy string
	// Submitters are who submitted the orders that it does again.
	Submitters []string

	// Seq is the number of the last event.
	Seq        uint64
	AcceptedAt time.Time
	UpdatedAt  time.Time
	// Reason says why the order was rejected, is in Error, or was compensated, raised or terminated.
	Reason string
	// whyCompensated outlasts the failure and the resubmission of an undo.
	whyCompensated string
	// Alert is the open alert, nil when no operator is called.
	Alert *events.Alert

	// Toward is Compensated or Cancelled once compensation began: the state that
	// it leads to. It stays while a failed undo keeps the order in Error.
	Toward State
	// Failure is what a step raised, which it names; nil before that. Nothing starts any more,
	// but undos where they were wanted.
	Failure *events.Error
	// Command is the id of the last operator's command, and Refusal says why it
	// could not be done, empty if it was.
	Command, Refusal string

	// Acts are the last commands whose author is known: whoever has seen one could send it
	// again. ActedBefore is of the newest of those that are not kept any more.
	Acts        []Act
	ActedBefore time.Time

	// Digest is that of the submission that made the order, empty before format 2.
	Digest string
	// Labels are what the order is found by: those of its submission, and what its workflow
	// makes of the input. They are not changed in place.
	Labels map[string]string
	// RerunOf is the order that this one does again, empty if it does none.
	RerunOf string
	// Discarded, Refused and PutAside count the replies, the commands and the dead
	// letters of which the journal says so, as it counts them.
	Discarded, Refused, PutAside int
	// Unheard counts the signals of which it says that they changed nothing.
	Unheard int
	// GivenUp counts the signals that were kept for as long as they were to be.
	GivenUp int
	// Signals are those that are kept, oldest first, and those that acted under an id.
	Signals []Signal

	// Hold is there while the order is held: deciding on it panicked, and nothing
	// is decided until an operator releases it. Waiting are the inputs that came
	// since, in order, with the one that panicked before them.
	Hold    *Hold
	Waiting []Held

	// Steps has one record for each step (T3), as the workflow file orders them.
	Steps []Step

	// Quiet says that it has no status messages: they are its parent's affair.
	Quiet bool
	// Started says that no other is open under its key any more, for which it waited.
	Started bool
	// Paused says that an operator lets nothing new start.
	Paused bool
	// Conflicted says that a submission was recorded that is not the one of Digest.
	Conflicted bool
	// Forgotten says that nothing is known of the order any more but that it ended, and how.
	Forgotten bool
	// keyed says that the keys under which its steps may have run are told apart: see
	// [Order.In].
	keyed bool
	// names says that its record has which orders left something: see [Order.In]. It is not kept: whoever folds an event
	// says it anew.
	names bool
	// vocabulary is the newest of the events applied since the order was read from
	// the store. It is kept in the partition's head.
	vocabulary int
}

// Hold is what an order was before it was held, and will be after its release.
type Hold struct {
	State  State
	Reason string
	Alert  *events.Alert
}

// Act is a command whose author is known: its id, what it asked for, and when it was signed.
type Act struct {
	ID, Command string
	At          time.Time
}

// Held is an input that waits for the release of its order.
type Held struct {
	// Source is where it was: topic/partition/offset.
	Source string
	events.Raw
	// Proof is [events.ProofRepeated] of a reply that repeats its token.
	Proof string
}

// Attention is when the supervisor must look at a step of the order: its
// deadline, zero while the order is held.
func (o *Order) Attention(s *Step) time.Time {
	if o.Hold != nil {
		return time.Time{}
	}
	return s.Deadline()
}

// StandingReason is the order's Reason, and where it has none, why it is or was
// compensated.
func (o *Order) StandingReason() string { return cmp.Or(o.Reason, o.whyCompensated) }

// Clone returns a copy that can be changed without changing o.
func (o *Order) Clone() *Order {
	c := *o
	c.Steps = slices.Clone(o.Steps)
	for i := range c.Steps {
		if undo := c.Steps[i].Undo; undo != nil {
			c.Steps[i].Undo = new(*undo)
		}
	}
	if s := o.Schedule; s != nil {
		c.Schedule = new(*s)
	}
	if k := o.Correlation; k != nil {
		c.Correlation = new(*k)
	}
	if p := o.Places; p != nil {
		c.Places = new(*p)
	}
	return &c
}

// Beside says that this is no order, but a record beside the orders: of a schedule, of a key under which steps wait for
// signals, or of places.
func (o *Order) Beside() bool { return o.Schedule != nil || o.Correlation != nil || o.Places != nil }

// begins says that the home of a key begins, perhaps anew, with the event of a number.
func (o *Order) begins(seq uint64) bool {
	return o.Correlation != nil && o.Correlation.First == seq || o.Places != nil && o.Places.First == seq
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

// Known returns the record of the step that is known outside by that name, nil if there is none: see
// [Step.Known].
func (o *Order) Known(name string) *Step {
	for i := range o.Steps {
		if o.Steps[i].Known() == name {
			return &o.Steps[i]
		}
	}
	return nil
}

// CompleteBy is the earliest complete-by of the order's steps and undos that run, start of a
// retry that is armed for later than now, or end of a sleep, or of a wait for signals; zero if there is none. What could
// have begun by now, and waits for its agent, has no complete-by yet.
func (o *Order) CompleteBy(now time.Time) time.Time {
	return o.earliest(func(w *Work) time.Time {
		if w.State == Running {
			return w.CompleteBy
		}
		if w.Due.After(now) {
			return w.Due
		}
		return time.Time{}
	})
}

// WaitsSince is from when on the first of the order's steps and undos could have begun
// that did not by now, since its agent cannot be asked; zero if there is none, and while
// the order is held.
func (o *Order) WaitsSince(now time.Time) time.Time {
	return o.earliest(func(w *Work) time.Time {
		if o.Hold == nil && !w.State.Idle() && !w.Due.After(now) {
			return w.Due
		}
		return time.Time{}
	})
}

// SleepsUntil is when the first of the order's steps wakes that sleep, or waits no more for
// signals; zero if there is none, and while the order is paused.
func (o *Order) SleepsUntil() time.Time {
	return o.earliest(func(w *Work) time.Time {
		if w.State.Idle() {
			return w.Due
		}
		return time.Time{}
	})
}

// earliest is the first of the times of the order's steps and undos that is not zero.
func (o *Order) earliest(of func(*Work) time.Time) (first time.Time) {
	look := func(w *Work) {
		if at := of(w); !at.IsZero() && (first.IsZero() || at.Before(first)) {
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
	if o.State != Pending && o.State != Processing || o.Paused || o.Failure != nil {
		return time.Time{}
	}
	return o.Deadline
}

// Resumes says that inputs wait in an order that is neither held nor ended: whoever had
// them wait did not know its workflow, and whoever does decides on them at once.
func (o *Order) Resumes() bool { return len(o.Waiting) > 0 && o.Hold == nil && !o.State.Final() }

// Forgets is when what is known of an order is forgotten, which has ended: zero for never, and for one
// that does a step of another and is forgotten with it.
func (o *Order) Forgets() time.Time {
	if o.Keep == 0 || o.EndedAt.IsZero() || o.Forgotten || o.Parent != nil && !o.Parent.Detached && !o.Parent.IsSchedule() {
		return time.Time{}
	}
	return events.Time(o.EndedAt.Add(o.Keep))
}

// Looked is when the supervisor must look at the order as a whole.
func (o *Order) Looked() time.Time {
	if o.Resumes() {
		return time.Unix(0, 0)
	}
	switch {
	case o.Forgetting():
		return time.Unix(0, 0)
	case o.State.Final():
		return o.Forgets()
	}
	switch {
	case o.Schedule != nil:
		return o.Ticks()
	case o.Correlation != nil:
		return o.Lapses()
	case o.Places != nil:
		return o.Grants()
	}
	return o.Overdue()
}

// Forgetting says that an order is being forgotten, and orders that did items of its steps, or asked for them, were
// already.
func (o *Order) Forgetting() bool {
	return o.State.Final() && o.any(func(s *Step) bool {
		return s.Each != nil && (s.Each.Forgotten > 0 || s.Each.Pages != nil && s.Each.Pages.Forgotten > 0)
	})
}

// any says whether that is true of a step. Steps are large: each is looked at where it is.
func (o *Order) any(is func(*Step) bool) bool {
	for i := range o.Steps {
		if is(&o.Steps[i]) {
			return true
		}
	}
	return false
}

// Output is the output of a processed order; see [Order.Result].
func (o *Order) Output() jsontext.Value {
	if o.State != Processed {
		return nil
	}
	return o.Result()
}

// Result is the output of the last step in the file that has completed, but for those that
// sleep or emit.
func (o *Order) Result() jsontext.Value {
	for i := range slices.Backward(o.Steps) {
		if s := &o.Steps[i]; s.State == Completed && !s.Sleeps && s.Emits == nil {
			return s.Output
		}
	}
	return nil
}

// FailedSteps names the steps that failed for good, and without which the order went on.
func (o *Order) FailedSteps() (names []string) {
	for i := range o.Steps {
		if o.Steps[i].Passed {
			names = append(names, o.Steps[i].Name)
		}
	}
	return names
}

// Running says whether an attempt of a step, or of an undo, is with its agent.
func (o *Order) Running() bool {
	return o.any(func(s *Step) bool {
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

// standsAt is [Order.Broken] for one step, or says that the order is in Error for it, or sleeps or listens there.
func (o *Order) standsAt(step string) bool {
	s := o.Step(step)
	if s == nil {
		return false
	}
	w := o.working(s)
	return w != nil && (w.Broken() || o.State == Error && o.Alert != nil && o.Alert.Step == step || o.State != Error && w.State.Idle())
}

// Stand is a step at which an order stands, or its undo.
type Stand struct {
	Step  string
	State StepState
	Undo  bool
}

// Stands are the first steps at which an order stands that has not ended, at most so many, in the order that its workflow
// has, and how many there are: what is under way, waits for something, or has failed. Where it is compensated these are undos.
func (o *Order) Stands(most int) (first []Stand, all int) {
	if o.State.Final() {
		return nil, 0
	}
	for i := range o.Steps {
		s := &o.Steps[i]
		w := o.working(s)
		if w == nil || !w.stands() && (o.State != Error || o.Alert == nil || o.Alert.Step != s.Name) {
			continue
		}
		if all++; all <= most {
			first = append(first, Stand{s.Name, w.State, o.Toward != ""})
		}
	}
	return first, all
}

// stands says that something is under way, waited for, or has failed.
func (w *Work) stands() bool {
	return w.State == Running || w.State.Idle() || w.State == Repeating || w.Broken() || !w.Due.IsZero() || w.Turn != 0
}

// working returns what the order's phase asks of the step's agent: the step, or
// its undo, nil before it begins.
func (o *Order) working(s *Step) *Work {
	if o.Toward != "" {
		return s.Undo
	}
	return &s.Work
}

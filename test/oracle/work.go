package oracle

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// The states of a step and of its undo, as the record names them.
const (
	notStarted = "not-started"
	running    = "running"
	completed  = "completed"
	failed     = "failed"
	expired    = "expired"
	skipped    = "skipped"
	sleeping   = "sleeping"
	repeating  = "repeating"
	listening  = "listening"
	approving  = "approving"
	timedOut   = "timed-out"
	undone     = "undone"
	raised     = "raised"
)

// Step is what the events say of a step.
type Step struct {
	Name string
	// Known is the name under which agents, and orders that do it, know it: that of its first request.
	Known string
	Work
	// MayHaveRun says that an attempt expired, or its answer was no good, and none
	// completed since.
	MayHaveRun bool
	// Earlier are the keys of before under which it may have run, oldest first.
	Earlier []Act
	Output  jsontext.Value
	Undo    *Work // nil before its first event

	// Repeats is how many times it was done before, and RepeatsBefore how many of them were
	// before its last resubmission.
	Repeats, RepeatsBefore int

	// Sleeps says that it sleeps, or did: until Wakes, or as long as Left says after a pause.
	Sleeps bool
	Wakes  time.Time
	Left   time.Duration
	// Emits says that it gives a topic an event, or did.
	Emits bool
	// Listens is there once it waits for signals.
	Listens *Listens
	// Child is the order that does it, or did.
	Child *Child
	// Leaves says that one which did it, or an item of it, told that something of that was not undone.
	Leaves bool
	// LeftBy are those of which that is known, but for orders of items, since [events.LeftByFormat].
	LeftBy []string
	// Approves is there once it asks people.
	Approves *Approval
	// Items are there once it is done for each of them.
	Items *Items

	// armed says that an attempt was armed as another version of the workflow has it.
	armed bool

	def *FlowStep // nil if it is not known
}

// Work is what the events say of a step's own attempts, or of those of its undo.
type Work struct {
	State string
	// Attempt is the number of the last one, Tried those that failed in this
	// round, Failures in all.
	Attempt, Tried, Failures int
	Uncounted                int // of Failures, those that no round counts
	NotKnown                 int // of these the last ones, that said it is no operation of its agent
	Round, Resubmissions     int
	Key                      string
	Proof, Agent             string // what the last attempt's reply must repeat, and whose it is
	CompleteBy, Expires, Due time.Time
	// ExtendTo is up to when CompleteBy may be moved, by Timeout behind what its agent says, and
	// Extended by how much it was.
	ExtendTo          time.Time
	Timeout, Extended time.Duration
	Input             jsontext.Value
	Last              *events.Error  // of the last attempt, if it failed
	Errors            []events.Error // of all attempts
	Turn              uint64         // the event with which a place was asked for, if it is needed
	Unanswered        bool           // the last attempt expired
	Passed            bool           // it failed for good, and the order goes on without it
	Doubtful          bool           // of an undo: an attempt under its key expired, and none completed since
	Done              int            // of an undo: how many of the step's acts are undone, while others are not

	single    bool  // of an undo: it began before format 3, and is one for all keys
	renewed   bool  // the next attempt has another key
	prevented Cause // of an undo: why the last attempt could not even begin
}

// Act is what a step did, or may have done, under one idempotency key.
type Act struct {
	Resubmissions int // that had begun a new key by then
	Outcome       string
	Input         jsontext.Value
}

// Asks says that the step is an operation of an agent, or emits, which stays as it is as well.
func (s *Step) Asks() bool { return !s.Sleeps && s.Listens == nil && s.Approves == nil }

// idle says that it waits for what no agent does.
func (w *Work) idle() bool {
	return w.State == sleeping || w.State == listening || w.State == approving
}

// acts are those of the step, the newest first.
func (s *Step) acts() []Act {
	var all []Act
	switch {
	case s.Items != nil && s.Items.count(completed)+s.Items.count(undoing)+s.Items.count(notUndone) > 0:
		all = append(all, Act{s.Resubmissions, events.OutcomeCompleted, s.Input})
	case s.Items != nil:
	case s.State == completed && s.Asks(), s.Repeats > 0:
		all = append(all, Act{s.Resubmissions, events.OutcomeCompleted, s.Input})
	case s.MayHaveRun:
		all = append(all, Act{s.Resubmissions, events.OutcomeUnknown, s.Input})
	}
	for _, a := range slices.Backward(s.Earlier) {
		all = append(all, a)
	}
	return all
}

// doubtAll: if the step may have run, it may have under each key that it has had.
func (s *Step) doubtAll() {
	for n := 0; s.MayHaveRun && n < s.Resubmissions; n++ {
		s.Earlier = append(s.Earlier, Act{n, events.OutcomeUnknown, s.Input})
	}
}

// undone is the act that is undone next, or now.
func (s *Step) undone() Act {
	if acts := s.acts(); s.undoing().Done < len(acts) {
		return acts[s.undoing().Done]
	}
	return Act{}
}

// ownCodes are those of attempts that failed without an error of their agent.
var ownCodes = append([]string{requestRefused, queueExpired, eventRefused, "bad-expression"}, untoldCodes...)

// untoldCodes are those of attempts that were made, and of which it could not be said what
// came of them.
var untoldCodes = []string{"output-refused", "reply-too-large"}

// answered says that nothing is left to try, because the agent answered the last attempt
// with an error; of an undo, that it answered all under its key.
func (w *Work) answered(def *FlowStep) bool {
	return w.State == failed && !w.Doubtful && w.spent(def) && !slices.Contains(ownCodes, w.Last.Code)
}

func (w *Work) broken() bool { return (w.State == failed || w.State == expired) && !w.Passed }

// permanent says that its last error leaves nothing to try: its agent says so, or the workflow.
func (w *Work) permanent(def *FlowStep) bool {
	return w.Last.Permanent || def != nil && slices.Contains(def.Retry.Never, w.Last.Code)
}

// ends is when the running attempt counts as expired.
func (w *Work) ends() time.Time {
	if w.Expires.IsZero() {
		return w.CompleteBy
	}
	return w.Expires
}

func (w *Work) end(state string) {
	w.State, w.Turn = state, 0
	w.CompleteBy, w.Expires, w.Due = time.Time{}, time.Time{}, time.Time{}
	w.ExtendTo, w.Timeout, w.Extended = time.Time{}, 0, 0
}

// spent says that the workflow leaves nothing to try.
func (w *Work) spent(def *FlowStep) bool {
	return w.broken() && w.Due.IsZero() && w.Turn == 0 &&
		(w.permanent(def) || w.Tried >= def.Retry.Attempts && w.Round >= def.Wait.Rounds)
}

// open says that more attempts are to come, or that one runs.
func (w *Work) open(def *FlowStep) bool {
	return w.State == running || w.broken() && !w.spent(def)
}

// passed says that what comes after the step need not wait for it.
func (s *Step) passed() bool {
	return s.State == completed || s.State == skipped || s.State == timedOut || s.Passed
}

// Ran says that the step completed, or may have run, and is not undone.
func (s *Step) Ran() bool { return s.State != undone && len(s.acts()) > 0 }

// stays says that something of the step was done, or may have been, and is not undone: of the step itself, or of what another order
// did.
func (s *Step) stays() bool { return s.Leaves || s.Ran() }

// undoing returns the record of the step's undo.
func (s *Step) undoing() *Work {
	if s.Undo == nil {
		return &Work{State: notStarted}
	}
	return s.Undo
}

// toUndo says that the step is to be undone, and its undo has not ended yet,
// well or for good.
func (s *Step) toUndo() bool {
	return s.def.undoes() && s.Ran() && s.undoing().State == notStarted || s.undoing().open(s.def)
}

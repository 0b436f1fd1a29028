package oracle

import (
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
	undone     = "undone"
)

// Step is what the events say of a step.
type Step struct {
	Name string
	Work
	// MayHaveRun says that an attempt expired, and none completed since.
	MayHaveRun bool
	Output     jsontext.Value
	Undo       *Work // nil before its first event

	def *FlowStep // nil if it is not known
}

// Work is what the events say of a step's own attempts, or of those of its undo.
type Work struct {
	State string
	// Attempt is the number of the last one, Tried those that failed in this
	// round, Failures in all.
	Attempt, Tried, Failures int
	Round, Resubmissions     int
	Key                      string
	CompleteBy, Expires, Due time.Time
	Input                    jsontext.Value
	Last                     *events.Error  // of the last attempt, if it failed
	Errors                   []events.Error // of all attempts
	Unanswered               bool           // the last attempt expired

	prevented Cause // of an undo: why the last attempt could not even begin
}

func (w *Work) broken() bool { return w.State == failed || w.State == expired }

// ends is when the running attempt counts as expired.
func (w *Work) ends() time.Time {
	if w.Expires.IsZero() {
		return w.CompleteBy
	}
	return w.Expires
}

func (w *Work) end(state string) {
	w.State = state
	w.CompleteBy, w.Expires, w.Due = time.Time{}, time.Time{}, time.Time{}
}

// spent says that the workflow leaves nothing to try.
func (w *Work) spent(def *FlowStep) bool {
	return w.broken() && w.Due.IsZero() &&
		(w.Last.Permanent || w.Tried >= def.Retry.Attempts && w.Round >= def.Wait.Rounds)
}

// open says that more attempts are to come, or that one runs.
func (w *Work) open(def *FlowStep) bool {
	return w.State == running || w.broken() && !w.spent(def)
}

// passed says that what comes after the step need not wait for it.
func (s *Step) passed() bool { return s.State == completed || s.State == skipped }

// ran says that the step completed, or may have run, and is not undone.
func (s *Step) ran() bool { return s.State == completed || s.MayHaveRun && s.State != undone }

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
	return s.def.Undo != "" && s.ran() && s.undoing().State == notStarted || s.undoing().open(s.def)
}

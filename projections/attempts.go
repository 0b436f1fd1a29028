package projections

import (
	"time"

	"github.com/waybill-dev/waybill/events"
)

// The attempts of a step, and of its undo: the same events have the same effect
// on the [Work] of either.

func startStep(_ *Order, s *Step, e *events.Event) { s.start(e) }
func startUndo(_ *Order, s *Step, e *events.Event) { s.undoing().start(e) }

func completeStep(_ *Order, s *Step, e *events.Event) {
	s.end(Completed, nil)
	s.Output, s.Unknown = e.Output, false
}

// repeatStep has the step be done anew when it is due, under a key of its own, unless an operator
// has the order wait.
func repeatStep(o *Order, s *Step, e *events.Event) {
	s.end(Repeating, nil)
	s.Output, s.Unknown = e.Output, false
	if o.State != Error && !o.Paused {
		s.Due = e.Due
	}
	s.Repeats, s.Tried, s.NotKnown, s.Round, s.Resubmissions = e.Count, 0, 0, 0, 0
	s.AttemptsBefore = e.Attempt
}

// completeUndo has the undo under the next of the step's keys follow, if there is one.
func completeUndo(_ *Order, s *Step, _ *events.Event) {
	undo := s.undoing()
	undo.Done++
	undo.Doubtful = false
	if s.Undoing() != nil {
		undo.end(NotStarted, nil)
		undo.Tried, undo.NotKnown, undo.Round, undo.Resubmissions, undo.Input = 0, 0, 0, 0, nil
		return
	}
	undo.end(Completed, nil)
	undo.Done = 0
	s.State = Undone
}

func failStep(o *Order, s *Step, e *events.Event) {
	s.Attempt = e.Attempt // one that could not even begin has no start
	o.fail(&s.Work, Failed, e)
	s.Unknown = s.Unknown || o.untold(e)
	if e.Output != nil {
		s.Output = e.Output
	}
}

func failUndo(o *Order, s *Step, e *events.Event) {
	undo := s.undoing()
	undo.Attempt = e.Attempt
	o.fail(undo, Failed, e)
	undo.keep(e)
	undo.Doubtful = undo.Doubtful || o.untold(e)
}

func expireStep(o *Order, s *Step, e *events.Event) {
	o.fail(&s.Work, Expired, e)
	s.Unknown = true
}

func expireUndo(o *Order, s *Step, e *events.Event) {
	undo := s.undoing()
	o.fail(undo, Expired, e)
	undo.keep(e)
	undo.Doubtful = o.keyed
}

// sleep has the step wait until it is due. That a pause puts off, unless it is a time of the
// calendar.
func sleep(_ *Order, s *Step, e *events.Event) {
	s.State, s.Attempt, s.Due, s.Sleeps = Sleeping, e.Attempt, e.Due, true
	if e.Fixed {
		s.Wakes = new(e.Due)
	}
}

func wake(_ *Order, s *Step, _ *events.Event) { s.end(Completed, nil) }

// suspend stops the clocks of what sleeps, listens or asks people for so long.
func (o *Order) suspend(now time.Time) {
	for i := range o.Steps {
		s := &o.Steps[i]
		if !s.State.Idle() {
			continue
		}
		switch left := s.Due.Sub(events.Time(now)); {
		case s.State == Approving:
			s.suspendApproval(events.Time(now))
		case s.State == Listening && !s.Due.IsZero():
			s.Left = max(time.Millisecond, left) // none is for ever
		case s.State == Sleeping && s.Wakes == nil:
			s.Left = max(0, left)
		}
		s.Due = time.Time{}
	}
}

// wind has them go on.
func (o *Order) wind(now time.Time) {
	for i := range o.Steps {
		s := &o.Steps[i]
		switch {
		case !s.State.Idle() || s.State == Listening && s.Left == 0:
			continue
		case s.State == Approving:
			s.windApproval(events.Time(now))
			continue
		}
		if s.Due = events.Time(now).Add(s.Left); s.Wakes != nil {
			s.Due = *s.Wakes
		}
		s.Left = 0
	}
}

func passStep(_ *Order, s *Step, _ *events.Event) { s.Passed = true }

func extendStep(_ *Order, s *Step, e *events.Event) { s.extend(e) }
func extendUndo(_ *Order, s *Step, e *events.Event) { s.undoing().extend(e) }

func retryStep(_ *Order, s *Step, e *events.Event) { s.arm(e) }
func retryUndo(_ *Order, s *Step, e *events.Event) { s.undoing().arm(e) }

func skipStep(o *Order, s *Step, e *events.Event) {
	s.end(Skipped, s.Error)
	s.Output = e.Output
	o.relieve(e)
}

func skipUndo(o *Order, s *Step, e *events.Event) {
	undo := s.undoing()
	undo.end(Skipped, undo.Error)
	o.relieve(e)
}

// undoing returns the record of the step's undo, which begins with its first event.
func (s *Step) undoing() *Work {
	if s.Undo == nil {
		s.Undo = &Work{State: NotStarted}
	}
	return s.Undo
}

func (w *Work) start(e *events.Event) {
	w.State, w.Attempt, w.IdempotencyKey = Running, e.Attempt, e.IdempotencyKey
	w.Proof, w.Agent = e.Proof, ""
	if e.Proof != "" {
		w.Agent = e.Agent
	}
	w.CompleteBy, w.Expires, w.Due = e.CompleteBy, e.Expires, time.Time{}
	w.ExtendTo, w.Timeout, w.Extended = e.ExtendTo, 0, 0
	if !e.ExtendTo.IsZero() {
		w.Timeout = e.CompleteBy.Sub(events.Time(e.At))
	}
	w.Unanswered = false
	if e.Input != nil {
		w.Input = e.Input
	}
}

// end ends an attempt, or a sleep.
func (w *Work) end(state StepState, fault *events.Error) {
	w.State, w.Error, w.Turn = state, fault, 0
	w.CompleteBy, w.Expires, w.Due = time.Time{}, time.Time{}, time.Time{}
	w.ExtendTo, w.Timeout, w.Extended = time.Time{}, 0, 0
}

// extend moves the complete-by of the running attempt.
func (w *Work) extend(e *events.Event) {
	w.Extended += e.CompleteBy.Sub(w.CompleteBy)
	w.CompleteBy, w.Expires = e.CompleteBy, e.Expires
}

// arm has the next attempt start when it is due, in a new round if there is one.
func (w *Work) arm(e *events.Event) {
	w.Due = e.Due
	if e.Round > 0 {
		w.Round, w.Tried = e.Round, 0
	}
}

func (o *Order) fail(w *Work, state StepState, e *events.Event) {
	w.end(state, e.Error)
	w.FailureCount++
	if e.Uncounted {
		w.Uncounted++
	} else {
		w.Tried++
	}
	if e.Uncounted && e.Error.Code == events.UnknownOperation {
		w.NotKnown++
	} else {
		w.NotKnown = 0
	}
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

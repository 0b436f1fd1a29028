package projections

import (
	"time"

	"github.com/waybill-dev/waybill/events"
)

// The course of an order: it begins, stops, turns back and ends.

func accept(o *Order, _ *Step, e *events.Event) {
	o.State, o.AcceptedAt = Pending, e.At
	o.Workflow, o.Version = e.Workflow, e.Version
	o.Input, o.ReplyTo, o.Priority = e.Input, e.ReplyTo, e.Priority
	o.Deadline, o.Traceparent, o.Digest, o.Labels, o.RerunOf = e.Deadline, e.Traceparent, e.Digest, e.Labels, e.RerunOf
	o.Tracestate, o.Baggage = e.Tracestate, e.Baggage
	o.SubmittedBy, o.Submitters = e.By, e.Submitters
	o.Pinned, o.Keep = e.Pinned, time.Duration(e.Keep)*time.Second
	o.Parent = parentOf(e)
	o.Quiet = o.quiet()
	o.Steps = make([]Step, len(e.Steps))
	for i, name := range e.Steps {
		o.Steps[i] = Step{Name: name, Work: Work{State: NotStarted}}
	}
}

func reject(o *Order, _ *Step, e *events.Event) {
	o.State, o.AcceptedAt = Rejected, e.At
	o.Workflow, o.Version, o.ReplyTo, o.Reason, o.Digest = e.Workflow, e.Version, e.ReplyTo, e.Reason, e.Digest
	o.Parent, o.Keep = parentOf(e), time.Duration(e.Keep)*time.Second
	o.Quiet = o.quiet()
}

func end(as State) effect {
	return func(o *Order, _ *Step, _ *events.Event) { o.State = as }
}

// stop takes the order into Error. Of one that is held everything stays as it is.
func stop(o *Order, _ *Step, e *events.Event) {
	if e.Held {
		o.Hold = &Hold{o.State, o.Reason, o.Alert}
	} else {
		o.disarm()
	}
	o.State, o.Reason = Error, e.Reason
}

// forgetOrder leaves nothing but that there was an order of this id, how it ended, of which workflow it was, and
// which submission made it: whoever sends another under the id hears of that. Of one that a schedule began nothing
// need be left, since no tick comes again.
func forgetOrder(o *Order, _ *Step, _ *events.Event) {
	parent := o.Parent
	if parent != nil && !parent.IsSchedule() {
		parent = nil
	}
	*o = Order{Parent: parent, ID: o.ID, Workflow: o.Workflow, State: o.State, Seq: o.Seq, Digest: o.Digest, Conflicted: o.Conflicted, Forgotten: true, vocabulary: o.vocabulary}
}

func turnBack(o *Order, _ *Step, e *events.Event) {
	o.State, o.Toward, o.Reason, o.Alert, o.Paused = Compensating, State(e.End), e.Reason, nil, false
	o.whyCompensated = e.Reason
	o.disarm()
	o.dismiss()
}

// dismiss has nobody wait any more for what sleeps, listens, asks people, or is to be repeated.
func (o *Order) dismiss() {
	for i := range o.Steps {
		if s := &o.Steps[i]; s.State.Idle() || s.State == Repeating {
			s.end(Skipped, nil)
			s.Left = 0
		}
	}
}

// raise has the order fail: nothing starts any more.
func raise(o *Order, s *Step, e *events.Event) {
	s.end(DidRaise, e.Error)
	o.Failure = e.Error
	o.disarm()
	o.dismiss()
}

func endRaised(o *Order, _ *Step, e *events.Event) {
	o.State, o.Reason, o.Failure, o.Alert, o.Paused = Raised, e.Reason, e.Error, nil, false
}

// terminate ends the order as it is. What its agents were asked for last expires: they may do it
// all the same, and what they answer changes nothing.
func terminate(o *Order, _ *Step, e *events.Event) {
	o.State, o.Reason, o.Alert, o.Hold, o.Paused = Terminated, e.Reason, nil, nil, false
	o.disarm()
	o.dismiss()
	for i := range o.Steps {
		s := &o.Steps[i]
		if s.State == Running {
			s.abandon()
			s.Unknown = true
		}
		if s.Undo != nil && s.Undo.State == Running {
			s.Undo.abandon()
			s.Undo.Doubtful = true
		}
	}
}

// abandon ends an attempt that nobody waits for any more.
func (w *Work) abandon() {
	w.end(Expired, w.Error)
	w.Unanswered = true
}

// disarm has whatever waits for a retry, or for a place, wait no more. What sleeps, listens or asks people goes on to.
func (o *Order) disarm() {
	for i := range o.Steps {
		if !o.Steps[i].State.Idle() {
			o.Steps[i].disarm()
		}
		if undo := o.Steps[i].Undo; undo != nil {
			undo.disarm()
		}
	}
}

func (w *Work) disarm() {
	if w.Due = (time.Time{}); w.State != Running {
		w.Turn = 0
	}
}

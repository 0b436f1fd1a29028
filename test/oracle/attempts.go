package oracle

import (
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// step takes the events of a step itself.
func (l *Ledger) step(e *events.Event, s *Step) {
	w := &s.Work
	switch e.Type {
	case events.StepStarted:
		l.rule(l.Toward == "", "the order is being compensated")
		l.rule(l.flow == nil || l.ready(s), "what it comes after is not done")
		l.rule(l.Deadline.IsZero() || e.At.Before(l.Deadline), "the order's deadline %v has passed", l.Deadline)
		l.start(e, s, w, false)
	case events.StepCompleted:
		l.ends(e, w)
		w.end(completed)
		w.Last, s.Output, s.MayHaveRun = nil, e.Output, false
	case events.StepFailed:
		l.ends(e, w)
		l.fails(e, w, failed)
	case events.StepExpired:
		l.ends(e, w)
		l.fails(e, w, expired)
		s.MayHaveRun = true
	case events.StepRetried:
		l.rule(l.Toward == "", "the order is being compensated")
		l.retry(e, s, w)
	case events.StepSkipped:
		l.rule(l.Toward == "", "the order is being compensated")
		l.rule(w.State == notStarted || w.broken(), "it is %s", w.State)
		if byWorkflow(e) {
			l.goesOn()
			l.rule(w.Attempt == 0 || w.State == notStarted, "it was tried before")
			l.rule(s.def == nil || s.def.conditional() && l.ready(s), "nothing in the workflow asks for it")
		}
		w.end(skipped)
		s.Output = e.Output
		l.relieve(e)
	default:
		l.rule(false, "nobody knows this event")
	}
}

// byWorkflow says that it was a step's condition that passed over it, and no
// operator.
func byWorkflow(e *events.Event) bool {
	return strings.HasPrefix(e.Reason, "when: ") && e.By == "" && e.Command == ""
}

// undo takes the events of a step's undo.
func (l *Ledger) undo(e *events.Event, s *Step) {
	if s.Undo == nil {
		s.Undo = &Work{State: notStarted}
	}
	w := s.Undo
	switch e.Type {
	case events.UndoStarted:
		l.mayUndo(s)
		want := events.OutcomeUnknown
		if s.State == completed {
			want = events.OutcomeCompleted
		}
		l.rule(e.Outcome == want, "its outcome is %q, and must be %q", e.Outcome, want)
		l.start(e, s, w, true)
	case events.UndoCompleted:
		l.ends(e, w)
		w.end(completed)
		w.Last, s.State = nil, undone
	case events.UndoFailed:
		if w.State != running { // it could not even begin
			l.mayUndo(s)
			l.goesOn()
			l.begins(e, w)
			l.rule(e.Error != nil && e.Error.Permanent && (e.Error.Code == "request-refused" || e.Error.Code == "bad-expression"),
				"it did not run, and its error is %+v", e.Error)
			w.Attempt = e.Attempt
		} else {
			l.ends(e, w)
		}
		l.fails(e, w, failed)
	case events.UndoExpired:
		l.ends(e, w)
		l.fails(e, w, expired)
	case events.UndoRetried:
		l.retry(e, s, w)
	case events.UndoSkipped:
		l.rule(l.Toward != "", "nothing is being undone")
		l.rule(s.ran(), "the step did not run")
		l.rule(s.def == nil || s.def.Undo != "", "the step has no undo")
		l.rule(w.State == notStarted || w.broken(), "it is %s", w.State)
		w.end(skipped)
		l.relieve(e)
	default:
		l.rule(false, "nobody knows this event")
	}
}

// ready says whether all that the step comes after is done.
func (l *Ledger) ready(s *Step) bool {
	return !slices.ContainsFunc(s.def.After, func(name string) bool { return !l.Step(name).passed() })
}

// begins holds for every attempt: none runs, numbers have no gap, and a
// failure's retry has been armed and is due.
func (l *Ledger) begins(e *events.Event, w *Work) {
	l.rule(w.State == notStarted || w.broken(), "it is %s", w.State)
	l.rule(!w.broken() || !w.Due.IsZero() && !e.At.Before(w.Due), "the last attempt %s, and the next is due at %v", w.State, w.Due)
	l.rule(e.Attempt == w.Attempt+1, "attempt %d follows %d", e.Attempt, w.Attempt)
}

func (l *Ledger) start(e *events.Event, s *Step, w *Work, undo bool) {
	l.goesOn()
	l.begins(e, w)
	l.rule(e.LockedBy != "" && e.Agent != "" && e.Operation != "", "locked by %q, agent %q is asked to %q", e.LockedBy, e.Agent, e.Operation)
	want := events.IdempotencyKey(l.Order, s.Name, undo, w.Resubmissions)
	l.rule(e.IdempotencyKey == want, "its key is %q, and must be %q", e.IdempotencyKey, want)
	l.rule(e.CompleteBy.After(e.At), "its complete-by is %v", e.CompleteBy)
	l.rule(e.Expires.IsZero() || e.Expires.After(e.CompleteBy), "it expires at %v", e.Expires)
	if def := s.def; def != nil {
		operation := def.Do
		completeBy := e.At.Add(time.Duration(def.Timeout))
		if undo {
			operation = def.Undo
		} else if !l.Deadline.IsZero() && l.Deadline.Before(completeBy) {
			completeBy = l.Deadline
		}
		l.rule(e.Agent == def.Agent && e.Operation == operation, "agent %s is asked to %s", e.Agent, e.Operation)
		l.rule(e.CompleteBy.Equal(events.Time(completeBy)), "its complete-by is %v, and must be %v", e.CompleteBy, completeBy)
		l.rule(w.Tried < def.Retry.Attempts, "%d attempts of this round failed, of %d", w.Tried, def.Retry.Attempts)
	}
	w.State, w.Attempt, w.Key, w.Unanswered = running, e.Attempt, e.IdempotencyKey, false
	w.CompleteBy, w.Expires, w.Due = e.CompleteBy, e.Expires, time.Time{}
	if e.Input != nil {
		l.rule(w.Input == nil, "its input was recorded before")
		w.Input = e.Input
	}
}

// ends holds for every end of an attempt.
func (l *Ledger) ends(e *events.Event, w *Work) {
	l.rule(w.State == running && e.Attempt == w.Attempt, "attempt %d ends, and attempt %d is %s", e.Attempt, w.Attempt, w.State)
}

func (l *Ledger) fails(e *events.Event, w *Work, state string) {
	l.rule(e.Error != nil, "it has no error")
	l.rule(state != expired || !e.At.Before(w.ends()), "it had time until %v", w.ends())
	if e.Error == nil {
		return
	}
	w.end(state)
	w.Last, w.Unanswered = e.Error, state == expired
	fault := *e.Error
	fault.Attempt = e.Attempt
	w.Errors = append(w.Errors, fault)
	w.Tried++
	w.Failures++
	l.Failures++
}

// retry: below the threshold, and after a wait that the workflow allows.
func (l *Ledger) retry(e *events.Event, s *Step, w *Work) {
	l.goesOn()
	l.rule(w.broken() && w.Due.IsZero(), "it is %s, and its next attempt is due at %v", w.State, w.Due)
	l.rule(e.Attempt == w.Attempt+1, "attempt %d follows %d", e.Attempt, w.Attempt)
	l.rule(w.Last == nil || !w.Last.Permanent, "its error is permanent")
	l.rule(e.Round == 0 || e.Round == w.Round+1, "round %d follows %d", e.Round, w.Round)
	if def := s.def; def != nil {
		low, high := def.delay(w.Tried)
		if e.Round > 0 {
			low, high = def.pause()
			l.rule(w.Tried >= def.Retry.Attempts, "only %d attempts of %d failed in this round", w.Tried, def.Retry.Attempts)
			l.rule(e.Round <= def.Wait.Rounds, "the workflow has %d more rounds", def.Wait.Rounds)
		} else {
			l.rule(w.Tried < def.Retry.Attempts, "%d attempts of %d failed in this round", w.Tried, def.Retry.Attempts)
		}
		wait := e.Due.Sub(e.At)
		l.rule(wait >= low-time.Millisecond && wait <= high+time.Millisecond, // messages have milliseconds
			"it waits for %v, and must for %v to %v", wait, low, high)
	}
	w.Due = e.Due
	if e.Round > 0 {
		w.Round, w.Tried = e.Round, 0
	}
}

// discarded: a reply that counts is not discarded, and the reason is the right
// one.
func (l *Ledger) discarded(e *events.Event) {
	s := l.Step(e.Step)
	var w *Work
	if s != nil {
		if w = &s.Work; e.Undo {
			w = s.Undo
		}
	}
	var want string
	switch {
	case w == nil, e.Attempt > w.Attempt, e.Attempt < 1:
		want = events.DiscardUnknownStep
	case e.Attempt < w.Attempt:
		want = events.DiscardStale
	case w.State == running && !e.At.After(w.ends()):
		l.rule(false, "attempt %d runs until %v", e.Attempt, w.ends())
	case w.State == running, w.Unanswered:
		want = events.DiscardLate
	default:
		want = events.DiscardRepeated
	}
	l.rule(e.Reason == want, "the reason is %q, and must be %q", e.Reason, want)
}

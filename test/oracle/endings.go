package oracle

import (
	"slices"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// maxErrors is how many errors an order keeps of an undo, and tells in an alert.
const maxErrors = 100

// stop takes the order into Error.
func (l *Ledger) stop(e *events.Event) {
	l.goesOn()
	l.rule("P2", e.Reason != "", "it has no reason")
	l.Blame = append(l.Blame, l.causes(e)...)
	l.errored = true
	l.disarm()
}

// alert calls an operator, and tells of everything that failed (C2).
func (l *Ledger) alert(e *events.Event) {
	l.rule("P2", e.Reason == l.last.Reason && e.Step == l.last.Step, "it is about %s: %s", e.Step, e.Reason)
	l.rule("P2", e.At.Equal(l.last.At), "it comes later")
	l.rule("P2", e.Action != "", "it does not say what to do")
	var want []events.Error
	for _, s := range l.Steps {
		if undo := s.undoing(); undo.broken() {
			for _, fault := range undo.Errors[max(0, len(undo.Errors)-maxErrors):] {
				fault.Step, fault.Undo = s.Name, true
				want = append(want, fault)
			}
		}
		if s.Last != nil && !s.Passed {
			fault := *s.Last
			fault.Step, fault.Attempt = s.Name, s.Attempt
			want = append(want, fault)
		}
	}
	for _, fault := range want {
		l.rule("C2", len(want) > maxErrors || slices.Contains(e.Errors, fault), "it does not say %+v", fault)
	}
	// At most the cause is there in addition.
	n := len(e.Errors)
	l.rule("C2", n >= min(len(want), maxErrors) && n <= min(len(want)+1, maxErrors), "it has %d errors, and %d are known", n, len(want))
	l.Alerted = true
}

// maxKeys is under how many keys a step may have run.
const maxKeys = 10

// keys: what was answered with an error gets a new key, and what may have run under the
// one that it had is undone under that one, too.
func (l *Ledger) keys(e *events.Event) {
	var kept, doubted []string
	for _, s := range l.Steps {
		switch w := l.wanted(s); {
		case l.Format < events.KeysFormat || e.SameKey || !w.broken():
		case s.Items != nil && w == &s.Work: // other orders do its items anew, whatever keys are wanted
		case s.def == nil && slices.Contains(e.Kept, s.Name), s.def != nil && !e.NewKey && !w.answered(s.def):
			kept = append(kept, s.Name)
		// What may be done again and again never says so; without the workflow nobody can tell.
		case s.MayHaveRun && l.Toward == "" && (s.def == nil && slices.Contains(e.MayHaveRun, s.Name) || s.def != nil && s.def.Repeat == nil):
			doubted = append(doubted, s.Name)
			l.rule("A3", len(s.Earlier)+1 < maxKeys, "step %s may have run under %d keys", s.Name, maxKeys)
		}
	}
	l.rule("A3", slices.Equal(kept, e.Kept), "it keeps the keys of %s, and must keep those of %s", names(e.Kept), names(kept))
	l.rule("C1", slices.Equal(doubted, e.MayHaveRun), "it says that %s may have run, and must say %s", names(e.MayHaveRun), names(doubted))
	l.rule("P3", !e.NewKey || !e.SameKey && l.Format >= events.KeysFormat, "new keys are wanted, the same keys: %t, in format %d", e.SameKey, l.Format)
}

// resubmit lets what failed begin again.
func (l *Ledger) resubmit(e *events.Event) {
	l.keys(e)
	l.rule("P3", e.Input == nil || l.Step(e.Step) != nil, "it has an input for no step")
	for _, s := range l.Steps {
		w := s.Undo
		if l.Toward == "" {
			w = &s.Work
		}
		if w == nil {
			l.rule("P3", s.Name != e.Step, "the undo of step %s has not begun", s.Name)
			continue
		}
		if slices.Contains(e.MayHaveRun, s.Name) {
			s.Earlier = append(s.Earlier, Act{w.Resubmissions, events.OutcomeUnknown, w.Input})
			s.MayHaveRun = false
		}
		if s.Name == e.Step {
			l.rule("P3", w.broken() || (e.Input != nil || w.Key != "") && w.State == notStarted && l.Toward == "", "step %s is %s", s.Name, w.State)
			if e.Input != nil {
				w.Input = e.Input
			}
		}
		if w.broken() {
			w.State, w.Tried, w.NotKnown, w.Round, w.Due = notStarted, 0, 0, 0, time.Time{}
			s.RepeatsBefore = s.Repeats
			s.redo(w == s.Undo)
			if items := s.Items != nil && w == &s.Work; items || !e.SameKey && !slices.Contains(e.Kept, s.Name) {
				if l.keyed && w == s.Undo && w.single {
					s.doubtAll()
					w.single = false
				}
				w.Resubmissions++
				w.renewed, w.Doubtful = true, false
			}
		}
	}
}

func (l *Ledger) compensating(e *events.Event) {
	l.locks(e)
	l.rule("C1", l.Toward == "", "it began before")
	l.rule("C3", e.End == "Compensated" || e.End == "Cancelled", "it leads to %q", e.End)
	l.rule("P1", e.Reason != "", "it has no reason")
	if e.End == "Compensated" { // nobody but the workflow wants that, or the parent
		l.goesOn()
		switch s := l.Step(e.Step); {
		case l.State == "Processed": // see turnedBack
		case l.flow == nil:
		case s == nil:
			l.overdue(e, "compensate")
		case s.State == raised:
			l.rule("V5", s.def.Raise != nil && s.def.Raise.Compensate && l.last.Type == events.StepRaised, "the workflow says to raise, and undo: %+v", s.def.Raise)
			l.rule("V5", e.Error != nil && *e.Error == *l.failure, "its error is %+v", e.Error)
		default:
			l.rule("V5", s.def.Exhausted == "compensate" && s.spent(s.def), "step %s is %s, and the workflow says %s", s.Name, s.State, s.def.Exhausted)
			l.rule("V5", s.Last != nil && e.Error != nil && *e.Error == *s.Last, "its error is %+v", e.Error)
		}
	} else {
		superseded := e.Error != nil && e.Error.Code == "superseded" && l.begun
		l.rule("P3", e.Step == "" && (e.Error == nil || superseded), "an operator cancels, or another has its turn, and it is about %s: %+v", e.Step, e.Error)
	}
	l.Toward, l.Paused, l.errored, l.Alerted, l.why = e.End, false, false, false, e.Reason
	l.disarm()
	l.dismiss()
}

// mayUndo holds where an undo begins.
func (l *Ledger) mayUndo(s *Step) {
	l.rule("C1", l.Toward != "", "nothing is being undone")
	l.rule("C1", s.Ran() && s.State != running, "the step is %s, may have run: %t", s.State, s.MayHaveRun)
	if l.flow != nil {
		l.rule("C1", s.def.undoes(), "the step has no undo")
		// A retry goes on with what has begun: an operator may have resubmitted
		// an undo that failed for good, and so held up nothing, in between.
		if why := l.hindrance(s); s.undoing().State == notStarted {
			l.rule("C1", why == "", "%s", why)
		}
	}
}

// hindrance says why the step may not be undone yet: what comes after it still
// runs, or is still to be undone (C1).
func (l *Ledger) hindrance(s *Step) string {
	for _, name := range l.flow.behind(s.Name) {
		switch f := l.Step(name); {
		case f.State == running:
			return "step " + name + ", which comes after it, still runs"
		case f.toUndo():
			return "step " + name + ", which comes after it, is still to be undone"
		}
	}
	return ""
}

// compensated: everything that ran is undone, or an operator passed over it,
// and the outcome says so (C3).
func (l *Ledger) compensated(e *events.Event) {
	l.goesOn()
	want := events.OrderCompensated
	if l.Toward == "Cancelled" {
		want = events.OrderCancelled
	}
	l.rule("C3", l.Toward != "" && e.Type == want, "it leads to %q", l.Toward)
	l.rule("C1", !l.runs(), "something still runs")
	for _, s := range l.Steps {
		undo := s.undoing()
		l.rule("C1", !s.Ran() || s.def == nil || !s.def.undoes() || undo.State == skipped, "the undo of step %s is %s", s.Name, undo.State)
		l.rule("C2", !undo.broken(), "the undo of step %s is %s", s.Name, undo.State)
	}
	l.outcome(e)
	l.ended, l.State = true, l.Toward
}

// outcome: what ended an order says what was undone, and what was not (C3).
func (l *Ledger) outcome(e *events.Event) {
	var done, not []string
	for _, s := range l.Steps {
		switch {
		case s.stays():
			not = append(not, s.Name)
		case s.State == undone:
			done = append(done, s.Name)
		}
	}
	l.rule("C3", slices.Equal(done, e.Undone) && slices.Equal(not, e.NotUndone),
		"it says undone: %s; not undone: %s; and must say: %s; %s", names(e.Undone), names(e.NotUndone), names(done), names(not))
}

// terminated: an operator, who says why, ends the order as it is. What agents were asked for
// they may do all the same.
func (l *Ledger) terminated(e *events.Event) {
	l.why = e.Reason
	l.rule("P3", e.Reason != "" && l.Format >= events.TerminateFormat, "its reason is %q, in format %d", e.Reason, l.Format)
	l.outcome(e)
	var open []string
	for _, s := range l.Steps {
		undo := s.undoing()
		if s.State == running || undo.State == running || undo.Doubtful || s.State != undone && (s.MayHaveRun || len(s.Earlier) > 0) {
			open = append(open, s.Name)
		}
	}
	l.rule("C3", slices.Equal(open, e.MayHaveRun), "it says that %s may have run, and must say %s", names(e.MayHaveRun), names(open))
	l.disarm()
	l.dismiss()
	for _, s := range l.Steps {
		if s.State == running {
			s.end(expired)
			s.Unanswered, s.MayHaveRun = true, true
		}
		if undo := s.Undo; undo != nil && undo.State == running {
			undo.end(expired)
			undo.Unanswered, undo.Doubtful = true, true
		}
	}
	l.Held, l.errored, l.Alerted, l.Paused, l.released = false, false, false, false, false
	l.ended, l.State = true, "Terminated"
}

// changed: an operator gives the order another priority or deadline, for what begins from then on.
func (l *Ledger) changed(e *events.Event) {
	same := e.Deadline.Equal(l.Deadline)
	l.rule("P5", l.Format >= events.ChangeFormat && slices.Contains([]events.Priority{"", events.High, events.Normal, events.Low}, e.Priority), "its priority is %q, in format %d", e.Priority, l.Format)
	l.rule("V5", same || l.Toward == "" && l.failure == nil && (l.Doubted || e.Deadline.IsZero() || e.Deadline.After(e.At)), "its deadline %v, which was %v, has passed, or does not matter", e.Deadline, l.Deadline)
	l.accepted.Priority, l.Deadline = e.Priority, e.Deadline
}

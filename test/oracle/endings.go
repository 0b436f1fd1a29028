package oracle

import (
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// maxErrors is how many errors an order keeps of an undo, and tells in an alert.
const maxErrors = 100

// stop takes the order into Error.
func (l *Ledger) stop(e *events.Event) {
	l.rule(!l.errored, "the order is in Error already")
	l.rule(e.Reason != "", "it has no reason")
	if s := l.Step(e.Step); s != nil && s.def != nil && l.Toward == "" && e.Error != nil && s.broken() && *e.Error == *s.Last {
		// Else it could not even be asked for.
		l.rule(s.spent(s.def), "step %s is %s, and has something left to try", s.Name, s.State)
		l.rule(s.def.Exhausted != "compensate", "the workflow says to compensate")
	}
	if l.Toward != "" && e.Error == nil && l.flow != nil && !strings.Contains(e.Reason, "workflow") && slices.ContainsFunc(l.Steps, func(s *Step) bool { return s.undoing().spent(s.def) }) {
		for _, s := range l.Steps { // one undo that failed holds up no other (C2)
			l.rule(s.State != running && !s.toUndo(), "the undo of step %s is still to come", s.Name)
		}
	}
	l.errored = true
	l.disarm()
}

// alert calls an operator, and tells of everything that failed (C2).
func (l *Ledger) alert(e *events.Event) {
	l.rule(e.Reason == l.last.Reason && e.Step == l.last.Step, "it is about %s: %s", e.Step, e.Reason)
	l.rule(e.At.Equal(l.last.At), "it comes later")
	l.rule(e.Action != "", "it does not say what to do")
	var want []events.Error
	for _, s := range l.Steps {
		if undo := s.undoing(); undo.broken() {
			for _, fault := range undo.Errors[max(0, len(undo.Errors)-maxErrors):] {
				fault.Step, fault.Undo = s.Name, true
				want = append(want, fault)
			}
		}
		if s.Last != nil {
			fault := *s.Last
			fault.Step, fault.Attempt = s.Name, s.Attempt
			want = append(want, fault)
		}
	}
	if len(want) > maxErrors {
		l.rule(len(e.Errors) == maxErrors, "it has %d errors", len(e.Errors))
	} else {
		for _, fault := range want {
			l.rule(slices.Contains(e.Errors, fault), "it does not say %+v", fault)
		}
	}
	// At most the cause is there in addition.
	l.rule(len(e.Errors) <= len(want)+1, "it has %d errors, and %d are known", len(e.Errors), len(want))
	l.Alerted = true
}

// resubmit lets what failed begin again, with a new key.
func (l *Ledger) resubmit(e *events.Event) {
	l.rule(e.Input == nil || l.Step(e.Step) != nil, "it has an input for no step")
	for _, s := range l.Steps {
		w := s.Undo
		if l.Toward == "" {
			w = &s.Work
		}
		if w == nil {
			l.rule(s.Name != e.Step, "the undo of step %s has not begun", s.Name)
			continue
		}
		if s.Name == e.Step {
			l.rule(w.broken() || e.Input != nil && w.State == notStarted && l.Toward == "", "step %s is %s", s.Name, w.State)
			if e.Input != nil {
				w.Input = e.Input
			}
		}
		if w.broken() {
			w.State, w.Tried, w.Round, w.Due = notStarted, 0, 0, time.Time{}
			if !e.SameKey {
				w.Resubmissions++
			}
		}
	}
}

func (l *Ledger) compensating(e *events.Event) {
	l.rule(l.Toward == "", "it began before")
	l.rule(e.End == "Compensated" || e.End == "Cancelled", "it leads to %q", e.End)
	l.rule(e.Reason != "", "it has no reason")
	if e.End == "Compensated" { // nobody but the workflow wants that
		l.goesOn()
		switch s := l.Step(e.Step); {
		case l.flow == nil:
		case s == nil:
			l.rule(l.flow.Overdue == "compensate" && !l.Deadline.IsZero() && !e.At.Before(l.Deadline), "nothing in the workflow asks for it")
		default:
			l.rule(s.def.Exhausted == "compensate" && s.spent(s.def), "step %s is %s, and the workflow says %s", s.Name, s.State, s.def.Exhausted)
		}
	}
	l.Toward, l.Paused, l.errored, l.Alerted = e.End, false, false, false
	l.disarm()
}

// mayUndo holds where an undo begins.
func (l *Ledger) mayUndo(s *Step) {
	l.rule(l.Toward != "", "nothing is being undone")
	l.rule(s.ran() && s.State != running, "the step is %s, may have run: %t", s.State, s.MayHaveRun)
	if l.flow != nil {
		l.rule(s.def.Undo != "", "the step has no undo")
		// A retry goes on with what has begun: an operator may have resubmitted
		// an undo that failed for good, and so held up nothing, in between.
		if why := l.hindrance(s); s.undoing().State == notStarted {
			l.rule(why == "", "%s", why)
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
	l.rule(l.Toward != "" && e.Type == want, "it leads to %q", l.Toward)
	l.rule(!l.runs(), "something still runs")
	var done, not []string
	for _, s := range l.Steps {
		undo := s.undoing()
		switch {
		case s.State == undone:
			done = append(done, s.Name)
		case s.ran():
			not = append(not, s.Name)
			l.rule(s.def == nil || s.def.Undo == "" || undo.State == skipped, "the undo of step %s is %s", s.Name, undo.State)
		}
		l.rule(!undo.broken(), "the undo of step %s is %s", s.Name, undo.State)
	}
	l.rule(slices.Equal(done, e.Undone) && slices.Equal(not, e.NotUndone),
		"it says undone: %s; not undone: %s; and must say: %s; %s", names(e.Undone), names(e.NotUndone), names(done), names(not))
	l.ended, l.State = true, l.Toward
}

package oracle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// Cause is what brought an order into Error, as far as its history tells.
type Cause string

// The causes. Only a refusal, and that an agent could not be asked, are on trust: what
// Kafka would have taken stands in no history. A suite whose topics are all there can want none.
const (
	ByAgent      Cause = "an agent's error"
	BySilence    Cause = "an attempt that expired"
	ByRefusal    Cause = "a refusal of Kafka"
	ByWaiting    Cause = "an agent that could not be asked for too long"
	ByExpression Cause = "an expression that fails"
	ByDeadline   Cause = "the order's deadline"
	ByDepth      Cause = "too many orders above it"
	ByLimit      Cause = "a limit without a place for it"
	ByAbsence    Cause = "a workflow that is gone"
	ByPanic      Cause = "a panic"
)

// Causes lists them, but for that of depth: a play nests as deep as may be, and nothing that is drawn does.
var Causes = []Cause{ByAgent, BySilence, ByRefusal, ByWaiting, ByExpression, ByDeadline, ByLimit, ByAbsence, ByPanic}

// causes holds that going to Error is earned by what stands in the history.
func (l *Ledger) causes(e *events.Event) []Cause {
	switch s := l.Step(e.Step); {
	case e.Error == nil:
		return l.undosFailed(e)
	case e.Error.Code == "overdue" && e.Step == "":
		l.overdue(e, "error")
		return []Cause{ByDeadline}
	case l.Toward != "" || s == nil:
		l.rule("P2", false, "nothing in its history leads to it: %+v", e.Error)
	case s.broken() && *e.Error == *s.Last:
		if s.def != nil {
			l.rule("V5", s.spent(s.def), "step %s is %s, and has something left to try", s.Name, s.State)
			l.rule("V5", s.def.Exhausted != "compensate" && s.def.Exhausted != "continue" || e.Error.Code == "bad-until", "the workflow says to %s", s.def.Exhausted)
		}
		return []Cause{s.cause()}
	default:
		l.free(e, &s.Work)
		l.rule("S1", s.def == nil || l.ready(s), "what it comes after is not done")
		if _, err := l.runsNow(s); err == nil { // whether it is to run at all is asked first
			l.rule("V5", l.Doubted || l.Deadline.IsZero() || e.At.Before(l.Deadline), "the order's deadline %v has passed", l.Deadline)
		}
		return []Cause{l.prevented(e, s, &s.Work, false)}
	}
	return nil
}

// absent says that the order is in Error since its workflow is gone.
func (l *Ledger) absent(e *events.Event) bool {
	return e.Step == "" && strings.Contains(e.Reason, fmt.Sprintf("%s@%d", l.accepted.Workflow, l.accepted.Version))
}

// undosFailed holds an Error that has no error of its own: undos failed for good,
// and no other is left (C2), or the workflow is gone.
func (l *Ledger) undosFailed(e *events.Event) []Cause {
	if l.absent(e) {
		return []Cause{ByAbsence}
	}
	var causes []Cause
	step := ""
	for _, s := range l.Steps {
		l.rule("C2", s.def == nil || s.State != running && !s.toUndo(), "the undo of step %s is still to come", s.Name)
		if undo := s.undoing(); undo.broken() {
			causes, step = append(causes, undo.cause()), s.Name
		}
	}
	if len(causes) > 1 {
		step = ""
	}
	l.rule("P2", len(causes) > 0 && e.Step == step, "it is about %q, and %d undos failed", e.Step, len(causes))
	return causes
}

// overdue: the order's deadline has passed, and the workflow says what is to
// follow.
func (l *Ledger) overdue(e *events.Event, does string) {
	l.rule("V5", e.Error != nil && e.Error.Code == "overdue" && e.Error.Permanent, "nothing in the workflow asks for it, and its error is %+v", e.Error)
	l.rule("V5", l.Toward == "" && l.failure == nil && !l.Deadline.IsZero(), "the order's deadline is %v", l.Deadline)
	l.rule("V5", l.flow == nil || l.flow.Overdue == does, "the workflow says otherwise")
}

// cause is why the last attempt failed.
func (w *Work) cause() Cause {
	switch {
	case w.prevented != "":
		return w.prevented
	case w.State == expired:
		return BySilence
	case w.Last.Code == "output-refused", w.Last.Code == eventRefused:
		return ByRefusal
	}
	return ByAgent
}

// divert: status messages go to the namespace's topic from here on, and once.
// That Kafka would not take them is on trust.
func (l *Ledger) divert(e *events.Event) {
	atOnce := l.last.Type == events.OrderAccepted && l.accepted.ReplyTo == ""
	l.rule("P1", e.Reason != "" && e.ReplyTo != "", "%q was refused for the reason %q", e.ReplyTo, e.Reason)
	l.rule("P1", !l.diverted && (atOnce || e.ReplyTo == l.accepted.ReplyTo), "the caller's topic is %q, refused before: %t", l.accepted.ReplyTo, l.diverted)
	l.diverted, l.quiet = true, false
}

// refused: a command that could be done is done. What depends on more than the
// history is on trust: what the journal's topic would not take, a workflow that
// is gone, a release while too much else is decided or by a clock that is off, a panic.
func (l *Ledger) refused(e *events.Event) {
	l.rule("P3", e.Reason != "", "it has no reason")
	l.count(e, &l.Refused, strings.Contains(e.Reason, "panicked"))
	if l.ended || l.Held || l.Newer || len(l.Waiting) > 0 || strings.Contains(e.Reason, "panicked") || l.stale(e) {
		return
	}
	if l.Correlation != nil { // which is none
		return
	}
	earned := true
	if p := l.Places; p != nil {
		l.rule("P3", e.Operation != events.CommandDelete || p.Says == nil || len(p.Seats) > 0, "the limit is there, with %d, and could be deleted: %s", len(p.Seats), e.Reason)
		return
	}
	if l.Schedule != nil {
		there := l.Schedule.Says != nil && !l.Doubted
		switch e.Operation {
		case events.CommandPause:
			earned = !there || l.Paused
		case events.CommandResume:
			earned = !there || !l.Paused
		case events.CommandDelete:
			earned = !there
		}
		l.rule("P3", earned, "the schedule is there, paused: %t, and %s could be done: %s", l.Paused, e.Operation, e.Reason)
		return
	}
	switch e.Operation {
	case events.CommandCancel:
		earned = l.Toward != ""
	case events.CommandPause:
		earned = l.errored || l.Paused || l.Doubted && slices.ContainsFunc(l.Steps, func(s *Step) bool {
			return (s.State == sleeping && s.Wakes.IsZero() || s.State == listening || s.State == approving) && !s.Due.IsZero()
		})
	case events.CommandTerminate:
		earned = l.Format < events.TerminateFormat || strings.Contains(e.Reason, "say why")
	case events.CommandResume:
		earned = !l.Paused
	case events.CommandDecide:
		earned = l.Format < events.ApproveFormat || l.undecided(e)
	case events.CommandResubmit, events.CommandSkipStep:
		if strings.HasPrefix(e.Reason, "as one of version ") { // which one the event does not say
			break
		}
		if strings.Contains(e.Reason, "keeps its idempotency key") {
			earned = l.keepsOne()
			break
		}
		if strings.Contains(e.Reason, "send the command again when the clock is right") {
			earned = l.Doubted && l.errored && l.Toward == "" && !l.Deadline.IsZero()
			break
		}
		items := l.Step(e.Step)
		if i := slices.IndexFunc(l.Steps, func(s *Step) bool { return l.wanted(s).broken() }); e.Step == "" && i >= 0 && l.failed() == 1 {
			items = l.Steps[i] // which is meant
		}
		earned = strings.Contains(e.Reason, "registered") || items != nil && items.Items != nil && strings.Contains(e.Reason, "that it began with") || items != nil && items.def != nil && items.def.Each != nil && items.def.Each.Items.Agent == nil && strings.Contains(e.Reason, "is a list of its items") || l.flow == nil && strings.Contains(e.Reason, "people decide it") || strings.Contains(e.Reason, "recorded") || strings.Contains(e.Reason, "newKey") ||
			l.hasAllKeys() && strings.Contains(e.Reason, "sameKey") || !l.mayRepair(e)
	}
	l.rule("P3", earned, "the order is %s, and %s could be done: %s", l.State, e.Operation, e.Reason)
}

// act is a command whose author is known, and when it was signed, or decided if that was before.
type act struct {
	id, command string
	at          time.Time
}

// keptActs is how many of them an order tells apart.
const keptActs = 16

// acted: a command whose author is known acts once.
func (l *Ledger) acted(e *events.Event) {
	if e.Actor == nil || e.Type == events.OrderAccepted || e.Type == events.OrderMigrated && e.Operation != "" { // the act is behind it
		return
	}
	for _, a := range l.acts[max(0, len(l.acts)-keptActs):] {
		if a.id == e.Command {
			l.rule("P3", e.Type == events.CommandRefused && (operation(e) != a.command || strings.Contains(e.Reason, "panicked")), "%s acted before, as %s", e.Command, a.command)
			return
		}
	}
	l.acts = append(l.acts, act{e.Command, operation(e), e.Actor.At})
}

// asked has for an operator's act what the command asked for.
var asked = map[events.Type]string{
	events.OrderCompensating: events.CommandCancel, events.OrderResubmitted: events.CommandResubmit, events.StepSkipped: events.CommandSkipStep,
	events.UndoSkipped: events.CommandSkipStep, events.OrderPaused: events.CommandPause, events.OrderResumed: events.CommandResume,
	events.OrderReleased: events.CommandRelease, events.OrderLabelled: events.CommandLabel,
	events.OrderChanged: events.CommandChange, events.OrderMigrated: events.CommandMigrate, events.OrderTerminated: events.CommandTerminate,
	events.ScheduleApplied: events.CommandApply, events.ScheduleDeleted: events.CommandDelete, events.ScheduleBackfilled: events.CommandBackfill, events.SchedulePaused: events.CommandPause, events.ScheduleResumed: events.CommandResume,
	events.LimitApplied: events.CommandApply, events.LimitDeleted: events.CommandDelete,
	events.StepDecided: events.CommandDecide, events.StepPaced: events.CommandChange,
}

// operation is what the command asked for that is behind an event.
func operation(e *events.Event) string {
	does := e.Operation
	if does == "" || e.Type != events.CommandRefused && e.Type != events.OrderMigrated {
		does = asked[e.Type]
	}
	switch does {
	case events.CommandSkipStep:
		does += " " + e.Step
	case events.CommandDecide:
		does += fmt.Sprintf(" %s %s by %s", e.Step, e.Outcome, e.By)
	}
	return does
}

// stale says that a command may be one of those that are not kept any more, or has the id of
// another.
func (l *Ledger) stale(e *events.Event) bool {
	if e.Actor == nil {
		return false
	}
	before := l.acts
	if n := len(before) - 1; n >= 0 && before[n].id == e.Command && before[n].command == operation(e) {
		before = before[:n] // without itself
	}
	if slices.ContainsFunc(before[max(0, len(before)-keptActs):], func(a act) bool { return a.id == e.Command && a.command != operation(e) }) {
		return true
	}
	return slices.ContainsFunc(before[:max(0, len(before)-keptActs)], func(a act) bool { return !e.Actor.At.After(a.at) })
}

// hasAllKeys says that a step that failed may have run under as many keys as one may.
func (l *Ledger) hasAllKeys() bool {
	return slices.ContainsFunc(l.Steps, func(s *Step) bool {
		return l.Toward == "" && s.broken() && s.MayHaveRun && len(s.Earlier)+1 >= maxKeys
	})
}

// keepsOne says that something failed, and is asked for again under the key of before.
func (l *Ledger) keepsOne() bool {
	return l.Format >= events.KeysFormat && slices.ContainsFunc(l.Steps, func(s *Step) bool {
		w := l.wanted(s)
		return w.broken() && w.Key != "" && (s.def == nil || !w.answered(s.def))
	})
}

// mayRepair says whether a step can surely be resubmitted, or skipped.
func (l *Ledger) mayRepair(e *events.Event) bool {
	s := l.Step(e.Step)
	resubmit := e.Operation == events.CommandResubmit
	if resubmit && (!l.errored || s == nil) {
		return l.errored && e.Step == "" && l.failed() == 1
	}
	if s == nil {
		return false
	}
	w := l.wanted(s)
	if l.Toward != "" && !resubmit && (!s.Ran() || s.def == nil || !s.def.undoes()) {
		return false // without the workflow nobody knows whether it has an undo
	}
	if !resubmit && l.Toward == "" && s.def != nil && s.def.Approve != nil {
		return false // people decide it
	}
	return w.broken() || !resubmit && (w.State == notStarted || w.State == sleeping || w.State == listening)
}

// failed counts the steps, or undos, that failed and were not tried since.
func (l *Ledger) failed() int {
	n := 0
	for _, s := range l.Steps {
		if l.wanted(s).broken() {
			n++
		}
	}
	return n
}

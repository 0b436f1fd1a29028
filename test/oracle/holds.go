package oracle

import (
	"slices"
	"strings"

	"github.com/waybill-dev/waybill/events"
)

// before is what an order was when it was held.
type before struct{ errored, alerted bool }

// queue holds for every event: while an order is held nothing is decided on it,
// and what waited is dealt with before anything else, one input after the other.
func (l *Ledger) queue(e *events.Event) {
	if e.Reason == events.DiscardForged && e.Type == events.ReplyDiscarded { // it waits for nothing
		return
	}
	if e.Type == events.PlaceReturned && l.last.Type == events.InputDiscarded && l.last.Source == e.Source { // with what was put aside
		return
	}
	switch e.Type {
	case events.StepExtended, events.UndoExtended: // it decides nothing
	case events.InputHeld, events.CommandRefused, events.SubmissionConflicted, events.AlertRaised, events.StatusRefused, events.OrderReported:
	case events.InputDiscarded, events.InputReleased:
	case events.ScheduleApplied, events.ScheduleDeleted: // they end the hold
	case events.OrderTerminated: // what waits is dealt with behind it
	case events.OrderReleased:
		l.rule("P3", l.Held, "the order is not held")
	default:
		l.rule("P2", !l.Held, "the order is held")
		if replaced := e.Type == events.ScheduleSkipped && e.Reason == events.SkippedReplaced; replaced && (l.last.Type == events.ScheduleApplied || l.last.Type == e.Type) {
			return // it goes with what ended the hold
		}
		l.rule("P3", len(l.Waiting) == 0 || l.released || e.Held, "%s waits", strings.Join(l.Waiting, ", "))
	}
}

// hold takes the order into Error until it is released; what was armed stays
// armed.
func (l *Ledger) hold(e *events.Event) {
	l.rule("P2", e.Reason != "" && e.Error != nil && e.Error.Code == "internal" && e.Error.Permanent, "its reason is %q, and its error is %+v", e.Reason, e.Error)
	l.Blame = append(l.Blame, ByPanic)
	l.before = before{l.errored, l.Alerted}
	l.Held, l.errored = true, true
}

// release makes of the order what it was.
func (l *Ledger) release(e *events.Event) {
	l.locks(e)
	l.Held, l.errored, l.Alerted, l.released = false, l.before.errored, l.before.alerted, false
	if !l.errored {
		l.lapse(e)
	}
}

// input follows what is held: each input once, in order.
func (l *Ledger) input(e *events.Event) {
	l.rule("P4", strings.Count(e.Source, "/") == 2, "it is from %q", e.Source)
	if e.Type == events.InputHeld {
		l.rule("P2", l.Held || l.Newer || len(l.Waiting) > 0, "the order is not held")
		l.rule("P3", !l.seen[e.Source], "%s was held before", e.Source)
		l.rule("P3", e.Raw != nil && len(e.Raw.Value) > 0, "%s is not with it", e.Source)
		l.seen[e.Source], l.released = true, false
		l.Waiting = append(slices.Clone(l.Waiting), e.Source)
		return
	}
	released := len(l.Waiting) > 0 && !l.Held && (e.Type == events.InputReleased || l.Waiting[0] == e.Source)
	if e.Type == events.InputDiscarded {
		l.count(e, &l.PutAside, released || l.last.Type == events.AlertRaised || strings.Contains(e.Source, ".internal/")) // of which nobody sends many
	}
	if released {
		l.rule("P3", l.Waiting[0] == e.Source, "%s has waited longer", l.Waiting[0])
		l.Waiting, l.released = l.Waiting[1:], e.Type == events.InputReleased
		return
	}
	l.rule("P3", e.Type == events.InputDiscarded, "it does not wait")
	l.rule("P3", l.Held || l.ended || l.Schedule != nil || l.Correlation != nil || l.Places != nil || len(l.Waiting) > 0 && strings.Contains(e.Reason, "cannot wait"), "the order is %s", l.State)
	l.rule("P3", !l.seen[e.Source], "%s was held, or discarded, before", e.Source)
	l.rule("P4", e.Reason != "", "it has no reason")
	l.seen[e.Source] = true
}

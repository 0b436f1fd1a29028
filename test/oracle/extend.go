package oracle

import (
	"time"

	"github.com/waybill-dev/waybill/events"
)

// extendTo is up to when the complete-by of an attempt that starts may be moved: as long as its
// workflow allows, and for a step until the order's deadline.
func (l *Ledger) extendTo(e *events.Event, def *FlowStep, undo bool) time.Time {
	if def.Timeout.Max == 0 {
		return time.Time{}
	}
	last := e.At.Add(time.Duration(def.Timeout.Max))
	if !undo && !l.Deadline.IsZero() && l.Deadline.Before(last) {
		last = l.Deadline
	}
	if last = events.Time(last); !last.After(e.CompleteBy) {
		return time.Time{}
	}
	return last
}

// extends: the agent of the attempt that runs said in time that it is still at it. That gives it
// as long as its timeout from then on, and no more than it may take in all.
func (l *Ledger) extends(e *events.Event, w *Work) {
	l.rule("S2", w.State == running && e.Attempt == w.Attempt, "attempt %d has more time, and attempt %d is %s", e.Attempt, w.Attempt, w.State)
	l.rule("S2", !e.CompleteBy.After(w.ExtendTo), "its complete-by is %v, and may be %v", e.CompleteBy, w.ExtendTo)
	l.rule("S2", e.Expires.IsZero() || e.Expires.After(e.CompleteBy), "it expires at %v", e.Expires)
	said := e.CompleteBy.Add(-w.Timeout)
	l.rule("V2", !said.After(e.At) && !said.After(w.ends()), "its agent said so at %v, and it had time until %v", said, w.ends())
	ends := Work{CompleteBy: e.CompleteBy, Expires: e.Expires}
	l.rule("S2", ends.ends().Sub(w.ends()) >= w.Timeout/4, "its complete-by was %v, and is moved to %v", w.CompleteBy, e.CompleteBy)
	w.Extended += e.CompleteBy.Sub(w.CompleteBy)
	w.CompleteBy, w.Expires = e.CompleteBy, e.Expires
}

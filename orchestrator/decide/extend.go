package decide

import (
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// An agent that is still at it has more time, up to what the workflow allows: its complete-by
// moves to when it said so, and the timeout. The record has all that it takes, so that neither
// who lost the workflow nor a hold has an agent expire that says it works.

// worthwhile is by which part of the timeout a complete-by moves at least: what would move it by
// less leaves no event, however often it is said.
const worthwhile = 4

// meanwhile decides on what an agent says that is still at it, while nothing is decided on the
// order: that it has more time decides nothing, and what it says would take the room of answers.
func meanwhile(env *Env, order *projections.Order, in *Input) Decision {
	d := TakeReply(env, order, in)
	if d.Discarded == "" || d.Discarded == events.DiscardForged {
		return d
	}
	env.Reuse(d.Messages)
	return Decision{Discarded: d.Discarded, Proof: d.Proof}
}

// extendTo is up to when the complete-by of an attempt that begins now may be moved, zero if
// that is no later than it is. A step is done by the deadline of its order.
func (d *decider) extendTo(t task, completeBy time.Time) time.Time {
	if t.def.TimeoutMax == 0 {
		return time.Time{}
	}
	last := d.env.Now.Add(t.def.TimeoutMax)
	if at := d.order.Overdue(); !at.IsZero() && at.Before(last) {
		last = at
	}
	if last = events.Time(last); !last.After(completeBy) {
		return time.Time{}
	}
	return last
}

// extend moves the complete-by of the attempt whose agent is still at it, or says why the reply
// counts for nothing. By a record's time that is ahead of the clock nobody has more time.
func (d *decider) extend(t task, in *Input) (discarded string) {
	work := t.work()
	if why := discard(d.env, work, in.Reply, in.Record.Written); why != "" {
		return why
	}
	if work.ExtendTo.IsZero() {
		return events.DiscardFixed
	}
	said := in.Record.Written
	if d.env.Now.Before(said) {
		said = d.env.Now
	}
	e := events.Event{Type: t.extended, Step: t.step.Name, Attempt: work.Attempt, CompleteBy: events.Time(said.Add(work.Timeout))}
	if work.ExtendTo.Before(e.CompleteBy) {
		e.CompleteBy = work.ExtendTo
	}
	ends := projections.Work{CompleteBy: e.CompleteBy}
	if d.env.Skew > 0 {
		e.Expires = events.Time(e.CompleteBy.Add(d.env.Skew))
		ends.Expires = e.Expires
	}
	if ends.Ends().Sub(work.Ends()) >= work.Timeout/worthwhile {
		d.from(in, &e)
		d.record(&e)
	}
	return ""
}

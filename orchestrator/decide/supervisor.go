package decide

import (
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/waybill-dev/waybill/compensation"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// Supervise decides on a step whose deadline has come (V2): an attempt whose
// complete-by passed expires, an armed retry starts. An empty step stands for
// the order's own deadline. It looks at states only (V1). A deadline that was
// dealt with already changes nothing, so acting twice on one expiry is not
// possible. A panic is dealt with as [Decide] does.
func Supervise(env *Env, order *projections.Order, step string) Decision {
	return guard(env, order, nil, func() Decision { return supervise(env, order, step) })
}

func supervise(env *Env, order *projections.Order, step string) Decision {
	if step == "" {
		if at := order.Overdue(); at.IsZero() || env.Now.Before(at) {
			return Decision{}
		}
		d := newDecider(env, order)
		d.overdue()
		return d.made()
	}
	s := order.Step(step)
	if s == nil {
		return Decision{}
	}
	if at := order.Attention(s); at.IsZero() || env.Now.Before(at) {
		return Decision{}
	}
	d := newDecider(env, order)
	work, expired, undo := &s.Work, events.StepExpired, false
	if s.State != projections.Running && s.Due.IsZero() {
		work, expired, undo = s.Undo, events.UndoExpired, true
	}
	switch {
	case work.State == projections.Running:
		d.record(events.Event{Type: expired, Step: step, Attempt: work.Attempt, Error: &events.Error{
			Code: "expired", Message: "no reply by " + string(events.AppendTime(nil, work.CompleteBy)),
		}})
		d.repair(step, undo)
	case d.flow == nil:
		d.broken()
	case !d.start(d.flow.Index(step), undo):
		d.advance()
	}
	return d.made()
}

// repair decides what follows a failed or expired attempt: another one after
// its back-off while the threshold is not reached (V3), or after an extended
// wait a new round of attempts, or what the workflow says of a step with
// nothing left to try (V5). A permanent error leaves nothing to try (A5).
func (d *decider) repair(name string, undo bool) {
	switch o := d.order; {
	case o.State == projections.Error || o.Paused:
		return // until its operator lets it go on
	case d.flow == nil, !undo && o.Toward != "":
		d.advance() // it is not wanted any more
		return
	}
	i := d.flow.Index(name)
	step, work := &d.flow.Steps[i], d.work(i, undo)
	retry := events.Event{Type: events.StepRetried, Step: name, Attempt: work.Attempt + 1}
	if undo {
		retry.Type = events.UndoRetried
	}
	if compensation.Spent(work, step) {
		d.giveUp(step, work, undo)
		return
	}
	chance := d.spread(name, undo, work.Attempt)
	pause := step.Retry.Delay(work.Tried, chance)
	if work.Tried >= step.Retry.Attempts {
		pause = step.Wait.Pause(step.Retry.Jitter, chance)
		retry.Round = work.Round + 1
	}
	retry.Due = events.Time(d.env.Now.Add(pause))
	d.record(retry)
	if !d.env.Now.Before(retry.Due) && !d.start(i, undo) {
		d.advance()
	}
}

// giveUp does what the workflow says of a step with nothing left to try. An
// undo with nothing left to try lets the others go on (C2).
func (d *decider) giveUp(step *workflow.Step, work *projections.Work, undo bool) {
	reason := fmt.Sprintf("step %s failed for good: %s", step.Name, work.Error.Text())
	if !work.Error.Permanent {
		rounds := ""
		if work.Round > 0 {
			rounds = fmt.Sprintf(" in each of %d rounds", work.Round+1)
		}
		reason = fmt.Sprintf("step %s failed %d of %d attempts%s, at last: %s", step.Name, work.Tried, step.Retry.Attempts, rounds, work.Error.Text())
	}
	switch {
	case undo:
		d.advance()
	case step.Exhausted == workflow.ExhaustedCompensate:
		d.undo(projections.Compensated, events.Event{Step: step.Name, Reason: reason, Error: work.Error})
	default:
		d.errored(step.Name, reason, work.Error, d.action(step.Name))
	}
}

// overdue does what the workflow says of an order past its deadline.
func (d *decider) overdue() {
	if d.flow == nil {
		d.broken()
		return
	}
	reason := fmt.Sprintf("the order's deadline, %s, has passed", events.AppendTime(nil, d.order.Deadline))
	fault := &events.Error{Code: "overdue", Message: reason, Permanent: true}
	if d.flow.Overdue == workflow.ExhaustedCompensate {
		d.undo(projections.Compensated, events.Event{Reason: reason, Error: fault})
		return
	}
	d.errored("", reason, fault, d.action(""))
}

// spread is a number from 0 to 1, 1 excluded, that differs from order to order
// and from attempt to attempt, and is the same whenever it is asked for.
func (d *decider) spread(step string, undo bool, attempt int) float64 {
	h := fnv.New64a()
	h.Write([]byte(events.IdempotencyKey(d.order.ID, step, undo, 0)))
	h.Write(strconv.AppendInt([]byte{0}, int64(attempt), 10))
	// FNV's upper bits hardly differ between short texts: mix them.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}

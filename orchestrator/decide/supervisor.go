package decide

import (
	"fmt"
	"hash/fnv"
	"slices"
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
// possible. A panic is dealt with as [On] does.
func Supervise(env *Env, order *projections.Order, step string) Decision {
	return guard(env, order, nil, func() Decision { return supervise(env, order, step) })
}

func supervise(env *Env, order *projections.Order, step string) Decision {
	switch {
	case order.Correlation != nil && !order.Resumes():
		return lapse(env, order)
	case order.Places != nil && !order.Resumes():
		d := &decider{env: env, order: order.Clone(), load: env.load}
		if at := order.Grants(); order.Places.Idle() && !at.IsZero() && !env.Now.Before(at) {
			d.record(&events.Event{Type: events.OrderForgotten})
			return d.made()
		}
		d.grant()
		return d.made()
	case order.Schedule != nil && !order.Resumes():
		d := newDecider(env, order)
		d.tick()
		return d.made()
	case env.newer(order):
		return Decision{}
	case order.Resumes(): // and is looked at again
		d := newDecider(env, order)
		d.resume()
		return d.made()
	}
	if at := order.Forgets(); step == "" && (order.Forgetting() || !at.IsZero() && !env.Now.Before(at)) {
		return forget(env, order)
	}
	if step == "" {
		if at := order.Overdue(); at.IsZero() || env.Now.Before(at) {
			return Decision{}
		}
		d := newDecider(env, order)
		d.overdue()
		return d.made()
	}
	i := place(order, step)
	if i < 0 {
		return Decision{}
	}
	if at := order.Attention(&order.Steps[i]); at.IsZero() || env.Now.Before(at) {
		return Decision{}
	}
	d := newDecider(env, order)
	t := d.due(i)
	switch {
	case t.work().State == projections.Running || t.step.State.Idle():
		t.kind.timeOver(d, t)
	case d.flow == nil:
		d.broken()
	case !d.start(t):
		d.advance()
	}
	return d.made()
}

// repair decides what follows a failed or expired attempt: another one after
// its back-off while the threshold is not reached (V3), or after an extended
// wait a new round of attempts, or what the workflow says of a step with
// nothing left to try (V5). A permanent error leaves nothing to try (A5).
func (d *decider) repair(t task) {
	switch o := d.order; {
	case d.passes(t):
		d.pass(t)
		d.advance()
		return
	case o.State == projections.Error || o.Paused:
		return // until its operator lets it go on
	case d.flow == nil, !t.undo && unwanted(o):
		d.advance() // it is not wanted any more
		return
	}
	work := t.work()
	if compensation.Spent(work, t.def) {
		d.giveUp(t)
		return
	}
	retry := events.Event{Type: t.retried, Step: t.step.Name, Attempt: work.Attempt + 1}
	chance := t.spread(work.Attempt)
	pause := t.def.Retry.Delay(work.Tried, chance)
	if slices.Contains(t.def.Retry.AtOnce, work.Error.Code) {
		pause = 0
	}
	if d.env.Format >= events.ReplacedFormat && work.Error.Code == events.UnknownOperation {
		pause = max(pause, unknownPause(work.NotKnown))
	}
	if work.Tried >= t.def.Retry.Attempts {
		pause = t.def.Wait.Pause(t.def.Retry.Jitter, chance)
		retry.Round = work.Round + 1
	}
	retry.Due = events.Time(d.env.Now.Add(pause))
	d.record(&retry)
	if !d.env.Now.Before(retry.Due) && !d.start(t) {
		d.advance()
	}
}

// giveUp does what the workflow says of a step with nothing left to try. An
// undo with nothing left to try lets the others go on (C2).
func (d *decider) giveUp(t task) {
	if t.undo {
		d.advance()
		return
	}
	e := events.Event{Step: t.step.Name, Reason: spentBy(t), Error: t.work().Error}
	if t.def.Exhausted == workflow.ExhaustedCompensate && e.Error.Code != events.BadUntil {
		d.turnBack(projections.Compensated, e)
		return
	}
	d.errored(e, d.action(t.step.Name))
}

// passes says that the order goes on without a step that has nothing left to try. Nothing
// begins by that alone, so neither an Error nor a pause puts it off.
func (d *decider) passes(t task) bool {
	return !t.undo && d.flow != nil && !unwanted(d.order) && t.def.Exhausted == workflow.ExhaustedContinue && compensation.Spent(t.work(), t.def) && t.work().Error.Code != events.BadUntil
}

func (d *decider) pass(t task) {
	d.record(&events.Event{Type: events.StepPassed, Step: t.step.Name, Attempt: t.step.Attempt, Reason: spentBy(t)})
}

// spentBy says what left a step with nothing to try.
func spentBy(t task) string {
	work := t.work()
	if compensation.Permanent(work, t.def) {
		return fmt.Sprintf("%v failed for good: %s", t, work.Error.Text())
	}
	rounds := ""
	if work.Round > 0 {
		rounds = fmt.Sprintf(" in each of %d rounds", work.Round+1)
	}
	return fmt.Sprintf("%v failed %d of %d attempts%s, at last: %s", t, work.Tried, t.def.Retry.Attempts, rounds, work.Error.Text())
}

// overdue does what the workflow says of an order past its deadline.
func (d *decider) overdue() {
	if d.flow == nil {
		d.broken()
		return
	}
	reason := fmt.Sprintf("the order's deadline, %s, has passed", events.AppendTime(nil, d.order.Deadline))
	e := events.Event{Reason: reason, Error: &events.Error{Code: "overdue", Message: reason, Permanent: true}}
	if d.flow.Overdue == workflow.ExhaustedCompensate {
		d.turnBack(projections.Compensated, e)
		return
	}
	d.errored(e, d.action(""))
}

// spread is a number from 0 to 1, 1 excluded, that differs from order to order
// and from attempt to attempt, and is the same whenever it is asked for.
func (t task) spread(attempt int) float64 {
	h := fnv.New64a()
	h.Write([]byte(t.firstKey(0)))
	h.Write(strconv.AppendInt([]byte{0}, int64(attempt), 10))
	// FNV's upper bits hardly differ between short texts: mix them.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}

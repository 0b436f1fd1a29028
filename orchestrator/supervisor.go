package orchestrator

import (
	"fmt"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// Supervise decides on a step whose deadline has come (V2): an attempt whose
// complete-by passed expires, an armed retry starts. It looks at states only
// (V1). A deadline that was dealt with already changes nothing, so acting
// twice on one expiry is not possible.
func Supervise(env *Env, order *projections.Order, step string) Decision {
	s := order.Step(step)
	if s == nil {
		return Decision{}
	}
	if at := s.Deadline(); at.IsZero() || env.Now.Before(at) {
		return Decision{}
	}
	d := decide(env, order)
	if s.State == projections.Running {
		d.record(events.Event{Type: events.StepExpired, Step: step, Attempt: s.Attempt, Error: &events.Error{
			Code: "expired", Message: "no reply by " + string(events.AppendTime(nil, s.CompleteBy)),
		}})
		d.repair(step)
	} else {
		d.retry(step)
	}
	return d.decision()
}

// repair decides what follows a failed or expired attempt: another one after
// its back-off while the threshold is not reached (V3), else Error and an
// alert. A permanent error leaves nothing to try (A5, P2).
func (d *decider) repair(name string) {
	if d.order.State == projections.Error {
		return // it waits for its operator already
	}
	step := d.order.Step(name)
	if d.flow == nil {
		d.advance() // says what is missing
		return
	}
	retry := d.flow.Steps[d.flow.Index(name)].Retry
	switch {
	case step.Error.Permanent:
		d.errored(name, fmt.Sprintf("step %s failed for good: %s", name, describe(step.Error)), step.Error)
	case step.FailureCount >= retry.Attempts:
		d.errored(name, fmt.Sprintf("step %s failed %d of %d attempts, at last: %s", name, step.FailureCount, retry.Attempts, describe(step.Error)), step.Error)
	default:
		due := events.Time(d.env.Now.Add(retry.Delay(step.FailureCount)))
		d.record(events.Event{Type: events.StepRetried, Step: name, Attempt: step.Attempt + 1, Due: due})
		if !d.env.Now.Before(due) {
			d.retry(name)
		}
	}
}

// retry starts the attempt that was armed.
func (d *decider) retry(name string) {
	if d.flow == nil {
		d.advance() // says what is missing
		return
	}
	d.start(d.flow.Index(name))
}

func describe(e *events.Error) string {
	switch {
	case e.Code == "":
		return e.Message
	case e.Message == "":
		return e.Code
	}
	return e.Code + ": " + e.Message
}

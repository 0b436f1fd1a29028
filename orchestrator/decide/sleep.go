package decide

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// A step that sleeps has no attempts: nobody works on it, so the order is not locked for it,
// a cancellation does not wait for it, and there is nothing to retry, nor to undo.

// sleep begins the sleep of step i, and ends it if its time has passed. It reports false when
// the order went to Error instead.
func (d *decider) sleep(t task) bool {
	at, fixed, err := t.def.Sleep.Wakes(d.env.Now, t.scope(), text(t.step.Input))
	if err != nil {
		return d.refuse(t, &events.Error{Code: badExpression, Message: err.Error()})
	}
	if at.Before(d.order.AcceptedAt) { // a time of the calendar, maybe none that can be written
		at = d.order.AcceptedAt
	}
	d.record(&events.Event{Type: events.StepSleeping, Step: t.step.Name, Attempt: t.step.Attempt + 1, Due: events.Time(at), Fixed: fixed})
	if d.env.over(t.step.Due) {
		d.wake(t)
	}
	return true
}

// text is that of a JSON string, "" of anything else.
func text(value jsontext.Value) (s string) {
	if value.Kind() == jsontext.KindString {
		_ = json.Unmarshal(value, &s) // it was read before
	}
	return s
}

// dozes says that a step sleeps for a duration, of which a pause takes the rest.
func dozes(s *projections.Step) bool {
	return s.State == projections.Sleeping && s.Wakes.IsZero()
}

func (d *decider) wake(t task) {
	d.record(&events.Event{Type: events.StepWoke, Step: t.step.Name, Attempt: t.step.Attempt})
}

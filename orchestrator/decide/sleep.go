package decide

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// sleeper is the [kind] of a step that waits for time to pass. It has no attempts: nobody works on
// it, so the order is not locked for it, a cancellation does not wait for it, and there is nothing
// to retry, nor to undo.
type sleeper struct{}

func (sleeper) hasUndo(*workflow.Step) bool { return false }

// begin begins the sleep, and ends it if its time has passed.
func (sleeper) begin(d *decider, t task) bool {
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

func (sleeper) timeOver(d *decider, t task) {
	d.wake(t)
	d.advance()
}

func (sleeper) remedy(t task) string {
	return fmt.Sprintf("say until when it sleeps, or for how long: waybill order resubmit %s --step %s --input '\"36h\"'", quote(t.order.ID), t.step.Name)
}

func (d *decider) wake(t task) {
	d.record(&events.Event{Type: events.StepWoke, Step: t.step.Name, Attempt: t.step.Attempt})
}

// text is that of a JSON string, "" of anything else.
func text(value jsontext.Value) (s string) {
	if value.Kind() == jsontext.KindString {
		_ = json.Unmarshal(value, &s) // it was read before
	}
	return s
}

// dozes says that a step waits for a duration, of which a pause takes the rest.
func dozes(s *projections.Step) bool {
	return s.State.Idle() && s.Wakes == nil && !s.Due.IsZero()
}

package decide

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/compensation"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// raiser is the [kind] of a step that has the order fail as its workflow says. Nothing starts any
// more. What runs is waited for, until it is answered or expires, and is not tried again: how the
// order ends then says all that is known of what was done.
type raiser struct{}

func (raiser) hasUndo(*workflow.Step) bool { return false }

func (raiser) timeOver(*decider, task) {} // which it never waits for

func (raiser) remedy(t task) string {
	return fmt.Sprintf("say the message: waybill order resubmit %s --step %s --input '\"TEXT\"'", quote(t.order.ID), t.step.Name)
}

// begin has the order fail. It reports false: the order took another course.
func (raiser) begin(d *decider, t task) bool {
	message, err := t.says()
	if err != nil {
		return d.refuse(t, &events.Error{Code: badExpression, Message: err.Error()})
	}
	d.record(&events.Event{Type: events.StepRaised, Step: t.step.Name, Error: &events.Error{Code: t.def.Raise.Code, Message: message, Step: t.step.Name}})
	if t.def.Raise.Compensate {
		d.turnBack(projections.Compensated, d.failure())
	} else {
		d.advance()
	}
	return false
}

// says is the message, which an operator may have given in place of the file's.
func (t task) says() (string, error) {
	if t.step.Input != nil {
		return text(t.step.Input), nil
	}
	return t.def.Raise.Says(t.scope())
}

// checkMessage says what is wrong with the input of a step that raises.
func checkMessage(t task, input jsontext.Value) string {
	if t.def.Raise == nil || input == nil || input.Kind() == jsontext.KindString {
		return ""
	}
	return fmt.Sprintf("%v raises a failure, and its input says the message: write a text", t)
}

// failure is what an event that follows from it says.
func (d *decider) failure() events.Event {
	fault := d.order.Failure
	return events.Event{Step: fault.Step, Error: fault, Reason: fmt.Sprintf("step %s raised %s", fault.Step, fault.Text())}
}

// raised ends the order that failed, once nothing runs.
func (d *decider) raised() {
	d.idle()
	if d.order.Running() {
		return
	}
	e := d.failure()
	e.Type = events.OrderRaised
	_, e.NotUndone = compensation.Outcome(d.order)
	d.tell(e)
}

// unwanted says that no step is to be done any more: the order is undone, or has failed.
func unwanted(o *projections.Order) bool { return o.Toward != "" || o.Failure != nil }

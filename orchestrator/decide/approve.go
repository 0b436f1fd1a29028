package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// approver is the [kind] of a step that waits for people who decide. As one that listens it has
// no attempts and nothing to undo, and its time-out is an end like others. Who may decide is known
// from the event with which it began: neither the workflow nor the access file of later changes
// that.
type approver struct{}

func (approver) hasUndo(*workflow.Step) bool { return false }

// begin asks, and shows what the workflow says, unless an operator said what is to be seen.
func (approver) begin(d *decider, t task) bool {
	a := t.def.Approve
	e := events.Event{
		Type: events.StepApproving, Step: t.step.Name, Attempt: t.step.Attempt + 1,
		Roles: a.Roles, Escalate: a.Escalate, Outcomes: a.Outcomes,
	}
	if a.Count > 1 {
		e.Count = a.Count
	}
	if a.Due > 0 {
		e.Remind = events.Time(d.env.Now.Add(a.Due))
	}
	if t.def.Timeout > 0 {
		e.Due = events.Time(d.env.Now.Add(t.def.Timeout))
	}
	e.Input = t.step.Input // of an operator, where the workflow's cannot be evaluated
	if a.Show != nil && e.Input == nil {
		value, err := a.Show.Value(t.scope())
		if err != nil {
			return d.refuse(t, &events.Error{Code: badExpression, Message: err.Error()})
		}
		e.Input = value
	}
	if why := d.try(&e); why != "" {
		return d.refuse(t, &events.Error{Code: badExpression, Message: "what is shown cannot be recorded: " + why})
	}
	return true
}

// timeOver reminds those who may decide, once, or ends the wait.
func (approver) timeOver(d *decider, t task) {
	a := t.step.Approves
	if !a.Until.IsZero() && !d.env.Now.Before(a.Until) {
		d.record(&events.Event{Type: events.StepTimedOut, Step: t.step.Name, Attempt: t.step.Attempt})
		d.advance()
		return
	}
	reason := fmt.Sprintf("%v waits for a decision since %s, of %s", t, events.AppendTime(nil, a.Since), strings.Join(a.Roles, ", "))
	if len(a.Escalate) > 0 {
		reason += "; from now on " + strings.Join(a.Escalate, ", ") + " may decide, too"
	}
	d.record(&events.Event{
		Type: events.StepReminded, Step: t.step.Name, Attempt: t.step.Attempt, Reason: reason,
		Action: fmt.Sprintf("decide with one of %s: waybill order decide %s %s OUTCOME", strings.Join(a.Outcomes, ", "), quote(t.order.ID), t.step.Name),
	})
}

func (approver) remedy(t task) string {
	return fmt.Sprintf("say what those see who decide: waybill order resubmit %s --step %s --input JSON", quote(t.order.ID), t.step.Name)
}

// decide records what somebody decided, and has the order go on if nobody else need, or says why
// it does not count.
func (d *decider) decide(c *events.Command, act events.Event) (refusal string) {
	if d.env.Format < events.ApproveFormat {
		return fmt.Sprintf("the partition is of format %d, in which nobody decides: finish the upgrade (waybill upgrade finish), and send the command again", d.env.Format)
	}
	step, refusal := d.asking(c.Step)
	if step == nil {
		return refusal
	}
	a, by := step.Approves, Cut(c.By, MaxName)
	switch said := a.Said(by); {
	case by == "":
		return "nobody is named who decides; set by"
	case act.Actor == nil && !d.env.Claims:
		return fmt.Sprintf("that %s decides is only claimed: who decides asks over HTTP, with a key, a token or a certificate that the access file names, and instances have keys of the namespace, by which they say so; or they run with --claimed-approvals", by)
	case act.Actor != nil && !holds(act.Actor, a.Roles):
		later := ""
		if holds(act.Actor, a.Escalate) {
			later = fmt.Sprintf("; from %s on %s may, too, once they are reminded", events.AppendTime(nil, a.Remind), strings.Join(a.Escalate, ", "))
		}
		return fmt.Sprintf("%s has none of the roles that may decide now: %s%s; an administrator gives them in the access file, for example as %s", by, strings.Join(a.Roles, ", "), later, events.ApproverRole(a.Roles[0]))
	case d.order.Submitted(by):
		return by + " submitted the order, or one that it does again, and somebody else decides"
	case said != "":
		return fmt.Sprintf("%s has decided already: %s", by, said)
	case len(c.Note) > MaxText:
		return fmt.Sprintf("the note has %d bytes; at most %d are kept: write less, or refer to it", len(c.Note), MaxText)
	case !slices.Contains(a.Outcomes, c.Outcome):
		return fmt.Sprintf("step %s permits no outcome %q; write %s", step.Name, Cut(c.Outcome, MaxName), oneOf(a.Outcomes))
	}
	act.Type, act.Step, act.Attempt, act.Outcome = events.StepDecided, step.Name, step.Attempt, c.Outcome
	d.record(&act)
	if d.order.Step(step.Name).Over() {
		d.advance()
	}
	return ""
}

// holds says that somebody has one of the roles.
func holds(a *events.Actor, roles []string) bool {
	return slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(a.Roles, events.ApproverRole(role)) })
}

// asking is the step of that name, if it asks for a decision; nil where it does not, and why. A decision
// names its step: else it could be meant for one that has ended, and count for the next.
func (d *decider) asking(name string) (step *projections.Step, refusal string) {
	var asking []string
	for i := range d.order.Steps {
		if s := &d.order.Steps[i]; s.State == projections.Approving {
			asking = append(asking, s.Name)
		}
	}
	if name == "" {
		return nil, "no step is named; those that ask for a decision are " + cmp.Or(strings.Join(asking, ", "), "none")
	}
	switch step = d.order.Step(name); {
	case step == nil:
		return nil, fmt.Sprintf("the order has no step %q; its steps are %s", Cut(name, MaxName), d.stepNames())
	case step.State != projections.Approving:
		return nil, fmt.Sprintf("step %s is %s, and asks for no decision", step.Name, step.State)
	}
	return step, ""
}

// oneOf lists what may be chosen.
func oneOf(choices []string) string {
	last := len(choices) - 1
	if last == 0 {
		return choices[0]
	}
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}

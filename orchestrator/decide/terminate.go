package decide

import (
	"fmt"
	"strings"

	"github.com/waybill-dev/waybill/compensation"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// terminate ends the order at once, whatever its state, with no undo. What its agents were asked
// for cannot be taken back: the event says which steps that is about. It asks for no workflow,
// which may be gone, or be what the order is held for.
func (d *decider) terminate(act events.Event) (refusal string) {
	o := d.order
	switch {
	case d.env.Format < events.TerminateFormat:
		return fmt.Sprintf("an order is terminated from format %d on, and its partition is in format %d: finish the upgrade (waybill upgrade finish), and send the command again", events.TerminateFormat, d.env.Format)
	case strings.TrimSpace(act.Reason) == "":
		return "a terminated order leaves what was done as it is: say why (note, --note)"
	case len(o.Waiting) > 0 && d.env.Full:
		return "too much is being decided at the moment; terminate the order again"
	}
	held := o.Hold != nil
	act.Type, act.MayHaveRun = events.OrderTerminated, inDoubt(o)
	act.Undone, act.NotUndone = compensation.Outcome(o)
	d.tell(act)
	if held {
		d.flow = d.env.lookUp(o.Workflow, o.Version)
	}
	d.resume() // what waited for the release changes nothing any more, and the history says so
	return ""
}

// lookUp finds a workflow, as far as that does not panic.
func (env *Env) lookUp(name string, version int) (flow *workflow.Workflow) {
	defer func() { _ = recover() }()
	return env.Workflow(name, version)
}

// inDoubt names the steps of which nobody knows whether they ran, or were undone: an agent is at
// work on that, or never said what came of it.
func inDoubt(o *projections.Order) (names []string) {
	for i := range o.Steps {
		s, undo := &o.Steps[i], o.Steps[i].Undo
		if s.State == projections.Running || undo != nil && (undo.State == projections.Running || undo.Doubtful) ||
			s.State != projections.Undone && (s.Unknown || len(s.Earlier) > 0) {
			names = append(names, s.Name)
		}
	}
	return names
}

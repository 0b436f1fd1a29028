package decide

import (
	"fmt"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// newer says that an order that has not ended is of a workflow in a newer level of the
// language than this release runs. Nothing is decided on it: its replies wait in it, its
// deadlines are passed over, and commands are refused, until it is owned by a release that
// knows the level ([ADR 0016]).
//
// [ADR 0016]: https://github.com/waybill-dev/waybill/blob/main/docs/adr/0016-newer-workflows-wait.md
func (env *Env) newer(o *projections.Order) bool {
	return o != nil && !o.Beside() && !o.State.Final() && env.Format >= 2 && env.Newer != nil && env.Newer(o.Workflow, o.Version) > 0
}

// notRun says why no command is done to such an order.
func (env *Env) notRun(o *projections.Order) string {
	level := env.Newer(o.Workflow, o.Version)
	if level <= workflow.Level {
		return fmt.Sprintf("workflow %s is in level %d of the language, for which format %d of the partition has no events: finish the upgrade (waybill upgrade finish), and send the command again", workflow.ID(o.Workflow, o.Version), level, env.Format)
	}
	return fmt.Sprintf("workflow %s is in level %d of the language, and instance %s runs level %d: send the command again once a newer release has taken the order over",
		workflow.ID(o.Workflow, o.Version), level, env.Instance, workflow.Level)
}

// resume decides on what waits in an order that is not held: it was released, or whoever
// had it wait did not know its workflow. Once that is as much as one decision may be, the
// supervisor goes on. In the first format it does not: a release of before would pass
// over what is left.
func (d *decider) resume() {
	for d.order.Hold == nil && len(d.order.Waiting) > 0 {
		if d.order.Resumes() && d.spent() && d.env.Format >= 2 {
			return
		}
		d.within(func() Decision { return guard(d.env, d.order, nil, d.redo) })
	}
}

package decide

import (
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// A kind is what a step of one kind, or its undo, does in its own way. When its turn comes, what
// follows once it is over, deadlines of orders, pauses and holds are the same for all kinds; retries
// and rounds are for those that have attempts, which are operations of agents, and events of users'.
type kind interface {
	// begin begins the task's next attempt, or what the step has instead of attempts. It
	// reports false when the order took another course instead.
	begin(d *decider, t task) bool
	// timeOver decides what follows when the time of what began is over.
	timeOver(d *decider, t task)
	// hasUndo says whether a step that ran is to be undone. Its undo is a [task] of the
	// same kind.
	hasUndo(def *workflow.Step) bool
	// remedy is what an operator can do about an expression of the step that cannot be evaluated,
	// as a command.
	remedy(t task) string
}

// kindOf is the kind of a step. Where its workflow is gone, and the definition with it, the step's
// record says what has begun.
func kindOf(def *workflow.Step, step *projections.Step) kind {
	switch {
	case def != nil && def.Sleep != nil, def == nil && step.Sleeps:
		return sleeper{}
	case def != nil && def.Raise != nil: // which begins and ends at once
		return raiser{}
	case def != nil && def.Listen != nil, def == nil && step.Listens != nil:
		return listener{}
	case def != nil && def.Approve != nil, def == nil && step.Approves != nil:
		return approver{}
	case def != nil && def.Order != nil, def == nil && step.Child != nil:
		return orderer{}
	case def != nil && def.Each != nil, def == nil && step.Each != nil:
		return itemizer{}
	case def != nil && def.Emit != nil, def == nil && step.Emits != nil:
		return emitter{}
	}
	return agent{}
}

// hasUndo says whether a step is undone after it ran.
func hasUndo(def *workflow.Step) bool { return kindOf(def, nil).hasUndo(def) }

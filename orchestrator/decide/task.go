package decide

import (
	"cmp"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// A task is what an order has to get done: a step, or the undo of one. The same code
// starts, retries and expires both.
type task struct {
	*side
	kind  kind
	order *projections.Order
	step  *projections.Step
	def   *workflow.Step // nil when the order's workflow is gone

	shared *workflow.Shared
}

// side is which of the two a task is, and the events that tell of it.
type side struct {
	undo bool

	started, completed, failed, expired, extended, retried, skipped events.Type
}

var (
	doing = &side{
		started: events.StepStarted, completed: events.StepCompleted, failed: events.StepFailed,
		expired: events.StepExpired, extended: events.StepExtended, retried: events.StepRetried, skipped: events.StepSkipped,
	}
	undoing = &side{
		undo:    true,
		started: events.UndoStarted, completed: events.UndoCompleted, failed: events.UndoFailed,
		expired: events.UndoExpired, extended: events.UndoExtended, retried: events.UndoRetried, skipped: events.UndoSkipped,
	}
)

// task is step i, or its undo.
func (d *decider) task(i int, s *side) task {
	t := task{side: s, order: d.order, step: &d.order.Steps[i], shared: &d.shared}
	if d.flow != nil {
		t.def = &d.flow.Steps[i]
	}
	t.kind = kindOf(t.def, t.step)
	return t
}

// wanted is what the order wants of step i: the step, or its undo once the order is
// compensated.
func (d *decider) wanted(i int) task {
	if d.order.Toward != "" {
		return d.task(i, undoing)
	}
	return d.task(i, doing)
}

// due is what the supervisor must look at of step i, where that is anything.
func (d *decider) due(i int) task {
	if s := &d.order.Steps[i]; s.State != projections.Running && s.Due.IsZero() {
		return d.task(i, undoing)
	}
	return d.task(i, doing)
}

// place is that of the step in the order and in its workflow which is known outside by that name, -1
// if there is none: see [projections.Step.Known].
func place(o *projections.Order, step string) int {
	for i := range o.Steps {
		if o.Steps[i].Known() == step {
			return i
		}
	}
	return -1
}

// work is the record of the task's attempts.
func (t task) work() *projections.Work {
	switch {
	case !t.undo:
		return &t.step.Work
	case t.step.Undo == nil:
		return &projections.Work{State: projections.NotStarted}
	}
	return t.step.Undo
}

// key is the idempotency key of the task's next attempt. An undo that has begun keeps
// the one that it had before [events.KeysFormat].
func (t task) key(format int) string {
	work := t.work()
	if !t.undo {
		return events.RepeatKey(t.order.ID, t.step.Known(), t.step.Repeats, work.Resubmissions)
	}
	if key := t.firstKey(work.Resubmissions); format < events.KeysFormat || work.IdempotencyKey == key {
		return key
	}
	return events.UndoKey(stepKey(t.order.ID, t.step), work.Resubmissions)
}

// stepKey is the key under which was done what is undone of a step now, or next.
func stepKey(order string, s *projections.Step) string {
	return events.IdempotencyKey(order, s.Known(), s.Under())
}

// turn says what an undo takes back next, of a step that may have run under several keys.
func (t task) turn() string {
	if !t.undo || len(t.step.Earlier) == 0 {
		return ""
	}
	return "; next is what was done under " + stepKey(t.order.ID, t.step)
}

// firstKey is the key of a step, or of the undo of one, that has had but one, after so
// many resubmissions.
func (t task) firstKey(resubmissions int) string {
	if t.undo {
		return events.UndoKey(events.IdempotencyKey(t.order.ID, t.step.Known(), 0), resubmissions)
	}
	return events.IdempotencyKey(t.order.ID, t.step.Known(), resubmissions)
}

// outcome is what an undo is told of its step; of a step there is nothing to tell.
func (t task) outcome() string {
	switch {
	case !t.undo:
		return ""
	case t.step.Unknown, t.step.Undoing() != nil:
		return events.OutcomeUnknown
	}
	return events.OutcomeCompleted
}

// scope is what the task's expressions see of the order. An undo under an earlier key
// sees its step as it was under that key: nobody answered.
func (t task) scope() workflow.Scope {
	s := workflow.Scope{Input: t.order.Input, Shared: t.shared, Step: func(name string) workflow.Result {
		s := t.order.Step(name)
		r := workflow.Result{State: string(s.State), Input: inputOf(t.order, s), Output: s.Output}
		if s.Passed {
			r.Code, r.Message = cmp.Or(s.Error.Code, "error"), s.Error.Message
		}
		return r
	}}
	if !t.undo || t.step.Undoing() == nil {
		return s
	}
	others := s.Step
	s.Step = func(name string) workflow.Result {
		if name != t.step.Name {
			return others(name)
		}
		return workflow.Result{State: string(projections.Expired), Input: undoInput(t.order, t.step)}
	}
	return s
}

func (t task) String() string {
	if t.undo {
		return "the undo of step " + t.step.Name
	}
	return "step " + t.step.Name
}

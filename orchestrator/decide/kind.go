package decide

import (
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// A kind is what a step of one kind, or its undo, does in its own way. It records
// nothing, but says which event is to follow, and the decider adds what every kind
// has: the step, the attempt's number, its key, its complete-by. Retries and rounds,
// what follows when they are exhausted, the order of undos, deadlines of orders and
// holds are the same for all kinds.
type kind interface {
	// start is the event that begins an attempt, or why none can begin: a code and a
	// message. Waits is what cannot be asked for now, though it can later. What the
	// event asks of others says [Outbox].
	start(env *Env, t task) (e events.Event, waits Ask, fault *events.Error)
	// take is the event that a reply, written at the given time, makes of the attempt, or
	// why the reply changes nothing.
	take(env *Env, t task, r *events.Reply, written time.Time) (e events.Event, discarded string)
	// expire is the event that follows when the attempt's time is over.
	expire(env *Env, t task) events.Event
	// hasUndo says whether a step that ran is to be undone. Its undo is a [task] of the
	// same kind.
	hasUndo(def *workflow.Step) bool
}

// kindOf is the kind of a step that has attempts. All are operations of agents, also those
// whose workflow is gone, and the definition with it. One that sleeps has none: see
// [decider.sleep].
func kindOf(*workflow.Step) kind { return agent{} }

// hasUndo says whether a step is undone after it ran.
func hasUndo(def *workflow.Step) bool { return kindOf(def).hasUndo(def) }

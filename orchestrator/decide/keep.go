package decide

import (
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// What a workflow says of how long its orders are known after their end.

// keep is that, in seconds; 0 is for ever, as before the format that knows it.
func (env *Env) keep(flow *workflow.Workflow) int {
	if flow == nil || env.Format < events.KeepFormat {
		return 0
	}
	return int(flow.Keep / time.Second)
}

// maxForgotten is how many bytes the ids of those have at most, as JSON in which each may take six, that are forgotten
// with the order whose steps they did. Beyond that are orders that did steps which were resubmitted, or whose ids have
// control characters.
const maxForgotten = events.MaxValue

// forget has nothing be known of an order that has ended but how it did, so that its id counts on. With
// it go those that did its steps: as long as it was known they could be undone, or looked at.
func forget(env *Env, order *projections.Order) Decision {
	d := &decider{env: env, order: order.Clone()} // its workflow does not matter
	if d.forgetsItems() {
		return d.made()
	}
	e, bytes := events.Event{Type: events.OrderForgotten}, 0
	for i := range order.Steps {
		s := &order.Steps[i]
		if s.Child == nil {
			continue
		}
		for n := range s.Resubmissions + 1 {
			child := events.ChildID(events.IdempotencyKey(order.ID, s.Known(), n))
			if bytes += escaped(child); bytes <= maxForgotten {
				e.Children = append(e.Children, child)
			}
		}
	}
	d.record(&e)
	return d.made()
}

// escaped is how many bytes a text has in a list as JSON, at most.
func escaped(text string) int {
	n := len(`"",`)
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			n += len(`\u0000`)
		} else {
			n++
		}
	}
	return n
}

// asks says that a step which only begins an order, or the home of a key, waits for what that tells.
func asks(w *events.Wish) bool {
	return w != nil && (w.Wish == events.WishBegin && w.Detached || w.Wish == events.WishTell) && events.ScheduleOf(w.Parent) == ""
}

// afterwards decides on an input to an order of which nothing is known any more. It leaves no event, but
// that the first submission under its id which says something else is told so; who [asks] is told what is left.
func afterwards(env *Env, order *projections.Order, in *Input) Decision {
	switch {
	case asks(in.Wish):
		w := in.Wish
		r := events.Report{Parent: w.Parent, Step: w.Step, Child: w.Child, State: string(projections.Pending)}
		if order.State == projections.Rejected {
			r.State, r.Error = string(order.State), &events.Error{Code: "rejected", Message: "it is forgotten why"}
		}
		return Decision{Messages: []Message{answered(env, in.Record, events.ChildReported, w.Parent, r.Append(nil))}}
	case in.Wish != nil, in.Report != nil: // whoever asks or tells is forgotten, too
		return Decision{}
	case in.Reply != nil, in.Command != nil, in.Signal != nil:
		return Decision{Dropped: dropped(in)}
	case Conflicts(order, &in.Submission):
		return conflict(env, order, in)
	}
	return Decision{}
}

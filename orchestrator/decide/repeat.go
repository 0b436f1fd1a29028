package decide

import (
	"fmt"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// again says of a step that was done, and is done until something holds, what becomes of that: it
// completes, is done again, or has failed for good.
func (d *decider) again(t task, e *events.Event) {
	repeat := t.def.Repeat
	scope := t.scope()
	others, output := scope.Step, e.Output // and not e itself, which would move to the heap for each reply to any step
	scope.Step = func(name string) workflow.Result {
		r := others(name)
		if name == t.step.Name {
			r.State, r.Output = "completed", output
		}
		return r
	}
	enough, err := repeat.Until.Holds(scope)
	times := t.step.Repeats + 1
	switch {
	case err != nil:
		inVain(e, events.BadUntil, err.Error())
	case enough:
	case times-t.step.RepeatsBefore >= repeat.Max:
		inVain(e, events.UntilNotMet, fmt.Sprintf("it was done %d times, which is the max, and this does not hold: %s", repeat.Max, repeat.Until))
	default:
		e.Type, e.Count, e.Due = events.StepRepeated, times, events.Time(d.env.Now.Add(repeat.Every))
	}
}

// inVain makes a failure of what an agent did.
func inVain(e *events.Event, code, why string) {
	e.Type = events.StepFailed
	e.Error = &events.Error{Code: code, Message: Cut(why, MaxText), Permanent: true}
}

package projections

import (
	"fmt"
	"testing"

	"github.com/waybill-dev/waybill/events"
)

// An order stands at what is under way, waits or has failed, be it a step or an undo, and nowhere once it has ended.
func TestWhereAnOrderStands(t *testing.T) {
	stands := func(o *Order, most int) string {
		first, all := o.Stands(most)
		return fmt.Sprint(first, all)
	}
	step := func(name string, w Work) Step { return Step{Name: name, Work: w} }
	all := []Step{
		step("done", Work{State: Completed}), step("passed", Work{State: Failed, Passed: true}), step("runs", Work{State: Running, CompleteBy: at(60)}),
		step("failed", Work{State: Failed}), step("expired", Work{State: Expired, Due: at(30)}), step("sleeps", Work{State: Sleeping, Due: at(90)}),
		step("listens", Work{State: Listening}), step("asks", Work{State: Approving}), step("again", Work{State: Repeating, Due: at(9)}),
		step("agent", Work{State: NotStarted, Due: at(1)}), step("place", Work{State: NotStarted, Turn: 7}), step("next", Work{State: NotStarted}), step("skipped", Work{State: Skipped}), step("late", Work{State: TimedOut}),
	}
	o := &Order{State: Processing, Steps: all}
	expect(t, "all", stands(o, 20), "[{runs running false} {failed failed false} {expired expired false} {sleeps sleeping false} {listens listening false} {asks approving false} {again repeating false} {agent not-started false} {place not-started false}] 9")
	expect(t, "the first", stands(o, 2), "[{runs running false} {failed failed false}] 9")
	o.State = Error
	o.Alert = &events.Alert{Step: "next"}
	expect(t, "with that of the alert", stands(o, 1), "[{runs running false}] 10")
	for _, state := range States {
		if o.State = state; state.Final() {
			expect(t, string(state), stands(o, 20), "[] 0")
		}
	}
	o.State, o.Toward, o.Alert = Compensating, Cancelled, nil
	expect(t, "before its undos", stands(o, 20), "[] 0")
	o.Steps[0].Undo = &Work{State: Running}
	o.Steps[2].Undo = &Work{State: Completed}
	o.Steps[3].Undo = &Work{State: NotStarted, Due: at(5)}
	expect(t, "its undos", stands(o, 20), "[{done running true} {failed not-started true}] 2")
}

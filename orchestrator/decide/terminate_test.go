package decide

import (
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// What is with an agent when its order ends is told of, also where the order was held, for
// which no workflow is looked up: else its agent would be thought to have it for ever.
func TestWhatATerminatedOrderHadRunningIsToldOf(t *testing.T) {
	s := newStage(t)
	defer s.close()
	s.flows.Add(parseFlow(t, "workflow: w\nsteps:\n  - {name: a, agent: x}\n"))
	s.takeOver(t, "i-1")
	s.take(Submit(s.env("o"), nil, &Input{Record: new(Record), Order: "o", Submission: events.Submission{Workflow: "w"}}))
	for _, held := range []bool{false, true} {
		before := s.of(t, "o").Clone()
		if held {
			before.Hold = &projections.Hold{State: before.State}
			before.State = projections.Error
		}
		d := Operate(s.env("o"), before, &Input{Command: &events.Command{Command: events.CommandTerminate, Note: "enough"}})
		var ended, began []string
		d.Moves(&s.topics, before, func(a Attempt) { ended = append(ended, a.Topic) }, func(a Attempt) { began = append(began, a.Topic) })
		if len(ended) != 1 || began != nil || d.Order.State != projections.Terminated || d.Order.Hold != nil {
			t.Errorf("held: %t: %q ended, %q began; it is %s", held, ended, began, d.Order.State)
		}
	}
}

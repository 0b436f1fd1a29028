package decide

import (
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// P3: an order that is terminated names what may have run: what is with an agent, or of which nobody ever said what came of it, unless it
// was undone for all that.
func TestWhatMayHaveRun(t *testing.T) {
	work := func(state projections.StepState) projections.Work { return projections.Work{State: state} }
	for name, c := range map[string]struct {
		step projections.Step
		may  bool
	}{
		"not begun":                      {step: projections.Step{Work: work(projections.NotStarted)}},
		"completed":                      {step: projections.Step{Work: work(projections.Completed)}},
		"with its agent":                 {step: projections.Step{Work: work(projections.Running)}, may: true},
		"nobody said":                    {step: projections.Step{Work: work(projections.Failed), Unknown: true}, may: true},
		"nobody said of an earlier one":  {step: projections.Step{Work: work(projections.Completed), Earlier: make([]projections.Key, 1)}, may: true},
		"undone, though nobody had said": {step: projections.Step{Work: work(projections.Undone), Unknown: true}},
		"undone, as earlier ones are":    {step: projections.Step{Work: work(projections.Undone), Earlier: make([]projections.Key, 1)}},
		"being undone":                   {step: projections.Step{Work: work(projections.Completed), Undo: new(work(projections.Running))}, may: true},
		"nobody said of its undo":        {step: projections.Step{Work: work(projections.Completed), Undo: &projections.Work{State: projections.Failed, Doubtful: true}}, may: true},
		"its undo failed":                {step: projections.Step{Work: work(projections.Completed), Undo: new(work(projections.Failed))}},
	} {
		if may := len(inDoubt(&projections.Order{Steps: []projections.Step{c.step}})) == 1; may != c.may {
			t.Errorf("%s: it may have run: %t", name, may)
		}
	}
}

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

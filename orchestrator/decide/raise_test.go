package decide

import (
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// An order that has failed, and waits for what runs, needs its workflow no more.
func TestAFailureNeedsNoWorkflow(t *testing.T) {
	s := newStage(t)
	defer s.close()
	s.flows.Add(parseFlow(t, "workflow: w\nsteps:\n  - {name: a, agent: x, after: []}\n  - {name: b, raise: {code: no}, after: []}\n"))
	s.takeOver(t, "i-1")
	s.take(Submit(s.env("o"), nil, &Input{Record: new(Record), Order: "o", Submission: events.Submission{Workflow: "w"}}))
	env := s.env("o")
	env.Workflow = func(string, int) *workflow.Workflow { return nil }
	reply := &Input{Record: &Record{Topic: s.topics.Replies}, Reply: &events.Reply{Order: "o", Step: "a", Attempt: 1, Status: events.ReplyCompleted}}
	if o := On(env, s.of(t, "o"), reply).Order; o.State != projections.Raised || o.Failure == nil || o.Failure.Code != "no" {
		t.Errorf("it is %s, and failed with %+v", o.State, o.Failure)
	}
}

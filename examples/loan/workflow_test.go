package loan

import (
	"os"
	"testing"

	"github.com/waybill-dev/waybill/internal/rehearsal"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// What the workflow asks of an agent, the agent must have.
func TestAgentsServeTheWorkflow(t *testing.T) {
	flow, err := workflow.Parse("workflow.yaml", Workflow)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range flow.Steps {
		for _, operation := range []string{step.Do, step.Undo} {
			if _, ok := Agents[step.Agent][operation]; operation != "" && !ok {
				t.Errorf("step %s asks agent %s for %q, which it does not serve", step.Name, step.Agent, operation)
			}
		}
	}
}

// The tests that users are shown pass: each is about the workflow that is shipped.
func TestTheWorkflowsTests(t *testing.T) {
	const file = "workflow_test.yaml"
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := rehearsal.Parse(file, source)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range tests.Tests {
		for _, d := range test.Perform().Differences {
			t.Errorf("%s:%d:%d: %s: %s: expected %s, found %s", file, d.Line, d.Column, test.Name, d.What, d.Expected, d.Found)
		}
	}
}

package fulfilment

import (
	"testing"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// What the workflow asks of an agent, the agent must have.
func TestAgentsServeTheWorkflow(t *testing.T) {
	flow, err := workflow.Parse("workflow.yaml", Workflow)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]agents.Operations{"inventory": Inventory, "payment": Payments, "shipping": Shipping}
	for _, step := range flow.Steps {
		for _, operation := range []string{step.Do, step.Undo} {
			if _, ok := all[step.Agent][operation]; operation != "" && !ok {
				t.Errorf("step %s asks agent %s for %q, which it does not serve", step.Name, step.Agent, operation)
			}
		}
	}
}

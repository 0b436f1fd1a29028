package trip

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/waybill-dev/waybill/internal/rehearsal"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// What the workflows ask of an agent, the agent must have; and what they order is there.
func TestAgentsServeTheWorkflows(t *testing.T) {
	var set workflow.Set
	for _, file := range []string{"flight.yaml", "hotel.yaml", "car.yaml", "trip.yaml"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		flow, err := workflow.Parse(file, source)
		if err != nil {
			t.Fatal(err)
		}
		if err := set.Admits(flow); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		set.Add(flow)
		for _, step := range flow.Steps {
			for _, operation := range []string{step.Do, step.Undo} {
				if _, ok := Agents[step.Agent][operation]; operation != "" && !ok {
					t.Errorf("%s: step %s asks agent %s for %q, which it does not serve", file, step.Name, step.Agent, operation)
				}
			}
		}
	}
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) != len(set.All())+1 || !slices.Contains(files, "trip_test.yaml") {
		t.Errorf("there are %q: %v", files, err)
	}
}

// The tests that users are shown pass: each is about the workflows that are shipped.
func TestTheWorkflowsTests(t *testing.T) {
	const file = "trip_test.yaml"
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

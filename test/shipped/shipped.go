// Package shipped checks the workflows of an example: that they are registered, that agents serve what
// they ask for, and that the tests pass which users are shown.
package shipped

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/internal/rehearsal"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// Workflows are checked which stand in files of the current directory, each behind those that it orders: what they
// ask of an agent, the agent must have, and what they order is there. There are no other files but the tests.
func Workflows(t *testing.T, served map[string]agents.Operations, tests string, files ...string) {
	t.Helper()
	var set workflow.Set
	for _, file := range files {
		flow, err := workflow.Parse(file, read(t, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := set.Admits(flow); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		set.Add(flow)
		serves(t, served, file, flow)
	}
	there, err := filepath.Glob("*.yaml")
	if want := slices.Sorted(slices.Values(append(files, tests))); err != nil || !slices.Equal(there, want) {
		t.Errorf("there are %q, and must be %q: %v", there, want, err)
	}
	rehearse(t, tests)
}

func serves(t *testing.T, served map[string]agents.Operations, file string, flow *workflow.Workflow) {
	t.Helper()
	for i := range flow.Steps {
		step := &flow.Steps[i]
		for _, operation := range []string{step.Do, step.Undo} {
			if _, ok := served[step.Agent][operation]; operation != "" && !ok {
				t.Errorf("%s: step %s asks agent %s for %q, which it does not serve", file, step.Name, step.Agent, operation)
			}
		}
		if step.Each != nil && step.Each.Steps != nil {
			serves(t, served, file, step.Each.Steps)
		}
	}
}

// rehearse performs the tests of a file.
func rehearse(t *testing.T, file string) {
	t.Helper()
	all, err := rehearsal.Parse(file, read(t, file))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range all.Tests {
		for _, d := range test.Perform().Differences {
			t.Errorf("%s:%d:%d: %s: %s: expected %s, found %s", file, d.Line, d.Column, test.Name, d.What, d.Expected, d.Found)
		}
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

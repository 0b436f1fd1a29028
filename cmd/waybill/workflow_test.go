package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// How long a step may wait for its agent stands in the table, with - for ever.
func TestWorkflowTable(t *testing.T) {
	flow, err := workflow.Parse("w.yaml", []byte("workflow: w\nsteps: [{name: a, agent: x, queue: 1h}, {name: b, agent: x}]"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	showWorkflow(func(cells ...any) { lines = append(lines, strings.TrimSpace(fmt.Sprintln(cells...))) }, flow)
	for n, want := range []string{"STEP AGENT DO UNDO AFTER TIMEOUT QUEUE RETRY EXHAUSTED", "a x a - - 30s 1h0m0s 3, 1s x2 to 30s error", "b x b - a 30s - 3, 1s x2 to 30s error"} {
		if got := lines[3+n]; got != want {
			t.Errorf("it says\n%s\nand should say\n%s", got, want)
		}
	}
}

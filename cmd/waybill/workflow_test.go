package main

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// TestWorkflowTable prints the workflows of testdata/show.txt, in which there is a step of each kind.
func TestWorkflowTable(t *testing.T) {
	datadriven.RunTest(t, "testdata/show.txt", func(t *testing.T, d *datadriven.TestData) string {
		flow, err := workflow.Parse("w.yaml", []byte(d.Input))
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := printTable(&b, func(row func(...any)) { showWorkflow(row, flow) }); err != nil {
			t.Fatal(err)
		}
		return b.String()
	})
}

package main

import (
	"os"
	"testing"
)

// The schema that is printed is the published one.
func TestWorkflowSchema(t *testing.T) {
	clearEnvironment(t)
	published, err := os.ReadFile("../../docs/schemas/workflow.json")
	if err != nil {
		t.Fatal(err)
	}
	if c := waybill(t, "", "workflow", "schema"); c.code != exitDone || c.out != string(published) {
		t.Errorf("it ends with %d, %s and prints\n%s", c.code, c.errs, c.out)
	}
}

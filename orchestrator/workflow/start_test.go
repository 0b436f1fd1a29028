package workflow_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// A signal starts orders of one workflow: what would make a version with the signal the newest of a second is refused, be
// it that it is registered or restored, or that the newest is retired; what comes behind a newer one is not.
func TestASignalStartsOrdersOfOneWorkflow(t *testing.T) {
	flow := func(name string, version int, more string) *workflow.Workflow {
		return mustParse(t, fmt.Sprintf("{workflow: %s, version: %d, %s steps: [{name: nap, sleep: 1s}]}", name, version, more))
	}
	var set workflow.Set
	a1, a2, b1, b2 := flow("a", 1, "start: go,"), flow("a", 2, ""), flow("b", 1, "start: go,"), flow("b", 2, "")
	refused := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "signal go starts orders of workflow ") {
			t.Errorf("it is %v", err)
		}
	}
	taken := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	taken(set.Admits(a1))
	set.Add(a1)
	refused(set.Admits(b1))
	taken(set.Admits(b2))
	set.Add(b2)
	taken(set.Admits(b1)) // it is not the newest
	set.Add(b1)
	if got := set.Starts("go"); got != a1 {
		t.Errorf("it starts %v", got)
	}
	refused(set.Spares(b2))
	set.Add(a2)
	taken(set.Spares(b2))
	set.Retire("b", 2, true)
	if got := set.Starts("go"); got != b1 {
		t.Errorf("it starts %v", got)
	}
	refused(set.Spares(a2))
	taken(set.Spares(a1)) // a2 stays the newest
	taken(set.Spares(b1))
}

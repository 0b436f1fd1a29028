package orchestrator

import (
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/test/world"
)

// drawFlow draws a version of the workflow "flow".
func drawFlow(t *rapid.T, version int) *workflow.Workflow {
	drawing := world.Drawing{Name: "flow", Version: version, Agents: []string{"a0", "a1", "a2"}, Timeout: 500 * time.Millisecond, Pause: 500 * time.Millisecond}
	return parseFlow(t, drawing.Flow(func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) }))
}

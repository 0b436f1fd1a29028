package loan

import (
	"testing"

	"github.com/waybill-dev/waybill/test/shipped"
)

func TestTheWorkflow(t *testing.T) {
	shipped.Workflows(t, Agents, "workflow_test.yaml", "workflow.yaml")
}

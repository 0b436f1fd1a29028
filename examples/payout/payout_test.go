package payout

import (
	"testing"

	"github.com/waybill-dev/waybill/test/shipped"
)

func TestTheWorkflow(t *testing.T) {
	shipped.Workflows(t, Agents(new(Bank)), "payout_test.yaml", "payout.yaml")
}

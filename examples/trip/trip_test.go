package trip

import (
	"testing"

	"github.com/waybill-dev/waybill/test/shipped"
)

func TestTheWorkflows(t *testing.T) {
	shipped.Workflows(t, Agents, "trip_test.yaml", "car.yaml", "flight.yaml", "hotel.yaml", "trip.yaml")
}

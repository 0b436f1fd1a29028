package fulfilment

import (
	"context"

	"github.com/waybill-dev/waybill/agents"
)

// Shipment is the output of ship.
type Shipment struct {
	Tracking string `json:"tracking"`
	To       string `json:"to,omitzero"`
}

// Shipping is the agent of the carrier. A parcel that left cannot be called
// back, so ship has no undo.
var Shipping = agents.Operations{
	"ship": agents.Do(func(_ context.Context, r agents.Request[Order]) (Shipment, error) {
		return Shipment{Tracking: identify("trk", r.IdempotencyKey), To: r.Input.Customer}, nil
	}),
}

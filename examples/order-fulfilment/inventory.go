package fulfilment

import (
	"context"

	"github.com/waybill-dev/waybill/agents"
)

// Reservation is the output of reserve, and of the release that undoes it.
type Reservation struct {
	Reservation string `json:"reservation"`
	Released    bool   `json:"released,omitzero"`
}

// Inventory is the agent of the warehouse.
var Inventory = agents.Operations{
	"reserve": agents.Do(func(_ context.Context, r agents.Request[Order]) (Reservation, error) {
		return Reservation{Reservation: identify("res", r.IdempotencyKey)}, nil
	}),
	"release": agents.Do(func(_ context.Context, r agents.Request[Order]) (Reservation, error) {
		return Reservation{Reservation: identify("res", r.IdempotencyKey), Released: true}, nil
	}),
}

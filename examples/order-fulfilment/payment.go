package fulfilment

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/agents"
)

// Payment is the output of charge, and of the refund that undoes it.
type Payment struct {
	Payment  string         `json:"payment"`
	Amount   jsontext.Value `json:"amount,omitzero"`
	Refunded bool           `json:"refunded,omitzero"`
}

var errDeclined = errors.New("the bank declined the card; ask the customer for another")

// Payments is the agent of the payment provider.
var Payments = agents.Operations{
	"charge": agents.Do(func(_ context.Context, r agents.Request[Order]) (Payment, error) {
		if r.Input.Card == "declined" {
			return Payment{}, agents.Permanent("card-declined", errDeclined)
		}
		return Payment{Payment: identify("pay", r.IdempotencyKey), Amount: r.Input.Total}, nil
	}),
	"refund": agents.Do(func(_ context.Context, r agents.Request[Order]) (Payment, error) {
		return Payment{Payment: identify("pay", r.IdempotencyKey), Amount: r.Input.Total, Refunded: true}, nil
	}),
}

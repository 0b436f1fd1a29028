package trip

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/waybill-dev/waybill/agents"
)

// Booking is what the steps of a flight and a hotel are asked with: the input of the trip.
type Booking struct {
	Customer string `json:"customer"`
	To       string `json:"to"`
	Nights   int    `json:"nights"`
}

// Bill is what is to be paid.
type Bill struct {
	Customer string `json:"customer"`
	For      string `json:"for"`
	Amount   int64  `json:"amount"`
}

// Wish is the car that a customer would have.
type Wish struct {
	Customer string `json:"customer"`
	Car      string `json:"car"`
	Days     int    `json:"days"`
}

// Found says whether there is such a car.
type Found struct {
	Found bool `json:"found"`
}

// Receipt is what was booked or paid, and undone.
type Receipt struct {
	ID     string `json:"id"`
	What   string `json:"what"`
	Undone bool   `json:"undone,omitzero"`
}

// Agents are those that the workflows ask, by their names.
var Agents = map[string]agents.Operations{
	"airline": {
		"hold": does[Booking]("seat"), "release": undoes[Booking]("seat"),
		"ticket": does[Booking]("ticket"), "void": undoes[Booking]("ticket"),
	},
	"inn": {
		"reserve": does[Booking]("room"), "release": undoes[Booking]("room"),
		"voucher": does[Booking]("voucher"),
	},
	"rental": {
		"find": agents.Do(func(_ context.Context, r agents.Request[Wish]) (Found, error) {
			return Found{r.Input.Car != "limousine"}, nil
		}),
		"rent": does[Wish]("car"), "return": undoes[Wish]("car"),
	},
	"bank": {"pay": does[Bill]("payment"), "refund": undoes[Bill]("payment")},
	"mail": {"confirm": does[any]("mail")},
}

func does[I any](what string) agents.Operation {
	return agents.Do(func(_ context.Context, r agents.Request[I]) (Receipt, error) {
		return Receipt{ID: identify(what, r.IdempotencyKey), What: what}, nil
	})
}

func undoes[I any](what string) agents.Operation {
	return agents.Do(func(_ context.Context, r agents.Request[I]) (Receipt, error) {
		return Receipt{ID: identify(what, r.StepKey), What: what, Undone: true}, nil
	})
}

// identify makes the id of a thing of the key under which it was asked for, so that
// asking again gives the same thing (A3).
func identify(kind, key string) string {
	sum := sha256.Sum256([]byte(key))
	return kind + "-" + hex.EncodeToString(sum[:6])
}

package fulfilment

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/go-json-experiment/json/jsontext"
)

// Order is what the agents look at in an order's input. All of it may be
// missing, and there may be more.
type Order struct {
	Customer string `json:"customer"`
	// Total is passed through as it came, a number or text: the agents do not
	// calculate with it.
	Total jsontext.Value `json:"total"`
	// Card set to "declined" makes the payment fail for good, to see what
	// happens to an order that needs an operator.
	Card string `json:"card"`
}

// identify makes the id of a thing of the key under which it was asked for, so
// that asking again gives the same thing (A3).
func identify(kind, idempotencyKey string) string {
	sum := sha256.Sum256([]byte(idempotencyKey))
	return kind + "-" + hex.EncodeToString(sum[:6])
}

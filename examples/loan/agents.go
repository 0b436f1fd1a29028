package loan

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/waybill-dev/waybill/agents"
)

// Application is what a customer asks for.
type Application struct {
	Customer string `json:"customer"`
	Amount   int64  `json:"amount"`
	Income   int64  `json:"income"` // a year
}

// Score says how well a customer can pay back: the income of a year, as a percentage of
// the loan, and no more than 100.
type Score struct {
	Score int64 `json:"score"`
}

// Mail is one that was sent.
type Mail struct {
	Mail string `json:"mail"`
	To   string `json:"to"`
}

// Payment is the output of pay, and of the recall that undoes it.
type Payment struct {
	Payment  string `json:"payment"`
	Amount   int64  `json:"amount"`
	Recalled bool   `json:"recalled,omitzero"`
}

// Agents are those that the workflow asks, by their names.
var Agents = map[string]agents.Operations{
	"scoring": {
		"score": agents.Do(func(_ context.Context, r agents.Request[Application]) (Score, error) {
			if r.Input.Income >= r.Input.Amount {
				return Score{100}, nil
			}
			return Score{int64(100 * float64(r.Input.Income) / float64(r.Input.Amount))}, nil
		}),
	},
	"mail": {"offer": send, "refuse": send},
	"bank": {
		"pay": agents.Do(func(_ context.Context, r agents.Request[Application]) (Payment, error) {
			return Payment{Payment: identify("pay", r.IdempotencyKey), Amount: r.Input.Amount}, nil
		}),
		"recall": agents.Do(func(_ context.Context, r agents.Request[Application]) (Payment, error) {
			return Payment{Payment: identify("pay", r.StepKey), Amount: r.Input.Amount, Recalled: true}, nil
		}),
	},
}

var send = agents.Do(func(_ context.Context, r agents.Request[Application]) (Mail, error) {
	return Mail{Mail: identify("mail", r.IdempotencyKey), To: r.Input.Customer}, nil
})

// identify makes the id of a thing of the key under which it was asked for, so that
// asking again gives the same thing (A3).
func identify(kind, key string) string {
	sum := sha256.Sum256([]byte(key))
	return kind + "-" + hex.EncodeToString(sum[:6])
}

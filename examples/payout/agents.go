package payout

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/waybill-dev/waybill/agents"
)

// Payment is one of those of a payout.
type Payment struct {
	Account string `json:"account"`
	Amount  int64  `json:"amount"` // in cents
}

// Payments are so many, of which three in a hundred are for an account that is closed.
func Payments(n int) []Payment {
	all := make([]Payment, n)
	for i := range all {
		all[i] = Payment{fmt.Sprintf("a-%05d", i+1), int64(1000 + i%97)}
		if i%100 >= 97 {
			all[i].Account = fmt.Sprintf("c-%05d", i+1)
		}
	}
	return all
}

// Summary is what the payout tells at its end.
type Summary struct {
	Run  string `json:"run"`
	Paid int    `json:"paid"`
}

// Receipt is what was booked, sent or told, and undone.
type Receipt struct {
	ID     string `json:"id"`
	Undone bool   `json:"undone,omitzero"`
}

// Bank sends money to accounts that are open. The zero Bank has those closed that begin with c.
type Bank struct{ open atomic.Bool }

// Open opens all accounts.
func (b *Bank) Open() { b.open.Store(true) }

func (b *Bank) send(_ context.Context, r agents.Request[Payment]) (Receipt, error) {
	if strings.HasPrefix(r.Input.Account, "c") && !b.open.Load() {
		return Receipt{}, agents.Permanent("account-closed", fmt.Errorf("account %s is closed", r.Input.Account))
	}
	return Receipt{ID: r.IdempotencyKey}, nil
}

// Agents are those that the workflow asks, by their names. What they do has the key as its id under which it was
// asked for, so that asking again does it once (A3).
func Agents(bank *Bank) map[string]agents.Operations {
	return map[string]agents.Operations{
		"ledger": {"book": does[Payment](), "unbook": undoes()},
		"bank":   {"send": agents.Do(bank.send), "recall": undoes()},
		"mail":   {"report": does[Summary]()},
	}
}

func does[I any]() agents.Operation {
	return agents.Do(func(_ context.Context, r agents.Request[I]) (Receipt, error) {
		return Receipt{ID: r.IdempotencyKey}, nil
	})
}

func undoes() agents.Operation {
	return agents.Do(func(_ context.Context, r agents.Request[Payment]) (Receipt, error) {
		return Receipt{ID: r.StepKey, Undone: true}, nil
	})
}

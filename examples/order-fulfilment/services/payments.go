package services

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Payments is a payment provider.
//
//	POST /charges   {"order":"o-1","amount":42,"card":"4711"}   201 {"payment":"pay-1","amount":42}
//	POST /refunds   {"order":"o-1"}                             201 {"payment":"pay-1","amount":42,"refunded":true}
//	GET  /ledger
//
// A call that repeats an Idempotency-Key is answered with 200 and what the first
// one did. The card "declined" is refused with 402.
type Payments struct {
	service
	charges []*Charge
	byKey   map[string]*Charge
	// void are orders that were refunded before they were charged: a charge that
	// is still on its way must not come through any more.
	void map[string]bool
}

// Charge is an entry of the ledger.
type Charge struct {
	Payment  string         `json:"payment"`
	Order    string         `json:"order"`
	Key      string         `json:"key"`
	Amount   jsontext.Value `json:"amount,omitzero"`
	Refunded bool           `json:"refunded"`
	// Calls is how many calls with the key came in, whatever became of them.
	Calls int `json:"calls"`
}

type chargeCall struct {
	Order  string         `json:"order"`
	Amount jsontext.Value `json:"amount"`
	Card   string         `json:"card"`
}

type refundCall struct {
	Order string `json:"order"`
}

type paid struct {
	Payment  string         `json:"payment"`
	Amount   jsontext.Value `json:"amount,omitzero"`
	Refunded bool           `json:"refunded,omitzero"`
}

// NewPayments returns a payment provider that is healthy.
func NewPayments(config Config) *Payments {
	p := &Payments{byKey: make(map[string]*Charge), void: make(map[string]bool)}
	p.begin("payment service", config)
	p.mux.HandleFunc("POST /charges", operate(&p.service, opCharge, result{}, p.charge))
	p.mux.HandleFunc("POST /refunds", operate(&p.service, opRefund, result{
		http.StatusForbidden, refusal{"refunds-locked", "refunds of this account are locked"}, "refused the refund for good: 403",
	}, p.refund))
	p.mux.HandleFunc("GET /ledger", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, p.Ledger()) })
	return p
}

func (p *Payments) charge(key string, in chargeCall) result {
	if made := p.byKey[key]; made != nil {
		return result{http.StatusOK, paid{made.Payment, made.Amount, false}, fmt.Sprintf("knew the key %s: answered with %s again and charged nothing", key, made.Payment)}
	}
	switch {
	case in.Card == "declined":
		return result{http.StatusPaymentRequired, refusal{"card-declined", "the bank declined the card; ask the customer for another"}, "refused the card: 402"}
	case p.void[in.Order]:
		return result{http.StatusGone, refusal{"order-void", "the order was refunded before this charge arrived"}, "refused a charge that came after the refund: 410"}
	}
	made := &Charge{Payment: fmt.Sprintf("pay-%d", len(p.charges)+1), Order: in.Order, Key: key, Amount: in.Amount}
	p.charges, p.byKey[key] = append(p.charges, made), made
	return result{http.StatusCreated, paid{made.Payment, made.Amount, false}, fmt.Sprintf("charged %s (%s)", cmp.Or(string(made.Amount), "nothing"), made.Payment)}
}

// refund pays back all that was charged for an order. It goes by the order, and
// not by a payment: who undoes a charge of unknown outcome knows no payment. So
// it is idempotent under any key.
func (p *Payments) refund(_ string, in refundCall) result {
	var last *Charge
	again := true
	for _, c := range p.charges {
		if c.Order == in.Order {
			again = again && c.Refunded
			c.Refunded, last = true, c
		}
	}
	switch {
	case last == nil:
		p.void[in.Order] = true
		return result{http.StatusOK, struct{}{}, "found nothing to refund, and will refuse a charge that is still on its way"}
	case again:
		return result{http.StatusOK, paid{last.Payment, last.Amount, true}, "knew the refund already and paid nothing"}
	}
	return result{http.StatusCreated, paid{last.Payment, last.Amount, true}, fmt.Sprintf("refunded %s (%s)", cmp.Or(string(last.Amount), "nothing"), last.Payment)}
}

// Ledger returns all charges in their order.
func (p *Payments) Ledger() []Charge {
	p.mu.Lock()
	defer p.mu.Unlock()
	ledger := make([]Charge, 0, len(p.charges))
	for _, c := range p.charges {
		entry := *c
		entry.Amount, entry.Calls = slices.Clone(c.Amount), p.calls[c.Key]
		ledger = append(ledger, entry)
	}
	return ledger
}

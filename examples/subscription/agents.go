package subscription

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/waybill-dev/waybill/agents"
)

// Subscription is the input of the workflow.
type Subscription struct {
	Customer string `json:"customer"`
	Plan     string `json:"plan"`
	Every    string `json:"every"`
	Start    string `json:"start"` // when it is renewed first
}

// Renewals say which schedule begins them.
type Renewals struct {
	Schedule string `json:"schedule"`
	Over     bool   `json:"over,omitzero"`
}

// Receipt is what was paid or told.
type Receipt struct {
	ID string `json:"id"`
}

// Billing begins and ends renewals, by Waybill's HTTP API. It says nothing before [Billing.At].
type Billing struct{ server atomic.Pointer[string] }

// At says where that is.
func (b *Billing) At(server string) { b.server.Store(&server) }

// Agents are those that the workflows ask, by their names.
func Agents(billing *Billing) map[string]agents.Operations {
	return map[string]agents.Operations{
		"billing": {"begin-renewals": agents.Do(billing.begin), "end-renewals": agents.Do(billing.end)},
		"bank":    {"charge": does(), "refund": does()},
		"mail":    {"receipt": does(), "goodbye": does()},
	}
}

func does() agents.Operation {
	return agents.Do(func(_ context.Context, r agents.Request[any]) (Receipt, error) {
		return Receipt{ID: r.IdempotencyKey}, nil
	})
}

// schedule is the name of that of an order, whose id may be of other letters, and longer.
func schedule(order string) string {
	sum := sha256.Sum256([]byte(order))
	return "subscription-" + hex.EncodeToString(sum[:6])
}

// begin applies the schedule of the order. Asked again, it does so again, which changes nothing (A3).
func (b *Billing) begin(ctx context.Context, r agents.Request[Subscription]) (Renewals, error) {
	s := map[string]any{
		"every": r.Input.Every, "start": r.Input.Start, "catchUp": "latest", "overlap": "queue", "window": "30d",
		"workflow": "renewal", "by": "billing", "note": "order " + r.Order,
		"input": map[string]string{"customer": r.Input.Customer, "plan": r.Input.Plan},
	}
	return Renewals{Schedule: schedule(r.Order)}, b.ask(ctx, http.MethodPut, r.Order, s)
}

// end deletes it, also as the undo of begin. That there is none is as good.
func (b *Billing) end(ctx context.Context, r agents.Request[any]) (Renewals, error) {
	return Renewals{Schedule: schedule(r.Order), Over: true}, b.ask(ctx, http.MethodDelete, r.Order, map[string]any{"by": "billing", "note": "order " + r.Order})
}

// ask has the server do something to the schedule of an order. What it refuses is refused each time; all else may
// be tried again.
func (b *Billing) ask(ctx context.Context, method, order string, what any) error {
	server := b.server.Load()
	if server == nil {
		return errors.New("it is not known yet where Waybill is")
	}
	body, err := json.Marshal(what)
	if err != nil {
		return fmt.Errorf("say what is wanted of the schedule: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, method, *server+"/api/v1/schedules/"+schedule(order), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask for the schedule: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("ask for the schedule: %w", err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
	if err != nil {
		return fmt.Errorf("hear what became of the schedule: %w", err)
	}
	switch {
	case answer.StatusCode == http.StatusOK, answer.StatusCode == http.StatusNotFound && method == http.MethodDelete:
		return nil
	case answer.StatusCode == http.StatusUnprocessableEntity:
		return agents.Permanent("no-schedule", fmt.Errorf("%s", said))
	}
	return fmt.Errorf("%s: %s", answer.Status, said)
}

package fulfilment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/agents"
)

// PaymentsAt is the agent of a payment provider that is called over HTTP; see
// package services. It has the operations of [Payments].
//
// It makes one call for each time that it is asked. Repeating a call and leaving
// a sick service alone is what [agents.Config.Retry] and [agents.Config.Breaker]
// are for.
func PaymentsAt(url string, client *http.Client) agents.Operations {
	s := paymentService{url, client}
	return agents.Operations{
		"charge": agents.Do(func(ctx context.Context, r agents.Request[Order]) (Payment, error) {
			return call(ctx, s, "/charges", r, chargeCall{r.Order, r.Input.Total, r.Input.Card})
		}),
		// By the order, and not by the payment of the output: a charge whose
		// outcome is unknown has none. The service refunds what it finds.
		"refund": agents.Do(func(ctx context.Context, r agents.Request[Order]) (Payment, error) {
			return call(ctx, s, "/refunds", r, refundCall{r.Order})
		}),
	}
}

type paymentService struct {
	url    string
	client *http.Client
}

type chargeCall struct {
	Order  string         `json:"order"`
	Amount jsontext.Value `json:"amount,omitzero"`
	Card   string         `json:"card,omitzero"`
}

type refundCall struct {
	Order string `json:"order"`
}

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 1 << 20

// call asks the service once. The context ends at the complete-by (A4), and so
// does the call.
func call(ctx context.Context, s paymentService, path string, r agents.Request[Order], body any) (paid Payment, _ error) {
	content, err := json.Marshal(body)
	if err != nil {
		return paid, agents.Permanent("bad-input", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(content))
	if err != nil {
		return paid, agents.Permanent("bad-url", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", r.IdempotencyKey) // (A3)
	request.Header.Set("Complete-By", r.CompleteBy.UTC().Format(time.RFC3339Nano))
	response, err := s.client.Do(request)
	if err != nil {
		return paid, agents.Transient("network", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return paid, agents.Transient("network", fmt.Errorf("read the answer: %w", err))
	}
	if response.StatusCode/100 != 2 {
		return paid, refusal(response.StatusCode, answer)
	}
	if err := json.Unmarshal(answer, &paid); err != nil {
		return paid, agents.Permanent("bad-response", fmt.Errorf("read the answer of a call that succeeded: %w", err))
	}
	return paid, nil
}

// refusal is the error of an answer that is no success. A service that is busy
// or ill may get well; one that understood and refused will refuse again (A5).
func refusal(status int, answer []byte) error {
	said := struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}{fmt.Sprintf("http-%d", status), http.StatusText(status)}
	_ = json.Unmarshal(answer, &said) // the status says enough
	if status/100 == 5 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout {
		return agents.Transient(said.Code, errors.New(said.Message))
	}
	return agents.Permanent(said.Code, errors.New(said.Message))
}

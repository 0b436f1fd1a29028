package webhooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
)

const (
	// maxAnswer is how much of an answer is read, in bytes.
	maxAnswer = 1 << 10
	// longestAfter is for how long a receiver is left alone at most that wants to be.
	longestAfter = 5 * time.Minute
)

// refusal is an answer other than 2xx.
type refusal struct {
	status int
	after  time.Duration // Retry-After; 0 without one
}

func (e *refusal) Error() string {
	what := fmt.Sprintf("it answered %d %s", e.status, http.StatusText(e.status))
	if e.status >= 300 && e.status < 400 {
		what += "; redirects are not followed: write the address to which it leads"
	}
	return what
}

// final says whether it is this message that is refused, as far as an answer tells.
func (e *refusal) final() bool {
	return e.status >= 400 && e.status < 500 && e.status != http.StatusRequestTimeout && e.status != http.StatusTooEarly && e.status != http.StatusTooManyRequests
}

// post sends a message once, signed as of now, and returns the beginning of the answer. The error names no address:
// one may be a secret.
func (w *Webhook) post(ctx context.Context, id string, body []byte, agent string) (said []byte, status int, _ error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	secrets, err := w.secrets()
	if err != nil {
		return nil, 0, fmt.Errorf("the secret cannot be read: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, 0, withoutAddress(err)
	}
	now := time.Now()
	r.Header = w.headers.Clone()
	if r.Header.Get("User-Agent") == "" {
		r.Header.Set("User-Agent", agent)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	r.Header.Set("Webhook-Signature", sign(secrets, id, now, body))
	answer, err := w.client.Do(r)
	if err != nil {
		return nil, 0, withoutAddress(err)
	}
	defer answer.Body.Close()
	said, _ = io.ReadAll(io.LimitReader(answer.Body, maxAnswer)) // the status says it all
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return said, answer.StatusCode, &refusal{answer.StatusCode, retryAfter(answer.Header, now)}
	}
	return said, answer.StatusCode, nil
}

func withoutAddress(err error) error {
	if named, ok := errors.AsType[*url.Error](err); ok {
		if named.Timeout() {
			return fmt.Errorf("it did not answer in time: %w", named.Err)
		}
		return named.Err
	}
	return err
}

// retryAfter is for how long a receiver wants to be left alone, 0 if it does not say.
func retryAfter(headers http.Header, now time.Time) time.Duration {
	said := strings.TrimSpace(headers.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(said, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(longestAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(said)
	if err != nil {
		return 0
	}
	return min(max(0, at.Sub(now)), longestAfter)
}

// jitter is by which share pauses are longer or shorter.
const jitter = 0.2

// pauses are those between attempts.
func pauses(first, longest time.Duration, failed func(attempt int, pause time.Duration, err error), final func(error) bool) failsafe.Executor[any] {
	return failsafe.With(retrypolicy.NewBuilder[any]().
		WithMaxRetries(-1).
		WithBackoff(first, longest).
		WithJitterFactor(jitter).
		WithDelayFunc(func(exec failsafe.ExecutionAttempt[any]) time.Duration {
			if refused, ok := errors.AsType[*refusal](exec.LastError()); ok && refused.after > first {
				return time.Duration(float64(refused.after) / (1 - jitter)) // of which the jitter takes some
			}
			return -1
		}).
		AbortIf(func(_ any, err error) bool { return err != nil && final(err) }).
		OnRetryScheduled(func(e failsafe.ExecutionScheduledEvent[any]) { failed(e.Attempts(), e.Delay, e.LastError()) }).
		Build())
}

// Test sends a sample, once, and returns the answer's status and beginning; the error says why it is none of success.
func (w *Webhook) Test(ctx context.Context, agent string) (said []byte, status int, _ error) {
	m := sample(time.Now())
	body, err := m.body()
	if err != nil {
		return nil, 0, err
	}
	return w.post(ctx, m.Data.ID, body, agent)
}

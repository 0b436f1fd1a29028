package agents

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
)

// Retry says how an agent repeats a call that failed (A2, A6). It repeats what
// may heal: any error of a handler that is not permanent. It does not repeat
// permanent errors, panics, and handlers whose context has ended.
//
// All attempts share one request: its complete-by, which is the deadline of each
// handler's context (A4), its idempotency key (A3), and its place among
// [Config.Concurrency], which it keeps while it pauses. No attempt begins after
// the complete-by, and a pause that would reach it is not begun: the error is
// replied at once, while the orchestrator still can act on it.
//
// An orchestrator sees one attempt with one reply, and has its own retries above
// these; keep these few and short.
//
// When the agent stops, a request that pauses is given up without a reply, and
// another instance executes it.
type Retry struct {
	// Attempts is how often a handler is called for a request at most, the first
	// time included; 3 if zero.
	Attempts int
	// Backoff is the pause after the first attempt; each pause after it is twice
	// as long as the one before. 100 ms if zero.
	Backoff time.Duration
	// Max bounds the pauses, with what Jitter adds, but not what [RetryAfter] asks
	// for; 2 s if zero, or Backoff if that is longer.
	Max time.Duration
	// Jitter is the share of each pause by which it is varied, up or down, but not
	// beyond Max, so that requests that failed together do not come back together: from 0 to 1.
	// 0.2 if zero, none if negative.
	Jitter float64
}

// RetryAfter returns err with the wish of a service to be left alone for some
// time, such as the Retry-After of HTTP's 429 and 503. The next attempt of
// [Config.Retry] waits at least that long, or is not made if the complete-by
// comes first. Without a Retry, and on a permanent error, it means nothing. A nil
// err stays nil.
func RetryAfter(err error, pause time.Duration) error {
	if err == nil {
		return nil
	}
	return &afterError{err, pause}
}

type afterError struct {
	error
	pause time.Duration
}

func (e *afterError) Unwrap() error { return e.error }

// complete fills in defaults and says what is wrong.
func (r *Retry) complete() error {
	if r.Attempts == 0 {
		r.Attempts = 3
	}
	if r.Backoff == 0 {
		r.Backoff = 100 * time.Millisecond
	}
	if r.Max == 0 {
		r.Max = max(2*time.Second, r.Backoff)
	}
	switch {
	case r.Jitter == 0:
		r.Jitter = 0.2
	case r.Jitter < 0:
		r.Jitter = 0
	}
	switch {
	case r.Attempts < 0:
		return fmt.Errorf("retry attempts %d: there cannot be fewer than 1", r.Attempts)
	case r.Backoff < 0:
		return fmt.Errorf("retry backoff %s: it cannot be negative", r.Backoff)
	case r.Max < r.Backoff:
		return fmt.Errorf("retry max %s: it cannot be shorter than the backoff, %s", r.Max, r.Backoff)
	case !(r.Jitter <= 1):
		return fmt.Errorf("retry jitter %v: it cannot be more than 1, the whole pause", r.Jitter)
	}
	return nil
}

// pause is how long to wait after an error, when that many pauses were made
// before.
func (r *Retry) pause(before int, err error) time.Duration {
	pause := r.Backoff
	for range before {
		if pause >= r.Max/2 {
			pause = r.Max
			break
		}
		pause *= 2
	}
	least, most := float64(pause)*(1-r.Jitter), min(float64(pause)*(1+r.Jitter), float64(r.Max))
	pause = time.Duration(least + rand.Float64()*(most-least))
	if wish, ok := errors.AsType[*afterError](err); ok {
		pause = max(pause, wish.pause)
	}
	return pause
}

// newRetries makes a Retry into an executor. It repeats what ends
// with an againError.
func newRetries(config Retry) failsafe.Executor[any] {
	return failsafe.With(retrypolicy.NewBuilder[any]().
		WithMaxAttempts(config.Attempts).
		ReturnLastFailure().
		WithDelayFunc(func(exec failsafe.ExecutionAttempt[any]) time.Duration {
			if again, ok := errors.AsType[*againError](exec.LastError()); ok {
				return again.after
			}
			return 0
		}).
		Build())
}

// againError asks for one more attempt.
type againError struct{ after time.Duration }

func (*againError) Error() string { return "try again" }

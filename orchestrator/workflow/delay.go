package workflow

import (
	"math"
	"time"
)

// Delay is the back-off before the attempt that follows the given number of
// failures: Backoff after the first, Multiplier times as long after each
// further one, never more than Max. Fewer than one failure count as one.
func (r Retry) Delay(failures int) time.Duration {
	if failures <= 1 || r.Backoff <= 0 {
		return min(r.Backoff, r.Max)
	}
	// The power may be +Inf: it is compared before it becomes a Duration.
	delay := float64(r.Backoff) * math.Pow(r.Multiplier, float64(failures-1))
	if delay >= float64(r.Max) {
		return r.Max
	}
	return time.Duration(delay)
}

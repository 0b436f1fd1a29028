package workflow

import (
	"math"
	"time"
)

// Delay is the back-off before the attempt that follows the given number of
// failures: Backoff after the first, Multiplier times as long after each
// further one, never more than Max. Fewer than one failure count as one.
//
// Of that it takes away the part Jitter*u, so that steps that failed together
// are not attempted again together: u is a random number in [0,1) that the
// caller draws and records. It makes no difference where Jitter is 0.
func (r Retry) Delay(failures int, u float64) time.Duration {
	return shorten(r.delay(failures), r.Jitter, u)
}

func (r Retry) delay(failures int) time.Duration {
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

// Pause is how long the step waits before its attempts begin again: For,
// shortened by the part jitter*u like [Retry.Delay]. The jitter is the one of
// the step's [Retry].
func (w Wait) Pause(jitter, u float64) time.Duration {
	return shorten(w.For, jitter, u)
}

// shorten takes away a part from 0 to 1 of d. What is not such a part, as a
// wrong u would make it, is brought into the range.
func shorten(d time.Duration, jitter, u float64) time.Duration {
	part := jitter * u
	if !(part > 0) { // also NaN
		return d
	}
	return d - time.Duration(float64(d)*min(part, 1))
}

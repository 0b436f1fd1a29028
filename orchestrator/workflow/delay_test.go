package workflow_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

func TestDelay(t *testing.T) {
	usual := workflow.Retry{Attempts: 3, Backoff: time.Second, Multiplier: 2, Max: 30 * time.Second}
	steady := workflow.Retry{Attempts: 3, Backoff: 8760 * time.Hour, Multiplier: 1, Max: 8760 * time.Hour}
	none := workflow.Retry{Attempts: 3, Backoff: 0, Multiplier: 100, Max: time.Hour}
	for _, c := range []struct {
		retry    workflow.Retry
		failures int
		want     time.Duration
	}{
		{usual, -1, time.Second},
		{usual, 0, time.Second},
		{usual, 1, time.Second},
		{usual, 2, 2 * time.Second},
		{usual, 5, 16 * time.Second},
		{usual, 6, 30 * time.Second},
		{usual, 1000, 30 * time.Second},
		{usual, math.MaxInt, 30 * time.Second},
		{steady, 1, 8760 * time.Hour},
		{steady, 1000, 8760 * time.Hour},
		{none, 1, 0},
		{none, math.MaxInt, 0}, // where 0 times infinity lurks
	} {
		if got := c.retry.Delay(c.failures, 0); got != c.want {
			t.Errorf("%+v after %d failures is %v, not %v", c.retry, c.failures, got, c.want)
		}
	}
}

func TestDelayGrowsUpToMax(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		retry := drawRetry(t)
		last := retry.Delay(1, 0)
		if last != retry.Backoff {
			t.Fatalf("the first delay of %+v is %v", retry, last)
		}
		for failures := 2; failures <= retry.Attempts; failures++ {
			next := retry.Delay(failures, 0)
			// A float64 holds 53 bits: a year's delay may be off by nanoseconds.
			if next < last-8 || next > retry.Max {
				t.Fatalf("%+v: %v after %d failures, %v after %d", retry, last, failures-1, next, failures)
			}
			last = next
		}
	})
}

// TestJitter: chance shortens a delay by no more than the file allows, and
// never makes it longer.
func TestJitter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		retry := drawRetry(t)
		wait := workflow.Wait{For: drawDuration(t, "for", 1, years), Rounds: 1}
		failures := rapid.IntRange(1, 20).Draw(t, "failures")
		u := rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "u")
		for what, d := range map[string][2]time.Duration{
			"delay": {retry.Delay(failures, 0), retry.Delay(failures, u)},
			"pause": {wait.Pause(retry.Jitter, 0), wait.Pause(retry.Jitter, u)},
		} {
			least := time.Duration(float64(d[0]) * (1 - retry.Jitter))
			if d[1] > d[0] || d[1] < least-8 || d[1] < 0 {
				t.Fatalf("%s: %v became %v with jitter %v and u %v", what, d[0], d[1], retry.Jitter, u)
			}
		}
	})
	half := workflow.Retry{Attempts: 3, Backoff: 10 * time.Second, Multiplier: 2, Max: 30 * time.Second, Jitter: 0.5}
	if got := half.Delay(2, 0.5); got != 15*time.Second {
		t.Errorf("a quarter less than 20s is %v", got)
	}
	if got := half.Delay(9, math.NaN()); got != 30*time.Second {
		t.Errorf("without a number the delay is %v", got)
	}
}

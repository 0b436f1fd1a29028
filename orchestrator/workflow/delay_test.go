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
		if got := c.retry.Delay(c.failures); got != c.want {
			t.Errorf("%+v after %d failures is %v, not %v", c.retry, c.failures, got, c.want)
		}
	}
}

func TestDelayGrowsUpToMax(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		retry := drawRetry(t)
		last := retry.Delay(1)
		if last != retry.Backoff {
			t.Fatalf("the first delay of %+v is %v", retry, last)
		}
		for failures := 2; failures <= retry.Attempts; failures++ {
			next := retry.Delay(failures)
			// A float64 holds 53 bits: a year's delay may be off by nanoseconds.
			if next < last-8 || next > retry.Max {
				t.Fatalf("%+v: %v after %d failures, %v after %d", retry, last, failures-1, next, failures)
			}
			last = next
		}
	})
}

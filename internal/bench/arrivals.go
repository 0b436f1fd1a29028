package bench

import (
	"context"
	"math"
	"time"
)

// arrivals are orders that come at a fixed rate, whatever became of those before:
// callers do not wait for one another.
type arrivals struct {
	began time.Time
	rate  float64 // orders per second, above 0
}

// due is when the nth order is to be submitted, the first being the 0th. What is
// counted from there has the time in it for which nobody could submit.
func (a arrivals) due(n int) time.Time {
	return a.began.Add(time.Duration(math.Round(float64(n) / a.rate * float64(time.Second))))
}

// within is how many are due before so much time has passed.
func (a arrivals) within(d time.Duration) int {
	return int(math.Ceil(d.Seconds()*a.rate - 1e-6))
}

// each calls submit for the first count of orders, for each when it is due, or as
// soon after as can be. It returns before that when submit returns false.
func (a arrivals) each(ctx context.Context, count int, submit func(due time.Time) bool) error {
	for n := range count {
		due := a.due(n)
		if err := wait(ctx, time.Until(due)); err != nil {
			return err
		}
		if !submit(due) {
			return nil
		}
	}
	return nil
}

package bench

import (
	"context"
	"time"
)

// Idle is what was used while nothing was submitted, beside what waits: of this process, in which agents and the
// caller, and the embedded broker, are too.
type Idle struct {
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu_cores"`
	// Requests are those to Kafka, of whatever kind.
	Requests float64 `json:"requests_per_s"`
	Memory   float64 `json:"memory_mib"`
	Kafka    *Usage  `json:"kafka,omitempty"`
}

// idle measures nothing for some time, once one order has gone through and what that began has
// had the time to warm up to end.
func (l *load) idle(ctx context.Context, o *Options, written *writes) (*Idle, error) {
	if err := l.start(ctx, 1); err != nil {
		return nil, err
	}
	if err := wait(ctx, o.WarmUp); err != nil {
		return nil, err
	}
	before, err := l.consumed(ctx)
	if err != nil {
		return nil, err
	}
	began, cpu, requests := time.Now(), processorTime(), written.all.Load()
	if err := wait(ctx, o.Idle); err != nil {
		return nil, err
	}
	seconds := time.Since(began).Seconds()
	i := &Idle{
		Seconds: seconds, CPU: (processorTime() - cpu).Seconds() / seconds,
		Requests: float64(written.all.Load()-requests) / seconds, Memory: residentMiB(),
	}
	after, err := l.consumed(ctx)
	if err == nil && after != nil {
		i.Kafka = after.since(before, 0)
	}
	return i, err
}

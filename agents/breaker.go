package agents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
)

// Breaker says when an instance takes itself out of service because the service
// behind it fails (A6), so that healthy instances get the work (P5).
//
// What counts, for every attempt, those of [Retry] included:
//   - a failure: an error that is not permanent; and a handler that ran into the
//     complete-by, if it had at least half of the time from the request to the
//     complete-by. One that was begun later, after a wait in the queue, says
//     little about the service;
//   - a success: everything else that the handler returned in time. A permanent
//     error is an answer;
//   - nothing: a panic, an input that could not be read, an operation that the
//     agent does not serve, a handler that was cancelled for a stop.
//
// When Failures of the last Window attempts failed, the breaker opens. The
// instance starts no request any more; those that it has read but not started
// it leaves to others. It lets running handlers finish and sends their replies,
// commits, and leaves the consumer group, so that its partitions move to the
// other instances. For handlers that still run it waits at most
// [Config.StopTimeout] before it leaves; they may then go on, and answer, until
// their complete-by, but another instance executes their requests too. A request
// between two attempts is answered with its last error.
//
// After Delay the instance joins the group again and executes one request at a
// time. When Successes of them in a row succeeded the breaker closes and the
// instance works as before; at the first failure it opens again.
//
// If the breakers of all instances are open, requests wait on Kafka; those past
// their complete-by are skipped as ever (A4), and the orchestrator's supervisor
// acts on their orders.
//
// An instance with a static group membership (kgo.InstanceID) cannot leave: its
// partitions move only at the end of the session timeout.
type Breaker struct {
	// Failures among the last Window attempts open the breaker; 10 if zero.
	Failures int
	// Window is how many attempts are remembered; twice Failures if zero. If it
	// equals Failures, only failures in a row open the breaker.
	Window int
	// Delay is how long the breaker stays open before a trial, give or take a
	// tenth, so that instances do not try in step; 10 s if zero.
	Delay time.Duration
	// Successes in a row close the breaker in a trial; 1 if zero.
	Successes int
}

// complete fills in defaults and says what is wrong.
func (b *Breaker) complete() error {
	if b.Failures == 0 {
		b.Failures = 10
	}
	if b.Window == 0 {
		b.Window = 2 * b.Failures
	}
	if b.Delay == 0 {
		b.Delay = 10 * time.Second
	}
	if b.Successes == 0 {
		b.Successes = 1
	}
	switch {
	case b.Failures < 0:
		return fmt.Errorf("breaker failures %d: it cannot be negative", b.Failures)
	case b.Window < b.Failures:
		return fmt.Errorf("breaker window %d: it cannot be less than the failures, %d", b.Window, b.Failures)
	case b.Delay < 0:
		return fmt.Errorf("breaker delay %s: it cannot be negative", b.Delay)
	case b.Successes < 0:
		return fmt.Errorf("breaker successes %d: it cannot be negative", b.Successes)
	}
	return nil
}

// verdict is what an attempt says about the service.
type verdict int

const (
	nothing verdict = iota
	success
	failure
)

// errOpened ends a term of membership because the breaker opened.
var errOpened = errors.New("the circuit breaker opened")

// breaker is a [Breaker] at work. It outlives the terms of membership that it
// ends. The methods of a nil breaker are those of one that never opens.
//
// The circuit's permits are not used: a permit can only be given back with a
// success or a failure, and some attempts are neither. In a trial there is one
// worker, so what they would count never exceeds one.
type breaker struct {
	circuit circuitbreaker.CircuitBreaker[any]

	mu     sync.Mutex
	last   error // the latest failure
	opened func()
	closed func()
}

func newBreaker(config *Breaker, log *slog.Logger) *breaker {
	if config == nil {
		return nil
	}
	b := &breaker{opened: func() {}, closed: func() {}}
	// The circuit calls these in the goroutine that made it change, outside of its
	// own lock.
	b.circuit = circuitbreaker.NewBuilder[any]().
		WithFailureThresholdRatio(uint(config.Failures), uint(config.Window)).
		WithSuccessThreshold(uint(config.Successes)).
		WithDelay(config.Delay).
		WithJitterFactor(0.1).
		OnOpen(func(e circuitbreaker.StateChangedEvent) {
			b.mu.Lock()
			last, opened := b.last, b.opened
			b.mu.Unlock()
			why := fmt.Sprintf("%d of the last %d attempts failed", config.Failures, config.Window)
			if e.OldState == circuitbreaker.HalfOpenState {
				why = "the trial failed"
			}
			log.Warn("the circuit breaker opened; this instance starts no request and leaves the group, so that others get its requests",
				"why", why, "error", last, "trialIn", b.circuit.RemainingDelay())
			opened()
		}).
		OnClose(func(circuitbreaker.StateChangedEvent) {
			b.mu.Lock()
			closed := b.closed
			b.mu.Unlock()
			log.Info("the circuit breaker closed; this instance works as before")
			closed()
		}).
		OnHalfOpen(func(circuitbreaker.StateChangedEvent) {
			log.Info("the circuit breaker is half open; this instance joins the group again and tries one request at a time",
				"successes", config.Successes)
		}).
		Build()
	return b
}

// attend says whom to tell of changes during a term. They are told in the
// goroutine of the attempt that made the change.
func (b *breaker) attend(opened, closed func()) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened, b.closed = opened, closed
}

// allows says whether an attempt may be made.
func (b *breaker) allows() bool { return b == nil || !b.circuit.IsOpen() }

// trying says whether requests are executed one at a time.
func (b *breaker) trying() bool { return b != nil && b.circuit.IsHalfOpen() }

// state is that of an instance which begins to serve.
func (b *breaker) state() State {
	if b.trying() {
		return Trying
	}
	return Serving
}

// record takes in what an attempt says about the service.
func (b *breaker) record(v verdict, err error) {
	switch {
	case b == nil || v == nothing:
	case v == success:
		b.circuit.RecordSuccess()
	default:
		b.mu.Lock()
		b.last = err
		b.mu.Unlock()
		b.circuit.RecordFailure()
	}
}

// rest waits until an open breaker lets a trial begin; false means that ctx ended.
func (b *breaker) rest(ctx context.Context) bool {
	timer := time.NewTimer(b.circuit.RemainingDelay())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		b.circuit.HalfOpen()
		return true
	}
}

package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// call is the execution of one request, in one attempt or more. It keeps the
// outcome of the last one itself: failsafe's executor replaces an outcome by the
// context's error once the context has ended, also that of a call that succeeded.
type call struct {
	server *server
	job    job
	req    *events.Request
	asked  asked
	// completeBy is the request's, or what it was moved to, and sent when that was asked for last, as far as Kafka took it.
	completeBy time.Time
	sent       time.Time

	passed passed // on; with the traceparent of the span that the call is, or of the attempt

	made   int // attempts; the request's own Attempt counts the orchestrator's
	output jsontext.Value
	err    error
	ended  error // why the context ended before the handler returned, nil if it did not
	again  bool  // one more attempt may help, and there is time for it
}

// execute makes the attempts. It returns false if another instance has to answer
// the request, or this one when it comes again.
func (c *call) execute() bool {
	s := c.server
	if s.retries == nil {
		c.attempt()
	} else {
		// The outcome is in c. An error says that the attempts are used up, or that
		// the term ended in a pause.
		_ = s.retries.WithContext(s.term).Run(c.repeat)
	}
	switch {
	case c.err == nil:
		return true
	case s.handlers.Err() != nil && (errors.Is(c.err, context.Canceled) || errors.Is(c.err, ErrStopped)):
		return false // given up for the stop
	case c.again && c.made < s.config.Retry.Attempts:
		// Between two attempts when the agent stopped or the partition moved. Not
		// when the breaker opened: others may be no better off.
		return s.agent.Err() == nil && !c.job.partition.over.Load()
	}
	return true
}

// repeat is one round of the retry policy.
func (c *call) repeat() error {
	if c.made > 0 {
		if !c.mayGoOn() {
			return nil
		}
		c.server.log.LogAttrs(c.server.handlers, slog.LevelDebug, "trying again", slog.String("order", c.req.Order),
			slog.String("step", c.req.Step), slog.Int("calls", c.made), slog.Any("error", c.err))
	}
	c.attempt()
	c.again = c.err != nil && !permanent(c.err) && !c.later() && c.ended == nil
	if !c.again {
		return nil
	}
	pause := c.server.config.Retry.pause(c.made-1, c.err)
	c.again = time.Now().Add(pause).Before(c.completeBy)
	if !c.again {
		return nil // the error is replied while the orchestrator can still act on it
	}
	return &againError{pause}
}

// mayGoOn looks around after a pause: it may have taken longer than it should.
func (c *call) mayGoOn() bool {
	return c.server.term.Err() == nil && c.server.breaker.allows() &&
		!c.job.partition.over.Load() && time.Now().Before(c.completeBy)
}

// attempt calls the handler once.
func (c *call) attempt() {
	began := time.Now()
	within, span := c.trace()
	ctx := &attemptContext{Context: within, call: c, movable: !c.req.ExtendTo.IsZero(), completeBy: c.completeBy}
	c.made++
	operation := c.req.Operation
	if _, served := c.server.operations[operation]; !served {
		operation = ""
	}
	c.server.config.Observer.Began(operation)
	c.output, c.err = c.run(ctx)
	c.ended = ctx.Err()
	ctx.release()
	c.completeBy, _ = ctx.Deadline()
	c.traced(span)
	c.server.config.Observer.Ended(operation, c.outcome(), time.Since(began))
	if c.server.breaker != nil {
		c.server.breaker.record(c.verdict(began), cmp.Or(c.err, errLate))
	}
}

// run calls the operation that the request asks for.
func (c *call) run(ctx context.Context) (output jsontext.Value, err error) {
	operation, ok := c.server.operations[c.req.Operation]
	if !ok {
		return nil, own(CodeUnknownOperation, fmt.Errorf("agent %s does not serve %q; it serves %s",
			c.server.config.Agent, c.req.Operation, c.server.operations.names()))
	}
	defer func() {
		if p := recover(); p != nil {
			c.server.log.Error("a handler panicked", "order", c.req.Order, "step", c.req.Step, "attempt", c.req.Attempt,
				"operation", c.req.Operation, "panic", p, "stack", string(debug.Stack()))
			output, err = nil, own(CodePanic, fmt.Errorf("operation %q panicked; the agent's log has the stack", c.req.Operation))
		}
	}()
	return operation.run(ctx, c.req, c.passed)
}

// late says whether the complete-by has passed.
func (c *call) late() bool {
	return errors.Is(c.ended, context.DeadlineExceeded) || !time.Now().Before(c.completeBy)
}

// errLate is the failure of a handler that returned none, but too late.
var errLate = errors.New("the handler ran into the complete-by")

// verdict is what the last attempt says about the service; see [Breaker].
func (c *call) verdict(began time.Time) verdict {
	whole, had := c.completeBy.Sub(c.job.Timestamp), c.completeBy.Sub(began)
	switch {
	case isOwn(c.err), c.server.handlers.Err() != nil:
		return nothing
	case c.late() && had < whole/2:
		return nothing
	case c.late():
		return failure
	case c.err == nil, permanent(c.err), c.later():
		return success
	}
	return failure
}

// later says that somebody else answers.
func (c *call) later() bool { return errors.Is(c.err, ErrLater) }

package agents

import (
	"context"
	"sync"
	"time"
)

// attemptContext is a handler's context: it ends at the complete-by, when the
// agent stops hard, and when the handler has returned.
//
// A context of the standard library arms a timer and enters itself in its parent
// whether anybody waits for it or not. Here the first call of Done does that, so
// that a handler that never waits does not pay for it.
type attemptContext struct {
	context.Context // the agent's: ends when it stops hard
	completeBy      time.Time

	mu    sync.Mutex
	timed context.Context // nil until the first Done
	end   context.CancelFunc
	ended bool
}

// Deadline returns the complete-by.
func (c *attemptContext) Deadline() (time.Time, bool) { return c.completeBy, true }

// Done arms the timer.
func (c *attemptContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.end = context.WithDeadline(c.Context, c.completeBy)
		if c.ended {
			c.end()
		}
	}
	return c.timed.Done()
}

// Err says why the context ended.
func (c *attemptContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.timed != nil:
		// Err may not run ahead of the channel that Done gave away.
		return c.timed.Err()
	case c.Context.Err() != nil:
		return c.Context.Err()
	case c.ended:
		return context.Canceled
	case !time.Now().Before(c.completeBy):
		return context.DeadlineExceeded
	}
	return nil
}

// Value asks the timed context once there is one: package context finds a
// parent's cancellation and its cause by a value, and only if its channel is the
// one that Done returns.
func (c *attemptContext) Value(key any) any {
	c.mu.Lock()
	from := c.timed
	c.mu.Unlock()
	if from == nil {
		from = c.Context
	}
	return from.Value(key)
}

// release ends the context after its handler.
func (c *attemptContext) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.end != nil {
		c.end()
	}
}

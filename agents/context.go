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
	call            *call
	movable         bool // [Extend] may move the complete-by

	mu         sync.Mutex
	completeBy time.Time
	timed      context.Context // nil until the first Done
	end        context.CancelFunc
	timer      *time.Timer // of one that is movable
	ended      bool
}

// Deadline returns the complete-by.
func (c *attemptContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.completeBy, true
}

// arm has the context of an attempt end that is movable. The caller has the lock.
func (c *attemptContext) arm() {
	timed, end := context.WithCancelCause(c.Context)
	c.timed, c.end = timed, func() { end(nil) }
	c.timer = time.AfterFunc(time.Until(c.completeBy), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if left := time.Until(c.completeBy); left > 0 { // it was moved just now
			c.timer.Reset(left)
			return
		}
		end(context.DeadlineExceeded)
	})
}

// move moves the complete-by, but never back.
func (c *attemptContext) move(to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !to.After(c.completeBy) {
		return
	}
	if c.completeBy = to; c.timer != nil {
		c.timer.Reset(time.Until(to))
	}
}

// Done arms the timer.
func (c *attemptContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		if c.movable {
			c.arm()
		} else {
			c.timed, c.end = context.WithDeadline(c.Context, c.completeBy)
		}
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
		if err := c.timed.Err(); err == nil || !c.movable || context.Cause(c.timed) != context.DeadlineExceeded { //nolint:errorlint // it is the very cause of arm
			return err
		}
		return context.DeadlineExceeded
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
// one that Done returns. One that is movable ends by itself, and package context asks it.
func (c *attemptContext) Value(key any) any {
	if key == (attemptKey{}) {
		return c
	}
	c.mu.Lock()
	from := c.timed
	c.mu.Unlock()
	if from == nil || c.movable {
		from = c.Context
	}
	return from.Value(key)
}

// release ends the context after its handler.
func (c *attemptContext) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.end != nil {
		c.end()
	}
}

// attemptKey finds the attempt of a handler's context.
type attemptKey struct{}

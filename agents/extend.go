package agents

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// ErrNotExtendable says that the complete-by of an attempt cannot be moved: the workflow gives
// the step's timeout no max, or the order's deadline comes first.
var ErrNotExtendable = errors.New("the complete-by cannot be moved: the workflow gives the step's timeout no max, or the order's deadline comes first")

// Extend says that the handler is still at its request, and has the complete-by move to now and
// the step's timeout, up to [Request.ExtendTo]. It returns once Kafka has taken that; the deadline of
// the handler's context has moved then, and so has its end. Contexts that were derived from it
// with a deadline of their own keep that.
//
// Call it as often as you like, but before the complete-by: what would gain less than a quarter of the timeout
// is not sent. After an error the next call sends it again. It is no error that nothing is left to be gained: the context ends at its deadline. It is one, [ErrNotExtendable], that the
// complete-by never moves, and one that the attempt is over: that of the context.
//
// Whether the orchestrator goes on with the attempt is not known here: its order may have been
// dealt with otherwise.
func Extend(ctx context.Context) error {
	a, err := attemptOf(ctx)
	if err != nil {
		return err
	}
	if !a.movable {
		return fmt.Errorf("agents: extend: %w", ErrNotExtendable)
	}
	return a.extend(ctx)
}

// attemptOf is the attempt whose handler has the context.
func attemptOf(ctx context.Context) (*attemptContext, error) {
	a, ok := ctx.Value(attemptKey{}).(*attemptContext)
	if !ok {
		return nil, errors.New("agents: the context is not that of a handler")
	}
	return a, nil
}

func (c *attemptContext) extend(ctx context.Context) error {
	call, said := c.call, time.Now()
	if err := c.Err(); err != nil {
		return fmt.Errorf("agents: extend: the attempt is over: %w", err)
	}
	if !c.gains(said) {
		return nil
	}
	record := call.server.replies.record(&call.asked, events.Reply{Status: events.ReplyProgress})
	if err := call.server.client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return fmt.Errorf("agents: extend: %w", err)
	}
	c.sent(said)
	c.move(call.asked.least(said))
	return nil
}

// gains says whether what is said now moves the complete-by by enough.
func (c *attemptContext) gains(said time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &c.call.asked
	before := a.CompleteBy
	if !c.call.sent.IsZero() {
		before = a.most(c.call.sent)
	}
	return a.most(said).Sub(before) >= a.timeout()/4
}

// sent notes that Kafka has what was said, unless the attempt is over: the next may look already.
func (c *attemptContext) sent(said time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended && said.After(c.call.sent) {
		c.call.sent = said
	}
}

package lane

import (
	"context"
	"time"

	"github.com/waybill-dev/waybill/orchestrator/decide"
)

// early holds commands that were read before the submission of their order.
// Topics are read side by side, so a command may come first though it was sent
// after the submission was acknowledged. It waits, and those behind it, until
// the orders have been read up to where they ended when it came. Its position
// does not move meanwhile: if the lane ends, it is read again.
//
// The submission may be parked. That may be for long, and nobody may wait so long behind
// a command for what may never be an order: see [earlyLongest].
type early struct {
	commands []input
	until    int64 // position in the orders at which the first is decided
}

// earlyLongest is how long a submission is parked before commands for its order do not
// wait for it any more: they are put aside.
const earlyLongest = 10 * time.Second

// waitsFor says whether a command waits for a submission that is parked. If that is
// parked for too long, nothing can be done with the command.
func (l *Lane) waitsFor(in *input) bool {
	since, parked := l.parked.orders[in.Order]
	if parked && l.time.Timer().Sub(since) >= earlyLongest {
		in.Unreadable = "the submission of its order is not decided: what it needs is not known yet"
		return false
	}
	return parked
}

// tooEarly holds a command if the submission of its order may still come.
func (l *Lane) tooEarly(ctx context.Context, in *input) (bool, error) {
	if in.record.Topic != l.topics.Commands {
		return false, nil
	}
	if len(l.early.commands) == 0 {
		if in.Command == nil || l.strays(in) {
			return false, nil
		}
		if order, err := l.order(in.Order); order != nil || err != nil {
			return false, err
		}
		end, err := l.broker.End(ctx, TopicPartition{l.topics.Orders, l.partition}, true)
		if err != nil || !l.waitsFor(in) && (in.Unreadable != "" || l.ordersRead() >= end) {
			return false, err
		}
		l.early.until = end
		l.inputs.Pause(l.topics.Commands)
	}
	l.early.commands = append(l.early.commands, *in)
	return true, nil
}

// retryEarly decides on the commands that waited long enough.
func (l *Lane) retryEarly(ctx context.Context, env *decide.Env) error {
	if len(l.early.commands) == 0 || l.full() {
		return nil
	}
	first := &l.early.commands[0]
	if waits := l.waitsFor(first); waits || first.Unreadable == "" && l.ordersRead() < l.early.until {
		order, err := l.order(first.Order)
		if order == nil || err != nil {
			return err
		}
	}
	waited := l.early.commands
	l.early.commands = nil
	l.inputs.Resume(l.topics.Commands)
	err := l.takeIn(env, &waited[0])
	for i := 1; i < len(waited) && err == nil; i++ {
		if l.full() {
			l.early.commands = waited[i:]
			l.inputs.Pause(l.topics.Commands)
			// What was written since the first of them waited may be what these wait for.
			l.early.until, err = l.broker.End(ctx, TopicPartition{l.topics.Orders, l.partition}, true)
			break
		}
		var wait bool
		if wait, err = l.tooEarly(ctx, &waited[i]); err == nil && !wait {
			err = l.takeIn(env, &waited[i])
		}
	}
	return err
}

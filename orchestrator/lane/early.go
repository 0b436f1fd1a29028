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
// Where they end Kafka is asked beside the loop: only commands wait for the answer.
// Nobody may wait for long behind a command for what may never be an order, be it that
// the submission is parked or that Kafka does not answer: see [earlyLongest].
type early struct {
	commands []input // each with since when it waits
	// asks says that Kafka is to be asked for the first of them, asking that it is being
	// asked, rests that it failed to answer since the last tick.
	asks, asking, rests bool
	asked               time.Time // when it was last
	covers              int       // of the commands, the first, were there then
	until               int64     // where the orders ended, for these
	failed              time.Time // when it was last in vain
	strayed             time.Time // until when one that strays was the first of them
}

// earlyLongest is how long a submission is parked before commands for its order do not
// wait for it any more: they are put aside. It is how long Kafka may take to say where the
// orders end, too; a command for which it was asked after so long, and in vain, is put aside.
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

// tooEarly holds a command of which the order is not known so far, and those behind it.
func (l *Lane) tooEarly(in *input) (bool, error) {
	if in.record.Topic != l.topics.Commands || in.record.Partition != l.partition {
		return false, nil
	}
	if len(l.early.commands) == 0 {
		if in.Command == nil || l.strays(in) {
			return false, nil
		}
		if order, err := l.order(in.Order); order != nil || err != nil {
			return false, err
		}
	}
	in.parked = l.time.Timer()
	l.early.commands = append(l.early.commands, *in)
	return true, nil
}

// mayCome says whether something may still come that the first of the commands waits for.
func (l *Lane) mayCome(in *input) (bool, error) {
	e := &l.early
	if l.strays(in) {
		return l.stranded(in), nil
	}
	if in.Command == nil {
		return false, nil
	}
	if order, err := l.order(in.Order); order != nil || err != nil {
		return false, err
	}
	switch {
	case l.waitsFor(in) || e.asking:
		return true, nil
	case in.Unreadable != "":
		return false, nil
	case e.covers > 0:
		return l.ordersRead() < e.until, nil
	case min(e.failed.Sub(in.parked), e.failed.Sub(e.strayed)) >= earlyLongest:
		in.Unreadable = "nobody can tell whether the submission of its order is still to come: where the orders end is not known"
		return false, nil
	}
	e.asks = !e.rests
	return true, nil
}

// retryEarly decides on the commands that waited long enough.
func (l *Lane) retryEarly(env *decide.Env) error {
	e := &l.early
	for len(e.commands) > 0 && !l.full() {
		first := &e.commands[0]
		wait, err := l.mayCome(first)
		if err == nil && !wait {
			if l.strays(first) {
				e.strayed = l.time.Timer()
			}
			e.commands, e.covers = e.commands[1:], max(0, e.covers-1)
			if len(e.commands) == 0 {
				e.commands = nil // and what they take
			}
			err = l.takeIn(env, first)
		}
		if wait || err != nil {
			return err
		}
	}
	return nil
}

// askOrders has Kafka asked where the orders end, if a command waits for that.
func (l *Lane) askOrders(b Beside) {
	if e := &l.early; e.asks {
		e.asks, e.asking, e.asked, e.covers = false, true, l.time.Timer(), len(e.commands)
		b.AskOrders()
	}
}

// AskOrders asks Kafka where the orders end, as far as they can be read.
func (l *Lane) AskOrders(ctx context.Context) Happened {
	ctx, cancel := context.WithTimeout(ctx, earlyLongest)
	defer cancel()
	end, err := l.broker.End(ctx, TopicPartition{l.topics.Orders, l.partition}, true)
	return Happened{What: OrdersTold, End: end, Err: err}
}

// ordersTold takes the answer. What was not answered is asked again at the next tick.
func (l *Lane) ordersTold(h Happened) {
	e := &l.early
	e.asking, e.until, l.look = false, h.End, true
	if e.rests = h.Err != nil; e.rests {
		l.log.Debug("cannot see where the orders end", "error", h.Err)
		e.covers, e.failed = 0, e.asked
	}
}

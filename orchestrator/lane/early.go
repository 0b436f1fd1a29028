package lane

import (
	"context"
	"fmt"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
)

// early holds commands, or signals, that were read before the submission of their order.
// Topics are read side by side, so a command may come first though it was sent
// after the submission was acknowledged. It waits, and those behind it, until
// the orders have been read up to where they ended when it came. Its position
// does not move meanwhile: if the lane ends, it is read again. One that strays waits
// alike: by a client's partitioner that is not ours, its order's submission strays
// here, too, and is to be where both belong before it.
//
// Where they end Kafka is asked beside the loop: only commands and signals wait for the answer. A
// submission that was acknowledged may stand behind a transaction of somebody's that is open, and
// cannot be read before that ends. So the orders end where nothing is written yet, and what can be
// read of them is asked again and again.
// Nobody may wait for long behind a command for what may never be an order, be it that
// the submission is parked or cannot be read, or that Kafka does not answer: see [earlyLongest] and [openLongest].
type early struct {
	inputs []input // each with since when it waits
	// asks says that Kafka is to be asked for the first of them, asking that it is being
	// asked, rests that it is not before the next tick.
	asks, asking, rests bool
	asked               time.Time // when it was last
	covers              int       // of the inputs, the first, were there when it was first asked for them
	first               time.Time // when that was
	last                int64     // where the orders ended then
	until               int64     // how far of that they could be read at the last answer
	open                bool      // so far they had been read, then
	failed              time.Time // when it was last in vain
	stranded            time.Time // until when the first of them could not be forwarded
}

// earlyLongest is how long a submission is parked before commands for its order do not
// wait for it any more: they are put aside. It is how long Kafka may take to say where the
// orders end, too; a command for which it was asked after so long, and in vain, is put aside.
const earlyLongest = 10 * time.Second

// openLongest is how long nothing can be read of the orders that are there, before commands for
// which they may stand there are put aside: a transaction whose producer died is ended by Kafka
// after a minute by most clients' default, and some seconds.
const openLongest = 90 * time.Second

// queues are those of commands and of signals: neither waits for the other.
func (l *Lane) queues() [2]*early { return [2]*early{&l.early, &l.earlySignals} }

// earlyOf is the one of a topic, nil if its records do not wait for their orders.
func (l *Lane) earlyOf(topic string) *early {
	switch topic {
	case l.topics.Commands:
		return &l.early
	case l.topics.Signals:
		return &l.earlySignals
	}
	return nil
}

// tooEarly holds a command, or a signal, of which the order is not known so far, and those behind
// it.
func (l *Lane) tooEarly(in *input) (bool, error) {
	e := l.earlyOf(in.record.Topic)
	if e == nil || in.record.Partition != l.partition {
		return false, nil
	}
	if len(e.inputs) == 0 {
		if follows, err := l.follows(in); !follows || err != nil {
			return false, err
		}
	}
	in.parked = l.time.Timer()
	e.inputs = append(e.inputs, *in)
	return true, nil
}

// follows says whether the submission of an input's order may stand unread before it.
func (l *Lane) follows(in *input) (bool, error) {
	switch {
	case in.Unreadable != "" || events.ScheduleOf(in.Order) != "" || events.IsCorrelation(in.Order) || events.IsPlaces(in.Order): // no submission makes these
		return false, nil
	case l.strays(in):
		return true, nil
	case in.Command == nil && in.Signal == nil:
		return false, nil
	}
	order, err := l.order(in.Order)
	return order == nil && err == nil, err
}

// mayCome says whether something may still come that the first of them waits for. One that strays
// goes on where it belongs in any case.
func (l *Lane) mayCome(e *early) (bool, error) {
	in := &e.inputs[0]
	if l.stranded(in) {
		e.stranded = l.time.Timer()
		return true, nil
	}
	if follows, err := l.follows(in); !follows || err != nil {
		return false, err
	}
	wait, why := l.stillEarly(e, in)
	if !l.strays(in) {
		in.Unreadable = why
	}
	return wait, nil
}

// stillEarly says whether the first of them waits longer, and why not, if that is no answer to whether its
// order's submission comes.
func (l *Lane) stillEarly(e *early, in *input) (wait bool, why string) {
	since, parked := l.parked.orders[in.Order]
	longest := openLongest
	if l.strays(in) { // it goes on in any case, and where it belongs it is waited for again
		longest = earlyLongest
	}
	switch {
	case parked && l.time.Timer().Sub(since) >= earlyLongest:
		return false, "the submission of its order is not decided: what it needs is not known yet"
	case parked || e.asking:
		return true, ""
	case e.covers > 0 && l.ordersRead() >= e.last:
		return false, ""
	case e.covers > 0 && l.ordersRead() < e.until:
		return true, ""
	case e.covers > 0 && e.open && e.asked.Sub(e.first) >= longest:
		return false, fmt.Sprintf("there is no order of this id so far, and its submission may stand behind a transaction that is open: of partition %d of %s nothing can be read from offset %d on",
			l.partition, l.topics.Orders, e.until)
	case e.covers > 0:
	case min(e.failed.Sub(in.parked), e.failed.Sub(e.stranded)) >= earlyLongest:
		return false, "nobody can tell whether the submission of its order is still to come: where the orders end is not known"
	}
	e.asks = !e.rests
	return true, ""
}

// retryEarly decides on the commands and signals that waited long enough.
func (l *Lane) retryEarly(env *decide.Env) error {
	for _, e := range l.queues() {
		if err := l.retry(env, e); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lane) retry(env *decide.Env, e *early) error {
	for len(e.inputs) > 0 && !l.full() {
		first := &e.inputs[0]
		wait, err := l.mayCome(e)
		if err == nil && !wait {
			e.inputs, e.covers = e.inputs[1:], max(0, e.covers-1)
			if len(e.inputs) == 0 {
				e.inputs = nil // and what they take
			}
			err = l.takeIn(env, first)
		}
		if wait || err != nil {
			return err
		}
	}
	return nil
}

// askOrders has Kafka asked where the orders end, if a command or a signal waits for that, and
// it is not being asked.
func (l *Lane) askOrders(b Beside) {
	if l.early.asking || l.earlySignals.asking {
		return
	}
	asks := false
	for _, e := range l.queues() {
		if e.asks {
			e.asks, e.asking, e.asked = false, true, l.time.Timer()
			if e.covers == 0 {
				e.covers, e.first, e.last = len(e.inputs), e.asked, -1
			}
			asks = true
		}
	}
	if asks {
		b.AskOrders()
	}
}

// AskOrders asks Kafka where the orders end, and how far they can be read.
func (l *Lane) AskOrders(ctx context.Context) Happened {
	ctx, cancel := context.WithTimeout(ctx, earlyLongest)
	defer cancel()
	h, orders := Happened{What: OrdersTold}, TopicPartition{l.topics.Orders, l.partition}
	if h.Last, h.Err = l.broker.End(ctx, orders, false); h.Err == nil {
		h.End, h.Err = l.broker.End(ctx, orders, true)
	}
	return h
}

// ordersTold takes the answer. What was not answered is asked again at the next tick.
func (l *Lane) ordersTold(h Happened) {
	l.look = true
	for _, e := range l.queues() {
		if !e.asking {
			continue
		}
		if e.asking = false; h.Err != nil {
			l.log.Debug("cannot see where the orders end", "error", h.Err)
			e.rests, e.covers, e.failed = true, 0, e.asked
			continue
		}
		if e.last < 0 {
			e.last = h.Last
		}
		e.until, e.open, e.rests = h.End, h.End <= l.ordersRead(), h.End < e.last
	}
}

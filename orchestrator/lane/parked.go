package lane

import (
	"context"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
)

// parked holds submissions that cannot be decided on yet: their workflow is not known,
// and the workflows topic was not read to its end since; or it is not sure whether
// their topic for status messages is there; or they stray, and cannot be forwarded now.
// The position in the orders stays before the first. Other submissions are decided on
// meanwhile: if the lane ends, they are read again, and change nothing, since their
// orders are there. What would be doubled, like a dead letter, waits behind those that
// are parked.
type parked struct {
	inputs  []input
	orders  map[string]bool
	bytes   int
	reached int64 // where the position in the orders will be, once none is left
	paused  bool
}

// What is parked, at most: then no more is read of the orders.
const (
	maxParked   = 1_000
	parkedBytes = 16 << 20
)

func (p *parked) add(in *input) {
	if p.orders == nil {
		p.orders = make(map[string]bool)
	}
	p.orders[in.Order] = true
	p.inputs = append(p.inputs, *in)
	p.bytes += in.Record.Size()
}

// ordersRead is up to where the orders were read, but for those that are parked.
func (l *Lane) ordersRead() int64 {
	if len(l.parked.inputs) > 0 {
		return l.parked.reached
	}
	return l.position.At(events.InputOrders)
}

// park keeps a record of the orders that must wait, and says whether it did.
func (l *Lane) park(in *input) (bool, error) {
	if in.record.Topic != l.topics.Orders || in.record.Partition != l.partition {
		return false, nil
	}
	wait, err := l.mustWait(in)
	if !wait || err != nil {
		return false, err
	}
	if len(l.parked.inputs) == 0 {
		l.position.Set(events.InputOrders, in.record.Offset)
	}
	l.parked.add(in)
	l.parked.reached = in.record.Offset + 1
	if !l.parked.paused && (len(l.parked.inputs) >= maxParked || l.parked.bytes >= parkedBytes) {
		l.parked.paused = true
		l.inputs.Pause(l.topics.Orders)
	}
	return true, nil
}

// mustWait says whether a record of the orders must be parked, or stay so.
func (l *Lane) mustWait(in *input) (bool, error) {
	if in.record.Attrs.IsControl() {
		return false, nil
	}
	if in.Unreadable != "" || in.Partition != l.partition {
		return len(l.parked.inputs) > 0 || l.stranded(in), nil
	}
	order, err := l.order(in.Order)
	switch {
	case err != nil:
		return false, err
	case order != nil:
		return false, nil
	case l.parked.orders[in.Order]: // which must come first
		return true, nil
	}
	s := &in.Submission
	if in.Problem == nil && s.Workflow != "" && l.world.Workflow(s.Workflow, s.Version) == nil {
		if in.sought == 0 {
			in.sought = l.world.Seek()
		}
		if !l.world.Found(in.sought) {
			return true, nil
		}
	}
	to := s.ReplyTo
	return to != "" && events.ValidTopic(to) && !l.topics.Owns(to) && l.unwritable(to, decide.EnvelopeSize) != "", nil
}

// retryWaiting decides on what is parked and need not wait any more, and on the commands
// that waited for it, as far as there is room in the batch.
func (l *Lane) retryWaiting(ctx context.Context) error {
	if len(l.parked.inputs)+len(l.early.commands)+len(l.behind) == 0 {
		return nil
	}
	if err := l.prepare(ctx, nil); err != nil {
		return err
	}
	l.retryBehind()
	env := l.env()
	if err := l.retryParked(env); err != nil {
		return err
	}
	return l.retryEarly(ctx, env)
}

func (l *Lane) retryParked(env *decide.Env) error {
	if len(l.parked.inputs) == 0 {
		return nil
	}
	waiting := l.parked
	l.parked = parked{paused: waiting.paused}
	for i := range waiting.inputs {
		in := &waiting.inputs[i]
		wait, err := l.mustWait(in)
		if err != nil {
			return err
		}
		if wait || l.full() {
			l.parked.add(in)
			continue
		}
		if err := l.takeIn(env, in); err != nil {
			return err
		}
	}
	l.parked.reached = waiting.reached
	next := waiting.reached
	if len(l.parked.inputs) > 0 {
		next = l.parked.inputs[0].record.Offset
	}
	l.position.Set(events.InputOrders, next)
	if l.parked.paused && len(l.parked.inputs) < maxParked && l.parked.bytes < parkedBytes {
		l.parked.paused = false
		l.inputs.Resume(l.topics.Orders)
	}
	return nil
}

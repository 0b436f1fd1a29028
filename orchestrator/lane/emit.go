package lane

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// What a step gives a topic of the user's leaves by the [courier], behind the commit as status
// messages do, and for the same reasons. But it is the step that says how long it waits, and how often
// it is tried: what is to be given follows from the orders, and is gone with the attempt. Nothing of it
// ever goes to another topic. Once Kafka has acknowledged it, or refuses it, the lane decides on that.
// Who takes over before that is in the journal gives the same once more, with the same id.

// emission is an attempt that is to give a topic an event.
type emission struct {
	order, step string // by the name under which it is known
	seq         uint64 // of the event with which it began
}

// emittedBytes bounds what is delivered at a time, but for the event with which it is reached.
const emittedBytes = projections.OwedBytes

// toEmit finds the next that steps are to give a topic, at most limit: what is in the journal, and is
// not over yet, as far as was decided.
func (l *Lane) toEmit(topic string, limit int) (*Delivery, error) {
	d, env, size := &Delivery{Topic: topic}, l.env(), 0
	err := l.state.Emissions(topic, l.courier.confirmed, func(id, step string, seq uint64) (more bool, err error) {
		o, err := l.order(id)
		if o == nil || err != nil {
			return err == nil, err
		}
		s := o.Known(step)
		if s == nil || !decide.Emits(env, o, s) || s.Emits.Seq != seq { // it is over; the next may not be in the journal yet
			return true, nil
		}
		m := decide.Emission(l.topics, o, s)
		d.Records, d.emitted = append(d.Records, m.Envelope.Record(m.Topic, m.Value)), append(d.emitted, emission{id, step, seq})
		size += len(m.Value)
		return len(d.Records) < limit && size < emittedBytes, nil
	})
	return d, err
}

// emit gives a topic what steps emit, if there is room for that, or has them fail if it takes nothing.
func (l *Lane) emit(b Beside, t *target, under *atomic.Int64, room bool) error {
	why, limit := l.undeliverable(t), t.window
	if why != "" {
		limit = deliveredAtOnce
	}
	d, err := l.toEmit(t.topic, limit)
	if err != nil {
		return err
	}
	if len(d.Records) == 0 {
		delete(l.courier.targets, t.destination)
		return nil
	}
	if why == "" {
		if room {
			l.sends(b, t, d, under)
		}
		return nil
	}
	for _, e := range d.emitted {
		if l.full() {
			break
		}
		if err := l.decideEmitted(e, why); err != nil {
			return err
		}
	}
	l.courier.looks(t)
	return nil
}

// decideCame decides on what came of deliveries, as far as the batch has room: until then nothing more
// is given to these topics. What is wrong with a topic is not wrong with the event that it was not to
// take: that says so at once, and holds up no other.
func (l *Lane) decideCame() error {
	c := &l.courier
	for len(c.came) > 0 {
		t := c.came[0]
		h, n, wrong := t.came, t.came.taken, t.came.Err
		refused, ok := errors.AsType[*UndeliverableError](wrong)
		if ok && refused.Message && !refused.Batch && n < len(h.emitted) {
			n, wrong = n+1, nil
		}
		for ; t.decided < n; t.decided++ {
			if l.full() {
				return nil
			}
			why := ""
			if t.decided == h.taken {
				why = refused.Reason
			}
			if err := l.decideEmitted(h.emitted[t.decided], why); err != nil {
				return err
			}
		}
		c.came, t.came, t.decided = c.came[1:], nil, 0
		l.over(t, h, wrong)
	}
	return nil
}

// decideEmitted decides on an attempt whose event its topic has, or refuses.
func (l *Lane) decideEmitted(e emission, refused string) error {
	order, err := l.order(e.order)
	if order == nil || err != nil {
		return err
	}
	var d decide.Decision
	env := l.env()
	if why, _ := l.halves.held(ofDue(e.order)); why != "" {
		d = decide.Hold(env, order, nil, why)
	} else {
		d = decide.Emitted(env, order, e.step, e.seq, refused)
	}
	if l.take(d); d.Order != nil {
		l.current.units = append(l.current.units, ofDue(e.order))
	}
	env.Reuse(d.Messages)
	return nil
}

// emitsAgain notes the topics to which an order's steps go on to give what they were to before it was
// held.
func (l *Lane) emitsAgain(d *decide.Decision) {
	if !slices.ContainsFunc(d.Messages, func(m decide.Message) bool { return m.Envelope.Type == events.OrderReleased }) {
		return
	}
	for i := range d.Order.Steps {
		if e := d.Order.Emitting(&d.Order.Steps[i]); e != nil {
			l.current.emits[e.Topic] = true
		}
	}
}

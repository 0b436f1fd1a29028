package lane

import (
	"cmp"
	"errors"
	"slices"
	"sync/atomic"
	"time"

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
	at          int64  // where that stands in the journal
}

// leftBehind are events of users' that their topic did not take, while it may take those behind them:
// one partition of it may have no leader, and of two orders nothing is promised. What is new goes first,
// and what is left is gone over in rounds.
type leftBehind struct {
	first     int64     // where the first stands in the journal, -1 if there is none
	at, until int64     // how far the round came that is under way, and how far it goes; at is -1 if none is
	again     time.Time // no round begins before, by the timer
}

func (b *leftBehind) adds(at int64) {
	if b.first < 0 || at < b.first {
		b.first = at
	}
}

// emitsTo is a topic that is to be given events of users', with what is known of it. What was just refused
// is tried again.
func (l *Lane) emitsTo(to destination) *target {
	t := l.courier.past[to.topic]
	if delete(l.courier.past, to.topic); t == nil {
		return &target{destination: to, window: eventsAtOnce, left: leftBehind{first: -1, at: -1}}
	}
	t.window, t.refused = eventsAtOnce, time.Time{}
	if l.time.Timer().Sub(t.failed) > failureProof {
		t.failures, t.doubt, t.again = 0, UndeliverableError{}, time.Time{}
	}
	return t
}

// most is how many messages a topic is given at a time.
func (t *target) most() int {
	if t.emits {
		return eventsAtOnce
	}
	return deliveredAtOnce
}

// untaken says why a topic took no event of a user's the last time, if that was just now.
func (l *Lane) untaken(topic string) string {
	t := cmp.Or(l.courier.targets[destination{topic, true}], l.courier.past[topic])
	if t == nil || l.time.Timer().Sub(t.failed) > failureProof {
		return ""
	}
	return t.why
}

// emittedBytes bounds what is delivered at a time, but for the event with which it is reached.
const emittedBytes = projections.OwedBytes

// nextToEmit finds what a topic is to be given next, at most limit: what is new, or else what is left
// once it is time, or at once: a topic that failed has pauses of its own.
func (l *Lane) nextToEmit(t *target, limit int, atOnce bool) (*Delivery, error) {
	d, err := l.toEmit(t.topic, t.next, l.courier.confirmed, limit)
	if len(d.Records) > 0 || err != nil {
		return d, err
	}
	left, now := &t.left, l.time.Timer()
	for {
		if left.at < 0 {
			if left.first < 0 || !atOnce && now.Before(left.again) {
				return d, nil
			}
			left.at, left.until, left.first = left.first, t.next, -1
		}
		if d, err = l.toEmit(t.topic, left.at, left.until, limit); len(d.Records) > 0 || err != nil {
			return d, err
		}
		left.at, left.again = -1, now.Add(eventPause)
	}
}

// toEmit finds what steps are to give a topic, at most limit: what is in the journal, from one offset up to
// another, and is not over yet, as far as was decided.
func (l *Lane) toEmit(topic string, from, to int64, limit int) (*Delivery, error) {
	d, env, size := &Delivery{Topic: topic}, l.env(), 0
	err := l.state.Emissions(topic, from, to, func(id, step string, seq uint64, at int64) (more bool, err error) {
		o, err := l.order(id)
		if o == nil || err != nil {
			return err == nil, err
		}
		s := o.Known(step)
		if s == nil || !decide.Emits(env, o, s) || s.Emits.Seq != seq { // it is over; the next may not be in the journal yet
			return true, nil
		}
		m := decide.Emission(l.topics, o, s)
		d.Records, d.emitted = append(d.Records, m.Envelope.Record(m.Topic, m.Value)), append(d.emitted, emission{id, step, seq, at})
		size += len(m.Value)
		return len(d.Records) < limit && size < emittedBytes, nil
	})
	return d, err
}

// emit gives a topic what steps emit, if there is room for that, or has them fail if it takes nothing.
func (l *Lane) emit(b Beside, t *target, under *atomic.Int64, room bool) error {
	why, limit := l.undeliverable(t), t.window
	if why != "" {
		limit = eventsAtOnce
	}
	d, err := l.nextToEmit(t, limit, why != "" || t.failures > 0)
	switch {
	case err != nil:
		return err
	case len(d.Records) == 0 && t.left.first < 0 && t.left.at < 0:
		l.courier.past[t.topic] = t
		delete(l.courier.targets, t.destination)
		return nil
	case len(d.Records) == 0: // what is left waits for its round
		return nil
	case why == "":
		if room {
			l.sends(b, t, d, under)
		}
		return nil
	}
	n := 0
	for ; n < len(d.emitted) && !l.full(); n++ {
		if err := l.decideEmitted(d.emitted[n], why); err != nil {
			return err
		}
	}
	if n > 0 {
		t.passes(d.emitted[0].at, d.emitted[n-1].at+1)
	}
	l.courier.looks(t)
	return nil
}

// passes goes on behind what was looked at.
func (t *target) passes(first, next int64) {
	if first < t.next {
		t.left.at = next
	} else {
		t.next = next
	}
}

// decideCame decides on what came of deliveries, as far as the batch has room: until then nothing more
// is given to these topics. What is wrong with a topic is not wrong with the event that it was not to
// take: that says so at once, and holds up no other.
func (l *Lane) decideCame() error {
	c := &l.courier
	for len(c.came) > 0 {
		t := c.came[0]
		h := t.came
		for ; t.decided < len(h.emitted); t.decided++ {
			over, why := h.outcome(t.decided)
			if !over {
				continue
			}
			if l.full() {
				return nil
			}
			if err := l.decideEmitted(h.emitted[t.decided], why); err != nil {
				return err
			}
		}
		c.came, t.came, t.decided = c.came[1:], nil, 0
		others, wrong := l.leaves(t, h)
		l.over(t, h, wrong, others)
	}
	return nil
}

// outcome says whether an event of a user's was taken, or refused for its own sake, and why.
func (h *Happened) outcome(i int) (over bool, refused string) {
	if h.untaken == nil || h.untaken[i] == nil {
		return true, ""
	}
	r, ok := errors.AsType[*UndeliverableError](h.untaken[i])
	if !ok || !r.Message || r.Batch {
		return false, ""
	}
	return true, r.Reason
}

// leaves goes on behind what was delivered, and leaves what was not taken to the next round. It says whether
// the topic may take others (it took some, or what it did not take was left before), and what was wrong. What was refused among others is the next, alone.
func (l *Lane) leaves(t *target, h *Happened) (others bool, wrong error) {
	next := h.emitted[len(h.emitted)-1].at + 1
	had := t.left.first >= 0
	for i, e := range h.emitted {
		if over, _ := h.outcome(i); over {
			continue
		}
		wrong = cmp.Or(wrong, h.untaken[i])
		if refused, ok := errors.AsType[*UndeliverableError](h.untaken[i]); ok && refused.Batch {
			wrong, next = h.untaken[i], e.at
			break
		}
		t.left.adds(e.at)
	}
	if !had && t.left.first >= 0 {
		t.left.again = l.time.Timer().Add(eventPause)
	}
	_, ofTopic := errors.AsType[*UndeliverableError](wrong)
	others = h.taken > 0 || t.failures == 0 && !ofTopic && h.emitted[0].at < t.next
	t.passes(h.emitted[0].at, next)
	return others, wrong
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
			l.current.emits[e.Topic] = true // again
		}
	}
}

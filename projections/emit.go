package projections

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-dev/waybill/events"
)

// Emission is an event of the user's that a step gives a topic of theirs, or gave: that of its last
// attempt. What it says is the step's input.
type Emission struct {
	Topic, Type string
	Key         string // empty: the order's id
	// Seq is the number of the event with which the attempt began, and At when that was.
	Seq uint64
	At  time.Time
}

// emit begins an attempt, as one of an agent's begins.
func emit(_ *Order, s *Step, e *events.Event) {
	s.start(e)
	s.Emits = &Emission{e.Topic, e.EventType, e.Key, e.Seq, events.Time(e.At)}
}

// Emitting is what a step is to give a topic now, nil if that is nothing: none of its attempts runs,
// or its order is held.
func (o *Order) Emitting(s *Step) *Emission {
	if s.State != Running || o.Hold != nil || o.State.Final() {
		return nil
	}
	return s.Emits
}

// emissions writes what steps emitted last.
func (w *writer) emissions(o *Order) {
	for i := range o.Steps {
		e := o.Steps[i].Emits
		if w.truth(e != nil); e != nil {
			w.text(e.Topic)
			w.text(e.Type)
			w.text(e.Key)
			w.uint(e.Seq)
			w.time(e.At)
		}
	}
}

// emissions reads what the writer's emissions wrote.
func (r *reader) emissions(o *Order) {
	for i := range o.Steps {
		if r.truth() {
			o.Steps[i].Emits = &Emission{r.text(), r.text(), r.text(), r.uint(), r.time()}
		}
	}
}

// indexEmission moves a step in the index of what is to be emitted. The offsets are those of all
// events of its order.
func (p *Partition) indexEmission(b *pebble.Batch, order, step string, offsets []byte, before, now *Emission) error {
	if before == nil && now == nil || before != nil && now != nil && before.Seq == now.Seq {
		return nil
	}
	at := journalOffsets(offsets)
	key := func(e *Emission) ([]byte, error) {
		if e.Seq < 1 || e.Seq > uint64(len(at)) {
			return nil, fmt.Errorf("%w: order %q emits by its event %d, and has %d", errDamaged, order, e.Seq, len(at))
		}
		return topicKey(p.id, kindEmission, e.Topic, at[e.Seq-1]), nil
	}
	if before != nil {
		k, err := key(before)
		if err != nil {
			return err
		}
		if err := b.Delete(k, nil); err != nil {
			return err
		}
	}
	if now == nil {
		return nil
	}
	k, err := key(now)
	if err != nil {
		return err
	}
	return b.Set(k, emissionValue(order, step, now.Seq), nil)
}

// Emissions tells of the steps that are to give a topic an event, of the number of the event with
// which the attempt began, and of its offset in the journal, as far as that was flushed, in the order of
// the journal from one offset up to another, until it is told to stop.
func (p *Partition) Emissions(topic string, from, to int64, tell func(order, step string, seq uint64, offset int64) (more bool, err error)) (err error) {
	it, err := p.store.db.NewIter(&pebble.IterOptions{LowerBound: topicKey(p.id, kindEmission, topic, from), UpperBound: topicKey(p.id, kindEmission, topic, to)})
	if err != nil {
		return damage(err)
	}
	defer func() {
		if closing := it.Close(); closing != nil && err == nil {
			err = damage(closing)
		}
	}()
	for it.First(); it.Valid(); it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return damage(err)
		}
		order, step, seq, ok := splitEmission(value)
		if !ok {
			return fmt.Errorf("%w: what is emitted to topic %q: %x", errDamaged, topic, value)
		}
		if more, err := tell(order, step, seq, offsetOfOwed(it.Key())); !more || err != nil {
			return err
		}
	}
	return nil
}

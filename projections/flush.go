package projections

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Unwritten is of how many orders Flush would write the state.
func (p *Partition) Unwritten() int { return len(p.dirty) }

// Flush writes what was folded since the last flush.
func (p *Partition) Flush() error {
	b := p.store.db.NewBatch()
	defer b.Close()
	var w writer
	for _, e := range p.dirty {
		if err := p.write(b, &w, e); err != nil {
			return fmt.Errorf("write the state store: %w", err)
		}
	}
	if err := p.settleOwed(b, &w); err != nil {
		return fmt.Errorf("write the state store: %w", err)
	}
	if err := p.settleSilent(b, &w); err != nil {
		return fmt.Errorf("write the state store: %w", err)
	}
	w.b = appendHead(w.b[:0], &p.head)
	if err := b.Set(prefix(p.id, kindHead), w.b, nil); err != nil {
		return fmt.Errorf("write the state store: %w", err)
	}
	if err := p.store.log.commit(b, pebble.NoSync); err != nil {
		return err
	}
	p.store.watches.tell(p)
	p.counts.mu.Lock()
	for _, e := range p.dirty {
		p.counts.now.moved(e.stored, e.order)
		switch o := e.order.written(); {
		case o.State.Final():
			e.order = o
			p.drop(e)
		case o != e.order:
			e.order = o
			p.weigh(e)
		}
		e.stored, e.dirty = e.order, false
	}
	p.counts.mu.Unlock()
	p.dirty = p.dirty[:0]
	clear(p.was[:cap(p.was)]) // they would keep orders
	clear(p.is[:cap(p.is)])
	clear(p.owed)
	p.owed = p.owed[:0]
	clear(p.delivered)
	clear(p.diverted)
	clear(p.silent)
	if share := p.share(); p.bytes > share {
		for _, e := range p.orders {
			if e.stays() {
				continue
			}
			if p.drop(e); p.bytes < share/2 {
				break
			}
		}
	}
	return nil
}

// write adds to b what differs between the order as stored and as folded.
func (p *Partition) write(b *pebble.Batch, w *writer, e *entry) error {
	o, old := e.order, e.stored
	if old == nil {
		old = &Order{}
	}
	if o.Forgotten {
		return p.writeForgotten(b, w, o, old, e.offsets)
	}
	w.b = appendRecord(w.b[:0], o)
	if err := p.writePayloads(b, w, o, old); err != nil {
		return err
	}
	offsets, err := p.writeItems(b, w, e, old)
	if err != nil {
		return err
	}
	w.b = append(w.b, offsets...)
	if err := p.writeSeats(b, w, o, old); err != nil {
		return err
	}
	if err := b.Set(orderKey(p.id, o.ID), w.b, nil); err != nil {
		return err
	}

	if o.Beside() {
		if err := p.indexApplied(b, o, old); err != nil {
			return err
		}
	} else if e.stored == nil || old.State != o.State {
		if e.stored != nil {
			if err := b.Delete(listingKey(p.id, old), nil); err != nil {
				return err
			}
		}
		if err := b.Set(listingKey(p.id, o), []byte(o.ID), nil); err != nil {
			return err
		}
	}

	if err := indexAlert(b, p.id, o.ID, old, o); err != nil {
		return err
	}
	if err := indexOpen(b, kindApproval, p.id, o.ID, old.ApprovingSince(), o.ApprovingSince()); err != nil {
		return err
	}
	if err := indexOpen(b, kindListens, p.id, o.ID, old.listensAt(), o.listensAt()); err != nil {
		return err
	}
	if err := indexLabels(b, p.id, o, old); err != nil {
		return err
	}
	if err := p.index(b, o.ID, "", old.Looked(), o.Looked(), old.mark(), o.mark()); err != nil {
		return err
	}
	for i := range old.Steps { // what a migration left out
		if s := &old.Steps[i]; o.at(i, s.Known()) == nil {
			if err := p.indexStep(b, s.Known(), e.offsets, old, o, s, nil); err != nil {
				return err
			}
		}
	}
	for i := range o.Steps {
		s := &o.Steps[i]
		if err := p.indexStep(b, s.Known(), e.offsets, old, o, old.at(i, s.Known()), s); err != nil {
			return err
		}
	}
	return nil
}

// at is the step that is known by that name, at place i unless a migration moved it.
func (o *Order) at(i int, known string) *Step {
	if i < len(o.Steps) && o.Steps[i].Known() == known {
		return &o.Steps[i]
	}
	return o.Known(known)
}

// indexStep moves a step in the indexes of deadlines and of what is emitted; nil is none.
func (p *Partition) indexStep(b *pebble.Batch, known string, offsets []byte, old, o *Order, before, now *Step) error {
	var from, to time.Time
	var was, is []byte
	var emitted, emits *Emission
	if before != nil {
		from, was, emitted = old.Attention(before), before.mark(), old.Emitting(before)
	}
	if now != nil {
		to, is, emits = o.Attention(now), now.mark(), o.Emitting(now)
	}
	if err := p.index(b, o.ID, known, from, to, was, is); err != nil {
		return err
	}
	return p.indexEmission(b, o.ID, known, offsets, emitted, emits)
}

// writeForgotten has nothing be left of an order but a few bytes, and of one that a schedule began nothing.
// The offsets are those of all its events.
func (p *Partition) writeForgotten(b *pebble.Batch, w *writer, o, old *Order, offsets []byte) error {
	var err error
	if o.Parent != nil {
		err = b.Delete(orderKey(p.id, o.ID), nil)
	} else {
		w.b = appendForgotten(w.b[:0], o)
		err = b.Set(orderKey(p.id, o.ID), w.b, nil)
	}
	if err != nil || old.ID == "" || old.Forgotten {
		return err
	}
	if old.Places != nil {
		if err := p.writeSeats(b, w, &Order{ID: o.ID, Places: new(Places)}, old); err != nil {
			return err
		}
	}
	if old.itemized() {
		if err := p.forgetItems(b, o.ID); err != nil {
			return err
		}
	}
	for _, payload := range payloads(old) {
		if len(payload.value()) > inlinePayload {
			if err := b.Delete(payloadKey(p.id, o.ID, payload.step, payload.part), nil); err != nil {
				return err
			}
		}
	}
	for i := range old.Steps {
		s := &old.Steps[i]
		if err := p.indexStep(b, s.Known(), offsets, old, o, s, nil); err != nil {
			return err
		}
	}
	return errors.Join(
		b.Delete(listingKey(p.id, old), nil),
		indexAlert(b, p.id, o.ID, old, new(Order)),
		indexOpen(b, kindApproval, p.id, o.ID, old.ApprovingSince(), time.Time{}),
		indexOpen(b, kindListens, p.id, o.ID, old.listensAt(), time.Time{}),
		indexLabels(b, p.id, o, old),
		p.index(b, o.ID, "", old.Looked(), time.Time{}, old.mark(), nil),
	)
}

// writePayloads adds the small payloads to the record, and the large ones that
// are new to b.
func (p *Partition) writePayloads(b *pebble.Batch, w *writer, o, old *Order) error {
	p.was, p.is = appendPayloads(p.was[:0], old), appendPayloads(p.is[:0], o)
	was, is := p.was, p.is
	for i, payload := range is {
		now := payload.value()
		w.uint(uint64(len(now)))
		before := payload.among(was, i)
		if len(now) <= inlinePayload {
			w.b = append(w.b, now...)
			if len(before) > inlinePayload { // an operator gave another input
				if err := b.Delete(payloadKey(p.id, o.ID, payload.step, payload.part), nil); err != nil {
					return err
				}
			}
			continue
		}
		if same(before, now) {
			continue
		}
		if err := b.Set(payloadKey(p.id, o.ID, payload.step, payload.part), now, nil); err != nil {
			return err
		}
	}
	for i, payload := range was { // released, or discarded, or heard, or left out by a migration
		if len(payload.value()) <= inlinePayload || payload.among(is, i) != nil {
			continue
		}
		if err := b.Delete(payloadKey(p.id, o.ID, payload.step, payload.part), nil); err != nil {
			return err
		}
	}
	return nil
}

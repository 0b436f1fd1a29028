package projections

import (
	"bytes"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-dev/waybill/events"
)

// Due is a step whose deadline has come, or with an empty Step an order.
type Due struct {
	Order, Step string
	At          time.Time
}

// Due returns the steps whose deadline is now or before, earliest first, at
// most limit of them, as of the last [Partition.Flush] (V2). What it costs
// follows what it returns, not what waits (V7): a time that was scanned to its
// end is not looked at again unless a deadline is set before it.
//
// The caller must handle all that it returns before it calls again.
func (p *Partition) Due(now time.Time, limit int) ([]Due, error) {
	end := deadlineBound(p.id, events.Time(now).Add(time.Millisecond))
	if bytes.Compare(p.scanned, end) >= 0 {
		return nil, nil
	}
	it, err := p.store.db.NewIter(&pebble.IterOptions{LowerBound: p.scanned, UpperBound: end})
	if err != nil {
		return nil, damage(err)
	}
	var due []Due
	for ok := it.First(); ok && len(due) < limit; ok = it.Next() {
		at, order, step, ok := splitDeadlineKey(it.Key())
		if !ok {
			return nil, fmt.Errorf("%w: deadline key %x (%v)", errDamaged, it.Key(), it.Close())
		}
		due = append(due, Due{Order: order, Step: step, At: at})
		p.scanned = append(bytes.Clone(it.Key()), 0) // the key after it
	}
	if err := it.Close(); err != nil {
		return nil, damage(err)
	}
	if len(due) < limit {
		p.scanned = end
	}
	return due, nil
}

// Deadlines returns the steps whose deadline is later than now, earliest first, at most
// limit of them, as of the last [Partition.Flush]: not those that sleep, listen, ask people, or are to be repeated.
func (p *Partition) Deadlines(now time.Time, limit int) ([]Due, error) {
	it, err := p.store.db.NewIter(&pebble.IterOptions{
		LowerBound: deadlineBound(p.id, events.Time(now).Add(time.Millisecond)), UpperBound: after(prefix(p.id, kindDeadline)),
	})
	if err != nil {
		return nil, damage(err)
	}
	var all []Due
	for ok := it.First(); ok && len(all) < limit; ok = it.Next() {
		if len(it.Value()) > 0 {
			continue
		}
		at, order, step, ok := splitDeadlineKey(it.Key())
		if !ok {
			return nil, fmt.Errorf("%w: deadline key %x (%v)", errDamaged, it.Key(), it.Close())
		}
		all = append(all, Due{Order: order, Step: step, At: at})
	}
	if err := it.Close(); err != nil {
		return nil, damage(err)
	}
	return all, nil
}

// Rescan makes the next [Partition.Due] look from the beginning. A new owner
// calls it: the last one may have been stopped between scan and commit.
func (p *Partition) Rescan() { p.scanned = prefix(p.id, kindDeadline) }

// index moves a deadline in the index. A zero time is none. The marks are what its key
// had, and has, as value.
func (p *Partition) index(b *pebble.Batch, order, step string, before, now time.Time, was, is []byte) error {
	if before.IsZero() && now.IsZero() {
		return nil
	}
	key := deadlineKey(p.id, now, order, step)
	if !now.IsZero() && bytes.Compare(key, p.scanned) < 0 {
		p.scanned = key
	}
	if now.Equal(before) && len(was) == len(is) {
		return nil
	}
	if !before.IsZero() {
		if err := b.Delete(deadlineKey(p.id, before, order, step), nil); err != nil {
			return err
		}
	}
	if now.IsZero() {
		return nil
	}
	return b.Set(key, is, nil)
}

// mark is [asleep] of a step that sleeps, listens, asks people, is to be repeated, or is done by another order,
// nil of others.
func (s *Step) mark() []byte {
	if s.State.Idle() || s.State == Repeating || s.Child != nil || s.Each != nil {
		return asleep
	}
	return nil
}

// mark is the same of an order as a whole, once it has ended, and of a record beside the orders.
func (o *Order) mark() []byte {
	if o.State.Final() || o.Beside() {
		return asleep
	}
	return nil
}

// asleep marks, among the deadlines, that nobody works until then, nor tries again.
var asleep = []byte{1}

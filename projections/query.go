package projections

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// ErrNotFound says that there is no order of this id.
var ErrNotFound = errors.New("no such order")

// ErrForgotten says that an order has ended, and is not kept any more.
var ErrForgotten = errors.New("the order has ended, and is not kept any more")

// record reads an order with its payloads, and the journal offsets behind it. Of a home of places it has the counts, and
// not the seats. Nil without error if there is none.
func (s *Store) record(r pebble.Reader, partition int32, id string) (*Order, []byte, error) {
	o, offsets, err := s.recordWith(r, partition, id, func(*Order, *payload) bool { return true })
	if err != nil || o == nil || !o.itemized() {
		return o, offsets, err
	}
	if err := s.readItems(r, partition, o); err != nil {
		return nil, nil, err
	}
	apart, err := s.offsetsApart(r, partition, o)
	return o, append(apart, offsets...), err
}

// Showing returns the state record of an order, of its payloads with what its steps show alone that
// wait for people who decide. It fails with [ErrNotFound].
func (s *Store) Showing(partition int32, id string) (*Order, error) {
	view := s.db.NewSnapshot()
	defer view.Close()
	o, _, err := s.recordWith(view, partition, id, func(o *Order, p *payload) bool {
		step := o.Known(p.step)
		return step != nil && p.at == &step.Input && step.State == Approving
	})
	if o == nil && err == nil {
		err = fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	if err == nil && o.Forgotten {
		return nil, forgotten(id)
	}
	return o, err
}

// recordWith is record with some of the payloads.
func (s *Store) recordWith(r pebble.Reader, partition int32, id string, wanted func(*Order, *payload) bool) (*Order, []byte, error) {
	b, err := s.get(r, orderKey(partition, id))
	if b == nil || err != nil {
		return nil, nil, err
	}
	o, rest, err := decodeRecord(id, b)
	if err != nil {
		return nil, nil, err
	}
	if o.Forgotten {
		return o, nil, nil
	}
	sizes := reader{b: rest}
	for _, payload := range payloads(o) {
		size := sizes.uint()
		if size == 0 {
			continue
		}
		var value []byte
		if size <= inlinePayload {
			value = sizes.bytes(int(size))
		} else if !wanted(o, &payload) {
			continue
		} else if value, err = s.get(r, payloadKey(partition, id, payload.step, payload.part)); err != nil {
			return nil, nil, err
		}
		if uint64(len(value)) != size {
			return nil, nil, fmt.Errorf("order %q, payload %q: %w: it has %d bytes of %d", id, payload.step+payload.part, errDamaged, len(value), size)
		}
		if payload.at == nil {
			return nil, nil, fmt.Errorf("order %q, payload %q: %w: its undo has not begun", id, payload.step+payload.part, errDamaged)
		}
		*payload.at = value
	}
	if sizes.err != nil {
		return nil, nil, fmt.Errorf("order %q: %w", id, sizes.err)
	}
	return o, sizes.b, nil
}

// Order returns the state record of an order, and the journal offsets of its
// events. Of a home of places it has how many have one, and wait, and not who: see [Partition.Order]. While the order is locked, LockedBy is the partition's owner of now.
// It fails with [ErrNotFound], and with [ErrForgotten], beside what is left of the order.
func (s *Store) Order(partition int32, id string) (*Order, []int64, error) {
	view := s.db.NewSnapshot()
	defer view.Close()
	o, journal, err := s.record(view, partition, id)
	if err != nil {
		return nil, nil, err
	}
	if o == nil {
		return nil, nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	if o.Forgotten {
		return o, nil, forgotten(id)
	}
	if err := s.lockedNow(view, partition, o); err != nil {
		return nil, nil, err
	}
	return o, journalOffsets(journal), nil
}

func forgotten(id string) error { return fmt.Errorf("%w: %q", ErrForgotten, id) }

// Journal returns the journal offsets of an order's events, but for the first so many of a schedule,
// which are in the journal alone. It fails with [ErrNotFound].
func (s *Store) Journal(partition int32, id string) (without uint64, _ []int64, err error) {
	view := s.db.NewSnapshot()
	defer view.Close()
	b, err := s.get(view, orderKey(partition, id))
	if err != nil {
		return 0, nil, err
	}
	if b == nil {
		return 0, nil, fmt.Errorf("%w: %q", ErrNotFound, id)
	}
	o, rest, err := decodeRecord(id, b)
	if err != nil {
		return 0, nil, err
	}
	if o.Forgotten {
		return 0, nil, forgotten(id)
	}
	r := reader{b: rest}
	for range payloads(o) {
		if size := r.uint(); 0 < size && size <= inlinePayload {
			r.bytes(int(size))
		}
	}
	if r.err != nil {
		return 0, nil, fmt.Errorf("order %q: %w", id, r.err)
	}
	apart, err := s.offsetsApart(view, partition, o)
	if err != nil {
		return 0, nil, err
	}
	offsets := journalOffsets(append(apart, r.b...))
	return o.Seq - uint64(len(offsets)), offsets, nil
}

func (s *Store) lockedNow(r pebble.Reader, partition int32, o *Order) error {
	if o.LockedBy == "" {
		return nil
	}
	head, err := s.head(r, partition)
	if err != nil {
		return err
	}
	o.LockedBy = head.Owner
	return nil
}

// Known says whether a partition was caught up since the store was opened, since its
// projection was thrown away and since it fell behind. Until then an order that is not in
// the store may be in the journal.
func (s *Store) Known(partition int32) bool {
	_, known := s.known.Load(partition)
	return known
}

// Head returns the head of a partition.
func (s *Store) Head(partition int32) (Head, error) { return s.head(s.db, partition) }

// Heads returns the heads of the partitions below partitions.
func (s *Store) Heads(partitions int32) ([]Head, error) {
	heads := make([]Head, partitions)
	for p := range partitions {
		head, err := s.head(s.db, p)
		if err != nil {
			return nil, err
		}
		heads[p] = head
	}
	return heads, nil
}

// Dump calls yield with every key of a partition and its value, in order, as
// of one moment, after it called begin with the [Head] of that moment. Two
// stores at the same journal offset have the same keys and values.
func (s *Store) Dump(partition int32, begin func(Head) error, yield func(key, value []byte) error) error {
	view := s.db.NewSnapshot()
	defer view.Close()
	head, err := s.head(view, partition)
	if err != nil {
		return err
	}
	if err := begin(head); err != nil {
		return err
	}
	from := prefix(partition, 0)
	it, err := view.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: after(from[:4])})
	if err != nil {
		return damage(err)
	}
	for ok := it.First(); ok; ok = it.Next() {
		if err := yield(it.Key(), it.Value()); err != nil {
			return errors.Join(err, it.Close())
		}
	}
	if err := it.Close(); err != nil {
		return damage(err)
	}
	return nil
}

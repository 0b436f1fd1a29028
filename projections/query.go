package projections

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// ErrNotFound says that there is no order of this id.
var ErrNotFound = errors.New("no such order")

// record reads an order with its payloads, and the journal offsets behind it.
// Nil without error if there is none.
func (s *Store) record(r pebble.Reader, partition int32, id string) (*Order, []byte, error) {
	b, err := s.get(r, orderKey(partition, id))
	if b == nil || err != nil {
		return nil, nil, err
	}
	o, rest, err := decodeRecord(id, b)
	if err != nil {
		return nil, nil, err
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
// events. While the order is locked, LockedBy is the partition's owner of now.
// It fails with [ErrNotFound].
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
	if err := s.lockedNow(view, partition, o); err != nil {
		return nil, nil, err
	}
	return o, journalOffsets(journal), nil
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

// Filter selects orders. Its zero value selects all.
type Filter struct {
	State    State
	Workflow string
	// Step selects orders of which this step failed, or its undo.
	Step string
	// Without are partitions to pass over.
	Without []int32
	// Limit is how many orders to return at most; 0 means 100.
	Limit int
	// After goes on behind the place that [Page.Next] gave.
	After []byte
}

// Page is a part of a listing.
type Page struct {
	Orders []*Order
	// Next is where the next page begins, nil when there is none.
	Next []byte
}

// List returns orders of all partitions below partitions: partition by
// partition, in each by state and workflow, newest first.
func (s *Store) List(partitions int32, f Filter) (Page, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	view := s.db.NewSnapshot()
	defer view.Close()
	var page Page
	for p := range partitions {
		if slices.Contains(f.Without, p) {
			continue
		}
		from := prefix(p, kindListing)
		switch {
		case f.State != "" && f.Workflow != "":
			from = listingPrefix(p, f.State, f.Workflow)
		case f.State != "":
			from = append(append(from, f.State...), 0)
		}
		end := after(from)
		if len(f.After) > 0 {
			if bytes.Compare(f.After, end) >= 0 {
				continue
			}
			if bytes.Compare(f.After, from) > 0 {
				from = f.After
			}
		}
		full, err := s.list(view, p, from, end, &f, &page)
		if full || err != nil {
			return page, err
		}
	}
	return page, nil
}

func (s *Store) list(view *pebble.Snapshot, p int32, from, end []byte, f *Filter, page *Page) (full bool, err error) {
	it, err := view.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: end})
	if err != nil {
		return false, damage(err)
	}
	defer func() {
		if closeErr := it.Close(); closeErr != nil && err == nil {
			err = damage(closeErr)
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		id := string(it.Value())
		workflow, ok := listedWorkflow(it.Key(), id)
		if !ok {
			return false, fmt.Errorf("%w: listing key %x", errDamaged, it.Key())
		}
		if f.Workflow != "" && workflow != f.Workflow {
			continue
		}
		if len(page.Orders) == f.Limit {
			page.Next = bytes.Clone(it.Key())
			return true, nil
		}
		o, _, err := s.record(view, p, id)
		if err != nil {
			return false, err
		}
		if o == nil {
			return false, fmt.Errorf("%w: order %q is listed but not there", errDamaged, id)
		}
		if f.Step != "" && !o.brokenAt(f.Step) {
			continue
		}
		if err := s.lockedNow(view, p, o); err != nil {
			return false, err
		}
		page.Orders = append(page.Orders, o)
	}
	return false, nil
}

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

package projections

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Filter selects orders. Its zero value selects all.
type Filter struct {
	State    State
	Workflow string
	// Open leaves out those of the workflow that have ended.
	Open bool
	// Step selects orders of which this step failed, or its undo.
	Step string
	// Since and Until are the first and the last time at which an order may have changed last; zero is any.
	Since, Until time.Time
	// Newest has them come by when they were accepted, the newest first, whatever partition and state they are in. It takes a
	// Workflow, and no Labels.
	Newest bool
	// Labels selects orders that have all of them. They come by workflow, newest first.
	Labels map[string]string
	// Without are partitions to pass over.
	Without []int32
	// Visible says of which workflows orders are selected, nil of all. The orders of others
	// are passed over, at no cost, and no place on a page is theirs.
	Visible func(workflow string) bool
	// Limit is how many orders to return at most; 0 means 100.
	Limit int
	// After goes on behind the place that [Page.Next] gave to the same filter: see [ErrPlace].
	After []byte
}

// Page is a part of a listing. It may have fewer orders than asked for, or none,
// though more follow: it ends where enough was looked at.
type Page struct {
	// Orders are without their payloads.
	Orders []*Order
	// Next is where the next page begins, nil when there is none.
	Next []byte
}

// A page ends once it has cost so much, whatever it has found: other callers have
// their turn, and what it holds in memory is bounded.
const (
	pageKeys  = 10_000  // that are looked at
	pageBytes = 4 << 20 // of records that are read
)

// summaries reads orders without their payloads, for one page.
type summaries struct {
	s     *Store
	view  *pebble.Snapshot
	heads map[int32]Head
	most  int // keys
	keys  int
	bytes int
}

func (s *Store) summaries() *summaries {
	return &summaries{s: s, view: s.db.NewSnapshot(), heads: make(map[int32]Head), most: pageKeys}
}

// enough says that the page has cost what it may.
func (r *summaries) enough() bool { return r.keys >= r.most || r.bytes >= pageBytes }

// order reads an order that an index names.
func (r *summaries) order(partition int32, id string) (o *Order, err error) {
	value, closer, err := r.view.Get(orderKey(partition, id))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, fmt.Errorf("%w: order %q is listed but not there", errDamaged, id)
	}
	if err != nil {
		return nil, damage(err)
	}
	defer func() { err = errors.Join(err, closer.Close()) }()
	r.bytes += len(value)
	o, _, err = decodeRecord(id, value)
	if err != nil || o.LockedBy == "" {
		return o, err
	}
	head, ok := r.heads[partition]
	if !ok {
		if head, err = r.s.head(r.view, partition); err != nil {
			return nil, err
		}
		r.heads[partition] = head
	}
	o.LockedBy = head.Owner
	return o, nil
}

// ErrPlace says that no page of such a list gave the place behind which it is to go on.
var ErrPlace = errors.New("no page gave the place")

// checkPlace fails with [ErrPlace] for a place that is no key of a kind in any of so many partitions.
func checkPlace(place []byte, partitions int32, kind byte) error {
	const head = 4 + 1
	if len(place) > 0 && (len(place) <= head || binary.BigEndian.Uint32(place) >= uint32(partitions) || place[4] != kind) {
		return ErrPlace
	}
	return nil
}

// checkPlace fails with [ErrPlace] for an After that no page of the filter gave.
func (f *Filter) checkPlace(partitions int32) error {
	switch {
	case f.Newest: // when an order was accepted, and its id
		if n := len(f.After); n > 0 && (n <= 8 || f.After[0] != 0xff) {
			return ErrPlace
		}
		return nil
	case len(f.Labels) > 0:
		return checkPlace(f.After, partitions, kindLabel)
	}
	return checkPlace(f.After, partitions, kindListing)
}

// List returns orders of all partitions below partitions: partition by
// partition, in each by state and workflow, newest first; with labels by workflow. It ends
// with ctx, and fails with [ErrPlace] if no page gave the place that it is to go on behind.
func (s *Store) List(ctx context.Context, partitions int32, f Filter) (page Page, err error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	if err := f.checkPlace(partitions); err != nil {
		return Page{}, err
	}
	read := s.summaries()
	defer read.view.Close()
	it, err := read.view.NewIter(nil)
	if err != nil {
		return Page{}, damage(err)
	}
	defer func() {
		if closing := it.Close(); closing != nil && err == nil {
			err = damage(closing)
		}
	}()
	if f.Newest {
		err := read.newest(ctx, partitions, it, &f, &page)
		return page, err
	}
	for p := range partitions {
		if slices.Contains(f.Without, p) {
			continue
		}
		if len(f.Labels) > 0 {
			full, err := read.find(ctx, p, it, &f, &page)
			if full || err != nil {
				return page, err
			}
			continue
		}
		for _, from := range f.ranges(p) {
			end := after(from)
			if bytes.Compare(f.After, end) >= 0 {
				continue
			}
			if bytes.Compare(f.After, from) > 0 {
				from = f.After
			}
			if err := ctx.Err(); err != nil {
				return page, err
			}
			it.SetBounds(from, end)
			full, err := read.list(ctx, p, it, &f, &page)
			if full || err != nil {
				return page, err
			}
		}
	}
	return page, nil
}

// ranges are the beginnings of the listing keys of a partition that the filter
// selects, in their order.
func (f *Filter) ranges(partition int32) [][]byte {
	all := prefix(partition, kindListing)
	switch {
	case f.State != "" && f.Workflow != "":
		return [][]byte{listingPrefix(partition, f.State, f.Workflow)}
	case f.State != "":
		return [][]byte{append(append(all, f.State...), 0)}
	case f.Workflow != "":
		var each [][]byte
		for _, state := range slices.Sorted(slices.Values(States)) {
			if f.Open && state.Final() {
				continue
			}
			each = append(each, listingPrefix(partition, state, f.Workflow))
		}
		return each
	}
	return [][]byte{all}
}

func (r *summaries) list(ctx context.Context, p int32, it *pebble.Iterator, f *Filter, page *Page) (full bool, _ error) {
	var hidden, later []byte // how the keys begin that are passed over, and where those begin again that are not
	next := func() bool {
		if later != nil {
			from := later
			later = nil
			return it.SeekGE(from)
		}
		if hidden == nil {
			return it.Next()
		}
		end := after(hidden)
		hidden = nil
		return it.SeekGE(end)
	}
	for ok := it.First(); ok; ok = next() {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		id := string(it.Value())
		workflow, ok := listedWorkflow(it.Key(), id)
		if !ok {
			return false, fmt.Errorf("%w: listing key %x", errDamaged, it.Key())
		}
		if f.Visible != nil && !f.Visible(workflow) {
			hidden = it.Key()[:len(it.Key())-len(id)-8]
			continue
		}
		if len(page.Orders) == f.Limit || r.enough() {
			page.Next = bytes.Clone(it.Key())
			return true, nil
		}
		r.keys++
		if within := it.Key()[:len(it.Key())-len(id)-8]; f.acceptedLater(it.Key()[len(within):]) {
			later = binary.BigEndian.AppendUint64(bytes.Clone(within), newestUntil(f.Until))
			continue
		}
		if f.Workflow != "" && workflow != f.Workflow { // one with a NUL may begin as it does
			continue
		}
		o, err := r.order(p, id)
		if err != nil {
			return false, err
		}
		if !bytes.Equal(listingKey(p, o), it.Key()) {
			return false, fmt.Errorf("%w: order %q is listed as another", errDamaged, id)
		}
		if !f.looked(o) {
			continue
		}
		page.Orders = append(page.Orders, o)
	}
	if err := it.Error(); err != nil {
		return false, damage(err)
	}
	return false, nil
}

// looked says whether the filter selects an order that its index lists, by what only the record says.
func (f *Filter) looked(o *Order) bool {
	return (f.Step == "" || o.standsAt(f.Step)) && !o.UpdatedAt.Before(f.Since) && (f.Until.IsZero() || !o.UpdatedAt.After(f.Until))
}

// acceptedLater says whether what a listing key has of when its order was accepted is behind Until: then the order changed
// behind that, too.
func (f *Filter) acceptedLater(place []byte) bool {
	return !f.Until.IsZero() && binary.BigEndian.Uint64(place) < newestUntil(f.Until)
}

// newestUntil is what listing keys have of the orders that were accepted at a time.
func newestUntil(at time.Time) uint64 { return ^uint64(at.UnixMilli()) }

// newest adds to the page the orders of a workflow, newest first: of the lists of all partitions and states it takes the
// first that comes. A page begins with a look at each list, and costs one more for each order.
func (r *summaries) newest(ctx context.Context, partitions int32, it *pebble.Iterator, f *Filter, page *Page) error {
	if f.Visible != nil && !f.Visible(f.Workflow) {
		return nil
	}
	type list struct {
		partition   int32
		from, place []byte // how its keys begin, and what follows in the next of them
		id          string
	}
	var lists []*list
	// next has a list be at its first order that is not before a place.
	next := func(l *list, place []byte) (more bool, _ error) {
		for ok := it.SeekGE(slices.Concat(l.from, place)); ok && bytes.HasPrefix(it.Key(), l.from); ok = it.Next() {
			r.keys++
			l.id = string(it.Value())
			workflow, ok := listedWorkflow(it.Key(), l.id)
			if !ok {
				return false, fmt.Errorf("%w: listing key %x", errDamaged, it.Key())
			}
			if workflow == f.Workflow { // one with a NUL may begin as it does
				l.place = bytes.Clone(it.Key()[len(l.from):])
				return true, nil
			}
		}
		if err := it.Error(); err != nil {
			return false, damage(err)
		}
		return false, nil
	}
	begin := f.After
	if len(begin) == 0 && !f.Until.IsZero() {
		begin = binary.BigEndian.AppendUint64(nil, newestUntil(f.Until))
	}
	for p := range partitions {
		if slices.Contains(f.Without, p) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, from := range f.ranges(p) {
			l := &list{partition: p, from: from}
			if more, err := next(l, begin); err != nil {
				return err
			} else if more {
				lists = append(lists, l)
			}
		}
	}
	r.keys = 0 // what a page must cost
	for len(lists) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		l := slices.MinFunc(lists, func(a, b *list) int { return bytes.Compare(a.place, b.place) })
		if len(page.Orders) == f.Limit || r.enough() {
			page.Next = l.place
			return nil
		}
		o, err := r.order(l.partition, l.id)
		if err != nil {
			return err
		}
		if !bytes.Equal(listingKey(l.partition, o), slices.Concat(l.from, l.place)) {
			return fmt.Errorf("%w: order %q is listed as another", errDamaged, l.id)
		}
		if f.looked(o) {
			page.Orders = append(page.Orders, o)
		}
		switch more, err := next(l, append(l.place, 0)); {
		case err != nil:
			return err
		case !more:
			lists = slices.DeleteFunc(lists, func(other *list) bool { return other == l })
		}
	}
	return nil
}

// countKeys is how many keys a count looks at.
const countKeys = 100_000

// Count says how many orders a filter selects, its places aside, and whether there may be more. How many of a state have not
// ended is known ([Store.Counts]); others are counted, up to 100000, and where their records are to be read, as many as a page
// may read. It ends with ctx.
func (s *Store) Count(ctx context.Context, partitions int32, f Filter) (n int, more bool, err error) {
	return s.countUpTo(ctx, countKeys, partitions, f)
}

// countUpTo is [Store.Count] with another bound.
func (s *Store) countUpTo(ctx context.Context, most int, partitions int32, f Filter) (n int, more bool, err error) {
	if f.Step != "" || len(f.Labels) > 0 || !f.Since.IsZero() || !f.Until.IsZero() {
		f.Limit, f.After, f.Newest = pageKeys, nil, false
		page, err := s.List(ctx, partitions, f)
		return len(page.Orders), page.Next != nil, err
	}
	view := s.db.NewSnapshot()
	defer view.Close()
	it, err := view.NewIter(nil)
	if err != nil {
		return 0, false, damage(err)
	}
	defer func() {
		if closing := it.Close(); closing != nil && err == nil {
			err = damage(closing)
		}
	}()
	looked := 0
	for p := range partitions {
		if slices.Contains(f.Without, p) {
			continue
		}
		counts, known := s.Counts(p)
		for which, of := range counts.Orders {
			if known && f.Selects(&Order{State: which.State, Workflow: which.Workflow}) {
				n += of
			}
		}
		for _, state := range States {
			if f.State != "" && f.State != state || known && !state.Final() || f.Open && state.Final() {
				continue
			}
			from := append(append(prefix(p, kindListing), state...), 0)
			if f.Workflow != "" {
				from = listingPrefix(p, state, f.Workflow)
			}
			it.SetBounds(from, after(from))
			for ok := it.First(); ok; {
				if err := ctx.Err(); err != nil {
					return 0, false, err
				}
				if looked++; looked > most {
					return n, true, nil
				}
				workflow, listed := listedWorkflow(it.Key(), string(it.Value()))
				switch {
				case !listed:
					return 0, false, fmt.Errorf("%w: listing key %x", errDamaged, it.Key())
				case f.Visible != nil && !f.Visible(workflow):
					ok = it.SeekGE(after(listingPrefix(p, state, workflow)))
					continue
				case f.Workflow == "" || workflow == f.Workflow:
					n++
				}
				ok = it.Next()
			}
			if err := it.Error(); err != nil {
				return 0, false, damage(err)
			}
		}
	}
	return n, false, nil
}

// Selects says whether the filter selects an order, its places aside: Without, Limit and After.
func (f *Filter) Selects(o *Order) bool {
	return (f.State == "" || o.State == f.State) && (f.Workflow == "" || o.Workflow == f.Workflow) && (!f.Open || !o.State.Final()) &&
		f.looked(o) && o.has(f.Labels) && (f.Visible == nil || f.Visible(o.Workflow))
}

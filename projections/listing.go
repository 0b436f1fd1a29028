package projections

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

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
	// Labels selects orders that have all of them. They come by workflow, newest first.
	Labels map[string]string
	// Without are partitions to pass over.
	Without []int32
	// Visible says of which workflows orders are selected, nil of all. The orders of others
	// are passed over, at no cost, and no place on a page is theirs.
	Visible func(workflow string) bool
	// Limit is how many orders to return at most; 0 means 100.
	Limit int
	// After goes on behind the place that [Page.Next] gave.
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
	keys  int
	bytes int
}

func (s *Store) summaries() *summaries {
	return &summaries{s: s, view: s.db.NewSnapshot(), heads: make(map[int32]Head)}
}

// enough says that the page has cost what it may.
func (r *summaries) enough() bool { return r.keys >= pageKeys || r.bytes >= pageBytes }

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

// List returns orders of all partitions below partitions: partition by
// partition, in each by state and workflow, newest first; with labels by workflow. It ends
// with ctx.
func (s *Store) List(ctx context.Context, partitions int32, f Filter) (page Page, err error) {
	if f.Limit <= 0 {
		f.Limit = 100
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
	var hidden []byte // how the keys begin that are passed over
	next := func() bool {
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
		if f.Step != "" && !o.standsAt(f.Step) {
			continue
		}
		page.Orders = append(page.Orders, o)
	}
	if err := it.Error(); err != nil {
		return false, damage(err)
	}
	return false, nil
}

// Selects says whether the filter selects an order, its places aside: Without, Limit and After.
func (f *Filter) Selects(o *Order) bool {
	return (f.State == "" || o.State == f.State) && (f.Workflow == "" || o.Workflow == f.Workflow) && (!f.Open || !o.State.Final()) &&
		(f.Step == "" || o.standsAt(f.Step)) && o.has(f.Labels) && (f.Visible == nil || f.Visible(o.Workflow))
}

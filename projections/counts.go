package projections

import (
	"bytes"
	"errors"
	"maps"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// Counts is how much of a partition waits, as of its last [Partition.Flush].
type Counts struct {
	// Orders are how many have not ended, of each workflow and state.
	Orders map[Standing]int
	// Alerts are how many are open, Approvals how many orders wait for people to decide, and Held how many are held, limits, schedules and homes of keys among them.
	Alerts, Approvals, Held int
}

// Standing is a state in which orders of a workflow are.
type Standing struct {
	Workflow string
	State    State
}

// Add adds those of another partition.
func (c *Counts) Add(other Counts) {
	if c.Orders == nil {
		c.Orders = make(map[Standing]int)
	}
	for which, n := range other.Orders {
		if c.Orders[which] += n; c.Orders[which] == 0 {
			delete(c.Orders, which)
		}
	}
	c.Alerts, c.Approvals, c.Held = c.Alerts+other.Alerts, c.Approvals+other.Approvals, c.Held+other.Held
}

// counts are kept as flushes change them. What was there before is counted beside that, once,
// and takes as long as there are orders that have not ended.
type counts struct {
	mu    sync.Mutex
	now   Counts
	known bool // what was there before is among them
}

// Counts returns those of a partition, and false as long as they are not known: nobody has it
// open, or what it has is being counted. It costs nothing, however much there is.
func (s *Store) Counts(partition int32) (sum Counts, known bool) {
	of, open := s.counts.Load(partition)
	if !open {
		return sum, false
	}
	c := of.(*counts) //nolint:forcetypeassert // nothing else is stored
	c.mu.Lock()
	defer c.mu.Unlock()
	sum = c.now
	sum.Orders = maps.Clone(sum.Orders)
	return sum, c.known
}

// count begins to keep the counts of a partition that is as it is now.
func (p *Partition) count() {
	s, id, c := p.store, p.id, &counts{now: Counts{Orders: make(map[Standing]int)}}
	p.counts = c
	s.counts.Store(id, c)
	view := s.db.NewSnapshot()
	s.counting.RLock()
	go func() {
		defer s.counting.RUnlock()
		defer view.Close()
		before, err := s.countIn(view, id)
		if err != nil { // it is damaged, or closed
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now.Add(before)
		c.known = true
	}()
}

// countIn counts what the indexes of a partition list.
func (s *Store) countIn(view *pebble.Snapshot, partition int32) (sum Counts, err error) {
	sum.Orders = make(map[Standing]int)
	each := func(from []byte, key func(k, value []byte)) error {
		it, err := view.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: after(from)})
		if err != nil {
			return damage(err)
		}
		for ok := it.First(); ok; ok = it.Next() {
			if s.closing.Load() {
				_ = it.Close() // nobody waits for what it found
				return pebble.ErrClosed
			}
			key(it.Key(), it.Value())
		}
		return it.Close()
	}
	for _, state := range States {
		if state.Final() {
			continue
		}
		var workflow []byte // they stand side by side
		n, from := 0, append(append(prefix(partition, kindListing), state...), 0)
		note := func() {
			if n > 0 {
				sum.Orders[Standing{string(workflow), state}] = n
			}
		}
		err := each(from, func(k, _ []byte) {
			is, _, _ := bytes.Cut(k[len(from):], []byte{0})
			if !bytes.Equal(is, workflow) {
				note()
				workflow, n = bytes.Clone(is), 0
			}
			n++
		})
		if note(); err != nil {
			return sum, err
		}
	}
	return sum, errors.Join(
		each(prefix(partition, kindAlert), func(_, held []byte) {
			if sum.Alerts++; len(held) > 0 {
				sum.Held++
			}
		}),
		each(prefix(partition, kindApproval), func(_, _ []byte) { sum.Approvals++ }),
	)
}

// moved counts an order as it is, and no more as it was written before, nil if it was not.
func (c *Counts) moved(was, is *Order) {
	c.has(was, -1)
	c.has(is, 1)
}

func (c *Counts) has(o *Order, n int) {
	if o == nil {
		return
	}
	if !o.Beside() && !o.Forgotten && !o.State.Final() { // a home that is forgotten has not ended
		which := Standing{o.Workflow, o.State}
		if c.Orders[which] += n; c.Orders[which] == 0 {
			delete(c.Orders, which)
		}
	}
	if !o.alertedAt().IsZero() {
		c.Alerts += n
	}
	if !o.ApprovingSince().IsZero() {
		c.Approvals += n
	}
	if o.held() {
		c.Held += n
	}
}

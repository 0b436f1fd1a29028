package projections

import "sync"

// feedBytes is how much of what was written a feed holds at most, roughly, until somebody takes it.
const feedBytes = 32 << 20

// Feed has which orders are written to the store, of all partitions that are known ([Store.Known]). Whoever writes does no
// more for it than to note them: what is not taken in time is lost, and the feed says so. Make it with [Store.Feed], before
// orders are looked at, and close it.
type Feed struct {
	// Written has one if there is something to take since it was received from last.
	Written <-chan struct{}

	written chan struct{}
	store   *Store

	mu    sync.Mutex
	noted []noted
	bytes int
	lost  bool
}

// noted is an order in memory as a flush wrote it, and as it was written before.
type noted struct {
	was, is *Order
	owner   string
}

// Change is an order that was written, as listings have it: without its payloads.
type Change struct {
	// Was is how it was written before, nil if it was not there.
	Was *Order
	// Is is how it is, nil if it is not kept any more.
	Is *Order
	// Size is how many bytes the two take, roughly.
	Size int
}

// Feed tells of all orders.
func (s *Store) Feed() *Feed {
	f := &Feed{written: make(chan struct{}, 1), store: s}
	f.Written = f.written
	all := &s.watches
	all.some.Add(1)
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.feeds == nil {
		all.feeds = make(map[*Feed]struct{})
	}
	all.feeds[f] = struct{}{}
	return f
}

// Close ends the feed.
func (f *Feed) Close() {
	all := &f.store.watches
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.feeds, f)
	all.some.Add(-1)
}

// add notes what a flush has written. Of a partition that is not known nothing is told: once it is, all of it is lost.
func (f *Feed) add(p *Partition) {
	if !f.store.Known(p.id) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range p.dirty {
		if e.order.Beside() || e.order.Forgotten && e.stored != nil && e.stored.Beside() || f.lost {
			continue
		}
		if f.bytes += e.weighs; f.bytes > feedBytes {
			f.drop()
			continue
		}
		f.noted = append(f.noted, noted{e.stored, e.order, p.head.Owner})
	}
	ring(f.written)
}

// drop loses what was noted, and what comes before that was heard.
func (f *Feed) drop() { f.noted, f.bytes, f.lost = nil, 0, true }

// lose has all feeds lose what they have: what is known changes.
func (all *watches) lose() {
	if all.some.Load() == 0 {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	for f := range all.feeds {
		f.mu.Lock()
		f.drop()
		f.mu.Unlock()
		ring(f.written)
	}
}

// Take returns what was written since the last time, in the order in which it was, and whether something was lost before
// that: then orders may have changed of which nothing was told. Only one may call it at a time.
func (f *Feed) Take() (changes []Change, lost bool) {
	f.mu.Lock()
	all, lost := f.noted, f.lost
	f.noted, f.bytes, f.lost = nil, 0, false
	f.mu.Unlock()
	for _, n := range all {
		var c Change
		for _, one := range []struct {
			from *Order
			to   **Order
		}{{n.was, &c.Was}, {n.is, &c.Is}} {
			if one.from == nil || one.from.Forgotten {
				continue
			}
			record := appendRecord(nil, one.from)
			listed, _, err := decodeRecord(one.from.ID, record)
			if err != nil { // it would not be readable in the store, either
				lost = true
				continue
			}
			if listed.LockedBy != "" {
				listed.LockedBy = n.owner
			}
			*one.to = listed
			c.Size += 512 + len(record)
		}
		changes = append(changes, c)
	}
	return changes, lost
}

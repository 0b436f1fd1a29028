package projections

import (
	"sync"
	"sync/atomic"
)

// Watch says that an order was written to the store. Make it with [Store.Watch], before the order is looked at, and
// close it.
type Watch struct {
	// Written has one if the order was written since it was received from last.
	Written <-chan struct{}

	written chan struct{}
	store   *Store
	of      watched
}

type watched struct {
	partition int32
	order     string
}

// watches are those of a store. Who writes tells them, and waits for nobody: a flush takes a lock, which is held for
// moments, once for all of its orders, and where nobody watches it looks at a counter.
type watches struct {
	some atomic.Int64

	mu    sync.Mutex
	of    map[watched]map[*Watch]struct{}
	feeds map[*Feed]struct{}
}

// Watch tells of an order, which need not be there yet.
func (s *Store) Watch(partition int32, order string) *Watch {
	w := &Watch{written: make(chan struct{}, 1), store: s, of: watched{partition, order}}
	w.Written = w.written
	all := &s.watches
	all.some.Add(1)
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.of == nil {
		all.of = make(map[watched]map[*Watch]struct{})
	}
	if all.of[w.of] == nil {
		all.of[w.of] = make(map[*Watch]struct{})
	}
	all.of[w.of][w] = struct{}{}
	return w
}

// Close ends the watch.
func (w *Watch) Close() {
	all := &w.store.watches
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.of[w.of], w)
	if len(all.of[w.of]) == 0 {
		delete(all.of, w.of)
	}
	all.some.Add(-1)
}

// tell tells of orders of a partition that readers of the store see by now. Who begins to watch after the counter was
// looked at sees them, too.
func (all *watches) tell(p *Partition) {
	if all.some.Load() == 0 {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if len(all.of) > 0 {
		for _, e := range p.dirty {
			for w := range all.of[watched{p.id, e.order.ID}] {
				ring(w.written)
			}
		}
	}
	for f := range all.feeds {
		f.add(p)
	}
}

// ring tells somebody who was perhaps told already.
func ring(written chan<- struct{}) {
	select {
	case written <- struct{}{}:
	default:
	}
}

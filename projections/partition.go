package projections

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// cacheLimit bounds the bytes of records that a store's partitions keep in memory
// all together, each of them its share, but for who has places of limits, and waits.
const cacheLimit = 256 << 20

// Partition is the single writer of one partition's projection. It folds whole
// transactions into orders in memory, and writes to the store only the last
// state of each order since the flush before, in one batch with the [Head]: an
// order that runs through quickly is written once or twice. Not safe for
// concurrent use; readers use the [Store].
type Partition struct {
	store *Store
	id    int32
	head  Head

	orders map[string]*entry
	bytes  int // roughly, of what orders holds
	dirty  []*entry
	// age counts the releases, and releasing says that the last one goes on.
	age       int
	releasing bool
	// was and is are of writePayloads, which uses them again within a flush.
	was, is []payload

	// unsealed are the events of a transaction whose seal has not come yet.
	unsealed []unsealed

	// owed, up to where topics have it, and what the namespace's has instead, since the last flush.
	owed      []Owed
	delivered map[string]int64
	diverted  map[row]bool

	// silent says of agents since when they are, zero if they are not, as far as that changed
	// since the last flush.
	silent map[string]time.Time

	counts *counts

	// scanned is the first key of the deadline index that was not looked at;
	// before it is nothing that is not handled.
	scanned []byte
}

// entry is an order in memory.
type entry struct {
	order  *Order // as folded
	stored *Order // as written last; nil if it never was
	// offsets are where the order's events stand in the journal, see
	// [appendOffset].
	offsets    []byte
	lastOffset int64
	apart      int // how many bytes of them are not in the record
	dirty      bool
	asked      int // in which of the partition's ages that was last
	weighs     int // its size as the partition counts it
}

// Partition returns the writer of partition id, at the point to which the
// store has been folded. There must be only one at a time.
func (s *Store) Partition(id int32) (*Partition, error) {
	p := &Partition{store: s, id: id, orders: make(map[string]*entry)}
	p.Rescan()
	head, err := s.head(s.db, id)
	if err != nil {
		return nil, err
	}
	p.head = head
	p.count()
	s.partitions.Add(1)
	return p, nil
}

// CaughtUp notes that the partition was folded up to where its journal ended at some
// time since the store was opened. See [Store.Known].
func (p *Partition) CaughtUp() {
	if _, was := p.store.known.Swap(p.id, true); !was {
		p.store.watches.lose()
	}
}

// FellBehind notes that the partition is not folded any more up to where its journal ends,
// and says whether it was until now.
func (p *Partition) FellBehind() (was bool) {
	if _, was = p.store.known.LoadAndDelete(p.id); was {
		p.store.watches.lose()
	}
	return was
}

// Head returns how far the partition was folded.
func (p *Partition) Head() Head { return p.head }

// Order returns the folded order, nil if there is none of this id. The result
// must not be changed.
func (p *Partition) Order(id string) (*Order, error) {
	e, err := p.load(id)
	if e == nil || err != nil {
		return nil, err
	}
	return e.order, nil
}

// Peek is [Partition.Order] for who looks at many: it keeps none of them in memory. Of a home of places that is not there
// it has the counts alone.
func (p *Partition) Peek(id string) (*Order, error) {
	if e := p.orders[id]; e != nil {
		return e.order, nil
	}
	o, _, err := p.store.record(p.store.db, p.id, id)
	return o, err
}

func (p *Partition) load(id string) (*entry, error) {
	if e := p.orders[id]; e != nil {
		e.asked = p.age
		return e, nil
	}
	o, offsets, err := p.store.record(p.store.db, p.id, id)
	if o == nil || err != nil {
		return nil, err
	}
	if o.Places != nil {
		if err := p.store.readSeats(p.store.db, p.id, o); err != nil {
			return nil, err
		}
	}
	e := &entry{order: o, stored: o, offsets: offsets, lastOffset: lastOffset(offsets)}
	if o.itemized() {
		e.apart = len(offsets) / offsetsAtOnce * offsetsAtOnce
	}
	p.keep(id, e)
	return e, nil
}

func (p *Partition) keep(id string, e *entry) {
	e.asked = p.age
	p.orders[id] = e
	p.weigh(e)
}

// weigh counts what an order takes in memory as it is now.
func (p *Partition) weigh(e *entry) {
	p.bytes -= e.weighs
	e.weighs = e.size()
	p.bytes += e.weighs
}

func (e *entry) size() int {
	n := 768 + len(e.order.Input) // as large as an order, a step and its undo are, and what they refer to
	for i := range e.order.Steps {
		s := &e.order.Steps[i]
		n += 512 + len(s.Output) + len(s.Input) + s.Each.size()
		if s.Undo != nil {
			n += 320 + len(s.Undo.Input)
		}
	}
	for name, value := range e.order.Labels {
		n += 64 + len(name) + len(value)
	}
	for i := range e.order.Waiting {
		h := &e.order.Waiting[i]
		n += 256 + len(h.Key) + len(h.Value)
		for _, header := range h.Headers {
			n += 64 + len(header.Key) + len(header.Value)
		}
	}
	for i := range e.order.Signals {
		n += 128 + len(e.order.Signals[i].Data)
	}
	if c := e.order.Correlation; c != nil {
		n += 128 * len(c.Waits)
	}
	if p := e.order.Places; p != nil && !e.stays() {
		n += bucketCount*8 + 512*(p.Taken+p.Waiting)
	}
	return n
}

// stays says that an order is kept in memory whatever the others take: reading it again would take longer the more wait
// for its places. What is kept for them does not count in the share.
func (e *entry) stays() bool {
	p := e.order.Places
	return p != nil && p.Taken+p.Waiting > fewSeats
}

// fewSeats is how many have places, or wait for them, of a home that is read again without much ado.
const fewSeats = 100

func (p *Partition) share() int { return cacheLimit / int(p.store.partitions.Load()) }

func (p *Partition) drop(e *entry) {
	p.bytes -= e.weighs
	delete(p.orders, e.order.ID)
}

// releaseAtOnce is how many records a release drops at most: it takes some milliseconds.
const releaseAtOnce = 10_000

// Release drops from memory what is in the store and nobody asked for since the call before, but for what is dear to read
// again: orders that wait for long cost no memory. It says whether there is more, which the next call is about then.
func (p *Partition) Release() (more bool) {
	if !p.releasing {
		p.age++
	}
	p.releasing = false
	dropped := 0
	for _, e := range p.orders {
		if e.asked+1 < p.age && !e.dirty && !e.stays() && !e.order.itemized() {
			if dropped == releaseAtOnce {
				p.releasing = true
				return true
			}
			p.drop(e)
			dropped++
		}
	}
	return false
}

// Reset throws the partition's projection away, to be folded again from the
// beginning of the journal.
func (p *Partition) Reset() error {
	p.FellBehind()
	from := prefix(p.id, 0)
	b := p.store.db.NewBatch()
	defer b.Close()
	if err := b.DeleteRange(from, after(from[:4]), nil); err != nil {
		return fmt.Errorf("write the state store: %w", err)
	}
	if err := p.store.log.commit(b, pebble.Sync); err != nil {
		return err
	}
	*p = Partition{store: p.store, id: p.id, orders: make(map[string]*entry)}
	p.Rescan()
	p.count()
	return nil
}

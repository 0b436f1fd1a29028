package projections

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// Head is how far a partition's journal was folded, and what its last
// transaction and claim said.
type Head struct {
	// Offset is the next journal offset to fold.
	Offset int64
	// Transaction is the number of the last folded transaction, 0 before the
	// first.
	Transaction uint64
	// Next are the input positions after that transaction. They mean nothing
	// before the first.
	Next events.Positions
	// Owner is the instance that claimed the partition last, Claim and
	// ClaimedAt which claim that was.
	Owner, Claim string
	ClaimedAt    time.Time
	// Partitions is the number of partitions of the namespace, which never changes.
	Partitions int32
}

// cacheLimit bounds the bytes of records that a store's partitions keep in memory
// all together, each of them its share.
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

	// open holds the events of a transaction whose seal has not come yet.
	open []sealed

	// scanned is the first key of the deadline index that was not looked at;
	// before it is nothing that is not handled.
	scanned []byte
}

// entry is an order in memory.
type entry struct {
	order  *Order // as folded
	stored *Order // as written last; nil if it never was
	// journal holds the offsets of the order's events, each as its distance
	// to the one before.
	journal []byte
	last    int64
	dirty   bool
}

type sealed struct {
	event  events.Event
	offset int64
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
	s.partitions.Add(1)
	return p, nil
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

func (p *Partition) load(id string) (*entry, error) {
	if e := p.orders[id]; e != nil {
		return e, nil
	}
	o, journal, err := p.store.record(p.store.db, p.id, id)
	if o == nil || err != nil {
		return nil, err
	}
	e := &entry{order: o, stored: o, journal: journal, last: lastOffset(journal)}
	p.keep(id, e)
	return e, nil
}

func (p *Partition) keep(id string, e *entry) {
	p.orders[id] = e
	p.bytes += e.size()
}

func (e *entry) size() int {
	n := 512 + len(e.order.Input)
	for i := range e.order.Steps {
		s := &e.order.Steps[i]
		n += 384 + len(s.Output) + len(s.Input)
		if s.Undo != nil {
			n += 256 + len(s.Undo.Input)
		}
	}
	for i := range e.order.Waiting {
		h := &e.order.Waiting[i]
		n += 256 + len(h.Key) + len(h.Value)
		for _, header := range h.Headers {
			n += 64 + len(header.Key) + len(header.Value)
		}
	}
	return n
}

// Update is what one transaction made of one order.
type Update struct {
	Order *Order
	// Offsets are the journal offsets of the events that did it.
	Offsets []int64
}

// Commit takes over the result of a transaction that the caller itself
// committed, without folding its events again. End is the offset behind the
// transaction's last journal record.
func (p *Partition) Commit(seal events.Seal, end int64, updates []Update) error {
	if seal.Transaction != p.head.Transaction+1 {
		return fmt.Errorf("%w: partition %d has transaction %d, then came %d", ErrGap, p.id, p.head.Transaction, seal.Transaction)
	}
	for _, u := range updates {
		e := p.orders[u.Order.ID]
		if begun := u.Order.Seq > uint64(len(u.Offsets)); e == nil && begun {
			var err error
			if e, err = p.load(u.Order.ID); err != nil {
				return err
			}
		}
		if e == nil {
			e = &entry{order: u.Order}
			p.keep(u.Order.ID, e)
		}
		before := e.size()
		e.order = u.Order
		p.bytes += e.size() - before
		for _, offset := range u.Offsets {
			e.journal = binary.AppendUvarint(e.journal, uint64(offset-e.last))
			e.last = offset
		}
		if !e.dirty {
			e.dirty = true
			p.dirty = append(p.dirty, e)
		}
	}
	p.head.Offset, p.head.Transaction, p.head.Next = end, seal.Transaction, seal.Next
	return nil
}

// Fold takes the next committed record of the journal: its offset, its value
// and its [events.HeaderLane] header, nil if it has none. A transaction counts
// once its last record was folded. Records below the head are passed over.
//
// It fails with [ErrGap] when the journal lost or tore a transaction, or skips
// in an order's sequence, and with [ErrNewer] when a newer release wrote what
// this one does not know.
func (p *Partition) Fold(offset int64, value, header []byte) error {
	if offset < p.head.Offset {
		return nil
	}
	event, err := events.Decode[events.Event](value)
	if err != nil {
		return fmt.Errorf("journal partition %d offset %d: %w", p.id, offset, err)
	}
	p.open = append(p.open, sealed{event, offset})
	if header == nil {
		return nil
	}
	seal, err := events.DecodeSeal(header)
	if err != nil {
		return fmt.Errorf("journal partition %d offset %d: %w", p.id, offset, err)
	}
	batch := p.open
	p.open = p.open[:0]
	if seal.Events != len(batch) {
		return fmt.Errorf("%w: the transaction that ends at partition %d offset %d has %d records of %d", ErrGap, p.id, offset, len(batch), seal.Events)
	}
	if event.Type == events.PartitionClaimed {
		return p.claim(&event, offset)
	}

	working := make(map[string]*Update, len(batch))
	updates := make([]*Update, 0, len(batch))
	for i := range batch {
		event := &batch[i].event
		switch {
		case event.Type == events.PartitionAdvanced:
			continue
		case event.Order == "":
			return fmt.Errorf("%w: partition %d offset %d is %s", ErrNewer, p.id, batch[i].offset, event.Type)
		}
		u := working[event.Order]
		if u == nil {
			order, err := p.Order(event.Order)
			if err != nil {
				return err
			}
			if order == nil {
				order = &Order{}
			}
			u = &Update{Order: order.Clone()}
			working[event.Order] = u
			updates = append(updates, u)
		}
		if err := u.Order.Apply(event); err != nil {
			return fmt.Errorf("journal partition %d offset %d: %w", p.id, batch[i].offset, err)
		}
		u.Offsets = append(u.Offsets, batch[i].offset)
	}
	flat := make([]Update, len(updates))
	for i, u := range updates {
		flat[i] = *u
	}
	return p.Commit(seal, offset+1, flat)
}

func (p *Partition) claim(e *events.Event, offset int64) error {
	if e.Format > events.JournalFormat {
		return fmt.Errorf("%w: instance %q claimed partition %d in format %d, and this release knows format %d", ErrNewer, e.Instance, p.id, e.Format, events.JournalFormat)
	}
	if p.head.Partitions != 0 && e.Partitions != p.head.Partitions {
		return fmt.Errorf("instance %q claimed partition %d with %d partitions; the journal began with %d, and the number of partitions must never change", e.Instance, p.id, e.Partitions, p.head.Partitions)
	}
	p.head.Offset = offset + 1
	p.head.Owner, p.head.Claim, p.head.ClaimedAt = e.Instance, e.Claim, e.At
	p.head.Partitions = e.Partitions
	return nil
}

// Forget drops a transaction that was begun to be folded. Call it before
// folding goes on from the [Head] with another reader of the journal.
func (p *Partition) Forget() { p.open = p.open[:0] }

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
	w.b = appendHead(w.b[:0], &p.head)
	if err := b.Set(prefix(p.id, kindHead), w.b, nil); err != nil {
		return fmt.Errorf("write the state store: %w", err)
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return fmt.Errorf("write the state store: %w", err)
	}
	for _, e := range p.dirty {
		e.stored, e.dirty = e.order, false
		if e.order.State.Final() {
			p.drop(e)
		}
	}
	p.dirty = p.dirty[:0]
	if share := p.share(); p.bytes > share {
		for _, e := range p.orders {
			if p.drop(e); p.bytes < share/2 {
				break
			}
		}
	}
	return nil
}

func (p *Partition) share() int { return cacheLimit / int(p.store.partitions.Load()) }

func (p *Partition) drop(e *entry) {
	p.bytes -= e.size()
	delete(p.orders, e.order.ID)
}

// write adds to b what differs between the order as stored and as folded.
func (p *Partition) write(b *pebble.Batch, w *writer, e *entry) error {
	o, old := e.order, e.stored
	if old == nil {
		old = &Order{}
	}
	set := func(key, value []byte) error { return b.Set(key, value, nil) }

	w.b = appendRecord(w.b[:0], o)
	was, is := payloads(old), payloads(o)
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
		if err := set(payloadKey(p.id, o.ID, payload.step, payload.part), now); err != nil {
			return err
		}
	}
	for i := range old.Waiting { // released, or discarded
		payload := heldPayload(&old.Waiting[i])
		if len(payload.value()) <= inlinePayload || payload.among(is, len(is)) != nil {
			continue
		}
		if err := b.Delete(payloadKey(p.id, o.ID, payload.step, payload.part), nil); err != nil {
			return err
		}
	}
	w.b = append(w.b, e.journal...)
	if err := set(orderKey(p.id, o.ID), w.b); err != nil {
		return err
	}

	if e.stored == nil || old.State != o.State {
		if e.stored != nil {
			if err := b.Delete(listingKey(p.id, old), nil); err != nil {
				return err
			}
		}
		if err := set(listingKey(p.id, o), []byte(o.ID)); err != nil {
			return err
		}
	}

	if err := p.index(b, o.ID, "", old.Overdue(), o.Overdue()); err != nil {
		return err
	}
	for i := range o.Steps {
		var before time.Time
		if i < len(old.Steps) {
			before = old.Attention(&old.Steps[i])
		}
		if err := p.index(b, o.ID, o.Steps[i].Name, before, o.Attention(&o.Steps[i])); err != nil {
			return err
		}
	}
	return nil
}

// index moves a deadline in the index. A zero time is none.
func (p *Partition) index(b *pebble.Batch, order, step string, before, now time.Time) error {
	key := deadlineKey(p.id, now, order, step)
	if !now.IsZero() && bytes.Compare(key, p.scanned) < 0 {
		p.scanned = key
	}
	if now.Equal(before) {
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
	return b.Set(key, nil, nil)
}

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

// Rescan makes the next [Partition.Due] look from the beginning. A new owner
// calls it: the last one may have been stopped between scan and commit.
func (p *Partition) Rescan() { p.scanned = prefix(p.id, kindDeadline) }

// Reset throws the partition's projection away, to be folded again from the
// beginning of the journal.
func (p *Partition) Reset() error {
	from := prefix(p.id, 0)
	if err := p.store.db.DeleteRange(from, after(from[:4]), pebble.Sync); err != nil {
		return fmt.Errorf("write the state store: %w", err)
	}
	*p = Partition{store: p.store, id: p.id, orders: make(map[string]*entry)}
	p.Rescan()
	return nil
}

// inlinePayload is the largest payload, in bytes, that stands in its order's
// record. A larger one has a key of its own, so that it is written once and not
// with every change of the order.
const inlinePayload = 1 << 10

// payload is one of the values that an order carries for others.
type payload struct {
	step, part string          // both "" for the order's input, only step "" for an input that waits
	at         *jsontext.Value // nil for an undo that has not begun
}

func (p *payload) value() jsontext.Value {
	if p.at == nil {
		return nil
	}
	return *p.at
}

// among returns the value of the same payload in another list, nil if it is not
// there. It looks at place i first: only what waits moves.
func (p *payload) among(all []payload, i int) []byte {
	if i < len(all) && all[i].step == p.step && all[i].part == p.part {
		return all[i].value()
	}
	for i := range all {
		if all[i].step == p.step && all[i].part == p.part {
			return all[i].value()
		}
	}
	return nil
}

func heldPayload(h *Held) payload {
	return payload{"", ":held:" + h.Source, (*jsontext.Value)(&h.Value)}
}

// payloads lists the order's input, of each step the output, the input and the
// undo's input, and the inputs that wait.
func payloads(o *Order) []payload {
	all := make([]payload, 0, 1+3*len(o.Steps)+len(o.Waiting))
	all = append(all, payload{"", "", &o.Input})
	for i := range o.Steps {
		s := &o.Steps[i]
		undo := payload{s.Name, ":undo", nil}
		if s.Undo != nil {
			undo.at = &s.Undo.Input
		}
		all = append(all, payload{s.Name, "", &s.Output}, payload{s.Name, ":input", &s.Input}, undo)
	}
	for i := range o.Waiting {
		all = append(all, heldPayload(&o.Waiting[i]))
	}
	return all
}

// same compares by identity: a payload is never changed in place.
func same(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func lastOffset(journal []byte) int64 {
	offsets := journalOffsets(journal)
	if len(offsets) == 0 {
		return 0
	}
	return offsets[len(offsets)-1]
}

func journalOffsets(journal []byte) []int64 {
	var offsets []int64
	var last int64
	for r := (reader{b: journal}); len(r.b) > 0 && r.err == nil; {
		last += int64(r.uint())
		offsets = append(offsets, last)
	}
	return offsets
}

func appendHead(dst []byte, h *Head) []byte {
	w := writer{dst}
	w.int(h.Offset)
	w.uint(h.Transaction)
	w.int(h.Next.Orders)
	w.int(h.Next.Replies)
	w.int(h.Next.Commands)
	w.text(h.Owner)
	w.text(h.Claim)
	w.time(h.ClaimedAt)
	w.uint(uint64(h.Partitions))
	return w.b
}

func (s *Store) head(r pebble.Reader, partition int32) (Head, error) {
	b, err := s.get(r, prefix(partition, kindHead))
	if b == nil || err != nil {
		return Head{}, err
	}
	rd := reader{b: b}
	h := Head{
		Offset: rd.int(), Transaction: rd.uint(),
		Next:  events.Positions{Orders: rd.int(), Replies: rd.int(), Commands: rd.int()},
		Owner: rd.text(), Claim: rd.text(), ClaimedAt: rd.time(), Partitions: int32(rd.uint()),
	}
	if rd.err != nil {
		return Head{}, fmt.Errorf("partition %d: %w", partition, rd.err)
	}
	return h, nil
}

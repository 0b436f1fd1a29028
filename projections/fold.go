package projections

import (
	"fmt"
	"maps"

	"github.com/waybill-dev/waybill/events"
)

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
		e.order, e.asked = u.Order, p.age
		p.weigh(e)
		for n, offset := range u.Offsets {
			seq := u.Order.Seq - uint64(len(u.Offsets)-1-n)
			if u.Order.begins(seq) { // of what was before nothing is known
				e.offsets, e.lastOffset = nil, 0
			}
			e.offsets = appendOffset(e.offsets, e.lastOffset, offset)
			if e.lastOffset = offset; u.Order.Beside() {
				e.offsets = recent(e.offsets, seq)
			}
		}
		if !e.dirty {
			e.dirty = true
			p.dirty = append(p.dirty, e)
		}
	}
	for _, u := range updates {
		p.head.vocabulary = max(p.head.vocabulary, u.Order.vocabulary)
	}
	p.head.Offset, p.head.Transaction, p.head.Next = end, seal.Transaction, seal.Next.Over(p.head.Next)
	return nil
}

// unsealed is a record of a transaction whose last one has not come yet.
type unsealed struct {
	event  events.Event
	offset int64
}

// Fold takes the next committed record of the journal: its offset, its value
// and its [events.HeaderLane] header, nil if it has none. A transaction counts
// once its last record was folded. Records below the head are passed over.
//
// It fails with [ErrGap] when the journal lost or tore a transaction, or skips
// in an order's sequence, and with [ErrNewer] when a newer release wrote what
// this one does not know.
func (p *Partition) Fold(offset int64, value, header []byte) error {
	if err := p.readable(); err != nil {
		return err
	}
	if offset < p.head.Offset {
		return nil
	}
	event, err := events.Decode[events.Event](value)
	if err != nil {
		return fmt.Errorf("journal partition %d offset %d: %w", p.id, offset, err)
	}
	p.unsealed = append(p.unsealed, unsealed{event, offset})
	if header == nil {
		return nil
	}
	seal, err := events.DecodeSeal(header)
	if err != nil {
		return fmt.Errorf("journal partition %d offset %d: %w", p.id, offset, err)
	}
	batch := p.unsealed
	p.unsealed = p.unsealed[:0]
	if seal.Events != len(batch) {
		return fmt.Errorf("%w: the transaction that ends at partition %d offset %d has %d records of %d", ErrGap, p.id, offset, len(batch), seal.Events)
	}
	if event.Type == events.PartitionClaimed {
		return p.claim(&event, offset)
	}
	if newer := seal.Next.Newer(); newer != "" {
		return fmt.Errorf("%w: the transaction that ends at partition %d offset %d has read inputs that this release does not know: %s", ErrNewer, p.id, offset, newer)
	}

	working := make(map[string]*Update, len(batch))
	updates := make([]*Update, 0, len(batch))
	raised := 0
	var owed []Owed
	var refused []*events.Event
	var told []*events.Event // of agents
	delivered := make(map[string]int64)
	for i := range batch {
		event := &batch[i].event
		switch {
		case event.Type == events.PartitionAdvanced:
			told = append(told, event)
			continue
		case event.Type == events.PartitionDelivered:
			maps.Copy(delivered, event.Delivered)
			continue
		case event.Type == events.PartitionRaised:
			if event.Format > events.JournalFormat {
				return fmt.Errorf("%w: partition %d is in format %d from offset %d on, and this release knows format %d", ErrNewer, p.id, event.Format, batch[i].offset, events.JournalFormat)
			}
			raised = max(raised, event.Format)
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
		u.Order.In(max(p.head.format, raised))
		if err := u.Order.Apply(event); err != nil {
			return fmt.Errorf("journal partition %d offset %d: %w", p.id, batch[i].offset, err)
		}
		u.Offsets = append(u.Offsets, batch[i].offset)
		if event.Type == events.StatusRefused {
			refused = append(refused, event)
		}
		if max(p.head.format, raised) >= events.CourierFormat {
			if o, owes := u.Order.owes(event, batch[i].offset); owes {
				owed = append(owed, o)
			}
		}
	}
	flat := make([]Update, len(updates))
	for i, u := range updates {
		flat[i] = *u
	}
	if err := p.Commit(seal, offset+1, flat); err != nil {
		return err
	}
	p.Raise(raised)
	p.Owe(owed...)
	for _, e := range refused {
		if err := p.Divert(e.Order, e.ReplyTo); err != nil {
			return err
		}
	}
	p.Deliver(delivered)
	for _, e := range told {
		p.Silence(e)
	}
	return nil
}

// Raise takes over that a transaction raised the partition to a format; 0 is none.
func (p *Partition) Raise(format int) {
	if format > 0 {
		p.head.format = max(p.head.format, format)
		p.head.vocabulary = max(p.head.vocabulary, raisedSince)
	}
}

var raisedSince = events.SpecOf(events.PartitionRaised).Since

func (p *Partition) claim(e *events.Event, offset int64) error {
	if e.Format > events.JournalFormat {
		return fmt.Errorf("%w: instance %q claimed partition %d in format %d, and this release knows format %d", ErrNewer, e.Instance, p.id, e.Format, events.JournalFormat)
	}
	p.head.Offset = offset + 1
	p.head.Owner, p.head.Claim, p.head.ClaimedAt = e.Instance, e.Claim, e.At
	if p.head.Partitions == 0 { // whoever claimed with another number since has decided nothing
		p.head.Partitions = e.Partitions
	}
	p.head.format = max(p.head.format, e.Format)
	return nil
}

// readable fails with [ErrNewer] if a newer release has folded what this one does
// not know: this one would have stopped there, and goes no further either.
func (p *Partition) readable() error {
	switch h := &p.head; {
	case h.format > events.JournalFormat:
		return fmt.Errorf("%w: partition %d is in format %d, and this release knows format %d", ErrNewer, p.id, h.format, events.JournalFormat)
	case h.vocabulary > events.Vocabulary:
		return fmt.Errorf("%w: partition %d has events of vocabulary %d, and this release knows vocabulary %d", ErrNewer, p.id, h.vocabulary, events.Vocabulary)
	case h.Next.Newer() != "":
		return fmt.Errorf("%w: partition %d has read inputs that this release does not know: %s", ErrNewer, p.id, h.Next.Newer())
	}
	return nil
}

// Forget drops a transaction that was begun to be folded. Call it before
// folding goes on from the [Head] with another reader of the journal.
func (p *Partition) Forget() { p.unsealed = p.unsealed[:0] }

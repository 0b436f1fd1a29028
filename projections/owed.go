package projections

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-dev/waybill/events"
)

// Owed is a status message that waits for the caller's own topic: it follows from an
// event of an order whose submission named one, since [events.CourierFormat].
type Owed struct {
	Topic string
	// Offset is that of the event in the journal.
	Offset int64
	// ID is the message's, and Order and Time are those of the event.
	ID, Order   string
	Time        time.Time
	Traceparent string
	Value       []byte
}

// StatusOutput is the largest output, in bytes, that a status message repeats:
// with it the message still fits a topic that was made with Kafka's defaults.
const StatusOutput = 900_000

// Status is the status message that follows from an event that o has just folded, nil
// if none does, its id, and the caller's own topic for it, empty if it names none.
func (o *Order) Status(e *events.Event) (to, id string, m *events.Status) {
	to = o.ReplyTo
	say := func(word string, detail *events.Detail) {
		id = o.ID + "/" + strconv.FormatUint(e.Seq, 10) + "/status"
		m = &events.Status{Order: o.ID, Status: word, At: e.At, Detail: detail}
	}
	// answer tells the sender of a signal, if it wants to know.
	answer := func(word string) {
		if to = e.ReplyTo; to != "" {
			say(word, &events.Detail{Signal: e.Signal, SignalID: e.SignalID, Step: e.Step, Reason: e.Reason, Error: e.Error, Child: e.Child})
		}
	}
	switch e.Type {
	case events.OrderAccepted:
		say(events.StatusReceived, nil)
	case events.OrderRejected:
		say(events.StatusRejected, &events.Detail{Reason: e.Reason})
	case events.OrderCompleted:
		var detail *events.Detail
		if output := o.Output(); len(output) > StatusOutput {
			detail = &events.Detail{Reason: fmt.Sprintf("the output has %d bytes, and is only in the order's record", len(output))}
		} else if len(output) > 0 {
			detail = &events.Detail{Output: output}
		}
		if e.FailedSteps != nil {
			if detail == nil {
				detail = new(events.Detail)
			}
			detail.FailedSteps = e.FailedSteps
		}
		say(events.StatusCompleted, detail)
	case events.OrderErrored:
		say(events.StatusFailed, &events.Detail{Step: e.Step, Reason: e.Reason, Error: e.Error})
	case events.OrderCompensating:
		say(events.StatusCompensating, &events.Detail{Step: e.Step, Reason: e.Reason, Error: e.Error})
	case events.OrderCompensated:
		say(events.StatusCompensated, &events.Detail{Error: o.Failure, Undone: e.Undone, NotUndone: e.NotUndone})
	case events.SubmissionConflicted: // it is not the order's caller who is told
		to = e.ReplyTo
		say(events.StatusConflict, &events.Detail{Reason: e.Reason})
	case events.StepHeard:
		answer(events.StatusMatched)
	case events.SignalStarted:
		answer(events.StatusStarted)
	case events.SignalKept:
		answer(events.StatusKept)
	case events.SignalDiscarded:
		switch e.Reason {
		case events.SignalRepeated:
			answer(events.StatusRepeated)
		case events.SignalLate, events.SignalUnheard:
			answer(events.StatusLate)
		default:
			answer(events.StatusDeclined)
		}
	case events.OrderCancelled:
		say(events.StatusCancelled, &events.Detail{Undone: e.Undone, NotUndone: e.NotUndone})
	case events.OrderRaised:
		say(events.StatusRaised, &events.Detail{Step: e.Step, Reason: e.Reason, Error: e.Error, NotUndone: e.NotUndone})
	case events.OrderTerminated:
		say(events.StatusTerminated, &events.Detail{Reason: e.Reason, Undone: e.Undone, NotUndone: e.NotUndone, MayHaveRun: e.MayHaveRun})
	}
	if m != nil && o.Quiet && to == "" && !m.Answers() {
		return "", "", nil
	}
	return to, id, m
}

// owes is what a caller is owed after o has folded an event that stands at offset.
func (o *Order) owes(e *events.Event, offset int64) (Owed, bool) {
	to, id, m := o.Status(e)
	if m == nil || to == "" {
		return Owed{}, false
	}
	return Owed{to, offset, id, o.ID, e.At, o.Traceparent, m.Append(nil)}, true
}

// Owe takes over what a transaction that the caller itself committed owes to callers.
func (p *Partition) Owe(owed ...Owed) { p.owed = append(p.owed, owed...) }

// Anothers says that a message is not for who submitted the order: it answers another
// submission of the same id, or a signal.
func (o *Owed) Anothers() bool {
	m, err := events.Decode[events.Status](o.Value)
	return err == nil && m.Answers()
}

// row is where the store has a message that is owed.
type row struct {
	topic  string
	offset int64
}

// Divert takes over that a transaction gave the namespace's topic what another is owed for an
// order: that is owed no more, whatever becomes of the order. What is another's stays.
func (p *Partition) Divert(order, topic string) error {
	e, err := p.load(order)
	if e == nil || err != nil {
		return err
	}
	if p.diverted == nil {
		p.diverted = make(map[row]bool)
	}
	for _, offset := range journalOffsets(e.offsets) {
		p.diverted[row{topic, offset}] = true
	}
	return nil
}

// Deliver takes over up to where topics have what they were owed: nothing that stands
// before their offsets is owed any more.
func (p *Partition) Deliver(to map[string]int64) {
	if len(to) == 0 {
		return
	}
	if p.delivered == nil {
		p.delivered = make(map[string]int64)
	}
	for topic, next := range to {
		p.delivered[topic] = max(p.delivered[topic], next)
	}
	p.head.vocabulary = max(p.head.vocabulary, deliveredSince)
}

var deliveredSince = events.SpecOf(events.PartitionDelivered).Since

// settleOwed writes what is owed since the last flush, and removes what is not any more.
func (p *Partition) settleOwed(b *pebble.Batch, w *writer) error {
	for i := range p.owed {
		o := &p.owed[i]
		if o.Offset < p.delivered[o.Topic] || p.divertsNow(o) {
			continue
		}
		w.b = w.b[:0]
		w.text(o.ID)
		w.text(o.Order)
		w.time(o.Time)
		w.text(o.Traceparent)
		w.b = append(w.b, o.Value...)
		if err := b.Set(owedKey(p.id, o.Topic, o.Offset), w.b, nil); err != nil {
			return err
		}
	}
	for at := range p.diverted {
		o, err := p.owedAt(at)
		if err != nil {
			return err
		}
		if o != nil && p.divertsNow(o) {
			if err := b.Delete(owedKey(p.id, at.topic, at.offset), nil); err != nil {
				return err
			}
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(p.delivered)) {
		it, err := p.store.db.NewIter(&pebble.IterOptions{LowerBound: owedKey(p.id, topic, 0), UpperBound: owedKey(p.id, topic, p.delivered[topic])})
		if err != nil {
			return damage(err)
		}
		for it.First(); it.Valid(); it.Next() {
			if err := b.Delete(it.Key(), nil); err != nil {
				return err
			}
		}
		if err := it.Close(); err != nil {
			return damage(err)
		}
	}
	return nil
}

// divertsNow says whether the namespace's topic has a message, which the store does not know.
func (p *Partition) divertsNow(o *Owed) bool {
	return p.diverted[row{o.Topic, o.Offset}] && !o.Anothers()
}

// OwedBytes bounds what is read at a time of what a topic is owed, but for the message with
// which it is reached.
const OwedBytes = 1 << 20

// Owed returns the first of what a topic is owed between two offsets, at most limit
// messages and about [OwedBytes], as far as it was flushed.
func (p *Partition) Owed(topic string, from, to int64, limit int) (_ []Owed, err error) {
	from = max(from, p.delivered[topic]) // which is not flushed
	it, err := p.store.db.NewIter(&pebble.IterOptions{LowerBound: owedKey(p.id, topic, from), UpperBound: owedKey(p.id, topic, to)})
	if err != nil {
		return nil, damage(err)
	}
	defer func() {
		if closing := it.Close(); closing != nil && err == nil {
			err = damage(closing)
		}
	}()
	var owed []Owed
	size := 0
	for it.First(); it.Valid() && len(owed) < limit && size < OwedBytes; it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, damage(err)
		}
		o, err := decodeOwed(topic, offsetOfOwed(it.Key()), slices.Clone(value))
		if err != nil {
			return nil, err
		}
		if !p.divertsNow(&o) {
			owed, size = append(owed, o), size+len(value)
		}
	}
	return owed, nil
}

// OwedFor returns what a topic is owed for events of one order, from an offset on, as far
// as it was flushed.
func (p *Partition) OwedFor(order, topic string, from int64) ([]Owed, error) {
	e, err := p.load(order)
	if e == nil || err != nil {
		return nil, err
	}
	var owed []Owed
	for _, offset := range journalOffsets(e.offsets) {
		if offset < from {
			continue
		}
		o, err := p.owedAt(row{topic, offset})
		if err != nil {
			return nil, err
		}
		if o != nil {
			owed = append(owed, *o)
		}
	}
	return owed, nil
}

// owedAt is what the store has there, nil if that is nothing.
func (p *Partition) owedAt(at row) (*Owed, error) {
	value, err := p.store.get(p.store.db, owedKey(p.id, at.topic, at.offset))
	if value == nil || err != nil {
		return nil, err
	}
	o, err := decodeOwed(at.topic, at.offset, value)
	return &o, err
}

func decodeOwed(topic string, offset int64, value []byte) (Owed, error) {
	r := reader{b: value}
	o := Owed{Topic: topic, Offset: offset, ID: r.text(), Order: r.text(), Time: r.time(), Traceparent: r.text()}
	if o.Value = r.b; r.err != nil {
		return Owed{}, fmt.Errorf("what topic %s is owed: %w", topic, r.err)
	}
	return o, nil
}

// Owing returns the first topic after the last one that is owed something, as far as that
// was flushed; "" when there is none.
func (p *Partition) Owing(last string) (topic string, err error) { return p.topic(kindOwed, last) }

// EmittingTo returns in the same way the first topic that steps are to give events.
func (p *Partition) EmittingTo(last string) (topic string, err error) {
	return p.topic(kindEmission, last)
}

func (p *Partition) topic(kind byte, last string) (topic string, err error) {
	all := prefix(p.id, kind)
	from := all
	if last != "" {
		from = after(topicPrefix(p.id, kind, last))
	}
	it, err := p.store.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: after(all)})
	if err != nil {
		return "", damage(err)
	}
	if it.First() {
		k := it.Key()
		topic = string(k[len(all) : len(k)-9])
	}
	if err := it.Close(); err != nil {
		return "", damage(err)
	}
	return topic, nil
}

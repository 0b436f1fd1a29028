// Package oracle says whether what stands on Kafka is as it must be, without
// knowing how it came to be: it reads topics, and no code of the orchestrator.
package oracle

import (
	"iter"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// Journal holds a journal against what must be true of every journal: no order
// breaks a rule of its [Ledger], whatever its workflow, and each partition's
// transactions are whole and numbered without a gap. It does so while its events
// are ranged over.
func Journal(t testing.TB, records iter.Seq[*kgo.Record]) iter.Seq[*events.Event] {
	t.Helper()
	return func(yield func(*events.Event) bool) {
		j := &journal{TB: t, ledgers: make(map[string]*Ledger), transaction: make(map[int32]uint64), open: make(map[int32]int), owners: make(map[int32]string), format: make(map[int32]int)}
		for r := range records {
			e := j.event(r)
			j.seal(r, e)
			if !yield(e) {
				return
			}
		}
	}
}

// journal is what was read of one so far.
type journal struct {
	testing.TB
	ledgers     map[string]*Ledger
	transaction map[int32]uint64
	open        map[int32]int    // events since the last seal
	owners      map[int32]string // who claimed each partition last
	format      map[int32]int    // of each partition
}

// doubtedFrom is how far the clock is off by which an event was decided that may be passed
// over deadlines: less than what an instance does not believe, since writing takes a while.
const doubtedFrom = 30 * time.Second

// Stamped says whether Kafka gave a record its time, and not its producer.
func Stamped(r *kgo.Record) bool { return r.Attrs.TimestampType() == 1 }

// Doubted says whether the clock by which an event was decided is so far off Kafka's, which
// stamps the journal, that it may not have been believed. Where clocks jump any may be.
func Doubted(r *kgo.Record, e *events.Event, jumps bool) bool {
	return Stamped(r) && (jumps || e.At.Sub(r.Timestamp).Abs() > doubtedFrom)
}

// event reads the next one, and enters it in the ledger of its order.
func (j *journal) event(r *kgo.Record) *events.Event {
	e, err := events.Decode[events.Event](r.Value)
	if err != nil {
		j.Fatalf("journal %d/%d: %v", r.Partition, r.Offset, err)
	}
	if e.Type == events.PartitionClaimed {
		j.owners[r.Partition] = e.Instance
	}
	j.format[r.Partition] = max(j.format[r.Partition], e.Format)
	if e.Order == "" {
		if err := e.Check(); err != nil {
			j.Errorf("journal %d/%d: %v", r.Partition, r.Offset, err)
		}
		return &e
	}
	l := j.ledgers[e.Order]
	if l == nil {
		l = NewLedger(e.Order, nil)
		j.ledgers[e.Order] = l
	}
	l.Owner, l.Format, l.Doubted = j.owners[r.Partition], j.format[r.Partition], Doubted(r, &e, false)
	if err := l.Add(&e); err != nil {
		j.Errorf("journal %d/%d: %v", r.Partition, r.Offset, err)
	}
	return &e
}

// seal checks the transaction that an event ends, if it does.
func (j *journal) seal(r *kgo.Record, e *events.Event) {
	j.open[r.Partition]++
	header := events.HeaderValue(r, events.HeaderLane)
	if header == nil {
		return
	}
	seal, err := events.DecodeSeal(header)
	if err != nil {
		j.Fatal(err)
	}
	if seal.Events != j.open[r.Partition] {
		j.Errorf("journal %d/%d: %d events in a transaction of %d", r.Partition, r.Offset, j.open[r.Partition], seal.Events)
	}
	j.open[r.Partition] = 0
	if e.Type == events.PartitionClaimed {
		return // a claim has no number
	}
	if seal.Transaction != j.transaction[r.Partition]+1 {
		j.Errorf("journal %d/%d: transaction %d follows %d", r.Partition, r.Offset, seal.Transaction, j.transaction[r.Partition])
	}
	j.transaction[r.Partition] = seal.Transaction
}

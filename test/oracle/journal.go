// Package oracle says whether what stands on Kafka is as it must be, without
// knowing how it came to be: it reads topics, and no code of the orchestrator.
package oracle

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// Journal holds a journal against what must be true of every journal: the
// events of an order are numbered without a gap, no step of it completes twice,
// and each partition's transactions are whole and numbered without a gap. It
// returns the events.
func Journal(t testing.TB, records []*kgo.Record) []events.Event {
	t.Helper()
	type place struct{ order, step string }
	seq := make(map[string]uint64)
	completed := make(map[place]bool)
	transaction := make(map[int32]uint64)
	open := make(map[int32]int) // events since the last seal
	all := make([]events.Event, 0, len(records))
	for _, r := range records {
		e, err := events.Decode[events.Event](r.Value)
		if err != nil {
			t.Fatalf("journal %d/%d: %v", r.Partition, r.Offset, err)
		}
		all = append(all, e)
		if e.Order != "" {
			if e.Seq != seq[e.Order]+1 {
				t.Errorf("order %s: event %d follows %d", e.Order, e.Seq, seq[e.Order])
			}
			seq[e.Order] = e.Seq
		}
		if e.Type == events.StepCompleted {
			if completed[place{e.Order, e.Step}] {
				t.Errorf("order %s completed step %s twice", e.Order, e.Step)
			}
			completed[place{e.Order, e.Step}] = true
		}

		open[r.Partition]++
		header := events.Header(r, events.HeaderLane)
		if header == "" {
			continue
		}
		seal, err := events.DecodeSeal([]byte(header))
		if err != nil {
			t.Fatal(err)
		}
		if seal.Events != open[r.Partition] {
			t.Errorf("journal %d/%d: %d events in a transaction of %d", r.Partition, r.Offset, open[r.Partition], seal.Events)
		}
		open[r.Partition] = 0
		if e.Type == events.PartitionClaimed {
			continue // a claim has no number
		}
		if seal.Transaction != transaction[r.Partition]+1 {
			t.Errorf("journal %d/%d: transaction %d follows %d", r.Partition, r.Offset, seal.Transaction, transaction[r.Partition])
		}
		transaction[r.Partition] = seal.Transaction
	}
	return all
}

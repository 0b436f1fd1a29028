// Package oracle says whether what stands on Kafka is as it must be, without
// knowing how it came to be: it reads topics, and no code of the orchestrator.
package oracle

import (
	"iter"
	"testing"

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
		ledgers := make(map[string]*Ledger)
		transaction := make(map[int32]uint64)
		open := make(map[int32]int) // events since the last seal
		for r := range records {
			e, err := events.Decode[events.Event](r.Value)
			if err != nil {
				t.Fatalf("journal %d/%d: %v", r.Partition, r.Offset, err)
			}
			if e.Order != "" {
				l := ledgers[e.Order]
				if l == nil {
					l = NewLedger(e.Order, nil)
					ledgers[e.Order] = l
				}
				if err := l.Add(&e); err != nil {
					t.Errorf("journal %d/%d: %v", r.Partition, r.Offset, err)
				}
			}

			open[r.Partition]++
			if header := events.HeaderValue(r, events.HeaderLane); header != nil {
				seal, err := events.DecodeSeal(header)
				if err != nil {
					t.Fatal(err)
				}
				if seal.Events != open[r.Partition] {
					t.Errorf("journal %d/%d: %d events in a transaction of %d", r.Partition, r.Offset, open[r.Partition], seal.Events)
				}
				open[r.Partition] = 0
				if e.Type != events.PartitionClaimed { // a claim has no number
					if seal.Transaction != transaction[r.Partition]+1 {
						t.Errorf("journal %d/%d: transaction %d follows %d", r.Partition, r.Offset, seal.Transaction, transaction[r.Partition])
					}
					transaction[r.Partition] = seal.Transaction
				}
			}
			if !yield(&e) {
				return
			}
		}
	}
}

package projections

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// journal is a partition's journal without Kafka, for tests to write, cut and
// fold.
type journal struct {
	records []journalRecord
	end     int64
	seal    events.Seal // of the last transaction
	seq     map[string]uint64
}

type journalRecord struct {
	offset        int64
	value, header []byte
}

var start = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

func newJournal() *journal { return &journal{seq: make(map[string]uint64)} }

// add writes one transaction. It numbers events that have no Seq.
func (j *journal) add(batch ...events.Event) {
	j.seal.Transaction++
	j.seal.Next.Set(events.InputOrders, int64(j.seal.Transaction))
	for i := range batch {
		if e := &batch[i]; e.Order != "" && e.Seq == 0 {
			j.seq[e.Order]++
			e.Seq = j.seq[e.Order]
		}
	}
	j.put(j.seal, batch...)
}

// claim writes a claim of the partition.
func (j *journal) claim(instance string, partitions int32, format int) {
	j.put(events.Seal{}, events.Event{
		Type: events.PartitionClaimed, Instance: instance, Claim: fmt.Sprint("claim-", j.end), Partitions: partitions, Format: format,
	})
}

func (j *journal) put(seal events.Seal, batch ...events.Event) {
	seal.Events = len(batch)
	for i := range batch {
		e := &batch[i]
		if e.At.IsZero() {
			e.At = start.Add(time.Duration(j.end) * time.Second)
		}
		r := journalRecord{offset: j.end, value: e.Append(nil)}
		if i == len(batch)-1 {
			r.header = seal.Append(nil)
		}
		j.records = append(j.records, r)
		j.end++
	}
	j.end++ // the commit marker
}

func fold(p *Partition, records []journalRecord) error {
	for _, r := range records {
		if err := p.Fold(r.offset, r.value, r.header); err != nil {
			return err
		}
	}
	return nil
}

// Events of an order with the steps s0 and s1.

// input is too large to stand in the record, as the outputs do.
func input(flow string) []byte {
	return []byte(`{"of":"` + flow + `","more":"` + strings.Repeat("x", inlinePayload) + `"}`)
}

func accepted(id, flow string) events.Event {
	return events.Event{Type: events.OrderAccepted, Order: id, Workflow: flow, Version: 1, Steps: []string{"s0", "s1"}, Input: input(flow)}
}

func started(id, step string, attempt int, by time.Time) events.Event {
	return events.Event{Type: events.StepStarted, Order: id, Step: step, Attempt: attempt, IdempotencyKey: id + "/" + step, CompleteBy: by, LockedBy: "i-1"}
}

func done(id, step string) events.Event {
	return events.Event{Type: events.StepCompleted, Order: id, Step: step, Attempt: 1, Output: []byte(fmt.Sprintf(`{"by":%q}`, step))}
}

func finished(id string) events.Event { return events.Event{Type: events.OrderCompleted, Order: id} }

func temporary(t *testing.T) (*Store, *Partition) {
	t.Helper()
	s, err := Temporary()
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s, partition(t, s, 0)
}

func partition(t *testing.T, s *Store, id int32) *Partition {
	t.Helper()
	p, err := s.Partition(id)
	must(t, err)
	return p
}

// folded returns a store with all of j folded and flushed.
func folded(t *testing.T, j *journal) (*Store, *Partition) {
	t.Helper()
	s, p := temporary(t)
	must(t, fold(p, j.records))
	must(t, p.Flush())
	return s, p
}

func dump(t *testing.T, s *Store, id int32) map[string]string {
	t.Helper()
	all := make(map[string]string)
	must(t, s.Dump(id, func(Head) error { return nil }, func(key, value []byte) error {
		all[string(key)] = string(value)
		return nil
	}))
	return all
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

package projections

import (
	"errors"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// benched is a history of one order: a step that is tried twice, and the other
// one undone.
func benched() []events.Event {
	retried := of(events.StepRetried, "s0", 2)
	retried.Due = at(30)
	all := []events.Event{
		accepted("o-1", "flow"), started("o-1", "s0", 1, at(60)), failing(events.StepFailed, "s0", 1, "busy"), retried,
		started("o-1", "s0", 2, at(60)), done("o-1", "s0"), started("o-1", "s1", 1, at(60)), failing(events.StepExpired, "s1", 1, "expired"),
		{Type: events.OrderCompensating, End: "Compensated", Reason: "s1 is gone", Step: "s1"},
		undoStarted(1), of(events.UndoCompleted, "s0", 1),
		{Type: events.OrderCompensated, Undone: []string{"s0"}},
	}
	for i := range all {
		all[i].Order, all[i].Seq, all[i].At = "o-1", uint64(i+1), at(i)
	}
	return all
}

// BenchmarkApply folds whole histories, and is about one event of them.
func BenchmarkApply(b *testing.B) {
	history := benched()
	o := &Order{}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		n := i % len(history)
		if n == 0 {
			*o = Order{}
		}
		if err := o.Apply(&history[n]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFold reads a journal, transaction by transaction, and is about one
// record of it.
func BenchmarkFold(b *testing.B) {
	j := longJournal(1000)
	s, err := Temporary()
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	p, err := s.Partition(0)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := j.records[i%len(j.records)]
		if i%len(j.records) == 0 {
			b.StopTimer()
			if err := p.Reset(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		if err := p.Fold(r.offset, r.value, r.header); err != nil {
			b.Fatal(err)
		}
	}
}

// What orders can do takes no memory, when one is written that does nothing of it: no labels, no versions of others, no
// deadlines that pass.
func TestAPlainOrderIsWrittenInPlace(t *testing.T) {
	history := benched()[:2] // none of it failed: errors are written as JSON
	o := &Order{}
	for i := range history {
		must(t, o.Apply(&history[i]))
	}
	_, p := temporary(t)
	into := make([]byte, 0, 4<<10)
	var w writer
	var err error
	written := func() {
		into = appendRecord(into[:0], o)
		w.b = w.b[:0]
		err = p.writePayloads(nil, &w, o, o)
		for i := range o.Steps {
			err = errors.Join(err, p.index(nil, o.ID, o.Steps[i].Name, time.Time{}, time.Time{}, nil, nil))
		}
	}
	if n := testing.AllocsPerRun(100, written); n > 0 || err != nil || len(into) == 0 {
		t.Errorf("%v allocations, %v", n, err)
	}
}

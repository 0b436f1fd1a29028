package projections

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// twoTransactions is a journal whose second transaction has three records.
func twoTransactions() *journal {
	j := newJournal()
	j.claim("i-1", 4, events.JournalFormat)
	j.add(accepted("o-1", "flow"), started("o-1", "s0", 1, start.Add(time.Minute)))
	j.add(done("o-1", "s0"), started("o-1", "s1", 1, start.Add(time.Minute)), accepted("o-2", "flow"))
	return j
}

func TestFoldRefusesGaps(t *testing.T) {
	without := func(i int) []journalRecord { return slices.Delete(twoTransactions().records, i, i+1) }
	for name, records := range map[string][]journalRecord{
		"first record of a transaction is missing":  without(3),
		"middle record of a transaction is missing": without(4),
		"last record is missing, then a claim": append(without(5), func() journalRecord {
			j := newJournal()
			j.end = 100
			j.claim("i-2", 4, events.JournalFormat)
			return j.records[0]
		}()),
		"a transaction is missing": func() []journalRecord {
			j := twoTransactions()
			j.add(accepted("o-3", "flow"))
			return slices.Delete(j.records, 3, 6)
		}(),
		"a transaction comes twice": func() []journalRecord {
			j := twoTransactions()
			again := slices.Clone(j.records[3:])
			for i := range again {
				again[i].offset += 100
			}
			return append(j.records, again...)
		}(),
		"an order's number is left out": func() []journalRecord {
			j := twoTransactions()
			e := done("o-1", "s1")
			e.Seq = 6
			j.add(e)
			return j.records
		}(),
		"an order's number comes twice": func() []journalRecord {
			j := twoTransactions()
			e := done("o-1", "s1")
			e.Seq = 4
			j.add(e)
			return j.records
		}(),
		"a new order does not begin with 1": func() []journalRecord {
			j := twoTransactions()
			e := accepted("o-3", "flow")
			e.Seq = 2
			j.add(e)
			return j.records
		}(),
		"a step that the order does not have": func() []journalRecord {
			j := twoTransactions()
			j.add(done("o-1", "s7"))
			return j.records
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			_, p := temporary(t)
			if err := fold(p, records); !errors.Is(err, ErrGap) {
				t.Fatalf("folded, with the error %v", err)
			}
		})
	}
}

// What is refused changes nothing: neither the head nor any order.
func TestRefusedTransactionLeavesNoTrace(t *testing.T) {
	j := twoTransactions()
	s, p := temporary(t)
	must(t, fold(p, j.records[:3]))
	must(t, p.Flush())
	before, head := dump(t, s, 0), p.Head()
	bad := done("o-1", "s1")
	bad.Seq = 9
	j.add(done("o-1", "s0"), bad)
	last := j.records[len(j.records)-2:]
	if err := fold(p, last); err == nil {
		t.Fatal("folded")
	}
	must(t, p.Flush())
	if p.Head() != head || !maps.Equal(dump(t, s, 0), before) {
		t.Error("it left a trace")
	}
}

func TestFoldPassesOverWhatItHas(t *testing.T) {
	j := twoTransactions()
	s, p := folded(t, j)
	before, head := dump(t, s, 0), p.Head()
	must(t, fold(p, j.records))
	must(t, p.Flush())
	if p.Head() != head || !maps.Equal(dump(t, s, 0), before) {
		t.Error("folding the journal again changed something")
	}
}

// A reader that was stopped in the middle of a transaction begins it anew.
func TestForget(t *testing.T) {
	j := twoTransactions()
	s, p := temporary(t)
	must(t, fold(p, j.records[:4]))
	must(t, p.Flush())
	if p.Head().Transaction != 1 {
		t.Fatalf("a transaction counts before its seal: %+v", p.Head())
	}
	p.Forget()
	must(t, fold(p, j.records[3:]))
	must(t, p.Flush())
	want, _ := folded(t, j)
	if !maps.Equal(dump(t, s, 0), dump(t, want, 0)) {
		t.Error("it is not as if it had been read at once")
	}
}

// Where an input was read up to says the last transaction that named it: one of an
// older release, which knew of fewer, changes nothing about it.
func TestPositionsOfInputs(t *testing.T) {
	j := newJournal()
	j.claim("i-1", 4, events.JournalFormat)
	var want []string
	for _, step := range []struct{ seal, then string }{
		{`{"orders":1}`, `{"orders":1}`},
		{`{"orders":2,"replies":0,"commands":5}`, `{"orders":2,"replies":0,"commands":5}`},
		{`{"orders":3}`, `{"orders":3,"replies":0,"commands":5}`},
		{`{}`, `{"orders":3,"replies":0,"commands":5}`},
		{`{"orders":3,"replies":1,"commands":6}`, `{"orders":3,"replies":1,"commands":6}`},
	} {
		j.seal.Transaction++
		j.seal.Next = positions(t, step.seal)
		j.put(j.seal, events.Event{Type: events.PartitionAdvanced})
		j.claim("i-2", 4, events.JournalFormat)
		want = append(want, step.then, step.then)
	}
	s, p := temporary(t)
	must(t, fold(p, j.records[:1]))
	for i, r := range j.records[1:] {
		must(t, fold(p, []journalRecord{r}))
		must(t, p.Flush())
		if next := partition(t, s, 0).Head().Next; next.String() != want[i] {
			t.Errorf("after record %d, %s, reading goes on from %v, and not %s", i+1, r.header, next, want[i])
		}
	}
}

func TestClaims(t *testing.T) {
	j := twoTransactions()
	_, p := folded(t, j)
	if h := p.Head(); h.Owner != "i-1" || h.Partitions != 4 || h.Transaction != 2 || h.Next.At(events.InputOrders) != 2 {
		t.Fatalf("%+v", h)
	}
	j.claim("i-2", 8, events.JournalFormat)
	must(t, fold(p, j.records))
	if h := p.Head(); h.Owner != "i-2" || h.Partitions != 4 {
		t.Errorf("after a claim with another number of partitions: %+v", h)
	}
	j = twoTransactions()
	_, p = folded(t, j)
	j.claim("i-2", 4, events.JournalFormat+1)
	if err := fold(p, j.records); !errors.Is(err, ErrNewer) {
		t.Errorf("a claim in a newer format: %v", err)
	}
	j = twoTransactions()
	j.claim("i-2", 4, events.JournalFormat)
	j.add(done("o-1", "s1"))
	_, p = folded(t, j)
	if h := p.Head(); h.Owner != "i-2" || h.Transaction != 3 {
		t.Errorf("%+v", h)
	}
}

func TestFoldRefusesWhatIsNoEvent(t *testing.T) {
	_, p := temporary(t)
	for _, r := range []journalRecord{
		{value: []byte("hello"), header: []byte(`{"events":1}`)},
		{value: []byte(`{"type":"waybill.order.accepted"}`), header: []byte("hello")},
		{value: nil, header: nil},
	} {
		if err := fold(p, []journalRecord{r}); err == nil {
			t.Errorf("%q %q was folded", r.value, r.header)
		}
		p.Forget()
	}
}

// What a newer release wrote could mean anything.
func TestUnknownEventsAreRefused(t *testing.T) {
	for _, e := range []events.Event{
		{Type: "waybill.order.blessed", Order: "o-1", Step: "s0", Reason: "spring"},
		{Type: "waybill.order.announced", Order: "o-9"},
		{Type: "waybill.partition.blessed"},
	} {
		j := twoTransactions()
		s, p := folded(t, j)
		before := dump(t, s, 0)
		known := len(j.records)
		j.add(e)
		if err := fold(p, j.records[known:]); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), string(e.Type)) {
			t.Errorf("%s: %v", e.Type, err)
		}
		must(t, p.Flush())
		if !maps.Equal(dump(t, s, 0), before) {
			t.Errorf("%s changed the store", e.Type)
		}
	}
}

// Every type of event is folded: those of orders each by its effect, those of
// partitions by the partition.
func TestEveryTypeHasAnEffect(t *testing.T) {
	for _, spec := range events.Specs {
		if _, ok := effects[spec.Type]; ok == spec.OfPartition {
			t.Errorf("%s has an effect: %t", spec.Type, ok)
		}
		if spec.OfPartition {
			j := newJournal()
			j.add(events.Event{Type: spec.Type, Partitions: 1, Format: events.JournalFormat})
			folded(t, j)
		}
	}
	if len(known) != len(effects) {
		t.Errorf("%d types are known of %d that have an effect", len(known), len(effects))
	}
}

// A live lane commits what a follower folds: the stores are the same.
func TestCommitIsFold(t *testing.T) {
	j := twoTransactions()
	want, _ := folded(t, j)

	s, p := temporary(t)
	must(t, fold(p, j.records[:1]))
	var one, two *Order
	apply := func(o *Order, batch ...events.Event) *Order {
		if o == nil {
			o = &Order{}
		}
		o = o.Clone()
		for i := range batch {
			o.In(p.Head().Format())
			must(t, o.Apply(&batch[i]))
		}
		return o
	}
	decode := func(i int) events.Event {
		e, err := events.Decode[events.Event](j.records[i].value)
		must(t, err)
		return e
	}
	seal := func(i int) events.Seal {
		seal, err := events.DecodeSeal(j.records[i].header)
		must(t, err)
		return seal
	}
	at := func(i int) int64 { return j.records[i].offset }
	one = apply(nil, decode(1), decode(2))
	must(t, p.Commit(seal(2), at(2)+1, []Update{{Order: one, Offsets: []int64{at(1), at(2)}}}))
	must(t, p.Flush())
	one, two = apply(one, decode(3), decode(4)), apply(nil, decode(5))
	must(t, p.Commit(seal(5), at(5)+1, []Update{{Order: one, Offsets: []int64{at(3), at(4)}}, {Order: two, Offsets: []int64{at(5)}}}))
	if err := p.Commit(seal(5), at(5)+1, nil); !errors.Is(err, ErrGap) {
		t.Errorf("the same transaction was committed twice: %v", err)
	}
	must(t, p.Flush())
	if !maps.Equal(dump(t, s, 0), dump(t, want, 0)) {
		t.Error("they differ")
	}
}

func TestReset(t *testing.T) {
	j := twoTransactions()
	s, p := folded(t, j)
	q := partition(t, s, 1)
	must(t, fold(q, j.records))
	must(t, q.Flush())
	before := dump(t, s, 1)
	must(t, p.Reset())
	if n := len(dump(t, s, 0)); n != 0 || p.Head() != (Head{}) {
		t.Errorf("%d keys are left, the head is %+v", n, p.Head())
	}
	if !maps.Equal(dump(t, s, 1), before) {
		t.Error("the next partition lost something")
	}
	must(t, fold(p, j.records))
	must(t, p.Flush())
	o, _, err := s.Order(0, "o-1")
	if err != nil || o.Seq != 4 {
		t.Errorf("%+v, %v", o, err)
	}
}

// A time of a step that is repeated begins with nothing used up, under a key of its own: what was
// tried, waited for and resubmitted before does not count, nor do the attempts.
func TestATimeBeginsAnew(t *testing.T) {
	j := newJournal()
	again := events.Event{Type: events.StepRepeated, Order: "a", Step: "s0", Attempt: 1, Count: 1, Due: at(60), Output: []byte(`{"ready":false}`)}
	j.add(accepted("a", "flow"), started("a", "s0", 1, at(30)), again)
	_, p := folded(t, j)
	o, err := p.Peek("a")
	must(t, err)
	s := o.Step("s0")
	if s.State != Repeating || s.Repeats != 1 || s.AttemptsBefore != 1 || !s.Due.Equal(at(60)) || string(s.Output) != `{"ready":false}` || !s.Ran() {
		t.Errorf("%+v", s)
	}
}

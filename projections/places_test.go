package projections

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/waybill-dev/waybill/events"
)

const limitID = "@/limit.x"

// queued are the events of a limit of one place, which the first of n orders has, and for which the others wait, each
// under the key that it is given.
func queued(n int, key func(int) string) []events.Event {
	all := []events.Event{{Type: events.LimitApplied, Limit: &events.Limit{AtATime: 1}}}
	for i := range n {
		e := events.Event{Type: events.PlaceAwaited, Waiter: fmt.Sprint("o-", i), Step: "s", Wait: 2, Key: key(i), Rank: uint64(i + 1)}
		if i == 0 {
			e.Type = events.PlaceGranted
		}
		all = append(all, e)
	}
	for i := range all {
		all[i].Order, all[i].Seq, all[i].At = limitID, uint64(i+1), at(i)
	}
	return all
}

// withQueue is a partition in which so many wait for places, and its store.
func withQueue(t *testing.T, n int, key func(int) string) (*Store, *Partition) {
	t.Helper()
	j := newJournal()
	j.claim("i-1", 1, events.JournalFormat)
	j.add(queued(n, key)...)
	return folded(t, j)
}

func some(int) string { return "k" }

// However many wait for places, they are not read again after each flush, and keep no others out of memory.
func TestWhoWaitsForPlacesStaysInMemory(t *testing.T) {
	j := newJournal()
	j.claim("i-1", 1, events.JournalFormat)
	j.add(queued(1_000, some)...)
	j.add(accepted("o-1", "flow"))
	s, p := temporary(t)
	s.partitions.Add(cacheLimit/(128<<10) - 1)
	must(t, fold(p, j.records))
	must(t, p.Flush())
	before, err := p.Order(limitID)
	must(t, err)
	if after, err := p.Order(limitID); p.orders["o-1"] == nil || after != before || err != nil {
		t.Errorf("in memory are %d records, of %d bytes of %d; %v", len(p.orders), p.bytes, p.share(), err)
	}
	s.partitions.Add(cacheLimit)
	p.bytes += cacheLimit
	must(t, p.Flush())
	if after, err := p.Order(limitID); p.orders["o-1"] != nil || after != before || err != nil {
		t.Errorf("others take more than there is: in memory are %d records; %v", len(p.orders), err)
	}
}

// What is read of who waits is what was folded, and takes no more for each key the more of them there are.
func TestWhoWaitsForPlacesIsRead(t *testing.T) {
	var keys []string // that fall all into one bucket
	for i := 0; len(keys) < 2_000; i++ {
		if key := fmt.Sprint(i); bucketOf(key) == 0 {
			keys = append(keys, key)
		}
	}
	s, p := withQueue(t, len(keys), func(i int) string { return keys[i] })
	folded, err := p.Order(limitID)
	must(t, err)
	stored, _, err := s.record(s.db, 0, limitID)
	must(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must(t, s.readSeats(s.db, 0, stored))
	runtime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 8<<20 {
		t.Errorf("reading %d seats took %d bytes", len(keys), bytes)
	}
	for _, b := range slices.Concat(folded.Places.buckets, stored.Places.buckets) {
		if b != nil {
			slices.SortFunc(b.seats, func(a, b *Seat) int { return int(a.Rank) - int(b.Rank) })
			slices.SortFunc(b.keys, func(a, b keyRank) int { return int(a.last) - int(b.last) })
		}
	}
	if !reflect.DeepEqual(stored.Places, folded.Places) {
		t.Errorf("the store has\n %+v, and was folded\n %+v", stored.Places, folded.Places)
	}
}

// Who asks how many wait does not read who does.
func TestHowManyWaitForPlacesIsOneRecord(t *testing.T) {
	s, p := withQueue(t, 10, some)
	o, offsets, err := s.Order(0, limitID)
	must(t, err)
	if o.Places.Taken != 1 || o.Places.Waiting != 9 || !o.Places.Oldest.Equal(at(2)) || o.Seq != 11 || len(offsets) != 11 {
		t.Errorf("%+v with %d events at %v", o.Places, o.Seq, offsets)
	}
	for seat := range o.Places.Seats() {
		t.Fatalf("it has read %+v", seat)
	}
	p.drop(p.orders[limitID])
	if o, err := p.Peek(limitID); err != nil || o.Places.Waiting != 9 || o.Places.buckets != nil {
		t.Errorf("who looks at many finds %+v; %v", o, err)
	}
	if o, err := p.Order(limitID); err != nil || o.Places.Seat("o-9", 2) == nil {
		t.Errorf("who folds finds %+v; %v", o, err)
	}
}

// Ids that somebody chose because they fall into one bucket fall into all.
func TestNobodyChoosesBuckets(t *testing.T) {
	seen := make(map[int]bool)
	for i, n := 0, 0; n < 100; i++ {
		id, sum := fmt.Sprint("o-", i), uint32(2166136261)
		for _, b := range []byte(id) {
			sum = (sum ^ uint32(b)) * 16777619
		}
		if sum%bucketCount == 0 { // by FNV-1a
			seen[bucketOf(id)] = true
			n++
		}
	}
	if len(seen) < 10 {
		t.Errorf("they are in %d buckets", len(seen))
	}
}

// manyTurns is an order of so many steps, which wait for places all.
func manyTurns(n int) *Order {
	o := &Order{ID: "o", State: Pending, Steps: make([]Step, n), Seq: uint64(n + 1)}
	for i := range o.Steps {
		s := &o.Steps[i]
		s.Name, s.State, s.Turn = fmt.Sprint("s", i), NotStarted, uint64(n+1-i)
	}
	for i := range n {
		o.Turns = append(o.Turns, Turn{Home: limitID, Step: fmt.Sprint("s", n-1-i), Number: uint64(i + 2)})
	}
	return o
}

// Of an order whose steps wait for places, an event that ends none of the waits changes nothing of them; and one that does
// ends that one.
func TestTurnsEndWithTheirWaits(t *testing.T) {
	o := manyTurns(3)
	before := o.Turns
	o.Seq++
	if o.yield(); &o.Turns[0] != &before[0] {
		t.Error("the list is copied")
	}
	o.Steps[1].Undo = &Work{Turn: o.Steps[1].Turn} // which is not that for which it was asked
	o.Steps[1].Turn = 0
	o.Seq++
	o.yield()
	if got := o.Turns; len(got) != 3 || got[0].Ended != 0 || got[1].Ended != o.Seq || got[2].Ended != 0 || before[1].Ended != 0 {
		t.Errorf("%+v", got)
	}
	o.Seq++
	if o.yield(); len(o.Turns) != 2 {
		t.Errorf("%+v", o.Turns)
	}
	o.Steps[0].Name = "other"
	o.Seq++
	if o.yield(); o.Turns[0].Ended != 0 || o.Turns[1].Ended != o.Seq {
		t.Errorf("%+v", o.Turns)
	}
	o.State = Processed
	o.Seq++
	if o.yield(); len(o.Turns) != 1 || o.Turns[0].Ended != o.Seq {
		t.Errorf("%+v", o.Turns)
	}
	o.Seq++
	if o.yield(); o.Turns != nil {
		t.Errorf("%+v", o.Turns)
	}
}

// BenchmarkTurns is what an event more costs an order of which so many steps wait for places.
func BenchmarkTurns(b *testing.B) {
	for _, n := range []int{10, 1_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			o := manyTurns(n)
			for b.Loop() {
				o.yield()
			}
		})
	}
}

// A home that is forgotten leaves no seat, also where that of before is stored and its end comes with the oblivion, as for who
// follows: the next that begins under its id would be taken for damaged.
func TestSeatsOfAForgottenHome(t *testing.T) {
	const home = "@k/open.w"
	j := newJournal()
	j.claim("i-1", 1, events.JournalFormat)
	s, p := temporary(t)
	p.CaughtUp()
	f := s.Feed()
	defer f.Close()
	then := func(seq uint64, all ...events.Event) {
		t.Helper()
		n := len(j.records)
		for i := range all {
			all[i].Order, all[i].Seq, all[i].At = home, seq+uint64(i), at(int(seq)+i)
		}
		j.add(all...)
		must(t, fold(p, j.records[n:]))
		must(t, p.Flush())
		// It is no order that would be listed, counted or told of, whether it is forgotten or not.
		if is := counted(t, s); len(is.Orders) > 0 {
			t.Errorf("counted are %+v", is)
		}
		if told, lost := f.Take(); len(told) > 0 || lost {
			t.Errorf("told is %+v, lost: %t", told, lost)
		}
	}
	must(t, fold(p, j.records))
	then(1, events.Event{Type: events.PlaceGranted, Waiter: "a", Wait: 2, Key: "k", Rank: 1})
	then(2, events.Event{Type: events.PlaceReturned, Waiter: "a", Wait: 2}, events.Event{Type: events.OrderForgotten})
	then(4, events.Event{Type: events.PlaceGranted, Waiter: "b", Wait: 2, Key: "k", Rank: 1})
	p.drop(p.orders[home])
	o, err := p.Order(home)
	must(t, err)
	if h := o.Places.Holder(); h == nil || h.Order != "b" || o.Places.Taken != 1 {
		t.Errorf("%+v has the place, of %d", h, o.Places.Taken)
	}
}

package projections

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

func TestOrder(t *testing.T) {
	j := newJournal()
	j.claim("i-1", 1, events.JournalFormat)
	j.add(accepted("o-1", "flow"), started("o-1", "s0", 1, start.Add(time.Minute)))
	j.add(accepted("o-2", "flow"))
	j.add(done("o-1", "s0"), started("o-1", "s1", 1, start.Add(time.Minute)))
	s, p := folded(t, j)
	if _, _, err := s.Order(0, "o-9"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an order that is not there: %v", err)
	}
	if _, _, err := s.Order(1, "o-1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("an order of another partition: %v", err)
	}
	o, offsets, err := s.Order(0, "o-1")
	must(t, err)
	if o.ID != "o-1" || o.State != Processing || string(o.Input) != string(input("flow")) || string(o.Steps[0].Output) != `{"by":"s0"}` {
		t.Errorf("%+v", o)
	}
	if want := []int64{2, 3, 7, 8}; !slices.Equal(offsets, want) {
		t.Errorf("its events are at %v, not at %v", offsets, want)
	}
	// The lock is the partition's: the next owner has it.
	j.claim("i-2", 1, events.JournalFormat)
	must(t, fold(p, j.records))
	must(t, p.Flush())
	if o, _, err = s.Order(0, "o-1"); err != nil || o.LockedBy != "i-2" {
		t.Errorf("locked by %q, %v", o.LockedBy, err)
	}
	if o, _, err = s.Order(0, "o-2"); err != nil || o.LockedBy != "" {
		t.Errorf("nobody works on it, and it is locked by %q, %v", o.LockedBy, err)
	}
}

// What is folded reaches readers with the next flush, and not before.
func TestFlush(t *testing.T) {
	j := newJournal()
	s, p := temporary(t)
	j.add(accepted("o-1", "flow"), started("o-1", "s0", 1, start.Add(time.Minute)))
	must(t, fold(p, j.records))
	if _, _, err := s.Order(0, "o-1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("it can be read already: %v", err)
	}
	if o, err := p.Order("o-1"); err != nil || o == nil || o.Seq != 2 {
		t.Errorf("its owner sees %+v, %v", o, err)
	}
	// An order that runs through between two flushes leaves no deadline and no
	// listing of a state that it has passed.
	j.add(done("o-1", "s0"), started("o-1", "s1", 1, start.Add(2*time.Minute)))
	j.add(done("o-1", "s1"), finished("o-1"))
	must(t, fold(p, j.records))
	must(t, p.Flush())
	kinds := make(map[byte]int)
	for key := range dump(t, s, 0) {
		kinds[key[4]]++
	}
	if want := map[byte]int{kindHead: 1, kindOrder: 1, kindPayload: 1, kindListing: 1}; !maps.Equal(kinds, want) {
		t.Errorf("the store has the keys %v, not %v", kinds, want)
	}
}

// The number of flushes makes no difference to what is stored.
func TestFlushingOftenOrOnce(t *testing.T) {
	j := longJournal(20)
	once, _ := folded(t, j)
	s, p := temporary(t)
	for _, r := range j.records {
		must(t, p.Fold(r.offset, r.value, r.header))
		must(t, p.Flush())
	}
	if !maps.Equal(dump(t, s, 0), dump(t, once, 0)) {
		t.Error("they differ")
	}
}

// longJournal has n orders, some finished, some at work, some in Error.
func longJournal(n int) *journal {
	j := newJournal()
	j.claim("i-1", 1, events.JournalFormat)
	for i := range n {
		id, by := fmt.Sprintf("o-%03d", i), start.Add(time.Duration(i)*time.Minute)
		j.add(accepted(id, fmt.Sprint("flow-", i%2)), started(id, "s0", 1, by))
		if i%4 == 0 {
			continue
		}
		j.add(done(id, "s0"), started(id, "s1", 1, by.Add(time.Second)))
		switch i % 4 {
		case 1:
			j.add(done(id, "s1"), finished(id))
		case 2:
			fault := &events.Error{Code: "gone", Permanent: true}
			j.add(events.Event{Type: events.StepFailed, Order: id, Step: "s1", Attempt: 1, Error: fault},
				events.Event{Type: events.OrderErrored, Order: id, Step: "s1", Reason: "gone"},
				events.Event{Type: events.AlertRaised, Order: id, Step: "s1", Reason: "gone", Errors: []events.Error{*fault}})
		}
	}
	return j
}

func TestList(t *testing.T) {
	j := longJournal(20)
	s, _ := folded(t, j)
	q := partition(t, s, 2) // partition 1 is empty
	must(t, fold(q, j.records))
	must(t, q.Flush())

	all := func(f Filter) (ids []string, pages int) {
		for pages < 100 {
			page, err := s.List(t.Context(), 3, f)
			must(t, err)
			pages++
			if f.Limit > 0 && len(page.Orders) > f.Limit {
				t.Fatalf("%d orders on a page of %d", len(page.Orders), f.Limit)
			}
			for _, o := range page.Orders {
				if f.State != "" && o.State != f.State || f.Workflow != "" && o.Workflow != f.Workflow {
					t.Fatalf("%s of %s is not what was asked for", o.State, o.Workflow)
				}
				ids = append(ids, o.ID)
			}
			if f.After = page.Next; page.Next == nil {
				return ids, pages
			}
		}
		t.Fatal("no end of pages")
		return nil, 0
	}
	for _, c := range []struct {
		filter Filter
		want   int // in each of the two partitions
	}{
		{Filter{}, 20},
		{Filter{State: Processed}, 5},
		{Filter{State: Error}, 5},
		{Filter{State: Processing}, 10},
		{Filter{State: Pending}, 0},
		{Filter{Workflow: "flow-1"}, 10},
		{Filter{Workflow: "flow"}, 0},
		{Filter{State: Processed, Workflow: "flow-1"}, 5},
		{Filter{State: Processed, Workflow: "flow-0"}, 0},
		{Filter{State: "Process"}, 0},
	} {
		for _, limit := range []int{0, 1, 3, 5, 10, 1000} {
			c.filter.Limit = limit
			ids, _ := all(c.filter)
			if len(ids) != 2*c.want {
				t.Errorf("%+v: %d orders, not %d: %q", c.filter, len(ids), 2*c.want, ids)
			}
			unique := slices.Compact(slices.Sorted(slices.Values(ids)))
			if len(unique) != c.want {
				t.Errorf("%+v: %q", c.filter, ids)
			}
		}
	}
	if _, pages := all(Filter{Limit: 20}); pages != 2 {
		t.Errorf("40 orders are %d pages of 20", pages)
	}
	page, err := s.List(t.Context(), 1, Filter{State: Processed})
	must(t, err)
	if !slices.IsSortedFunc(page.Orders, func(a, b *Order) int { return b.AcceptedAt.Compare(a.AcceptedAt) }) {
		t.Error("the newest is not the first")
	}
	labelled := Filter{Labels: map[string]string{"a": "b"}}
	for _, c := range []struct {
		filter Filter
		place  string
		given  bool
	}{
		{Filter{}, "", true},
		{Filter{}, "\x00\x00\x00\x02lx", true},
		{Filter{}, "\x00\x00\x00\x03lx", false}, // of a partition that there is none
		{Filter{}, "\xff\xff\xff\xfflx", false},
		{Filter{}, "\x00\x00\x00\x00l", false},
		{Filter{}, "\x00\x00\x00\x00kx", false}, // of a list by labels
		{Filter{}, "\x00\x00\x00\x00zx", false},
		{Filter{}, "x", false},
		{labelled, "\x00\x00\x00\x00kx", true},
		{labelled, "\x00\x00\x00\x00lx", false},
		{Filter{Newest: true, Workflow: "w"}, "\xff2345678x", true},
		{Filter{Newest: true, Workflow: "w"}, "\xff2345678", false},
		{Filter{Newest: true, Workflow: "w"}, "\x00\x00\x00\x02lx567890", false}, // of the list that is not in that order
	} {
		c.filter.After = []byte(c.place)
		if _, err := s.List(t.Context(), 3, c.filter); c.given != (err == nil) || err != nil && !errors.Is(err, ErrPlace) {
			t.Errorf("%+v: %v", c.filter, err)
		}
	}
	for place, given := range map[string]bool{"": true, "\x00\x00\x00\x00tx": true, "\x00\x00\x00\x00nx": false, "x": false} {
		if _, _, err := s.Schedules(t.Context(), 3, nil, []byte(place), 1, nil); given != (err == nil) || err != nil && !errors.Is(err, ErrPlace) {
			t.Errorf("schedules behind %q: %v", place, err)
		}
	}
}

// A rejected order has the workflow's name as its caller wrote it.
func TestListWithOddWorkflowNames(t *testing.T) {
	j := newJournal()
	names := []string{"", "a\x00b", "\x00", "ü/../", strings.Repeat("n", 1000)}
	for i, name := range names {
		j.add(events.Event{Type: events.OrderRejected, Order: fmt.Sprint("o-", i), Workflow: name, Reason: "no"})
	}
	s, _ := folded(t, j)
	page, err := s.List(t.Context(), 1, Filter{State: Rejected})
	if err != nil || len(page.Orders) != len(names) {
		t.Errorf("%d of %d orders, %v", len(page.Orders), len(names), err)
	}
	for _, name := range names[1:] {
		if page, err = s.List(t.Context(), 1, Filter{State: Rejected, Workflow: name}); err != nil || len(page.Orders) != 1 {
			t.Errorf("%.20q: %d orders, %v", name, len(page.Orders), err)
		}
	}
}

func TestHeads(t *testing.T) {
	s, _ := folded(t, longJournal(3))
	heads, err := s.Heads(2)
	must(t, err)
	if heads[0].Owner != "i-1" || heads[0].Transaction == 0 || heads[1] != (Head{}) {
		t.Errorf("%+v", heads)
	}
}

// Ids may hold whatever UTF-8 has. None may touch the keys of another.
func TestOddOrderIDs(t *testing.T) {
	ids := []string{
		"o", "o\x00", "o\x00s0", "o\x00s0\x00", "\x00", "\x00\x00", "o/s0", "/", "..", "日本", "é", "e\u0301", "\U0010ffff", " ", "o ",
		strings.Repeat("x", 256), strings.Repeat("x", 255), strings.Repeat("\x00", 256),
	}
	j := newJournal()
	for i, id := range ids {
		e := accepted(id, "flow")
		e.Input = []byte(fmt.Sprint(i))
		j.add(e, started(id, "s0", 1, start.Add(time.Duration(i)*time.Second)))
		if i%2 == 0 {
			d := done(id, "s0")
			d.Output = []byte(fmt.Sprint("1", i))
			j.add(d, started(id, "s1", 1, start.Add(time.Duration(i)*time.Second)))
		}
	}
	s, p := folded(t, j)
	for i, id := range ids {
		o, _, err := s.Order(0, id)
		must(t, err)
		if o.ID != id || string(o.Input) != fmt.Sprint(i) {
			t.Errorf("%q is read as %q with input %s", id, o.ID, o.Input)
		}
		if i%2 == 0 && string(o.Steps[0].Output) != fmt.Sprint("1", i) {
			t.Errorf("%q has the output %s", id, o.Steps[0].Output)
		}
	}
	due, err := p.Due(start.Add(time.Hour), 1000)
	must(t, err)
	if len(due) != len(ids) {
		t.Fatalf("%d deadlines of %d orders", len(due), len(ids))
	}
	for i, d := range due {
		if step := fmt.Sprint("s", (i+1)%2); d.Order != ids[i] || d.Step != step || !d.At.Equal(start.Add(time.Duration(i)*time.Second)) {
			t.Errorf("deadline %d is of %q, step %q, at %v", i, d.Order, d.Step, d.At)
		}
	}
	page, err := s.List(t.Context(), 1, Filter{})
	must(t, err)
	var listed []string
	for _, o := range page.Orders {
		listed = append(listed, o.ID)
	}
	slices.Sort(listed)
	if want := slices.Sorted(slices.Values(ids)); !slices.Equal(listed, want) {
		t.Errorf("listed are %q", listed)
	}
}

// Records that were dropped from memory come back from the store as they were.
func TestEviction(t *testing.T) {
	large := bytes.Repeat([]byte{'7'}, 8<<20)
	const orders = 12 // 96 MiB of input
	id := func(i int) string { return fmt.Sprint("o-", i) }
	s, p := temporary(t)
	for other := range int32(3) {
		partition(t, s, 1+other)
	}
	transaction := uint64(0)
	commit := func(id string, batch ...events.Event) {
		o, err := p.Order(id)
		must(t, err)
		if o == nil {
			o = &Order{}
		}
		u := Update{Order: o.Clone()}
		for i := range batch {
			batch[i].Seq = u.Order.Seq + 1
			must(t, u.Order.Apply(&batch[i]))
			u.Offsets = append(u.Offsets, int64(3*transaction)+int64(i))
		}
		transaction++
		must(t, p.Commit(events.Seal{Transaction: transaction}, int64(3*transaction), []Update{u}))
	}
	for i := range orders {
		e := accepted(id(i), "flow")
		e.Input = large
		commit(id(i), e, started(id(i), "s0", 1, start.Add(time.Minute)))
	}
	must(t, p.Flush())
	if p.bytes > cacheLimit/4 || len(p.orders) == 0 || len(p.orders) == orders {
		t.Fatalf("%d orders of %d bytes are in memory", len(p.orders), p.bytes)
	}
	for i := range orders {
		commit(id(i), done(id(i), "s0"), started(id(i), "s1", 1, start.Add(time.Minute)))
	}
	must(t, p.Flush())
	for i := range orders {
		o, offsets, err := s.Order(0, id(i))
		must(t, err)
		second := int64(3 * (orders + i))
		if want := []int64{int64(3 * i), int64(3*i + 1), second, second + 1}; o.Seq != 4 || !slices.Equal(offsets, want) {
			t.Errorf("order %d has %d events, at %v and not at %v", i, o.Seq, offsets, want)
		}
		if !bytes.Equal(o.Input, large) || string(o.Steps[0].Output) != `{"by":"s0"}` {
			t.Errorf("order %d has %d bytes of input, and the output %s", i, len(o.Input), o.Steps[0].Output)
		}
	}
	size := 0
	for _, e := range p.orders {
		size += e.size()
	}
	if size != p.bytes {
		t.Errorf("%d bytes are in memory, and %d are counted", size, p.bytes)
	}
}

// Orders can be found by the step that failed, or whose undo failed.
func TestListByFailedStep(t *testing.T) {
	j := newJournal()
	put := func(id string, history []events.Event) {
		for i := range history {
			history[i].Order = id
		}
		j.add(history...)
	}
	put("fine", append([]events.Event{accepted("", "flow")}, ran("s0")...))
	put("step", inError())
	put("going", compensating())
	put("undo", append(compensating(), undoStarted(1), failing(events.UndoFailed, "s0", 1, "gone"), events.Event{Type: events.OrderErrored, Reason: "gone"}))
	s, _ := folded(t, j)
	found := func(f Filter) []string {
		page, err := s.List(t.Context(), 1, f)
		must(t, err)
		var ids []string
		for _, o := range page.Orders {
			ids = append(ids, o.ID)
		}
		slices.Sort(ids)
		return ids
	}
	expect(t, "s0 failed", found(Filter{Step: "s0"}), []string{"step", "undo"})
	expect(t, "s0 failed, with a limit", len(found(Filter{Step: "s0", Limit: 1})), 1)
	expect(t, "s0 failed, in Error", found(Filter{Step: "s0", State: Error}), []string{"step", "undo"})
	expect(t, "s1 failed, but its order does not wait for it any more", found(Filter{Step: "s1"}), []string(nil))
	expect(t, "no such step", found(Filter{Step: "s9"}), []string(nil))
}

// What is in the store, and nobody asks for, is not in memory for long: the record is read again, and is the same. What the store has
// not yet stays.
func TestReleased(t *testing.T) {
	j := newJournal()
	j.claim("i-1", 1, events.JournalFormat)
	j.add(queued(1_000, some)...)
	for _, id := range []string{"o-1", "o-2", "o-3"} {
		j.add(accepted(id, "flow"), started(id, "s0", 1, start.Add(time.Minute)))
	}
	_, p := temporary(t)
	must(t, fold(p, j.records))
	must(t, p.Flush())
	was, err := p.Order("o-1")
	must(t, err)
	p.Release()
	if p.orders["o-1"] == nil || p.orders["o-2"] == nil {
		t.Error("what was asked for just now is released")
	}
	_, err = p.Order("o-2")
	must(t, err)
	must(t, p.Commit(events.Seal{Transaction: p.Head().Transaction + 1}, p.Head().Offset+1, []Update{{Order: p.orders["o-3"].order, Offsets: []int64{p.Head().Offset}}}))
	p.Release()
	if p.orders["o-1"] != nil || p.orders["o-2"] == nil || p.orders["o-3"] == nil || p.orders[limitID] == nil {
		t.Errorf("in memory are %d records", len(p.orders))
	}
	p.Release()
	if p.orders["o-2"] != nil || p.orders["o-3"] == nil {
		t.Errorf("in memory are %d records", len(p.orders))
	}
	size := 0
	for _, e := range p.orders {
		size += e.size()
	}
	if size != p.bytes {
		t.Errorf("%d bytes are in memory, and %d are counted", size, p.bytes)
	}
	if o, err := p.Order("o-1"); o == was || !bytes.Equal(appendRecord(nil, o), appendRecord(nil, was)) || err != nil {
		t.Errorf("it is the same in memory: %t; %v", o == was, err)
	}
}

// At most so many leave at a time, and what is asked for meanwhile stays.
func TestReleasedBitByBit(t *testing.T) {
	_, p := temporary(t)
	id := func(n int) string { return fmt.Sprintf("o-%05d", n) }
	for n := range 2*releaseAtOnce + 500 {
		o := &Order{ID: id(n)}
		p.keep(o.ID, &entry{order: o, stored: o})
	}
	items := &Order{ID: "items", Steps: []Step{{Each: new(Each)}}}
	p.keep(items.ID, &entry{order: items, stored: items})
	if p.Release() || len(p.orders) != 2*releaseAtOnce+501 {
		t.Errorf("at first %d are left", len(p.orders))
	}
	if !p.Release() || len(p.orders) != releaseAtOnce+501 {
		t.Errorf("then %d are left", len(p.orders))
	}
	for asked := range p.orders {
		if asked != items.ID {
			_, err := p.Order(asked)
			must(t, err)
			break
		}
	}
	if !p.Release() || p.Release() || len(p.orders) != 2 || p.orders[items.ID] == nil {
		t.Errorf("in the end %d are left", len(p.orders))
	}
}

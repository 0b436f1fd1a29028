package projections

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/waybill-dev/waybill/events"
)

// sorted folds orders into two partitions, of which each is accepted a second behind the one before, and says which they are.
func sorted(t *testing.T) (s *Store, all []*Order) {
	t.Helper()
	journals := []*journal{newJournal(), newJournal()}
	for i := range 40 {
		id, j := fmt.Sprintf("o-%02d", i*7%40), journals[i%2]
		flow := map[bool]string{true: "flow", false: "other"}[i%5 > 0]
		j.add(events.Event{Type: events.OrderAccepted, Order: id, Workflow: flow, Version: 1, Steps: []string{"s0"}, Labels: map[string]string{"kind": flow}, At: at(i / 6)}) // some at the same time
		if i%3 == 0 {
			j.add(events.Event{Type: events.OrderErrored, Order: id, Reason: "it failed", At: at(100 + i)})
		}
		if i%4 == 0 {
			j.add(events.Event{Type: events.OrderCancelled, Order: id, At: at(200 + i)})
		}
	}
	s, first := temporary(t)
	for n, p := range []*Partition{first, partition(t, s, 1)} {
		must(t, fold(p, journals[n].records))
		must(t, p.Flush())
	}
	for after := []byte(nil); ; {
		page, err := s.List(t.Context(), 2, Filter{After: after})
		must(t, err)
		all = append(all, page.Orders...)
		if after = page.Next; after == nil {
			return s, all
		}
	}
}

// What selects orders by when they changed, sorts them and counts them finds those that it should, page by page.
func TestOrdersByTime(t *testing.T) {
	s, all := sorted(t)
	s.counting.Lock()   // once what was there is counted
	s.counting.Unlock() //nolint:staticcheck // it is waited for
	if len(all) != 40 {
		t.Fatalf("there are %d", len(all))
	}
	for _, f := range []Filter{
		{Since: at(12), Until: at(210)},
		{Since: at(3)},
		{Until: at(5)},
		{Until: at(5), State: Pending},
		{Workflow: "flow", Until: at(7)},
		{Since: at(1000)},
		{Labels: map[string]string{"kind": "flow"}, Since: at(3), Until: at(10)},
		{Labels: map[string]string{"kind": "flow"}},
		{Workflow: "flow", Newest: true},
		{Workflow: "flow", Newest: true, State: Pending},
		{Workflow: "flow", Newest: true, Open: true},
		{Workflow: "none", Newest: true},
		{Workflow: "flow", Newest: true, Until: at(8)},
		{Workflow: "flow", Newest: true, Since: at(90)},
		{Workflow: "other", Newest: true, Without: []int32{1}},
		{},
		{State: Cancelled},
		{State: Error},
		{Workflow: "other"},
		{Workflow: "flow", Open: true},
		{Without: []int32{0}},
		{Visible: func(workflow string) bool { return workflow == "other" }},
		{Workflow: "flow", Newest: true, Visible: func(workflow string) bool { return workflow == "other" }},
	} {
		var want, got []string
		for _, o := range all {
			if f.Selects(o) && !slices.Contains(f.Without, partitionIn(t, s, o.ID)) {
				want = append(want, o.ID)
			}
		}
		of := func(id string) *Order {
			return all[slices.IndexFunc(all, func(o *Order) bool { return o.ID == id })]
		}
		if f.Newest {
			slices.SortFunc(want, func(a, b string) int { return cmp.Or(of(b).AcceptedAt.Compare(of(a).AcceptedAt), cmp.Compare(a, b)) })
		}
		n, more, err := s.Count(t.Context(), 2, f)
		if must(t, err); n != len(want) || more {
			t.Errorf("%+v: counted are %d, more: %t, and there are %d", f, n, more, len(want))
		}
		for f.Limit = 3; ; {
			page, err := s.List(t.Context(), 2, f)
			must(t, err)
			for _, o := range page.Orders {
				got = append(got, o.ID)
			}
			if f.After = page.Next; page.Next == nil {
				break
			}
		}
		if !f.Newest {
			slices.Sort(want)
			slices.Sort(got)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: %q and not %q", f, got, want)
		}
	}
}

// Of orders that have ended so many are counted, and no more.
func TestACountCostsSoMuch(t *testing.T) {
	s, all := sorted(t)
	ended := len(slices.DeleteFunc(all, func(o *Order) bool { return !o.State.Final() }))
	for most, want := range map[int]bool{3: true, ended - 1: true, ended: false} {
		if n, more, err := s.countUpTo(t.Context(), most, 2, Filter{State: Cancelled}); err != nil || n != most || more != want {
			t.Errorf("counted up to %d are %d, more: %t, %v", most, n, more, err)
		}
	}
}

// partitionIn is that of an order.
func partitionIn(t *testing.T, s *Store, id string) int32 {
	t.Helper()
	if _, _, err := s.Order(0, id); err == nil {
		return 0
	}
	_, _, err := s.Order(1, id)
	must(t, err)
	return 1
}

// What was accepted behind the time until which orders are asked for costs nothing, and what cannot be known at a bounded cost
// is not: the page goes on, and the count says so.
func TestTimesCostSoMuch(t *testing.T) {
	j := newJournal()
	batch := make([]events.Event, pageKeys+10)
	for i := range batch {
		batch[i] = events.Event{Type: events.OrderAccepted, Order: fmt.Sprintf("o-%05d", i), Workflow: "flow", Version: 1, Steps: []string{"s0"}, At: at(i)}
	}
	j.add(batch...)
	s, _ := folded(t, j)
	for _, f := range []Filter{{Until: at(1)}, {Until: at(1), Workflow: "flow", Newest: true}} {
		if ids, sizes := pages(t, s, f); !slices.Equal(ids, []string{"o-00001", "o-00000"}) || len(sizes) != 1 {
			t.Errorf("%+v: %q on pages of %v", f, ids, sizes)
		}
	}
	for _, f := range []Filter{{Since: at(pageKeys * 2)}, {Since: at(pageKeys * 2), Workflow: "flow", Newest: true}} {
		if ids, sizes := pages(t, s, f); len(ids) > 0 || len(sizes) != 2 {
			t.Errorf("%+v: %d on pages of %v", f, len(ids), sizes)
		}
	}
	if n, more, err := s.Count(t.Context(), 1, Filter{Since: at(1)}); err != nil || n != pageKeys || !more {
		t.Errorf("counted are %d, more: %t, %v", n, more, err)
	}
}

package projections

import (
	"testing"

	"github.com/waybill-dev/waybill/events"
)

// How an item ended is written once, and then in memory no more, also where the lane has decided on the order again
// before the flush, as it always has while reports keep coming.
func TestHowItemsEndedIsWrittenOnce(t *testing.T) {
	j := newJournal()
	j.add(accepted("o", "flow"), events.Event{Type: events.StepItemized, Order: "o", Step: "s0", Attempt: 1, Count: 3, Input: []byte("[1,2,3]")},
		events.Event{Type: events.ItemsOrdered, Order: "o", Step: "s0", Attempt: 1, Item: 1, Count: 3})
	s, p := folded(t, j)
	base, err := p.Order("o")
	must(t, err)
	large := []byte(`"` + string(make([]byte, 100_000)) + `"`)
	ends := func(o *Order, item int) *Order {
		o = o.Clone()
		o.In(p.Head().Format())
		must(t, o.Apply(&events.Event{Type: events.ItemCompleted, Order: "o", Seq: o.Seq + 1, Step: "s0", Attempt: 1, Item: item, Output: large}))
		return o
	}
	commit := func(o *Order) {
		head := p.Head()
		must(t, p.Commit(events.Seal{Transaction: head.Transaction + 1, Events: 1, Next: head.Next}, head.Offset+2, []Update{{Order: o, Offsets: []int64{head.Offset}}}))
		must(t, p.Flush())
	}
	has := func(item int) bool {
		value, err := s.get(s.db, itemsKey(0, "o", tagOutcome, "s0", item))
		must(t, err)
		return value != nil
	}
	first := ends(base, 1)
	second := ends(first, 2) // while the first is being committed
	commit(first)
	third := ends(second, 3)
	if !has(1) {
		t.Fatal("how the first item ended is not written")
	}
	must(t, s.db.Delete(itemsKey(0, "o", tagOutcome, "s0", 1), nil))
	commit(second)
	if has(1) || !has(2) {
		t.Errorf("the first was written again: %t; the second is: %t", has(1), has(2))
	}
	if n := third.Steps[0].Each.size(); n > 150_000 {
		t.Errorf("with one outcome that is not written it takes %d bytes", n)
	}
	commit(third)
	if !has(3) {
		t.Error("how the last item ended is not written")
	}
}

package projections

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-dev/waybill/events"
)

// pages walks through a listing, and says how many orders each page had.
func pages(t *testing.T, s *Store, f Filter) (ids []string, sizes []int) {
	t.Helper()
	for {
		page, err := s.List(t.Context(), 1, f)
		must(t, err)
		for _, o := range page.Orders {
			ids = append(ids, o.ID)
		}
		sizes = append(sizes, len(page.Orders))
		if f.After = page.Next; page.Next == nil {
			return ids, sizes
		}
	}
}

// crowd folds n orders of flow-a, and one of flow-b.
func crowd(t *testing.T, n int) *Store {
	t.Helper()
	j := newJournal()
	batch := make([]events.Event, n+1)
	for i := range batch {
		batch[i] = events.Event{Type: events.OrderAccepted, Order: fmt.Sprintf("o-%05d", i), Workflow: "flow-a", Version: 1, Steps: []string{"s0"}}
	}
	batch[n/2].Workflow = "flow-b"
	j.add(batch...)
	s, _ := folded(t, j)
	return s
}

// A page that finds nothing ends all the same, and says where the next begins. What
// the index knows costs no look at other orders.
func TestAPageCostsSoMuch(t *testing.T) {
	s := crowd(t, pageKeys+10)
	ids, sizes := pages(t, s, Filter{Step: "s9"})
	if ids != nil || !slices.Equal(sizes, []int{0, 0}) {
		t.Errorf("no order failed at the step, and the pages have %v: %v", sizes, ids)
	}
	ids, sizes = pages(t, s, Filter{Workflow: "flow-b"})
	if len(ids) != 1 || !slices.Equal(sizes, []int{1}) {
		t.Errorf("of the only order of a workflow the pages have %v: %v", sizes, ids)
	}
}

// Of the orders of a workflow those that have ended are left out, at no cost, where only open ones are
// asked for.
func TestOpenOrdersAreListed(t *testing.T) {
	j := newJournal()
	for i := range 30 {
		id := fmt.Sprintf("o-%02d", i)
		j.add(events.Event{Type: events.OrderAccepted, Order: id, Workflow: "flow", Version: 1, Steps: []string{"s0"}})
		if i%3 == 0 {
			j.add(events.Event{Type: events.OrderErrored, Order: id, Reason: "it failed"})
		}
		if i%2 == 0 {
			j.add(events.Event{Type: events.OrderCancelled, Order: id})
		}
	}
	j.add(events.Event{Type: events.OrderAccepted, Order: "other", Workflow: "flow-b", Version: 1, Steps: []string{"s0"}})
	s, _ := folded(t, j)
	ids, sizes := pages(t, s, Filter{Workflow: "flow", Open: true, Limit: 10})
	slices.Sort(ids)
	if len(ids) != 15 || len(slices.Compact(ids)) != 15 || ids[0] != "o-01" || !slices.Equal(sizes, []int{10, 5}) {
		t.Errorf("listed are %q, on pages of %v", ids, sizes)
	}
	if ids, _ := pages(t, s, Filter{Workflow: "flow"}); len(ids) != 30 {
		t.Errorf("all are %d", len(ids))
	}
}

// Large records make pages of fewer orders, and none is left out.
func TestAPageReadsSoMuch(t *testing.T) {
	const orders, each = 50, 200 << 10
	j := newJournal()
	for i := range orders {
		j.add(events.Event{Type: events.OrderRejected, Order: fmt.Sprintf("o-%02d", i), Workflow: "flow", Reason: strings.Repeat("x", each)})
	}
	s, _ := folded(t, j)
	ids, sizes := pages(t, s, Filter{Limit: 1000})
	if most := slices.Max(sizes); len(ids) != orders || most > pageBytes/each+1 {
		t.Errorf("%d of %d orders, on pages of %v", len(ids), orders, sizes)
	}
}

// Orders of workflows that are not visible are passed over, however many and large they
// are, and no page ends at one of them: of what is open one that has cost enough ends between two times.
func TestListingsPassOverWorkflows(t *testing.T) {
	const orders, each = 50, 200 << 10
	j := newJournal()
	for i := range orders {
		hidden := alerted(fmt.Sprintf("hidden-%02d", i), 2*i)
		for n := range hidden {
			if hidden[n].Workflow != "" {
				hidden[n].Workflow = "a-hid"
			}
			if hidden[n].Type == events.AlertRaised {
				hidden[n].Reason = strings.Repeat("x", each)
			}
		}
		j.add(hidden...)
		j.add(events.Event{Type: events.OrderRejected, Order: fmt.Sprintf("rejected-%02d", i), Workflow: "z-hidden", Reason: strings.Repeat("x", each)})
	}
	j.add(alerted("newest", 1000)...)
	j.add(alerted("between", 51)...)
	j.add(alerted("oldest", 0)...)
	s, _ := folded(t, j)
	visible := func(workflow string) bool { return workflow == "flow" }
	for _, limit := range []int{1, 2, 3, 100} {
		var listed, open []string
		for place := []byte(nil); ; {
			page, err := s.List(t.Context(), 1, Filter{Limit: limit, After: place, Visible: visible})
			must(t, err)
			for _, o := range page.Orders {
				listed = append(listed, o.ID)
			}
			if place = page.Next; bytes.Contains(place, []byte("hid")) || place != nil && len(page.Orders) != limit {
				t.Errorf("a page with %d orders ends at %q", len(page.Orders), place)
			}
			if place == nil {
				break
			}
		}
		for place := (*OpenPlace)(nil); ; {
			page, err := s.Alerts(t.Context(), 1, nil, place, limit, visible)
			must(t, err)
			for _, o := range page.Orders {
				open = append(open, o.ID)
			}
			if place = page.Next; place == nil {
				break
			}
			if strings.Contains(place.Order, "hid") || len(page.Orders) == 0 && place.Order != "" {
				t.Errorf("a page with %d alerts ends at %v", len(page.Orders), place)
			}
		}
		slices.Sort(listed)
		expect(t, fmt.Sprint("orders in pages of ", limit), listed, []string{"between", "newest", "oldest"})
		expect(t, fmt.Sprint("alerts in pages of ", limit), open, []string{"newest", "between", "oldest"})
	}
}

// A listing reads no payloads, of which one order may have many megabytes.
func TestListingsReadNoPayloads(t *testing.T) {
	j := newJournal()
	j.add(alerted("o-1", 4)...)
	s, _ := folded(t, j)
	o, _, err := s.Order(0, "o-1")
	if err != nil || !bytes.Equal(o.Input, input("flow")) {
		t.Fatalf("%v, %v", o, err)
	}
	must(t, s.db.Delete(payloadKey(0, "o-1", "", ""), pebble.NoSync))
	page, err := s.List(t.Context(), 1, Filter{})
	if err != nil || len(page.Orders) != 1 || page.Orders[0].Input != nil || page.Orders[0].State != Error {
		t.Errorf("%+v, %v", page, err)
	}
	open, err := s.Alerts(t.Context(), 1, nil, nil, 10, nil)
	if err != nil || len(open.Orders) != 1 || open.Orders[0].Alert.Reason != "gone" {
		t.Errorf("%+v, %v", open, err)
	}
}

// A listed order is locked by whoever owns the partition now.
func TestListedOrdersAreLockedByTheOwner(t *testing.T) {
	j := newJournal()
	j.claim("i-1", 1, 1)
	j.add(accepted("o-1", "flow"), started("o-1", "s0", 1, start))
	j.add(accepted("o-2", "flow"))
	j.claim("i-2", 1, 1)
	s, _ := folded(t, j)
	page, err := s.List(t.Context(), 1, Filter{})
	must(t, err)
	for _, o := range page.Orders {
		if want := map[string]string{"o-1": "i-2", "o-2": ""}[o.ID]; o.LockedBy != want {
			t.Errorf("%s is locked by %q, not %q", o.ID, o.LockedBy, want)
		}
	}
}

// hangingUp is a caller who hangs up after so many looks.
type hangingUp struct {
	context.Context //nolint:containedctx // it is one itself
	left            int
}

func (h *hangingUp) Err() error {
	if h.left--; h.left < 0 {
		return context.Canceled
	}
	return nil
}

// A listing ends in its middle when the caller hangs up.
func TestAListingEndsWithItsCaller(t *testing.T) {
	j := newJournal()
	for i := range 10 {
		j.add(alerted(fmt.Sprint("o-", i), i)...)
	}
	s, _ := folded(t, j)
	page, err := s.List(&hangingUp{t.Context(), 5}, 1, Filter{})
	if !errors.Is(err, context.Canceled) || len(page.Orders) != 4 {
		t.Errorf("%d orders, %v", len(page.Orders), err)
	}
	if _, err := s.List(&hangingUp{t.Context(), 5}, 100, Filter{Workflow: "none"}); !errors.Is(err, context.Canceled) {
		t.Errorf("partitions without orders: %v", err)
	}
	if _, err := s.Alerts(&hangingUp{t.Context(), 5}, 1, nil, nil, 100, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("alerts: %v", err)
	}
}

// alerted is an order with an open alert, raised after so many seconds.
func alerted(id string, seconds int) []events.Event {
	history := inError()
	for i := range history {
		history[i].Order, history[i].At = id, at(seconds)
	}
	return history
}

// openAlerts walks through the open alerts, and returns their orders.
func openAlerts(t *testing.T, s *Store, without []int32, limit int) (ids []string) {
	t.Helper()
	var after *OpenPlace
	for {
		page, err := s.Alerts(t.Context(), 3, without, after, limit, nil)
		must(t, err)
		if len(page.Orders) > limit || len(ids) > 100 {
			t.Fatalf("%d alerts on a page of %d, after %d", len(page.Orders), limit, len(ids))
		}
		for _, o := range page.Orders {
			ids = append(ids, o.ID)
		}
		if after = page.Next; after == nil {
			return ids
		}
	}
}

// Alerts of all partitions are one list, newest first, whatever the pages.
func TestAlertsAreListedByTime(t *testing.T) {
	s, _ := temporary(t)
	resubmitted := func(id string) events.Event {
		return events.Event{Type: events.OrderResubmitted, Order: id, Step: "s0", Steps: []string{"s0"}}
	}
	for p, histories := range map[int32][][]events.Event{
		0: {alerted("a", 10), alerted("b", 30), append(alerted("goes on", 90), resubmitted("goes on"))},
		2: {alerted("c", 20), alerted("d", 30), alerted("b2", 30)},
	} {
		j := newJournal()
		for _, history := range histories {
			j.add(history...)
		}
		writer := partition(t, s, p)
		must(t, fold(writer, j.records))
		must(t, writer.Flush())
	}
	want := []string{"b", "b2", "d", "c", "a"}
	for _, limit := range []int{1, 2, 3, 5, 100} {
		expect(t, fmt.Sprint("in pages of ", limit), openAlerts(t, s, nil, limit), want)
	}
	expect(t, "without partition 2", openAlerts(t, s, []int32{2}, 1), []string{"b", "a"})

	// One that is raised again moves, and one that is settled is gone, flushed in between or not.
	j := newJournal()
	j.add(alerted("moves", 10)...)
	j.add(alerted("settled", 40)...)
	writer := partition(t, s, 1)
	must(t, fold(writer, j.records))
	must(t, writer.Flush())
	expect(t, "with partition 1", openAlerts(t, s, nil, 2), []string{"settled", "b", "b2", "d", "c", "a", "moves"})
	n := len(j.records)
	j.add(events.Event{Type: events.AlertRaised, Order: "moves", At: at(50), Step: "s0", Reason: "once more", Errors: []events.Error{}, Action: "do it"})
	j.add(resubmitted("settled"))
	must(t, fold(writer, j.records[n:]))
	must(t, writer.Flush())
	expect(t, "after what came", openAlerts(t, s, nil, 2), append([]string{"moves"}, want...))
	keys := 0
	for key := range dump(t, s, 1) {
		if key[4] == kindAlert {
			keys++
		}
	}
	expect(t, "keys of the index", keys, 1)
}

// Who looks through alerts goes on behind any place, also one that is gone.
func TestAlertsGoOnBehindAPlace(t *testing.T) {
	j := newJournal()
	j.add(alerted("o-1", 4)...)
	s, _ := folded(t, j)
	for _, c := range []struct {
		place OpenPlace
		want  int
	}{
		{OpenPlace{at(0), "a"}, 0}, {OpenPlace{at(3600), "z"}, 1}, {OpenPlace{at(4), "o-0"}, 1}, {OpenPlace{at(4), "o-1"}, 0},
	} {
		page, err := s.Alerts(t.Context(), 1, nil, &c.place, 10, nil)
		if err != nil || len(page.Orders) != c.want || page.Next != nil {
			t.Errorf("behind %v: %d alerts, %v", c.place, len(page.Orders), err)
		}
	}
}

// Each reason has its number and the oldest of it, also where 2,000 newer alerts are of another; and is listed apart, the
// oldest first, whatever the pages.
func TestAlertsByReason(t *testing.T) {
	of := func(id string, seconds int, code string) []events.Event {
		history := alerted(id, seconds)
		history[len(history)-1].Errors = []events.Error{{Code: code}}
		return history
	}
	s, _ := temporary(t)
	for p, all := range map[int32][][]events.Event{0: {of("late", 1, "overdue"), of("old", 3, "declined")}, 1: {of("held", 9000, "internal"), of("older", 2, "declined"), of("next", 5, "declined")}} {
		j := newJournal()
		for _, history := range all {
			j.add(history...)
		}
		if p == 0 {
			for n := range 2000 {
				j.add(of(fmt.Sprintf("o-%d", n), 10+n, "declined")...)
			}
		}
		writer := partition(t, s, p)
		must(t, fold(writer, j.records))
		must(t, writer.Flush())
	}
	ids := func(orders []*Order) (all []string) {
		for _, o := range orders {
			all = append(all, o.ID)
		}
		return all
	}
	found, err := s.AlertReasons(t.Context(), 2, nil, 3, nil)
	must(t, err)
	expect(t, "there is more", found.More, false)
	expect(t, "reasons", len(found.Of), 3)
	for reason, want := range map[events.AlertReason][]string{events.AboutOverdue: {"late"}, events.AboutError: {"older", "old", "next"}, events.AboutHeld: {"held"}} {
		expect(t, "the oldest of "+string(reason), ids(found.Of[reason].Oldest), want)
	}
	expect(t, "number in Error", found.Of[events.AboutError].Number, 2003)
	expect(t, "where they stand", found.Of[events.AboutError].At, map[AlertedAt]int{{"flow", "s0", false}: 2003})
	found, err = s.AlertReasons(t.Context(), 2, nil, 3, func(string) bool { return false })
	must(t, err)
	expect(t, "reasons that nobody may see", len(found.Of), 0)
	found, err = s.AlertReasons(t.Context(), 2, []int32{0}, 3, nil)
	must(t, err)
	expect(t, "number of the other partition", found.Of[events.AboutError].Number, 2)

	for _, limit := range []int{1, 7, 1000} {
		var walked []string
		var place *OpenPlace
		for {
			page, err := s.AlertsAbout(t.Context(), events.AboutError, 2, nil, place, limit, nil)
			must(t, err)
			walked = append(walked, ids(page.Orders)...)
			if place = page.Next; place == nil {
				break
			}
		}
		expect(t, fmt.Sprint("walked in pages of ", limit), len(walked), 2003)
		expect(t, fmt.Sprint("first in pages of ", limit), walked[:3], []string{"older", "old", "next"})
	}
}

// What is looked at is bounded: the number is then of the oldest.
func TestManyAlertsByReason(t *testing.T) {
	j := newJournal()
	for n := range pageKeys + 1 {
		j.add(alerted(fmt.Sprintf("o-%06d", n), n)...)
	}
	s, _ := folded(t, j)
	found, err := s.AlertReasons(t.Context(), 1, nil, 1, nil)
	must(t, err)
	of := found.Of[events.AboutError]
	if !found.More || of.Number > pageKeys || len(of.Oldest) != 1 || of.Oldest[0].ID != "o-000000" {
		t.Errorf("more: %t, %d, first %v", found.More, of.Number, of.Oldest[0].ID)
	}
}

package projections

import (
	"testing"

	"github.com/waybill-dev/waybill/events"
)

// asking is the beginning of an order that asks people, twice if seconds later is not 0.
func asking(id string, seconds, later int) []events.Event {
	all := []events.Event{
		{Type: events.OrderAccepted, Workflow: "flow", Version: 1, Steps: []string{"a", "b"}, By: "sam"},
		{Type: events.StepApproving, Step: "a", Attempt: 1, Roles: []string{"clerk"}, Outcomes: []string{"yes", "no"}, Count: 2, Due: at(seconds + 3600)},
	}
	if later > 0 {
		all = append(all, events.Event{Type: events.StepApproving, Step: "b", Attempt: 1, Roles: []string{"clerk"}, Outcomes: []string{"yes"}})
	}
	for i := range all {
		all[i].Order, all[i].At = id, at(seconds)
	}
	if later > 0 {
		all[2].At = at(later)
	}
	return all
}

// waiting are the orders that wait for people, page by page.
func waiting(t *testing.T, s *Store, limit int) (ids []string) {
	t.Helper()
	for place := (*OpenPlace)(nil); ; {
		page, err := s.Approvals(t.Context(), 1, nil, place, limit, nil)
		must(t, err)
		for _, o := range page.Orders {
			ids = append(ids, o.ID)
		}
		if place = page.Next; place == nil {
			return ids
		}
		if len(ids) > 100 {
			t.Fatalf("the pages have no end: %q", ids)
		}
	}
}

// What waits for people is listed by since when the first of its steps does, as long as one does.
func TestOrdersThatWaitForPeople(t *testing.T) {
	j := newJournal()
	for _, history := range [][]events.Event{asking("first", 1, 0), asking("again", 2, 9), asking("third", 3, 0), asking("ended", 4, 0), asking("over", 5, 0)} {
		j.add(history...)
	}
	j.add(events.Event{Type: events.OrderTerminated, Order: "ended", At: at(10), Reason: "enough"})
	j.add(events.Event{Type: events.StepTimedOut, Order: "over", At: at(11), Step: "a", Attempt: 1})
	j.add(events.Event{Type: events.StepDecided, Order: "third", At: at(12), Step: "a", Attempt: 1, Outcome: "yes", By: "ana"})
	s, p := folded(t, j)
	for _, limit := range []int{1, 2, 100} {
		expect(t, "who waits", waiting(t, s, limit), []string{"first", "again", "third"})
	}

	before := len(j.records)
	j.add(
		events.Event{Type: events.StepDecided, Order: "again", At: at(13), Step: "b", Attempt: 1, Outcome: "yes", By: "ana"},
		events.Event{Type: events.StepDecided, Order: "third", At: at(14), Step: "a", Attempt: 1, Outcome: "yes", By: "bob"},
		events.Event{Type: events.StepDecided, Order: "first", At: at(15), Step: "a", Attempt: 1, Outcome: "no", By: "bob"},
	)
	must(t, fold(p, j.records[before:]))
	must(t, p.Flush())
	expect(t, "who waits then", waiting(t, s, 10), []string{"again"})
	o, _, err := s.Order(0, "third")
	must(t, err)
	if a := o.Steps[0]; a.State != Completed || string(a.Output) != `{"outcome":"yes","decisions":[{"by":"ana","outcome":"yes","note":""},{"by":"bob","outcome":"yes","note":""}]}` || o.SubmittedBy != "sam" || a.asks() {
		t.Errorf("%+v, %s", o, a.Output)
	}
}

// What was decided is a value: what one course of an order adds does not stand in another that began with
// the same.
func TestDecisionsAreNotShared(t *testing.T) {
	o := &Order{}
	all := asking("o-1", 1, 0)
	all[1].Count = 5
	for _, e := range all {
		apply(t, o, e)
	}
	decided := func(o *Order, by string) *Order {
		c := o.Clone()
		apply(t, c, events.Event{Type: events.StepDecided, Step: "a", Attempt: 1, Outcome: "yes", By: by})
		return c
	}
	o = decided(decided(decided(o, "ana"), "bob"), "cyd") // a slice that has grown has room for more
	one, other := decided(o, "dan"), decided(o, "eve")
	expect(t, "what they know", [2]string{one.Steps[0].Approves.Decisions[3].By, other.Steps[0].Approves.Decisions[3].By}, [2]string{"dan", "eve"})
}

// In a pause there is no time until which a step waits; its end gives back what was left, and moves no
// reminder.
func TestAPauseOfAnApproval(t *testing.T) {
	o := &Order{}
	all := asking("o-1", 1, 0)
	all[1].Remind = at(1000)
	for _, e := range all {
		apply(t, o, e)
	}
	apply(t, o, events.Event{Type: events.OrderPaused, At: at(101), By: "kim"})
	if a := o.Steps[0].Approves; !a.Until.IsZero() || !a.Remind.Equal(at(1000)) || !o.Steps[0].Due.IsZero() {
		t.Errorf("in the pause: %+v, %v", a, o.Steps[0].Due)
	}
	apply(t, o, events.Event{Type: events.OrderResumed, At: at(501), By: "kim"})
	if a := o.Steps[0].Approves; !a.Until.Equal(at(4001)) || !a.Remind.Equal(at(1000)) || !o.Steps[0].Due.Equal(at(1000)) {
		t.Errorf("after the pause: %+v, %v", a, o.Steps[0].Due)
	}
}

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

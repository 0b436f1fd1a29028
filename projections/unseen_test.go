package projections

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

// standing is an order of a workflow that is in Error, and waits for a signal and for people, all since a time.
type standing struct {
	id, flow string
	at       time.Time
}

// wait folds such orders, over three partitions.
func wait(t testing.TB, s *Store, all []standing) {
	t.Helper()
	var batches [3][]events.Event
	for i, o := range all {
		history := []events.Event{
			{Type: events.OrderAccepted, Workflow: o.flow, Version: 1, Steps: []string{"a", "b"}},
			{Type: events.StepListening, Step: "a", Attempt: 1, Listen: events.ListenAll, Signals: []string{"x"}},
			{Type: events.StepApproving, Step: "b", Attempt: 1, Roles: []string{"clerk"}, Outcomes: []string{"yes"}, Count: 1},
			{Type: events.OrderErrored, Step: "b", Reason: "gone"},
			{Type: events.AlertRaised, Step: "b", Reason: "gone", Errors: []events.Error{{Code: "gone"}}},
		}
		for n := range history {
			history[n].Order, history[n].At = o.id, o.at
		}
		batches[i%3] = append(batches[i%3], history...)
	}
	for p, batch := range batches {
		j := newJournal()
		j.add(batch...)
		writer, err := s.Partition(int32(p))
		if err == nil {
			err = fold(writer, j.records)
		}
		if err == nil {
			err = writer.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// openings are the ways through what waits for somebody.
func openings() map[string]*opening {
	return map[string]*opening{
		"alerts":             {kind: kindAlert, since: (*Order).alertedAt},
		"the oldest alerts":  {kind: kindAlert, since: (*Order).alertedAt, backwards: true},
		"approvals":          {kind: kindApproval, since: (*Order).ApprovingSince},
		"signals":            {kind: kindListens, since: (*Order).listensAt},
		"signals of a third": {kind: kindListens, since: (*Order).listensAt, wanted: func(o *Order) bool { return strings.HasSuffix(o.ID, "3") }},
	}
}

// Who sees few of very many that wait has no request go through them all. Page by page each of theirs is found once, and no
// place names another: where none of theirs is it is one between two milliseconds.
func TestWhoSeesFewReadsNoWholeIndex(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s, err := Temporary()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		most := rapid.IntRange(1, 6).Draw(r, "looks")
		seldom := rapid.IntRange(1, 12).Draw(r, "one is seen of")
		var all []standing
		within := make(map[time.Time]int) // how many stand at a time
		millis := 0
		for n := range rapid.IntRange(0, 60).Draw(r, "orders") {
			millis += rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2, 1000}).Draw(r, "later by")
			o := standing{fmt.Sprintf("hidden-%02d", n), "hidden", start.Add(time.Duration(millis) * time.Millisecond)}
			if rapid.IntRange(1, seldom).Draw(r, "which") == 1 {
				o.id, o.flow = fmt.Sprintf("seen-%02d", n), "seen"
			}
			within[o.at]++
			all = append(all, o)
		}
		wait(t, s, all)
		crowd := 0
		for _, n := range within {
			crowd = max(crowd, n)
		}
		for name, by := range openings() {
			limit := rapid.SampledFrom([]int{1, 2, 100}).Draw(r, "limit")
			var want, found []string
			for _, o := range all {
				if o.flow == "seen" && (by.wanted == nil || by.wanted(&Order{ID: o.id})) {
					want = append(want, o.id)
				}
			}
			requests := 0
			for after := (*OpenPlace)(nil); ; {
				looked, seen := 0, false // the last
				page, err := s.openUpTo(t.Context(), most, by, 3, nil, after, limit, func(flow string) bool {
					looked, seen = looked+1, flow == "seen"
					return seen
				})
				if err != nil {
					t.Fatal(err)
				}
				if looked != page.Looked || looked >= most+crowd {
					r.Fatalf("%s: a request read %d orders, and says %d", name, looked, page.Looked)
				}
				for _, o := range page.Orders {
					found = append(found, o.ID)
				}
				if after = page.Next; after == nil {
					break
				}
				if after.Order == "" && (looked < most || seen) || after.Order != "" && !strings.HasPrefix(after.Order, "seen-") {
					r.Fatalf("%s: behind %d looks a page of %d ends at %+v", name, looked, limit, after)
				}
				if requests++; requests > len(all)+1 {
					r.Fatalf("%s: the pages have no end: %q", name, found)
				}
			}
			slices.Sort(found)
			slices.Sort(want)
			if !slices.Equal(found, want) {
				r.Errorf("%s: found were %q, and not %q", name, found, want)
			}
		}
	})
}

// Of far more than a page looks at, of which none is visible but a few, all in one millisecond or each in its own, each list
// reads no more than it may.
func TestAPageOfWhatIsNotVisibleCostsSoMuch(t *testing.T) {
	const many = 2*pageKeys + 500
	visible := []int{12_345, many - 1}
	for _, each := range []int{1, many} {
		s, _ := temporary(t)
		all := make([]standing, many)
		for i := range all {
			all[i] = standing{fmt.Sprintf("hidden-%05d", i), "hidden", start.Add(time.Duration(i/each) * time.Millisecond)}
			if slices.Contains(visible, i) {
				all[i].id, all[i].flow = fmt.Sprintf("seen-%05d", i), "seen"
			}
		}
		wait(t, s, all)
		looked := 0
		see := func(flow string) bool {
			looked++
			return flow == "seen"
		}
		for name, list := range map[string]func(after *OpenPlace) (OpenPage, error){
			"alerts": func(after *OpenPlace) (OpenPage, error) {
				return s.Alerts(t.Context(), 3, nil, after, 10, see)
			},
			"alerts about": func(after *OpenPlace) (OpenPage, error) {
				return s.AlertsAbout(t.Context(), events.AboutError, 3, nil, after, 10, see)
			},
			"approvals": func(after *OpenPlace) (OpenPage, error) {
				return s.Approvals(t.Context(), 3, nil, after, 10, see)
			},
			"signals": func(after *OpenPlace) (OpenPage, error) {
				return s.Listening(t.Context(), Listeners{}, 3, nil, after, 10, see)
			},
		} {
			found := 0
			for after := (*OpenPlace)(nil); ; {
				looked = 0
				page, err := list(after)
				must(t, err)
				if each == 1 && looked > pageKeys {
					t.Fatalf("%s: a request read %d orders", name, looked)
				}
				found += len(page.Orders)
				if after = page.Next; after == nil {
					break
				}
			}
			expect(t, fmt.Sprintf("found of %s, %d in a millisecond", name, each), found, len(visible))
		}
		looked = 0
		reasons, err := s.AlertReasons(t.Context(), 3, nil, 10, func(string) bool {
			looked++
			return false
		})
		must(t, err)
		if wants := map[int]int{1: pageKeys, many: many}[each]; looked != wants || reasons.More != (each == 1) || len(reasons.Of) > 0 {
			t.Errorf("%d in a millisecond: %d alerts were counted, more: %t, %v", each, looked, reasons.More, reasons.Of)
		}
	}
}

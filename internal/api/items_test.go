package api

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// How each item of a step stands is told page by page, and of which the order waits for an operator.
func (s *stage) testItems() {
	s.nests()
	if _, err := s.client.Register(s.Context(), "w.yaml", []byte(`
workflow: week
version: 1
steps:
  - {name: rest, each: {items: '[1, 2, 3]', order: nap}}
  - {name: play, each: {items: '[1, 2, 3]', steps: [{name: slip, agent: leak, do: fail}], atOnce: 2, onFailure: finish}}
  - {name: fall, each: {items: '[1, 2, 3]', order: fall, atOnce: 2}, after: [rest]}
  - {name: late, each: {items: '[1]', order: nap}, after: [fall]}
`)); err != nil {
		s.Fatal(err)
	}
	if _, err := s.client.Submit(s.Context(), &Submission{ID: "w-1", Workflow: "week"}); err != nil {
		s.Fatal(err)
	}
	list := func(step string, failed bool, limit int, after string) (all string, next string) {
		page, err := s.client.Items(s.Context(), "w-1", step, projections.ItemFilter{Failed: failed}, limit, after)
		if err != nil {
			return err.Error(), ""
		}
		for i := range page.Items {
			item := &page.Items[i]
			all += fmt.Sprintf("%d %s", item.Item, item.State)
			if item.ProcessState != nil {
				all += fmt.Sprintf(" %s %t", *item.ProcessState, *item.Alerted)
			}
			if item.Error != nil {
				all += " " + item.Error.Code
			}
			all += "; "
		}
		return all, page.Next
	}
	s.until(func() bool {
		failed, _ := list("play", true, 100, "")
		waits, _ := list("fall", false, 100, "")
		return failed == "1 failed compensated; 2 failed compensated; 3 failed compensated; " && waits == "1 running Error true; 2 running Error true; 3 not-started; "
	})
	if all, next := list("rest", false, 2, ""); all != "1 completed; 2 completed; " || next != "2" {
		s.Errorf("the first page is %s, and the next is behind %q", all, next)
	}
	if all, next := list("rest", false, 2, "2"); all != "3 completed; " || next != "" {
		s.Errorf("the second page is %s, and the next is behind %q", all, next)
	}
	if all, next := list("rest", false, 2, fmt.Sprint(events.MaxItems)); all != "" || next != "" {
		s.Errorf("behind the last page is %s, and the next is behind %q", all, next)
	}
	if all, next := list("rest", false, 3, ""); all != "1 completed; 2 completed; 3 completed; " || next != "" {
		s.Errorf("all are %s, and the next is behind %q", all, next)
	}
	for step, want := range map[string]string{"none": `order "w-1" has no step "none"`, "late": `step late of order "w-1" has no items (yet)`} {
		if all, _ := list(step, false, 2, ""); !strings.Contains(all, want) {
			s.Errorf("items of step %s: %s", step, all)
		}
	}
	for path, want := range map[string]int{
		"/api/v1/orders/w-1/steps/none/items": http.StatusNotFound, "/api/v1/orders/w-2/steps/rest/items": http.StatusNotFound,
		"/api/v1/orders/w-1/steps/rest/items?limit=1001": http.StatusUnprocessableEntity, "/api/v1/orders/w-1/steps/rest/items?after=x": http.StatusUnprocessableEntity,
		"/api/v1/orders/w-1/steps/rest/items?after=-1": http.StatusUnprocessableEntity, "/api/v1/orders/w-1/steps/rest/items?after=9223372036854775807": http.StatusUnprocessableEntity,
	} {
		if status, _, said := s.ask(request{path: path}); status != want {
			s.Errorf("%s: %d %s", path, status, said)
		}
	}
	o, err := s.client.Order(s.Context(), "w-1")
	if err != nil || o.ProcessState != projections.Error || o.Steps[1].Items.Failed != 3 || o.Steps[2].Items.Running != 2 || o.Steps[2].Items.AtOnce != nil {
		s.Errorf("%+v: %v", o, err)
	}

	// Which orders left something is said of each, and what; those alone can be asked for.
	o = s.leaves("w-2")
	if step := o.Steps[1]; step.Items.Left != 2 || step.Items.Failed != 2 || !step.Leaves || len(step.LeftBy) > 0 {
		s.Errorf("%+v, %+v", step, step.Items)
	}
	for wanted, want := range map[projections.ItemFilter]string{
		{}:                         "1 []; 2 [{@w-2/each:i2 [say]} {@w-2/each:i2:2 [say]}]; 3 [{@w-2/each:i3 [say]} {@w-2/each:i3:2 [say]}]; ",
		{Left: true}:               "2 [{@w-2/each:i2 [say]} {@w-2/each:i2:2 [say]}]; 3 [{@w-2/each:i3 [say]} {@w-2/each:i3:2 [say]}]; ",
		{Left: true, Failed: true}: "2 [{@w-2/each:i2 [say]} {@w-2/each:i2:2 [say]}]; 3 [{@w-2/each:i3 [say]} {@w-2/each:i3:2 [say]}]; ",
	} {
		page, err := s.client.Items(s.Context(), "w-2", "each", wanted, 100, "")
		if err != nil {
			s.Fatal(err)
		}
		got := ""
		for i := range page.Items {
			got += fmt.Sprintf("%d %v; ", page.Items[i].Item, page.Items[i].LeftBy)
		}
		if got != want {
			s.Errorf("%+v: %s", wanted, got)
		}
	}

	// Of items that an agent lists it is told of how many pages were asked for; none is to come of a step that has failed.
	if _, err := s.client.Register(s.Context(), "l.yaml", []byte(`
workflow: listed
version: 1
steps:
  - {name: pick, each: {items: {agent: leak, do: fail}, order: nap}}
`)); err != nil {
		s.Fatal(err)
	}
	if _, err := s.client.Submit(s.Context(), &Submission{ID: "w-3", Workflow: "listed"}); err != nil {
		s.Fatal(err)
	}
	s.until(func() bool {
		o, err = s.client.Order(s.Context(), "w-3")
		return err == nil && o.ProcessState == projections.Error
	})
	if step := o.Steps[0]; step.Error.Code != events.NoPage || *step.Items.Pages != 1 || step.Items.More || step.Items.Count != 0 {
		s.Errorf("%+v, %+v", step.Error, step.Items)
	}
}

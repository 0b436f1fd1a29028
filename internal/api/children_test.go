package api

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// nests registers workflows of which a step is done by an order of another: one that ends well, and
// one that does not.
func (s *stage) nests() {
	s.Helper()
	for _, source := range []string{
		"workflow: nap\nversion: 1\nsteps: [{name: doze, sleep: 1ms}]\n",
		"workflow: fall\nversion: 1\nsteps: [{name: slip, agent: leak, do: fail}]\n",
		"workflow: day\nversion: 1\nsteps: [{name: rest, order: nap}, {name: play, order: fall}]\n",
	} {
		if _, err := s.client.Register(s.Context(), "w.yaml", []byte(source)); err != nil {
			s.Fatal(err)
		}
	}
}

// atRest submits an order whose second step's child waits for an operator, and returns it once that is seen.
func (s *stage) atRest(id string) (o *Order) {
	s.Helper()
	if _, err := s.client.Submit(s.Context(), &Submission{ID: id, Workflow: "day"}); err != nil {
		s.Fatal(err)
	}
	s.until(func() (seen bool) {
		var err error
		o, err = s.client.Order(s.Context(), id)
		return err == nil && len(o.Steps) == 2 && o.Steps[1].Child != nil && o.Steps[1].Child.Alerted != nil && *o.Steps[1].Child.Alerted
	})
	return o
}

// What does a step is said of the step, and whose step it does of the order, and of its alert.
func (s *stage) testChildren() {
	s.nests()
	o := s.atRest("day-1")
	rest, play := o.Steps[0].Child, o.Steps[1].Child
	if rest.Order != "@day-1/rest" || rest.Recalled || rest.ProcessState == nil || *rest.ProcessState != projections.Processed || rest.Alerted == nil || *rest.Alerted {
		s.Errorf("%+v", rest)
	}
	if play.Order != "@day-1/play" || *play.ProcessState != projections.Error || o.Parent != nil || o.Steps[1].State != projections.Running {
		s.Errorf("%+v, %+v", play, o)
	}
	child := s.order("@day-1/play", projections.Error)
	want := Parent{Order: "day-1", Step: "play"}
	if child.Parent == nil || *child.Parent != want || child.Alert == nil || child.Alert.Parent == nil || *child.Alert.Parent != want || child.Steps[0].Child != nil {
		s.Errorf("%+v", child)
	}
	page, err := s.client.Alerts(s.Context(), 100, "")
	if n := slices.IndexFunc(page.Alerts, func(a Alert) bool { return a.Order == "@day-1/play" }); err != nil || n < 0 || page.Alerts[n].Parent == nil || *page.Alerts[n].Parent != want {
		s.Errorf("%+v, %v", page, err)
	}

	// It is undone with its parent, and what its parent says of it is how it stands.
	s.act("day-1", "cancel", "", http.StatusOK)
	o = s.order("day-1", projections.Cancelled)
	if c := o.Steps[1].Child; !c.Recalled || *c.ProcessState != projections.Cancelled || *c.Alerted {
		s.Errorf("%+v", c)
	}

	// Which orders left something is said of each step, and which steps they left: also what was of earlier rounds.
	o = s.leaves("left-1")
	if l := o.Steps[0].LeftBy; len(l) != 2 || l[0].Order != "@left-1/tell" || l[1].Order != "@left-1/tell:2" || !slices.Equal(l[0].Steps, []string{"say"}) || !slices.Equal(l[1].Steps, []string{"say"}) || !o.Steps[0].Leaves {
		s.Errorf("%+v", o.Steps[0])
	}
	told := slices.DeleteFunc(s.history("left-1"), func(e events.Event) bool { return e.Step != "tell" || !e.Left })
	was, err := s.client.OrderAsOf(s.Context(), "left-1", told[0].Seq)
	if err != nil || len(was.Steps[0].LeftBy) != 1 || was.Steps[0].LeftBy[0].Order != "@left-1/tell" || !slices.Equal(was.Steps[0].LeftBy[0].Steps, []string{"say"}) {
		s.Errorf("%+v, %v", was, err)
	}

	// Such ids are for Waybill to give. Those that are there are as any: they cannot be submitted anew.
	for _, body := range []string{`{"workflow":"nap","id":"@mine"}`, `{"workflow":"nap","id":"@day-1/other"}`} {
		s.refusesID("/api/v1/orders", body)
	}
	s.refusesID("/api/v1/orders/day-1/rerun", `{"id":"@mine"}`)
	if status, _, said := s.ask(request{method: "POST", path: "/api/v1/orders", body: `{"workflow":"day","id":"@day-1/play"}`}); status != http.StatusConflict {
		s.Errorf("a taken id: %d %s", status, said)
	}
	if status, _, said := s.ask(request{method: "POST", path: "/api/v1/orders", body: `{"workflow":"fall","version":1,"id":"@day-1/play"}`}); status != http.StatusAccepted {
		s.Errorf("the same again: %d %s", status, said)
	}
	r, _ := s.runAgain("@day-1%2Fplay", "", http.StatusAccepted)
	if o := s.order(r.OrderID, projections.Error); o.Parent != nil || *o.RerunOf != "@day-1/play" {
		s.Errorf("what does a child's work again is %+v", o)
	}
}

// An order that does a step, or an item, and is past its deadline is found as any other: in Error, with its alert, and on its parent as
// one that waits for an operator; and what is due for people to decide in one, among the decisions that are.
func (s *stage) testOverdueChildren() {
	for _, source := range []string{
		"workflow: brief\nversion: 1\ndeadline: 20ms\nsteps: [{name: wait, listen: {one: go}}]\n",
		"workflow: asking\nversion: 1\nsteps: [{name: ask, approve: {roles: [clerk], outcomes: [yes, no], due: 1ms}}]\n",
		"workflow: above\nversion: 1\nsteps: [{name: one, order: brief}, {name: many, after: [], each: {items: '[1]', order: brief}}, {name: asks, after: [], order: asking}]\n",
	} {
		if _, err := s.client.Register(s.Context(), "w.yaml", []byte(source)); err != nil {
			s.Fatal(err)
		}
	}
	if _, err := s.client.Submit(s.Context(), &Submission{ID: "a-1", Workflow: "above"}); err != nil {
		s.Fatal(err)
	}
	waits := func(alerted *bool) bool { return alerted != nil && *alerted }
	s.until(func() bool {
		o, err := s.client.Order(s.Context(), "a-1")
		if err != nil || len(o.Steps) < 3 || o.Steps[0].Child == nil || !waits(o.Steps[0].Child.Alerted) {
			return false
		}
		items, err := s.client.Items(s.Context(), "a-1", "many", projections.ItemFilter{}, 10, "")
		if err != nil || len(items.Items) != 1 || !waits(items.Items[0].Alerted) {
			return false
		}
		due, err := s.client.Approvals(s.Context(), false, true, 1000, "")
		return err == nil && slices.ContainsFunc(due.Approvals, func(a Approval) bool { return a.Order == "@a-1/asks" && a.Overdue })
	})
	if o := s.order("a-1", projections.Processing); o.Alert != nil {
		s.Errorf("the order above has %+v", o.Alert)
	}
	alerts, err := s.client.Alerts(s.Context(), 1000, "")
	if err != nil {
		s.Fatal(err)
	}
	for _, id := range []string{"@a-1/one", "@a-1/many:i1"} {
		n := slices.IndexFunc(alerts.Alerts, func(a Alert) bool { return a.Order == id })
		if n < 0 || alerts.Alerts[n].Parent == nil || alerts.Alerts[n].Parent.Order != "a-1" || alerts.Alerts[n].Errors[0].Code != "overdue" {
			s.Errorf("%s is not among the alerts as overdue: %+v", id, alerts)
		}
		s.order(id, projections.Error)
	}
	s.act("a-1", "cancel", "", http.StatusOK)
	s.order("a-1", projections.Cancelled)
}

// leaves has an order be done anew, as in each round what does its steps ends with something that is not undone: two orders of
// one step, and of the second item.
func (s *stage) leaves(id string) *Order {
	s.Helper()
	for _, source := range []string{
		"workflow: leaves\nversion: 1\nsteps: [{name: say, agent: leak, do: tell}, {name: gone, raise: {code: gone}, when: input != 1}]\n",
		"workflow: letter\nversion: 1\nsteps: [{name: tell, order: leaves}, {name: each, after: [], each: {items: '[1, 2, 3]', order: leaves, tolerate: 1, onFailure: finish}}]\n",
	} {
		if _, err := s.client.Register(s.Context(), "w.yaml", []byte(source)); err != nil {
			s.Fatal(err)
		}
	}
	if _, err := s.client.Submit(s.Context(), &Submission{ID: id, Workflow: "letter"}); err != nil {
		s.Fatal(err)
	}
	ended := func(failures int) (o *Order) {
		s.until(func() bool {
			var err error
			o, err = s.client.Order(s.Context(), id)
			return err == nil && o.ProcessState == projections.Error && o.FailureCount == failures
		})
		return o
	}
	ended(2)
	s.act(id, "resubmit", "", http.StatusOK)
	return ended(4)
}

// refusesID submits under an id that is not to be had.
func (s *stage) refusesID(path, body string) {
	s.Helper()
	status, _, said := s.ask(request{method: "POST", path: path, body: body})
	var p Problem
	if err := json.Unmarshal([]byte(said), &p); err != nil || status != http.StatusUnprocessableEntity || len(p.Errors) != 1 || p.Errors[0].Location != "body.id" {
		s.Errorf("%s: %d %s", body, status, said)
	}
}

// Who may not see an order is told which one does a step, and not how that stands.
func TestAChildThatIsNotSeen(t *testing.T) {
	s, keys := known(t, slog.New(slog.DiscardHandler), map[string]string{"root": "roles: [admin]", "part": "roles: [viewer], workflows: [day, nap, letter]"})
	s.nests()
	s.atRest("day-1")
	own := *s
	s.leaves("letter-1")
	own.token = keys["part"]
	status, _, said := own.ask(request{path: "/api/v1/orders/day-1"})
	var o Order
	if err := json.Unmarshal([]byte(said), &o); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, said, err)
	}
	if c := o.Steps[0].Child; c.ProcessState == nil || *c.ProcessState != projections.Processed {
		t.Errorf("one that is seen: %+v", c)
	}
	if c := o.Steps[1].Child; c.Order != "@day-1/play" || c.ProcessState != nil || c.Alerted != nil {
		t.Errorf("one that is not: %+v", c)
	}
	_, _, said = own.ask(request{path: "/api/v1/orders/letter-1"})
	var of Order
	if err := json.Unmarshal([]byte(said), &of); err != nil || len(of.Steps[0].LeftBy) != 2 || len(of.Steps[0].LeftBy[0].Steps) > 0 || of.Steps[1].Items.Left != 2 {
		t.Errorf("%s: %v", said, err)
	}
	_, _, said = own.ask(request{path: "/api/v1/orders/letter-1/steps/each/items?left=true"})
	var page ItemPage
	if err := json.Unmarshal([]byte(said), &page); err != nil || len(page.Items) != 2 || len(page.Items[0].LeftBy) != 2 || page.Items[0].LeftBy[1].Order != "@letter-1/each:i2:2" || len(page.Items[0].LeftBy[0].Steps) > 0 {
		t.Errorf("%s: %v", said, err)
	}
	if c := OrderOf(0, &projections.Order{Steps: []projections.Step{{Child: &projections.Child{ID: events.ChildID("o-1/a")}}}}, o.UpdatedAt.Time).Steps[0].Child; c.Order != "@o-1/a" || c.ProcessState != nil {
		t.Errorf("of an order as it was: %+v", c)
	}
}

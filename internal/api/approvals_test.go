package api

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

const loan = `
workflow: loan
steps:
  - {name: granted, approve: {roles: [clerk, finance], count: 2, show: '{"total": input.total}'}}
  - {name: more, approve: {roles: [board]}, after: []}
`

// P3: people decide over HTTP, each once, and nobody who submitted the order; those who may decide see
// what they are shown, and nothing else, and who may not see nothing of it.
func TestApprovals(t *testing.T) {
	s, keys := known(t, slog.New(slog.DiscardHandler), map[string]string{
		"root": "roles: [admin]", "sam": "roles: [submitter, approver/clerk]", "ana": "roles: [approver/clerk]", "bob": "roles: [approver/finance], workflows: [loan]",
		"eve": "roles: [approver/finance], workflows: [other]", "view": "roles: [viewer]", "read": "roles: [payload-reader]", "op": "roles: [operator]",
	})
	if _, err := s.client.Register(t.Context(), "loan.yaml", []byte(loan)); err != nil {
		t.Fatal(err)
	}
	as := func(name string) *stage {
		own := *s
		own.token = keys[name]
		return &own
	}
	for n := range 3 {
		as("sam").ask(request{method: http.MethodPost, path: "/api/v1/orders", body: fmt.Sprintf(`{"id":"o-%d","workflow":"loan","input":{"total":7,"secret":"canary"}}`, n)})
		s.until(func() bool {
			o, err := s.client.Order(t.Context(), fmt.Sprint("o-", n))
			return err == nil && o.Steps[0].State == projections.Approving
		})
	}
	list := func(name, query string) (page ApprovalPage) {
		t.Helper()
		status, _, said := as(name).ask(request{path: "/api/v1/approvals" + query})
		if status != http.StatusOK || json.Unmarshal([]byte(said), &page) != nil || strings.Contains(said, "canary") {
			t.Fatalf("%s: %d %s", name, status, said)
		}
		return page
	}
	shown := func(page ApprovalPage) (all []string) {
		for _, a := range page.Approvals {
			all = append(all, fmt.Sprintf("%s %s mine=%t masked=%t %s", a.Order, a.Step, a.Mine, a.Masked, a.Show))
		}
		return all
	}
	for name, want := range map[string]string{
		"ana": `o-0 granted mine=true masked=false {"total":7}`, "bob": `o-0 granted mine=true masked=false {"total":7}`, "eve": "",
		"sam": `o-0 granted mine=false masked=true null`, "view": `o-0 granted mine=false masked=true null`, "read": `o-0 granted mine=false masked=false {"total":7}`,
		"op": `o-0 granted mine=false masked=true null`,
	} {
		got := shown(list(name, "?limit=1"))
		if want == "" && len(got) > 0 || want != "" && (len(got) != 2 || got[0] != want) {
			t.Errorf("%s sees %q", name, got)
		}
	}
	if got := shown(list("bob", "?mine=true")); !slices.Equal(got, []string{`o-0 granted mine=true masked=false {"total":7}`, `o-1 granted mine=true masked=false {"total":7}`, `o-2 granted mine=true masked=false {"total":7}`}) {
		t.Errorf("for bob: %q", got)
	}
	var paged []string
	for after := ""; ; {
		page := list("ana", "?limit=1&after="+after)
		paged = append(paged, shown(page)...)
		if after = page.Next; after == "" {
			break
		}
	}
	if len(paged) != 6 {
		t.Errorf("page by page: %q", paged)
	}

	decide := func(name, order, body string, want int) string {
		t.Helper()
		status, _, said := as(name).ask(request{method: http.MethodPost, path: "/api/v1/orders/" + order + "/decide", body: body})
		if status != want || strings.Contains(said, "canary") && name != "root" {
			t.Errorf("%s decides %s: %d %s", name, body, status, said)
		}
		return said
	}
	decide("view", "o-0", `{"step":"granted","outcome":"approved"}`, http.StatusForbidden)
	decide("op", "o-0", `{"step":"granted","outcome":"approved"}`, http.StatusForbidden)
	decide("eve", "o-0", `{"step":"granted","outcome":"approved"}`, http.StatusNotFound) // as one that is not there
	for name, why := range map[string]string{"sam": "submitted the order", "root": "has none of the roles"} {
		if said := decide(name, "o-0", `{"step":"granted","outcome":"approved"}`, http.StatusConflict); !strings.Contains(said, why) {
			t.Errorf("%s: %s", name, said)
		}
	}
	decide("ana", "o-0", `{"outcome":"approved"}`, http.StatusUnprocessableEntity) // which step?
	decide("ana", "o-0", `{"step":"granted","outcome":"approved","note":"`+strings.Repeat("x", 1025)+`"}`, http.StatusConflict)
	decide("ana", "o-0", `{"step":"granted"}`, http.StatusUnprocessableEntity)
	decide("ana", "o-0", `{"step":"granted","outcome":"approved","by":"bob"}`, http.StatusForbidden)
	decide("ana", "o-0", `{"step":"granted","outcome":"approved","note":"the canary sings"}`, http.StatusOK)
	if said := decide("ana", "o-0", `{"step":"granted","outcome":"declined"}`, http.StatusConflict); !strings.Contains(said, "has decided already: approved") {
		t.Error(said)
	}
	if got := shown(list("ana", "?mine=true")); len(got) != 2 {
		t.Errorf("what ana has decided is still there: %q", got)
	}
	if got := list("view", "?overdue=true"); len(got.Approvals) > 0 {
		t.Errorf("nothing is due: %+v", got)
	}
	for _, a := range list("view", "").Approvals { // without the note
		if a.Order == "o-0" && a.Step == "granted" && (len(a.Decisions) != 1 || a.Decisions[0].By != "ana" || a.Decisions[0].Note != nil) {
			t.Errorf("a viewer sees of what was said: %+v", a.Decisions)
		}
	}
	decide("bob", "o-0", `{"step":"granted","outcome":"approved"}`, http.StatusOK)
	o, err := s.client.Order(t.Context(), "o-0")
	if err != nil || *o.SubmittedBy != "sam" || o.Steps[0].State != projections.Completed || len(o.Steps[0].Approves.Decisions) != 2 || *o.Steps[0].Approves.Decisions[0].Note != "the canary sings" {
		t.Errorf("%+v, %v", o, err)
	}
	if status, _, said := as("view").ask(request{path: "/api/v1/orders/o-0"}); status != http.StatusOK || strings.Contains(said, "canary") || !strings.Contains(said, `"by":"ana"`) {
		t.Errorf("%d %s", status, said)
	}
	history := s.history("o-0")
	if said := of(history, events.StepDecided); len(said) != 2 || said[0].Actor == nil || said[0].By != "ana" || !slices.Equal(said[0].Actor.Roles, []string{"approver/clerk"}) {
		t.Errorf("%+v", said)
	}
	if first := history[0]; first.By != "sam" || first.Actor == nil || !slices.Equal(first.Actor.Roles, []string{"submitter", "approver/clerk"}) {
		t.Errorf("%+v", first)
	}
	if got := shown(list("view", "")); len(got) != 5 || !slices.Contains(got, "o-0 more mine=false masked=true null") {
		t.Errorf("what was decided is listed: %q", got)
	}

	// Whoever submitted an order does not decide in one that does it again, whoever asked for that.
	s.act("o-2", "terminate", `{"note":"enough"}`, http.StatusOK)
	s.runAgain("o-2", `{"id":"o-2b"}`, http.StatusAccepted)
	if o := s.order("o-2b", projections.Pending); *o.SubmittedBy != "root" {
		t.Errorf("%s is done again by %s", *o.RerunOf, *o.SubmittedBy)
	}
	if said := decide("sam", "o-2b", `{"step":"granted","outcome":"approved"}`, http.StatusConflict); !strings.Contains(said, "or one that it does again") {
		t.Error(said)
	}
}

// Where no instance could tell the others who somebody is, a decision would not count: nobody is told that
// it is his.
func TestNothingIsMineThatWouldNotCount(t *testing.T) {
	access, keys := callers(t, slog.New(slog.DiscardHandler), map[string]string{"ana": "roles: [approver/clerk]"})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+keys["ana"])
	ana, err := access.Identify(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	o, a := &projections.Order{Workflow: "loan"}, &projections.Approval{Roles: []string{"clerk"}}
	for _, claims := range []bool{false, true} {
		i := idle(t, func(cfg *orchestrator.Config) { cfg.ClaimedApprovals = claims })
		for _, caller := range []*identity.Caller{ana, identity.Anybody} {
			if mayDecide(caller, i, o, a) != claims {
				t.Errorf("where claims count: %t; %q may decide: %t", claims, caller.Subject, !claims)
			}
		}
	}
}

package console

import (
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/identity"
)

// What needs somebody stands by its reason, each with its number and its oldest; what does not is not there.
func TestHomeByReason(t *testing.T) {
	alert := func(id string, hours int) api.Alert {
		return api.Alert{Order: id, Reason: "why of " + id, At: &api.Time{Time: time.Now().Add(-time.Duration(hours)*time.Hour - time.Minute)}}
	}
	of := func(reason events.AlertReason, number int, oldest ...api.Alert) api.AlertsOf {
		return api.AlertsOf{Reason: reason, Number: number, Oldest: oldest}
	}
	step, masked := "charge", alert("o-secret", 1)
	masked.Reason, masked.Masked = "", true
	letters := []api.DeadLetter{{Partition: 3, Offset: 7, Reason: "it is no JSON"}}
	for name, c := range map[string]struct {
		alerts  api.AlertReasons
		letters []api.DeadLetter
		asks    []api.Approval
		next    string // page of these, and of orders
		caller  api.Caller
		away    string // what answers 503
		want    []string
	}{
		"nobody is needed": {want: []string{"Nobody.", "!Orders in Error:", "!Held orders", "!Overdue orders", "!Decisions that people wait for:", "!Inputs that were put aside"}},
		"2,000 failed, and one was overdue before them": {
			alerts: api.AlertReasons{Reasons: []api.AlertsOf{of(events.AboutError, 2000, alert("o-1", 2)), of(events.AboutOverdue, 1, alert("late", 30))}},
			want:   []string{"Orders in Error: 2000<", "Overdue orders: 1<", `href="/orders/late"`, "30 h ago", `href="/alerts?reason=overdue"`, `href="/alerts?reason=error"`, "!Held orders", "!Nobody", "2001 orders in Error, "},
		},
		"some stand at one step, some at another": {
			alerts: api.AlertReasons{Reasons: []api.AlertsOf{{Reason: events.AboutError, Number: 8, Oldest: []api.Alert{alert("o-1", 2)}, At: []api.AlertsAt{{Workflow: "shop&", Step: &step, Number: 5}, {Workflow: "shop&", Number: 2}}}, {Reason: events.AboutHeld, Number: 2, Oldest: []api.Alert{alert("h-1", 2)}, At: []api.AlertsAt{{Workflow: "lent", Step: &step, Undo: true, Number: 2}}}}},
			want:   []string{`<a href="/orders?state=Error&step=charge&workflow=shop%26">shop&, charge: 5</a>`, "<li>shop&, of no step: 2</li>", "<li>others: 1</li>", "<li>lent, undo of charge: 2</li>", `!<a href="/orders?state=Error&workflow=shop%26">`},
		},
		"one is held": {
			alerts: api.AlertReasons{Reasons: []api.AlertsOf{of(events.AboutHeld, 1, alert("poisoned", 1))}},
			want:   []string{"Held orders: 1<", `href="/orders/poisoned"`, `href="/alerts?reason=held"`, "!Orders in Error:"},
		},
		"there are more than were looked at": {
			alerts: api.AlertReasons{More: true, Reasons: []api.AlertsOf{{Reason: events.AboutError, Number: 4000, Oldest: []api.Alert{alert("o-1", 2)}, At: []api.AlertsAt{{Workflow: "shop", Step: &step, Number: 3990}}}}},
			want:   []string{"shop, charge: at least 3990<", "others: at least 10<", "Orders in Error: at least 4000<", "There are more alerts than were looked at", "at least 4000 orders in Error, "},
		},
		"none of what was looked at is visible": {
			alerts: api.AlertReasons{More: true}, next: "MQ",
			want: []string{
				"There are more alerts than were looked at", "no orders in Error among those that were looked at, no decisions that people wait for among those",
				"Decisions that people wait for: none of those that were looked at<", "None of those that were looked at; others were not.", "!Nobody", "!more than", "!None.",
			},
		},
		"who looks may do something": {
			caller: api.Caller{Grants: []api.Grant{{Roles: []identity.Role{identity.Operator}, Workflows: []string{"shop"}}}},
			alerts: api.AlertReasons{Reasons: []api.AlertsOf{of(events.AboutError, 2, api.Alert{Order: "o-1", Workflow: "shop"}, api.Alert{Order: "o-2", Workflow: "bank"})}},
			want:   []string{`href="/orders/o-1#acts"`, `!href="/orders/o-2#acts"`},
		},
		"payloads are left out": {
			alerts: api.AlertReasons{Reasons: []api.AlertsOf{of(events.AboutHeld, 1, masked)}},
			want:   []string{"o-secret", "takes the role payload-reader", "!why of"},
		},
		"letters and decisions": {
			letters: letters, asks: []api.Approval{{Order: "o-7", Step: "credit"}},
			want: []string{"Inputs that were put aside: 1<", "it is no JSON", "Decisions that people wait for: 1<", "!Nobody"},
		},
		"partitions are left out":  {alerts: api.AlertReasons{LeftOut: api.LeftOut{Unknown: []int32{4}}}, want: []string{"Nobody, as far as this instance knows.", "[4]"}},
		"alerts are not known":     {away: "/api/v1/alerts/reasons", want: []string{`class="notice wrong"`, "orders in Error are not known", "!Nobody"}},
		"a partition stands still": {away: "/readyz", want: []string{"This instance is not ready: ", "!Nobody"}},
	} {
		answers := map[string]any{
			"/api/v1/caller": c.caller, "/api/v1/alerts/reasons": c.alerts, "/api/v1/dead-letters": api.DeadLetterPage{DeadLetters: c.letters},
			"/api/v1/approvals": api.ApprovalPage{Approvals: c.asks, Next: c.next}, "/api/v1/orders": api.OrderPage{Next: c.next}, "/api/v1/agents": api.Agents{}, "/readyz": nil,
		}
		server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer, is := answers[r.URL.Path]
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Path == c.away || !is {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(http.StatusServiceUnavailable)
				answer = api.Problem{Status: http.StatusServiceUnavailable, Title: "Service Unavailable", Detail: "it is away"}
			}
			if err := json.NewEncoder(w).Encode(answer); err != nil {
				t.Error(err)
			}
		})
		said := httptest.NewRecorder()
		New(server, Config{}).ServeHTTP(said, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
		page := html.UnescapeString(said.Body.String())
		for _, text := range c.want {
			if text, not := strings.CutPrefix(text, "!"); said.Code != http.StatusOK || strings.Contains(page, text) == not {
				t.Errorf("%s: %d, %q is there: %t\n%s", name, said.Code, text, not, page)
			}
		}
	}
}

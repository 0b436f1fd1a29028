package console

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/projections"
)

// asks has a page made, or a form answered, by a server that answers paths with these.
func asks(t *testing.T, answers map[string]any, method, path, form string) *httptest.ResponseRecorder {
	t.Helper()
	server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, is := answers[r.Method+" "+r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		if take, asked := answer.(func(*http.Request) any); asked {
			answer = take(r)
		}
		if problem, wrong := answer.(*api.Problem); wrong || !is {
			if !is {
				problem = &api.Problem{Status: http.StatusNotFound, Title: "Not found", Detail: r.URL.Path}
			}
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(problem.Status)
			answer = problem
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	})
	said := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(form))
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	New(server, Config{}).ServeHTTP(said, r)
	return said
}

// shows wants texts on a page, and those behind a ! not on it.
func shows(t *testing.T, name string, said *httptest.ResponseRecorder, want ...string) {
	t.Helper()
	page := html.UnescapeString(said.Body.String())
	for _, text := range want {
		if text, not := strings.CutPrefix(text, "!"); strings.Contains(page, text) == not {
			t.Errorf("%s: %d, %q is there: %t\n%s", name, said.Code, text, not, page)
		}
	}
}

var operates = api.Caller{Grants: []api.Grant{{Roles: []identity.Role{identity.Viewer, identity.Operator}}}}

// That an act is done does not say that its orders ended well: the page says what it did to each, and how each is now.
func TestWhatABulkActDid(t *testing.T) {
	at := &api.Time{Time: time.Now()}
	summary := func(id string, state projections.State) *api.Summary {
		reason := "why of " + id
		return &api.Summary{OrderID: id, ProcessState: state, Reason: &reason, Labels: map[string]string{"shop": "s-" + id}, StandsAt: []api.StandsAt{{Step: "pay", State: projections.Failed}}, StandsAtAll: new(1)}
	}
	row := func(id string, outcome api.BulkOutcome, now *api.Summary, unknown string) api.BulkRow {
		return api.BulkRow{BulkOrder: api.BulkOrder{OrderID: id, State: projections.Error, Outcome: outcome}, Now: now, Unknown: unknown}
	}
	masked := summary("dark", projections.Error)
	masked.Reason, masked.Labels, masked.Masked = nil, nil, true
	going := row("on", api.OutcomeDone, summary("on", projections.Processing), "")
	resubmit := func(state api.BulkState) api.Bulk {
		b := api.Bulk{ID: "b", State: state, Command: events.CommandResubmit, With: json.RawMessage("{}"), Matched: 3, PreparedAt: at}
		if state != api.BulkPrepared {
			b.StartedAt, b.Done = at, 3
		}
		return b
	}
	with := func(b api.Bulk, command, with string) api.Bulk {
		b.Command, b.With = command, json.RawMessage(with)
		return b
	}
	secret := resubmit(api.BulkPrepared)
	secret.With, secret.Masked = nil, true
	refused := resubmit(api.BulkDone)
	refused.Done, refused.Failed, refused.Failures = 0, 3, []api.BulkFailure{{OrderID: "a", Reason: "it is held"}, {OrderID: "b"}}
	for name, c := range map[string]struct {
		act    api.Bulk
		orders any
		want   []string
	}{
		"of which one failed anew": {resubmit(api.BulkDone), api.BulkOrders{Orders: []api.BulkRow{
			row("well", api.OutcomeDone, summary("well", projections.Processed), ""), row("ill", api.OutcomeDone, summary("ill", projections.Error), ""), going,
			row("moved", api.OutcomeLeft, summary("moved", projections.Error), ""),
		}}, []string{
			"does not say that they ended well", "1 order on this page took it, and is in Error now", "Now, of 4 orders: 1 Processing, 1 Processed, 2 Error.", "Given, and taken: what failed began again", "Not given: it had changed",
			">Processed</span>", "why of ill", "shop=s-ill", "pay failed", "<dt>Left as they were</dt><dd>0", `data-live="10"`, "Load the page again</a></noscript>", "!http-equiv", "!Nothing was done yet",
			"Resubmit is done: 3 of 3 orders had their turn; now 1 Processing,",
		}},
		"that is over, and all its orders": {resubmit(api.BulkDone), api.BulkOrders{Orders: []api.BulkRow{row("well", api.OutcomeDone, summary("well", projections.Processed), "")}}, []string{`data-live="60"`, "!in Error now", "!</noscript>"}},
		"that had none of them go on":      {with(resubmit(api.BulkDone), "change", `{"priority":"low"}`), api.BulkOrders{Orders: []api.BulkRow{row("ill", api.OutcomeDone, summary("ill", projections.Error), "")}}, []string{"Given, and taken: it was changed", "!in Error now"}},
		"of which nothing is known":        {resubmit(api.BulkDone), api.BulkOrders{Orders: []api.BulkRow{row("far", api.OutcomeDone, nil, "not ready")}}, []string{"1 not known.", `data-live="60"`}},
		"that has more pages":              {resubmit(api.BulkDone), api.BulkOrders{Next: 100, Orders: []api.BulkRow{going, going}}, []string{"Now, of the 2 orders on this page: 2 Processing.", `href="/bulk/b?after=100"`}},
		"that goes on":                     {resubmit(api.BulkRunning), api.BulkOrders{Orders: []api.BulkRow{row("next", api.OutcomePending, summary("next", projections.Error), "")}}, []string{">Not yet<", `data-live="2"`, `<noscript><meta http-equiv="refresh" content="2"></noscript>`}},
		"that was stopped":                 {resubmit(api.BulkStopped), api.BulkOrders{Orders: []api.BulkRow{row("next", api.OutcomePending, summary("next", projections.Error), "")}}, []string{"Not given: its turn did not come", "!Each order had its turn"}},
		"that was refused": {refused, api.BulkOrders{Orders: []api.BulkRow{
			row("a", api.OutcomeFailed, summary("a", projections.Error), ""), row("b", api.OutcomeFailed, masked, ""), row("z", api.OutcomeFailed, summary("z", projections.Error), ""),
		}}, []string{"Failed: it is held", "Failed; it takes the role payload-reader", "Failed; its history says why", "are left out where that takes the role payload-reader", "!in Error now"}},
		"of which orders are not known": {resubmit(api.BulkDone), api.BulkOrders{Orders: []api.BulkRow{row("gone", api.OutcomeDone, nil, "it is not kept any more"), going}}, []string{"1 Processing, 1 not known.", "it is not kept any more", "<td>not known</td>"}},
		"whose orders are not kept":     {resubmit(api.BulkDone), &api.Problem{Status: http.StatusGone, Title: "Gone", Detail: "not kept any more"}, []string{"not kept any more", "!Now, of"}},
		"that is looked at first": {resubmit(api.BulkPrepared), api.BulkOrders{Orders: []api.BulkRow{row("ill", api.OutcomePending, summary("ill", projections.Error), "")}}, []string{
			"Nothing was done yet", "pay failed", "why of ill", "shop=s-ill", "Every step that failed begins again", keyChoices[0].Says, "!What the act did", "!<dt>Failed",
		}},
		"with new keys":         {with(resubmit(api.BulkPrepared), "resubmit", `{"newKey":true,"toVersion":7}`), api.BulkOrders{}, []string{"Idempotency keys: " + keyChoices[2].Says, "version 7", "!" + keyChoices[0].Says}},
		"with those of before":  {with(resubmit(api.BulkPrepared), "resubmit", `{"sameKey":true}`), api.BulkOrders{}, []string{"Idempotency keys: " + keyChoices[1].Says}},
		"with what is left out": {secret, api.BulkOrders{}, []string{"With what it is done is left out for you", "!Idempotency keys"}},
		"that skips":            {with(resubmit(api.BulkPrepared), "skip-step", `{"step":"pay"}`), api.BulkOrders{}, []string{"The step: pay."}},
		"that releases":         {with(resubmit(api.BulkPrepared), "release", `{"discard":true}`), api.BulkOrders{}, []string{"becomes a dead letter"}},
		"that changes":          {with(resubmit(api.BulkPrepared), "change", `{"priority":"low","deadline":"2027-01-31T18:00:00Z"}`), api.BulkOrders{}, []string{"Priority: low.", "Deadline: 2027-01-31 18:00:00."}},
		"of another release":    {with(resubmit(api.BulkDone), "frobnicate", `{"step":7}`), api.BulkOrders{Orders: []api.BulkRow{going}}, []string{"frobnicate: 3 orders", ">Given, and taken<", `"step": 7`}},
	} {
		said := asks(t, map[string]any{"GET /api/v1/caller": operates, "GET /api/v1/bulk/b": c.act, "GET /api/v1/bulk/b/orders": func(r *http.Request) any {
			if q := r.URL.Query(); q.Get("now") != "true" || q.Get("limit") != fmt.Sprint(pageRows) {
				t.Errorf("it asks for %v", q)
			}
			return c.orders
		}}, http.MethodGet, "/bulk/b", "")
		if said.Code != http.StatusOK {
			t.Errorf("%s: %d", name, said.Code)
		}
		shows(t, "an act "+name, said, c.want...)
	}
}

// A list offers for all its orders what can do something to one of them, and says where none of it stands why.
func TestWhatIsOfferedForAll(t *testing.T) {
	orders := func(all ...api.Summary) api.OrderPage { return api.OrderPage{Orders: all} }
	failed, pending, done := api.Summary{ProcessState: projections.Error}, api.Summary{ProcessState: projections.Pending}, api.Summary{ProcessState: projections.Processed}
	held, paused := failed, pending
	held.Held, paused.Paused = true, true
	toward := projections.Cancelled
	turned := api.Summary{ProcessState: projections.Error, Toward: &toward}
	more := func(p api.OrderPage) api.OrderPage { p.Next = "n"; return p }
	for name, c := range map[string]struct {
		query string
		page  api.OrderPage
		want  string // the acts
		says  []string
	}{
		"in Error":                {"?state=Error&step=pay", orders(failed), "resubmit skip-step change cancel terminate", []string{`name="skip" value="pay"`, `name="keys" value="" checked`, keyChoices[0].Says, "to one of them at least"}},
		"held":                    {"?state=Error", orders(held), "release terminate", nil},
		"held, and failed":        {"?state=Error", orders(held, failed), "resubmit skip-step release change cancel terminate", nil},
		"that are being undone":   {"?state=Error", orders(turned), "resubmit skip-step change terminate", nil},
		"that wait":               {"?workflow=w", orders(pending), "skip-step pause change cancel terminate", []string{`name="deadline"`}},
		"that are paused":         {"?workflow=w", orders(paused), "skip-step resume change cancel terminate", nil},
		"that have ended":         {"?workflow=w", orders(done), "", []string{"Nothing can be done to these orders together"}},
		"of which there are more": {"?workflow=w", more(orders(done)), "resubmit skip-step release pause resume change cancel terminate", []string{"orders that such a list may have"}},
		"in Error, and more":      {"?state=Error", more(orders()), "resubmit skip-step release resume change cancel terminate", nil},
		"of a later page":         {"?state=Compensating&after=x", orders(), "skip-step pause resume change terminate", nil},
		"Processed, and more":     {"?state=Processed", more(orders(done)), "", []string{"Nothing can be done to these orders together"}},
		"of which there are none": {"?state=Error", orders(), "", []string{"!Do the same to"}},
		"that nobody filtered":    {"", orders(failed), "", []string{"to do the same to many orders, filter the list by their state", "Bulk acts so far", "!Do the same to all of them"}},
		"of a step alone":         {"?step=pay", orders(failed), "", []string{"to do the same to many orders, filter the list by their state"}},
	} {
		said := asks(t, map[string]any{"GET /api/v1/caller": operates, "GET /api/v1/orders": c.page}, http.MethodGet, "/orders"+c.query, "")
		var offered []string
		for _, a := range acts {
			if strings.Contains(said.Body.String(), fmt.Sprintf(`name="command" value=%q`, a.Name)) {
				offered = append(offered, a.Name)
			}
		}
		if got := strings.Join(offered, " "); said.Code != http.StatusOK || got != c.want {
			t.Errorf("orders %s: %d, offered is %s, and not %s", name, said.Code, got, c.want)
		}
		shows(t, "orders "+name, said, c.says...)
	}
	viewer := api.Caller{Grants: []api.Grant{{Roles: []identity.Role{identity.Viewer}}}}
	shows(t, "a viewer", asks(t, map[string]any{"GET /api/v1/caller": viewer, "GET /api/v1/orders": orders(failed)}, http.MethodGet, "/orders?state=Error", ""), "!Do the same to", "!name=\"command\"")
}

// The forms for many say what the command takes: of the keys one choice, and of a change what it is about.
func TestBulkFormsSay(t *testing.T) {
	for form, want := range map[string]string{
		"command=resubmit&keys=&state=Error":                        `{}`,
		"command=resubmit&state=Error":                              `{}`,
		"command=resubmit&keys=newKey&state=Error":                  `{"newKey":true}`,
		"command=resubmit&keys=sameKey&toVersion=3&state=Error":     `{"sameKey":true,"toVersion":3}`,
		"command=resubmit&newKey=true&state=Error":                  `{"newKey":true}`,
		"command=resubmit&newKey=true&sameKey=true&state=Error":     "choose one of the two",
		"command=resubmit&keys=newKey&sameKey=true&state=Error":     "choose one of the two",
		"command=resubmit&keys=old&state=Error":                     `none of those that can be chosen: "old"`,
		"command=resubmit&toVersion=x&state=Error":                  "is no number",
		"command=skip-step&skip=pay&step=ship&state=Error":          `{"step":"pay"}`,
		"command=release&discard=true&state=Error":                  `{"discard":true}`,
		"command=change&priority=high&step=ship&state=Error":        `{"priority":"high"}`,
		"command=change&deadline=2027-01-31T18:00:00Z&state=Error":  `{"deadline":"2027-01-31T18:00:00Z"}`,
		"command=change&noDeadline=true&priority=low&workflow=bill": `{"noDeadline":true,"priority":"low"}`,
		"command=change&priority=&deadline=&state=Error":            "Nothing is to be changed",
		"command=change&deadline=soon&state=Error":                  "is not a time such as",
		"command=pause&keys=newKey&newKey=true&workflow=bill":       `{}`,
	} {
		var sent []string
		said := asks(t, map[string]any{"GET /api/v1/caller": operates, "POST /api/v1/bulk": func(r *http.Request) any {
			var b api.BulkRequest
			if err := json.NewDecoder(r.Body).Decode(&b); err != nil {
				t.Error(err)
			}
			sent = append(sent, string(b.With))
			return api.Bulk{ID: "b"}
		}}, http.MethodPost, "/bulk", form)
		if strings.HasPrefix(want, "{") {
			if to := said.Header().Get("Location"); said.Code != http.StatusSeeOther || to != "/bulk/b" || !slices.Equal(sent, []string{want}) {
				t.Errorf("%s: %d to %s, sent was %s, and not %s", form, said.Code, to, sent, want)
			}
			continue
		}
		if said.Code != http.StatusUnprocessableEntity || sent != nil {
			t.Errorf("%s: %d, sent was %s", form, said.Code, sent)
		}
		shows(t, form, said, want)
	}
}

// The list of bulk acts says how one begins, and of what its numbers are.
func TestBulkActsSoFar(t *testing.T) {
	page := api.BulkPage{Acts: []api.Bulk{{ID: "b", State: api.BulkDone, Command: "pause", PreparedAt: &api.Time{Time: time.Now()}, Matched: 9, Done: 4, Left: 3, Failed: 2}}}
	shows(t, "the list", asks(t, map[string]any{"GET /api/v1/caller": operates, "GET /api/v1/bulk": page}, http.MethodGet, "/bulk", ""), "To begin one, filter the", ">Left as they were<", ">Given, and taken<", "!>Left<")
}

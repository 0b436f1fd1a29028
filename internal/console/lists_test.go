package console

import (
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/projections"
)

// A page may have nothing though others are to be looked at: it says so, and leads there. Only of a list as a whole it says that
// there is none.
func TestPagesWithNothing(t *testing.T) {
	for _, path := range []string{"/alerts", "/alerts?reason=held", "/approvals", "/approvals?mine=true", "/signals", "/signals?signal=paid", "/orders", "/dead-letters", "/schedules", "/limits"} {
		next := ""
		server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			answer := map[string]any{
				"/api/v1/caller": api.Caller{}, "/api/v1/alerts": api.AlertPage{Next: next}, "/api/v1/approvals": api.ApprovalPage{Next: next},
				"/api/v1/signals/waiting": api.SignalWaitPage{Next: next}, "/api/v1/orders": api.OrderPage{Next: next}, "/api/v1/dead-letters": api.DeadLetterPage{Next: next},
				"/api/v1/schedules": api.SchedulePage{Next: next}, "/api/v1/limits": api.LimitPage{Next: next},
			}[r.URL.Path]
			if err := json.NewEncoder(w).Encode(answer); err != nil {
				t.Error(err)
			}
		})
		page := func(after string) string {
			said, sign := httptest.NewRecorder(), "?"
			if strings.Contains(path, "?") {
				sign = "&"
			}
			New(server, Config{}).ServeHTTP(said, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path+sign+after, http.NoBody))
			return html.UnescapeString(said.Body.String())
		}
		const none, others, last = ">None.", "None of those that were looked at for this page; others were not.", "None on this page, which is the last."
		for _, c := range []struct {
			next, after string
			want, not   []string
		}{
			{"", "", []string{none}, []string{others, last, ">More<", "From the beginning"}},
			{"MTIzLw", "", []string{others, "after=MTIzLw", ">More<"}, []string{none, last, "more than", "at least"}},
			{"", "after=MTIzLw", []string{last, "From the beginning"}, []string{none, others, ">More<"}},
		} {
			next = c.next
			got := page(c.after)
			for _, text := range c.want {
				if !strings.Contains(got, text) {
					t.Errorf("%s, behind %q, with more %q: %q is missing in\n%s", path, c.after, c.next, text, got)
				}
			}
			if says := "among those that were looked at"; c.next != "" && strings.Contains(got, "data-says") != strings.Contains(got, says) {
				t.Errorf("%s, with more: %q is not said in\n%s", path, says, got)
			}
			for _, text := range c.not {
				if strings.Contains(got, text) {
					t.Errorf("%s, behind %q, with more %q: %q is in\n%s", path, c.after, c.next, text, got)
				}
			}
		}
	}
}

// Who did something from a page of a list, or of what it lists, is led back to that page, and not to the first; where they came
// from the first, to that.
func TestActsLeadBackToTheirPage(t *testing.T) {
	key := "ref-7"
	letter, schedule := api.DeadLetter{Partition: 3, Offset: 7}, api.Schedule{Name: "night/ly"}
	listens := api.Listens{How: "one", Signals: []string{"paid"}, Left: 1}
	keyed := listens
	keyed.Key = &key
	answers := map[string]any{
		"GET /api/v1/caller": api.Caller{Grants: []api.Grant{{Roles: []identity.Role{identity.Admin}}}}, "GET /api/v1/agents": api.Agents{}, "GET /api/v1/alerts/reasons": api.AlertReasons{}, "GET /api/v1/orders": api.OrderPage{},
		"GET /api/v1/approvals":       api.ApprovalPage{Approvals: []api.Approval{{Order: "o/1", Step: "s", Approves: api.Approves{Outcomes: []string{"yes"}}, Mine: true}}},
		"GET /api/v1/signals/waiting": api.SignalWaitPage{Waits: []api.SignalWait{{Order: "o/1", Step: "s", Listens: listens}, {Order: "o-2", Step: "s", Listens: keyed, Keyed: true}}},
		"GET /api/v1/dead-letters":    api.DeadLetterPage{DeadLetters: []api.DeadLetter{letter}}, "GET /api/v1/dead-letters/3/7": api.WholeDeadLetter{DeadLetter: letter, Value: &api.Bytes{Text: &key}},
		"GET /api/v1/schedules": api.SchedulePage{Schedules: []api.Schedule{schedule}}, "GET /api/v1/schedules/night/ly": schedule, "GET /api/v1/schedules/night/ly/preview": api.Ticks{},
		"POST /api/v1/orders/o/1/decide": api.Order{Summary: api.Summary{ProcessState: projections.Pending}}, "POST /api/v1/orders/o/1/signals": api.Heard{Outcome: "matched"}, "POST /api/v1/signals": api.Heard{Outcome: "matched"},
		"POST /api/v1/dead-letters/3/7/replay": api.Replayed{}, "POST /api/v1/dead-letters/3/7/discard": nil,
		"POST /api/v1/schedules/night/ly/pause": schedule, "DELETE /api/v1/schedules/night/ly": schedule,
	}
	ask := func(method, path, form string) *httptest.ResponseRecorder {
		t.Helper()
		return asks(t, answers, method, path, form)
	}
	hidden := regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`)
	for _, c := range []struct{ list, link, action, fields, to string }{
		{"/signals?signal=paid&workflow=d%26b", "", "/orders/o%2F1/signal", "signal=paid", "/signals?signal=paid&workflow=d%26b"},
		{"/signals", "", "/signals", "signal=paid", "/signals"},
		{"/approvals", "", "/orders/o%2F1/decide", "outcome=yes&by=ana", "/approvals"},
		{"/approvals?mine=true", "", "/orders/o%2F1/decide", "outcome=yes&by=ana", "/approvals?mine=true"},
		{"/dead-letters", "/dead-letters/3/7", "/dead-letters/3/7/discard", "note=old", "/dead-letters"},
		{"/dead-letters", "/dead-letters/3/7", "", "", "/dead-letters"},
		{"/dead-letters", "/dead-letters/3/7", "", "value=7", "/dead-letters"}, // of the forms without an action the second
		{"/schedules", "/schedules/night%2Fly", "/schedules/night%2Fly/delete", "note=old", "/schedules"},
		{"/schedules", "/schedules/night%2Fly", "/schedules/night%2Fly/pause", "note=lunch", "/schedules/night%2Fly"},
	} {
		for _, after := range []string{"", "b&c/d"} {
			with := func(path string) string {
				u, err := url.Parse(path)
				if err != nil {
					t.Fatal(err)
				}
				q := u.Query()
				if after != "" {
					q.Set("after", after)
				}
				u.RawQuery = q.Encode()
				return u.String()
			}
			at := with(c.list)
			said := ask(http.MethodGet, at, "")
			if c.link != "" {
				link := regexp.MustCompile(`href="(` + regexp.QuoteMeta(c.link) + `[^"/]*)"`).FindStringSubmatch(said.Body.String())
				if link == nil {
					t.Errorf("%s has no link to %s\n%s", at, c.link, said.Body)
					continue
				}
				at = html.UnescapeString(link[1])
				said = ask(http.MethodGet, at, "")
			}
			action, n := ` action="`+c.action+`"`, 0
			if c.action == "" {
				action = ""
				if c.fields != "" {
					n = 1
				}
			}
			forms := regexp.MustCompile(`(?s)<form method="post"( class="fields")?`+action+`( class="fields")?>.*?</form>`).FindAllString(said.Body.String(), -1)
			if len(forms) <= n {
				t.Errorf("%s has no form for %q: %d\n%s", at, c.action, said.Code, said.Body)
				continue
			}
			fields, err := url.ParseQuery(c.fields)
			if err != nil {
				t.Fatal(err)
			}
			for _, field := range hidden.FindAllStringSubmatch(forms[n], -1) {
				fields.Set(field[1], html.UnescapeString(field[2]))
			}
			path, _, _ := strings.Cut(at, "?")
			if c.action != "" {
				path = c.action
			}
			done := ask(http.MethodPost, path, fields.Encode())
			if to := done.Header().Get("Location"); done.Code != http.StatusSeeOther || to != with(c.to) {
				t.Errorf("from %s %s leads to %q, and not to %q: %d\n%s", at, path, to, with(c.to), done.Code, done.Body)
			}
		}
	}
}

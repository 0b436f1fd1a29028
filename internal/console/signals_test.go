package console

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/projections"
)

// Who may tell an order what happened has the form for it, and for those that wait under a key who may tell any.
func TestWhoSendsSignals(t *testing.T) {
	key, then := "ref 7\r\n\r", &api.Time{Time: time.Now().Add(-3*time.Hour - time.Minute)}
	waits := []api.SignalWait{
		{Order: "b/1", Workflow: "bill", Version: 1, ProcessState: projections.Pending, Step: "paid", Listens: api.Listens{How: "any", Signals: []string{"payment", "refusal"}, Left: 1}, Since: then, UpdatedAt: then, Until: &api.Time{Time: time.Now().Add(49 * time.Hour)}},
		{Order: "d-1", Workflow: "deal", Version: 2, ProcessState: projections.Error, Held: true, Step: "vote", Listens: api.Listens{How: "one", Signals: []string{"vote"}, Left: 2, Key: &key}, Keyed: true, UpdatedAt: then},
		{Order: "d-2", Workflow: "deal", Version: 2, ProcessState: projections.Pending, Paused: true, Step: "vote", Listens: api.Listens{How: "one", Signals: []string{"vote"}, Left: 1}, Keyed: true, UpdatedAt: then, Masked: true},
	}
	const toOrder, toKey = `action="/orders/b%2F1/signal"`, `action="/signals" class="fields"`
	for name, c := range map[string]struct {
		grants []api.Grant
		want   []string
	}{
		"viewer": {[]api.Grant{{Roles: []identity.Role{identity.Viewer}}}, []string{"3 h ago", "in 2 d", ">by <time", "any of payment, refusal", "2 of vote, under key ref 7", "under a key that is left out", "Error, held", "Pending, paused", "3 steps that wait for signals", "!<form method=\"post\" action=\"/orders", "!" + toKey}},
		"of one": {[]api.Grant{{Roles: []identity.Role{identity.Viewer, identity.Submitter}, Workflows: []string{"bill"}}}, []string{toOrder, "<option>refusal</option>", "!" + toKey, "!/orders/d-1/signal"}},
		"of all": {[]api.Grant{{Roles: []identity.Role{identity.Viewer, identity.Submitter}}}, []string{toOrder, toKey, `name="under" value="&#34;ref 7\r\n\r&#34;"`, "!/orders/d-1/signal", "!/orders/d-2/signal", `name="ofSignal" value="vote"`}},
	} {
		var sent api.KeySignal
		answers := map[string]any{
			"GET /api/v1/caller": api.Caller{Grants: c.grants},
			"GET /api/v1/signals/waiting": func(r *http.Request) any {
				got := r.URL.Query()
				if got.Get("signal") != "vote" || got.Get("workflow") != "d&b" || got.Get("limit") != "100" {
					t.Errorf("it asks for %v", got)
				}
				if got.Get("after") == "b" {
					return api.SignalWaitPage{Waits: waits}
				}
				return api.SignalWaitPage{Waits: waits, Next: "b"}
			},
			"POST /api/v1/signals": func(r *http.Request) any {
				if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
					t.Error(err)
				}
				return api.Heard{Outcome: "matched"}
			},
		}
		ask := func(method, path, form string) *httptest.ResponseRecorder {
			t.Helper()
			return asks(t, answers, method, path, form)
		}
		page := ask(http.MethodGet, "/signals?signal=vote&workflow=d%26b&after=b", "").Body.String()
		for _, text := range c.want {
			if text, not := strings.CutPrefix(text, "!"); strings.Contains(page, text) == not {
				t.Errorf("%s: %q is there: %t\n%s", name, text, not, page)
			}
		}
		if page := ask(http.MethodGet, "/signals?signal=vote&workflow=d%26b", "").Body.String(); !strings.Contains(page, `href="/signals?after=b&amp;signal=vote&amp;workflow=d%26b"`) {
			t.Errorf("%s: no other page follows in\n%s", name, page)
		}
		if name != "of all" {
			continue
		}
		said := ask(http.MethodPost, "/signals", "key=k-1&signal=vote&under=%22ref+7%5Cr%5Cn%5Cr%22&data=1&ofSignal=vote&ofWorkflow=d%26b")
		if to := said.Header().Get("Location"); said.Code != http.StatusSeeOther || to != "/signals?signal=vote&workflow=d%26b" || sent.Key != key || sent.Signal != "vote" || string(sent.Data) != "1" || sent.ID == "" {
			t.Errorf("%d, it leads to %s, and sent was %+v", said.Code, to, sent)
		}
	}
}

// An order is told on its page what its steps hear for it, and not what they hear under a key.
func TestAnOrderHearsNoKey(t *testing.T) {
	key, names := "ref-7", []string{"payment", "refusal"}
	if got := hears(&api.Listens{Signals: names}); !slices.Equal(got, names) {
		t.Errorf("an order hears %q", got)
	}
	if got := hears(&api.Listens{Signals: names, Key: &key}); got != nil {
		t.Errorf("an order hears %q, which are sent under a key", got)
	}
}

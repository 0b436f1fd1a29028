package api

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// A limit is applied, listed, shown and deleted over HTTP, by those who may, and an order says that it waits for a place.
func TestLimits(t *testing.T) {
	access, keys := callers(t, slog.New(slog.DiscardHandler), map[string]string{
		"root": "roles: [admin]", "view": "roles: [viewer]", "op": "roles: [operator]", "one": "roles: [operator, viewer], workflows: [call]",
	})
	s := newStage(t, func(cfg *Config) { cfg.Access = access })
	s.attach()
	limits := func(who, method, path, body string, status int) (answer string) {
		s.Helper()
		s.token = keys[who]
		got, _, answer := s.ask(request{method: method, path: "/api/v1/limits" + path, body: body})
		if got != status {
			s.Fatalf("%s %s %s with %s: %d instead of %d: %s", who, method, path, body, got, status, answer)
		}
		return answer
	}
	for _, body := range []string{`{}`, `{"atATime":0}`, `{"atATime":1001}`, `{"aSecond":1001}`, `{"atATime":"one"}`} {
		limits("root", "PUT", "/crm", body, http.StatusUnprocessableEntity)
	}
	limits("root", "PUT", "/CRM", `{"atATime":1}`, http.StatusUnprocessableEntity)
	limits("root", "GET", "/crm", "", http.StatusNotFound)
	limits("root", "DELETE", "/crm", "", http.StatusNotFound)
	limits("view", "PUT", "/crm", `{"atATime":1}`, http.StatusForbidden)
	if said := limits("one", "PUT", "/crm", `{"atATime":1}`, http.StatusForbidden); !strings.Contains(said, "for all workflows") {
		t.Errorf("%s", said)
	}
	limits("op", "PUT", "/crm", `{"atATime":2,"aSecond":10,"note":"they said so"}`, http.StatusOK)
	limits("op", "PUT", "/crm", `{"atATime":1}`, http.StatusOK)
	var l Limit
	if err := json.Unmarshal([]byte(limits("view", "GET", "/crm", "", http.StatusOK)), &l); err != nil {
		t.Fatal(err)
	}
	if l.Name != "crm" || l.AtATime != 1 || l.ASecond != 0 || l.Taken+l.Waiting != 0 || l.Oldest != nil || l.AppliedBy == nil || l.AppliedAt == nil {
		s.Errorf("it is %+v", l)
	}

	s.token = keys["root"]
	if status, _, said := s.ask(request{method: "POST", path: "/api/v1/workflows", body: "workflow: call\nsteps: [{name: enter, agent: crm, limit: {name: crm, key: input}, timeout: 1h}]"}); status != http.StatusOK && status != http.StatusCreated {
		t.Fatalf("%d %s", status, said)
	}
	for _, id := range []string{"a", "b"} {
		if status, _, said := s.ask(request{method: "POST", path: "/api/v1/orders", body: `{"id":"` + id + `","workflow":"call","input":"k"}`}); status >= 300 {
			t.Fatalf("%d %s", status, said)
		}
	}
	s.until(func() bool {
		if err := json.Unmarshal([]byte(limits("view", "GET", "/crm", "", http.StatusOK)), &l); err != nil {
			t.Fatal(err)
		}
		return l.Taken == 1 && l.Waiting == 1 && l.Oldest != nil
	})
	s.token = keys["root"]
	var waits []Place
	s.until(func() bool {
		waits = nil
		for _, id := range []string{"a", "b"} {
			var o Order
			_, _, said := s.ask(request{path: "/api/v1/orders/" + id})
			if err := json.Unmarshal([]byte(said), &o); err != nil {
				t.Fatal(err)
			}
			if len(o.Steps) > 0 && o.Steps[0].Place != nil {
				waits = append(waits, *o.Steps[0].Place)
			}
		}
		return len(waits) == 1
	})
	if len(waits) != 1 || waits[0].Limit != "crm" || waits[0].Key == nil || *waits[0].Key != "k" || waits[0].Since == nil || waits[0].Undo {
		t.Errorf("those wait for a place: %+v", waits)
	}
	if said := limits("op", "DELETE", "/crm", "", http.StatusConflict); !strings.Contains(said, "1 attempts have places") {
		t.Errorf("%s", said)
	}
	for _, id := range []string{"a", "b"} {
		s.token = keys["root"]
		if status, _, said := s.ask(request{method: "POST", path: "/api/v1/orders/" + id + "/terminate", body: `{"note":"enough"}`}); status >= 300 {
			t.Fatalf("%d %s", status, said)
		}
	}
	s.until(func() bool {
		if err := json.Unmarshal([]byte(limits("view", "GET", "/crm", "", http.StatusOK)), &l); err != nil {
			t.Fatal(err)
		}
		return l.Taken+l.Waiting == 0
	})
	limits("op", "DELETE", "/crm", "", http.StatusOK)
	limits("view", "GET", "/crm", "", http.StatusNotFound)
	if said := limits("view", "GET", "", "", http.StatusOK); !strings.Contains(said, `"limits":[]`) {
		t.Errorf("%s", said)
	}
}

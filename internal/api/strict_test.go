package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// No operation takes a body, or a query, with what it does not know, wherever that stands.
func TestNothingMisspeltIsTaken(t *testing.T) {
	s := New(Config{Version: "test"})
	var bodies, queries []string
	for _, r := range routes(t, s, "") {
		wrong := func(path, body, at string) bool {
			w := send(t, s, r.method, path, "", body)
			var p Problem
			_ = json.Unmarshal(w.Body.Bytes(), &p) // else it has no errors
			return w.Code == http.StatusUnprocessableEntity && slices.ContainsFunc(p.Errors, func(e ProblemEntry) bool { return e.Location == at && strings.HasPrefix(e.Message, "unknown ") })
		}
		if !wrong(r.path+"?mispelt=1", "", "query.mispelt") && r.path != "/openapi.json" {
			queries = append(queries, r.method+" "+r.path)
		}
		if r.method != http.MethodGet && !wrong(r.path, `{"mispelt":1}`, "body.mispelt") {
			bodies = append(bodies, r.method+" "+r.path)
		}
	}
	// These have no JSON of their own: the others are a file, or nothing.
	if len(queries) > 0 || len(bodies) != 4 {
		t.Errorf("unknown parameters are taken by %q, unknown members by %q", queries, bodies)
	}
	for _, c := range []struct{ path, body, errors string }{
		{"/api/v1/orders", `{"workflow":"w","inptu":{"inptu":1},"Labels":{"any":"x"}}`, `[{body.Labels unknown member; did you mean "labels"? <nil>} {body.inptu unknown member; did you mean "input"? <nil>}]`},
		{"/api/v1/orders", `{"workflow":"w","a.b":1}`, `[{body.a.b unknown member <nil>}]`},
		{"/api/v1/orders", `{"workflow":"w","labels":{"a.b.c":1,"d[e]":2,"f.g":3},"priority":4,"x.y":5,"z.y":6}`, `[{body.labels.a.b.c expected string 1} {body.labels.d[e] expected string 2} {body.labels.f.g expected string 3} {body.priority expected string 4} {body.x.y unknown member <nil>} {body.z.y unknown member <nil>}]`},
		{"/api/v1/orders", `{"labels":{"a.b":"c"}}`, `[{body expected required property workflow to be present map[labels:map[a.b:c]]}]`},
		{"/api/v1/bulk", `{"command":"cancel","filter":{"stat":"Error"}}`, `[{body.filter.stat unknown member; did you mean "state"? <nil>}]`},
		{"/api/v1/bulk", `{"command":"cancel","filter":{"state":"Error","workflow":"","step":""}}`, `[{body.filter.step expected length >= 1 <nil>} {body.filter.workflow expected length >= 1 <nil>}]`},
		{"/api/v1/orders?wiat=30s", `{"workflow":"w"}`, `[{query.wiat unknown query parameter; did you mean "wait"? <nil>}]`},
		{"/api/v1/orders?wait=", `{"workflow":"w"}`, `[{query.wait it is empty; give it a value, or leave it out <nil>}]`},
		{"/api/v1/orders/o-1/resubmit", `{"nweKey":true,"map":{"any":"x"}}`, `[{body.nweKey unknown member; did you mean "newKey"? <nil>}]`},
	} {
		w := send(t, s, http.MethodPost, c.path, "", c.body)
		var p struct {
			Errors []struct {
				Location string `json:"location"`
				Message  string `json:"message"`
				Value    any    `json:"value"`
			} `json:"errors"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != http.StatusUnprocessableEntity || fmt.Sprint(p.Errors) != c.errors {
			t.Errorf("%s %s: %d %v %v", c.path, c.body, w.Code, p.Errors, err)
		}
	}
	// A client of before says in the body what the path and a header say.
	for body, status := range map[string]int{`{"command":"resubmit","id":"c-1","newKey":true}`: 503, `{"command":"cancel"}`: 422, `{"id":1}`: 422} {
		if w := send(t, s, http.MethodPost, "/api/v1/orders/o-1/resubmit", "", body); w.Code != status {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	for query, status := range map[string]int{"state=": 422, "limit=": 422, "since=": 422, "count=": 422, "where=": 422, "where=a%3Db&where=": 422, "workflow=": 422, "state=Error&step=": 422, "after=": 503, "until=0001-01-01T00:00:00Z": 422, "since=0001-01-01T01%3A00%3A00.0%2B01%3A00": 422, "until=0001-01-01T00:00:00.001Z": 503, "state=Error&state=Processed": 422, "state=Error&state=Error": 422, "count=true&count=true": 422, "where=a%3Db&where=c%3Dd": 503} {
		if w := send(t, s, http.MethodGet, "/api/v1/orders?"+query, "", ""); w.Code != status {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
	for _, c := range []struct {
		path, name string
		values     []string
		status     int
	}{
		{"/api/v1/orders/o-1/events", "Last-Event-ID", nil, 503}, // as a browser begins
		{"/api/v1/orders/o-1/events", "last-event-id", []string{"7"}, 503},
		{"/api/v1/orders/o-1/events", "Last-Event-ID", []string{""}, 422},
		{"/api/v1/orders/o-1/events", "last-event-id", []string{""}, 422},
		{"/api/v1/orders/o-1/events", "Last-Event-ID", []string{"7", ""}, 422},
		{"/api/v1/orders/o-1", "Prefer", []string{""}, 503}, // any text is one
		{"/api/v1/orders/o-1", "Prefer", []string{"wait=1", "respond-async"}, 503},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, c.path, http.NoBody)
		for _, value := range c.values {
			r.Header.Add(c.name, value)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != c.status || w.Code == 422 && !strings.Contains(w.Body.String(), `"location":"header.Last-Event-ID"`) {
			t.Errorf("%s: %q: %d %s", c.name, c.values, w.Code, w.Body)
		}
	}
	// However much is wrong, and however large what it stands in, the answer is short.
	var many strings.Builder
	for n := range 20_000 {
		fmt.Fprintf(&many, `"m%d":1,`, n)
	}
	if w := send(t, s, http.MethodPost, "/api/v1/orders", "", "{"+many.String()+`"workflow":"w"}`); w.Code != http.StatusUnprocessableEntity || w.Body.Len() > 10_000 {
		t.Errorf("%d with %d bytes", w.Code, w.Body.Len())
	}
	// What is an input's own, and where a body only says what its author chose, is nobody else's.
	if w := send(t, s, http.MethodPost, "/api/v1/orders", "", `{"workflow":"w","input":{"inptu":{"Workflow":1}},"labels":{"mispelt":"x"}}`); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

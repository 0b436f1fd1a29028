package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A page may have nothing, and others may follow it: lists go on to their end, or until they have what was asked for.
func TestListsGoOnBehindEmptyPages(t *testing.T) {
	pages := map[string]string{"": "a", "a": "b", "b": "c", "c": ""}
	var found string // on the page behind b
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		name := map[string]string{"/api/v1/alerts": "alerts", "/api/v1/approvals": "approvals", "/api/v1/signals/waiting": "waits"}[r.URL.Path]
		after, items := r.URL.Query().Get("after"), ""
		if after == "b" {
			items = found
		}
		fmt.Fprintf(w, `{%q:[%s],"next":%q}`, name, items, pages[after])
	}))
	t.Cleanup(server.Close)
	clearEnvironment(t)
	t.Setenv("WAYBILL_SERVER", server.URL)
	for _, command := range []string{"alerts", "approvals", "signals"} {
		for _, c := range []struct {
			found, limit, want, lacks string
			asks                      int
		}{
			{`{"order":"o-1"}`, "100", "o-1\n", "", 4},
			{`{"order":"o-1"}`, "0", "o-1\n", "", 4},
			{`{"order":"o-1"}`, "1", "o-1\n", "There are more; see --limit.\n", 3},
			{"", "1", "", "", 4},
		} {
			found, asked = c.found, 0
			said := waybill(t, "", command, "--limit", c.limit, "-o", "name")
			if said.code != exitDone || said.out != c.want || said.errs != c.lacks || asked != c.asks {
				t.Errorf("%s --limit %s ends with %d after %d requests: %q, %q", command, c.limit, said.code, asked, said.out, said.errs)
			}
		}
	}
}

package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A server that does not answer completes nothing, and keeps nobody waiting.
func TestCompletionGivesUp(t *testing.T) {
	clearEnvironment(t)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	if c := waybill(t, "", "__complete", "order", "get", "--server", server.URL, ""); c.code != exitDone || c.out != ":36\n" {
		t.Errorf("%+v", c)
	}
}

// What there are contexts of can be completed, without a server.
func TestCompletionOfContexts(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	waybill(t, "", "context", "set", "prod", "--server", "http://127.0.0.1:1").want(t, exitDone, "", "")
	for _, args := range [][]string{{"context", "use", ""}, {"alerts", "--context", ""}} {
		waybill(t, "", append([]string{"__complete"}, args...)...).want(t, exitDone, "prod\thttp://127.0.0.1:1\n", "")
	}
}

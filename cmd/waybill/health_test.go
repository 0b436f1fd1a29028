package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealth(t *testing.T) {
	clearEnvironment(t)
	ready := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("it asked for %s", r.URL.Path)
		}
		if !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"status":503,"detail":"the group has not been joined yet"}`)
		}
	}))
	health := func(code int, says string) {
		t.Helper()
		var said bytes.Buffer
		if got := run(t.Context(), []string{"health", "--server", server.URL}, strings.NewReader(""), &said, &said); got != code || !strings.Contains(said.String(), says) {
			t.Errorf("exit code %d, want %d; it said: %s", got, code, &said)
		}
	}
	health(0, "ready")
	ready = false
	health(1, "the group has not been joined yet")
	server.Close()
	health(1, "no Waybill answers")
}

package main

import (
	"bytes"
	"fmt"
	"net"
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
	health := func(code int, says string, args ...string) {
		t.Helper()
		var said bytes.Buffer
		if got := run(t.Context(), append([]string{"health"}, args...), strings.NewReader(""), &said, &said); got != code || !strings.Contains(said.String(), says) {
			t.Errorf("%q: exit code %d, want %d; it said: %s", args, got, code, &said)
		}
	}
	health(0, "ready", "--server", server.URL)
	// In its container it is asked where the variables say that it answers.
	t.Setenv("XDG_CONFIG_HOME", t.TempDir()) // no contexts
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{":" + port, "0.0.0.0:" + port, "[::]:" + port, "127.0.0.1:" + port} {
		t.Setenv("WAYBILL_HTTP_ADDR", addr)
		health(0, "ready")
		t.Setenv("WAYBILL_HTTP_ADDR", "127.0.0.1:1")
		t.Setenv("WAYBILL_ADMIN_ADDR", addr)
		health(0, "ready")
		t.Setenv("WAYBILL_ADMIN_ADDR", "")
	}
	t.Setenv("WAYBILL_HTTP_ADDR", ":1")
	health(1, "no Waybill answers at http://127.0.0.1:1:") // an image need not know localhost
	health(0, "ready", "--server", server.URL)
	t.Setenv("WAYBILL_SERVER", "http://127.0.0.1:2")
	health(1, "no Waybill answers at http://127.0.0.1:2:")

	ready = false
	health(1, "the group has not been joined yet", "--server", server.URL)
	server.Close()
	health(1, "no Waybill answers", "--server", server.URL)
}

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
)

// A server is kept under a name, with who asks it; that is told to no other server.
func TestContexts(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", os.Getenv("XDG_CONFIG_HOME"))
	var said []string
	listen := func() string {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			said = append(said, r.Host+" "+r.Header.Get("Authorization"))
			_, _ = w.Write([]byte(`{"alerts":[]}`))
		}))
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	prod, test, elsewhere := listen(), listen(), listen()
	ask := func(want string, args ...string) {
		t.Helper()
		said = nil
		waybill(t, "", append([]string{"alerts"}, args...)...).want(t, 0, "", "")
		if len(said) != 1 || said[0] != want {
			t.Errorf("%q: %q instead of %q", args, said, want)
		}
	}
	waybill(t, "", "context", "list").want(t, 0, "NAME  SERVER  AS\n", "")
	waybill(t, "", "context", "set", "prod", "--server", "http://"+prod, "--token-file", write(t, "token", "t-prod\n")).want(t, 0, "", "")
	waybill(t, "", "context", "set", "test", "--server", test).want(t, 0, "", "")
	info, err := os.Stat(contextsFile())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	ask(test+" ", "--context", "test")
	waybill(t, "", "context", "use", "prod").want(t, 0, "", "")
	waybill(t, "", "context", "list").want(t, 0, "prod *", "")
	ask(prod + " Bearer t-prod")
	ask(prod+" Bearer mine", "--token", "mine")
	ask(test+" ", "--context", "test")
	ask(elsewhere+" ", "--server", elsewhere)
	t.Setenv("WAYBILL_SERVER", elsewhere)
	ask(elsewhere + " ")
	t.Setenv("WAYBILL_SERVER", "")
	t.Setenv("WAYBILL_CONTEXT", "test")
	ask(test + " ")
	t.Setenv("WAYBILL_CONTEXT", "")

	for _, name := range []string{"e", "d", "c", "b", "a"} {
		waybill(t, "", "context", "set", name, "--server", test).want(t, 0, "", "")
	}
	waybill(t, "", "context", "list", "-o", "name").want(t, 0, "a\nb\nc\nd\ne\nprod\ntest\n", "")

	waybill(t, "", "alerts", "--context", "none").want(t, 2, "", `there is no context "none"`)
	waybill(t, "", "alerts", "--context", "prod", "--server", elsewhere).want(t, 2, "", "--context names a server, and --server another; use one of the two")
	waybill(t, "", "alerts", "--context", "prod", "--config", write(t, "c.yaml", "server: x\n")).want(t, 2, "", "--context names a server, and server in the configuration file ")
	t.Setenv("WAYBILL_SERVER", elsewhere)
	waybill(t, "", "alerts", "--context", "prod").want(t, 2, "", "--context names a server, and WAYBILL_SERVER another")
	t.Setenv("WAYBILL_CONTEXT", "prod")
	waybill(t, "", "alerts").want(t, 2, "", "WAYBILL_CONTEXT names a server, and WAYBILL_SERVER another")
	t.Setenv("WAYBILL_SERVER", "")
	t.Setenv("WAYBILL_CONTEXT", "")
	waybill(t, "", "context", "use", "none").want(t, 2, "", "waybill context set none")
	waybill(t, "", "context", "set", "prod").want(t, 2, "", "--server")
	waybill(t, "", "context", "set", "prod", "--server", "http://ana:secret@"+prod).want(t, 2, "", "has no password")
	if err := os.WriteFile(contextsFile(), []byte("contxts: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	waybill(t, "", "alerts").want(t, 2, "", "contexts.yaml")
}

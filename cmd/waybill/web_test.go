package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-dev/waybill/internal/identity"
)

// A server that closes does not wait for connections that nobody uses: new ones,
// and those kept for a next request.
func TestCloseDropsUnusedConnections(t *testing.T) {
	server, err := listenHTTP(t.Context(), httpFlags{addr: "127.0.0.1:0"}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	unused, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(server.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer unused.Close()
	kept := &http.Client{Transport: &http.Transport{}}
	defer kept.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.url+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := kept.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.Body.Close() != nil {
		t.Fatal(err)
	}
	server.mu.Lock()
	if n := len(server.unused); n != 1 {
		t.Errorf("%d connections count as unused", n)
	}
	server.mu.Unlock()
	server.drop()
	if n, err := unused.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the unused connection is there: %d bytes, %v", n, err)
	}
	if err := server.close(); err != nil {
		t.Error(err)
	}
}

// A client that asks and never reads, or never ends its question, holds a place for a minute, and not
// for ever.
func TestClientsThatStandStillAreLeft(t *testing.T) {
	server, err := listenHTTP(t.Context(), httpFlags{addr: "127.0.0.1:0"}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.close(); err != nil {
			t.Error(err)
		}
	}()
	for what, d := range map[string]time.Duration{"headers": server.http.ReadHeaderTimeout, "a body": server.http.ReadTimeout, "an answer": server.http.WriteTimeout} {
		if d <= 0 || d > time.Minute {
			t.Errorf("%s may take %s", what, d)
		}
	}
}

// A page of another name that was made to lead to this machine reads nothing. On a
// loopback address names are always looked at, on others where some are given.
func TestHostsThatMayBeNamed(t *testing.T) {
	const rebound = "rebound.example:80"
	for _, c := range []struct {
		listens string
		hosts   []string
		told    string // see --advertise-url
		fine    []string
		refused []string
	}{
		{"127.0.0.1:0", nil, "", []string{"localhost:1", "LOCALHOST", "127.0.0.1:8080", "[::1]:8080", "[::1]"}, []string{rebound, "localhost.rebound.example", "127.0.0.2", "0.0.0.0", ""}},
		{"127.0.0.1:0", []string{"orders.example:443", "Other.example"}, "", []string{"orders.example", "ORDERS.example:8443", "other.example", "localhost"}, []string{rebound}},
		{"127.0.0.2:0", nil, "", []string{"127.0.0.2:80", "127.0.0.1", "localhost"}, []string{rebound, "127.0.0.3"}},
		{"[::1]:0", nil, "", []string{"[::1]:80", "localhost"}, []string{rebound}},
		{"0.0.0.0:0", nil, "", []string{"127.0.0.1", rebound, "10.0.0.5"}, nil},
		{"0.0.0.0:0", []string{"orders.example"}, "", []string{"orders.example:80", "localhost"}, []string{rebound, "10.0.0.5"}},
		{"0.0.0.0:0", []string{"orders.example"}, "http://10.0.0.5:8080", []string{"orders.example:80", "10.0.0.5:8080"}, []string{rebound}},
		{"0.0.0.0:0", nil, "http://10.0.0.5:8080", []string{"10.0.0.5:8080", rebound}, nil},
	} {
		server, err := listenHTTP(t.Context(), httpFlags{addr: c.listens, hosts: c.hosts, advertise: c.told, open: true}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if err != nil {
			if strings.HasPrefix(c.listens, "[") {
				continue // this machine has no IPv6
			}
			t.Fatal(err)
		}
		ask := func(host, path string) int {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
			request.Host = host
			said := httptest.NewRecorder()
			server.ServeHTTP(said, request)
			return said.Code
		}
		for _, host := range c.fine {
			if got := ask(host, "/openapi.json"); got != http.StatusOK {
				t.Errorf("%s with %q answers %q with %d", c.listens, c.hosts, host, got)
			}
		}
		for _, host := range c.refused {
			for path, want := range map[string]int{"/openapi.json": 421, "/api/v1/orders": 421, "/": 421, "/healthz": 200, "/readyz": 503, "/metrics": 200} {
				if got := ask(host, path); got != want {
					t.Errorf("%s with %q answers %q with %d at %s, not %d", c.listens, c.hosts, host, got, path, want)
				}
			}
		}
		if err := server.close(); err != nil {
			t.Error(err)
		}
	}
}

// What others are told of an instance is an address of its HTTP server, and to whom a key may go a host.
func TestAddressesOfInstances(t *testing.T) {
	serve := []string{"serve", "--brokers", "127.0.0.1:1", "--data-dir", t.TempDir(), "--http-addr", "127.0.0.1:0", "--http-base", "/waybill", "--advertise-url"}
	for _, address := range []string{"waybill-1:8080", "ftp://waybill-1/waybill", "http://me:secret@waybill-1/waybill", "http://waybill-1/waybill?a=b", "http://waybill-1/waybill#a", "http://waybill-1/waybill/", "http://waybill-1", "http://waybill-1/other"} {
		got := waybill(t, "", append(serve, address)...)
		got.want(t, 2, "", "--advertise-url: use an address such as http://waybill-1:8080/waybill")
		if strings.Contains(got.errs, "secret") {
			t.Errorf("it is printed: %s", got.errs)
		}
	}
	for address, want := range map[string]string{ // of each flag that has an address: what is wrong, and not the address
		"--advertise-url http://me:secret@waybill-1/waybill": "it has a user", "--advertise-url http://waybill-1/secret": "it has another path", "--advertise-url http://waybill-1:70000/waybill": "from 1 to 65535",
		"--http-url https://me:secret@waybill/waybill": "it has a user", "--http-url https://waybill/waybill/": "it has another path", "--http-url https://waybill:0/waybill": "from 1 to 65535",
		"--codec https://me:secret@codec": "it has a user", "--codec https://codec/a#secret": "it has a #", "--codec https://codec:/a?secret": "from 1 to 65535", "--codec http://codec/a?secret": "would pass in clear",
	} {
		flag, at, _ := strings.Cut(address, " ")
		got := waybill(t, "", append(serve[:len(serve)-1:len(serve)-1], flag, at)...)
		got.want(t, 2, "", flag)
		if !strings.Contains(got.errs, want) || strings.Contains(got.errs, "secret") {
			t.Errorf("%s: %s", address, got.errs)
		}
	}
	for at, want := range map[string]string{"http://127.0.0.1:70000": "from 1 to 65535", "me:secret@127.0.0.1:0": "from 1 to 65535", "http://127.0.0.1:1/?a": "it has a query", "http://127.0.0.1:1#a": "it has a #", "ftp://me:secret@a": "http://"} {
		got := waybill(t, "", "order", "get", "o", "--server", at)
		if !strings.Contains(got.errs, "give an address such as http://127.0.0.1:8080") || !strings.Contains(got.errs, want) || strings.Contains(got.errs, "secret") || got.code == 0 {
			t.Errorf("%s: %d %s", at, got.code, got.errs)
		}
	}
	waybill(t, "", "order", "get", "o", "--server", "http://127.0.0.1:1", "--owner-hosts", "a,[").want(t, 2, "", `--owner-hosts "["`)
	waybill(t, "", "order", "get", "o", "--server", "http://127.0.0.1:1", "--owner-hosts", "10.1.0.0/160").want(t, 2, "", `--owner-hosts "10.1.0.0/160"`)
}

// A command asks the instance that has the order, with the token where it may go.
func TestCommandsGoToTheOwner(t *testing.T) {
	var said []string
	owner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said = append(said, r.Header.Get("Authorization"))
		fmt.Fprint(w, `{"orderId":"o-1","processState":"Processed","steps":[]}`)
	}))
	defer owner.Close()
	address := strings.Replace(owner.URL, "127.0.0.1", "localhost", 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusMisdirectedRequest)
		fmt.Fprintf(w, `{"status":421,"detail":"not kept here","owner":%q}`, address)
	}))
	defer server.Close()
	ask := func(args ...string) call { return waybill(t, "", append(args, "o-1", "--server", server.URL)...) }
	ask("order", "get").want(t, 0, "o-1", "")
	ask("order", "wait").want(t, 0, "o-1", "")
	if len(said) != 2 || said[0] != "" {
		t.Errorf("the owner heard %q", said)
	}
	ask("order", "get", "--token", "wbk_a_b").want(t, exitAway, "", "--owner-hosts")
	if len(said) != 2 {
		t.Errorf("the owner heard %q", said)
	}
	ask("order", "get", "--token", "wbk_a_b", "--owner-hosts", "localhost").want(t, 0, "o-1", "")
	t.Setenv("WAYBILL_OWNER_HOSTS", "local*")
	ask("order", "get", "--token", "wbk_a_b").want(t, 0, "o-1", "")
	if len(said) != 4 || said[2] != "Bearer wbk_a_b" || said[3] != said[2] {
		t.Errorf("the owner heard %q", said)
	}
}

// Handshakes that fail do not fill the log; other complaints, and those of other addresses, are told.
func TestHandshakesThatFail(t *testing.T) {
	var log bytes.Buffer
	c := &complaints{slog.New(slog.NewTextHandler(&log, nil)), identity.NewFailures()}
	for n := range 100 {
		fmt.Fprintf(c, "http: TLS handshake error from 192.0.2.7:%d: remote error: tls: bad certificate\n", 1000+n)
	}
	fmt.Fprintln(c, "http: TLS handshake error from [2001:db8::1]:9: EOF")
	fmt.Fprintln(c, "http: Accept error: too many open files; retrying in 5ms")
	if n := strings.Count(log.String(), "bad certificate"); n < 5 || n > 20 {
		t.Errorf("%d of 100 are told", n)
	}
	for _, want := range []string{"2001:db8::1", "too many open files"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is not told", want)
		}
	}
}

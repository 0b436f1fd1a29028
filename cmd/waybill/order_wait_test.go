package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// Whoever waits for an order is told how it ended by the exit code, and its history goes on until then.
func TestWaitAndFollow(t *testing.T) {
	clearEnvironment(t)
	server, _, _ := startDev(t, t.TempDir())
	t.Setenv("WAYBILL_SERVER", server)
	waybill(t, "", "workflow", "register", write(t, "w.yaml", "workflow: visit\nsteps:\n  - {name: bell, listen: ring}\n  - {name: door, listen: open}\n")).want(t, 0, "visit@1", "")

	waybill(t, "", "order", "wait", "o-1", "--timeout", "50ms").want(t, 8, "", "There is no order o-1 yet; it is waited for.\nwaybill: gave up waiting for order o-1; it was not accepted yet")
	waited, followed := make(chan call, 1), make(chan call, 1)
	go func() { waited <- waybill(t, "", "order", "wait", "o-1") }() // before it is there
	go func() { followed <- waybill(t, "", "order", "history", "o-1", "--follow", "-o", "json") }()
	waybill(t, "", "submit", "visit", "--id", "o-1").want(t, 0, "o-1", "")
	waybill(t, "", "order", "wait", "o-1", "--state", "Pending").want(t, 0, "listening", "")
	waybill(t, "", "order", "wait", "o-1", "--timeout", "50ms").want(t, 8, "", "gave up waiting for order o-1; it was Pending")
	for _, signal := range []string{"ring", "open"} {
		waybill(t, "", "order", "signal", "o-1", signal).want(t, 0, "", "")
	}
	c := <-waited
	c.want(t, 0, "Processed", "")
	lines := <-followed
	lines.want(t, 0, `"type":"waybill.order.completed"`, "")
	if all := strings.Split(strings.TrimSpace(lines.out), "\n"); len(all) != 6 || !strings.Contains(all[5], "order.completed") || !strings.HasPrefix(all[0], "{") {
		t.Errorf("it followed %q", all)
	}
	whole, on := waybill(t, "", "order", "history", "o-1"), waybill(t, "", "order", "history", "o-1", "-f")
	if on.code != 0 || on.out != whole.out {
		t.Errorf("one that has ended is followed with\n%s, and not\n%s", on.out, whole.out)
	}

	waybill(t, "", "submit", "order-fulfilment", "--id", "o-2", "--input", `{"card":"declined"}`).want(t, 0, "o-2", "")
	waybill(t, "", "order", "wait", "o-2").want(t, 7, "Error", "order o-2 is Error: step charge failed")
	waybill(t, "", "order", "wait", "o-2", "--state", "Error").want(t, 0, "Error", "")
	waybill(t, "", "order", "cancel", "o-2").want(t, 0, "", "")
	waybill(t, "", "order", "wait", "o-2", "--state", "Processed").want(t, 7, "Cancelled", "order o-2 is Cancelled")
	waybill(t, "", "order", "wait", "o-2", "--state", "processed").want(t, 2, "", "--state")
	waybill(t, "", "order", "wait", "").want(t, 2, "", "the order id is empty")
	waybill(t, "", "order", "wait", "o-2", "--timeout", "1m", "--server", "http://127.0.0.1:1").want(t, 6, "", "no Waybill answers")

	// Of what has ended the first answer is enough.
	inner, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	proxy := httputil.NewSingleHostReverseProxy(inner)
	counting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	defer counting.Close()
	waybill(t, "", "order", "wait", "o-1", "--server", counting.URL).want(t, 0, "Processed", "")
	waybill(t, "", "order", "history", "o-1", "--follow", "--server", counting.URL).want(t, 0, "order.completed", "")
	if n := asked.Load(); n != 2 {
		t.Errorf("it was asked %d times", n)
	}
}

// Whoever is refused waits for nothing, and cannot tell how the order stands.
func TestWaitThatIsRefused(t *testing.T) {
	clearEnvironment(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"status":403,"detail":"you may not"}`))
	}))
	defer server.Close()
	waybill(t, "", "order", "wait", "o-1", "--server", server.URL).want(t, 5, "", "waybill: you may not\n")
	waybill(t, "", "order", "history", "o-1", "--follow", "--server", server.URL).want(t, 5, "", "waybill: you may not\n")
}

package bench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A page is fetched again and again, with the tag of the one before; what is no page ends the measurement.
func TestAConsoleIsKeptCurrent(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, has := asked.Add(1), r.Header.Get("If-None-Match")
		switch {
		case n == 1 && has == "":
			w.Header().Set("ETag", `W/"one"`)
		case n > 1 && n < 5 && has == `W/"one"`:
			w.Header().Set("ETag", has)
			w.WriteHeader(http.StatusNotModified)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	c := &consoles{client: server.Client(), rest: time.Millisecond}
	if err := c.look(t.Context(), server.URL); err == nil || !strings.Contains(err.Error(), "503") || asked.Load() != 5 {
		t.Errorf("after %d pages: %v", asked.Load(), err)
	}
	if p := c.since(2 * time.Second); p.PerSecond != 2 || p.P50 <= 0 || p.P99 < p.P50 {
		t.Errorf("%+v", p)
	}
	if p := c.since(time.Second); *p != (Pages{}) {
		t.Errorf("twice: %+v", p)
	}
	gone, end := context.WithCancel(t.Context())
	end()
	if err := c.look(gone, server.URL); err != nil || asked.Load() != 5 {
		t.Errorf("when it is over: %v", err)
	}
}

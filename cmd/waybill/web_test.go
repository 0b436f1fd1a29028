package main

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// A server that closes does not wait for connections that nobody uses: new ones,
// and those kept for a next request.
func TestCloseDropsUnusedConnections(t *testing.T) {
	server, err := listenHTTP(t.Context(), "127.0.0.1:0", prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
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

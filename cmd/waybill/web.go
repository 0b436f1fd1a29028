package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-dev/waybill/internal/api"
)

// web is the HTTP server of a process.
type web struct {
	*api.Server
	http *http.Server
	url  string
	done chan struct{} // closed when it serves no more
	err  error         // why; set before done is closed

	mu     sync.Mutex
	unused map[net.Conn]bool // connections without a request so far
}

// listenHTTP serves on addr until [web.close].
func listenHTTP(ctx context.Context, addr string, metrics *prometheus.Registry, log *slog.Logger) (*web, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("the HTTP address %s is in use; stop what listens there or choose another with --http-addr: %w", addr, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for HTTP on %q: %w", addr, err)
	}
	w := &web{
		Server: api.New(api.Config{Version: programVersion().Version, Metrics: metrics, Logger: log}),
		url:    "http://" + reachable(ln.Addr().String()),
		done:   make(chan struct{}),
		unused: make(map[net.Conn]bool),
	}
	w.http = &http.Server{
		Handler:           w.Server,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ConnState:         w.note,
	}
	w.http.RegisterOnShutdown(w.drop)
	go func() {
		defer close(w.done)
		w.err = w.http.Serve(ln)
	}()
	return w, nil
}

// reachable is the address under which this machine reaches a listener.
func reachable(listener string) string {
	a, err := netip.ParseAddrPort(listener)
	if err != nil || !a.Addr().IsUnspecified() {
		return listener
	}
	return fmt.Sprintf("127.0.0.1:%d", a.Port())
}

// note keeps account of the connections without a request.
func (w *web) note(c net.Conn, state http.ConnState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if state == http.StateNew {
		w.unused[c] = true
	} else {
		delete(w.unused, c)
	}
}

// drop closes the connections without a request: a shutdown would wait for five
// seconds whether one comes.
func (w *web) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.unused {
		_ = c.Close() // the other end may have closed it
	}
}

// close lets running requests end, for a while.
func (w *web) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := w.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = w.http.Close()
	}
	<-w.done
	if !errors.Is(w.err, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve HTTP: %w", w.err))
	}
	return err
}

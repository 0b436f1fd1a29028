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
	"github.com/spf13/pflag"

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

// httpFlags are where the HTTP server listens, for whom, and for how many.
type httpFlags struct {
	addr     string
	hosts    []string
	requests int
}

func (f *httpFlags) add(flags *pflag.FlagSet, usage string) {
	flags.StringVar(&f.addr, "http-addr", "127.0.0.1:8080", usage)
	flags.StringSliceVar(&f.hosts, "http-host", nil, "names under which the HTTP server may be asked, besides localhost; without any, one that listens for other machines does not look at the name")
	flags.IntVar(&f.requests, "http-requests", 128, "how many HTTP requests are answered at a time; 0 means any number")
}

// names are those that the Host of a request may have, none if any may. On a
// loopback address only this machine asks, and whoever names another host was led
// here by a page that its browser shows.
func (f *httpFlags) names(listener net.Addr) []string {
	bound, err := netip.ParseAddrPort(listener.String())
	local := err == nil && bound.Addr().IsLoopback()
	if !local && len(f.hosts) == 0 {
		return nil
	}
	names := append([]string{"localhost", "127.0.0.1", "[::1]"}, f.hosts...)
	if own := bound.Addr().Unmap().String(); local && own != "127.0.0.1" && own != "::1" {
		names = append(names, own)
	}
	return names
}

// listenHTTP serves until [web.close].
func listenHTTP(ctx context.Context, flags httpFlags, metrics *prometheus.Registry, log *slog.Logger) (*web, error) {
	if flags.requests < 0 {
		return nil, usageError{errors.New("--http-requests cannot be negative")}
	}
	addr := flags.addr
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("the HTTP address %s is in use; stop what listens there or choose another with --http-addr: %w", addr, err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for HTTP on %q: %w", addr, err)
	}
	w := &web{
		Server: api.New(api.Config{Version: programVersion().Version, Metrics: metrics, Hosts: flags.names(ln.Addr()), Requests: flags.requests, Logger: log}),
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

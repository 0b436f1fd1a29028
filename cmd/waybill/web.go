package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/codec"
	"github.com/waybill-dev/waybill/internal/console"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator/address"
)

// web is the HTTP server of a process.
type web struct {
	*api.Server
	http  *http.Server
	admin *http.Server // nil where probes and metrics are not apart
	url   string
	done  chan struct{}  // closed when it serves no more
	err   error          // why; set before done is closed
	apart sync.WaitGroup // admin

	mu     sync.Mutex
	unused map[net.Conn]bool // connections without a request so far
}

// httpFlags are where the HTTP server listens, for whom, and for how many.
type httpFlags struct {
	addr     string
	hosts    []string
	requests int
	access   string
	open     bool
	base     string
	external string
	codec    string
	// advertise is a flag of instances that others know of.
	advertise string
	admin     string
	tls       tlsFlags
	bulk      string // no flag: where records of bulk acts are
}

func (f *httpFlags) add(flags *pflag.FlagSet, usage string) {
	flags.StringVar(&f.addr, "http-addr", "127.0.0.1:8080", usage)
	flags.StringSliceVar(&f.hosts, "http-host", nil, "names under which the HTTP server may be asked, besides localhost; without any, one that listens for other machines does not look at the name")
	flags.StringVar(&f.access, "access", "", "YAML file that says who may what over HTTP; it is read again when it changes. Needed where --http-addr is for other machines")
	flags.BoolVar(&f.open, "http-open", false, "whoever reaches the HTTP server may all, also from other machines")
	flags.StringVar(&f.base, "http-base", "", "path under which a proxy has the HTTP server, such as /waybill")
	flags.StringVar(&f.external, "http-url", "", "address under which people's browsers reach the HTTP server, such as https://waybill.example: for links to the console, and where an issuer leads people back who log in")
	flags.StringVar(&f.codec, "codec", "", "address of a codec of yours, such as https://codec.example/decode, which decodes payloads that are shown to who may read them: see docs/codec.md")
	flags.StringVar(&f.admin, "admin-addr", "", "another address, at which probes and metrics are answered, and no more at --http-addr, and dumps of projections for admins that --access names; without TLS")
	f.tls.add(flags)
	flags.IntVar(&f.requests, "http-requests", 128, "how many HTTP requests are answered at a time; 0 means any number")
}

// names are those that the Host of a request may have, none if any may. On a
// loopback address only this machine asks, and whoever names another host was led
// here by a page that its browser shows.
func (f *httpFlags) names(listener net.Addr) []string {
	bound, local := loopback(listener)
	if !local && len(f.hosts) == 0 {
		return nil
	}
	names := append([]string{"localhost", "127.0.0.1", "[::1]"}, f.hosts...)
	if u, err := address.Advertised(f.advertise); err == nil {
		names = append(names, u.Host)
	}
	if own := bound.Unmap().String(); local && own != "127.0.0.1" && own != "::1" {
		names = append(names, own)
	}
	return names
}

// loopback says whether only this machine reaches a listener.
func loopback(listener net.Addr) (netip.Addr, bool) {
	bound, err := netip.ParseAddrPort(listener.String())
	return bound.Addr(), err == nil && bound.Addr().IsLoopback()
}

// check says what is missing for a listener to answer: other machines may all only where
// somebody said so.
func (f *httpFlags) check(listener net.Addr) error {
	_, local := loopback(listener)
	switch {
	case f.access != "" && f.open:
		return errors.New("--access says who may what, and --http-open that everybody may all; use one of the two")
	case f.access == "" && !f.open && !local:
		return fmt.Errorf("the HTTP address %s is for other machines, and nothing says who may ask: name a file with --access (`waybill key new` makes a key for it), or say --http-open if whoever reaches it may submit, read and cancel every order", listener)
	}
	if !baseForm.MatchString(f.base) || f.base == "/api" || strings.HasPrefix(f.base, "/api/") {
		return fmt.Errorf("--http-base %q: use a path such as /waybill or /tools/waybill, of a-z A-Z 0-9 . _ -, without a / at its end, and none that begins with /api", f.base)
	}
	if f.external != "" {
		if err := f.below(address.Parse(f.external, 0)); err != nil {
			return fmt.Errorf("--http-url: use an address such as https://waybill.example%s, with the path that --http-base says and without a / at its end: %w", f.base, err)
		}
	}
	if f.advertise != "" {
		if err := f.below(address.Advertised(f.advertise)); err != nil {
			return fmt.Errorf("--advertise-url: use an address such as http://waybill-1:8080%s, of http or https, with the path that --http-base says, and without a user, a query, a fragment or a / at its end: %w", f.base, err)
		}
	}
	return f.tls.check()
}

// below says what is wrong with an address that was read: its path is the base.
func (f *httpFlags) below(u *url.URL, err error) error {
	if err == nil && u.Path != f.base {
		return errors.New("it has another path")
	}
	return err
}

// baseForm is that of a path that needs no escaping, or of none. It is none of the server's own.
var baseForm = regexp.MustCompile(`^(/[a-zA-Z0-9_-][a-zA-Z0-9._-]*){0,8}$`)

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
	w, err := serveHTTP(ctx, ln, flags, metrics, log)
	if err != nil {
		_ = ln.Close() // nothing came by it
	}
	return w, err
}

func serveHTTP(ctx context.Context, ln net.Listener, flags httpFlags, metrics *prometheus.Registry, log *slog.Logger) (_ *web, err error) {
	if err := flags.check(ln.Addr()); err != nil {
		return nil, usageError{err}
	}
	config := api.Config{
		Version: programVersion().Version, Metrics: metrics, Hosts: flags.names(ln.Addr()), Base: flags.base, Requests: flags.requests,
		AdminApart: flags.admin != "", Bulk: flags.bulk, Logger: log,
	}
	config.Console = func(server http.Handler) http.Handler {
		return console.New(server, console.Config{Base: flags.base, External: flags.external, Decodes: config.Codec != nil, Access: config.Access, Version: programVersion().Version, Logger: log})
	}
	if flags.codec != "" {
		if config.Codec, err = codec.New(flags.codec); err != nil {
			return nil, usageError{fmt.Errorf("--codec: %w", err)}
		}
	}
	if flags.access != "" {
		if config.Access, err = identity.Open(flags.access, log); err != nil {
			return nil, err
		}
		if config.Access.OnlyCertificates() && flags.tls.clientCA == "" {
			return nil, usageError{fmt.Errorf("the access file %s names certificates alone, and no client can show one: say with --http-tls-client-ca whose count", flags.access)}
		}
		if issuer, yes := config.Access.LogsIn(); yes && flags.external == "" {
			return nil, usageError{fmt.Errorf("the access file %s has people log in at %s, and nobody says where that leads them back: say with --http-url how browsers reach this server", flags.access, issuer)}
		}
	}
	switch _, local := loopback(ln.Addr()); {
	case local:
	case flags.open:
		log.Warn("whoever reaches the HTTP server may submit, read and cancel every order", "addr", ln.Addr().String())
	case flags.tls.cert == "":
		log.Warn("keys and tokens pass in clear to the HTTP server: have only what speaks TLS reach it, or give it --http-tls-cert", "addr", ln.Addr().String())
	}
	w := &web{
		Server: api.New(config),
		url:    "http://" + reachable(ln.Addr().String()),
		done:   make(chan struct{}),
		unused: make(map[net.Conn]bool),
	}
	w.http = patient(w.Server, log)
	w.http.ConnState = w.note
	w.http.RegisterOnShutdown(w.drop)
	if flags.tls.cert != "" {
		w.url = "https" + strings.TrimPrefix(w.url, "http")
		files, err := openTLS(&flags.tls, config.Access, log)
		if err != nil {
			return nil, err
		}
		ln = tls.NewListener(ln, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: files.forClient})
	}
	if flags.admin != "" {
		apart, err := (&net.ListenConfig{}).Listen(ctx, "tcp", flags.admin)
		if err != nil {
			return nil, fmt.Errorf("listen for probes and metrics on %q, see --admin-addr: %w", flags.admin, err)
		}
		log.Info("probes and metrics are apart", "http", "http://"+reachable(apart.Addr().String()))
		w.admin = patient(w.Admin(), log)
		w.apart.Go(func() { _ = w.admin.Serve(apart) }) // it ends by close, or its clients see that it did
	}
	go func() {
		defer close(w.done)
		w.err = w.http.Serve(ln)
	}()
	return w, nil
}

// patient is a server that waits for nobody for ever.
func patient(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          stdlog.New(&complaints{log, identity.NewFailures()}, "", 0),
	}
}

// complaints are those of the HTTP server. Of handshakes that fail there are no more from an
// address than of log-ins: whoever reaches the port can make as many as he likes.
type complaints struct {
	log      *slog.Logger
	failures *identity.Failures
}

// Write takes a line.
func (c *complaints) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if from, is := strings.CutPrefix(text, "http: TLS handshake error from "); is {
		peer, _, _ := strings.Cut(from, ": ")
		host, _, err := net.SplitHostPort(peer)
		if err == nil && c.failures.Another(host, time.Now()) {
			return len(line), nil
		}
	}
	c.log.Warn(text)
	return len(line), nil
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
	if w.admin != nil {
		err = errors.Join(err, w.admin.Close())
		w.apart.Wait()
	}
	if !errors.Is(w.err, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve HTTP: %w", w.err))
	}
	return err
}

package identity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"
)

// ErrNobody says that a request names nobody.
var ErrNobody = errors.New("the request names nobody")

// ErrAway says that it cannot be known now whom a token names: the issuer of tokens
// does not answer. Others are not concerned.
var ErrAway = errors.New("the issuer of tokens is away")

// Access is a file that says who may what. It is looked at again every two seconds,
// when somebody asks, and read once it is the same at two looks. One that became wrong changes nothing: what it said before counts
// on, so that a slip of the pen neither opens the door nor locks everybody out.
type Access struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	said   *file
	wrong  error // what is wrong with the file as it is now
	stamp  stamp
	seen   stamp // at the last look
	looked time.Time
}

// stamp tells one content of a file from another.
type stamp struct {
	modified time.Time
	size     int64
}

// lookEvery is how long a file that changed may go unnoticed.
const lookEvery = 2 * time.Second

// Open reads an access file.
func Open(path string, log *slog.Logger) (*Access, error) {
	a := &Access{path: path, log: log, looked: time.Now()}
	var err error
	a.said, a.stamp, err = load(path)
	if err != nil {
		return nil, fmt.Errorf("the access file: %w", err)
	}
	return a, nil
}

// load reads the file. Its stamp is from before that: what is written meanwhile has
// another, and is read again.
func load(path string) (*file, stamp, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // a pipe would keep all waiting
		return nil, stamp{}, fmt.Errorf("%s is no file", path)
	}
	opened, err := os.Open(path)
	if err != nil {
		return nil, stamp{}, err
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return nil, stamp{}, err
	}
	s := stamp{info.ModTime(), info.Size()}
	source, err := io.ReadAll(io.LimitReader(opened, maxFile+1))
	if err != nil {
		return nil, s, err
	}
	f, err := read(path, source)
	return f, s, err
}

// now is what the file says, read again if it changed.
func (a *Access) now() *file {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.looked) < lookEvery {
		return a.said
	}
	a.looked = time.Now()
	if info, err := os.Stat(a.path); err == nil {
		last := a.seen
		// What is being written changes until the next look: the half of a file may say more
		// than the whole.
		if a.seen = (stamp{info.ModTime(), info.Size()}); a.seen == a.stamp || a.seen != last {
			return a.said
		}
	}
	said, s, err := load(a.path)
	if err != nil {
		if a.wrong == nil || a.wrong.Error() != err.Error() {
			a.log.Error("the access file is wrong; what it said before counts on", "file", a.path, "error", err)
		}
		a.stamp, a.wrong = s, err
		return a.said
	}
	if before := a.said.oidc; before != nil && said.oidc != nil && before.keys.url == said.oidc.keys.url {
		said.oidc.keys = before.keys
	}
	a.said, a.stamp, a.wrong = said, s, nil
	a.log.Info("the access file was read again", "file", a.path)
	return a.said
}

// Wrong is what is wrong with the file since it was read last, nil if nothing is.
func (a *Access) Wrong() error {
	a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.wrong
}

// OnlyCertificates says that there is no other way to be named than a certificate.
func (a *Access) OnlyCertificates() bool {
	f := a.now()
	return len(f.keys) == 0 && f.oidc == nil
}

// Identify returns whom a request names: by the token that it bears, else by the
// certificate of its connection. The error is [ErrNobody], or [ErrAway], or says why
// what it brought is not taken.
func (a *Access) Identify(ctx context.Context, r *http.Request) (*Caller, error) {
	f := a.now()
	now := time.Now()
	switch given := r.Header.Values("Authorization"); {
	case len(given) > 1:
		return nil, errors.New("it has several Authorization headers")
	case len(given) == 1:
		scheme, token, _ := strings.Cut(given[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return nil, errors.New("its Authorization is no Bearer")
		}
		return f.byToken(ctx, strings.TrimSpace(token), now)
	case r.TLS != nil && len(r.TLS.VerifiedChains) > 0:
		return f.byCertificate(r.TLS.PeerCertificates[0], now)
	}
	return nil, ErrNobody
}

func (f *file) byToken(ctx context.Context, token string, now time.Time) (*Caller, error) {
	switch {
	case strings.HasPrefix(token, keyPrefix):
		return f.byKey(token, now)
	case f.oidc != nil:
		return f.oidc.caller(ctx, token)
	}
	return nil, errNoSuchKey
}

// Loopback says whether a host, without a port, is this machine.
func Loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback() || host == "localhost"
}

// Address is where a request came from, without the port.
func Address(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

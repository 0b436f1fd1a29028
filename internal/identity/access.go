package identity

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// ErrNobody says that a request names nobody.
var ErrNobody = errors.New("the request names nobody")

// ErrAway says that it cannot be known now whom a token names: the issuer of tokens
// does not answer. Others are not concerned.
var ErrAway = errors.New("the issuer of tokens is away")

// Access is a file that says who may what. It is looked at again when somebody asks: see
// [reread].
type Access struct {
	reread[*file]
	logIns chan struct{} // has one for each code that is being exchanged
}

// Open reads an access file.
func Open(path string, log *slog.Logger) (*Access, error) {
	a := &Access{logIns: make(chan struct{}, maxLogIns)}
	return a, a.open("access file", path, log, func(name string, source []byte, before *file) (*file, error) {
		f, err := read(name, source)
		if before != nil && before.oidc != nil && err == nil && f.oidc != nil && before.oidc.keys.url == f.oidc.keys.url {
			f.oidc.keys = before.oidc.keys
		}
		return f, err
	})
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

// Token is the token of an issuer that a request bears, for others who know the issuer, too. It is empty for none, and for a key
// of ours, with which they could act here in the name of who has it for as long as it counts.
func Token(r *http.Request) string {
	given := r.Header.Values("Authorization")
	if len(given) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || strings.HasPrefix(token, keyPrefix) {
		return ""
	}
	return token
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

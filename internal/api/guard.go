package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// named lets a request pass if its Host is one of names, or if there are none to
// choose from. A page of a name that is made to lead to this machine once the
// browser has loaded it (DNS rebinding) is of the same origin as its requests: only
// their Host says whose it is.
func named(names []string, next http.Handler) http.Handler {
	if len(names) == 0 {
		return next
	}
	known := make(map[string]bool)
	for _, name := range names {
		known[hostName(name)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !known[hostName(r.Host)] {
			refuse(w, http.StatusMisdirectedRequest, fmt.Sprintf("no request for the host %q is answered here: use %s, or name it with --http-host", r.Host, strings.Join(names, ", ")))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// under answers requests with a base before their path as those without it: a proxy may leave
// it there, or take it away, and who asks past the proxy has none.
func under(base string, next http.Handler) http.Handler {
	if base == "" {
		return next
	}
	stripped := http.StripPrefix(base, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.EscapedPath(), base+"/") {
			stripped.ServeHTTP(w, r)
		} else {
			next.ServeHTTP(w, r)
		}
	})
}

// hostName is a Host without its port, in lower case.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// atOnce lets so many requests pass at a time as there are places. More would be more
// bodies and answers in memory, and each would take longer. One that waits for long gives its
// place back meanwhile: see [await].
func atOnce(places *shares, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !places.take() {
			busy(w, fmt.Sprintf("%d requests are being answered, which is the most at a time; try again in a moment", cap(places.places)))
			return
		}
		p := &place{places, true}
		defer p.free()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), placeKey{}, p)))
	})
}

// readFirst has a request take a place only once its body was read: who sends slowly
// keeps nobody from being answered. What is read and has no place yet takes as much memory
// as the bodies of those that have one, at most, and half of that if it is of one address.
func readFirst(most int, next http.Handler) http.Handler {
	if most == 0 {
		return next
	}
	b := &bodies{all: most * maxBody, share: max(most/2, 1) * maxBody, of: make(map[string]int)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 && !b.read(w, r) {
			busy(w, "the bodies of other requests take all the room there is; try again in a moment")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bodies are those that are being read.
type bodies struct {
	all, share int // bytes that are left, and of all those that one address may have

	mu sync.Mutex
	of map[string]int // bytes, by address
}

// read reads a request's body, up to [maxBody], and leaves what it was and how it ended to
// be read again. It reports false if there is no room for it.
func (b *bodies) read(w http.ResponseWriter, r *http.Request) bool {
	from := hostName(r.RemoteAddr)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // tests have none
	var body []byte
	var err error
	defer func() { b.free(from, cap(body)) }()
	for err == nil && len(body) < maxBody {
		if len(body) == cap(body) {
			more := min(max(cap(body), 4<<10), maxBody-cap(body))
			if !b.take(from, more) {
				return false
			}
			body = append(make([]byte, 0, cap(body)+more), body...)
		}
		var n int
		n, err = r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
	}
	rest := io.Reader(r.Body) // of one that is too large
	if err != nil {
		rest = ended{err}
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), r.Body}
	return true
}

// ended is how reading ended.
type ended struct{ err error }

func (e ended) Read([]byte) (int, error) { return 0, e.err }

func (b *bodies) take(from string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.all || n > b.share-b.of[from] {
		return false
	}
	b.all -= n
	b.of[from] += n
	return true
}

func (b *bodies) free(from string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all += n
	if b.of[from] -= n; b.of[from] == 0 {
		delete(b.of, from)
	}
}

// busy tells to come again.
func busy(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", busyRetry)
	refuseAs(w, tooBusy.uri(), http.StatusServiceUnavailable, why)
}

// pages has what is not for programs answered by those for people. Who asks is found out by what they ask.
func pages(programs, people http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") || r.URL.Path == "/openapi.json" || apart(r.URL.Path) {
			programs.ServeHTTP(w, r)
		} else {
			people.ServeHTTP(w, r)
		}
	})
}

// apart is what whoever watches the process asks for. It tells nothing that an order is
// about.
func apart(path string) bool {
	return path == "/healthz" || path == "/readyz" || path == "/metrics"
}

// public answers whoever watches the process, always, and guards all else.
func public(all, guarded http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if apart(r.URL.Path) {
			all.ServeHTTP(w, r)
		} else {
			guarded.ServeHTTP(w, r)
		}
	})
}

// notHere guards all, where whoever watches the process asks elsewhere.
func notHere(guarded http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if apart(r.URL.Path) {
			refuse(w, http.StatusNotFound, r.URL.Path+" is answered at --admin-addr")
		} else {
			guarded.ServeHTTP(w, r)
		}
	})
}

// administration answers whoever watches the process, and guards dumps of projections;
// there is nothing else. Where nobody is asked for a name it gives no dumps: its address may
// be for other machines, though that of all else is not.
func administration(all *http.ServeMux, guarded http.Handler, asks bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := all.Handler(r)
		switch {
		case apart(r.URL.Path):
			all.ServeHTTP(w, r)
		case pattern == "GET "+projectionPath && !asks:
			refuse(w, http.StatusForbidden, "dumps are answered here where an access file says who may have them; ask --http-addr")
		case pattern == "GET "+projectionPath:
			guarded.ServeHTTP(w, r)
		default:
			refuse(w, http.StatusNotFound, "probes, metrics and dumps of projections are answered here, and nothing else; ask --http-addr")
		}
	})
}

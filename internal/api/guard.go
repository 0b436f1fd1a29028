package api

import (
	"fmt"
	"net"
	"net/http"
	"strings"
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

// hostName is a Host without its port, in lower case.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// atOnce lets so many requests pass at a time, 0 meaning any number. More would be
// more bodies and answers in memory, and each would take longer.
func atOnce(most int, next http.Handler) http.Handler {
	if most == 0 {
		return next
	}
	places := make(chan struct{}, most)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
		default:
			busy(w, fmt.Sprintf("%d requests are being answered, which is the most at a time; try again in a moment", most))
			return
		}
		defer func() { <-places }()
		next.ServeHTTP(w, r)
	})
}

// busy tells to come again.
func busy(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", busyRetry)
	refuse(w, http.StatusServiceUnavailable, why)
}

// public answers whoever watches the process, always, and guards all else. Probes and
// metrics tell nothing that an order is about.
func public(all, guarded http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz", "/readyz", "/metrics":
			all.ServeHTTP(w, r)
		default:
			guarded.ServeHTTP(w, r)
		}
	})
}

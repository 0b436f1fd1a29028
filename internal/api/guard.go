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

// open are the paths that whoever watches the process asks for. They are never
// refused, and tell nothing that an order is about.
func open(path string) bool { return path == "/healthz" || path == "/readyz" || path == "/metrics" }

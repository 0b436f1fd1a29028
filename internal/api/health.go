package api

import (
	"fmt"
	"net/http"
)

// health registers what whoever watches the process asks for.
func (s *Server) health(mux *http.ServeMux) {
	ok := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprintln(w, "ok") // whoever hung up needs no answer
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { ok(w) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.Ready(); err != nil {
			NotReady(w, err.Error())
			return
		}
		ok(w)
	})
}

// Ready says what is missing for the instance to serve, nil if nothing.
func (s *Server) Ready() error {
	u, why := s.borrow()
	if why != nil {
		return why
	}
	defer u.by.Done()
	return u.Ready()
}

package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Whoever looks at pages reads why there is none now; a program is told as ever, and both when to come again.
func TestRefusedPages(t *testing.T) {
	held, hold := make(chan struct{}), make(chan struct{})
	s := New(Config{Requests: 1, Console: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write([]byte(`{"title":"a page"}`)) // it is in memory
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			close(held)
			<-hold
		})
	}})
	ask := func(accept string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/orders", http.NoBody)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	first, done := new(httptest.ResponseRecorder), make(chan struct{})
	go func() {
		defer close(done)
		first = ask("text/html,application/xhtml+xml")
	}()
	<-held
	page := ask("text/html,application/xhtml+xml")
	if said := page.Body.String(); page.Code != 503 || page.Header().Get("Content-Type") != "text/html; charset=utf-8" || page.Header().Get("Retry-After") == "" || !strings.Contains(said, "<h1>Service Unavailable</h1>") || !strings.Contains(said, "which is the most at a time") {
		t.Errorf("%d %v %s", page.Code, page.Header(), said)
	}
	if program := ask("*/*"); program.Code != 503 || program.Header().Get("Content-Type") != "application/problem+json" || !strings.HasPrefix(program.Body.String(), "{") {
		t.Errorf("%d %v %s", program.Code, program.Header(), program.Body)
	}
	close(hold)
	if <-done; first.Body.String() != `{"title":"a page"}` || !first.Flushed {
		t.Errorf("a page is not as it was made: %s", first.Body)
	}
}

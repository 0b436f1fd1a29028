package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/test/oracle"
)

// slowBody is a body that does not come before the end.
type slowBody struct{ begun, end chan struct{} }

func (b slowBody) Read([]byte) (int, error) {
	b.begun <- struct{}{}
	<-b.end
	return 0, io.EOF
}

// So many requests are answered at a time, and the next is told to come again.
// Probes and metrics are answered all the same.
func TestRequestsAtATime(t *testing.T) {
	const most = 3
	s := New(Config{Requests: most})
	ask := func(method, path string, body io.Reader) *httptest.ResponseRecorder {
		said := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(t.Context(), method, path, body)
		request.Header.Set("Content-Type", "application/json")
		s.ServeHTTP(said, request)
		return said
	}
	slow := slowBody{make(chan struct{}), make(chan struct{})}
	ended := make(chan int)
	for range most {
		go func() {
			w := slowReader{httptest.NewRecorder(), slow}
			s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/openapi.json", http.NoBody))
			ended <- w.Code
		}()
		<-slow.begun
	}
	for path, want := range map[string]int{"/openapi.json": 503, "/healthz": 200, "/readyz": 503, "/metrics": 200} {
		said := ask(http.MethodGet, path, http.NoBody)
		if told := said.Header().Get("Retry-After") != ""; said.Code != want || told != (want == http.StatusServiceUnavailable) {
			t.Errorf("%s while %d requests are answered: %d %s", path, most, said.Code, said.Body)
		}
	}
	close(slow.end)
	for range most {
		if status := <-ended; status != http.StatusOK {
			t.Errorf("one that had its turn: %d", status)
		}
	}
	for range most + 1 {
		if said := ask(http.MethodGet, "/openapi.json", http.NoBody); said.Code != http.StatusOK {
			t.Errorf("after the others: %d", said.Code)
		}
	}
}

// A request whose body does not come takes nobody's place. What such bodies take is bounded,
// and what those of one address do, so that others have room.
func TestSlowBodiesTakeNobodysPlace(t *testing.T) {
	const most = 4
	s := New(Config{Requests: most})
	post := func(from string, body io.Reader) (status int, busy bool) {
		said := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/orders", body)
		request.RemoteAddr = from
		request.Header.Set("Content-Type", "application/json")
		s.ServeHTTP(said, request)
		return said.Code, said.Header().Get("Retry-After") != ""
	}
	expect := func(what string, want int, from string, body io.Reader) {
		t.Helper()
		if status, busy := post(from, body); status != want || busy {
			t.Errorf("%s: %d, busy: %t", what, status, busy)
		}
	}
	slow := slowBody{make(chan struct{}), make(chan struct{})}
	ended := make(chan struct{})
	sends := func(from string, size int) {
		go func() {
			post(from, io.MultiReader(bytes.NewReader(make([]byte, size)), slow))
			ended <- struct{}{}
		}()
		<-slow.begun
	}
	for n := range most + 1 {
		sends(fmt.Sprint("10.0.0.1:", n), 1)
	}
	expect("one like it, that comes", http.StatusBadRequest, "10.0.0.1:9", strings.NewReader("x"))
	large := strings.Repeat("x", maxBody+100)
	expect("one that is too large", http.StatusRequestEntityTooLarge, "10.0.0.2:1", strings.NewReader(large))
	for n := range most / 2 {
		sends(fmt.Sprint("10.0.0.2:", n), maxBody-1)
	}
	if status, busy := post("10.0.0.2:9", strings.NewReader("x")); status != http.StatusServiceUnavailable || !busy {
		t.Errorf("one of an address that takes its share: %d, busy: %t", status, busy)
	}
	expect("one of another", http.StatusBadRequest, "10.0.0.3:1", strings.NewReader("x"))
	sends("10.0.0.3:1", maxBody-1)
	if status, busy := post("10.0.0.4:1", strings.NewReader(large)); status != http.StatusServiceUnavailable || !busy {
		t.Errorf("one for which there is no room: %d, busy: %t", status, busy)
	}
	close(slow.end)
	for range most + 1 + most/2 + 1 {
		<-ended // some found no place: all came at once
	}
	for n := range most + 1 {
		expect("after the others", http.StatusRequestEntityTooLarge, fmt.Sprint("10.0.0.2:", n), strings.NewReader(large))
	}
}

// slowReader takes an answer when it is told to.
type slowReader struct {
	*httptest.ResponseRecorder
	slowBody
}

func (r slowReader) Write(b []byte) (int, error) {
	r.begun <- struct{}{}
	<-r.end
	return r.ResponseRecorder.Write(b)
}

// So many projections are sent at a time, however slowly they are read.
func TestProjectionsAtATime(t *testing.T) {
	s := New(Config{})
	s.Attach(idle(t))
	defer s.Detach(errors.New("over"))
	ask := func(w http.ResponseWriter) {
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/partitions/0/projection", http.NoBody))
	}
	slow := slowBody{make(chan struct{}), make(chan struct{})}
	ended := make(chan int)
	for range maxStreams {
		go func() {
			w := slowReader{httptest.NewRecorder(), slow}
			ask(w)
			ended <- w.Code
		}()
		<-slow.begun
	}
	said := httptest.NewRecorder()
	if ask(said); said.Code != http.StatusServiceUnavailable || said.Header().Get("Retry-After") == "" {
		t.Errorf("one more: %d %s", said.Code, said.Body)
	}
	close(slow.end)
	for range maxStreams {
		if status := <-ended; status != http.StatusOK {
			t.Errorf("one that had its turn: %d", status)
		}
	}
	said = httptest.NewRecorder()
	if ask(said); said.Code != http.StatusOK {
		t.Errorf("after the others: %d %s", said.Code, said.Body)
	}
}

// A submission for a lane that is behind is told when to come again.
func TestASubmissionForALaneThatIsBehind(t *testing.T) {
	s := New(Config{})
	i := idle(t, func(cfg *orchestrator.Config) { cfg.MaxLag = time.Second })
	s.Attach(i)
	defer s.Detach(errors.New("over"))
	listener := httptest.NewServer(s)
	defer listener.Close()
	c, err := NewClient(listener.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	oracle.Until(t, "no more is taken", func() error {
		var err error
		for range 2 { // one in a tenth of a second is let through
			if _, err = c.Submit(t.Context(), &Submission{ID: "o-1", Workflow: "w"}); err != nil {
				break
			}
		}
		problem := new(Problem)
		if !errors.As(err, &problem) || problem.Status != http.StatusTooManyRequests || problem.RetryAfter <= 0 {
			return fmt.Errorf("%v, again after %s", err, problem.RetryAfter)
		}
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- i.Run(ctx) }()
	oracle.Until(t, "the order that was taken", func() error {
		_, err := c.Order(t.Context(), "o-1")
		return err
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

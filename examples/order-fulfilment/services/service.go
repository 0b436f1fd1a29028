package services

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
)

// The operations of the services.
const (
	opCharge = "charge"
	opRefund = "refund"
	opParcel = "parcel"
)

// maxBody bounds what a caller sends, in bytes.
const maxBody = 1 << 20

// Config is what a service may be told.
type Config struct {
	// Delay is how long a [Slow] service takes; 2 s if zero.
	Delay time.Duration
	// Observe, if set, is told of every call. It is called by many goroutines at
	// once.
	Observe func(Call)
}

// Call is one call as the service saw it.
type Call struct {
	At        time.Time // when it arrived
	Service   string
	Operation string // charge, refund or parcel
	Key       string // its Idempotency-Key
	// CompleteBy is the caller's deadline, if it was told; see [HeaderCompleteBy].
	CompleteBy time.Time
	Fate       Fate
	// Did says in plain words what was done.
	Did string
}

// HeaderCompleteBy tells a service the complete-by of the step that a call
// belongs to. Services need not look at it; these report it to [Config.Observe].
const HeaderCompleteBy = "Complete-By"

// service is what both services have in common: the switch, and calls that are
// idempotent under their key.
type service struct {
	name   string
	config Config
	mux    *http.ServeMux

	mu    sync.Mutex
	mode  Mode
	since map[string]int // calls of each operation and key since the mode was set
	calls map[string]int // calls of each key
}

func (s *service) begin(name string, config Config) {
	if config.Delay == 0 {
		config.Delay = 2 * time.Second
	}
	s.name, s.config, s.mux, s.calls = name, config, http.NewServeMux(), make(map[string]int)
	s.SetMode(Healthy)
	s.mux.HandleFunc("GET /mode", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, _ = io.WriteString(w, string(s.mode)+"\n")
	})
	s.mux.HandleFunc("PUT /mode", func(w http.ResponseWriter, r *http.Request) {
		name, err := io.ReadAll(io.LimitReader(r.Body, 100))
		if err != nil {
			return // the caller went away
		}
		mode, err := ParseMode(strings.TrimSpace(string(name)))
		if err != nil {
			answer(w, http.StatusBadRequest, refusal{"unknown-mode", err.Error()})
			return
		}
		s.SetMode(mode)
		w.WriteHeader(http.StatusNoContent)
	})
}

// SetMode turns the switch. Calls are counted from the beginning again.
func (s *service) SetMode(m Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode, s.since = m, make(map[string]int)
}

// ServeHTTP serves the service's API, and the switch at /mode.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// refusal is the body of an answer that is no success.
type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// result is what a call was answered with, or would have been.
type result struct {
	status int
	body   any
	did    string
}

// operate makes a handler of an operation. Work does it, once for each key; it
// is called with the service locked.
func operate[In any](s *service, operation string, refused result, work func(key string, in In) result) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		call := Call{At: time.Now(), Service: s.name, Operation: operation, Key: r.Header.Get("Idempotency-Key")}
		if at, err := time.Parse(time.RFC3339Nano, r.Header.Get(HeaderCompleteBy)); err == nil {
			call.CompleteBy = at
		}
		var in In
		switch err := json.UnmarshalRead(http.MaxBytesReader(w, r.Body, maxBody), &in); {
		case err != nil:
			answer(w, http.StatusBadRequest, refusal{"bad-request", err.Error()})
			return
		case call.Key == "":
			answer(w, http.StatusBadRequest, refusal{"no-key", "send an Idempotency-Key: without it a repeat cannot be told from a new call"})
			return
		}

		s.mu.Lock()
		s.calls[call.Key]++
		s.since[operation+" "+call.Key]++
		call.Fate = s.mode.fate(operation, s.since[operation+" "+call.Key])
		var done result
		switch call.Fate {
		case Answered, Late, Lost:
			done = work(call.Key, in)
		case Unavailable:
			done = result{http.StatusServiceUnavailable, refusal{"unavailable", "the service restarts"}, "answered 503 and did nothing"}
		case Broken:
			done = result{did: "is down: broke the connection and did nothing"}
		case Refused:
			done = refused
		}
		s.mu.Unlock()

		switch call.Did = done.did; call.Fate {
		case Lost:
			call.Did += "; the connection broke before the answer"
		case Late:
			call.Did += "; the answer takes " + s.config.Delay.String()
		}
		if s.config.Observe != nil {
			s.config.Observe(call)
		}
		switch call.Fate {
		case Lost, Broken:
			panic(http.ErrAbortHandler) // closes the connection
		case Late:
			timer := time.NewTimer(s.config.Delay)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-r.Context().Done(): // nobody waits for the answer any more
			}
		}
		answer(w, done.status, done.body)
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.MarshalWrite(w, body) // the caller may be gone
}

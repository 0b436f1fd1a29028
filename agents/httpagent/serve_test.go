package httpagent

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
)

// shop is a service that remembers keys, as services should.
type shop struct {
	mu     sync.Mutex
	keys   []string
	fails  int // how many calls still fail
	charge map[string]string
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	key := r.Header.Get("Idempotency-Key")
	s.keys = append(s.keys, key)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Header.Get("Authorization") != "Bearer t0ken":
		w.WriteHeader(http.StatusUnauthorized)
	case s.fails > 0:
		s.fails--
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Path == "/charges" && strings.Contains(string(body), "declined"):
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusPaymentRequired)
		_, _ = io.WriteString(w, `{"title":"The bank declined the card"}`)
	case r.URL.Path == "/charges":
		s.charge[key] = "c-" + key
		_, _ = io.WriteString(w, `{"id":"`+s.charge[key]+`"}`)
	case r.URL.Path == "/refunds" && strings.Contains(string(body), `"charge"`):
		_, _ = w.Write(body)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// A1 to A6 over Kafka: requests come in, calls go out, replies come back.
func TestServe(t *testing.T) {
	service := &shop{fails: 2, charge: make(map[string]string)}
	server := httptest.NewServer(service)
	defer server.Close()
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "waybill.requests.payment", "waybill.replies"))
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("waybill.replies"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	const file = `agent: payment
base: ${URL}
headers: {Authorization: "Bearer ${TOKEN}"}
retry: {attempts: 3, backoff: 1ms}
operations:
  charge: {url: /charges}
  refund: {url: /refunds, body: {charge: "{output.id?}"}, success: [404], output: none}
`
	agent, err := Read("payment.yaml", []byte(file), func(name string) (string, bool) {
		return map[string]string{"URL": server.URL, "TOKEN": "t0ken"}[name], true
	})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- agent.Serve(ctx, agents.Config{
			Brokers: cluster.ListenAddrs(), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}, "waybill/test")
	}()

	ask := func(r events.Request) string {
		t.Helper()
		r.Step, r.Attempt, r.ReplyTo = "charge", 1, "waybill.replies"
		if r.IdempotencyKey = events.IdempotencyKey(r.Order, r.Step, 0); r.Undo {
			r.IdempotencyKey = events.UndoKey(r.IdempotencyKey, 0)
		}
		if r.CompleteBy.IsZero() {
			r.CompleteBy = time.Now().Add(time.Minute)
		}
		record := &kgo.Record{Topic: "waybill.requests.payment", Key: []byte(r.Order), Value: r.Append(nil)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			t.Fatal(err)
		}
		patient, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		for {
			fetches := client.PollRecords(patient, 1)
			if err := fetches.Err0(); err != nil {
				t.Fatalf("no reply: %v", err)
			}
			if replies := fetches.Records(); len(replies) > 0 {
				return string(replies[0].Value)
			}
		}
	}
	want := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("the reply is\n%s\nwant\n%s", got, want)
		}
	}
	want(ask(events.Request{Order: "o-1", Operation: "charge", Input: []byte(`{"cents":1}`)}),
		`{"order":"o-1","step":"charge","attempt":1,"status":"completed","output":{"id":"c-o-1/charge"}}`)
	want(ask(events.Request{Order: "o-2", Operation: "charge", Input: []byte(`{"card":"declined"}`)}),
		`{"order":"o-2","step":"charge","attempt":1,"status":"failed","error":{"code":"http-402","message":"HTTP 402 Payment Required: The bank declined the card","permanent":true}}`)
	want(ask(events.Request{Order: "o-1", Operation: "refund", Undo: true, Outcome: events.OutcomeCompleted, Output: []byte(`{"id":"c-1"}`)}),
		`{"order":"o-1","step":"charge","attempt":1,"undo":true,"status":"completed"}`)
	want(ask(events.Request{Order: "o-2", Operation: "refund", Undo: true, Outcome: events.OutcomeUnknown}),
		`{"order":"o-2","step":"charge","attempt":1,"undo":true,"status":"completed"}`)

	stop()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	// A2, A3: the retries of the first request had its key.
	if got, want := strings.Join(service.keys, " "), "o-1/charge o-1/charge o-1/charge o-2/charge o-1/charge:undo o-2/charge:undo"; got != want {
		t.Errorf("the keys were %s, want %s", got, want)
	}
	if strings.Contains(log.String(), "t0ken") || !strings.Contains(log.String(), "POST ${URL}/charges") {
		t.Errorf("the log is\n%s", &log)
	}
}

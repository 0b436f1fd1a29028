package bench

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/waybill-dev/waybill/events"
)

// With an API nothing is submitted to Kafka, and what the API does not take is a measurement that failed: but for what
// nobody waits for any more.
func TestSubmitOverHTTP(t *testing.T) {
	topics, err := events.NewTopics("bench")
	if err != nil {
		t.Fatal(err)
	}
	var asked string
	answer := http.StatusAccepted
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = r.Method + " " + r.URL.Path + " " + string(body)
		w.WriteHeader(answer)
	}))
	defer server.Close()
	l := &load{topics: &topics, shape: &Shape{Steps: 3}, api: &site{base: server.URL, client: server.Client()}}
	submit := func(ctx context.Context) error {
		l.produce(ctx, l.order(measured, 7))
		l.asking.Wait()
		return l.err()
	}
	if err := submit(t.Context()); err != nil {
		t.Error(err)
	}
	if want := `POST /api/v1/orders {"id":"order-7","workflow":"bench","input":` + l.shape.input(7) + "}"; asked != want {
		t.Errorf("asked for %s, want %s", asked, want)
	}
	over, end := context.WithCancel(t.Context())
	end()
	asked = ""
	if err := submit(over); err != nil || asked == "" {
		t.Errorf("%v, and asked for %q: it was cut short", err, asked)
	}
	answer = http.StatusServiceUnavailable
	if err := submit(over); err != nil {
		t.Error(err)
	}
	if err := submit(t.Context()); err == nil {
		t.Error("what was refused is no error")
	}
}

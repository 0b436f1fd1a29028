package tracing

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/collector"
	"github.com/waybill-dev/waybill/test/oracle"
)

// sender is a follower that has spans to send.
type sender struct {
	*follower
	*collector.Collector
	log strings.Builder
}

func newSender(t *testing.T) *sender {
	t.Helper()
	s := &sender{Collector: collector.New(t)}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
	setup, err := FromEnvironment(t.Context(), "waybill", "1")
	if err != nil {
		t.Fatal(err)
	}
	j := setup.Journal(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&s.log, nil)))
	j.pause = time.Millisecond
	topics, err := events.NewTopics("shop")
	if err != nil {
		t.Fatal(err)
	}
	s.follower = &follower{Journal: j, orders: newOrders(&topics, setup, 1<<20)}
	for _, e := range written() {
		if e.Order == "wait" {
			if err := s.orders.take(t.Context(), 0, &e); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

func (s *sender) counts(t *testing.T, sent, dropped float64) {
	t.Helper()
	if a, b := testutil.ToFloat64(s.sent), testutil.ToFloat64(s.dropped); a != sent || b != dropped || len(s.orders.ended) > 0 {
		t.Errorf("%v were sent, %v dropped, and %d are left:\n%s", a, b, len(s.orders.ended), s.log.String())
	}
}

// Spans wait until there are enough, are tried until they are taken, and are sent once.
func TestSpansAreSentUntilTheyAreTaken(t *testing.T) {
	s := newSender(t)
	n := len(s.orders.ended)
	if !s.send(t.Context(), n+1) || len(s.orders.ended) != n {
		t.Errorf("%d spans are left, which are not enough to be sent", len(s.orders.ended))
	}
	s.Refuse(http.StatusBadRequest) // which the exporter does not try again
	done := make(chan bool)
	go func() { done <- s.send(t.Context(), n) }()
	oracle.Until(t, "they are tried again", func() error {
		if s.Refused() < 3 {
			return context.DeadlineExceeded
		}
		return nil
	})
	s.Refuse(http.StatusOK)
	if !<-done {
		t.Error("it gave up")
	}
	s.counts(t, float64(n), 0)
	if all := s.Spans("wait"); len(all) != n || all[0].Times != 1 || all[0].Service != "waybill" || all[0].Schema != "https://opentelemetry.io/schemas/1.41.0" {
		t.Errorf("it has %+v", all)
	}
	if !strings.Contains(s.log.String(), "the collector takes no spans; trying again") {
		t.Errorf("the log says %q", s.log.String())
	}
}

// What is not taken for too long is given up, and the log says how much.
func TestSpansAreGivenUp(t *testing.T) {
	s := newSender(t)
	n := len(s.orders.ended)
	s.patience = 0
	s.Refuse(http.StatusBadRequest)
	if !s.send(t.Context(), 0) {
		t.Error("it was to go on")
	}
	s.counts(t, 0, float64(n))
	if !strings.Contains(s.log.String(), "they are dropped") {
		t.Errorf("the log says %q", s.log.String())
	}
}

// What a collector took a part of is not sent again.
func TestSpansArePartlyRefused(t *testing.T) {
	s := newSender(t)
	s.RefuseSome(1)
	if !s.send(t.Context(), 0) {
		t.Error("it was to go on")
	}
	s.counts(t, 0, 1)
	if all := s.Spans("wait"); all[0].Times != 1 {
		t.Errorf("it has %+v", all)
	}
}

// Who stops waits for no collector, and nothing that was not taken counts as sent.
func TestStoppingWaitsForNoCollector(t *testing.T) {
	s := newSender(t)
	s.Hang(true)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan bool)
	go func() { done <- s.send(ctx, 0) }()
	oracle.Until(t, "they are tried", func() error {
		if s.Hung() == 0 {
			return context.DeadlineExceeded
		}
		return nil
	})
	cancel()
	if <-done {
		t.Error("it says that they were taken")
	}
	if n := testutil.ToFloat64(s.sent) + testutil.ToFloat64(s.dropped); n > 0 {
		t.Errorf("%v count as sent or dropped", n)
	}
}

// Tracing is on where an endpoint is, off where somebody says so, and what cannot be followed is said.
func TestFromEnvironment(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"
	for _, c := range []struct {
		environment string
		on          bool
		says        string
	}{
		{"", false, ""},
		{endpoint, true, ""},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1/v1/traces", true, ""},
		{endpoint + " OTEL_EXPORTER_OTLP_PROTOCOL=grpc", true, ""},
		{endpoint + " OTEL_TRACES_EXPORTER=none", false, ""},
		{endpoint + " OTEL_SDK_DISABLED=true OTEL_TRACES_SAMPLER=what", false, ""},
		{endpoint + " OTEL_TRACES_EXPORTER=zipkin", false, `OTEL_TRACES_EXPORTER is "zipkin": use otlp`},
		{endpoint + " OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json", false, `"http/json": use http/protobuf or grpc`},
		{endpoint + " OTEL_TRACES_SAMPLER=jaeger_remote", false, `OTEL_TRACES_SAMPLER is "jaeger_remote": use always_on`},
		{endpoint + " OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=10", false, `OTEL_TRACES_SAMPLER_ARG is "10"`},
		{endpoint + " OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=NaN", false, `OTEL_TRACES_SAMPLER_ARG is "NaN"`},
		{endpoint + " OTEL_RESOURCE_ATTRIBUTES=what", false, "OTEL_RESOURCE_ATTRIBUTES: "},
	} {
		t.Run(c.environment, func(t *testing.T) {
			for variable := range strings.FieldsSeq(c.environment) {
				name, value, _ := strings.Cut(variable, "=")
				t.Setenv(name, value)
			}
			s, err := FromEnvironment(t.Context(), "waybill", "1")
			if (s != nil) != c.on || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, %v", s, err)
			}
			if (s.Sampled() != nil) != c.on {
				t.Error("whether traces are sampled does not follow from that")
			}
		})
	}
}

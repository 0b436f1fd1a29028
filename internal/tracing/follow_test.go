package tracing

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
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
	n := len(s.orders.ended)
	s.RefuseSome(3)
	if !s.send(t.Context(), 0) {
		t.Error("it was to go on")
	}
	s.counts(t, float64(n-3), 3)
	if all := s.Spans("wait"); all[0].Times != 1 {
		t.Errorf("it has %+v", all)
	}
	for says, want := range map[string]int{
		"x: OTLP partial success: no (3 spans rejected)": 3, "OTLP partial success: (5 spans rejected)\n(2 spans rejected)": 2, "OTLP partial success: a (99 spans rejected)": 9,
		"OTLP partial success: a (-1 spans rejected)": 0, "OTLP partial success: only a warning (0 spans rejected)": 0, "OTLP partial success: a (99999999999999999999 spans rejected)": 9,
	} {
		if got := refused(errors.New(says), 9); got != want {
			t.Errorf("%s: %d and not %d", says, got, want)
		}
	}
}

// kept is an instance that keeps what is marked.
type kept struct {
	source
	marks, since map[int32]int64
	serves       []int32
}

func (k *kept) Served() []int32                                           { return k.serves }
func (k *kept) Marks(context.Context, string) (map[int32]int64, error)    { return k.marks, nil }
func (k *kept) Since(context.Context, time.Time) (map[int32]int64, error) { return k.since, nil }
func (k *kept) Mark(_ context.Context, _ string, marks map[int32]int64) error {
	maps.Copy(k.marks, marks)
	return nil
}

// reader notes from where partitions are read.
type reader struct {
	lane.Journals
	from map[int32]int64
}

func (r *reader) Read(p int32, from int64) { r.from[p] = from }
func (r *reader) Drop(int32)               {}

// takes is a collector that takes so many requests.
type takes struct {
	left    int
	refused atomic.Int32
}

func (e *takes) ExportSpans(context.Context, []sdk.ReadOnlySpan) error {
	if e.left--; e.left < 0 {
		e.refused.Add(1)
		return errors.New("no more")
	}
	return nil
}

func (e *takes) Shutdown(context.Context) error { return nil }

// While the collector takes nothing, what it took before is marked: after a restart that is not made once more.
func TestWhatWasTakenIsMarkedWhileACollectorIsAway(t *testing.T) {
	s := newSender(t)
	e := &takes{left: 1}
	k := &kept{marks: make(map[int32]int64), serves: []int32{0}, since: map[int32]int64{0: 7}}
	s.setup.exporter, s.instance, s.reader, s.atOnce = e, k, &reader{from: make(map[int32]int64)}, 2
	s.reads, s.marked, s.gone, s.stuck = make(map[int32]int64), make(map[int32]int64), make(map[int32]bool), make(map[int32]time.Time)
	s.orders = newOrders(s.orders.topics, s.setup, 1<<20)
	s.assign(t.Context())
	var records []*kgo.Record
	for i, e := range written()[:25] {
		records = append(records, &kgo.Record{Offset: 7 + int64(i), Value: e.Append(nil)})
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.take(ctx, kgo.Fetches{{Topics: []kgo.FetchTopic{{Partitions: []kgo.FetchPartition{{Records: records}}}}}})
	}()
	oracle.Until(t, "it is refused", func() error {
		if e.refused.Load() < 3 {
			return context.DeadlineExceeded
		}
		return nil
	})
	cancel()
	<-done
	// The second span ends with the seventh record, and the third with the ninth.
	if k.marks[0] != 7+8 {
		t.Errorf("it marks %v", k.marks)
	}
}

// Where a journal was trimmed behind what spans were made of, that is said, and how much it is.
func TestAJournalIsTrimmed(t *testing.T) {
	s := newSender(t)
	k := &kept{marks: map[int32]int64{0: 10, 1: 20}, serves: []int32{0, 1, 2}, since: map[int32]int64{0: 100, 1: 100, 2: 100}}
	r := &reader{from: make(map[int32]int64)}
	s.instance, s.reader = k, r
	s.reads, s.marked, s.gone, s.stuck = make(map[int32]int64), make(map[int32]int64), map[int32]bool{0: true}, make(map[int32]time.Time)
	s.assign(t.Context())
	if r.from[0] != 100 || r.from[1] != 20 || r.from[2] != 100 || testutil.ToFloat64(s.skipped) != 90 {
		t.Errorf("it reads from %v, and has skipped %v", r.from, testutil.ToFloat64(s.skipped))
	}
	if log := s.log.String(); strings.Count(log, "was trimmed") != 1 || !strings.Contains(log, "partition=0 from=10 to=100") {
		t.Errorf("the log says %s", log)
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

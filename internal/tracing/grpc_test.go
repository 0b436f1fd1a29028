package tracing

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/waybill-dev/waybill/events"
)

// called is a collector that is asked by gRPC, and does not want one of the spans of each request.
type called struct {
	collect.UnimplementedTraceServiceServer
	names map[string]int
}

func (c *called) Export(_ context.Context, r *collect.ExportTraceServiceRequest) (*collect.ExportTraceServiceResponse, error) {
	for _, resource := range r.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				c.names[span.Name]++
			}
		}
	}
	return &collect.ExportTraceServiceResponse{PartialSuccess: &collect.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: "not this one"}}, nil
}

// A collector may speak gRPC, too: it has the spans that it would have over HTTP, and what it refuses counts likewise.
func TestSpansAreSentByGRPC(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, c := grpc.NewServer(), &called{names: make(map[string]int)}
	collect.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://"+listener.Addr().String())
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	setup, err := FromEnvironment(t.Context(), "waybill", "1")
	if err != nil {
		t.Fatal(err)
	}
	topics, err := events.NewTopics("shop")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	j := setup.Journal(prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))
	f := &follower{Journal: j, orders: newOrders(&topics, setup, 1<<20)}
	for _, e := range written() {
		if e.Order == "wait" {
			if err := f.orders.take(t.Context(), 0, &e); err != nil {
				t.Fatal(err)
			}
		}
	}
	n := len(f.orders.ended)
	if !f.send(t.Context(), 0) {
		t.Error("it was to go on")
	}
	server.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if sent, dropped := testutil.ToFloat64(j.sent), testutil.ToFloat64(j.dropped); sent != float64(n-1) || dropped != 1 || c.names["order w"] != 1 || c.names["pay"] != 1 {
		t.Errorf("%v of %d were sent, %v dropped, and it has %v\n%s", sent, n, dropped, c.names, &log)
	}
}

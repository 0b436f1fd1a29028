package main

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
)

func attributeIs(key, value string) func(*common.KeyValue) bool {
	return func(is *common.KeyValue) bool { return is.GetKey() == key && is.GetValue().GetStringValue() == value }
}

// Metrics are pushed where OpenTelemetry's variables say, under the names that they have at /metrics, and with the units
// that these say.
func TestMetricsArePushed(t *testing.T) {
	clearEnvironment(t)
	pushes := make(chan *collector.ExportMetricsServiceRequest, 1)
	taker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		push := new(collector.ExportMetricsServiceRequest)
		if err := proto.Unmarshal(body, push); err != nil || r.URL.Path != "/v1/metrics" {
			t.Errorf("%s: %v", r.URL, err)
		}
		if err == nil {
			select {
			case pushes <- push:
			default: // nobody waits for more
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer taker.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", taker.URL)
	t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=shop")
	server, _, stop := startDev(t, t.TempDir())
	units := map[string]string{"": "", "seconds": "s", "bytes": "By", "records": "{record}"}
	for {
		push := <-pushes
		var names []string
		seen := map[string]bool{}
		for _, of := range push.GetResourceMetrics() {
			if !slices.ContainsFunc(of.GetResource().GetAttributes(), attributeIs("service.name", "shop")) {
				t.Errorf("they are of %v", of.GetResource())
			}
			for _, scope := range of.GetScopeMetrics() {
				for _, m := range scope.GetMetrics() {
					names = append(names, m.GetName())
					seen[m.GetUnit()] = true
					if want := units[unit(m.GetName())]; strings.HasPrefix(m.GetName(), "waybill_") && m.GetUnit() != want {
						t.Errorf("%s has the unit %q instead of %q", m.GetName(), m.GetUnit(), want)
					}
				}
			}
		}
		missing := ""
		for name := range families(t, server) {
			if strings.HasPrefix(name, "waybill_") && !slices.Contains(names, name) {
				missing = name
			}
		}
		if missing == "" {
			for _, unit := range units {
				if !seen[unit] {
					t.Errorf("nothing has the unit %q", unit)
				}
			}
			break // what came since the push is in one of the next
		}
	}
	stop()

	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	waybill(t, "", "dev", "--data-dir", t.TempDir(), "--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0").want(t, 2, "", "use http/protobuf or grpc")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	t.Setenv("OTEL_METRICS_EXPORTER", "prometheus")
	waybill(t, "", "dev", "--data-dir", t.TempDir(), "--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0").want(t, 2, "", `OTEL_METRICS_EXPORTER is "prometheus": use otlp, or none`)
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	for _, off := range [][2]string{{"OTEL_SDK_DISABLED", "true"}, {"OTEL_METRICS_EXPORTER", "none"}, {"OTEL_EXPORTER_OTLP_ENDPOINT", ""}} {
		t.Run(off[0], func(t *testing.T) {
			t.Setenv(off[0], off[1])
			stop, err := pushMetrics(t.Context(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			stop()
		})
	}
}

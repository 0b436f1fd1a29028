package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/waybill-dev/waybill/internal/tracing"
)

// lastPush is how long the last metrics may take to be taken when the program ends.
const lastPush = 5 * time.Second

// pushMetrics pushes what a registry has by OTLP, under the same names, to where OpenTelemetry's own variables
// say, until stop is called, which pushes once more. It does nothing where they name no endpoint. Nobody waits for
// the other side: what it does not take is said in the log.
func pushMetrics(ctx context.Context, registry *prometheus.Registry, log *slog.Logger) (stop func(), _ error) {
	endpoint := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if endpoint == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return func() {}, nil
	}
	switch exporter := os.Getenv("OTEL_METRICS_EXPORTER"); exporter {
	case "none":
		return func() {}, nil
	case "", "otlp":
	default:
		return nil, usageError{fmt.Errorf("OTEL_METRICS_EXPORTER is %q: use otlp, or none to push nothing; /metrics answers Prometheus in either case", exporter)}
	}
	tracing.Complain(log)
	var exporter metric.Exporter
	var err error
	switch protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf"); protocol {
	case "http/protobuf":
		exporter, err = otlpmetrichttp.New(ctx)
	case "grpc":
		exporter, err = otlpmetricgrpc.New(ctx)
	default:
		return nil, usageError{fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: use http/protobuf or grpc", protocol)}
	}
	if err != nil {
		return nil, fmt.Errorf("push metrics to %s, as OTEL_EXPORTER_OTLP_ENDPOINT says: %w", endpoint, err)
	}
	of, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), // what follows counts more
		resource.WithAttributes(attribute.String("service.name", "waybill"), attribute.String("service.version", programVersion().Version),
			attribute.String("service.instance.id", uuid.NewString())), // several processes of a host are not one
		resource.WithFromEnv())
	if err != nil {
		log.Warn("not all of OTEL_RESOURCE_ATTRIBUTES can be read", "error", err)
	}
	provider := metric.NewMeterProvider(metric.WithResource(of), metric.WithReader(
		metric.NewPeriodicReader(exporter, metric.WithProducer(withUnits{bridge.NewMetricProducer(bridge.WithGatherer(registry))}))))
	log.Info("metrics are pushed", "otlp", endpoint)
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPush)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last metrics were not pushed", "error", err)
		}
	}, nil
}

// withUnits gives metrics the units of UCUM that the ends of their names say, as OpenTelemetry has them. What reads them
// as Prometheus again adds nothing to a name that has its unit.
type withUnits struct{ metric.Producer }

func (p withUnits) Produce(ctx context.Context) ([]metricdata.ScopeMetrics, error) {
	all, err := p.Producer.Produce(ctx)
	for _, scope := range all {
		for i := range scope.Metrics {
			m := &scope.Metrics[i]
			name := strings.TrimSuffix(m.Name, "_total")
			m.Unit = ucum[name[strings.LastIndexByte(name, '_')+1:]]
		}
	}
	return all, err
}

// ucum are units by the ends of names. What is without one has no unit: with 1 it would be read as a ratio.
var ucum = map[string]string{"seconds": "s", "bytes": "By", "records": "{record}", "percent": "%"}

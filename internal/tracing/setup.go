// Package tracing makes OpenTelemetry's traces of orders: one trace an order, from its journal. See docs/tracing.md.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-dev/waybill/events/spans"
)

// Setup is what the environment says of traces.
type Setup struct {
	exporter sdk.SpanExporter
	sampler  sdk.Sampler
	resource *resource.Resource
}

// FromEnvironment reads the variables OTEL_* that OpenTelemetry specifies for the exporter of traces, their sampler and
// the resource, of which name and version are if they do not say. It returns nil where no endpoint is set, or tracing is
// turned off. It fails on what it cannot follow, and connects to nobody.
func FromEnvironment(ctx context.Context, name, version string) (*Setup, error) {
	specific := func(variable string) string {
		return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+variable), os.Getenv("OTEL_EXPORTER_OTLP_"+variable))
	}
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || specific("ENDPOINT") == "" {
		return nil, nil
	}
	switch exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return nil, nil
	case "", "otlp":
	default:
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: use otlp, or none for no traces", exporter)
	}
	s := &Setup{}
	var err error
	if s.sampler, err = sampler(os.Getenv("OTEL_TRACES_SAMPLER"), os.Getenv("OTEL_TRACES_SAMPLER_ARG")); err != nil {
		return nil, err
	}
	if s.resource, err = resource.New(ctx,
		resource.WithAttributes(spans.ServiceName(name), spans.ServiceVersion(version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv(),
	); err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	var client otlptrace.Client
	switch protocol := specific("PROTOCOL"); protocol {
	case "", "http/protobuf":
		client = otlptracehttp.NewClient(otlptracehttp.WithRetry(otlptracehttp.RetryConfig(retry)))
	case "grpc":
		client = otlptracegrpc.NewClient(otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig(retry)))
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: use http/protobuf or grpc", protocol)
	}
	if s.exporter, err = otlptrace.New(ctx, client); err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_*: %w", err)
	}
	return s, nil
}

// retry is how the exporter tries on by itself, where its collector says that it may.
var retry = struct {
	Enabled                                      bool
	InitialInterval, MaxInterval, MaxElapsedTime time.Duration
}{true, time.Second, 10 * time.Second, 30 * time.Second}

// sampler makes what OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG ask for.
func sampler(name, arg string) (sdk.Sampler, error) {
	ratio := 1.0
	if strings.HasSuffix(name, "traceidratio") && arg != "" {
		var err error
		if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
			return nil, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG is %q: it must be a number from 0 to 1", arg)
		}
	}
	switch name {
	case "always_on":
		return sdk.AlwaysSample(), nil
	case "always_off":
		return sdk.NeverSample(), nil
	case "traceidratio":
		return sdk.TraceIDRatioBased(ratio), nil
	case "", "parentbased_always_on":
		return sdk.ParentBased(sdk.AlwaysSample()), nil
	case "parentbased_always_off":
		return sdk.ParentBased(sdk.NeverSample()), nil
	case "parentbased_traceidratio":
		return sdk.ParentBased(sdk.TraceIDRatioBased(ratio)), nil
	}
	return nil, fmt.Errorf("OTEL_TRACES_SAMPLER is %q: use always_on, always_off, traceidratio, or one of these behind parentbased_", name)
}

// Sampled is what a [spans.Sampler] says; of nil there is none.
func (s *Setup) Sampled() spans.Sampler {
	if s == nil {
		return nil
	}
	return func(parent trace.SpanContext, id trace.TraceID) bool {
		ctx := context.Background()
		if parent.IsValid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
		}
		return s.sampler.ShouldSample(sdk.SamplingParameters{ParentContext: ctx, TraceID: id}).Decision == sdk.RecordAndSample
	}
}

// Complain has the log say what OpenTelemetry's exporters of this process could not send. There is one such place in a process.
func Complain(log *slog.Logger) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("spans or metrics were not sent", "error", err) }))
}

// Provider returns a tracer provider for spans that begin and end in this process, such as those of an agent, and what
// ends it within a moment. While the collector takes nothing, the oldest of them are lost, and the log says that it takes
// nothing. Of nil there is no provider.
func (s *Setup) Provider(log *slog.Logger) (trace.TracerProvider, func()) {
	if s == nil {
		return nil, func() {}
	}
	Complain(log)
	p := sdk.NewTracerProvider(sdk.WithBatcher(s.exporter), sdk.WithSampler(s.sampler), sdk.WithResource(s.resource))
	return p, func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil {
			log.Warn("the last spans are lost", "error", err)
		}
	}
}

// stopTimeout is how long the last spans may take.
const stopTimeout = 5 * time.Second

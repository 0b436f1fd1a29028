package agents_test

import (
	"context"
	"encoding/hex"
	"errors"
	"maps"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metrics "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
)

// Each call of a handler is a span within the attempt's, which the handler has, and its traceparent and logger say.
func TestEachCallIsASpan(t *testing.T) {
	k := newKafka(t, 1)
	config, recorded := k.config(), tracetest.NewSpanRecorder()
	config.TracerProvider = sdk.NewTracerProvider(sdk.WithSpanProcessor(recorded))
	config.Concurrency = 1
	config.Retry = &agents.Retry{Attempts: 2, Backoff: 1}
	var heard []string
	calls := 0
	k.serve(config, agents.Operations{
		"charge": agents.Do(func(ctx context.Context, r agents.Request[charge]) (string, error) {
			span := otel.SpanContextFromContext(ctx)
			if span.TraceState().Get("rojo") != "1" || baggage.FromContext(ctx).Member("tenant").Value() != "a b" {
				t.Errorf("%+v, %v", span, baggage.FromContext(ctx))
			}
			heard = append(heard, span.SpanID().String())
			if want := "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-01"; r.Traceparent != want {
				t.Errorf("the request has the traceparent %q instead of %q", r.Traceparent, want)
			}
			agents.Log(ctx).Info("here I am")
			if calls++; calls == 1 {
				return "", agents.Transient("busy", errors.New("secret"))
			}
			return "", nil
		}),
		"panic": agents.Do(func(context.Context, agents.Request[charge]) (string, error) { panic("secret") }),
		"later": agents.Do(func(context.Context, agents.Request[charge]) (string, error) { return "", agents.ErrLater }),
	})
	for _, operation := range []string{"charge", "panic"} {
		k.ask(request("o-1", operation, `{}`))
		k.records(1)
	}
	k.ask(request("o-1", "later", `{}`), request("o-1", "charge", `{}`))
	k.records(1)

	spans := recorded.Ended()
	if len(spans) != 5 {
		t.Fatalf("%d spans", len(spans))
	}
	byName := make(map[string][]sdk.ReadOnlySpan)
	for _, s := range spans {
		byName[s.Name()] = append(byName[s.Name()], s)
		if got := s.Parent().SpanID().String(); got != "00f067aa0ba902b7" || s.SpanContext().TraceID().String() != "4bf92f3577b34da6a3ce929d0e0e4736" || s.SpanKind() != otel.SpanKindConsumer {
			t.Errorf("%s is in %s, as %s", s.Name(), got, s.SpanKind())
		}
		for _, a := range s.Attributes() {
			if strings.Contains(a.Value.String(), "secret") {
				t.Errorf("%s has %v", s.Name(), a)
			}
		}
	}
	for i, want := range []string{"busy", "", ""} {
		if s := byName["process charge"][i]; s.Status().Description != want || (s.Status().Code == codes.Error) != (want != "") || s.SpanContext().SpanID().String() != heard[i] {
			t.Errorf("call %d: %+v, and the handler heard of %s", i, s.Status(), heard[i])
		}
	}
	if s := byName["process panic"][0]; s.Status().Description != agents.CodePanic {
		t.Errorf("a panic: %+v", s.Status())
	}
	if s := byName["process later"][0]; s.Status().Code == codes.Error {
		t.Errorf("what is answered later: %+v", s.Status())
	}
	want := `"msg":"here I am","agent":"payment","order":"o-1","step":"pay","attempt":2,"trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","span_id":"` + heard[0] + `"`
	if !strings.Contains(k.log.String(), want) {
		t.Errorf("the log has no %s", want)
	}
}

// Without a tracer provider the handler's context has the attempt's span, and the baggage, for whatever goes on from there.
func TestTheContextHasTheSpanOfTheAttempt(t *testing.T) {
	k := newKafka(t, 1)
	k.serve(k.config(), agents.Operations{
		"charge": agents.Do(func(ctx context.Context, r agents.Request[charge]) (string, error) {
			span := otel.SpanContextFromContext(ctx)
			if span.TraceState().Get("rojo") != "1" || baggage.FromContext(ctx).Member("tenant").Value() != "a b" {
				t.Errorf("%+v, %v", span, baggage.FromContext(ctx))
			}
			if !span.IsRemote() || !span.IsSampled() || span.SpanID().String() != "00f067aa0ba902b7" || r.Traceparent != trace {
				t.Errorf("%+v, %q", span, r.Traceparent)
			}
			return "", nil
		}),
	})
	k.ask(request("o-1", "charge", `{}`))
	k.records(1)
}

// What a handler measures has the attributes of its attempt, which are the same for all orders, and an exemplar that names
// the trace. What is not measured in a handler has none.
func TestMeasurementsSayOfWhatAttemptTheyAre(t *testing.T) {
	k, reader := newKafka(t, 1), metrics.NewManualReader()
	charged, err := metrics.NewMeterProvider(metrics.WithReader(reader)).Meter("shop").Int64Counter("charged")
	if err != nil {
		t.Fatal(err)
	}
	measure := func(ctx context.Context, _ agents.Request[charge]) (string, error) {
		charged.Add(ctx, 2, metric.WithAttributeSet(agents.Attributes(ctx)))
		return "", nil
	}
	k.serve(k.config(), agents.Operations{"charge": agents.Do(measure), "refund": agents.Do(measure)})
	undo := request("o-1", "refund", `{}`)
	undo.Undo, undo.Outcome = true, events.OutcomeCompleted
	k.ask(request("o-1", "charge", `{}`), request("o-2", "charge", `{}`), undo)
	k.records(3)
	if _, err := measure(t.Context(), agents.Request[charge]{}); err != nil {
		t.Fatal(err)
	}

	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]int64)
	for _, p := range all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64]).DataPoints {
		says := p.Attributes.Encoded(attribute.DefaultEncoder())
		got[says] = p.Value
		if says != "" && (len(p.Exemplars) == 0 || hex.EncodeToString(p.Exemplars[0].TraceID) != "4bf92f3577b34da6a3ce929d0e0e4736") {
			t.Errorf("%s has the exemplars %+v", says, p.Exemplars)
		}
	}
	if want := map[string]int64{
		"waybill.agent=payment,waybill.operation=charge,waybill.step.name=pay,waybill.undo=false": 4,
		"waybill.agent=payment,waybill.operation=refund,waybill.step.name=pay,waybill.undo=true":  2,
		"": 2,
	}; !maps.Equal(got, want) {
		t.Errorf("%v was measured instead of %v", got, want)
	}
}

package agents

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/spans"
)

// Log returns the agent's logger, which says of which order, step and attempt it is, and of which trace, if there is one.
// Its context is that of a handler; of another it is [slog.Default].
func Log(ctx context.Context) *slog.Logger {
	a, err := attemptOf(ctx)
	if err != nil {
		return slog.Default()
	}
	log := a.call.server.log.With("order", a.call.req.Order, "step", a.call.req.Step, "attempt", a.call.req.Attempt)
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		log = log.With("trace_id", span.TraceID().String(), "span_id", span.SpanID().String())
	}
	return log
}

// Attributes says of which agent, operation and step the attempt is, and whether it is an undo, by the names that spans
// have them under, for what a handler measures with a meter of its own:
//
//	charged.Add(ctx, cents, metric.WithAttributeSet(agents.Attributes(ctx)))
//
// They have as many values as workflow files have names, and never an id. Which order it was is said by the trace: with
// the handler's context, OpenTelemetry's SDK gives what was measured in a sampled trace an exemplar of that span. The
// context is that of a handler; of another there are no attributes.
func Attributes(ctx context.Context) attribute.Set {
	a, err := attemptOf(ctx)
	if err != nil {
		return *attribute.EmptySet()
	}
	req := a.call.req
	return attribute.NewSet(spans.Agent.String(a.call.server.config.Agent), spans.Operation.String(req.Operation),
		spans.Step.String(req.Step), spans.Undo.Bool(req.Undo))
}

// passed is what a request has passed on.
type passed struct{ traceparent, tracestate, baggage string }

// trace begins the span of a call of the handler, if there is a tracer. The context has that span, or the one of the
// attempt, if it is known, and the request's baggage.
func (c *call) trace() (context.Context, trace.Span) {
	r := c.job.Record
	ctx := c.server.handlers
	c.passed = passed{events.Header(r, events.HeaderTraceparent), events.Header(r, events.HeaderTracestate), events.Header(r, events.HeaderBaggage)}
	if c.passed.baggage != "" {
		ctx = propagation.Baggage{}.Extract(ctx, propagation.MapCarrier{events.HeaderBaggage: c.passed.baggage})
	}
	if of := spans.Parse(c.passed.traceparent, c.passed.tracestate); of.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, of)
	}
	if c.server.tracer == nil {
		return ctx, nil
	}
	s, req := c.server, c.req
	ctx, span := s.tracer.Start(ctx, "process "+req.Operation, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		spans.System, spans.Process, spans.OperationName("process"), spans.Destination(s.topic), spans.MessageKey(req.Order),
		spans.OrderID.String(req.Order), spans.Step.String(req.Step), spans.Attempt.Int(req.Attempt), spans.Undo.Bool(req.Undo),
		spans.Agent.String(s.config.Agent), spans.Operation.String(req.Operation),
	))
	if of := span.SpanContext(); of.IsValid() {
		c.passed.traceparent = spans.Traceparent(of)
	}
	return ctx, span
}

// traced ends that span. Of an error it has the code alone: what it says may have what is of the order's business.
func (c *call) traced(span trace.Span) {
	if span == nil {
		return
	}
	if c.err != nil && !c.later() {
		code := fault(c.err).Code
		span.SetStatus(codes.Error, code)
		span.SetAttributes(spans.ErrorType.String(code))
	}
	span.End()
}

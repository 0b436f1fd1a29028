package httpagent

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events/spans"
)

// trace begins the span of a call, if there is a tracer, and has the service be told of it. Of the URL it says what the
// file does, since what is put into it may be secret, or of the order's business.
func (c *caller) trace(ctx context.Context, o *operation, v *values) (context.Context, trace.Span) {
	if c.tracer == nil {
		return ctx, nil
	}
	_, host, _ := strings.Cut(o.target.origin, "://")
	ctx, span := c.tracer.Start(ctx, o.method, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		spans.HTTPMethod.String(o.method), spans.URLTemplate(c.secrets.Replace(o.template.String())), spans.ServerAddress(c.secrets.Replace(host)), spans.OrderID.String(v.request.Order),
	))
	if of := span.SpanContext(); of.IsValid() {
		request := *v.request
		request.Traceparent = spans.Traceparent(of)
		v.request = &request
	}
	return ctx, span
}

// traced ends that span.
func traced(span trace.Span, status int, err error) {
	if span == nil {
		return
	}
	if status > 0 {
		span.SetAttributes(spans.HTTPStatus(status))
	}
	if err != nil {
		code := agents.CodeError
		if fault := (*agents.Error)(nil); errors.As(err, &fault) && fault.Code != "" {
			code = fault.Code
		}
		span.SetStatus(codes.Error, code)
		span.SetAttributes(spans.ErrorType.String(code))
	}
	span.End()
}

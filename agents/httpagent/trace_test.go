package httpagent

import (
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-dev/waybill/agents"
)

// A call is a span of which the service is told. It says how the call ended, and nothing of what was put into it.
func TestACallIsASpan(t *testing.T) {
	var got http.Header
	h := newHarness(t, func(w http.ResponseWriter, r *http.Request) {
		if got = r.Header; strings.Contains(r.URL.Path, "no") {
			w.WriteHeader(http.StatusConflict)
		}
	})
	recorded := tracetest.NewSpanRecorder()
	h.tracer = sdk.NewTracerProvider(sdk.WithSpanProcessor(recorded)).Tracer("")
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: [16]byte{1}, SpanID: [8]byte{2}, TraceFlags: trace.FlagsSampled}))
	const operation = "url: ${SERVICE}/c/{input.x}/${SECRET}"
	for _, c := range []struct{ x, fails, status string }{{"yes", "", "200"}, {"no", "http-409", "409"}, {"..", agents.CodeBadInput, ""}} {
		got = nil
		req := request(`{"x":"` + c.x + `"}`)
		req.Traceparent = "00-01000000000000000000000000000000-0200000000000000-01"
		if _, err := h.call(ctx, operation, req); (err == nil) != (c.fails == "") {
			t.Fatal(err)
		}
		ended := recorded.Ended()
		s := ended[len(ended)-1]
		if s.Parent().SpanID() != [8]byte{2} || s.SpanKind() != trace.SpanKindClient || s.Name() != "POST" || s.Status().Description != c.fails || (s.Status().Code == codes.Error) != (c.fails != "") {
			t.Errorf("%s: %s in %s as %s: %+v", c.x, s.Name(), s.Parent().SpanID(), s.SpanKind(), s.Status())
		}
		if want := "00-01000000000000000000000000000000-" + s.SpanContext().SpanID().String() + "-01"; got != nil && got.Get("Traceparent") != want {
			t.Errorf("%s: the service heard %q instead of %q", c.x, got.Get("Traceparent"), want)
		}
		attributes := make(map[string]string)
		for _, a := range s.Attributes() {
			attributes[string(a.Key)] = a.Value.String()
			if holdsSecret(a.Value.String()) || strings.Contains(a.Value.String(), c.x) && c.x == "yes" {
				t.Errorf("%s: %v", c.x, a)
			}
		}
		if attributes["http.response.status_code"] != c.status || !strings.Contains(attributes["url.template"], "/c/{input.x}") || attributes["http.request.method"] != "POST" {
			t.Errorf("%s: %v", c.x, attributes)
		}
	}
}

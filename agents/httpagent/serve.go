package httpagent

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events/spans"
)

// Serve serves the operations until ctx ends, as [agents.Serve] does. Of config
// it sets the name, the concurrency, the retry and the breaker. UserAgent is sent
// with every call whose file does not set another.
func (a *Agent) Serve(ctx context.Context, config agents.Config, userAgent string) error {
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	config.Agent, config.Concurrency, config.Retry, config.Breaker = a.Name, a.concurrency, a.retry, a.breaker
	for _, name := range a.Operations() {
		config.Logger.Info("the agent calls", "agent", a.Name, "operation", name, "call", a.Call(name))
	}
	transport := a.transport()
	defer transport.CloseIdleConnections()
	c := a.caller(transport, userAgent, config.Logger)
	if config.TracerProvider != nil {
		c.tracer = config.TracerProvider.Tracer(spans.Scope, trace.WithSchemaURL(spans.SchemaURL))
	}
	operations := make(agents.Operations, len(a.operations))
	for name, o := range a.operations {
		operations[name] = agents.Do(func(ctx context.Context, req agents.Request[jsontext.Value]) (jsontext.Value, error) {
			return c.call(ctx, o, &req)
		})
	}
	return agents.Serve(ctx, config, operations)
}

// Operations returns the names of the operations in order.
func (a *Agent) Operations() []string { return slices.Sorted(maps.Keys(a.operations)) }

// Call says in short which call an operation makes, such as
// "POST https://payments.internal/charges/{order}". Values of the environment
// are not in it.
func (a *Agent) Call(operation string) string {
	o := a.operations[operation]
	return o.method + " " + o.template.String()
}

// caller makes the caller of the agent's operations.
func (a *Agent) caller(transport http.RoundTripper, userAgent string, log *slog.Logger) *caller {
	return &caller{
		client:    &http.Client{Transport: transport, CheckRedirect: follow},
		userAgent: userAgent,
		secrets:   a.secrets,
		log:       log.With("agent", a.Name),
	}
}

// transport keeps as many connections as there may be calls at a time.
func (a *Agent) transport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           a.concurrency,
		MaxIdleConnsPerHost:    a.concurrency,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
}

package httpagent

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events/spans"
)

// The codes of the errors that calls are answered with, beside those of package
// agents and http-<status> for the answer of a service.
const (
	CodeNetwork          = "network"            // the service could not be reached, or went away before it had answered
	CodeTimeout          = "timeout"            // it did not answer within the call's timeout
	CodeTLS              = "tls"                // its certificate is not valid here
	CodeBadResponse      = "bad-response"       // it succeeded, and its response cannot be read
	CodeResponseTooLarge = "response-too-large" // it succeeded, and its response cannot be a step's output
)

// caller makes calls.
type caller struct {
	client    *http.Client
	userAgent string
	secrets   *strings.Replacer
	tracer    trace.Tracer // nil for none
	log       *slog.Logger
}

// errTimeout is the cause with which the context of one call ends.
var errTimeout = errors.New("the call's timeout is over")

// call carries out one attempt of an operation.
func (c *caller) call(ctx context.Context, o *operation, req *agents.Request[jsontext.Value]) (_ jsontext.Value, err error) {
	v := &values{operation: o.name, request: req}
	calling := ctx
	if o.timeout > 0 {
		var cancel context.CancelFunc
		calling, cancel = context.WithTimeoutCause(ctx, o.timeout, errTimeout)
		defer cancel()
	}
	calling, span := c.trace(calling, o, v)
	var status int
	var output jsontext.Value
	defer func() { traced(span, status, err) }()
	hr, err := c.request(calling, o, v)
	if err != nil {
		// The next attempt would be made of the same request.
		return nil, agents.Permanent(agents.CodeBadInput, errors.New(c.secrets.Replace(err.Error())))
	}
	began := time.Now()
	status, output, err = c.answer(calling, o, v, hr)
	if ctx.Err() != nil && err != nil {
		// The complete-by has passed or the agent stops: not the service's fault.
		return nil, fmt.Errorf("the call was given up: %w", ctx.Err())
	}
	c.log.LogAttrs(ctx, slog.LevelDebug, "called", slog.String("order", req.Order), slog.String("step", req.Step),
		slog.Int("attempt", req.Attempt), slog.String("operation", o.name), slog.Int("status", status),
		slog.Duration("took", time.Since(began)), slog.Bool("failed", err != nil))
	return output, err
}

// maxBaggage is how long baggage is at most, in bytes, that a service is sent: many servers take 8 KiB of headers, and a step is not to
// fail for what goes along with it.
const maxBaggage = 4096

// traceForm is a traceparent of W3C Trace Context.
var traceForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// request makes the HTTP request of a call. Its errors are of what the order
// brings along.
func (c *caller) request(ctx context.Context, o *operation, v *values) (*http.Request, error) {
	u, err := o.target.url(v)
	if err != nil {
		return nil, describe("the URL", err)
	}
	content, contentType, err := o.body.encode(v)
	if err != nil {
		return nil, describe("the body", err)
	}
	var body io.Reader
	if contentType != "" {
		body = bytes.NewReader(content)
	}
	hr, err := http.NewRequestWithContext(ctx, o.method, "", body)
	if err != nil {
		return nil, err
	}
	hr.URL, hr.Host = u, u.Host
	hr.Header.Set("Accept", "application/json, */*;q=0.5")
	hr.Header.Set("User-Agent", c.userAgent)
	if parent := v.request.Traceparent; traceForm.MatchString(parent) {
		hr.Header.Set("Traceparent", parent)
		if state := spans.State(parent, v.request.Tracestate); state != "" {
			hr.Header.Set("Tracestate", state)
		}
	}
	if passed := spans.Baggage(v.request.Baggage); passed != "" && len(passed) <= maxBaggage {
		hr.Header.Set("Baggage", passed)
	}
	if contentType != "" {
		hr.Header.Set("Content-Type", contentType)
	}
	for _, h := range o.headers {
		if err := setHeader(hr.Header, h.name, h.value, v); err != nil {
			return nil, err
		}
	}
	// A3. The client takes it as leave to repeat a call whose connection was
	// closed while idle.
	key := template{{ref: &reference{name: "idempotencyKey", root: "idempotencyKey"}}}
	return hr, setHeader(hr.Header, "Idempotency-Key", key, v)
}

// describe names the place of an error that does not name it.
func describe(what string, err error) error {
	if errors.As(err, new(missing)) || errors.As(err, new(unfit)) {
		return err
	}
	return fmt.Errorf("%s %w", what, err)
}

// setHeader sets a header, unless something optional in it is missing.
func setHeader(headers http.Header, name string, value template, v *values) error {
	text, ok, err := value.expand(v, "the header "+name)
	if err != nil || !ok {
		return err
	}
	switch {
	case strings.ContainsFunc(text, func(r rune) bool { return isControl(r) && r != '\t' }):
		return fmt.Errorf("the header %s would hold a line break or another control character", name)
	case strings.Trim(text, " \t") != text:
		// Receivers strip it, and take two values for one.
		return fmt.Errorf("the header %s would start or end with a space", name)
	}
	headers.Set(name, text)
	return nil
}

// answer sends the request and judges what comes back.
func (c *caller) answer(ctx context.Context, o *operation, v *values, hr *http.Request) (status int, _ jsontext.Value, _ error) {
	resp, err := c.client.Do(hr)
	if err != nil {
		return 0, nil, c.unanswered(ctx, o, err)
	}
	defer resp.Body.Close()
	verdict := o.verdicts.on(resp.StatusCode)
	if verdict != success {
		return resp.StatusCode, nil, c.refused(resp, verdict)
	}
	if resp.StatusCode/100 != 2 || o.output == nil {
		// Read so that the connection can be used again; what is in it, and
		// whether it arrives, does not matter.
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody))
		return resp.StatusCode, nil, nil
	}
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return resp.StatusCode, nil, c.unanswered(ctx, o, fmt.Errorf("the response to a call that succeeded (%d) broke off: %w", resp.StatusCode, err))
	}
	output, err := readOutput(o, v, resp, content)
	return resp.StatusCode, output, err
}

// unanswered is the error of a call that has no answer, as far as is known.
func (c *caller) unanswered(ctx context.Context, o *operation, err error) error {
	// The error of the client starts with the URL, which may hold secrets.
	if outer := (*url.Error)(nil); errors.As(err, &outer) {
		err = outer.Err
	}
	code, text := CodeNetwork, err.Error()
	switch invalid := (*tls.CertificateVerificationError)(nil); {
	case errors.Is(context.Cause(ctx), errTimeout):
		code, text = CodeTimeout, fmt.Sprintf("no answer within %s", o.timeout)
	case errors.As(err, &invalid):
		code = CodeTLS
	}
	return &agents.Error{
		Code: code, Permanent: o.verdicts.onNone() == permanent,
		Err: errors.New(shorten(c.secrets.Replace(text), maxExtract)),
	}
}

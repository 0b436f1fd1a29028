package httpagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	otel "go.opentelemetry.io/otel/trace"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = `s3cr=t/"key`

// harness is a service and the agent that calls it.
type harness struct {
	*testing.T
	server *httptest.Server
	log    bytes.Buffer
	tracer otel.Tracer // nil for none
}

func newHarness(t *testing.T, handle http.HandlerFunc) *harness {
	h := &harness{T: t, server: httptest.NewServer(handle)}
	t.Cleanup(h.server.Close)
	return h
}

// environment has the service's URL and a secret.
func (h *harness) environment(name string) (string, bool) {
	value, ok := map[string]string{"SERVICE": h.server.URL, "SECRET": secret, "SHORT": "on"}[name]
	return value, ok
}

// call makes the call of an operation that is described by lines of YAML.
func (h *harness) call(ctx context.Context, operation string, req agents.Request[jsontext.Value]) (jsontext.Value, error) {
	h.Helper()
	file := "agent: a\nbase: ${SERVICE}\nheaders: {Authorization: \"Bearer ${SECRET}\"}\noperations:\n  op:\n    " +
		strings.ReplaceAll(strings.TrimSpace(operation), "\n", "\n    ") + "\n"
	a, err := Read("a.yaml", []byte(file), h.environment)
	if err != nil {
		h.Fatalf("%v\n%s", err, file)
	}
	transport := a.transport()
	defer transport.CloseIdleConnections()
	log := slog.New(slog.NewTextHandler(&h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := a.caller(transport, "waybill/test", log)
	c.tracer = h.tracer
	output, err := c.call(ctx, a.operations["op"], &req)
	if err != nil && holdsSecret(err.Error()) || holdsSecret(h.log.String()) {
		h.Errorf("a secret got out: %v\n%s", err, &h.log)
	}
	return output, err
}

func holdsSecret(text string) bool {
	for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret)} {
		if strings.Contains(text, form) {
			return true
		}
	}
	return false
}

// request is what orders bring along.
func request(input string) agents.Request[jsontext.Value] {
	return agents.Request[jsontext.Value]{
		Order: "o/1", Step: "charge", Attempt: 2, IdempotencyKey: "o/1/charge",
		CompleteBy: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Input: jsontext.Value(input),
	}
}

// fault is the error as the SDK sees it.
func fault(t *testing.T, err error) *agents.Error {
	t.Helper()
	var e *agents.Error
	if !errors.As(err, &e) {
		t.Fatalf("the error is %v (%T)", err, err)
	}
	return e
}

func wantFault(t *testing.T, err error, code string, permanent bool, says string) {
	t.Helper()
	if e := fault(t, err); e.Code != code || e.Permanent != permanent || !strings.Contains(err.Error(), says) {
		t.Errorf("the error is %s, permanent %v: %v\nwant %s, permanent %v, with %q", e.Code, e.Permanent, err, code, permanent, says)
	}
}

// A1, A3: how a request becomes a call.
func TestRequestBecomesCall(t *testing.T) {
	input := `{"id":"c 1","n":1.50,"deep":{"list":[{"x":true},"ä&b"]},"none":null,"empty":""}`
	for _, test := range []struct {
		name, operation, input string
		want                   string // method, URI, content type, body
	}{
		{"defaults", "url: /charges", input, "POST /charges application/json " + input},
		{"no input, no body", "url: /charges", "", "POST /charges  "},
		{"get", "url: /c/{order}\nmethod: GET", input, "GET /c/o%2F1  "},
		{"delete", "url: /c/{idempotencyKey}\nmethod: DELETE", input, "DELETE /c/o%2F1%2Fcharge  "},
		{"delete with a body", "url: /c\nmethod: DELETE\nbody: input", `{"a":1}`, `DELETE /c application/json {"a":1}`},
		{"none", "url: /c\nbody: none", input, "POST /c  "},
		{"put", "url: /c/{step}-{attempt}\nmethod: PUT\nbody: \"{input.deep}\"", input, `PUT /c/charge-2 application/json {"list":[{"x":true},"ä&b"]}`},
		{"query", "url: /c?a={input.deep.list.1}&b={input.missing?}&c={input.empty}&d=1", input, "POST /c?a=%C3%A4%26b&b=&c=&d=1 application/json " + input},
		{"only a query", "url: \"?q={input.id}\"\nbody: none", input, "POST /?q=c+1  "},
		{"braces", "url: /c/{{x}}/%7B{input.id}\nbody: none", input, "POST /c/%7Bx%7D/%7Bc%201  "},
		{"secret in the path", "url: /c/${SECRET}?k=${SECRET}\nbody: none", input, "POST /c/s3cr=t%2F%22key?k=s3cr%3Dt%2F%22key  "},
		{
			"mapping", `url: /c
body:
  order: "{order}"
  key: "{step}#{attempt}"
  n: "{input.n}"
  text: "{input.n} EUR"
  left: "{input.missing?}"
  also: "a {input.missing?}"
  list: ["{input.missing?}", 1, 2.5, true, null, {}, [], "{input.deep.list.0.x}", ""]
  env: ${SHORT}
  until: "{completeBy}"
  op: "{operation}"
  undo: "{undo}"`, input,
			`POST /c application/json {"order":"o/1","key":"charge#2","n":1.50,"text":"1.50 EUR","list":[1,2.5,true,null,{},[],true,""],"env":"on","until":"2026-01-02T03:04:05Z","op":"op","undo":false}`,
		},
		{"first left out", "url: /c\nbody: {a: \"{input.no?}\", b: 1}", input, `POST /c application/json {"b":1}`},
		{"all left out", "url: /c\nbody: {a: \"{input.no?}\"}", input, `POST /c application/json {}`},
		{"optional body", "url: /c\nbody: \"{input.no?}\"", input, "POST /c  "},
		{"null is missing", "url: /c\nbody: {a: \"{input.none?}\"}", input, `POST /c application/json {}`},
		{"form", "url: /c\nform: {id: \"{input.id}\", n: \"{input.n}\", gone: \"{input.no?}\"}", input, "POST /c application/x-www-form-urlencoded id=c+1&n=1.50"},
		{"own content type", "url: /c\nheaders: {content-type: application/vnd.x+json}", `{}`, "POST /c application/vnd.x+json {}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got string
			h := newHarness(t, func(_ http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got = strings.Join([]string{r.Method, r.RequestURI, r.Header.Get("Content-Type"), string(body)}, " ")
				if key := r.Header.Get("Idempotency-Key"); key != "o/1/charge" {
					t.Errorf("the idempotency key is %q", key)
				}
				if agent := r.Header.Get("User-Agent"); agent != "waybill/test" {
					t.Errorf("the user agent is %q", agent)
				}
			})
			if _, err := h.call(t.Context(), test.operation, request(test.input)); err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("the service got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// What an undo may know of the step that it undoes.
func TestUndo(t *testing.T) {
	var got string
	h := newHarness(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
	})
	const operation = "url: /\nbody: {charge: \"{output.id?}\", outcome: \"{outcome?}\", of: \"{stepKey?}\", undo: \"{undo}\", priority: \"{priority}\"}"
	for _, test := range []struct {
		undo, unknown bool
		output, want  string
	}{
		{false, false, "", `{"undo":false,"priority":"high"}`},
		{true, false, `{"id":"c-1"}`, `{"charge":"c-1","outcome":"completed","of":"o-1/charge:2","undo":true,"priority":"high"}`},
		{true, true, "", `{"outcome":"unknown","of":"o-1/charge:2","undo":true,"priority":"high"}`},
	} {
		req := request("{}")
		req.Undo, req.OutcomeUnknown, req.Output, req.Priority = test.undo, test.unknown, jsontext.Value(test.output), events.High
		if test.undo {
			req.StepKey = "o-1/charge:2"
		}
		if _, err := h.call(t.Context(), operation, req); err != nil || got != test.want {
			t.Errorf("the service got %s (%v), want %s", got, err, test.want)
		}
		_, err := h.call(t.Context(), "url: /\nbody: output", req)
		if err != nil || got != test.output {
			t.Errorf("the service got %s (%v), want %s", got, err, test.output)
		}
	}
}

func TestHeaders(t *testing.T) {
	var got http.Header
	h := newHarness(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	operation := `url: /c
headers:
  x-order: "{order}"
  Accept: text/csv
  User-Agent: mine
  X-Gone: "{input.no?}"
  X-Unicode: "{input.u}"
  X-Fixed: a, b`
	if _, err := h.call(t.Context(), operation, request(`{"u":"ä"}`)); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"X-Order": "o/1", "Accept": "text/csv", "User-Agent": "mine", "X-Unicode": "ä", "X-Fixed": "a, b", "Authorization": "Bearer " + secret}
	for name, value := range want {
		if got.Get(name) != value {
			t.Errorf("header %s is %q, want %q", name, got.Get(name), value)
		}
	}
	if _, ok := got["X-Gone"]; ok {
		t.Error("a header whose value is missing was sent")
	}
	// The order's trace context is passed on, if it is one.
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for given, want := range map[string]string{trace: trace, "": "", "not a trace\r\nX-Bad: 1": ""} {
		traced := request("")
		traced.Traceparent = given
		if _, err := h.call(t.Context(), "url: /c", traced); err != nil {
			t.Fatal(err)
		}
		if value := got.Get("Traceparent"); value != want {
			t.Errorf("for %q the header is %q", given, value)
		}
	}
	// So are its tracestate and its baggage, as they came: what is as good to one reader may be another value to the next.
	const state, bag = "rojo=1, congo=2", "user=a%2Bb+c, x=caf%E9;p=%FF"
	for given, want := range map[string]string{trace: state, "": ""} {
		traced := request("")
		traced.Traceparent, traced.Tracestate, traced.Baggage = given, state, bag
		if _, err := h.call(t.Context(), "url: /c", traced); err != nil {
			t.Fatal(err)
		}
		if got.Get("Tracestate") != want || got.Get("Baggage") != bag {
			t.Errorf("for %q the headers are %q and %q", given, got.Get("Tracestate"), got.Get("Baggage"))
		}
	}
	for _, bad := range []string{"x=" + strings.Repeat("a", 4095), "x=1\r\nX-Bad: 1"} {
		large := request("")
		large.Baggage = bad
		if _, err := h.call(t.Context(), "url: /c", large); err != nil || got.Get("Baggage") != "" || got.Get("X-Bad") != "" {
			t.Errorf("%d bytes of baggage are sent: %q (%v)", len(bad), got.Get("Baggage"), err)
		}
	}
	with := request("")
	with.Baggage = bag
	if _, err := h.call(t.Context(), "url: /c\nheaders: {baggage: none=1}", with); err != nil || got.Get("Baggage") != "none=1" {
		t.Errorf("the overridden baggage is %q (%v)", got.Get("Baggage"), err)
	}
	// The operation's own header goes before the file's.
	if _, err := h.call(t.Context(), "url: /c\nheaders: {authorization: none}", request("")); err != nil {
		t.Fatal(err)
	}
	if value := got.Values("Authorization"); !slices.Equal(value, []string{"none"}) {
		t.Errorf("the overridden header is %q", value)
	}
}

// A5: what an order brings along cannot break out of its place; the step fails
// at once, and nothing is sent.
func TestInputStaysInItsPlace(t *testing.T) {
	for _, test := range []struct{ name, operation, input, says string }{
		{"dots", "url: /c/{input.x}", `{"x":".."}`, "another path"},
		{"one dot", "url: /c/{input.x}/y", `{"x":"."}`, "another path"},
		{"a path", "url: /c/{input.x}", `{"x":"a/../../admin"}`, "another path"},
		{"a path backwards", "url: /c/{input.x}", `{"x":"..\\admin"}`, "another path"},
		{"path parameters", "url: /c/{input.x}/y", `{"x":"..;a=b"}`, "another path"},
		{"dots from two", "url: /c/{input.x}{input.x}", `{"x":"."}`, "another path"},
		{"dots beside a literal", "url: /c/.{input.x}", `{"x":"."}`, "another path"},
		{"empty", "url: /c/{input.x}", `{"x":""}`, "it is empty"},
		{"missing", "url: /c/{input.x.y}", `{"x":"1"}`, "no input.x.y"},
		{"null", "url: /c/{input.x}", `{"x":null}`, "no input.x"},
		{"object", "url: /c/{input.x}", `{"x":{}}`, "an object"},
		{"array in a query", "url: /c?x={input.x}", `{"x":[]}`, "an array"},
		{"out of range", "url: /c/{input.x.1}", `{"x":[1]}`, "no input.x.1"},
		{"no number", "url: /c/{input.x.length}", `{"x":[1]}`, "no input.x.length"},
		{"line break in a header", "url: /c\nheaders: {X-A: \"{input.x}\"}", `{"x":"a\r\nX-Admin: 1"}`, "line break"},
		{"line feed in a header", "url: /c\nheaders: {X-A: \"a {input.x}\"}", `{"x":"a\nb"}`, "line break"},
		{"NUL in a header", "url: /c\nheaders: {X-A: \"{input.x}\"}", `{"x":"\u0000"}`, "line break or another control character"},
		{"spaces around a header", "url: /c\nheaders: {X-A: \"{input.x}\"}", `{"x":"a "}`, "start or end with a space"},
		{"missing in a header", "url: /c\nheaders: {X-A: \"{input.x}\"}", ``, "the header X-A"},
		{"missing in the body", "url: /c\nbody: {a: {b: [\"{input.x}\"]}}", `{}`, "there is no input.x, which the body needs"},
		{"object in a text", "url: /c\nbody: \"a {input.x}\"", `{"x":{}}`, "an object"},
		{"missing in a form", "url: /c\nform: {f: \"{input.x}\"}", `{}`, "the form's field f"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, func(_ http.ResponseWriter, r *http.Request) {
				t.Errorf("something was sent: %s %s", r.Method, r.RequestURI)
			})
			_, err := h.call(t.Context(), test.operation, request(test.input))
			wantFault(t, err, "bad-input", true, test.says)
		})
	}
	t.Run("idempotency key", func(t *testing.T) {
		h := newHarness(t, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") })
		req := request("")
		req.IdempotencyKey = "o\n1/charge"
		_, err := h.call(t.Context(), "url: /c", req)
		wantFault(t, err, "bad-input", true, "Idempotency-Key")
	})
	for value, want := range map[string]string{
		"a/b":                  "/c/a%2Fb?q=a%2Fb",
		"?a=b#c":               "/c/%3Fa=b%23c?q=%3Fa%3Db%23c",
		"//evil.example":       "/c/%2F%2Fevil.example?q=%2F%2Fevil.example",
		"@evil.example:80":     "/c/@evil.example:80?q=%40evil.example%3A80",
		"a&b=c":                "/c/a&b=c?q=a%26b%3Dc",
		"%2e%2e":               "/c/%252e%252e?q=%252e%252e",
		"...":                  "/c/...?q=...",
		"a b":                  "/c/a%20b?q=a+b",
		"{order}":              "/c/%7Border%7D?q=%7Border%7D",
		"${SECRET}":            "/c/$%7BSECRET%7D?q=%24%7BSECRET%7D",
		"\r\nX: 1":             "/c/%0D%0AX:%201?q=%0D%0AX%3A+1",
		"http://evil.example/": "/c/http:%2F%2Fevil.example%2F?q=http%3A%2F%2Fevil.example%2F",
	} {
		t.Run("one segment "+value, func(t *testing.T) {
			var got string
			h := newHarness(t, func(_ http.ResponseWriter, r *http.Request) { got = r.RequestURI })
			quoted, err := jsontext.AppendQuote(nil, value)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.call(t.Context(), "url: /c/{input.x}?q={input.x}", request(`{"x":`+string(quoted)+`}`)); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("the service got %s, want %s", got, want)
			}
		})
	}
}

// How a response becomes an output.
func TestResponseBecomesOutput(t *testing.T) {
	const asJSON = "application/json; charset=utf-8"
	for _, test := range []struct {
		name, operation string
		status          int
		media, body     string
		output          string
		code            string // of the error
		permanent       bool
	}{
		{"json", "url: /", 200, asJSON, `{"id": 1.50}`, `{"id": 1.50}`, "", false},
		{"problem type", "url: /", 201, "application/hal+json", `[1]`, `[1]`, "", false},
		{"empty", "url: /", 204, "", "", "", "", false},
		{"null", "url: /", 200, asJSON, "null", "", "", false},
		{"text", "url: /", 200, "text/plain", "fine\n", `"fine\n"`, "", false},
		{"no type", "url: /", 200, "-", "{}", `"{}"`, "", false},
		{"none", "url: /\noutput: none", 200, asJSON, "{", "", "", false},
		{"not JSON", "url: /", 200, asJSON, `{"id":`, "", CodeBadResponse, false},
		{"binary", "url: /", 200, "image/png", "\x89PNG\xff", "", CodeBadResponse, true},
		{
			"mapping", "url: /\noutput: " + `{id: "{response.body.data.0.id}", at: "{response.headers.location}", status: "{response.status}", key: "{idempotencyKey}", no: "{response.headers.x-no?}"}`,
			201, asJSON, `{"data":[{"id":7}]}`, `{"id":7,"at":"/there","status":201,"key":"o/1/charge"}`, "", false,
		},
		{"one field", "url: /\noutput: \"{response.body.id}\"", 200, asJSON, `{"id":{"a":1}}`, `{"a":1}`, "", false},
		{"text in a mapping", "url: /\noutput: {text: \"{response.body}\"}", 200, "text/plain", "x", `{"text":"x"}`, "", false},
		{"missing", "url: /\noutput: {id: \"{response.body.id}\"}", 200, asJSON, `{}`, "", CodeBadResponse, true},
		{"largest", "url: /", 200, "text/plain", strings.Repeat("x", maxBody), `"` + strings.Repeat("x", maxBody) + `"`, "", false},
		{"too large", "url: /", 200, "text/plain", strings.Repeat("x", maxBody+1), "", CodeResponseTooLarge, true},
		{"too large, not wanted", "url: /\noutput: none", 200, "text/plain", strings.Repeat("x", 2*maxBody), "", "", false},
		{"a listed success has no output", "url: /\nsuccess: [404]", 404, asJSON, `{"title":"gone"}`, "", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/there")
				if w.Header()["Content-Type"] = []string{test.media}; test.media == "-" {
					w.Header()["Content-Type"] = nil // and none made up
				}
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			})
			output, err := h.call(t.Context(), test.operation, request("{}"))
			if test.code != "" {
				wantFault(t, err, test.code, test.permanent, "the response (200)")
				return
			}
			if err != nil || string(output) != test.output {
				t.Errorf("the output is %.200q (%v), want %.200q", output, err, test.output)
			}
		})
	}
}

// A2, A5: which answers may heal.
func TestVerdicts(t *testing.T) {
	for _, test := range []struct {
		lists     string
		status    int
		success   bool
		permanent bool
	}{
		{"", 200, true, false},
		{"", 299, true, false},
		{"", 304, false, true},
		{"", 400, false, true},
		{"", 404, false, true},
		{"", 408, false, true},
		{"", 409, false, true},
		{"", 429, false, false},
		{"", 500, false, false},
		{"", 501, false, false},
		{"", 503, false, false},
		{"", 599, false, false},
		{"transient: [409, 423]", 409, false, false},
		{"transient: [409, 423]", 404, false, true},
		{"transient: [202]", 202, false, false},
		{"permanent: [202]", 202, false, true},
		{"permanent: [503]", 503, false, true},
		{"permanent: [503]", 500, false, false},
		{"success: [404, 410]", 410, true, false},
		{"success: [304]", 304, true, false},
		{"success: [500]", 500, true, false},
		{"permanent: [5xx]\ntransient: [503]", 500, false, true},
		{"permanent: [5xx]\ntransient: [503]", 503, false, false},
		{"transient: [4xx]", 404, false, false},
		{"permanent: [4xx]", 429, false, true},
	} {
		t.Run(fmt.Sprint(test.lists, " ", test.status), func(t *testing.T) {
			h := newHarness(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(test.status) })
			_, err := h.call(t.Context(), "url: /\n"+test.lists, request("{}"))
			if test.success {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantFault(t, err, fmt.Sprintf("http-%d", test.status), test.permanent, fmt.Sprintf("HTTP %d", test.status))
		})
	}
}

// What a reply says of an answer: bounded, in one line, without secrets.
func TestExplanations(t *testing.T) {
	for _, test := range []struct{ name, media, body, want string }{
		{"problem", "application/problem+json", `{"title":"No funds","detail":"Card 4242 has none","status":402}`, "HTTP 402 Payment Required: No funds: Card 4242 has none"},
		{"message", "application/json", `{"message":"no"}`, "HTTP 402 Payment Required: no"},
		{"nested", "application/json", `{"error":{"message":"nested","code":1}}`, "HTTP 402 Payment Required: nested"},
		{"other JSON", "application/json", `{"a": 1}`, `HTTP 402 Payment Required: {"a": 1}`},
		{"odd JSON", "application/json", `{"title":7, "detail":`, `HTTP 402 Payment Required: {"title":7, "detail":`},
		{"text", "text/plain", "a\r\n\tb\x1b[31m", "HTTP 402 Payment Required: a b [31m"},
		{"markup", "text/html", "<html>", "HTTP 402 Payment Required"},
		{"nothing", "application/json", "", "HTTP 402 Payment Required"},
		{"not UTF-8", "text/plain", "\xff", "HTTP 402 Payment Required"},
		{"long", "text/plain", strings.Repeat("ä", 100_000), "HTTP 402 Payment Required"}, // cut within a character
		{"longish", "text/plain", strings.Repeat("ä", 1000), "HTTP 402 Payment Required: " + strings.Repeat("ä", 300) + "…"},
		{"secret", "text/plain", "bad token " + secret + "!", "HTTP 402 Payment Required: bad token ***!"},
		{"secret in JSON", "application/json", `{"token":"s3cr=t/\"key"}`, `HTTP 402 Payment Required: {"token":"***"}`},
		{"secret in a field", "application/json", `{"detail":"s3cr=t/\"key"}`, `HTTP 402 Payment Required: ***`},
		{"short values are no secrets", "text/plain", "on and on", "HTTP 402 Payment Required: on and on"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.media)
				w.WriteHeader(http.StatusPaymentRequired)
				_, _ = io.WriteString(w, test.body)
			})
			_, err := h.call(t.Context(), "url: /c\nheaders: {X-On: \"${SHORT}\"}", request("{}"))
			if got := fault(t, err).Error(); got != test.want && test.name != "long" || len(got) > 1000 {
				t.Errorf("the message is %q, want %q", got, test.want)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for said, want := range map[string]time.Duration{
		"7":                             7 * time.Second,
		" 0 ":                           0,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute,
		"Fri, 02 Jan 2026 03:04:00 GMT": 0,
		"Fri, 02 Jan 2099 03:04:00 GMT": longest,
		"9999999999":                    longest,
		"99999999999999999999999":       longest,
		"":                              -1,
		"-1":                            -1,
		"1.5":                           -1,
		"soon":                          -1,
	} {
		got, ok := retryAfter(http.Header{"Retry-After": {said}}, now)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("Retry-After: %s is %v, want %v", said, got, want)
		}
	}
}

// A call leads only to the host of the file.
func TestRedirects(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect to another host was followed: %s %v", r.RequestURI, r.Header)
	}))
	defer other.Close()
	for _, test := range []struct {
		name, method string
		status       int
		to           string // of /
		want         string // what is called in the end
		says         string
	}{
		{"same host", "POST", 307, "/there", `POST /there key {"a":1}`, ""},
		{"permanently", "PUT", 308, "/there", `PUT /there key {"a":1}`, ""},
		{"see other", "POST", 303, "/there", `GET /there key `, ""},
		{"get", "GET", 302, "/there", `GET /there key `, ""},
		{"get permanently", "GET", 301, "/there", `GET /there key `, ""},
		{"would become a GET", "POST", 302, "/there", "", "would become a GET"},
		{"would become a GET too", "DELETE", 301, "/there", "", "would become a GET"},
		{"other host", "POST", 307, other.URL + "/?token=x", "", "this one leads to " + other.URL},
		{"other host on GET", "GET", 302, other.URL, "", "same scheme, host and port"},
		{"scheme", "POST", 307, "https://{host}/", "", "same scheme, host and port"},
		{"another scheme", "POST", 307, "file:///etc/passwd", "", "same scheme, host and port"},
		{"no host", "POST", 307, "//evil.example/", "", "same scheme, host and port"},
		{"user", "GET", 302, "http://{host}@evil.example/", "", "same scheme, host and port"},
		{"nowhere", "POST", 307, "", "", "nowhere"},
		{"loop", "GET", 302, "/", "", "too many in a row"},
		{"see other elsewhere", "POST", 303, other.URL, "", "same scheme, host and port"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got string
			var h *harness
			h = newHarness(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/" {
					if test.to != "" {
						w.Header().Set("Location", strings.ReplaceAll(test.to, "{host}", strings.TrimPrefix(h.server.URL, "http://")))
					}
					w.WriteHeader(test.status)
					return
				}
				body, _ := io.ReadAll(r.Body)
				if r.Header.Get("Authorization") != "Bearer "+secret {
					t.Error("the headers did not come along")
				}
				got = r.Method + " " + r.RequestURI + " " + strings.TrimPrefix(r.Header.Get("Idempotency-Key"), "o/1/charge") + "key " + string(body)
			})
			_, err := h.call(t.Context(), "url: /\nmethod: "+test.method, request(`{"a":1}`))
			if test.says != "" {
				wantFault(t, err, fmt.Sprintf("http-%d", test.status), true, test.says)
				if strings.Contains(err.Error(), "token") {
					t.Errorf("the message shows more than the host: %v", err)
				}
				return
			}
			if err != nil || got != test.want {
				t.Errorf("called %q (%v), want %q", got, err, test.want)
			}
		})
	}
}

// A2: a service that cannot be reached, or goes away, may be back soon. Nothing
// is said of the URL, which may hold secrets.
func TestNetworkFaults(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	dead := func(t *testing.T, answer string) string {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		t.Cleanup(func() {
			listener.Close()
			<-done
		})
		go func() {
			defer close(done)
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = io.WriteString(conn, answer)
				conn.Close()
			}
		}()
		return "http://" + listener.Addr().String()
	}
	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	secure.StartTLS()
	defer secure.Close()
	for _, test := range []struct{ name, base, code string }{
		{"refused", closed.URL, CodeNetwork},
		{"no such host", "http://no-such-host.invalid", CodeNetwork},
		{"closed without an answer", dead(t, ""), CodeNetwork},
		{"not HTTP", dead(t, "SSH-2.0\r\n"), CodeNetwork},
		{"broken off", dead(t, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), CodeNetwork},
		{"unknown authority", secure.URL, CodeTLS},
		{"not TLS", strings.Replace(dead(t, "HTTP/1.1 400 no\r\n\r\n"), "http:", "https:", 1), CodeNetwork},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness(t, nil)
			_, err := h.call(t.Context(), "url: "+test.base+"/c?token=${SECRET}", request("{}"))
			wantFault(t, err, test.code, false, "")
			if strings.Contains(err.Error(), "token") {
				t.Errorf("the message holds the URL: %v", err)
			}
			_, err = h.call(t.Context(), "permanent: [network]\nurl: "+test.base+"/c?token=${SECRET}", request("{}"))
			wantFault(t, err, test.code, true, "")
		})
	}
}

// A4: the call ends with the handler's context, and is not blamed on the service.
func TestCallEndsWithItsContext(t *testing.T) {
	called, release := make(chan struct{}, 3), make(chan struct{})
	defer close(release)
	h := newHarness(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server notices that the client is gone only behind it
		called <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-release:
		}
	})
	t.Run("stop", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-called
			cancel()
		}()
		if _, err := h.call(ctx, "url: /\ntimeout: 1h", request("{}")); !errors.Is(err, context.Canceled) || errors.As(err, new(*agents.Error)) {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("complete-by", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := h.call(ctx, "url: /", request("{}")); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*agents.Error)) {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("own timeout", func(t *testing.T) {
		_, err := h.call(t.Context(), "url: /\ntimeout: 20ms", request("{}"))
		wantFault(t, err, CodeTimeout, false, "no answer within 20ms")
	})
}

func TestCallsAreDescribedWithoutSecrets(t *testing.T) {
	environment := map[string]string{"A": "https://a.example/secret", "B": "hidden"}
	a, err := Read("a.yaml", []byte("agent: a\nbase: ${A}/v1\noperations:\n  x: {url: \"/c/{input.id}?k=${B}\"}\n"), func(name string) (string, bool) {
		value, ok := environment[name]
		return value, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := a.Call("x"), "POST ${A}/v1/c/{input.id}?k=${B}"; got != want {
		t.Errorf("the call is %s, want %s", got, want)
	}
	if names := a.Operations(); !slices.Equal(names, slices.Collect(maps.Keys(a.operations))) {
		t.Errorf("the operations are %v", names)
	}
}

// Package collector is an OpenTelemetry collector for tests, which keeps the spans that it is sent over HTTP.
package collector

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is one that was sent.
type Span struct {
	Trace, ID, Parent string // hexadecimal, and empty if there is none
	Name              string
	Kind              string // such as CONSUMER
	Failed            bool
	Status            string
	Start, End        time.Time
	Attributes        map[string]string
	Events            []string
	Service           string
	Schema            string
	// Times is how often it was sent, each time the same.
	Times int
}

// Collector keeps spans by their ids.
type Collector struct {
	*httptest.Server
	t testing.TB

	mu      sync.Mutex
	spans   map[string]*Span
	answer  int // other than 200
	refused int // requests that were
	partial int64
	hangs   chan struct{}
	hung    int
}

// New starts one, which ends with the test.
func New(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{t: t, spans: make(map[string]*Span)}
	c.Server = httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(func() {
		c.Hang(false)
		c.CloseClientConnections()
		c.Close()
	})
	return c
}

// Refuse has it answer with a status, and take nothing, until it is 200.
func (c *Collector) Refuse(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = status
}

// RefuseSome has it say that it wants so many of the spans of each request not.
func (c *Collector) RefuseSome(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partial = n
}

// Hang has it never answer, until it is to go on: then it takes what came meanwhile.
func (c *Collector) Hang(yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case yes:
		c.hangs = make(chan struct{})
	case c.hangs != nil:
		close(c.hangs)
		c.hangs = nil
	}
}

// Refused is how many requests were refused, Hung how many got no answer.
func (c *Collector) Refused() int { c.mu.Lock(); defer c.mu.Unlock(); return c.refused }

// Hung is how many requests got no answer at first.
func (c *Collector) Hung() int { c.mu.Lock(); defer c.mu.Unlock(); return c.hung }

func (c *Collector) take(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	value, err := io.ReadAll(body)
	request := &collect.ExportTraceServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(value, request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	hangs := c.hangs
	if hangs != nil {
		c.hung++
	}
	c.mu.Unlock()
	if hangs != nil {
		select {
		case <-hangs:
		case <-r.Context().Done():
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answer != 0 && c.answer != http.StatusOK {
		c.refused++
		w.WriteHeader(c.answer)
		return
	}
	for _, resource := range request.ResourceSpans {
		service := attributes(resource.Resource.GetAttributes())["service.name"]
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				c.keep(service, scope.SchemaUrl, span)
			}
		}
	}
	answer := &collect.ExportTraceServiceResponse{}
	if c.partial > 0 {
		answer.PartialSuccess = &collect.ExportTracePartialSuccess{RejectedSpans: c.partial, ErrorMessage: "these are not wanted"}
	}
	said, _ := proto.Marshal(answer) // it always can be
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(said)
}

func (c *Collector) keep(service, schema string, span *otlp.Span) {
	s := &Span{
		Trace: hex.EncodeToString(span.TraceId), ID: hex.EncodeToString(span.SpanId), Parent: hex.EncodeToString(span.ParentSpanId),
		Name: span.Name, Kind: strings.TrimPrefix(span.Kind.String(), "SPAN_KIND_"),
		Failed: span.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR, Status: span.Status.GetMessage(),
		Start: time.Unix(0, int64(span.StartTimeUnixNano)).UTC(), End: time.Unix(0, int64(span.EndTimeUnixNano)).UTC(),
		Attributes: attributes(span.Attributes), Service: service, Schema: schema,
	}
	for _, e := range span.Events {
		s.Events = append(s.Events, e.Name)
	}
	before := c.spans[s.ID]
	if before != nil {
		s.Times = before.Times
		if one, other := fmt.Sprintf("%+v", *before), fmt.Sprintf("%+v", *s); one != other {
			c.t.Errorf("a span was sent twice, and not the same:\n%s\n%s", one, other)
		}
	}
	s.Times++
	c.spans[s.ID] = s
}

func attributes(all []*common.KeyValue) map[string]string {
	values := make(map[string]string)
	for _, a := range all {
		switch v := a.Value.GetValue().(type) {
		case *common.AnyValue_StringValue:
			values[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			values[a.Key] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_BoolValue:
			values[a.Key] = fmt.Sprint(v.BoolValue)
		default:
			values[a.Key] = fmt.Sprint(a.Value)
		}
	}
	return values
}

// Spans lists the spans of an order that it has, by when they began.
func (c *Collector) Spans(order string) (all []Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Attributes["waybill.order.id"] == order {
			all = append(all, *s)
		}
	}
	slices.SortFunc(all, func(a, b Span) int {
		if at := a.Start.Compare(b.Start); at != 0 {
			return at
		}
		return strings.Compare(a.Service+a.Name, b.Service+b.Name)
	})
	return all
}

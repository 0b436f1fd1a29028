//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/internal/tracing"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/collector"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// traced is a namespace of which a collector has the traces: an orchestrator, an agent of the SDK, and one that calls a
// service over HTTP.
type traced struct {
	*cluster
	serve     *serve
	collector *collector.Collector
	// begun hears of each call of the service, which answers once it may.
	begun, answer chan struct{}
	mu            sync.Mutex
	heard         []string // the traceparents that the service was given
}

const tracedWorkflow = `workflow: traced
version: 1
steps:
  - {name: book, agent: booking, do: book, undo: cancel}
  - {name: nap, sleep: 1ms}
  - {name: charge, agent: payment, do: charge, exhausted: compensate}
`

const tracedFamily = `workflow: family
version: 1
steps:
  - {name: one, order: {workflow: traced}}
  - name: all
    each: {items: "['a', 'b']", order: {workflow: traced}}
`

const tracedAgent = `agent: payment
operations:
  charge:
    method: POST
    url: %s/charges/{order}
    output: {charged: "{response.body.charged}"}
`

func newTraced(t *testing.T) *traced {
	t.Helper()
	w := &traced{cluster: newCluster(t, kafka.Embedded(t)), collector: collector.New(t), begun: make(chan struct{}, 10), answer: make(chan struct{}, 10)}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", w.collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1000")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
	w.createTopicsOf(2)
	w.serve = w.cluster.serve("one")
	w.serve.ready(w.serve.client)
	for _, workflow := range []string{tracedWorkflow, tracedFamily} {
		file := filepath.Join(t.TempDir(), "workflow.yaml")
		if err := os.WriteFile(file, []byte(workflow), 0o600); err != nil {
			t.Fatal(err)
		}
		waybill(t, "workflow", "register", file, "--server", w.serve.http)
	}

	service := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.heard = append(w.heard, r.Header.Get("Traceparent"))
		w.mu.Unlock()
		w.begun <- struct{}{}
		select {
		case <-w.answer:
		case <-r.Context().Done():
		}
		if strings.Contains(r.URL.Path, "declined") {
			http.Error(rw, "no", http.StatusForbidden)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprint(rw, `{"charged":1}`)
	}))
	t.Cleanup(service.Close)
	file := filepath.Join(t.TempDir(), "payment.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, tracedAgent, service.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, "payment", append([]string{"agent", "http", "--config", file}, w.flags...)...)

	setup, err := tracing.FromEnvironment(t.Context(), "booking", "1")
	if err != nil {
		t.Fatal(err)
	}
	provider, end := setup.Provider(slog.Default())
	ctx, stop := context.WithCancel(context.Background())
	var agent sync.WaitGroup
	agent.Go(func() {
		book := func(context.Context, agents.Request[any]) (string, error) { return "booked", nil }
		if err := agents.Serve(ctx, agents.Config{
			Agent: "booking", Brokers: w.broker.Brokers, Namespace: w.topics.Namespace, TracerProvider: provider,
		}, agents.Operations{"book": agents.Do(book), "cancel": agents.Do(book)}); err != nil {
			t.Errorf("the agent booking: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		agent.Wait()
		end()
	})
	return w
}

// submit submits an order in the name of a caller's span, which may be none.
func (w *traced) submit(id, traceparent string) {
	w.Helper()
	w.submitTo("traced", id, traceparent)
}

func (w *traced) submitTo(workflow, id, traceparent string) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodPost, "http://"+w.serve.http+"/api/v1/orders", strings.NewReader(fmt.Sprintf(`{"id":%q,"workflow":%q}`, id, workflow)))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if traceparent != "" {
		r.Header.Set("Traceparent", traceparent)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		w.Fatal(answer.Status)
	}
}

// called waits until the service is asked for so much, and does not answer.
func (w *traced) called() {
	w.Helper()
	select {
	case <-w.begun:
	case <-time.After(oracle.Patience):
		w.Fatal("the service is not called")
	}
}

// ended waits until the order is Processed, and the collector has as many spans of it.
func (w *traced) ended(id string, spans int) []collector.Span {
	w.Helper()
	w.processed(id)
	w.spans(id, spans)
	return w.collector.Spans(id)
}

// processed waits until the order is.
func (w *traced) processed(id string) {
	w.Helper()
	w.serve.until(id+" is Processed", func() error {
		o, err := w.serve.client.Order(w.Context(), id)
		if err == nil && o.ProcessState != projections.Processed {
			err = fmt.Errorf("it is %s", o.ProcessState)
		}
		return err
	})
}

func (w *traced) spans(id string, n int) {
	w.Helper()
	w.serve.until(fmt.Sprintf("the collector has %d spans of %s", n, id), func() error {
		if all := w.collector.Spans(id); len(all) != n {
			return fmt.Errorf("it has %d: %+v", len(all), all)
		}
		return nil
	})
}

// tree says of each span within which other it is, and which failed.
func tree(spans []collector.Span) (says []string) {
	names := make(map[string]string)
	for _, s := range spans {
		names[s.ID] = s.Service + "/" + s.Name
	}
	for _, s := range spans {
		parent := names[s.Parent]
		if parent == "" {
			parent = s.Parent
		}
		line := names[s.ID] + " in " + parent + ", " + s.Kind
		if s.Failed {
			line += ", " + s.Status
		}
		says = append(says, line)
	}
	slices.Sort(says)
	return says
}

// isWhole checks that these are the spans of a Processed order of tracedWorkflow, all in one trace, within that of its caller.
func isWhole(t *testing.T, id string, spans []collector.Span, parent string) {
	t.Helper()
	want := []string{
		"booking/process book in waybill/book, CONSUMER",
		"payment/POST in payment/process charge, CLIENT",
		"payment/process charge in waybill/charge, CONSUMER",
		"waybill/book in waybill/order traced, PRODUCER",
		"waybill/charge in waybill/order traced, PRODUCER",
		"waybill/nap in waybill/order traced, INTERNAL",
		"waybill/order traced in " + parent + ", CONSUMER",
	}
	if got := tree(spans); !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\ninstead of\n%s", id, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, s := range spans {
		if s.Trace != spans[0].Trace {
			t.Errorf("%s is in several traces: %+v and %+v", id, s, spans[0])
		}
	}
}

const tracedCaller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// An order is one trace, over its agents and a service, whoever makes its spans, and it is the caller's.
func TestAnOrderIsOneTrace(t *testing.T) {
	w := newTraced(t)
	for _, c := range []struct{ id, caller, parent string }{{"o-1", tracedCaller, "b7ad6b7169203331"}, {"o-2", "", ""}} {
		w.submit(c.id, c.caller)
		w.called()
		// What has ended is there before the order has.
		w.spans(c.id, 3)
		w.answer <- struct{}{}
		spans := w.ended(c.id, 7)
		isWhole(t, c.id, spans, c.parent)
		client := slices.IndexFunc(spans, func(s collector.Span) bool { return s.Kind == "CLIENT" })
		w.mu.Lock()
		heard := w.heard[len(w.heard)-1]
		w.mu.Unlock()
		if want := "00-" + spans[0].Trace + "-" + spans[client].ID + "-01"; heard != want {
			t.Errorf("%s: the service heard %q instead of %q", c.id, heard, want)
		}
		if c.caller != "" && spans[0].Trace != c.caller[3:35] {
			t.Errorf("%s is in the trace %s", c.id, spans[0].Trace)
		}
		for _, s := range spans {
			if s.Times != 1 || s.Schema == "" || s.Attributes["waybill.order.id"] != c.id {
				t.Errorf("%s: %+v", c.id, s)
			}
		}
	}
	w.submit("declined", tracedCaller)
	w.called()
	w.answer <- struct{}{}
	w.spans("declined", 9)
	want := []string{
		"booking/process book in waybill/book, CONSUMER",
		"booking/process cancel in waybill/undo book, CONSUMER",
		"payment/POST in payment/process charge, CLIENT, http-403",
		"payment/process charge in waybill/charge, CONSUMER, http-403",
		"waybill/book in waybill/order traced, PRODUCER",
		"waybill/charge in waybill/order traced, PRODUCER, http-403",
		"waybill/nap in waybill/order traced, INTERNAL",
		"waybill/order traced in b7ad6b7169203331, CONSUMER, compensated",
		"waybill/undo book in waybill/order traced, PRODUCER",
	}
	if got := tree(w.collector.Spans("declined")); !slices.Equal(got, want) {
		t.Errorf("one that is undone:\n%s\ninstead of\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	w.submit("o-3", strings.TrimSuffix(tracedCaller, "1")+"0")
	w.called()
	w.answer <- struct{}{}
	w.submit("o-4", tracedCaller)
	w.called()
	w.answer <- struct{}{}
	w.ended("o-4", 7)
	if spans := w.collector.Spans("o-3"); len(spans) > 0 {
		t.Errorf("there are spans of an order of which its caller wants none: %+v", spans)
	}
}

// Orders that do steps of another, and items, are of its trace, within its attempts.
func TestAFamilyIsOneTrace(t *testing.T) {
	w := newTraced(t)
	w.submitTo("family", "o-1", "")
	for range 3 {
		w.answer <- struct{}{}
	}
	family := w.ended("o-1", 3)
	if got := tree(family); !slices.Equal(got, []string{
		"waybill/all in waybill/order family, INTERNAL", "waybill/one in waybill/order family, PRODUCER", "waybill/order family in , CONSUMER",
	}) {
		t.Fatalf("%q", got)
	}
	children := make(map[string]string) // the names of the steps within which they are
	for _, id := range []string{"@o-1/one", "@o-1/all:i1", "@o-1/all:i2"} {
		w.spans(id, 7)
		for _, s := range w.collector.Spans(id) {
			if s.Trace != family[0].Trace {
				t.Errorf("%s is in the trace %s: %+v", id, s.Trace, s)
			}
			for _, step := range family {
				if s.Name == "order traced" && s.Parent == step.ID {
					children[id] = step.Name
				}
			}
		}
	}
	if want := map[string]string{"@o-1/one": "one", "@o-1/all:i1": "all", "@o-1/all:i2": "all"}; !maps.Equal(children, want) {
		t.Errorf("children are within %v", children)
	}
}

// Whatever is killed, and when: each span of an order is there, and what was sent again is the same.
func TestNoSpanIsLostToAKill(t *testing.T) {
	w := newTraced(t)
	w.submit("o-1", tracedCaller)
	w.called()
	w.serve.until("the nap has a span", func() error {
		for _, s := range w.collector.Spans("o-1") {
			if s.Name == "nap" {
				return nil
			}
		}
		return fmt.Errorf("%+v", w.collector.Spans("o-1"))
	})
	// Of what runs it knows the beginning by the history alone.
	w.serve.kill()
	w.answer <- struct{}{}
	w.serve.again()
	isWhole(t, "o-1", w.ended("o-1", 7), "b7ad6b7169203331")

	// What happens while the collector takes nothing is made anew from the journal.
	w.collector.Refuse(http.StatusServiceUnavailable)
	w.submit("o-2", "")
	w.called()
	refused := w.collector.Refused()
	w.serve.until("spans are refused", func() error {
		if w.collector.Refused() == refused {
			return errors.New("none is")
		}
		return nil
	})
	w.answer <- struct{}{}
	w.processed("o-2")
	w.serve.kill()
	w.collector.Refuse(http.StatusOK)
	w.serve.again()
	isWhole(t, "o-2", w.ended("o-2", 7), "")
}

// Orders wait for no collector, and one that answers nothing loses nothing.
func TestACollectorThatNeverAnswers(t *testing.T) {
	w := newTraced(t)
	w.collector.Hang(true)
	for _, id := range []string{"o-1", "o-2"} {
		w.submit(id, "")
		w.called()
		w.answer <- struct{}{}
		w.processed(id)
	}
	w.serve.until("the collector is tried again", func() error {
		if n := w.collector.Hung(); n < 4 {
			return fmt.Errorf("it was tried %d times", n)
		}
		return nil
	})
	if spans := w.collector.Spans("o-1"); len(spans) > 0 {
		t.Errorf("it has %+v", spans)
	}
	w.collector.Hang(false)
	for _, id := range []string{"o-1", "o-2"} {
		w.serve.until("the collector has the spans of "+id, func() error {
			n := 0
			for _, s := range w.collector.Spans(id) {
				if s.Service == "waybill" {
					n++
				}
			}
			if n != 4 {
				return fmt.Errorf("it has %d", n)
			}
			return nil
		})
	}
}

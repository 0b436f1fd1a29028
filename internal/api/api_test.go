package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	fulfilment "github.com/waybill-dev/waybill/examples/order-fulfilment"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/waybill"
)

// stage is an instance in memory, with the example's agents, behind a server.
type stage struct {
	*testing.T
	server   *Server
	instance *orchestrator.Instance
	outside  *waybill.Waybill // who writes to its topics
	url      string
	token    string // says who asks, if anybody does
	http     *http.Client
	client   *Client
}

// callersTopic takes status messages.
const callersTopic = "shop.status"

func newStage(t *testing.T, change ...func(*Config)) *stage {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	metrics := prometheus.NewRegistry()
	cfg := Config{Version: "test", Metrics: metrics, Logger: log}
	for _, change := range change {
		change(&cfg)
	}
	s := &stage{T: t, server: New(cfg)}
	w := waybill.New(t)
	s.outside = w
	if _, err := w.Admin.CreateTopic(t.Context(), 1, 1, nil, callersTopic); err != nil {
		t.Fatal(err)
	}
	w.Callers = append(w.Callers, callersTopic)
	s.instance = w.Run("i-1", t.TempDir(), func(cfg *orchestrator.Config) {
		cfg.Kafka = append(cfg.Kafka, kgo.DisableClientMetrics(), KafkaMetrics(metrics))
		cfg.Logger, cfg.AgentBounds = log, map[string]int{"idler": 1}
		if s.server.access != nil {
			keys := proof.New([]proof.Key{{ID: "k", Secret: []byte("s")}}, proof.Off, nil)
			cfg.Keys = func() *proof.Keys { return keys }
		}
	}).Instance
	for agent, operations := range map[string]agents.Operations{"inventory": fulfilment.Inventory, "payment": fulfilment.Payments, "shipping": fulfilment.Shipping} {
		w.Serve(agents.Config{Agent: agent, Logger: slog.New(slog.DiscardHandler)}, operations)
	}
	w.Serve(agents.Config{Agent: "archive", Logger: slog.New(slog.DiscardHandler)}, agents.Operations{
		"fetch": agents.Do(func(context.Context, agents.Request[any]) (string, error) { return strings.Repeat("x", 1<<20-100), nil }),
	})
	refused := func(context.Context, agents.Request[any]) (string, error) {
		return "", agents.Permanent("canary", errors.New("canary"))
	}
	w.Serve(agents.Config{Agent: "leak", Logger: slog.New(slog.DiscardHandler)}, agents.Operations{
		"tell": agents.Do(func(context.Context, agents.Request[any]) (string, error) { return "canary", nil }), "untell": agents.Do(refused), "fail": agents.Do(refused),
	})
	s.listen()
	return s
}

// listen has the server be reached.
func (s *stage) listen() {
	s.Helper()
	listener := httptest.NewServer(s.server)
	s.url, s.http = listener.URL, listener.Client()
	var err error
	if s.client, err = NewClient(s.url); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		s.client.Close()
		listener.Close()
		s.server.Detach(errors.New("over"))
	})
}

// attach makes the server answer for the instance, and waits until it serves.
func (s *stage) attach() {
	s.Helper()
	s.server.Attach(s.instance)
	s.until(func() bool { return s.client.Ready(s.Context()) == nil && s.instance.Owned() == waybill.Partitions })
}

func (s *stage) until(done func() bool) {
	s.Helper()
	oracle.Until(s, "what the test waits for", func() error {
		if done() {
			return nil
		}
		return errors.New(fmt.Sprint("it does not come; the instance: ", s.instance.Ready()))
	})
}

func (s *stage) order(id string, want projections.State) *Order {
	s.Helper()
	var o *Order
	s.until(func() bool {
		var err error
		o, err = s.client.Order(s.Context(), id)
		return err == nil && o.ProcessState == want
	})
	return o
}

type request struct {
	method, path, body string
	header             http.Header
}

// ask returns the status, the headers and the body of the response.
func (s *stage) ask(r request) (int, http.Header, string) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), cmp.Or(r.method, "GET"), s.url+r.path, strings.NewReader(r.body))
	if err != nil {
		s.Fatal(err)
	}
	req.Header = r.header.Clone()
	if req.Header == nil {
		req.Header = http.Header{"Content-Type": {"application/json"}}
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// with runs a part of the test on the same stage.
func (s *stage) with(name string, f func(s *stage)) {
	s.Run(name, func(t *testing.T) {
		own := *s
		own.T = t
		f(&own)
	})
}

func TestAPI(t *testing.T) {
	s := newStage(t)
	s.with("without an instance", (*stage).withoutInstance)
	s.attach()
	s.with("workflows", (*stage).testWorkflows)
	s.with("submit and get", (*stage).testSubmit)
	s.with("search", (*stage).testSearch)
	s.with("paging", (*stage).testPaging)
	s.with("a large history", (*stage).testLargeHistory)
	s.with("alerts", (*stage).testAlerts)
	s.with("resubmit", (*stage).testResubmit)
	s.with("cancel", (*stage).testCancel)
	s.with("terminate", (*stage).testTerminate)
	s.with("change", (*stage).testChange)
	s.with("migrate", (*stage).testMigrate)
	s.with("skip-step", (*stage).testSkip)
	s.with("as of an event", (*stage).testAsOf)
	s.with("pause and resume", (*stage).testPause)
	s.with("a command twice", (*stage).testCommandTwice)
	s.with("commands in vain", (*stage).testCommandsInVain)
	s.with("rerun", (*stage).testRerun)
	s.with("problems of reruns", (*stage).testRerunProblems)
	s.with("children", (*stage).testChildren)
	s.with("children that are overdue", (*stage).testOverdueChildren)
	s.with("items", (*stage).testItems)
	s.with("release", (*stage).testRelease)
	s.with("signals", (*stage).testSignals)
	s.with("signals under keys", (*stage).testSignalKeys)
	s.with("signals in vain", (*stage).testSignalsInVain)
	s.with("problems of signals", (*stage).testSignalProblems)
	s.with("orders at a step", (*stage).testListStep)
	s.with("at which steps orders stand", (*stage).testListStandsAt)
	s.with("listings nobody waits for", (*stage).testHungUp)
	s.with("problems of commands", (*stage).testCommandProblems)
	s.with("partitions", (*stage).testPartitions)
	s.with("problems", (*stage).testProblems)
	s.with("what waits", (*stage).testWaits)
	s.with("versions", (*stage).testVersions)
	s.with("retire", (*stage).testRetire)
	s.with("wait", (*stage).testWait)
	s.with("unchanged", (*stage).testUnchanged)
	s.with("read at once", (*stage).testReadAtOnce)
	s.with("follow", (*stage).testFollow)
	s.with("follow lists", (*stage).testFollowLists)
	s.with("refused at once", (*stage).testRefusedAtOnce)
	s.with("who waits", (*stage).testWaiters)
	s.with("a thousand who wait", (*stage).testAThousandWait)
	s.with("orders by time", (*stage).testTimes)
	s.with("openapi", (*stage).testOpenAPI)
	s.with("health and metrics", (*stage).testHealth)
	s.server.Detach(errors.New("the test detached it"))
	s.with("detached", func(s *stage) {
		if status, _, body := s.ask(request{path: "/readyz"}); status != 503 || !strings.Contains(body, "the test detached it") {
			s.Errorf("readyz: %d %s", status, body)
		}
	})
}

func (s *stage) withoutInstance() {
	for path, want := range map[string]int{
		"/healthz": 200, "/metrics": 200, "/openapi.json": 200,
		"/readyz": 503, "/api/v1/orders": 503, "/api/v1/orders/o-1": 503, "/api/v1/orders/o-1/history": 503,
		"/api/v1/workflows": 503, "/api/v1/alerts": 503, "/api/v1/alerts/reasons": 503, "/api/v1/dead-letters": 503, "/api/v1/dead-letters/0/0": 503, "/api/v1/partitions": 503, "/api/v1/partitions/0/projection": 503,
	} {
		if status, _, body := s.ask(request{path: path}); status != want {
			s.Errorf("%s: %d instead of %d: %s", path, status, want, body)
		}
	}
}

func (s *stage) testWorkflows() {
	post := func(body string) (int, http.Header, string) {
		s.Helper()
		return s.ask(request{method: "POST", path: "/api/v1/workflows?file=w.yaml", body: body, header: http.Header{"Content-Type": {"text/plain"}}})
	}
	if status, _, body := post(string(fulfilment.Workflow)); status != 201 || !strings.Contains(body, `"workflow":"order-fulfilment"`) {
		s.Errorf("new: %d %s", status, body)
	}
	if status, _, body := post(string(fulfilment.Workflow)); status != 200 {
		s.Errorf("again: %d %s", status, body)
	}
	changed := strings.Replace(string(fulfilment.Workflow), "timeout: 10s", "timeout: 11s", 1)
	if status, header, body := post(changed); status != 409 || header.Get("Content-Type") != "application/problem+json" {
		s.Errorf("another content: %d %s", status, body)
	}
	status, _, body := post("workflow: w\nsteps:\n- {name: a, agent: x, after: [b]}\n- {name: c, agnt: x}\n")
	var p Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil || status != 422 || len(p.Errors) < 2 || p.Errors[0].Location != "w.yaml:3:31" {
		s.Errorf("bad file: %d %s (%v)", status, body, err)
	}

	status, header, body := post("workflow: w\nsteps:\n- {name: a, order: other}\n")
	if err := json.Unmarshal([]byte(body), &p); err != nil || status != 409 || header.Get("Content-Type") != "application/problem+json" || !strings.Contains(p.Detail, "step a orders workflow other, which is not registered; register that first") {
		s.Errorf("orders another that is not there: %d %s (%v)", status, body, err)
	}

	all, err := s.client.Workflows(s.Context())
	if err != nil || len(all.Workflows) != 1 {
		s.Errorf("list: %+v, %v", all, err)
	}
	for path, want := range map[string]int{"": 200, "?version=1": 200, "?version=2": 404, "?version=-1": 422, "?version=x": 422} {
		if status, _, body := s.ask(request{path: "/api/v1/workflows/order-fulfilment" + path}); status != want {
			s.Errorf("show %s: %d instead of %d: %s", path, status, want, body)
		}
	}
	if status, _, _ := s.ask(request{path: "/api/v1/workflows/none"}); status != 404 {
		s.Errorf("show unknown: %d", status)
	}
}

// An order as it was after each of its events: after the last it is what it is.
func (s *stage) testAsOf() {
	s.declined("as-of")
	s.act("as-of", "resubmit", `{"step":"charge","input":{"card":"declined"},"newKey":true,"note":"again"}`, 200)
	s.until(func() bool { return s.order("as-of", projections.Error).FailureCount == 2 })
	s.act("as-of", "cancel", `{"note":"enough"}`, 200)
	now := s.order("as-of", projections.Cancelled)
	history := s.history("as-of")
	for n, e := range history {
		o, err := s.client.OrderAsOf(s.Context(), "as-of", e.Seq)
		if err != nil {
			s.Fatal(err)
		}
		charge := o.Steps[slices.IndexFunc(o.Steps, func(st Step) bool { return st.Name == "charge" })]
		var failed int
		for _, before := range history[:n+1] {
			if before.Type == events.StepFailed && before.Step == "charge" {
				failed++
			}
		}
		if !o.UpdatedAt.Equal(e.At) || charge.FailureCount != failed || (o.ProcessState == projections.Cancelled) != (n == len(history)-1) {
			s.Errorf("as of %s, event %d: %+v", e.Type, e.Seq, o)
		}
		if n < len(history)-1 {
			continue
		}
		was, whole := reflect.ValueOf(o).Elem(), reflect.ValueOf(now).Elem()
		for f := range was.NumField() {
			if a, b := was.Field(f).Interface(), whole.Field(f).Interface(); !reflect.DeepEqual(a, b) {
				s.Errorf("as of the last event, %s: %+v, and it is %+v", was.Type().Field(f).Name, a, b)
			}
		}
	}
	for seq, want := range map[string]int{"0": 422, "x": 422, "10001": 422, "9999": 404} {
		if status, _, answer := s.ask(request{path: "/api/v1/orders/as-of/history/" + seq}); status != want {
			s.Errorf("as of %s: %d %s", seq, status, answer)
		}
	}
	if _, _, answer := s.ask(request{path: "/api/v1/orders/as-of/history/10001"}); !strings.Contains(answer, "of its first 10000 events, and this is event 10001") {
		s.Errorf("of what is too far: %s", answer)
	}
	if status, _, _ := s.ask(request{path: "/api/v1/orders/nowhere/history/1"}); status != 404 {
		s.Errorf("of no order: %d", status)
	}
}

func (s *stage) testSubmit() {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for id, location := range map[string]string{
		"a/b": "/api/v1/orders/a%2Fb", "ü 100%?#": "/api/v1/orders/%C3%BC%20100%25%3F%23",
		"..": "/api/v1/orders/%2E%2E", "x/history": "/api/v1/orders/x%2Fhistory", "a//b": "/api/v1/orders/a%2F%2Fb",
	} {
		body, err := json.Marshal(map[string]any{"id": id, "workflow": "order-fulfilment", "input": map[string]any{"total": 42}, "replyTo": nil})
		if err != nil {
			s.Fatal(err)
		}
		status, header, answer := s.ask(request{method: "POST", path: "/api/v1/orders", body: string(body), header: http.Header{"Content-Type": {"application/json"}, "Traceparent": {trace}, "Tracestate": {"rojo=1", "congo=2"}, "Baggage": {"tenant=a%20b", "user=7"}}})
		if status != 202 || header.Get("Location") != location {
			s.Fatalf("submit %q: %d, Location %q: %s", id, status, header.Get("Location"), answer)
		}
		o := s.order(id, projections.Processed)
		if o.OrderID != id || len(o.Steps) != 3 || o.LockedBy != nil || o.CompleteBy != nil {
			s.Errorf("order %q: %+v", id, o)
		}
		if status, _, answer := s.ask(request{path: location}); status != 200 {
			s.Errorf("get %s: %d %s", location, status, answer)
		}
		status, _, answer = s.ask(request{path: location + "/history"})
		var h struct {
			Events []events.Event `json:"events"`
		}
		if err := json.Unmarshal([]byte(answer), &h); status != 200 || err != nil || len(h.Events) != 8 {
			s.Fatalf("history of %q: %d %s (%v)", id, status, answer, err)
		}
		for n, e := range h.Events {
			if e.Seq != uint64(n+1) || e.Order != id {
				s.Errorf("event %d of %q: %+v", n, id, e)
			}
		}
		if e := h.Events[0]; e.Traceparent != trace || e.Tracestate != "rojo=1,congo=2" || e.Baggage != "tenant=a%20b,user=7" {
			s.Errorf("traceparent %q, tracestate %q, baggage %q", e.Traceparent, e.Tracestate, e.Baggage)
		}
	}

	s.historyInPages("a/b")

	_, _, body := s.ask(request{path: "/api/v1/orders/a%2Fb"})
	var o map[string]any
	if err := json.Unmarshal([]byte(body), &o); err != nil {
		s.Fatal(err)
	}
	mustHave(s.T, o, "orderId", "workflow", "version", "processState", "lockedBy", "completeBy", "failureCount", "input", "output", "steps",
		"acceptedAt", "updatedAt", "priority", "reason", "replyTo", "alert", "partition")
	mustHave(s.T, o["steps"].([]any)[0].(map[string]any), "name", "state", "attempt", "completeBy", "failureCount", "idempotencyKey", "output", "error")

	deadline := time.Now().Add(time.Hour)
	if _, err := s.client.Submit(s.Context(), &Submission{ID: "in-time", Workflow: "order-fulfilment", Deadline: &deadline}); err != nil {
		s.Fatal(err)
	}
	s.order("in-time", projections.Processed)
	if got := s.history("in-time")[0].Deadline; !got.Equal(events.Time(deadline)) {
		s.Errorf("the deadline %s became %s", deadline, got)
	}

	s.testSubmitAgain()

	// Without an id a new one is made.
	_, _, body = s.ask(request{method: "POST", path: "/api/v1/orders", body: `{"workflow":"order-fulfilment","deadline":"2001-01-01T00:00:00Z"}`})
	var receipt Receipt
	if err := json.Unmarshal([]byte(body), &receipt); err != nil || receipt.OrderID == "" {
		s.Fatalf("%s: %v", body, err)
	}
	if o := s.order(receipt.OrderID, projections.Rejected); o.Reason == nil {
		s.Errorf("rejected without a reason: %+v", o)
	}
}

// testSubmitAgain: the same is taken again, and changes nothing; something else under
// the id is a conflict once the order is there.
func (s *stage) testSubmitAgain() {
	submit := func(body string) (int, Receipt, string) {
		s.Helper()
		status, _, answer := s.ask(request{method: "POST", path: "/api/v1/orders", body: body})
		var r Receipt
		if err := json.Unmarshal([]byte(answer), &r); err != nil {
			s.Fatal(err)
		}
		return status, r, answer
	}
	s.until(func() bool { // orders of before have no digest
		u, err := s.client.FinishUpgrade(s.Context())
		return err == nil && u.Format == events.JournalFormat
	})
	status, first, answer := submit(`{"id":"again","workflow":"order-fulfilment","input":{"a":1,"b":2.50,"b":3},"deadline":"2100-01-01T01:00:00.0001+01:00"}`)
	if status != 202 || first.Digest == "" {
		s.Fatalf("%d %s", status, answer)
	}
	o := s.order("again", projections.Processed)
	if o.Digest == nil || *o.Digest != first.Digest {
		s.Errorf("the order has the digest %v, and was submitted with %s", o.Digest, first.Digest)
	}
	if status, r, answer := submit(`{"id":"again","workflow":"order-fulfilment","input":{ "a":1, "b":2.5, "b":3.0 },"deadline":"2100-01-01T00:00:00Z"}`); status != 202 || r.Digest != first.Digest {
		s.Errorf("the same: %d %s", status, answer)
	}
	const other = `{"id":"again","workflow":"order-fulfilment","input":{"a":2}}`
	if status, _, answer := submit(other); status != 409 || !strings.Contains(answer, `there is an order \"again\"`) {
		s.Errorf("something else: %d %s", status, answer)
	}
	if all := s.history("again"); len(all) != 8 {
		s.Errorf("its history has %d events", len(all))
	}
	mine, others := Submission{Workflow: "order-fulfilment", Input: json.RawMessage(`{"a":2}`)}, *o
	if mine.Made(&others) {
		s.Error("another submission made the order")
	}
	if others.Digest = nil; !mine.Made(&others) {
		s.Error("an order from before format 2 is anybody's")
	}
}

// historyInPages reads a history of eight events in pages of any size.
func (s *stage) historyInPages(id string) {
	s.Helper()
	for limit, want := range map[int][]int{1: {1, 1, 1, 1, 1, 1, 1, 1}, 3: {3, 3, 2}, 4: {4, 4}, 8: {8}, 1000: {8}} {
		var sizes []int
		var seq uint64
		for after := ""; ; {
			status, _, answer := s.ask(request{path: fmt.Sprintf("/api/v1/orders/%s/history?limit=%d&after=%s", PathEscape(id), limit, after)})
			var h struct {
				Events []events.Event `json:"events"`
				Next   string         `json:"next"`
			}
			if err := json.Unmarshal([]byte(answer), &h); status != 200 || err != nil {
				s.Fatalf("pages of %d: %d %s (%v)", limit, status, answer, err)
			}
			for _, e := range h.Events {
				if seq++; e.Seq != seq {
					s.Errorf("pages of %d: event %d has number %d", limit, seq, e.Seq)
				}
			}
			sizes = append(sizes, len(h.Events))
			if after = h.Next; after == "" {
				break
			}
		}
		if !slices.Equal(sizes, want) {
			s.Errorf("pages of %d have %v, not %v", limit, sizes, want)
		}
	}
	for _, after := range []string{"8", "9", "18446744073709551615"} {
		if status, _, answer := s.ask(request{path: "/api/v1/orders/" + PathEscape(id) + "/history?after=" + after}); status != 200 || strings.TrimSpace(answer) != `{"events":[]}` {
			s.Errorf("behind %s: %d %s", after, status, answer)
		}
	}
}

func mustHave(t *testing.T, object map[string]any, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, ok := object[name]; !ok {
			t.Errorf("%q is left out of %v", name, object)
		}
	}
}

func (s *stage) testPaging() {
	all, err := s.client.Orders(s.Context(), Filter{}, 1000, "")
	if err != nil || all.Next != "" || len(all.Orders) < 5 {
		s.Fatalf("%+v, %v", all, err)
	}
	var walked []Summary
	for after := ""; ; {
		page, err := s.client.Orders(s.Context(), Filter{}, 2, after)
		if err != nil {
			s.Fatal(err)
		}
		walked = append(walked, page.Orders...)
		if after = page.Next; after == "" {
			break
		}
	}
	ids := func(orders []Summary) (ids []string) {
		for _, o := range orders {
			ids = append(ids, o.OrderID)
		}
		return ids
	}
	if !slices.Equal(ids(walked), ids(all.Orders)) {
		s.Errorf("pages of 2: %q, all at once: %q", ids(walked), ids(all.Orders))
	}
	page, err := s.client.Orders(s.Context(), Filter{}, 1, "")
	if err != nil || page.Next == "" {
		s.Fatalf("%+v, %v", page, err)
	}
	for path, status := range map[string]int{
		"orders?after=" + page.Next: 200, "orders?after=" + page.Next + "&where=a%3Db": 422, "orders?after=bad": 422, "orders?after=!!": 422, "orders?after=bad&sort=accepted&workflow=w": 422,
		"schedules?after=bad": 422, "schedules?after=" + page.Next: 422, "limits?after=bad": 422, "alerts?after=bad": 422, "alerts?after=MTIz": 422, "approvals?after=MTIz": 422, "signals/waiting?after=bad": 422, "signals/waiting?after=MTIz": 422, "alerts?after=MTIzL28": 200, "dead-letters?after=bad": 422,
	} {
		if got, _, answer := s.ask(request{path: "/api/v1/" + path}); got != status || got == 422 && !strings.Contains(answer, "pass the page's next as it is") {
			s.Errorf("%s: %d %s", path, got, answer)
		}
	}
	rejected, err := s.client.Orders(s.Context(), Filter{State: "Rejected"}, 10, "")
	if err != nil || len(rejected.Orders) != 1 {
		s.Errorf("rejected: %+v, %v", rejected, err)
	}
}

// testTimes sorts and counts orders, and selects them by when they changed.
func (s *stage) testTimes() {
	for n := range 5 {
		s.listens(fmt.Sprint("timed-", 4-n))
	}
	page := func(query string) (page OrderPage, ids []string) {
		_, _, answer := s.ask(request{path: "/api/v1/orders?workflow=listens&" + query})
		if err := json.Unmarshal([]byte(answer), &page); err != nil {
			s.Fatalf("%v: %s", err, answer)
		}
		for _, o := range page.Orders {
			ids = append(ids, o.OrderID)
		}
		return page, ids
	}
	all, first := page("sort=accepted&count=true&limit=3")
	next, rest := page("sort=accepted&limit=2&after=" + all.Next)
	if got := slices.Concat(first, rest); !slices.Equal(got, []string{"timed-0", "timed-1", "timed-2", "timed-3", "timed-4"}) || next.Count != nil {
		s.Errorf("newest first: %q, and %+v", got, next.Count)
	}
	if _, every := page(""); all.Count == nil || *all.Count != (OrderCount{len(every), false}) {
		s.Errorf("counted are %+v of %d", all.Count, len(every))
	}
	at := s.order("timed-2", projections.Pending).UpdatedAt.Format(time.RFC3339Nano)
	if _, ids := page("since=" + at + "&until=" + at); !slices.Contains(ids, "timed-2") || slices.Contains(ids, "timed-4") {
		s.Errorf("at %s: %q", at, ids)
	}
}

// testSearch finds orders by labels, and by values of their input.
func (s *stage) testSearch() {
	if _, err := s.client.Register(s.Context(), "found.yaml", []byte("workflow: found\nsearch: [customer, total]\nsteps: [{name: nap, sleep: 1ms}]\n")); err != nil {
		s.Fatal(err)
	}
	for n := range 4 {
		id := fmt.Sprint("found-", n)
		submission := &Submission{ID: id, Workflow: "found", Input: fmt.Appendf(nil, `{"customer":"c-%d","total":%d}`, n%2, n), Labels: map[string]string{"note": "a,b=c &ä", "own": id}}
		if _, err := s.client.Submit(s.Context(), submission); err != nil {
			s.Fatal(err)
		}
		s.order(id, projections.Processed)
	}
	long := "a long\tname " + strings.Repeat("ä", events.MaxLabelValue)
	if _, err := s.client.Submit(s.Context(), &Submission{ID: "found-long", Workflow: "found", Input: []byte(`{"customer":` + strconv.Quote(long) + `}`)}); err != nil {
		s.Fatal(err)
	}
	s.order("found-long", projections.Processed)
	for _, c := range []struct {
		filter Filter
		want   string
	}{
		{Filter{Where: []string{"customer=c-1"}}, "[found-1 found-3]"},
		{Filter{Where: []string{"customer=" + long}}, "[found-long]"},
		{Filter{Where: []string{"customer=c-1", "total=3"}}, "[found-3]"},
		{Filter{Where: []string{"customer=c-1", "total=2"}}, "[]"},
		{Filter{Where: []string{"note=a,b=c &ä"}}, "[found-0 found-1 found-2 found-3]"},
		{Filter{Where: []string{"note=a,b=c &ä", "note=a,b=c &ä"}, State: "Processed", Workflow: "found"}, "[found-0 found-1 found-2 found-3]"},
		{Filter{Where: []string{"note=a,b=c &ä"}, State: "Error"}, "[]"},
		{Filter{Where: []string{"note=a"}}, "[]"},
		{Filter{Where: []string{"customer=c-1"}, Workflow: "order-fulfilment"}, "[]"},
	} {
		page, err := s.client.Orders(s.Context(), c.filter, 100, "")
		if err != nil {
			s.Fatal(err)
		}
		ids := []string{}
		for _, o := range page.Orders {
			ids = append(ids, o.OrderID)
		}
		if slices.Sort(ids); fmt.Sprint(ids) != c.want {
			s.Errorf("%+v finds %v, want %s", c.filter, ids, c.want)
		}
	}
	for query, says := range map[string]string{
		"where=customer": `where is NAME=VALUE, this is \"customer\"`, "where=Customer=x": `the name in where is \"Customer\"`, "where=a=x&where=a=y": "where has two values of a",
		"where=a=" + strings.Repeat("%80", 201): "where a has a value that is not UTF-8", "where==x": "the name in where is empty",
		strings.Repeat("where=a=x&", 17): "expected array length \u003c= 16",
	} {
		if status, _, said := s.ask(request{path: "/api/v1/orders?" + query}); status != http.StatusUnprocessableEntity || !strings.Contains(said, says) {
			s.Errorf("%s: %d %s", query, status, said)
		}
	}
	if status, _, said := s.ask(request{method: "POST", path: "/api/v1/orders", body: `{"workflow":"found","labels":{"A":"x"}}`}); status != http.StatusUnprocessableEntity || !strings.Contains(said, "body.labels") {
		s.Errorf("%d %s", status, said)
	}

	// Labels are changed after the end, too, and what was made of the input is not.
	if o, _ := s.act("found-1", "label", `{"labels":{"own":null,"region":"eu"},"note":"why"}`, 200); fmt.Sprint(o.Labels) != "map[customer:c-1 note:a,b=c &ä region:eu total:1]" || o.ProcessState != projections.Processed {
		s.Errorf("%+v", o)
	}
	s.until(func() bool { // the listing is what was written
		page, err := s.client.Orders(s.Context(), Filter{Where: []string{"region=eu"}}, 100, "")
		gone, also := s.client.Orders(s.Context(), Filter{Where: []string{"own=found-1"}}, 100, "")
		return err == nil && also == nil && len(page.Orders) == 1 && page.Orders[0].OrderID == "found-1" && len(gone.Orders) == 0
	})
	s.act("found-1", "label", `{"labels":{"customer":"c-2"}}`, 409)

	// An answer has them in the order of their names, each time.
	many := make(map[string]string)
	for n := range events.MaxLabels {
		many[fmt.Sprintf("l%02d", n)] = "x"
	}
	if _, err := s.client.Submit(s.Context(), &Submission{ID: "labelled", Workflow: "found", Labels: many}); err != nil {
		s.Fatal(err)
	}
	s.order("labelled", projections.Processed)
	ordered, err := json.Marshal(many)
	if err != nil {
		s.Fatal(err)
	}
	if _, _, body := s.ask(request{path: "/api/v1/orders/labelled"}); !strings.Contains(body, string(ordered)) {
		s.Errorf("labels are not in the order of their names: %s", body)
	}
	s.act("found-1", "label", `{"labels":{}}`, 422)
	s.act("found-1", "label", `{}`, 422)
}

// testLargeHistory reads one of six events of a megabyte each.
func (s *stage) testLargeHistory() {
	flow := "workflow: archive\nsteps:\n"
	for n := range 6 {
		flow += fmt.Sprintf("- {name: s%d, agent: archive, do: fetch}\n", n)
	}
	if _, err := s.client.Register(s.Context(), "archive.yaml", []byte(flow)); err != nil {
		s.Fatal(err)
	}
	if _, err := s.client.Submit(s.Context(), &Submission{ID: "large", Workflow: "archive"}); err != nil {
		s.Fatal(err)
	}
	s.order("large", projections.Processed)
	_, _, answer := s.ask(request{path: "/api/v1/orders/large/history"})
	var page History
	if err := json.Unmarshal([]byte(answer), &page); err != nil || page.Next == "" || len(answer) > 6<<20 {
		s.Errorf("a page of %d bytes with %d events, the next behind %q: %v", len(answer), len(page.Events), page.Next, err)
	}
	if all := s.history("large"); len(all) != 14 {
		s.Errorf("%d events in all pages", len(all))
	}
}

func (s *stage) testAlerts() {
	for n := range 3 {
		id := fmt.Sprint("declined-", n)
		if _, err := s.client.Submit(s.Context(), &Submission{ID: id, Workflow: "order-fulfilment", Input: []byte(`{"card":"declined"}`)}); err != nil {
			s.Fatal(err)
		}
		if o := s.order(id, projections.Error); o.Alert == nil || o.Steps[1].Error == nil || o.Steps[1].Error.Code != "card-declined" {
			s.Errorf("order %+v", o)
		}
	}
	var walked []Alert
	for after := ""; ; {
		page, err := s.client.Alerts(s.Context(), 1, after)
		if err != nil {
			s.Fatal(err)
		}
		walked = append(walked, page.Alerts...)
		if after = page.Next; after == "" {
			break
		}
	}
	if len(walked) != 3 || !slices.IsSortedFunc(walked, func(a, b Alert) int { return b.At.Compare(a.At.Time) }) {
		s.Errorf("alerts: %+v", walked)
	}
	if a := walked[0]; a.Step == nil || *a.Step != "charge" || len(a.Errors) != 1 || a.Reason == "" {
		s.Errorf("alert: %+v", a)
	}
	all, err := s.client.AlertReasons(s.Context(), 2)
	if err != nil || all.More || len(all.Reasons) != 1 || all.Reasons[0].Reason != events.AboutError || all.Reasons[0].Number != 3 || len(all.Reasons[0].Oldest) != 2 || all.Reasons[0].Oldest[0].Order != walked[2].Order {
		s.Errorf("by reason: %+v, %v", all, err)
	}
	charge := "charge"
	if want := []AlertsAt{{"order-fulfilment", &charge, false, 3}}; err == nil && !reflect.DeepEqual(all.Reasons[0].At, want) {
		s.Errorf("they are about %+v", all.Reasons[0].At)
	}
	for reason, want := range map[events.AlertReason]int{events.AboutError: 3, events.AboutHeld: 0} {
		page, err := s.client.AlertsAbout(s.Context(), reason, 10, "")
		if err != nil || len(page.Alerts) != want || want > 0 && page.Alerts[0].Order != walked[2].Order {
			s.Errorf("about %s: %+v, %v", reason, page, err)
		}
	}
}

// testHungUp lists orders and alerts for somebody who has hung up.
func (s *stage) testHungUp() {
	gone, hangUp := context.WithCancel(s.Context())
	hangUp()
	for _, path := range []string{"/api/v1/orders", "/api/v1/alerts"} {
		said := httptest.NewRecorder()
		s.server.ServeHTTP(said, httptest.NewRequestWithContext(gone, http.MethodGet, path, http.NoBody))
		if said.Code != http.StatusServiceUnavailable {
			s.Errorf("%s went on to the end: %d %.100s", path, said.Code, said.Body)
		}
	}
	said := httptest.NewRecorder()
	submission := httptest.NewRequestWithContext(gone, http.MethodPost, "/api/v1/orders", strings.NewReader(`{"workflow":"order-fulfilment","input":{"total":1}}`))
	submission.Header.Set("Content-Type", "application/json")
	s.server.ServeHTTP(said, submission)
	if said.Code != http.StatusServiceUnavailable {
		s.Errorf("a submission went on to the end: %d %.100s", said.Code, said.Body)
	}
}

func (s *stage) testPartitions() {
	heads, err := s.client.Partitions(s.Context())
	if err != nil || len(heads) != waybill.Partitions || heads[0].Owner == nil || *heads[0].Owner != "i-1" || heads[0].ClaimedAt == nil {
		s.Fatalf("%+v, %v", heads, err)
	}
	for _, head := range heads {
		if !head.Known || head.Behind == nil || *head.Behind != 0 {
			s.Errorf("what it serves it knows, and is not behind: %+v", head)
		}
	}
	for p := range int32(waybill.Partitions) {
		var want, got []string
		var at int64
		if err := s.instance.Store().Dump(p, func(h projections.Head) error { at = h.Offset; return nil }, func(k, v []byte) error {
			want = append(want, fmt.Sprintf("%x %x", k, v))
			return nil
		}); err != nil {
			s.Fatal(err)
		}
		err := s.client.Projection(s.Context(), p, func(head Partition) error {
			if head.Offset != at || head.Partition != p {
				s.Errorf("head %+v, and the store is at %d", head, at)
			}
			return nil
		}, func(e Entry) error {
			got = append(got, fmt.Sprintf("%s %x", e.Key, e.Value))
			return nil
		})
		if err != nil || len(got) == 0 || !slices.Equal(got, want) {
			s.Errorf("partition %d: %d keys of %d, %v", p, len(got), len(want), err)
		}
	}
	for p, want := range map[int32]int{0: http.StatusConflict, waybill.Partitions: http.StatusNotFound} {
		var problem *Problem
		if _, err := s.client.SkipLost(s.Context(), p, &Act{By: "ann"}); !errors.As(err, &problem) || problem.Status != want {
			s.Errorf("inputs that partition %d has not lost are passed over: %v", p, err)
		}
	}
}

func (s *stage) testProblems() {
	big := `{"workflow":"order-fulfilment","input":"` + strings.Repeat("x", events.MaxValue) + `"}`
	for _, c := range []struct {
		request
		status int
		says   string
	}{
		{request{method: "POST", path: "/api/v1/orders", body: `{}`}, 422, "workflow"},
		{request{method: "POST", path: "/api/v1/orders", body: `{"workflow":""}`}, 422, "workflow"},
		{request{method: "POST", path: "/api/v1/orders", body: ``}, 400, "body"},
		{request{method: "POST", path: "/api/v1/orders", body: `{"workflow":`}, 400, ""},
		{request{method: "POST", path: "/api/v1/orders", body: `[]`}, 422, ""},
		{request{method: "POST", path: "/api/v1/orders", body: `{"workflow":"w","priority":"urgent"}`}, 422, "high, normal, low"},
		{request{method: "POST", path: "/api/v1/orders", body: `{"workflow":"w","version":-1}`}, 422, "version"},
		{request{method: "POST", path: "/api/v1/orders", body: `{"workflow":"w","deadline":"tomorrow"}`}, 422, "deadline"},
		{request{method: "POST", path: "/api/v1/orders", body: `{"workflow":"w","id":"` + strings.Repeat("ü", 129) + `"}`}, 422, "256"},
		{request{method: "POST", path: "/api/v1/orders", body: "{\"workflow\":\"w\",\"id\":\"\xff\"}"}, 400, "UTF-8"},
		{request{method: "POST", path: "/api/v1/orders", body: big}, 413, "at most 1048576"},
		{request{method: "POST", path: "/api/v1/orders", body: big + big}, 413, "too large"},
		{request{method: "POST", path: "/api/v1/orders", body: `{"workflow":"w"}`, header: http.Header{"Content-Type": {"application/json"}, "Sec-Fetch-Site": {"cross-site"}}}, 403, "origins"},
		{request{method: "POST", path: "/api/v1/orders", body: `{"workflow":"w"}`, header: http.Header{"Content-Type": {"text/html"}}}, 415, ""},
		{request{path: "/api/v1/orders/none"}, 404, "none"},
		{request{path: "/api/v1/orders/none/history"}, 404, "none"},
		{request{path: "/api/v1/orders/none/history?limit=1001"}, 422, "limit"},
		{request{path: "/api/v1/orders/none/history?after=-1"}, 422, "after"},
		{request{path: "/api/v1/orders/none/history?after=x"}, 422, "after"},
		{request{path: "/api/v1/orders/%ff"}, 404, ""},
		{request{path: "/api/v1/orders?state=Lost"}, 422, "Pending"},
		{request{path: "/api/v1/orders?limit=0"}, 422, "limit"},
		{request{path: "/api/v1/orders?limit=1001"}, 422, "limit"},
		{request{path: "/api/v1/orders?after=!"}, 422, "next"},
		{request{path: "/api/v1/orders?since=yesterday"}, 422, "since"},
		{request{path: "/api/v1/orders?since=2030-01-02T00:00:00Z&until=2030-01-01T00:00:00Z"}, 422, "nothing between"},
		{request{path: "/api/v1/orders?sort=priority&workflow=w"}, 422, "accepted"},
		{request{path: "/api/v1/orders?sort=accepted"}, 422, "takes workflow"},
		{request{path: "/api/v1/orders?sort=accepted&workflow=w&where=a%3Db"}, 422, "takes workflow"},
		{request{path: "/api/v1/alerts?after=!"}, 422, "next"},
		{request{path: "/api/v1/alerts?reason=approval"}, 422, "held"},
		{request{path: "/api/v1/alerts?after=eA"}, 422, "next"},
		{request{path: "/api/v1/partitions/3/projection"}, 404, "from 0"},
		{request{path: "/api/v1/partitions/x/projection"}, 422, ""},
		{request{path: "/api/v1/partitions/-1/projection"}, 422, ""},
		{request{path: "/api/v1/partitions/2147483647/projection"}, 404, "from 0"},
		{request{path: "/api/v1/partitions/2147483648/projection"}, 404, "from 0"},
		{request{path: "/api/v1/partitions/4294967295/projection"}, 404, "from 0"},
		{request{path: "/api/v1/partitions/4294967296/projection"}, 404, "from 0"},
		{request{path: "/api/v1/partitions/9223372036854775808/projection"}, 422, ""},
		{request{path: "/api/v1/nothing"}, 404, "openapi.json"},
		{request{path: "/"}, 404, "openapi.json"},
		{request{method: "DELETE", path: "/api/v1/orders"}, 405, "GET or POST"},
		{request{method: "POST", path: "/healthz"}, 405, "GET"},
	} {
		status, header, body := s.ask(c.request)
		name := fmt.Sprintf("%s %s %.60s", c.method, c.path, c.body)
		if status != c.status || header.Get("Content-Type") != "application/problem+json" || !strings.Contains(body, c.says) {
			s.Errorf("%s: %d instead of %d, %s: %.300s", name, status, c.status, header.Get("Content-Type"), body)
		}
		var p Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil || p.Status != status || p.Title == "" || p.Detail == "" {
			s.Errorf("%s: not a problem document: %.300s", name, body)
		}
		typeIs(s.T, &p)
	}
}

func (s *stage) testOpenAPI() {
	_, _, body := s.ask(request{path: "/openapi.json"})
	var spec struct {
		OpenAPI string                    `json:"openapi"`
		Paths   map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal([]byte(body), &spec); err != nil {
		s.Fatal(err)
	}
	var routes []string
	for path, methods := range spec.Paths {
		for method := range methods {
			routes = append(routes, method+" "+path)
		}
	}
	slices.Sort(routes)
	want := []string{
		"delete /api/v1/limits/{name}", "delete /api/v1/schedules/{name}", "get /api/v1/activity", "get /api/v1/agents", "get /api/v1/alerts", "get /api/v1/alerts/reasons", "get /api/v1/approvals", "get /api/v1/bulk", "get /api/v1/bulk/{id}", "get /api/v1/bulk/{id}/orders", "get /api/v1/caller", "get /api/v1/dead-letters", "get /api/v1/dead-letters/{partition}/{offset}", "get /api/v1/keys", "get /api/v1/limits", "get /api/v1/limits/{name}",
		"get /api/v1/orders", "get /api/v1/orders/{id}", "get /api/v1/orders/{id}/events", "get /api/v1/orders/{id}/history", "get /api/v1/orders/{id}/history/{seq}", "get /api/v1/orders/{id}/migration", "get /api/v1/orders/{id}/steps/{step}/items", "get /api/v1/partitions", "get /api/v1/partitions/{partition}/projection",
		"get /api/v1/schedules", "get /api/v1/schedules/{name}", "get /api/v1/schedules/{name}/preview", "get /api/v1/signals/waiting", "get /api/v1/upgrade", "get /api/v1/workflows", "get /api/v1/workflows/{name}",
		"get /api/v1/workflows/{name}/versions", "post /api/v1/bulk", "post /api/v1/bulk/{id}/start", "post /api/v1/bulk/{id}/stop", "post /api/v1/dead-letters/{partition}/{offset}/discard", "post /api/v1/dead-letters/{partition}/{offset}/replay", "post /api/v1/orders", "post /api/v1/orders/{id}/cancel", "post /api/v1/orders/{id}/change", "post /api/v1/orders/{id}/decide",
		"post /api/v1/orders/{id}/label", "post /api/v1/orders/{id}/migrate", "post /api/v1/orders/{id}/pause", "post /api/v1/orders/{id}/release", "post /api/v1/orders/{id}/rerun", "post /api/v1/orders/{id}/resubmit",
		"post /api/v1/orders/{id}/resume", "post /api/v1/orders/{id}/signals", "post /api/v1/orders/{id}/skip-step", "post /api/v1/orders/{id}/terminate", "post /api/v1/partitions/{partition}/skip-lost", "post /api/v1/schedules/{name}/backfill", "post /api/v1/schedules/{name}/pause",
		"post /api/v1/schedules/{name}/resume", "post /api/v1/signals", "post /api/v1/upgrade/finish", "post /api/v1/workflows", "post /api/v1/workflows/{name}/retire", "put /api/v1/limits/{name}", "put /api/v1/schedules/{name}",
	}
	if !strings.Contains(body, `"examples":[{"total":42}]`) || !strings.Contains(body, `"examples":["o-1"]`) {
		s.Error("nothing shows what a submission is")
	}
	if !slices.Equal(routes, want) || !strings.HasPrefix(spec.OpenAPI, "3.") {
		s.Errorf("OpenAPI %s: %q", spec.OpenAPI, routes)
	}
}

func (s *stage) testHealth() {
	if status, _, _ := s.ask(request{path: "/healthz"}); status != 200 {
		s.Errorf("healthz: %d", status)
	}
	if status, _, body := s.ask(request{path: "/readyz"}); status != 200 {
		s.Errorf("readyz: %d %s", status, body)
	}
	status, _, body := s.ask(request{path: "/metrics"})
	for _, want := range []string{"waybill_owned_partitions 3\n", "waybill_behind_records 0\n", "waybill_ready 1\n", "go_build_info", "process_start_time", "waybill_kafka_connects_total"} {
		if status != 200 || !strings.Contains(body, want) {
			s.Errorf("metrics: %d, no %q", status, want)
		}
	}
}

// idle returns an instance that does not run.
func idle(t *testing.T, change ...func(*orchestrator.Config)) *orchestrator.Instance {
	t.Helper()
	w := waybill.New(t)
	cfg := orchestrator.Config{
		ID: "i-1", Namespace: w.Topics.Namespace, DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(w.Broker.Brokers...)},
	}
	for _, change := range change {
		change(&cfg)
	}
	i, err := orchestrator.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	return i
}

// S5: an instance is not ready before it serves. A stream that breaks off is not
// taken for a whole one: net/http cuts the connection when it is told so.
func TestAnInstanceThatDoesNotRun(t *testing.T) {
	s := New(Config{})
	s.Attach(idle(t))
	defer s.Detach(errors.New("over"))
	said := httptest.NewRecorder()
	s.ServeHTTP(said, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody))
	if body := said.Body.String(); said.Code != http.StatusServiceUnavailable || !strings.Contains(body, "the group has not assigned partitions yet") {
		t.Errorf("readyz: %d %s", said.Code, body)
	}

	defer func() {
		if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("a stream that nobody could read ended with %v", err)
		}
	}()
	s.ServeHTTP(&deafWriter{}, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/partitions/0/projection", http.NoBody))
}

// S6: what uses the instance is ended by Detach, which waits for it. Meanwhile health
// and metrics are told, and a new request is not begun.
func TestDetachEndsRequests(t *testing.T) {
	s := New(Config{})
	s.Attach(&orchestrator.Instance{})
	_, ctx, done, err := s.use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	detached := make(chan struct{})
	go func() {
		s.Detach(errors.New("over"))
		close(detached)
	}()
	<-ctx.Done()
	for path, want := range map[string]int{"/healthz": 200, "/metrics": 200, "/readyz": 503, "/api/v1/orders": 503} {
		said := httptest.NewRecorder()
		s.ServeHTTP(said, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if said.Code != want || want == 503 && !strings.Contains(said.Body.String(), "over") {
			t.Errorf("%s while a request ends: %d %s", path, said.Code, said.Body)
		}
	}
	select {
	case <-detached:
		t.Error("it did not wait for the request")
	default:
	}
	done()
	<-detached
}

func TestClientIsFarFromAServer(t *testing.T) {
	if _, err := NewClient("ftp://x"); err == nil {
		t.Error("a server with another scheme was taken")
	}
	for server, base := range map[string]string{":8080": "http://localhost:8080", "https://:8443/a": "https://localhost:8443/a", "wb": "http://wb"} {
		c, err := NewClient(server)
		if err != nil || c.base != base {
			t.Errorf("%s: %+v, %v", server, c, err)
			continue
		}
		c.Close()
	}
	listener := httptest.NewServer(http.NotFoundHandler())
	c, err := NewClient(listener.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Order(t.Context(), "o-1"); err == nil || !strings.Contains(err.Error(), "is it a Waybill") {
		t.Errorf("a server that is no Waybill: %v", err)
	}
	listener.Close()
	if _, err := c.Order(t.Context(), "o-1"); !errors.Is(err, ErrAway) || !strings.Contains(err.Error(), "waybill dev") {
		t.Errorf("no server: %v", err)
	}
	if _, err := c.Order(t.Context(), string(bytes.Repeat([]byte("x"), 257))); err == nil {
		t.Error("an id that cannot be one was asked for")
	}
}

// Whoever hangs up before the answer is answered once, and nobody complains.
func TestHangingUp(t *testing.T) {
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	w := &deafWriter{}
	New(Config{}).ServeHTTP(w, httptest.NewRequestWithContext(gone, http.MethodGet, "/api/v1/orders", http.NoBody))
	if want := []int{http.StatusServiceUnavailable}; !slices.Equal(w.said, want) {
		t.Errorf("the status was set to %v, want %v", w.said, want)
	}
}

// Of what Kafka does not take the log says so, but not once for each request, and how often it said nothing: of each kind for itself.
func TestWhatKafkaDoesNotTakeIsToldNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := New(Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		away := errors.New("Kafka is away")
		for what, fail := range map[string]func() error{
			"a submission failed":            func() error { return s.notSubmitted("o", away) },
			"a submission was given up":      func() error { return s.notSubmitted("o", fmt.Errorf("submit: %w", context.Canceled)) },
			"a command was not taken":        func() error { return s.commandError("o", &events.Command{}, away) },
			"a signal was not taken":         func() error { return s.signalError(&signalInput{}, away) },
			"the dead letters do not answer": func() error { return s.letterError("list", away) },
		} {
			log.Reset()
			for range 1000 {
				if fail() == nil {
					t.Errorf("%s: no error", what)
				}
			}
			if n := strings.Count(log.String(), what); n != 10 || strings.Contains(log.String(), "unsaid") {
				t.Errorf("of a thousand the log has %d lines: %s", n, what)
			}
			log.Reset()
			time.Sleep(7 * time.Second)
			for range 2 {
				_ = fail()
			}
			if got := log.String(); strings.Count(got, what) != 1 || !strings.Contains(got, "unsaid=990") {
				t.Errorf("after a while the log has %q", got)
			}
		}
	})
}

// deafWriter is the answer to somebody who has hung up.
type deafWriter struct{ said []int }

func (w *deafWriter) Header() http.Header       { return http.Header{} }
func (w *deafWriter) WriteHeader(status int)    { w.said = append(w.said, status) }
func (w *deafWriter) Write([]byte) (int, error) { return 0, syscall.EPIPE }

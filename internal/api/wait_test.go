package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

// submits submits an order and returns the answer.
func (s *stage) submits(query, body string, status int, header ...string) (r Receipt, said http.Header, answer string) {
	s.Helper()
	h := http.Header{"Content-Type": {"application/json"}}
	for n := 0; n < len(header); n += 2 {
		h.Set(header[n], header[n+1])
	}
	got, said, answer := s.ask(request{method: "POST", path: "/api/v1/orders" + query, body: body, header: h})
	if got != status {
		s.Fatalf("%s %s: %d instead of %d: %s", query, body, got, status, answer)
	}
	if err := json.Unmarshal([]byte(answer), &r); err != nil {
		s.Fatal(err)
	}
	return r, said, answer
}

// gets reads an order.
func (s *stage) gets(query string, status int, header ...string) (o *Order, said http.Header, answer string) {
	s.Helper()
	h := http.Header{}
	for n := 0; n < len(header); n += 2 {
		h.Set(header[n], header[n+1])
	}
	got, said, answer := s.ask(request{path: "/api/v1/orders/" + query, header: h})
	if got != status {
		s.Fatalf("%s %v: %d instead of %d: %s", query, header, got, status, answer)
	}
	if status == http.StatusOK {
		if err := json.Unmarshal([]byte(answer), &o); err != nil {
			s.Fatal(err)
		}
	}
	return o, said, answer
}

// testWait has submissions and reads wait for what becomes of an order.
func (s *stage) testWait() {
	r, header, _ := s.submits("?wait=30s", `{"id":"waited","workflow":"order-fulfilment","input":{"total":1}}`, http.StatusOK)
	if r.Order == nil || r.Order.ProcessState != projections.Processed || r.Digest == "" || header.Get("Location") != "/api/v1/orders/waited" || header.Get("Preference-Applied") != "" {
		s.Errorf("%+v %v", r, header)
	}
	// The same again is answered at once, and as a wish it is 30 seconds at most.
	if r, header, _ := s.submits("", `{"id":"waited","workflow":"order-fulfilment","input":{"total":1}}`, http.StatusOK, "Prefer", `respond-async, wait="100"; x=y`); r.Order == nil || header.Get("Preference-Applied") != "wait=30" {
		s.Errorf("%+v %v", r, header)
	}
	if r, _, _ := s.submits("?wait=30", `{"workflow":"order-fulfilment","input":{"card":"declined"}}`, http.StatusOK); r.Order == nil || r.Order.ProcessState != projections.Error || r.Order.Alert == nil {
		s.Errorf("one that waits for an operator: %+v", r.Order)
	}
	if r, _, _ := s.submits("?wait=30s", `{"workflow":"order-fulfilment","deadline":"2001-01-01T00:00:00Z"}`, http.StatusOK); r.Order == nil || r.Order.ProcessState != projections.Rejected {
		s.Errorf("one that is rejected: %+v", r.Order)
	}
	s.listens("listens")
	if r, _, _ := s.submits("?wait=1s", `{"id":"listens","workflow":"listens"}`, http.StatusAccepted); r.Order == nil || r.Order.ProcessState != projections.Pending {
		s.Errorf("one that has not ended: %+v", r.Order)
	}
	if r, header, _ := s.submits("", `{"id":"listens","workflow":"listens"}`, http.StatusAccepted, "Prefer", "wait=never"); r.Order != nil || header.Get("Preference-Applied") != "" {
		s.Errorf("a wish that nobody understands: %+v %v", r, header)
	}
	for _, wait := range []string{"31s", "x", "-1s", "1h", "99999999999s"} {
		if _, _, answer := s.submits("?wait="+wait, `{"workflow":"order-fulfilment"}`, http.StatusUnprocessableEntity); !strings.Contains(answer, "a number of seconds up to 30") {
			s.Error(answer)
		}
		s.gets("listens?wait="+wait, http.StatusUnprocessableEntity)
	}
	s.gets("nothing?wait=1s", http.StatusNotFound)

	// A reader is told of an order that comes, and of one that changes.
	_, header, _ = s.gets("listens", http.StatusOK)
	tag := header.Get("ETag")
	if !strings.HasPrefix(tag, `W/"`) {
		s.Fatalf("the tag is %q", tag)
	}
	come, changed := make(chan *Order, 1), make(chan *Order, 1)
	go func() {
		o, _, _ := s.gets("comes?wait=30s", http.StatusOK)
		come <- o
	}()
	go func() {
		o, header, _ := s.gets("listens", http.StatusOK, "If-None-Match", tag, "Prefer", "wait=30")
		if header.Get("ETag") == tag || header.Get("Preference-Applied") != "wait=30" {
			s.Errorf("it has changed: %v", header)
		}
		changed <- o
	}()
	s.submits("", `{"id":"comes","workflow":"order-fulfilment"}`, http.StatusAccepted)
	if o := <-come; o.ProcessState != projections.Processed {
		s.Errorf("%+v", o)
	}
	s.tells("listens", `{"signal":"go"}`)
	if o := <-changed; o.Steps[0].State != projections.Completed {
		s.Errorf("%+v", o.Steps)
	}
}

// testUnchanged reads an order only if it has changed.
func (s *stage) testUnchanged() {
	_, header, _ := s.gets("waited", http.StatusOK)
	tag := header.Get("ETag")
	for _, match := range []string{tag, strings.TrimPrefix(tag, "W/"), `"other", ` + tag, "*"} {
		if _, header, answer := s.gets("waited", http.StatusNotModified, "If-None-Match", match); answer != "" || header.Get("ETag") != tag {
			s.Errorf("%s: %v %q", match, header, answer)
		}
	}
	if _, header, _ := s.gets("waited?wait=1s", http.StatusNotModified, "If-None-Match", tag); header.Get("Preference-Applied") != "" {
		s.Errorf("%v", header)
	}
	s.gets("waited", http.StatusOK, "If-None-Match", `"other"`)
	s.act("waited", "label", `{"labels":{"seen":"yes"}}`, http.StatusOK)
	s.until(func() bool { // the answer to a command may be before what was written
		_, header, _ := s.gets("waited", http.StatusOK)
		return header.Get("ETag") != tag
	})
	s.gets("waited", http.StatusOK, "If-None-Match", tag)

	// It is by how the orders stand that do its steps, too.
	s.nests()
	s.atRest("tags")
	o, _, err := s.instance.Order("tags")
	if err != nil {
		s.Fatal(err)
	}
	before := tagOf(identity.Anybody, s.instance, o)
	o.Steps[1].Child = &projections.Child{ID: "waited"}
	if after := tagOf(identity.Anybody, s.instance, o); after == before {
		s.Errorf("with a child that stands otherwise it is %s", after)
	}
}

// testReadAtOnce reads each order right behind its submission.
func (s *stage) testReadAtOnce() {
	for n := range 100 {
		id := fmt.Sprint("at-once-", n)
		s.submits("", `{"id":"`+id+`","workflow":"order-fulfilment"}`, http.StatusAccepted)
		s.gets(id, http.StatusOK)
	}
	// Where it comes to light late that another submission made the order.
	i, _, done, err := s.server.use(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	defer done()
	var status huma.StatusError
	if _, err := s.server.submitted(s.Context(), i, "at-once-0", "another", new(waiting)); !errors.As(err, &status) || status.GetStatus() != http.StatusConflict {
		s.Errorf("another: %v", err)
	}
}

// testRefusedAtOnce submits what would be rejected.
func (s *stage) testRefusedAtOnce() {
	if _, err := s.client.Register(s.Context(), "w.yaml", []byte("workflow: picky\ninput: {type: object, required: [policy]}\nsteps: [{name: nap, sleep: 1ms}]\n")); err != nil {
		s.Fatal(err)
	}
	for body, says := range map[string]string{
		`{"id":"refused","workflow":"nobody-knows"}`:                    "nothing was submitted: workflow nobody-knows is not registered",
		`{"id":"refused","workflow":"picky","version":9}`:               "workflow picky@9 is not registered",
		`{"id":"refused","workflow":"picky","input":{"other":1}}`:       "nothing was submitted: /policy is missing",
		`{"id":"refused","workflow":"picky","version":1,"input":[]}`:    "nothing was submitted: ",
		`{"id":"refused","workflow":"picky"}`:                           "nothing was submitted: ",
		`{"id":"refused","workflow":"picky","version":1,"input":"\t" }`: "nothing was submitted: ",
	} {
		if _, _, answer := s.submits("?wait=30s", body, http.StatusUnprocessableEntity); !strings.Contains(answer, says) || !strings.Contains(answer, wouldBeRejected.uri()) {
			s.Errorf("%s: %s", body, answer)
		}
	}
	s.gets("refused", http.StatusNotFound)
	s.submits("?wait=30s", `{"id":"refused","workflow":"picky","input":{"policy":1}}`, http.StatusOK)

	// One that was rejected is there, and so the same again is a repeat of it.
	if _, err := s.instance.Submit(s.Context(), "refused-before", &events.Submission{Workflow: "nobody-knows"}, orchestrator.Context{}, nil); err != nil {
		s.Fatal(err)
	}
	s.order("refused-before", projections.Rejected)
	s.submits("", `{"id":"refused-before","workflow":"nobody-knows"}`, http.StatusAccepted)
}

// testWaiters: those that wait take no place of others, and are so many at most.
func (s *stage) testWaiters() {
	server := New(Config{Requests: 1})
	i, _, done, err := s.server.use(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	defer done()
	server.Attach(i)
	listener := httptest.NewServer(server)
	defer listener.Close()
	defer server.Detach(errors.New("over"))
	small := *s
	small.url = listener.URL

	waited := make(chan struct{}, waitersPerPlace)
	for n := range waitersPerPlace {
		go small.asksAgain(waited, func() int { // there is one place to come by
			status, _, _ := small.ask(request{path: fmt.Sprintf("/api/v1/orders/waiter-%d?wait=30s", n)})
			return status
		})
	}
	s.until(func() bool { return len(server.shares.resting) == waitersPerPlace && len(server.shares.places) == 0 })
	if _, header, answer := small.gets("waited?wait=1s", http.StatusServiceUnavailable); header.Get("Retry-After") == "" || !strings.Contains(answer, "8 requests wait, which is the most") {
		s.Errorf("one more: %v %s", header, answer)
	}
	if _, header, _ := small.gets("waited", http.StatusOK, "Prefer", "wait=1"); header.Get("Preference-Applied") != "" {
		s.Errorf("one that but wishes to: %v", header)
	}
	small.submits("?wait=1s", `{"workflow":"order-fulfilment"}`, http.StatusServiceUnavailable)
	for n := range waitersPerPlace {
		s.submits("", fmt.Sprintf(`{"id":"waiter-%d","workflow":"order-fulfilment"}`, n), http.StatusAccepted)
	}
	s.until(func() bool {
		return len(waited) == waitersPerPlace && len(server.shares.resting) == 0 && len(server.shares.places) == 0
	})
}

// asksAgain asks about an order until it is told how that stands, which it says, or the test ends. Fewer may come by at a time
// than ask, and an order may come later than a request waits for it. It asks less and less often: a thousand that ask an instance
// a hundred times a second which heard too little of Kafka leave it no time to hear more.
func (s *stage) asksAgain(told chan<- struct{}, ask func() int) {
	for pause := 10 * time.Millisecond; ask() != http.StatusOK; pause = min(2*pause, 2*time.Second) {
		select {
		case <-time.After(pause):
		case <-s.Context().Done():
			return
		}
	}
	told <- struct{}{}
}

// A thousand who wait for an order take no place of others, and all are told once it stands.
func (s *stage) testAThousandWait() {
	const many = 1000
	server := New(Config{Requests: many / waitersPerPlace})
	server.Attach(s.instance)
	defer server.Detach(errors.New("over"))
	var asked atomic.Int64
	ask := func(path string) int {
		asked.Add(1)
		said := httptest.NewRecorder()
		server.ServeHTTP(said, httptest.NewRequestWithContext(s.Context(), http.MethodGet, path, http.NoBody))
		return said.Code
	}
	waited := make(chan struct{}, many)
	for range many {
		go s.asksAgain(waited, func() int { return ask("/api/v1/orders/thousand?wait=30s") })
	}
	s.until(func() bool { return len(server.shares.resting) == many && len(server.shares.places) == 0 })
	if status := ask("/api/v1/orders/waited"); status != http.StatusOK {
		s.Errorf("who does not wait: %d", status)
	}
	before := asked.Load()
	s.submits("", `{"id":"thousand","workflow":"order-fulfilment"}`, http.StatusAccepted)
	s.until(func() bool { return len(waited) == many })
	if asked.Load()-before >= many {
		s.Error("all had to ask again")
	}
}

// Who may not see orders does not follow them, and who may not read payloads gets none with a receipt.
func TestWhoWaits(t *testing.T) {
	s, keys := known(t, slog.New(slog.DiscardHandler), map[string]string{
		"root": "roles: [admin]", "blind": "roles: [submitter]", "sub": "roles: [submitter, viewer], workflows: [leaky]",
	})
	const body = `{"workflow":"leaky","input":{"who":"canary"}}`
	as := func(who string) *stage {
		own := *s
		own.token = keys[who]
		return &own
	}
	if _, _, answer := as("blind").submits("?wait=30s", body, http.StatusForbidden); !strings.Contains(answer, "viewer") {
		t.Error(answer)
	}
	if r, header, _ := as("blind").submits("", body, http.StatusAccepted, "Prefer", "wait=30"); r.Order != nil || header.Get("Preference-Applied") != "" {
		t.Errorf("%+v %v", r, header)
	}
	r, _, answer := as("sub").submits("?wait=30s", body, http.StatusOK)
	if r.Order == nil || !r.Order.Masked || strings.Contains(answer, "canary") {
		t.Error(answer)
	}
	if r, _, answer := s.submits("?wait=30s", body, http.StatusOK); r.Order == nil || !strings.Contains(answer, "canary") {
		t.Error(answer)
	}
	_, seen, _ := as("sub").gets(r.OrderID, http.StatusOK)
	if _, all, _ := s.gets(r.OrderID, http.StatusOK); all.Get("ETag") == seen.Get("ETag") || seen.Get("ETag") == "" {
		t.Errorf("two who see another body are told %v", seen)
	}
	// One that is hidden is waited for as one that is not there.
	s.failed("hidden", "other")
	begin := time.Now()
	if as("sub").gets("hidden?wait=1s", http.StatusNotFound); time.Since(begin) < time.Second {
		t.Error("it shows that there is one")
	}
}

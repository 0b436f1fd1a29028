package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/projections"
)

// prepare has the orders of a bulk act looked up.
func (s *stage) prepare(r *BulkRequest) *Bulk {
	s.Helper()
	b, err := s.client.PrepareBulk(s.Context(), r)
	if err != nil {
		s.Fatal(err)
	}
	return b
}

// ended waits until a bulk act is carried out no more.
func (s *stage) ended(id string) (b *Bulk) {
	s.Helper()
	s.until(func() bool {
		var err error
		b, err = s.client.Bulk(s.Context(), id)
		return err == nil && b.EndedAt != nil
	})
	return b
}

// A bulk act is about what was looked up, and nothing else: what is no longer under the filter, or failed anew, is
// left as it is, and what came later is counted. Its record stays with the instance's directory.
func TestBulk(t *testing.T) {
	dir := t.TempDir()
	s := newStage(t, func(cfg *Config) { cfg.Bulk = dir })
	s.attach()
	s.testWorkflows()
	for n := range 5 {
		s.declined(fmt.Sprintf("b-%d", n))
	}
	b := s.prepare(&BulkRequest{Act: Act{By: "ann", Note: "the bank is back"}, Command: events.CommandResubmit, Filter: BulkFilter{Workflow: "order-fulfilment"}})
	if b.State != BulkPrepared || b.Matched != 5 || b.More || b.StartedAt != nil || *b.By != "ann" || b.Newer != nil {
		t.Fatalf("prepared: %+v", b)
	}
	s.act("b-0", "terminate", `{"note":"it burnt down"}`, 200)
	s.act("b-1", "resubmit", `{}`, 200)
	again := s.order("b-1", projections.Error)
	s.until(func() bool { // it failed anew
		again = s.order("b-1", projections.Error)
		return again.FailureCount == 2
	})
	s.declined("later")
	before := s.history("b-1")

	if b, err := s.client.StartBulk(t.Context(), b.ID); err != nil || b.State == BulkPrepared {
		t.Fatalf("start: %+v, %v", b, err)
	}
	done := s.ended(b.ID)
	if done.State != BulkDone || done.Done != 3 || done.Left != 2 || done.Failed != 0 || done.Newer == nil || *done.Newer != 1 {
		t.Fatalf("done: %+v", done)
	}
	for _, id := range []string{"b-2", "b-3", "b-4"} {
		commands := 0
		for _, e := range s.history(id) {
			if e.Type == events.OrderResubmitted && e.Command == b.ID && e.By == "ann" && e.Reason == "the bank is back" {
				commands++
			}
		}
		if commands != 1 {
			t.Errorf("%s was resubmitted %d times", id, commands)
		}
	}
	if now := s.history("b-1"); len(now) != len(before) {
		t.Errorf("b-1, which had failed anew, has %d events more", len(now)-len(before))
	}
	if len(s.history("later")) == 0 || s.order("later", projections.Error).FailureCount != 1 {
		t.Error("what came later was acted on")
	}
	page, err := s.client.BulkOrders(t.Context(), b.ID, 3, 0)
	if err != nil || len(page.Orders) != 3 || page.Next != 3 {
		t.Fatalf("its orders: %+v, %v", page, err)
	}
	rest, err := s.client.BulkOrders(t.Context(), b.ID, 3, page.Next)
	if err != nil || len(rest.Orders) != 2 || rest.Next != 0 {
		t.Fatalf("the rest: %+v, %v", rest, err)
	}
	for _, o := range append(page.Orders, rest.Orders...) {
		want := OutcomeDone
		if o.OrderID == "b-0" || o.OrderID == "b-1" {
			want = OutcomeLeft
		}
		if o.Outcome != want || o.State != projections.Error || o.Seq == 0 {
			t.Errorf("%+v instead of %s", o, want)
		}
	}

	// Started twice, it is carried out once.
	if again, err := s.client.StartBulk(t.Context(), b.ID); err != nil || again.State != BulkDone || again.Done != 3 {
		t.Errorf("again: %+v, %v", again, err)
	}
	s.with("of before", func(s *stage) { // the same, as an instance has it that was restarted
		own := *s
		own.server = New(Config{Bulk: dir})
		listener := httptest.NewServer(own.server)
		defer listener.Close()
		own.url = listener.URL
		own.server.Attach(s.instance)
		defer own.server.Detach(errors.New("over"))
		if status, _, answer := own.ask(request{method: "POST", path: "/api/v1/bulk/" + b.ID + "/start"}); status != 200 || !strings.Contains(answer, `"done":3`) {
			s.Errorf("%d %s", status, answer)
		}
		if status, _, answer := own.ask(request{path: "/api/v1/bulk/" + b.ID + "/orders"}); status != http.StatusGone {
			s.Errorf("its orders: %d %s", status, answer)
		}
	})
	if all := openBulk(dir, slog.New(slog.DiscardHandler)).started; len(all) != 1 || all[0].record.Done != 3 || all[0].record.State != BulkDone || all[0].record.EndedAt == nil {
		t.Errorf("kept: %+v", all)
	}

	s.with("stopped", (*stage).testBulkStopped)
	s.with("left the filter", (*stage).testBulkLeft)
	s.with("too long", (*stage).testBulkTooLong)
	s.with("too many", (*stage).testBulkTooMany)
	s.with("refused", (*stage).testBulkRefused)
	s.with("what failed", (*stage).testBulkFailed)

	// With its instance it ends, and says so.
	b = s.prepare(&BulkRequest{Command: events.CommandChange, With: []byte(`{"priority":"low"}`), Filter: BulkFilter{State: projections.Error}, Rate: 1})
	if _, err := s.client.StartBulk(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	s.server.Detach(errors.New("the test detached it"))
	cut, err := s.client.Bulk(t.Context(), b.ID)
	if err != nil || cut.State != BulkCutOff || cut.Reason == nil || cut.Done >= cut.Matched || cut.Matched < 4 {
		t.Errorf("cut off: %+v, %v", cut, err)
	}
}

// A record of a process that was killed says so, and one that is damaged stops nothing.
func TestBulkOfAProcessThatWasKilled(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a.json":     `{"id":"a","state":"running","command":"cancel","filter":{"workflow":"w"},"preparedAt":"2026-01-02T03:04:05Z","startedAt":"2026-01-02T03:04:06Z","endedAt":null,"matched":9,"done":4,"failures":[]}`,
		"b.json":     `{"id":`,
		"c.json.new": `{"id":"c"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // it is said once more
		all := openBulk(dir, slog.New(slog.DiscardHandler)).started
		if len(all) != 1 || all[0].record.State != BulkCutOff || all[0].record.Done != 4 || all[0].record.Reason == nil || all[0].record.EndedAt != nil {
			t.Fatalf("%+v", all)
		}
	}
}

func (s *stage) testBulkStopped() {
	b := s.prepare(&BulkRequest{Command: events.CommandChange, With: []byte(`{"priority":"high"}`), Filter: BulkFilter{State: projections.Error}, Rate: 1})
	if _, err := s.client.StartBulk(s.Context(), b.ID); err != nil {
		s.Fatal(err)
	}
	if _, err := s.client.StopBulk(s.Context(), b.ID); err != nil {
		s.Fatal(err)
	}
	stopped := s.ended(b.ID)
	if stopped.State != BulkStopped || stopped.Reason == nil || *stopped.Reason != "by an operator" || stopped.Done >= stopped.Matched || stopped.Failed != 0 {
		s.Errorf("stopped: %+v", stopped)
	}
	// What had begun ended as it would, and is counted.
	did := 0
	page, err := s.client.BulkOrders(s.Context(), b.ID, 1000, 0)
	if err != nil {
		s.Fatal(err)
	}
	for _, o := range page.Orders {
		if slices.ContainsFunc(s.history(o.OrderID), func(e events.Event) bool { return e.Command == b.ID }) {
			did++
		}
	}
	if did != stopped.Done {
		s.Errorf("%d orders have the command, and %d are said to be done", did, stopped.Done)
	}
	if after, err := s.client.StopBulk(s.Context(), b.ID); err != nil || *after.EndedAt != *stopped.EndedAt {
		s.Errorf("stopped twice: %+v, %v", after, err)
	}

	// One that was only prepared is gone.
	b = s.prepare(&BulkRequest{Command: events.CommandCancel, Filter: BulkFilter{State: projections.Error}})
	if gone, err := s.client.StopBulk(s.Context(), b.ID); err != nil || gone.State != BulkStopped {
		s.Errorf("stopped before: %+v, %v", gone, err)
	}
	if status, _, _ := s.ask(request{method: "POST", path: "/api/v1/bulk/" + b.ID + "/start"}); status != http.StatusNotFound {
		s.Errorf("start what is gone: %d", status)
	}
}

// An order that moves on is acted on as long as it is under the filter.
func (s *stage) testBulkLeft() {
	for _, id := range []string{"l-1", "l-2", "l-3"} {
		if _, err := s.client.Submit(s.Context(), &Submission{ID: id, Workflow: "order-fulfilment", Labels: map[string]string{"team": "a"}}); err != nil {
			s.Fatal(err)
		}
		s.order(id, projections.Processed)
	}
	b := s.prepare(&BulkRequest{Command: events.CommandLabel, With: []byte(`{"labels":{"seen":"yes"}}`), Filter: BulkFilter{State: projections.Processed, Where: []string{"team=a"}}})
	s.act("l-1", "label", `{"labels":{"team":"b"}}`, 200)
	s.act("l-2", "label", `{"labels":{"other":"c"}}`, 200)
	if _, err := s.client.StartBulk(s.Context(), b.ID); err != nil {
		s.Fatal(err)
	}
	if done := s.ended(b.ID); done.Matched != 3 || done.Done != 2 || done.Left != 1 || *done.Newer != 0 {
		s.Errorf("%+v", done)
	}
	for id, want := range map[string]string{"l-1": "", "l-2": "yes", "l-3": "yes"} {
		if got := s.order(id, projections.Processed).Labels["seen"]; got != want {
			s.Errorf("%s: %q", id, got)
		}
	}
}

func (s *stage) testBulkRefused() {
	for body, says := range map[string]string{
		`{"command":"cancel","filter":{"workflow":"order-fulfilment"},"rate":0}`:                  "rate",
		`{"command":"cancel","filter":{}}`:                                                        "selects all orders",
		`{"command":"cancel","filter":{"step":"charge"}}`:                                         "selects all orders",
		`{"command":"decide","filter":{"state":"Error"}}`:                                         "one of",
		`{"command":"skip-step","filter":{"state":"Error"}}`:                                      "step",
		`{"command":"terminate","filter":{"state":"Error"}}`:                                      "note",
		`{"command":"resubmit","with":{"sameKye":true},"filter":{"state":"Error"}}`:               "sameKye",
		`{"command":"resubmit","with":{"sameKey":true,"newKey":true},"filter":{"state":"Error"}}`: "both true",
		`{"command":"resubmit","with":{"note":"x"},"note":"y","filter":{"state":"Error"}}`:        "beside with",
		`{"command":"resubmit","with":[],"filter":{"state":"Error"}}`:                             "object",
		`{"command":"label","with":{"labels":{"a.b":1},"x.y":2},"filter":{"state":"Error"}}`:      `"location":"body.with.x.y"`,
		`{"command":"migrate","with":{"toVersion":"x"},"filter":{"workflow":"order-fulfilment"}}`: "toVersion",
		`{"command":"cancel","filter":{"workflow":"order-fulfilment","where":["customer"]}}`:      "NAME=VALUE",
	} {
		status, _, answer := s.ask(request{method: "POST", path: "/api/v1/bulk", body: body})
		if status != 422 || !strings.Contains(answer, says) {
			s.Errorf("%s: %d %s", body, status, answer)
		}
	}
	if status, _, answer := s.ask(request{method: "POST", path: "/api/v1/bulk", body: `{"command":"cancel","with":null,"filter":{"state":"Error"}}`}); status != 201 {
		s.Errorf("with null: %d %s", status, answer)
	}
	for range 2 * preparedBulk { // those that were prepared first are forgotten
		s.prepare(&BulkRequest{Command: events.CommandCancel, Filter: BulkFilter{State: projections.Error}})
	}
	if all, err := s.client.Bulks(s.Context()); err != nil || len(slices.DeleteFunc(all.Acts, func(b Bulk) bool { return b.State != BulkPrepared })) != preparedBulk {
		s.Errorf("prepared: %+v, %v", all, err)
	}
}

// An act that finds as many carried out as may be is told to come again, in words for programs, too, and starts once one has ended.
func (s *stage) testBulkTooMany() {
	b := s.prepare(&BulkRequest{Command: events.CommandChange, With: []byte(`{"priority":"low"}`), Filter: BulkFilter{Where: []string{"nobody=has"}}})
	acts := s.server.bulk
	acts.mu.Lock()
	before := acts.started
	for range mostBulk {
		acts.started = append(slices.Clip(acts.started), &bulkAct{record: Bulk{State: BulkRunning, PreparedAt: b.PreparedAt, StartedAt: b.PreparedAt}})
	}
	acts.mu.Unlock()
	status, header, answer := s.ask(request{method: "POST", path: "/api/v1/bulk/" + b.ID + "/start"})
	var p Problem
	if err := json.Unmarshal([]byte(answer), &p); err != nil || status != http.StatusTooManyRequests || typeIs(s.T, &p) != string(tooManyActs) || header.Get("Retry-After") == "" {
		s.Errorf("%d %v %s", status, header, answer)
	}
	acts.mu.Lock()
	acts.started = before
	acts.mu.Unlock()
	if _, err := s.client.StartBulk(s.Context(), b.ID); err != nil {
		s.Error(err)
	}
	s.ended(b.ID)
}

// What cannot be done to an order is said of it, and the others have their turn.
func (s *stage) testBulkFailed() {
	b := s.prepare(&BulkRequest{Command: events.CommandSkipStep, With: []byte(`{"step":"nowhere"}`), Filter: BulkFilter{State: projections.Error}})
	if _, err := s.client.StartBulk(s.Context(), b.ID); err != nil {
		s.Fatal(err)
	}
	if done := s.ended(b.ID); done.State != BulkDone || done.Failed != done.Matched || len(done.Failures) != done.Matched || !strings.Contains(done.Failures[0].Reason, "nowhere") {
		s.Errorf("%+v", done)
	}
}

// Who is limited to a workflow acts on its orders alone, and sees no act that may be about others. Who may not read
// payloads does not read them here. Who prepared an act starts it.
func TestBulkOfCallers(t *testing.T) {
	s, keys := known(t, slog.New(slog.DiscardHandler), map[string]string{
		"root": "roles: [admin]", "part": "roles: [operator], workflows: [leaky]", "else": "roles: [operator, payload-reader], workflows: [other]",
		"see": "roles: [viewer], workflows: [leaky]", "op": "roles: [operator]",
	})
	s.failed("o-1", "leaky")
	s.failed("o-2", "other")
	as := func(name string) *stage { return s.as(keys[name]) }
	part := as("part")
	if _, err := part.client.PrepareBulk(t.Context(), &BulkRequest{Command: events.CommandCancel, Filter: BulkFilter{Workflow: "other"}}); problemStatus(err) != 403 {
		t.Errorf("another workflow: %v", err)
	}
	if _, err := part.client.PrepareBulk(t.Context(), &BulkRequest{Command: events.CommandCancel, Filter: BulkFilter{Where: []string{"a=b"}}}); problemStatus(err) != 403 {
		t.Errorf("by labels: %v", err)
	}
	b := part.prepare(&BulkRequest{Act: Act{Note: "canary"}, Command: events.CommandResubmit, With: []byte(`{"step":"second","newKey":true,"input":"canary"}`), Filter: BulkFilter{State: projections.Error}})
	if b.Matched != 1 || *b.By != "part" || !b.Masked || string(b.With) != "null" || b.Note != nil {
		t.Errorf("part: %+v", b)
	}
	for name, want := range map[string]int{"root": 200, "op": 200, "part": 200, "else": 404, "see": 404} {
		if _, err := as(name).client.Bulk(t.Context(), b.ID); problemStatus(err) != want {
			t.Errorf("%s: %v instead of %d", name, err, want)
		}
		if _, err := as(name).client.BulkOrders(t.Context(), b.ID, 1, 0); problemStatus(err) != want {
			t.Errorf("its orders to %s: %v instead of %d", name, err, want)
		}
		if name != "part" {
			if _, err := as(name).client.StartBulk(t.Context(), b.ID); problemStatus(err) == 200 {
				t.Errorf("%s started what part prepared", name)
			}
		}
		all, err := as(name).client.Bulks(t.Context())
		if err != nil || (len(all.Acts) == 1) != (want == 200) {
			t.Errorf("list to %s: %+v, %v", name, all, err)
		}
	}
	if _, err := part.client.StartBulk(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	if done := part.ended(b.ID); done.Done != 1 || done.State != BulkDone {
		t.Errorf("done: %+v", done)
	}
	if full, err := s.client.Bulk(t.Context(), b.ID); err != nil || full.Masked || full.Note == nil || *full.Note != "canary" {
		t.Errorf("to whom may read it: %+v, %v", full, err)
	}
	own := part.prepare(&BulkRequest{Command: events.CommandPause, Filter: BulkFilter{Workflow: "leaky", State: projections.Error}})
	if _, err := as("see").client.Bulk(t.Context(), own.ID); problemStatus(err) != 200 {
		t.Errorf("an act about leaky, to its viewer: %v", err)
	}
	if _, err := as("see").client.StopBulk(t.Context(), own.ID); problemStatus(err) != 403 {
		t.Errorf("a viewer stopped it: %v", err)
	}
}

// A look-up that takes too long prepares nothing, and says how far it came.
func (s *stage) testBulkTooLong() {
	s.server.bulk.patience = -1
	defer func() { s.server.bulk.patience = bulkPatience }()
	status, _, answer := s.ask(request{method: "POST", path: "/api/v1/bulk", body: `{"command":"cancel","filter":{"state":"Error"}}`})
	if status != http.StatusServiceUnavailable || !strings.Contains(answer, "in which 0 were found") {
		s.Errorf("%d %s", status, answer)
	}
}

// as is the stage of a caller who has that key.
func (s *stage) as(key string) *stage {
	s.Helper()
	own := *s
	own.token = key
	var err error
	if own.client, err = NewClient(s.url, WithToken(key)); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(own.client.Close)
	return &own
}

// An act is carried out with what its caller may when it starts: an order of which that was taken is left as it is.
func TestBulkOfWhoMayLessNow(t *testing.T) {
	s, keys := known(t, slog.New(slog.DiscardHandler), map[string]string{
		"root": "roles: [admin]", "before": "roles: [operator], subject: ana", "after": "roles: [operator], workflows: [other], subject: ana",
	})
	s.failed("o-1", "leaky")
	s.failed("o-2", "other")
	before, after := s.as(keys["before"]), s.as(keys["after"])
	b := before.prepare(&BulkRequest{Command: events.CommandCancel, Filter: BulkFilter{State: projections.Error}})
	if b.Matched != 2 {
		t.Fatalf("%+v", b)
	}
	if _, err := after.client.StartBulk(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	if done := after.ended(b.ID); done.Done != 1 || done.Left != 1 || done.State != BulkDone {
		t.Errorf("%+v", done)
	}
	if cancelled := of(s.history("o-1"), events.OrderCompensating); len(cancelled) > 0 {
		t.Errorf("what may not be done was done: %+v", cancelled)
	}
}

// Where none of as many orders as are acted on at a time is answered for, the others are not tried.
func TestBulkThatNobodyAnswers(t *testing.T) {
	s := New(Config{})
	s.Attach(idle(t)) // which knows of no order how it stands
	defer s.Detach(errors.New("over"))
	u, why := s.borrow()
	if why != nil {
		t.Fatal(why)
	}
	defer u.by.Done()
	b := &bulkAct{command: events.Command{Command: events.CommandPause, ID: "b-1"}, record: Bulk{ID: "b-1", State: BulkPrepared, Rate: 1000, PreparedAt: &Time{time.Now()}}}
	for n := range 4 * bulkAtOnce {
		b.orders = append(b.orders, BulkOrder{OrderID: fmt.Sprint("o-", n), Outcome: OutcomePending})
	}
	b.record.Matched = len(b.orders)
	s.bulk.add(b)
	ctx, started := s.bulk.start(t.Context(), b, identity.Anybody)
	if !started {
		t.Fatal("it is not started")
	}
	s.carryOut(ctx, u, b)
	told := b.told()
	if told.State != BulkStopped || told.Failed < bulkAtOnce || told.Failed == told.Matched || told.Done+told.Left > 0 || !strings.Contains(*told.Reason, "of the last 16 orders none was answered for") {
		t.Errorf("%+v", told)
	}
}

// problemStatus is that of a problem, 200 for none.
func problemStatus(err error) int {
	if err == nil {
		return 200
	}
	problem, _ := errors.AsType[*Problem](err)
	if problem == nil {
		return 0
	}
	return problem.Status
}

// The orders of an act are told with how each is now, as far as the caller may see it; and what is not known of one, and why.
func TestBulkOrdersNow(t *testing.T) {
	s, keys := known(t, slog.New(slog.DiscardHandler), map[string]string{
		"root": "roles: [admin]", "before": "roles: [operator], subject: ana", "after": "roles: [operator], workflows: [leaky], subject: ana",
	})
	if _, err := s.client.Register(t.Context(), "w.yaml", []byte(strings.Replace(leaky, "leaky", "brief\nkeep: 1s", 1))); err != nil {
		t.Fatal(err)
	}
	for id, flow := range map[string]string{"o-1": "leaky", "o-2": "other", "o-3": "brief", "o-4": "leaky"} {
		s.failed(id, flow)
	}
	before, after := s.as(keys["before"]), s.as(keys["after"])
	b := before.prepare(&BulkRequest{Command: events.CommandResubmit, Filter: BulkFilter{State: projections.Error}})
	for _, id := range []string{"o-3", "o-4"} {
		s.act(id, "terminate", `{"note":"enough"}`, 200)
	}
	s.until(func() bool { // it is kept for a second
		_, err := s.client.Order(t.Context(), "o-3")
		return problemStatus(err) == http.StatusGone
	})
	rows := func(s *stage) map[string]BulkRow {
		t.Helper()
		page, err := s.client.BulkOrdersNow(t.Context(), b.ID, 100, 0)
		if err != nil || len(page.Orders) != 4 {
			t.Fatalf("%+v, %v", page, err)
		}
		all := make(map[string]BulkRow)
		for _, o := range page.Orders {
			if all[o.OrderID] = o; o.State != projections.Error || (o.Now == nil) == (o.Unknown == "") {
				t.Errorf("%+v", o)
			}
		}
		return all
	}
	const none, gone = "no such order that you may see", "not kept any more"
	for name, c := range map[string]struct {
		as   *stage
		want map[string]string // the state, or a part of why it is not known
	}{
		"root":  {s, map[string]string{"o-1": "Error", "o-2": "Error", "o-3": gone, "o-4": "Terminated"}},
		"ana":   {before, map[string]string{"o-1": "Error", "o-2": "Error", "o-3": gone, "o-4": "Terminated"}},
		"later": {after, map[string]string{"o-1": "Error", "o-2": none, "o-3": none, "o-4": "Terminated"}},
	} {
		for id, o := range rows(c.as) {
			switch want := c.want[id]; {
			case o.Now == nil && !strings.Contains(o.Unknown, want):
				t.Errorf("%s: %s is not known: %s, and not %s", name, id, o.Unknown, want)
			case o.Now == nil:
			case string(o.Now.ProcessState) != want || o.Now.OrderID != id:
				t.Errorf("%s: %s is %+v, and not %s", name, id, o.Now, want)
			case (name == "root") != (o.Now.Reason != nil && o.Now.Labels["word"] == "canary" && !o.Now.Masked):
				t.Errorf("%s: %s is told as %+v", name, id, o.Now)
			}
		}
	}
	if page, err := s.client.BulkOrders(t.Context(), b.ID, 1, 0); err != nil || page.Orders[0].Now != nil || page.Orders[0].Unknown != "" {
		t.Errorf("it was not asked for, and is there: %+v, %v", page, err)
	}

	s.server.Detach(errors.New("the test detached it"))
	for id, o := range rows(s) {
		if !strings.Contains(o.Unknown, "not ready: the test detached it") {
			t.Errorf("%s without an instance: %+v", id, o)
		}
	}
	idler := idle(t) // which knows of no order how it stands
	s.server.Attach(idler)
	defer s.server.Detach(errors.New("over"))
	for id, o := range rows(s) {
		if !strings.Contains(o.Unknown, "how it stands, is") {
			t.Errorf("%s of a partition that is not known: %+v", id, o)
		}
	}
}

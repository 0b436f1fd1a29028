package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// declined submits an order whose charge fails for good, and waits for it.
func (s *stage) declined(id string) *Order {
	s.Helper()
	if _, err := s.client.Submit(s.Context(), &Submission{ID: id, Workflow: "order-fulfilment", Input: []byte(`{"card":"declined"}`)}); err != nil {
		s.Fatal(err)
	}
	return s.order(id, projections.Error)
}

// act posts a command, and checks the status of the answer.
func (s *stage) act(id, command, body string, status int, header ...string) (*Order, string) {
	s.Helper()
	r := request{method: "POST", path: "/api/v1/orders/" + id + "/" + command, body: body, header: http.Header{}}
	if body != "" {
		r.header.Set("Content-Type", "application/json")
	}
	for n := 0; n < len(header); n += 2 {
		r.header.Set(header[n], header[n+1])
	}
	got, _, answer := s.ask(r)
	if got != status {
		s.Fatalf("%s of %q with %.100s: %d instead of %d: %s", command, id, body, got, status, answer)
	}
	var o Order
	if status == 200 {
		if err := json.Unmarshal([]byte(answer), &o); err != nil {
			s.Fatalf("%v: %s", err, answer)
		}
	}
	return &o, answer
}

func (s *stage) history(id string) []events.Event {
	s.Helper()
	h, err := s.client.History(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	all := make([]events.Event, len(h.Events))
	for n, e := range h.Events {
		if all[n], err = events.Decode[events.Event](e); err != nil {
			s.Fatal(err)
		}
	}
	return all
}

// of returns the history's events of one type.
func of(history []events.Event, t events.Type) []events.Event {
	return slices.DeleteFunc(slices.Clone(history), func(e events.Event) bool { return e.Type != t })
}

// P2, P3: an order in Error and its alert, and the resubmission that heals it.
func (s *stage) testResubmit() {
	o := s.declined("p3")
	if a := o.Alert; a == nil || a.Action == nil || *a.Action == "" || len(a.Errors) == 0 || a.Errors[0].Code != "card-declined" {
		s.Errorf("P2: alert %+v", o.Alert)
	}
	// The cause is still there: it stops again.
	s.act("p3", "resubmit", "", 200)
	s.until(func() bool { return len(of(s.history("p3"), events.AlertRaised)) == 2 })
	s.order("p3", projections.Error)

	s.act("p3", "resubmit", `{"step":"charge","input":{"total":7},"by":"ann@ops","note":"another card"}`, 200)
	o = s.order("p3", projections.Processed)
	charge := o.Steps[1]
	if charge.State != projections.Completed || *charge.IdempotencyKey != "p3/charge:3" || string(charge.Input) != `{"total":7}` || charge.FailureCount != 2 || o.Alert != nil || o.Reason != nil {
		s.Errorf("P3: %+v, charge %+v", o, charge)
	}
	acts := of(s.history("p3"), events.OrderResubmitted)
	if len(acts) != 2 || acts[0].By != "127.0.0.1" || acts[1].By != "ann@ops" || acts[1].Reason != "another card" || acts[1].Command == "" {
		s.Errorf("P4: %+v", acts)
	}
	if _, says := s.act("p3", "resubmit", "", 409); !strings.Contains(says, "Processed") {
		s.Errorf("not in Error: %s", says)
	}
	refused := of(s.history("p3"), events.CommandRefused)
	if len(refused) != 1 || refused[0].Operation != "resubmit" || refused[0].Reason == "" {
		s.Errorf("P4: %+v", refused)
	}

	s.declined("p3-same")
	s.act("p3-same", "resubmit", `{"sameKey":true,"input":{}}`, 200)
	if o := s.order("p3-same", projections.Processed); *o.Steps[1].IdempotencyKey != "p3-same/charge" {
		s.Errorf("same key: %+v", o.Steps[1])
	}

	s.declined("p3-new")
	s.act("p3-new", "resubmit", `{"newKey":true,"input":{}}`, 200)
	o = s.order("p3-new", projections.Processed)
	if says := of(s.history("p3-new"), events.OrderResubmitted); *o.Steps[1].IdempotencyKey != "p3-new/charge:2" || !says[0].NewKey || len(o.Steps[1].EarlierKeys) != 0 {
		s.Errorf("new key: %+v, %+v", o.Steps[1], says)
	}

	s.declined("p3-unknown")
	s.act("p3-unknown", "resubmit", `{"step":"none","input":{}}`, 409)
	s.act("p3-unknown", "resubmit", `{"step":"reserve","input":{}}`, 409) // it did not fail
	s.order("p3-unknown", projections.Error)
}

// C1, C3: what ran is undone.
func (s *stage) testCancel() {
	s.declined("cancel")
	s.act("cancel", "cancel", `{"note":"the customer left"}`, 200)
	o := s.order("cancel", projections.Cancelled)
	if o.Toward == nil || *o.Toward != projections.Cancelled || o.Alert != nil {
		s.Errorf("%+v", o)
	}
	reserve := o.Steps[0]
	if reserve.State != projections.Undone || reserve.Undo == nil || reserve.Undo.State != projections.Completed || *reserve.Undo.IdempotencyKey != "cancel/reserve:undo" || reserve.Undo.Attempt != 1 {
		s.Errorf("reserve %+v, its undo %+v", reserve, reserve.Undo)
	}
	if charge := o.Steps[1]; charge.Undo != nil {
		s.Errorf("the charge, which failed, was undone: %+v", charge.Undo)
	}
	s.act("cancel", "cancel", "", 409)
	if _, says := s.act("a%2Fb", "cancel", "", 409); !strings.Contains(says, "Processed") {
		s.Errorf("finished: %s", says)
	}
	_, _, body := s.ask(request{path: "/api/v1/orders/cancel"})
	var record map[string]any
	if err := json.Unmarshal([]byte(body), &record); err != nil {
		s.Fatal(err)
	}
	mustHave(s.T, record, "paused", "toward")
	step := record["steps"].([]any)[0].(map[string]any)
	mustHave(s.T, step, "round", "unknown", "input", "undo")
	mustHave(s.T, step["undo"].(map[string]any), "state", "attempt", "failureCount", "completeBy", "due", "idempotencyKey", "error")
}

func (s *stage) testSkip() {
	s.declined("skip")
	s.act("skip", "skip-step", `{"step":"none"}`, 409)
	s.act("skip", "skip-step", `{"step":"reserve"}`, 409) // it completed
	s.act("skip", "skip-step", `{"step":"charge","output":{"payment":"cash"},"note":"paid in cash"}`, 200)
	o := s.order("skip", projections.Processed)
	if charge := o.Steps[1]; charge.State != projections.Skipped || string(charge.Output) != `{"payment":"cash"}` {
		s.Errorf("%+v", charge)
	}
}

func (s *stage) testPause() {
	s.declined("pause-error")
	if _, says := s.act("pause-error", "pause", "", 409); !strings.Contains(says, "Error") {
		s.Error(says)
	}
	s.act("a%2Fb", "pause", "", 409)
	if _, err := s.client.Register(s.Context(), "w.yaml", []byte("workflow: waits\nsteps:\n- {name: a, agent: nobody, timeout: 1h}\n")); err != nil {
		s.Fatal(err)
	}
	if _, err := s.client.Submit(s.Context(), &Submission{ID: "pause", Workflow: "waits"}); err != nil {
		s.Fatal(err)
	}
	s.order("pause", projections.Processing)
	if o, _ := s.act("pause", "pause", `{"note":"wait"}`, 200); !o.Paused {
		s.Errorf("%+v", o)
	}
	s.act("pause", "pause", "", 409)
	if o, _ := s.act("pause", "resume", "", 200); o.Paused {
		s.Errorf("%+v", o)
	}
	s.act("pause", "resume", "", 409)
	h := s.history("pause")
	if paused := of(h, events.OrderPaused); len(paused) != 1 || paused[0].Reason != "wait" || len(of(h, events.OrderResumed)) != 1 {
		s.Errorf("%+v", h)
	}
}

func (s *stage) testRelease() {
	s.declined("release")
	if _, says := s.act("release", "release", `{"discard":true,"note":"why"}`, 409); !strings.Contains(says, "not held") {
		s.Error(says)
	}
	if h := of(s.history("release"), events.CommandRefused); len(h) != 1 || h[0].Operation != "release" {
		s.Errorf("%+v", h)
	}
}

// V4: what people see of attempts that their retry policies do not count.
func TestOrderOfUncounted(t *testing.T) {
	o := projections.Order{ID: "o-1", Steps: []projections.Step{{
		Name: "a", Work: projections.Work{FailureCount: 3, Uncounted: 2}, Undo: &projections.Work{FailureCount: 2, Uncounted: 1},
	}}}
	if s := OrderOf(0, &o, time.Now()).Steps[0]; s.FailureCount != 3 || s.Uncounted != 2 || s.Undo.FailureCount != 2 || s.Undo.Uncounted != 1 {
		t.Errorf("%+v, undo %+v", s, s.Undo)
	}
}

// What people see of an order that is held.
func TestOrderOfHeld(t *testing.T) {
	o := projections.Order{ID: "o-1", State: projections.Error, Reason: "it panicked", Hold: &projections.Hold{}, Waiting: make([]projections.Held, 2)}
	b, err := json.Marshal(OrderOf(0, &o, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"processState":"Error"`, `"reason":"it panicked"`, `"held":true`, `"waiting":2`} {
		if !strings.Contains(string(b), part) {
			t.Errorf("%s is not in %s", part, b)
		}
	}
	if c := (&Release{Discard: true, Act: Act{By: "ana"}}).command(); !c.Discard || c.By != "ana" {
		t.Errorf("%+v", c)
	}
}

// P3: an order ends as it is, and what was done is not undone.
func (s *stage) testTerminate() {
	s.declined("terminate")
	s.act("terminate", "terminate", "", 400)
	s.act("terminate", "terminate", `{"by":"ann"}`, 422)
	s.act("terminate", "terminate", `{"note":""}`, 422)
	if _, says := s.act("terminate", "terminate", `{"note":" "}`, 409); !strings.Contains(says, "say why") {
		s.Errorf("without a reason: %s", says)
	}
	o, _ := s.act("terminate", "terminate", `{"note":"enough","by":"ann@ops"}`, 200)
	if o.ProcessState != projections.Terminated || o.Reason == nil || *o.Reason != "enough" || o.Alert != nil || o.Steps[0].State != projections.Completed {
		s.Errorf("%+v", o)
	}
	if e := of(s.history("terminate"), events.OrderTerminated); len(e) != 1 || e[0].By != "ann@ops" || !slices.Equal(e[0].NotUndone, []string{"reserve"}) {
		s.Errorf("%+v", e)
	}
	s.act("terminate", "terminate", `{"note":"again"}`, 409)
	page, err := s.client.Orders(s.Context(), Filter{State: "Terminated"}, 1000, "")
	if err != nil || len(page.Orders) != 1 {
		s.Errorf("%v, %+v", err, page)
	}
}

// P5: an order gets another priority and another deadline, or none.
func (s *stage) testChange() {
	s.declined("change")
	o, _ := s.act("change", "change", `{"priority":"high","deadline":"2100-01-02T03:04:05Z","note":"the customer waits"}`, 200)
	if o.Priority != events.High || o.Deadline == nil || o.Deadline.Year() != 2100 {
		s.Errorf("%+v", o)
	}
	if o, _ = s.act("change", "change", `{"noDeadline":true}`, 200); o.Priority != events.High || o.Deadline != nil {
		s.Errorf("%+v", o)
	}
	s.act("change", "change", `{"priority":"urgent"}`, 422)
	for _, body := range []string{`{}`, `{"deadline":"2001-01-02T03:04:05Z"}`, `{"deadline":"2100-01-02T03:04:05Z","noDeadline":true}`} {
		s.act("change", "change", body, 409)
	}
	if n := len(of(s.history("change"), events.OrderChanged)); n != 2 {
		s.Errorf("%d changes", n)
	}
}

// A command that is sent twice acts once, and is answered twice.
func (s *stage) testCommandTwice() {
	s.declined("twice")
	const key = "Idempotency-Key"
	s.act("twice", "resubmit", `{"input":{}}`, 200, key, "k-1")
	s.order("twice", projections.Processed)
	s.act("twice", "resubmit", `{"input":{}}`, 200, key, "k-1")
	s.act("twice", "resubmit", "", 409, key, "k-2")
	s.act("twice", "resubmit", "", 409, key, "k-2")
	h := s.history("twice")
	if len(of(h, events.OrderResubmitted)) != 1 || len(of(h, events.CommandRefused)) != 1 {
		s.Errorf("%+v", h)
	}
}

// Whoever sends a command hears that it cannot be done, however many were refused
// before; the order's history does not grow with them.
func (s *stage) testCommandsInVain() {
	for range decide.MaxVoid + 2 {
		s.act("again", "cancel", "", 409)
	}
	if _, says := s.act("again", "cancel", "", 409); !strings.Contains(says, "refused 100 commands") {
		s.Errorf("%s", says)
	}
	if refused := of(s.history("again"), events.CommandRefused); len(refused) != decide.MaxVoid {
		s.Errorf("%d are in its history", len(refused))
	}
}

// A row of a list says at which steps its order stands, and what of them.
func (s *stage) testListStandsAt() {
	s.declined("stands-1")
	s.listens("stands-2")
	stands := func(workflow, id string) string {
		page, err := s.client.Orders(s.Context(), Filter{Workflow: workflow}, 1000, "")
		if err != nil {
			s.Fatal(err)
		}
		n := slices.IndexFunc(page.Orders, func(o Summary) bool { return o.OrderID == id })
		if n < 0 {
			return ""
		}
		return fmt.Sprint(page.Orders[n].StandsAt, *page.Orders[n].StandsAtAll)
	}
	declined, err := s.client.Order(s.Context(), "stands-1")
	if err != nil {
		s.Fatal(err)
	}
	for _, c := range []struct{ workflow, id, want string }{
		{declined.Workflow, "stands-1", "[{charge failed false}] 1"},
		{"listens", "stands-2", "[{now listening false} {much listening false}] 2"},
	} {
		s.until(func() bool { return stands(c.workflow, c.id) != "" })
		if got := stands(c.workflow, c.id); got != c.want {
			s.Errorf("%s stands at %s, and not at %s", c.id, got, c.want)
		}
	}
	s.act("stands-1", "cancel", `{}`, http.StatusOK)
	s.order("stands-1", projections.Cancelled)
	if got := stands(declined.Workflow, "stands-1"); got != "[] 0" {
		s.Errorf("one that has ended stands at %s", got)
	}
}

// P3: a listing of what failed at a step.
func (s *stage) testListStep() {
	s.declined("at-charge")
	for step, want := range map[string]bool{"charge": true, "ship": false, "none": false} {
		page, err := s.client.Orders(s.Context(), Filter{State: "Error", Workflow: "order-fulfilment", Step: step}, 1000, "")
		if err != nil {
			s.Fatal(err)
		}
		if found := slices.ContainsFunc(page.Orders, func(o Summary) bool { return o.OrderID == "at-charge" }); found != want {
			s.Errorf("step %s: %t", step, found)
		}
	}
}

func (s *stage) testCommandProblems() {
	s.declined("problems")
	big := `{"step":"charge","input":"` + strings.Repeat("x", events.MaxValue) + `"}`
	for _, c := range []struct {
		command, body string
		status        int
		says          string
	}{
		{"skip-step", ``, 400, "body"},
		{"skip-step", `{}`, 422, "step"},
		{"skip-step", `{"step":""}`, 422, "step"},
		{"resubmit", `{"input":`, 400, ""},
		{"resubmit", `[]`, 422, ""},
		{"resubmit", `{"sameKey":"yes"}`, 422, "sameKey"},
		{"resubmit", `{"newKey":"yes"}`, 422, "newKey"},
		{"resubmit", `{"sameKey":true,"newKey":true}`, 422, "use one of the two"},
		{"resubmit", `{"step":1}`, 422, "step"},
		{"resubmit", "{\"note\":\"\xff\"}", 400, "UTF-8"},
		{"resubmit", `{"by":"` + strings.Repeat("x", 257) + `"}`, 422, "by"},
		{"resubmit", big, 413, "at most 1048576"},
		{"resubmit", big + big, 413, "too large"},
		{"explode", ``, 404, "openapi.json"},
	} {
		if _, says := s.act("problems", c.command, c.body, c.status); !strings.Contains(says, c.says) {
			s.Errorf("%s with %.60s: %.300s", c.command, c.body, says)
		}
	}
	s.act("problems", "resubmit", "", 422, "Idempotency-Key", strings.Repeat("x", 257))
	s.act("none", "resubmit", "", 404)
	s.act("problems", "pause", "", 403, "Sec-Fetch-Site", "cross-site")
	if status, _, _ := s.ask(request{path: "/api/v1/orders/problems/cancel"}); status != 405 {
		s.Errorf("GET: %d", status)
	}
	if n := len(s.history("problems")); n != len(s.history("at-charge")) {
		s.Errorf("something bad was acted on: %d events", n)
	}
}

func TestCommandErrors(t *testing.T) {
	s := New(Config{})
	c := &events.Command{Command: "cancel", ID: "k-1"}
	for _, e := range []struct {
		err    error
		status int
		says   string
	}{
		{fmt.Errorf("%w: it is Processed", orchestrator.ErrRefused), 409, "it is Processed"},
		{fmt.Errorf("%w: o", projections.ErrNotFound), 404, `no order "o"`},
		{fmt.Errorf("read: %w", projections.ErrDamaged), 500, "cancel"},
		{fmt.Errorf("wait: %w", context.DeadlineExceeded), 503, "Idempotency-Key: k-1 is safe"},
		{fmt.Errorf("wait: %w", context.Canceled), 503, "history"},
		{fmt.Errorf("%w: %w", orchestrator.ErrNoOutcome, orchestrator.ErrUnknownYet), 503, "is on Kafka, and what became of it is not known yet: not known yet. It will be acted on; look at the order's history. Repeating it with the header Idempotency-Key: k-1 is safe."},
		{errors.New("no broker"), 503, "Idempotency-Key: k-1 is safe"},
	} {
		var answer *huma.ErrorModel
		if err := s.commandError("o", c, e.err); !errors.As(err, &answer) || answer.Status != e.status || !strings.Contains(answer.Detail, e.says) {
			t.Errorf("%v: %+v", e.err, answer)
		}
	}
	if err := s.commandError("o", c, fmt.Errorf("%w: it is Processed", orchestrator.ErrRefused)); !strings.HasPrefix(err.Error(), "it is") {
		t.Error(err)
	}
}

// P3: an order goes on as one of another version of its workflow, and what forbids that is said before.
func (s *stage) testMigrate() {
	for version, steps := range map[int]string{1: "{name: a, agent: stranger, timeout: 1h}, {name: b, agent: stranger}, {name: d, agent: stranger, after: [a]}", 2: "{name: first, agent: stranger, do: a, timeout: 1h}, {name: c, agent: stranger}, {name: d, agent: stranger, after: [first], queue: 1h}"} {
		if _, err := s.client.Register(s.Context(), "w.yaml", fmt.Appendf(nil, "workflow: migrates\nversion: %d\nsteps: [%s]\n", version, steps)); err != nil {
			s.Fatal(err)
		}
	}
	if _, err := s.client.Submit(s.Context(), &Submission{ID: "migrate", Workflow: "migrates", Version: 1}); err != nil {
		s.Fatal(err)
	}
	s.order("migrate", projections.Processing)
	plan, err := s.client.Migration(s.Context(), "migrate", 2, nil)
	if err != nil || len(plan.Forbids) != 1 || plan.Forbids[0].Step == nil || *plan.Forbids[0].Step != "a" || len(plan.Steps) > 0 {
		s.Fatalf("%+v, %v", plan, err)
	}
	s.act("migrate", "migrate", `{"toVersion":2}`, 409)
	s.act("migrate", "migrate", `{}`, 422)
	s.act("migrate", "migrate", `{"toVersion":0}`, 422)
	s.act("migrate", "resubmit", `{"toVersion":2}`, 409)
	plan, err = s.client.Migration(s.Context(), "migrate", 2, map[string]string{"a": "first"})
	if err != nil || len(plan.Forbids) > 0 {
		s.Fatalf("%+v, %v", plan, err)
	}
	var changes []string
	for _, step := range plan.Steps {
		changes = append(changes, step.Step+" "+step.Change)
	}
	if got := strings.Join(changes, ", "); got != "first renamed, c new, b dropped" || *plan.Steps[0].Was != "a" || fmt.Sprint(plan.Changed) != "[d]" {
		s.Errorf("it becomes %s, and of %v others change", got, plan.Changed)
	}
	for _, query := range []string{"", "?to=0", "?to=2&map=a", "?to=2&map=a=b&map=a=c"} {
		if status, _, said := s.ask(request{path: "/api/v1/orders/migrate/migration" + query}); status != 422 {
			s.Errorf("%s: %d %s", query, status, said)
		}
	}
	if o, _ := s.act("migrate", "migrate", `{"toVersion":2,"map":{"a":"first"},"note":"better"}`, 200); o.Version != 2 || o.Steps[0].Name != "first" || o.Steps[0].KnownAs == nil || *o.Steps[0].KnownAs != "a" || *o.Steps[0].IdempotencyKey != "migrate/a" {
		s.Errorf("%+v", o)
	}
	if e := of(s.history("migrate"), events.OrderMigrated); len(e) != 1 || e[0].From != 1 || e[0].Renamed["first"] != "a" || e[0].Reason != "better" {
		s.Errorf("%+v", e)
	}
}

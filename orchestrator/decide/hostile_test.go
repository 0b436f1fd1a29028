package decide

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/inspect"
)

// What one order's input can be must never stop the others: every record that
// follows from it must be one that Kafka takes, and that the journal's readers
// can read.

// What a producer takes into one batch, on topics that Waybill creates and on
// any other, less what a batch has around its records.
const (
	ownLimit    = events.MaxBatch - 128
	callerLimit = 1_000_000 - 128
)

// checkTaken holds what was committed against what Kafka and readers take.
func checkTaken(t *testing.T, s *stage, records []*kgo.Record) {
	t.Helper()
	for _, r := range records {
		limit := callerLimit
		if s.topics.Owns(r.Topic) {
			limit = ownLimit
		}
		size := len(r.Key) + len(r.Value)
		for _, h := range r.Headers {
			size += len(h.Key) + len(h.Value)
		}
		if size > limit {
			t.Errorf("a record of %d bytes goes to %s, which takes %d", size, r.Topic, limit)
		}
		if r.Topic == s.topics.Journal {
			if _, err := events.Decode[events.Event](r.Value); err != nil {
				t.Errorf("the journal has a record that nobody can read: %v: %.200s", err, r.Value)
			}
		}
	}
}

const orderFlow = `
workflow: order
steps:
  - {name: charge, agent: payment, after: [], retry: {attempts: 1}}
  - {name: ship, agent: shipping, after: []}
  - {name: mail, agent: office, after: []}
`

func TestHostileSubmissions(t *testing.T) {
	long := strings.Repeat("x", 1_040_000)
	invisible := strings.Repeat("\u200b", 340_000)
	for _, c := range []struct{ name, value, trace string }{
		{name: "long input", value: `{"workflow":"order","input":"` + long + `"}`},
		{name: "long workflow", value: `{"workflow":"` + long + `"}`},
		{name: "invisible workflow", value: `{"workflow":"` + invisible + `"}`},
		{name: "NUL in workflow", value: `{"workflow":"a\u0000b"}`},
		{name: "long priority", value: `{"workflow":"order","priority":"` + long + `"}`},
		{name: "invisible priority", value: `{"workflow":"order","priority":"` + invisible + `"}`},
		{name: "long replyTo", value: `{"workflow":"order","replyTo":"` + long + `"}`},
		{name: "invisible replyTo", value: `{"workflow":"order","replyTo":"` + invisible + `"}`},
		{name: "long version", value: `{"workflow":"order","version":1` + strings.Repeat("0", 1_000_000) + `}`},
		{name: "text for version", value: `{"workflow":"order","version":"` + long + `"}`},
		{name: "long deadline", value: `{"workflow":"order","deadline":"` + long + `"}`},
		{name: "deadline before the year 0", value: `{"workflow":"order","deadline":"0000-01-01T00:00:00+12:00"}`},
		{name: "deadline after the year 9999", value: `{"workflow":"order","deadline":"9999-12-31T23:59:59-12:00"}`},
		{name: "deadline at zero", value: `{"workflow":"order","deadline":"0001-01-01T00:00:00Z"}`},
		{name: "deadline at the epoch", value: `{"workflow":"order","deadline":"1970-01-01T00:00:00Z"}`},
		{name: "long rerunOf", value: `{"workflow":"order","rerunOf":"` + long + `"}`},
		{name: "invisible rerunOf", value: `{"workflow":"order","rerunOf":"` + invisible + `"}`},
		{name: "NUL in rerunOf", value: `{"workflow":"order","rerunOf":"` + strings.Repeat(`\u0000`, events.MaxOrderID) + `"}`},
		{name: "long traceparent", value: `{"workflow":"order"}`, trace: long + long},
		{name: "traceparent that is not UTF-8", value: `{"workflow":"order"}`, trace: "\xff\xfe"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			defer func() { s.close() }()
			s.flows.Add(parseFlow(t, orderFlow))
			s.takeOver(t, "i-1")
			in := submission{id: "o-1", trace: c.trace}
			in.value, in.problem = events.Decode[events.Submission]([]byte(c.value))
			if errors.Is(in.problem, events.ErrUnreadable) {
				return // it is put aside
			}
			s.orders = append(s.orders, in)
			s.read(t)
			checkTaken(t, s, s.commit(t))
			if t.Failed() {
				return
			}
			s.rebuild(t)
			if _, err := s.store.List(t.Context(), 1, projections.Filter{}); err != nil {
				t.Errorf("orders cannot be listed any more: %.200s", err)
			}
		})
	}
}

func TestHostileReplies(t *testing.T) {
	long := strings.Repeat("x", 1_040_000)
	fail := func(step, more string) string {
		return fmt.Sprintf(`{"order":"o-1","step":%q,"attempt":1,"status":"failed","error":{%s}}`, step, more)
	}
	for _, c := range []struct {
		name    string
		replyTo string
		values  []string
	}{
		{name: "long output", values: []string{
			`{"order":"o-1","step":"charge","attempt":1,"status":"completed"}`,
			`{"order":"o-1","step":"ship","attempt":1,"status":"completed"}`,
			`{"order":"o-1","step":"mail","attempt":1,"status":"completed","output":"` + long + `"}`,
		}},
		{name: "long output for the caller", replyTo: "shop.status", values: []string{
			`{"order":"o-1","step":"charge","attempt":1,"status":"completed"}`,
			`{"order":"o-1","step":"ship","attempt":1,"status":"completed"}`,
			`{"order":"o-1","step":"mail","attempt":1,"status":"completed","output":"` + long + `"}`,
		}},
		{name: "long code", values: []string{fail("charge", `"code":"`+long+`","permanent":true`)}},
		{name: "long message", values: []string{fail("charge", `"message":"`+long+`"`)}},
		{name: "long message for the caller", replyTo: "shop.status", values: []string{fail("charge", `"message":"`+long+`"`)}},
		{name: "many long messages", values: []string{
			fail("ship", `"message":"`+long+`"`), fail("mail", `"message":"`+long+`"`), fail("charge", `"message":"`+long+`"`),
		}},
		{name: "long step", values: []string{fail(long, ``)}},
		{name: "no order", values: []string{`{"step":"charge"}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			defer func() { s.close() }()
			s.flows.Add(parseFlow(t, orderFlow))
			s.takeOver(t, "i-1")
			s.refused["shop.status"] = refusal{limit: 1_048_588} // Kafka's default
			s.orders = append(s.orders, submission{id: "o-1", value: events.Submission{Workflow: "order", ReplyTo: c.replyTo}})
			s.read(t)
			s.commit(t)
			for _, value := range c.values {
				r, err := events.Decode[events.Reply]([]byte(value))
				must(t, err)
				s.replies = append(s.replies, reply{id: "o-1", value: r, written: s.now})
				s.read(t)
				checkTaken(t, s, s.commit(t))
			}
			if !t.Failed() {
				s.rebuild(t)
			}
		})
	}
}

// An output that is nested more deeply than readers take is refused, as one that the journal does not
// take: the step may have run.
func TestDeepOutputs(t *testing.T) {
	nested := func(levels int) []byte {
		return []byte(strings.Repeat("[", levels) + `"[\"["` + strings.Repeat("]", levels))
	}
	for _, c := range []struct {
		step    string
		levels  int
		refused bool
	}{
		{"{name: charge, agent: payment, undo: refund}", 1_000, false},
		{"{name: charge, agent: payment, undo: refund}", 1_001, true},
		{"{name: charge, agent: payment, undo: refund}", 9_000, true},
		{"{name: charge, agent: payment, repeat: {until: steps.charge.output == 1, every: 1s, max: 2}}", 1_000, false},
		{"{name: charge, agent: payment, repeat: {until: steps.charge.output == 1, every: 1s, max: 2}}", 1_001, true},
	} {
		s := newStage(t)
		s.flows.Add(parseFlow(t, "workflow: order\nsteps:\n  - "+c.step+"\n"))
		s.takeOver(t, "i-1")
		s.take(Submit(s.env("o-1"), nil, &Input{Record: new(Record), Order: "o-1", Submission: events.Submission{Workflow: "order"}}))
		r := answer(s, events.ReplyCompleted)
		r.value.Output = nested(c.levels)
		s.replies = append(s.replies, r)
		s.read(t)
		checkTaken(t, s, s.commit(t))
		step := s.of(t, "o-1").Step("charge")
		if c.refused != (step.Error != nil) || c.refused && (step.Error.Code != events.OutputRefused || !step.Error.Permanent || !step.Unknown || step.Output != nil) {
			t.Errorf("%s, %d deep: %s %+v", c.step, c.levels, step.State, step.Error)
		}
		s.close()
	}
}

// TestWorkflowGone: a workflow that has left its topic sends its orders to an
// operator, whichever way they notice it.
func TestWorkflowGone(t *testing.T) {
	var before workflow.Set // it was still there
	for name, notice := range map[string]func(s *stage){
		"by a reply":  func(s *stage) { s.replies = append(s.replies, answer(s, events.ReplyCompleted)); s.read(t) },
		"by an error": func(s *stage) { s.replies = append(s.replies, answer(s, events.ReplyFailed)); s.read(t) },
		"by an expiry": func(s *stage) {
			s.now = s.now.Add(workflowTimeout)
			s.supervise(t, page)
		},
		"by a retry": func(s *stage) {
			flows := s.flows
			s.flows = before
			s.replies = append(s.replies, answer(s, events.ReplyFailed))
			s.read(t)
			s.commit(t)
			s.flows = flows
			s.now = s.now.Add(time.Second)
			s.supervise(t, page)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			defer func() { s.close() }()
			s.flows.Add(parseFlow(t, "workflow: order\nsteps:\n  - {name: charge, agent: payment}\n"))
			s.takeOver(t, "i-1")
			s.orders = append(s.orders, submission{id: "o-1", value: events.Submission{Workflow: "order"}})
			s.read(t)
			s.commit(t)
			before = s.flows
			s.flows = workflow.Set{}
			notice(s)
			s.commit(t)
			o := s.of(t, "o-1")
			if o.State != projections.Error || o.Alert == nil || !strings.Contains(o.Reason, "order@1") {
				t.Fatalf("%+v", o)
			}
			s.flows = before // the invariants look things up
			if name != "by a reply" {
				s.check(t, inspect.New())
			}
			s.rebuild(t)
		})
	}
}

const workflowTimeout = 30 * time.Second // the default of a step

func answer(s *stage, status string) reply {
	return reply{id: "o-1", written: s.now, value: events.Reply{Order: "o-1", Step: "charge", Attempt: 1, Status: status}}
}

// TestManyDueAtOnce: steps that expire in the same millisecond, which one
// batch of submissions makes, are all handled however few are looked at at a
// time.
func TestManyDueAtOnce(t *testing.T) {
	s := newStage(t)
	defer func() { s.close() }()
	s.flows.Add(parseFlow(t, orderFlow))
	s.takeOver(t, "i-1")
	const orders = 7
	for i := range orders {
		s.orders = append(s.orders, submission{id: fmt.Sprint("o-", i), value: events.Submission{Workflow: "order"}})
	}
	s.read(t)
	s.commit(t)
	s.now = s.now.Add(workflowTimeout)
	s.supervise(t, 4)
	s.commit(t)
	for id, history := range s.history(t) {
		if n := count(history, events.StepExpired); n != 3 {
			t.Errorf("%s: %d of 3 steps expired", id, n)
		}
	}
	s.check(t, inspect.New())
}

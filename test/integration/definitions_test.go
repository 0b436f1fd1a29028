package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	kit "github.com/waybill-dev/waybill/test/world"
)

// V5, V4, A3: beyond the threshold an extended period, then a new round of
// attempts, under the same key; when the service is back, all orders complete.
func TestAnExtendedWaitOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: patient
steps:
  - {name: charge, agent: bank, timeout: 1h, retry: {attempts: 2, backoff: 10ms}, exhausted: wait, wait: {for: 50ms, rounds: 1000}}
`)
		w.Register(i, `
workflow: impatient
steps:
  - {name: charge, agent: bank, timeout: 1h, retry: {attempts: 2, backoff: 10ms}, exhausted: wait, wait: {for: 50ms, rounds: 1}}
`)
		service := new(bank)
		w.Answering("bank", service.answer)
		ids := []string{"o-1", "o-2", "o-3", "o-4", "o-5"}
		for _, id := range ids {
			w.Submit(id, `{"workflow":"patient"}`)
		}
		w.Submit("short", `{"workflow":"impatient"}`)
		// The rounds are counted, and the last one ends with an operator (P2).
		if o := w.order(i, "short", in(projections.Error)); o.FailureCount != 4 || !strings.Contains(o.Reason, "2 rounds") {
			t.Errorf("%+v", o)
		}
		for _, id := range ids {
			w.order(i, id, func(o *projections.Order) bool { return o.Steps[0].Round >= 2 })
		}
		service.returns()
		for _, id := range ids {
			w.order(i, id, in(projections.Processed))
		}
		books := w.Audit()
		for _, id := range ids {
			for n, r := range books.Messages[id].Requests {
				if r.Attempt != n+1 || r.IdempotencyKey != id+"/charge" {
					t.Errorf("request %d of %s is %+v", n+1, id, r)
				}
			}
		}
	})
}

// A4, V2: an agent that is late is silent; the attempt expires and is asked for
// again, and what it would have said never counts.
func TestNoAttemptAfterItsCompleteBy(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, "workflow: brief\nsteps: [{name: call, agent: phone, do: call, timeout: 50ms, retry: {attempts: 1}, exhausted: wait, wait: {for: 10ms, rounds: 2}}]")
		w.Submit("o-1", `{"workflow":"brief"}`)
		w.order(i, "o-1", in(projections.Error))
		// Nobody was there: now the agent comes, and every request is too old. One of the same partition is
		// behind them, so that they have been read when it is answered.
		var mu sync.Mutex
		var calls []string
		w.serve("phone", func(_ context.Context, r agents.Request[any]) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, r.Order)
			return nil, nil
		}, "call")
		w.Register(i, "workflow: relaxed\nsteps: [{name: call, agent: phone, do: call, timeout: 1h}]")
		later := "o-2"
		for n := 3; i.Partition(later) != i.Partition("o-1"); n++ {
			later = fmt.Sprint("o-", n)
		}
		w.Submit(later, `{"workflow":"relaxed"}`)
		w.order(i, later, in(projections.Processed))
		w.Command("o-1", `{"command":"cancel","id":"c-1"}`)
		w.order(i, "o-1", in(projections.Cancelled))
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(calls, []string{later}) {
			t.Errorf("the service was asked for %q; for o-1 after its complete-by", calls)
		}
		books := w.Audit()
		if got := books.Statuses("o-1"); got != "received failed compensating cancelled" {
			t.Errorf("the caller heard %s", got)
		}
	})
}

// V5: the deadline of a whole order, its own or its workflow's, bounds every
// complete-by, and ends with an operator or in compensation.
func TestDeadlinesOfOrders(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, "workflow: due\ndeadline: 300ms\nsteps: [{name: call, agent: any, timeout: 1h}]")
		undone := func(version int, deadline time.Duration) {
			w.Register(i, fmt.Sprintf(`
workflow: undone
version: %d
deadline: %s
overdue: compensate
steps:
  - {name: reserve, agent: any, undo: release, timeout: 1h}
  - {name: call, agent: any, timeout: 1h}
`, version, deadline))
		}
		agent := w.Hand("any")
		w.Submit("o-1", `{"workflow":"due"}`)
		asked := agent.Asked("o-1", "call")
		o := w.order(i, "o-1", in(projections.Error))
		if !asked.CompleteBy.Equal(o.AcceptedAt.Add(300*time.Millisecond)) || o.Alert == nil || o.Alert.Errors[0].Code != "overdue" {
			t.Errorf("complete-by %s, %+v", stamp(asked.CompleteBy), o)
		}
		w.Command("o-1", `{"command":"resubmit","by":"kim"}`) // from here on without a deadline
		agent.Does("o-1", "call", done)
		w.order(i, "o-1", in(projections.Processed))

		// It must have come to the second step by then, however slow the machine is.
		overdue, deadline := "o-2", 300*time.Millisecond
		for version := 1; ; version++ {
			undone(version, deadline)
			w.Submit(overdue, `{"workflow":"undone"}`)
			agent.Does(overdue, "reserve", done)
			agent.Undoes(overdue, "reserve", done)
			w.order(i, overdue, in(projections.Compensated))
			if strings.Contains(w.types(overdue), "step.completed step.started") {
				break
			}
			overdue, deadline = fmt.Sprint("o-2-", version), 2*deadline
		}

		// The order's own deadline goes before its workflow's.
		later := time.Now().Add(30 * time.Minute)
		w.Submit("o-4", `{"workflow":"undone","deadline":"`+stamp(later)+`"}`)
		if r := agent.Does("o-4", "reserve", done); stamp(r.CompleteBy) != stamp(later) {
			t.Errorf("the complete-by is %s, the order's deadline %s", stamp(r.CompleteBy), stamp(later))
		}
		w.Submit("o-3", `{"workflow":"undone","deadline":"2020-01-01T00:00:00Z"}`)
		w.order(i, "o-3", in(projections.Rejected))
		books := w.Audit()
		if got := books.Statuses(overdue); got != "received compensating compensated" {
			t.Errorf("the caller of %s heard %s", overdue, got)
		}
	})
}

// S1, S4: what a step works on comes from the order and from earlier steps as
// the workflow says, and so does whether it runs at all.
func TestDataAndSkippedSteps(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: data
steps:
  - {name: reserve, agent: any, undo: release, with: "input.items", undoWith: "{'shelf': steps.reserve.output.shelf}", timeout: 1h}
  - {name: gift-wrap, agent: any, when: "input.?gift.orValue(false)", timeout: 1h}
  - {name: charge, agent: any, with: "{'amount': input.total, 'reservation': steps.reserve.output.id}", timeout: 1h, exhausted: compensate}
`)
		agent := w.Hand("any")
		gets := func(r kit.Request, want string) {
			t.Helper()
			if string(r.Input) != want {
				t.Errorf("step %s of %s gets %s, not %s", r.Step, r.Order, r.Input, want)
			}
		}
		w.Submit("plain", `{"workflow":"data","input":{"items":["book"],"total":42}}`)
		gets(agent.Does("plain", "reserve", kit.Gave(`{"id":9007199254740993,"shelf":4}`)), `["book"]`)
		gets(agent.Does("plain", "charge", refused), `{"amount":42,"reservation":9007199254740993}`)
		gets(agent.Undoes("plain", "reserve", done), `{"shelf":4}`)
		o := w.order(i, "plain", in(projections.Compensated))
		if s := o.Step("gift-wrap"); s.State != projections.Skipped || s.Attempt != 0 {
			t.Errorf("%+v", s)
		}

		w.Submit("gift", `{"workflow":"data","input":{"items":[],"total":1,"gift":true}}`)
		gets(agent.Does("gift", "reserve", kit.Gave(`{"id":1}`)), `[]`)
		gets(agent.Does("gift", "gift-wrap", done), `{"items":[],"total":1,"gift":true}`)
		gets(agent.Does("gift", "charge", kit.Gave(`"paid"`)), `{"amount":1,"reservation":1}`)
		if o := w.order(i, "gift", in(projections.Processed)); string(o.Output()) != `"paid"` {
			t.Errorf("the output is %s", o.Output())
		}

		// What cannot be made of the data is a case for an operator (P2, P3).
		w.Submit("poor", `{"workflow":"data","input":{"items":[]}}`)
		agent.Does("poor", "reserve", kit.Gave(`{"id":1}`))
		if o := w.order(i, "poor", in(projections.Error)); o.Alert.Errors[0].Code != "bad-expression" {
			t.Errorf("%+v", o.Alert)
		}
		w.Command("poor", `{"command":"resubmit","step":"charge","input":{"amount":7},"by":"kim"}`)
		gets(agent.Does("poor", "charge", done), `{"amount":7}`)
		w.order(i, "poor", in(projections.Processed))
	})
}

// S4, P1: a workflow says what the input of its orders must be; who violates it
// hears which field is wrong.
func TestInputSchema(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: strict
input:
  type: object
  required: [customer]
  properties:
    customer: {type: string, minLength: 1}
steps:
  - {name: charge, agent: any, timeout: 1h}
`)
		agent, caller := w.Hand("any"), w.Caller("shop")
		for id, x := range map[string]struct{ input, reason string }{
			"empty":   {`,"input":{"customer":""}`, "/customer has 0 characters"},
			"other":   {`,"input":{"customer":7}`, "/customer is a number"},
			"without": {``, "the input is missing"},
		} {
			w.Submit(id, `{"workflow":"strict","replyTo":"`+caller.Topic+`"`+x.input+`}`)
			w.order(i, id, in(projections.Rejected))
			if r := caller.Take(id); !strings.Contains(string(r.Value), `"rejected"`) || !strings.Contains(string(r.Value), x.reason) {
				t.Errorf("%s: the caller heard %s", id, r.Value)
			}
		}
		w.Submit("good", `{"workflow":"strict","input":{"customer":"c-1"}}`)
		agent.Does("good", "charge", done)
		w.order(i, "good", in(projections.Processed))
	})
}

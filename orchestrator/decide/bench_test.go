package decide

import (
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/inspect"
)

// BenchmarkOrder decides on one whole order: its submission, and the replies to
// its three steps.
func BenchmarkOrder(b *testing.B) {
	whole := wholeOrder(b)
	b.ReportAllocs()
	for b.Loop() {
		whole()
	}
}

// What orders can do takes memory of those that do it: one of three steps has so many allocations as its events,
// requests and status messages need.
func TestAPlainOrderTakesNoMoreMemory(t *testing.T) {
	if n := testing.AllocsPerRun(100, wholeOrder(t)); n > 81 {
		t.Errorf("an order has %v allocations", n)
	}
}

// wholeOrder decides on an order from its submission to its end, each time that it is called.
func wholeOrder(b testing.TB) func() {
	b.Helper()
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(b, err)
	flow := parseFlow(b, `
workflow: order-fulfilment
steps:
  - {name: reserve, agent: inventory, undo: release}
  - {name: charge, agent: payment, undo: refund}
  - {name: ship, agent: shipping}
`)
	env := &Env{
		Now: inspect.Curtain, Instance: "i-1", Topics: &topics,
		Workflow: func(string, int) *workflow.Workflow { return flow },
		Refuses:  func(string, int) string { return "" },
		Away:     func(string, string, int) string { return "" },
	}
	submission := events.Submission{Workflow: flow.Name, Input: []byte(`{"customer":"c-7"}`)}
	record := &Record{Topic: topics.Replies}
	record.Written = env.Now
	var answers []*Input
	for i := range flow.Steps {
		answers = append(answers, &Input{Record: record, Order: "o-1", Reply: &events.Reply{
			Order: "o-1", Step: flow.Steps[i].Name, Attempt: 1, Status: events.ReplyCompleted, Output: []byte(`{"id":"x-1"}`),
		}})
	}
	submitted := &Input{Record: record, Order: "o-1", Submission: submission}

	return func() {
		order := On(env, nil, submitted).Order
		for _, answer := range answers {
			order = On(env, order, answer).Order
		}
		if order.State != projections.Processed {
			b.Fatalf("the order is %s", order.State)
		}
	}
}

// Each decision tells which attempts began and ended with it, of every order: that takes no
// memory.
func TestTellingOfAttemptsTakesNoMemory(t *testing.T) {
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(t, err)
	flow := parseFlow(t, "{workflow: both, steps: [{name: a, agent: one, after: []}, {name: b, agent: two, after: []}]}")
	running := projections.Work{State: projections.Running, Attempt: 1}
	order := &projections.Order{ID: "o-1", Steps: []projections.Step{{Name: "a", Work: running}, {Name: "b", Work: running}}}
	told := 0
	tell := func(at Attempt) { told += at.Work.Attempt }
	if n := testing.AllocsPerRun(100, func() { UnderWay(&topics, flow, order, tell) }); n > 0 || told == 0 {
		t.Errorf("%d attempts were told of, with %v allocations each time", told, n)
	}
}

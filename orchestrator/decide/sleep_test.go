package decide

import (
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/inspect"
)

// By a clock that is not believed no sleep is over, and nobody knows what a pause would leave of
// one. When the clock is right, it wakes at its time.
func TestSleepsByAClockThatIsDoubted(t *testing.T) {
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(t, err)
	flow := parseFlow(t, "{workflow: naps, steps: [{name: until, sleep: {until: input}, after: []}, {name: for, sleep: 1h, after: []}]}")
	env := &Env{
		Now: inspect.Curtain.Add(2 * time.Hour), Doubted: true, Format: events.JournalFormat, Instance: "i-1", Topics: &topics,
		Workflow: func(string, int) *workflow.Workflow { return flow },
		Newer:    func(string, int) int { return 0 },
		Refuses:  func(string, int) string { return "" },
		Away:     func(string, string, int) string { return "" },
	}
	at := inspect.Curtain.Add(3 * time.Hour) // an hour off by the doubted clock
	record := &Record{Topic: topics.Orders}
	record.Written = env.Now
	submit := &Input{Record: record, Order: "o-1", Submission: events.Submission{Workflow: "naps", Input: append(events.AppendTime([]byte{'"'}, at), '"')}}
	order := On(env, nil, submit).Order
	env.Now = at.Add(time.Minute) // which has passed by it, and a duration has not
	if order.Step("until").State != projections.Sleeping || !order.Step("until").Due.Equal(at) {
		t.Fatalf("%+v", order.Steps)
	}
	again := On(env, nil, submit).Order // begun after that time, by that clock
	if s := again.Step("until"); s.State != projections.Sleeping {
		t.Errorf("begun by a clock that is in doubt it is %s", s.State)
	}
	act := func(command string) *projections.Order {
		return On(env, order, &Input{Record: record, Order: "o-1", Command: &events.Command{Command: command}}).Order
	}
	if o := act(events.CommandPause); o.Paused || !strings.Contains(o.Refusal, "what is left of a sleep, or of a wait for signals or people, is not known") {
		t.Errorf("a pause: %t, %q", o.Paused, o.Refusal)
	}
	env.Doubted = false
	if o := act(events.CommandPause); !o.Paused {
		t.Errorf("with a clock that is right there is no pause: %q", o.Refusal)
	}
	order = Supervise(env, order, "until").Order
	if order.Step("until").State != projections.Completed {
		t.Errorf("%+v", order.Steps)
	}
}

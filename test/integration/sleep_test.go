package integration

import (
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	kit "github.com/waybill-dev/waybill/test/world"
)

// A3, V2, V5: a step sleeps, or is done again, whoever owns its partition meanwhile and whatever they have on disk; and
// an order goes on without a step that failed for good, and says so.
func TestStepsSleepAreRepeatedAndGoneOnWithout(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: trial
steps:
  - {name: welcome, agent: any, timeout: 1h, repeat: {until: steps.welcome.output.sent, every: 200ms}}
  - {name: trial, sleep: {for: input.trial}}
  - {name: points, agent: any, timeout: 1h, undo: take, retry: {attempts: 5, never: [declined]}, exhausted: continue}
  - {name: charge, agent: any, timeout: 1h, when: steps.trial.state == "completed", with: steps.points.error}
`)
		agent, caller := w.Hand("any"), w.Caller("shop")
		w.Submit("o-1", `{"workflow":"trial","input":{"trial":"3s"},"replyTo":"`+caller.Topic+`"}`)
		agent.Does("o-1", "welcome", kit.Gave(`{"sent":false}`))
		if again := agent.Does("o-1", "welcome", kit.Gave(`{"sent":true}`)); again.Attempt != 2 || again.IdempotencyKey != "o-1/welcome:r2" {
			t.Errorf("it is asked again with %+v", again)
		}
		o := w.order(i, "o-1", func(o *projections.Order) bool { return o.Step("trial").State == projections.Sleeping })
		if o.State != projections.Pending || o.LockedBy != "" {
			t.Errorf("while it sleeps it is %s, and %q has it", o.State, o.LockedBy)
		}
		i.Stop()
		i = w.Run("i-2", t.TempDir())

		agent.Does("o-1", "points", `"status":"failed","error":{"code":"declined","message":"no member"}`)
		charge := agent.Does("o-1", "charge", done)
		if want := `{"code":"declined","message":"no member"}`; string(charge.Input) != want {
			t.Errorf("the error reaches the next step as %s", charge.Input)
		}
		w.order(i, "o-1", in(projections.Processed))
		if got, want := w.types("o-1"), "order.accepted step.started step.repeated step.started step.completed step.sleeping step.woke step.started step.failed step.passed step.started step.completed order.completed"; got != want {
			t.Errorf("journal: %s", got)
		}
		caller.Hears("o-1", "received")
		if last := caller.Take("o-1"); !strings.Contains(string(last.Value), `"status":"completed"`) || !strings.Contains(string(last.Value), `"failedSteps":["points"]`) {
			t.Errorf("the caller heard %s", last.Value)
		}
		agent.Idle("o-1")
	})
}

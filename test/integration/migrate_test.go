package integration

import (
	"fmt"
	"testing"

	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/waybill"
	kit "github.com/waybill-dev/waybill/test/world"
)

// P3, A3: orders on all partitions go on as ones of a version that was registered a moment ago, while a
// step of theirs runs under a name that it has no more, and while the partitions change their owner, who
// has lost its store: the agent is answered to, and the step undone, as it knows it.
func TestOrdersMigrateWhileTheyRun(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: purchase
version: 1
steps:
  - {name: reserve, agent: any, undo: release, timeout: 1h}
  - {name: charge, agent: any, undo: refund, undoWith: steps.charge.output, timeout: 1h}
  - {name: ship, agent: any, timeout: 1h}
`)
		agent := w.Hand("any")
		const n = 8
		id := func(k int) string { return fmt.Sprintf("o-%d", k) }
		partitions := make(map[int32]bool)
		charges := make([]kit.Request, n)
		for k := range n {
			w.Submit(id(k), `{"workflow":"purchase","input":{"n":1}}`)
			agent.Does(id(k), "reserve", done)
			charges[k] = agent.Asked(id(k), "charge")
			partitions[i.Partition(id(k))] = true
		}
		if len(partitions) < waybill.Partitions {
			t.Fatalf("the orders are on the partitions %v", partitions)
		}
		w.Register(i, `
workflow: purchase
version: 2
steps:
  - {name: reserve, agent: any, undo: release, timeout: 1h}
  - {name: pay, agent: any, do: charge, with: '{"m": 2}', undo: refund, undoWith: steps.pay.output, timeout: 1h}
  - {name: check, agent: any, with: steps.pay.output, timeout: 1h}
`)
		for k := range n {
			w.Command(id(k), `{"command":"migrate","id":"c-0","toVersion":2}`)
			w.Command(id(k), `{"command":"migrate","id":"c-1","toVersion":2,"map":{"charge":"pay"},"by":"kim"}`)
		}
		is := func(version int) func(*projections.Order) bool {
			return func(o *projections.Order) bool { return o.Version == version }
		}
		for k := range n {
			w.order(i, id(k), is(2))
		}
		i.Stop()
		i = w.Run("i-2", t.TempDir())
		for k := range n {
			if o := w.order(i, id(k), is(2)); o.Refused != 1 || o.Step("pay").Known() != "charge" || o.Step("pay").State != projections.Running || len(o.Steps) != 3 {
				t.Errorf("order %s: %+v", id(k), o)
			}
			agent.Answer(charges[k], `"status":"completed","output":{"paid":7}`)
			check := agent.Asked(id(k), "check")
			if string(check.Input) != `{"paid":7}` {
				t.Errorf("check works on %s", check.Input)
			}
			if k%2 == 0 {
				agent.Answer(check, done)
				w.order(i, id(k), in(projections.Processed))
				continue
			}
			w.Command(id(k), `{"command":"cancel","id":"c-2"}`)
			agent.Answer(check, refused)
			undo := agent.Undoes(id(k), "charge", done)
			if undo.IdempotencyKey != id(k)+"/charge:undo" || string(undo.Input) != `{"paid":7}` {
				t.Errorf("undone with %+v", undo)
			}
			agent.Undoes(id(k), "reserve", done)
			w.order(i, id(k), in(projections.Cancelled))
		}
	})
}

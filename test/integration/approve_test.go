package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/waybill"
)

// P3, V2: people decide, each decision sent twice, while the partition changes its owner and the owner has lost
// its store: each acts once, who is not known decides nothing, and who may is reminded once.
func TestPeopleDecideOnce(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		keys := proof.New([]proof.Key{{ID: "k", Secret: []byte("s")}}, proof.Off, nil)
		run := func(id string) *waybill.Instance {
			return w.Run(id, t.TempDir(), func(cfg *orchestrator.Config) { cfg.Keys = func() *proof.Keys { return keys } })
		}
		i := run("i-1")
		w.Register(i, `
workflow: loan
steps:
  - {name: granted, approve: {roles: [clerk], count: 3, due: 100ms, escalate: [board], show: input.total}}
  - {name: pay, agent: bank, timeout: 1h, with: 'steps.granted.output.decisions.map(d, d.by)', when: steps.granted.output.outcome == "approved"}
`)
		bank := w.Hand("bank")
		w.Submit("o-1", `{"workflow":"loan","input":{"total":7}}`)
		approves := func(n int) func(o *projections.Order) bool {
			return func(o *projections.Order) bool {
				a := o.Step("granted").Approves
				return a != nil && a.Reminded && len(a.Decisions) == n
			}
		}
		w.order(i, "o-1", approves(0))
		decide := func(by, outcome string, roles ...string) {
			value := fmt.Appendf(nil, `{"command":"decide","step":"granted","id":"d-%s","outcome":%q,"by":%q}`, by, outcome, by)
			r := kgo.Record{Topic: w.Topics.Commands, Key: []byte("o-1"), Value: value}
			if roles != nil {
				actor := &events.Actor{Method: "key", Roles: roles, At: events.Time(time.Now())}
				r.Headers = []kgo.RecordHeader{{Key: events.HeaderActor, Value: keys.Sign(w.Topics.Namespace, "o-1", value, actor)}}
			}
			for range 2 {
				w.Produce(new(r))
			}
		}
		decide("ana", "approved", "approver/clerk")
		w.order(i, "o-1", approves(1))
		i.Stop()
		decide("eve", "approved")
		decide("op", "approved", "operator")
		decide("bob", "approved", "approver/board")
		i = run("i-2")
		w.order(i, "o-1", approves(2))
		i.Stop()
		i = run("i-3")
		decide("kim", "approved", "approver/clerk", "viewer")
		if pay := bank.Does("o-1", "pay", done); string(pay.Input) != `["ana","bob","kim"]` {
			t.Errorf("the bank is told %s", pay.Input)
		}
		w.order(i, "o-1", in(projections.Processed))
		if got, want := w.types("o-1"), "order.accepted step.approving step.reminded step.decided command.refused command.refused step.decided step.decided step.started step.completed order.completed"; got != want {
			t.Errorf("journal: %s", got)
		}
		alerts := slices.DeleteFunc(w.read(w.Topics.Alerts), func(r *kgo.Record) bool { return string(r.Key) != "o-1" })
		if len(alerts) != 1 || !strings.Contains(string(alerts[0].Value), "approved, declined: waybill order decide o-1 granted OUTCOME") || events.Header(alerts[0], events.HeaderType) != string(events.AlertRaised) {
			t.Errorf("the alerts are %+v", alerts)
		}
	})
}

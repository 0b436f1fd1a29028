package integration

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	kit "github.com/waybill-dev/waybill/test/world"
)

// keyring are the keys of a namespace whose settings change while it runs.
type keyring struct{ atomic.Pointer[proof.Keys] }

func (k *keyring) set(s proof.Setting) {
	k.Store(proof.New([]proof.Key{{ID: "k", Secret: []byte("of the test")}}, s, nil))
}

func (k *keyring) given(c *orchestrator.Config) { c.Keys = k.Load }

// forge answers for an agent, as whoever may write the replies can.
func (w *world) forge(order, step, token string) {
	w.Helper()
	r := kit.Request{Order: order, Step: step, Attempt: 1, ReplyTo: w.Topics.Replies, Token: token}
	w.Produce(r.Reply(kit.Refused))
}

// ADR 0026: a forged reply under each setting.
func TestForgedReplies(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w, keys := newWorld(t, b), new(keyring)
		keys.set(proof.Off)
		i := w.Run("i-1", t.TempDir(), keys.given)
		w.Register(i, fulfilment)
		agent := w.Hand("inventory")
		for _, setting := range []proof.Setting{proof.Off, proof.Watch, proof.Require} {
			id := "o-" + string(setting)
			keys.set(setting)
			w.Submit(id, `{"workflow":"fulfilment"}`)
			asked := agent.Asked(id, "reserve")
			if (asked.Token == "") != (setting == proof.Off) {
				t.Errorf("%s: the request has the token %q", setting, asked.Token)
			}
			w.forge(id, "reserve", "")
			if setting != proof.Require {
				w.order(i, id, in(projections.Error))
				continue
			}
			w.forge(id, "reserve", "k.AAAAAAAAAAAAAAAAAAAAAA")
			w.order(i, id, func(o *projections.Order) bool { return o.Discarded == 2 })
			agent.Answer(asked, done)
			w.order(i, id, func(o *projections.Order) bool { return o.Steps[0].State == projections.Completed })
		}
		w.until("the counts of the replies", func() error {
			if is := i.Repeats()["inventory"]; is.Repeated != 1 || is.Missing != 2 || is.Wrong != 1 || is.Unknown != 0 {
				return fmt.Errorf("%+v", is)
			}
			return nil
		})
	})
}

// ADR 0026: while orders run, whose attempts have an hour and no retries, agents come to have
// to repeat their tokens, on an instance that takes over, too. None is lost, and from then
// on nobody answers for them.
func TestTheSwitchToRequireLosesNoOrder(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w, keys := newWorld(t, b), new(keyring)
		keys.set(proof.Off)
		i := w.Run("i-1", t.TempDir(), keys.given)
		w.Register(i, fulfilment)
		w.serveFulfilment()
		w.Register(i, "workflow: kept\nsteps: [{name: keep, agent: keeper, timeout: 1h}]")
		keeper := w.Hand("keeper")
		var kept []kit.Request // asked for under each setting, and answered under the last, by who gives no name
		keeps := func(id string) {
			w.Submit(id, `{"workflow":"kept"}`)
			kept = append(kept, keeper.Asked(id, "keep"))
		}
		const orders = 200
		id := func(n int) string { return fmt.Sprintf("o-%03d", n) }
		begun := func(o *projections.Order) bool { return o.Steps[0].Attempt > 0 }
		for n := range orders {
			w.Submit(id(n), `{"workflow":"fulfilment"}`)
			switch n { // each has begun requests before the next comes, however quick callers are
			case orders / 4:
				w.order(i, id(0), begun)
				keeps("off")
				keys.set(proof.Watch)
			case orders / 2:
				w.order(i, id(n-1), begun)
				keeps("watch")
				keys.set(proof.Require)
				keeps("require")
			case 3 * orders / 4:
				w.Run("i-2", t.TempDir(), keys.given)
				i.Stop()
			}
			if n > orders/2 { // its requests are sent under require
				for _, step := range []string{"reserve", "charge", "ship"} {
					w.forge(id(n), step, "")
				}
			}
		}
		last := w.Instances[len(w.Instances)-1]
		for _, r := range kept {
			keeper.Answer(r, done)
			w.order(last, r.Order, in(projections.Processed))
		}
		for n := range orders {
			w.order(last, id(n), in(projections.Processed))
		}
		proofs := map[string]int{}
		for _, history := range w.Audit().Histories {
			for n := range history {
				e := &history[n]
				if e.Type == events.StepStarted {
					proofs[e.Proof]++
				}
				if e.Type == events.StepCompleted && e.Step != "keep" && (e.Source == "" || e.AnsweredBy == "") {
					t.Errorf("who completed %s of %s is not said: %+v", e.Step, e.Order, e)
				}
			}
		}
		if proofs[""] == 0 || proofs[events.ProofWatch] == 0 || proofs[events.ProofRequire] == 0 {
			t.Errorf("requests by what replies to them need: %v", proofs)
		}
	})
}

// ADR 0026: an agent that does not repeat its token is named, and no token is in the journal.
func TestWhoDoesNotRepeatTheToken(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w, keys := newWorld(t, b), new(keyring)
		keys.set(proof.Watch)
		i := w.Run("i-1", t.TempDir(), keys.given)
		w.Register(i, fulfilment)
		agent := w.Hand("inventory")
		w.Submit("o-1", `{"workflow":"fulfilment"}`)
		asked := agent.Asked("o-1", "reserve")
		old := asked
		old.Token = ""
		r := old.Reply(done)
		r.Headers = []kgo.RecordHeader{{Key: events.HeaderSource, Value: []byte("/shop/stock")}}
		w.Produce(r)
		w.until("it is named", func() error {
			if is := i.Repeats()["inventory"]; is.Missing != 1 || is.Last != "/shop/stock" || is.LastAt.IsZero() {
				return fmt.Errorf("%+v", is)
			}
			return nil
		})
		for r := range w.every(w.Topics.Journal) {
			if asked.Token == "" || bytes.Contains(r.Value, []byte(asked.Token)) {
				t.Errorf("the token %q is in the journal: %s", asked.Token, r.Value)
			}
		}
		if o := w.order(i, "o-1", func(o *projections.Order) bool { return o.Steps[0].State == projections.Completed }); o.Discarded != 0 {
			t.Errorf("under watch a reply was discarded: %+v", o)
		}
	})
}

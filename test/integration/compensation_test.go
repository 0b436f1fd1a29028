package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/waybill"
	kit "github.com/waybill-dev/waybill/test/world"
)

// C1, C3, T2, A3: what completed is undone in reverse order, each through its
// agent, with what the step had given, its own complete-by and its own retries.
// A step without an undo is said not to be undone.
func TestCompensationUndoesInReverseOrder(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: purchase
steps:
  - {name: reserve, agent: any, undo: release, timeout: 1h}
  - {name: notify, agent: any, timeout: 1h}
  - {name: charge, agent: any, undo: refund, timeout: 1h, retry: {attempts: 3, backoff: 10ms}}
  - {name: ship, agent: any, timeout: 1h, exhausted: compensate}
`)
		agent, caller := w.Hand("any"), w.Caller("shop")
		w.Submit("o-1", `{"workflow":"purchase","input":{"customer":"c-1"},"replyTo":"`+caller.Topic+`"}`)
		agent.Does("o-1", "reserve", kit.Gave(`{"shelf":4}`))
		agent.Does("o-1", "notify", done)
		agent.Does("o-1", "charge", kit.Gave(`{"receipt":7}`))
		agent.Does("o-1", "ship", refused)

		refund := agent.Undoes("o-1", "charge", busy)
		want := kit.Request{
			Order: "o-1", Step: "charge", Attempt: 1, Operation: "refund", CompleteBy: refund.CompleteBy, IdempotencyKey: "o-1/charge:undo",
			Undo: true, Outcome: "completed", ReplyTo: w.Topics.Replies, Input: []byte(`{"customer":"c-1"}`), Output: []byte(`{"receipt":7}`),
		}
		if got, want := fmt.Sprintf("%+v", refund), fmt.Sprintf("%+v", want); got != want || passed(refund.CompleteBy) == nil {
			t.Errorf("the refund is asked for with\n %s, not\n %s", got, want)
		}
		again := agent.Undoes("o-1", "charge", done)
		if again.Attempt != 2 || again.IdempotencyKey != refund.IdempotencyKey {
			t.Errorf("the refund is asked for again with %+v", again)
		}
		if release := agent.Undoes("o-1", "reserve", done); release.Operation != "release" || string(release.Output) != `{"shelf":4}` {
			t.Errorf("the release is asked for with %+v", release)
		}
		o := w.order(i, "o-1", in(projections.Compensated))
		if o.Step("reserve").State != projections.Undone || o.Step("notify").State != projections.Completed || o.Step("charge").State != projections.Undone {
			t.Errorf("%+v", o.Steps)
		}
		caller.Hears("o-1", "received", "compensating")
		if last := caller.Take("o-1"); !strings.Contains(string(last.Value), `"status":"compensated"`) ||
			!strings.Contains(string(last.Value), `"undone":["reserve","charge"],"notUndone":["notify"]`) {
			t.Errorf("the caller heard %s", last.Value)
		}
		agent.Idle("o-1")
	})
}

// C1: what was done at the same time is undone at the same time; what came
// after it is undone before.
func TestIndependentUndosRunAtTheSameTime(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: trip
steps:
  - {name: flight, agent: any, undo: cancel, after: [], timeout: 1h}
  - {name: hotel, agent: any, undo: cancel, after: [], timeout: 1h}
  - {name: car, agent: any, undo: cancel, after: [flight], timeout: 1h}
  - {name: pay, agent: any, after: [flight, hotel, car], timeout: 1h, exhausted: compensate}
`)
		agent := w.Hand("any")
		w.Submit("t-1", `{"workflow":"trip"}`)
		for _, step := range []string{"hotel", "flight", "car"} {
			agent.Does("t-1", step, done)
		}
		agent.Does("t-1", "pay", refused)
		car, hotel := agent.AskedToUndo("t-1", "car"), agent.AskedToUndo("t-1", "hotel") // both, and neither is answered
		agent.Idle("t-1")                                                                // the flight waits for the car
		agent.Answer(car, done)
		agent.Undoes("t-1", "flight", done)
		agent.Answer(hotel, done)
		w.order(i, "t-1", in(projections.Compensated))
	})
}

// C1, A3, V2: a step that expired without an answer may have run: it is undone
// too, and its agent is told that nobody knows. Its late answer changes nothing.
func TestAnUnknownOutcomeIsUndone(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		// A slow machine makes more attempts of it; none of what follows counts them.
		w.Register(i, `
workflow: purchase
steps:
  - {name: reserve, agent: any, undo: release, timeout: 1h}
  - {name: charge, agent: any, undo: refund, timeout: 500ms, retry: {attempts: 50, backoff: 10ms, multiplier: 1}, exhausted: compensate}
`)
		agent := w.Hand("any")
		w.Submit("o-1", `{"workflow":"purchase"}`)
		agent.Does("o-1", "reserve", done)
		first := agent.Asked("o-1", "charge") // the agent is silent
		is := func(state projections.State) bool {
			o, _, err := i.Store().Order(i.Partition("o-1"), "o-1")
			if errors.Is(err, projections.ErrNotFound) { // its agent may be asked before the store has it
				return false
			}
			if err != nil {
				t.Fatal(err)
			}
			return o.State == state
		}
		for !is(projections.Compensating) {
			agent.Does("o-1", "charge", refused)
			w.until("the refusal is taken, or came too late", func() error {
				if is(projections.Compensating) || agent.Waits("o-1", "charge", false) {
					return nil
				}
				return errNotYet
			})
		}
		agent.Answer(first, done) // after all; but it is too late
		undone := make(map[string]bool)
		for !is(projections.Compensated) {
			undo := agent.AskedToUndo("o-1", "")
			undone[undo.Step] = true
			want := map[string]string{"charge": "unknown", "reserve": "completed"}[undo.Step]
			if undo.Outcome != want || undo.Output != nil || undo.IdempotencyKey != "o-1/"+undo.Step+":undo" {
				t.Errorf("asked to undo with %+v", undo)
			}
			agent.Answer(undo, done)
			w.until("the undo is taken, or came too late", func() error {
				if is(projections.Compensated) || agent.Waits("o-1", "", true) {
					return nil
				}
				return errNotYet
			})
		}
		if !undone["charge"] || !undone["reserve"] {
			t.Errorf("undone were %v", undone)
		}
		w.until("the late answer is noted", func() error {
			if !strings.Contains(w.types("o-1"), "reply.discarded") {
				return errNotYet
			}
			return nil
		})
	})
}

// C2, P2, P3: an undo that fails for good holds up no other; at last an operator
// is called with every error that occurred, and lets the undos that failed begin
// again, under new keys.
func TestAnUndoThatFailsForGood(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, `
workflow: purchase
steps:
  - {name: reserve, agent: any, undo: release, timeout: 1h}
  - {name: charge, agent: any, undo: refund, timeout: 1h, retry: {attempts: 2, backoff: 10ms}}
  - {name: wrap, agent: any, undo: unwrap, timeout: 1h}
  - {name: ship, agent: any, timeout: 1h, exhausted: compensate}
`)
		agent, caller, alerts := w.Hand("any"), w.Caller("shop"), w.Inbox(w.Topics.Alerts)
		w.Submit("o-1", `{"workflow":"purchase","replyTo":"`+caller.Topic+`"}`)
		for _, step := range []string{"reserve", "charge", "wrap"} {
			agent.Does("o-1", step, done)
		}
		agent.Does("o-1", "ship", refused)
		agent.Undoes("o-1", "wrap", done)
		agent.Undoes("o-1", "charge", kit.Failed("bank-closed"))
		agent.Undoes("o-1", "charge", kit.Failed("bank-on-fire"))
		agent.Undoes("o-1", "reserve", refused)

		var alert events.Alert
		if err := json.Unmarshal(alerts.Take("o-1").Value, &alert); err != nil {
			t.Fatal(err)
		}
		var told []string
		for _, e := range alert.Errors {
			told = append(told, fmt.Sprintf("%s #%d %s undo=%t", e.Step, e.Attempt, e.Code, e.Undo))
		}
		want := "reserve #1 refused undo=true, charge #1 bank-closed undo=true, charge #2 bank-on-fire undo=true, ship #1 refused undo=false"
		if got := strings.Join(told, ", "); got != want {
			t.Errorf("the alert tells of %s, not of %s", got, want)
		}
		if o := w.order(i, "o-1", in(projections.Error)); o.Toward != projections.Compensated {
			t.Errorf("it leads to %q", o.Toward)
		}
		agent.Idle("o-1")

		w.Command("o-1", `{"command":"resubmit","by":"kim","note":"the bank is open again"}`)
		for _, step := range []string{"charge", "reserve"} {
			if r := agent.Undoes("o-1", step, done); r.IdempotencyKey != "o-1/"+step+":undo:2" {
				t.Errorf("the key of the new round is %s", r.IdempotencyKey)
			}
		}
		w.order(i, "o-1", in(projections.Compensated))
		caller.Hears("o-1", "received", "compensating", "failed", "compensated")
	})
}

// S6, T1, C1: an instance that ends in the middle of compensations, and whose
// state store is lost, goes on from the journal: every undo was asked for under
// one key, and nothing is undone twice.
func TestARestartInTheMiddleOfACompensation(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		dir := t.TempDir()
		i := w.Run("i-1", dir)
		w.Register(i, undoable)
		agent := w.Hand("any")
		ids := w.halfCompensated(agent, 12)
		i.Stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		w.compensatesOnce(w.Run("i-1", dir), agent, ids)
	})
}

// S6, V6, C1: the same when an instance has given some partitions away and then
// dies without a word, and another takes over; when the first comes back from the
// dead it changes nothing.
func TestATakeoverInTheMiddleOfACompensation(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		wire := &cable{}
		one := w.Run("i-1", t.TempDir(), through(wire), briefly)
		t.Cleanup(wire.plug) // it can only leave the group when it is heard
		w.Register(one, undoable)
		agent := w.Hand("any")
		ids := w.halfCompensated(agent, 12)
		two := w.Run("i-2", t.TempDir(), briefly)
		w.share(one, two)
		wire.pull()
		w.owns(two)
		wire.plug()
		w.compensatesOnce(two, agent, ids)
	})
}

const undoable = `
workflow: undoable
steps:
  - {name: reserve, agent: any, undo: release, timeout: 1h}
  - {name: charge, agent: any, undo: refund, timeout: 1h}
  - {name: ship, agent: any, timeout: 1h, exhausted: compensate}
`

// halfCompensated brings orders to where their charge is to be undone, and half
// of these undos were answered.
func (w *world) halfCompensated(agent *kit.Hand, n int) []string {
	w.Helper()
	ids := make([]string, n)
	for k := range ids {
		ids[k] = fmt.Sprintf("o-%d", k)
		w.Submit(ids[k], `{"workflow":"undoable"}`)
	}
	for k, id := range ids {
		agent.Does(id, "reserve", done)
		agent.Does(id, "charge", kit.Gave(fmt.Sprintf(`{"receipt":%d}`, k)))
		agent.Does(id, "ship", refused)
		if r := agent.AskedToUndo(id, "charge"); k%2 == 0 {
			agent.Answer(r, done)
		} else {
			agent.Keep(r)
		}
	}
	return ids
}

// compensatesOnce answers what is still asked for, and wants that every undo
// happened once.
func (w *world) compensatesOnce(r *waybill.Instance, agent *kit.Hand, ids []string) {
	w.Helper()
	for k, id := range ids {
		if k%2 != 0 {
			agent.Undoes(id, "charge", done)
		}
		agent.Undoes(id, "reserve", done)
	}
	for _, id := range ids {
		w.order(r, id, in(projections.Compensated))
	}
	books := w.Audit()
	for _, id := range ids {
		keys := make(map[string]int)
		for _, q := range books.Messages[id].Requests {
			if q.Undo {
				keys[q.IdempotencyKey]++
			}
		}
		if len(keys) != 2 || keys[id+"/charge:undo"] != 1 || keys[id+"/reserve:undo"] != 1 {
			w.Errorf("order %s was asked to be undone under %v", id, keys)
		}
		agent.Idle(id)
	}
}

// owns waits until an instance owns all partitions, and serves them.
func (w *world) owns(r *waybill.Instance) {
	w.Helper()
	w.until("one owns all", func() error {
		if n := r.Owned(); n != partitions {
			return fmt.Errorf("it owns %d", n)
		}
		return errors.Join(r.Ready())
	})
}

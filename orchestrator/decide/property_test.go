package decide

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/test/draw"
	"github.com/waybill-dev/waybill/test/inspect"
)

// TestHistories: whatever is submitted, answered, lost, repeated and commanded,
// in whatever order, the invariants hold after every step, and a store rebuilt
// from the journal is the same. At last time enough brings every order to an
// end or to an operator, and an operator brings every one to an end.
func TestHistories(t *testing.T) {
	floods := 0
	rapid.Check(t, func(t *rapid.T) {
		h := &historian{stage: newStage(t), inspector: inspect.New(), floods: &floods}
		defer func() { h.close() }() // a crash replaces the store
		h.perform(t)
	})
	if floods == 0 && !t.Failed() {
		t.Error("no order was flooded")
	}
}

// perform draws what happens, until every order has come to its end.
func (h *historian) perform(t *rapid.T) {
	h.skew = time.Duration(rapid.SampledFrom([]int{0, 0, 500, 3_000}).Draw(t, "skew")) * time.Millisecond
	for i := range rapid.IntRange(1, 2).Draw(t, "workflows") {
		for _, flow := range draw.Flows(t, i+1) {
			h.flows.Add(flow)
		}
	}
	if rapid.Bool().Draw(t, "a variant") {
		h.flows.Add(draw.Variant(t, h.flows.Find("flow", 1), 3))
	}
	if setting := rapid.SampledFrom([]proof.Setting{"", proof.Watch, proof.Require}).Draw(t, "tokens"); setting != "" {
		h.keys = proof.New([]proof.Key{{ID: "k", Secret: []byte("s")}}, setting, nil)
	}
	h.claims = rapid.Bool().Draw(t, "claims")
	h.takeOver(t, "i-1")
	h.submitTo(t, "a", "flow", 1)
	actions := map[string]func(*rapid.T){
		"submit":    h.submit,
		"answer":    h.answer,
		"report":    h.report,
		"reports":   h.report, // the more likely
		"labour":    h.labour,
		"labours":   h.labour,
		"outlive":   h.outlive,
		"serve":     h.serve,
		"live":      h.live,
		"babble":    h.babble,
		"operate":   h.operate,
		"signal":    h.tell,
		"deliver":   h.delivers,
		"manage":    h.manage,
		"migrate":   h.migrate,
		"manages":   h.manage,
		"read":      func(t *rapid.T) { h.read(t) },
		"supervise": h.look,
		"commit":    func(t *rapid.T) { h.commit(t) },
		"flush":     func(t *rapid.T) { must(t, h.state.Flush()) },
		"wait":      func(t *rapid.T) { h.wait(time.Duration(rapid.IntRange(1, 8_000).Draw(t, "ms")) * time.Millisecond) },
		"punctual":  h.punctual,
		"crash":     h.fall,
		"handover":  func(t *rapid.T) { h.takeOver(t, rapid.SampledFrom([]string{"i-1", "i-2"}).Draw(t, "instance")) },
		"panic":     h.panics,
		"refuse":    h.refuse,
		"vanish":    h.vanish,
		"mute":      func(t *rapid.T) { h.mute = rapid.IntRange(0, 2).Draw(t, "mute") == 0 },
		"":          func(t *rapid.T) { h.check(t, h.inspector) },
	}
	if h.floods != nil {
		actions["flood"] = h.flood
	}
	t.Repeat(actions)
	h.end(t)
	h.repair(t)
}

// historian draws what happens on a stage.
type historian struct {
	*stage
	inspector *inspect.Inspector
	// floods counts orders that had more sent than they may record. Nil is for those who
	// need short histories.
	floods *int
}

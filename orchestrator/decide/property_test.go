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
	if floods == 0 && !t.Failed() && !testing.Short() { // a short run draws a fifth
		t.Error("no order was flooded")
	}
}

// perform draws what happens, until every order has come to its end.
func (h *historian) perform(t *rapid.T) {
	h.skew = time.Duration(draw.Of(t, "skew", 0, 0, 500, 3_000)) * time.Millisecond
	for i := range draw.Int(t, "workflows", 1, 2) {
		for _, flow := range draw.Flows(t, i+1) {
			h.flows.Add(flow)
		}
	}
	if draw.Flip(t, "a variant") {
		h.flows.Add(draw.Variant(t, h.flows.Find("flow", 1), 3))
	}
	if setting := draw.Of[proof.Setting](t, "tokens", "", proof.Watch, proof.Require); setting != "" {
		h.keys = proof.New([]proof.Key{{ID: "k", Secret: []byte("s")}}, setting, nil)
	}
	h.claims = draw.Flip(t, "claims")
	h.takeOver(t, "i-1")
	h.submitTo(t, "a", "flow", 1)
	acts := []draw.Act{
		{Weight: 16, Do: h.report},
		{Weight: 3, Do: h.answer},
		{Weight: 4, Do: h.submit},
		{Weight: 4, Do: h.operate},
		{Weight: 6, Do: h.manage},
		{Weight: 3, Do: h.tell},
		{Weight: 5, Do: h.serve},
		{Weight: 3, Do: h.live},
		{Weight: 3, Do: h.punctual},
		{Weight: 3, Do: h.look},
		{Weight: 4, Do: func(t *rapid.T) { h.read(t) }},
		{Weight: 4, Do: func(t *rapid.T) { h.commit(t) }},
		{Weight: 3, Do: func(t *rapid.T) { h.wait(time.Duration(draw.Amount(t, "ms", 1, 8_000)) * time.Millisecond) }},
		{Weight: 2, Do: h.labour},
		{Weight: 2, Do: h.outlive},
		{Weight: 2, Do: h.migrate},
		{Weight: 2, Do: h.delivers},
		{Weight: 2, Do: h.fall},
		{Weight: 1, Do: h.panics},
		{Weight: 1, Do: h.refuse},
		{Weight: 1, Do: h.babble},
		{Weight: 1, Do: h.vanish},
		{Weight: 1, Do: func(t *rapid.T) { h.takeOver(t, draw.Of(t, "instance", "i-1", "i-2")) }},
		{Weight: 1, Do: func(t *rapid.T) { h.mute = draw.One(t, "mute", 3) }},
		{Weight: 1, Do: func(t *rapid.T) { must(t, h.state.Flush()) }},
	}
	if h.floods != nil {
		acts = append(acts, draw.Act{Weight: 1, Do: h.flood})
	}
	draw.Acts(t, draw.Of(t, "acts", 10, 30, 90), func() { h.check(t, h.inspector) }, acts...)
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

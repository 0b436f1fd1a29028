package lane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// An agent that is still at what it was asked for is there, however long that takes and whoever takes the
// partition over: it is neither silent nor late, and what it is at counts to what is with it.
func TestAnAgentThatIsStillAtIt(t *testing.T) {
	a := withFlows(t, 2, `
workflow: films
steps:
  - {name: film, agent: phone, timeout: {after: 10s, max: 1h}, retry: {attempts: 1}}
`)
	topic := a.topics.Requests("phone")
	id := a.like(`{"workflow":"films"}`)
	a.look(0)
	r := a.under[0]
	stillAtIt := func() {
		said := typed(a.topics.Replies, "", r.order, fmt.Sprintf(`{"order":%q,"step":%q,"attempt":%d,"status":"progress"}`, r.order, r.step, r.attempt))
		said.Timestamp = a.now
		must(t, a.decide([]*kgo.Record{said}))
		a.commit()
	}
	labours := func() {
		for range 100 {
			a.look(3 * time.Second)
			stillAtIt()
			a.listen()
			a.agents.window(a.Lane, topic).Forget(a.now)
			if w := a.agents.window(a.Lane, topic); w.Away() || w.Owes() || a.agents.counted && w.Out() != 1 {
				t.Fatalf("away: %t, %d are under way", w.Away(), w.Out())
			}
		}
	}
	must(t, a.decide([]*kgo.Record{typed(a.topics.Replies, "", r.order, fmt.Sprintf(
		`{"order":%q,"step":%q,"attempt":%d,"status":"progress","output":%q}`, r.order, r.step, r.attempt, strings.Repeat("x", events.MaxValue)))}))
	a.commit()
	if s := a.order(id).Steps[0]; s.State != projections.Running {
		t.Fatalf("it says much while it is at it, and is %s: %v", s.State, s.Error)
	}
	labours()
	a.takeover()
	a.agents.windows[topic] = nil
	delete(a.agents.windows, topic)
	a.agents.window(a.Lane, topic).WasAway(a.now)
	must(t, a.inherit())
	w := a.agents.window(a.Lane, topic)
	if w.Forget(a.now); w.Out() != 1 {
		t.Fatalf("%d were inherited", w.Out())
	}
	stillAtIt()
	labours()
	a.answer(r)
	if o, w := a.order(id), a.agents.window(a.Lane, topic); o.State != projections.Processed || o.Steps[0].Attempt != 1 || w.Out() != 0 || !w.Idle() {
		t.Errorf("the order is %s after %d attempts, and %d are under way", o.State, o.Steps[0].Attempt, w.Out())
	}

	// What says so too late is no answer: the attempt may be answered still.
	id = a.like(`{"workflow":"films"}`)
	a.look(0)
	r = a.under[len(a.under)-1]
	a.look(11 * time.Second)
	a.look(time.Second)
	stillAtIt()
	if o := a.order(id); o.State != projections.Error || o.Discarded != 1 || len(a.agents.expired) != 1 {
		t.Errorf("the order is %s, has discarded %d, and %d may be answered", o.State, o.Discarded, len(a.agents.expired))
	}
}

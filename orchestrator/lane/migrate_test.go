package lane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/projections"
)

func (a *asking) migrate(id string, version int, rest string) {
	a.Helper()
	must(a.T, a.decide([]*kgo.Record{typed(a.topics.Commands, "", id, fmt.Sprintf(`{"id":"c-%d","command":"migrate","toVersion":%d%s}`, version, version, rest))}))
	a.commit()
}

// What waits for an agent that is away, and is asked of another as of another version, waits for that one
// no more.
func TestWhatMigratesWaitsForAnotherAgent(t *testing.T) {
	a := newAsking(t, 2)
	a.world.flows.Add(parseFlow(t, "{workflow: call, version: 2, steps: [{name: call, agent: mail}]}"))
	phone, mail := a.topics.Requests("phone"), a.topics.Requests("mail")
	a.world.away[phone], a.world.away[mail] = "it does not exist", "neither does it"
	id := a.like(`{"workflow":"call","version":1}`)
	a.look(0)
	a.leaves(0, 1)
	a.migrate(id, 2, "")
	a.look(0)
	a.leaves(0, 1)
	delete(a.world.away, mail)
	a.look(time.Second)
	a.leaves(0, 0)
	if o := a.order(id); o.State != projections.Processing || a.away.topics[phone] != nil || a.agents.window(a.Lane, mail).Out() != 1 || a.agents.window(a.Lane, phone).Out() != 0 {
		t.Errorf("it is %s: %+v", o.State, o.Steps)
	}
}

// What is asked for again after a failure waits in another line, too.
func TestWhatIsRenewedWaitsForAnotherAgent(t *testing.T) {
	a := newAsking(t, 2)
	a.world.flows.Add(parseFlow(t, "{workflow: call, version: 3, steps: [{name: call, agent: phone, undo: hang-up, do: other}]}"))
	phone := a.topics.Requests("phone")
	id := a.like(`{"workflow":"call","version":1}`)
	r := a.under[0]
	must(t, a.decide([]*kgo.Record{typed(a.topics.Replies, "", r.order, `{"order":"`+r.order+`","step":"call","attempt":1,"status":"failed","error":{"code":"busy"}}`)}))
	a.commit()
	a.world.away[phone] = "it does not exist"
	a.look(time.Second)
	a.leaves(1, 1)
	a.migrate(id, 3, "")
	a.look(0)
	a.leaves(1, 1) // for the other operation
	if o := a.order(id); o.Version != 3 || o.Steps[0].Resubmissions != 1 {
		t.Fatalf("it is of version %d: %+v", o.Version, o.Steps)
	}
	delete(a.world.away, phone)
	a.look(time.Second)
	a.leaves(2, 0)
}

// An attempt that runs while its order migrates is with its agent once, whatever its timeout and its name are
// then.
func TestWhatMigratesIsCountedOnce(t *testing.T) {
	for _, answered := range []bool{true, false} {
		a := newAsking(t, 2)
		a.world.flows.Add(parseFlow(t, "{workflow: call, version: 2, steps: [{name: before, agent: mail, after: []}, {name: ring, agent: phone, do: call, undo: hang-up, timeout: 50s, after: []}]}"))
		id := a.like(`{"workflow":"call","version":1}`)
		window := a.agents.window(a.Lane, a.topics.Requests("phone"))
		asked := a.now
		a.now = a.now.Add(2 * time.Second)
		a.migrate(id, 2, `,"map":{"call":"ring"}`)
		if window.Out() != 1 || len(a.under) != 1 || a.order(id).Step("ring") == nil {
			t.Fatalf("%d are with the agent: %+v", window.Out(), a.order(id).Steps)
		}
		for which, at := range a.agents.left {
			if which.name == "call" && !at.Equal(asked) {
				t.Errorf("%+v was asked at %v, and not %v", which, at, asked)
			}
		}
		if answered {
			a.answer(a.under[0])
		} else {
			a.look(4 * time.Second)
		}
		if s := a.order(id).Step("ring"); window.Out() != 0 || answered != (s.State == projections.Completed) || len(a.agents.left) > 0 {
			t.Errorf("%d are with the agent, it is %s, and %d are noted", window.Out(), s.State, len(a.agents.left))
		}
	}
}

// Whoever has an order migrate may know of the version before it is read here: the command waits for that, and
// those behind it with it, and nothing else.
func TestAVersionThatIsNotReadYetIsSought(t *testing.T) {
	c := newCommanded(t)
	c.format = 8
	c.reads(c.ids[0], `{"workflow":"order","version":1}`)
	c.reads(c.ids[1], `{"workflow":"order","version":1}`)
	c.world.found = 0
	r := typed(c.topics.Commands, "", c.ids[0], `{"command":"migrate","toVersion":2}`)
	r.Offset, c.next = c.next, c.next+1
	must(t, c.decide([]*kgo.Record{r}))
	c.pauses(c.ids[1])
	version := func(i int) int { return c.current.orders[c.ids[i]].order.Version }
	if len(c.behind) != 1 || len(c.behind[0].inputs) != 2 || version(0) != 1 || c.current.orders[c.ids[1]].order.Paused {
		t.Fatalf("%+v", c.behind)
	}
	c.world.flows.Add(parseFlow(t, "{workflow: order, version: 2, steps: [{name: ship, agent: shipping}, {name: more, agent: shipping}]}"))
	must(t, c.supervise())
	must(t, c.decideOn(c.rest))
	if len(c.behind) != 0 || !c.current.orders[c.ids[1]].order.Paused {
		t.Errorf("%+v", c.behind)
	}
	if o := c.current.orders[c.ids[0]].order; !strings.Contains(o.Refusal, "version 2 has no step") { // it is known
		t.Errorf("it is refused for %q", o.Refusal)
	}
	// One that is not there, nor will be, is refused once that is known.
	c.world.found = 0
	r = typed(c.topics.Commands, "", c.ids[0], `{"command":"migrate","toVersion":9}`)
	r.Offset, c.next = c.next, c.next+1
	must(t, c.decide([]*kgo.Record{r}))
	if len(c.behind) != 1 {
		t.Fatalf("%+v", c.behind)
	}
	c.world.found = c.world.sought
	must(t, c.supervise())
	must(t, c.decideOn(c.rest))
	if o := c.current.orders[c.ids[0]].order; len(c.behind) != 0 || o.Refusal == "" {
		t.Errorf("%+v: %q", c.behind, o.Refusal)
	}
}

// A reply with a token, and a deadline, are of the step as its agent knows it: what the namespace's keys say of
// the reply is counted, and what began since the look at deadlines does not expire.
func TestStepsOfOtherNamesAreWatched(t *testing.T) {
	keys := proof.New([]proof.Key{{ID: "k", Secret: []byte("s")}}, proof.Watch, nil)
	a := newAsking(t, 2)
	a.cfg.Keys = func() *proof.Keys { return keys }
	a.world.flows.Add(parseFlow(t, "{workflow: call, version: 2, steps: [{name: ring, agent: phone, do: call, undo: hang-up, timeout: 50s, after: []}]}"))
	id := a.like(`{"workflow":"call","version":1}`)
	a.migrate(id, 2, `,"map":{"call":"ring"}`)

	a.agents.waited = false
	a.due.at = a.now // the look was before the attempt's end
	a.now = a.now.Add(time.Hour)
	if d, err := a.decideDue(a.env(), step{id, "call"}); err != nil || d.Order != nil {
		t.Errorf("its deadline is decided on: %+v, %v", d, err)
	}

	must(t, a.decide([]*kgo.Record{typed(a.topics.Replies, "", id, fmt.Sprintf(`{"order":%q,"step":"call","attempt":1,"status":"completed"}`, id))}))
	missing := uint64(0)
	a.cfg.Repeats.Each(func(_ string, is Repeat) { missing += is.Missing })
	if missing != 1 || a.order(id).Step("ring").State != projections.Completed {
		t.Errorf("%d replies had no token; the step is %s", missing, a.order(id).Step("ring").State)
	}
}

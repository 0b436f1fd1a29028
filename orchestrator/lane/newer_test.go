package lane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// Nothing is decided on an order whose workflow this release cannot run: its replies wait,
// its deadlines pass, and its commands are refused. A release that can goes on with it as
// if it had been there all the time.
func TestOrdersOfNewerWorkflows(t *testing.T) {
	for name, wakes := range map[string]func(l *Lane, id string){
		"looked at": func(l *Lane, _ string) { l.looks(t) },
		"asked by a reply": func(l *Lane, id string) {
			must(t, l.decide([]*kgo.Record{reply(l, id, "ship")}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, world := newLane(t)
			now := time.Now()
			l.time.Wall = func() time.Time { return events.Time(now) }
			l.format = 2
			id, _ := l.keys()
			must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", id, `{"workflow":"order"}`)}))
			l.commits(t)
			known := world.flows
			world.flows, world.newer = workflow.Set{}, map[string]int{"order": 2}
			failed := typed(l.topics.Replies, "", id, fmt.Sprintf(`{"order":%q,"step":"charge","attempt":1,"status":"failed","error":{"code":"no","permanent":true}}`, id))
			must(t, l.decide([]*kgo.Record{failed, reply(l, id, "mail")}))
			must(t, l.decide([]*kgo.Record{typed(l.topics.Commands, "", id, `{"command":"cancel","id":"c-1"}`)}))
			order := l.current.orders[id].order
			if len(order.Waiting) != 2 || order.State != projections.Processing || order.Step("mail").State != projections.Running || !strings.Contains(order.Refusal, "in level 2 of the language") {
				t.Fatalf("it is %s with %d inputs that wait; the command: %s", order.State, len(order.Waiting), order.Refusal)
			}
			l.commits(t)
			now = now.Add(time.Hour)
			l.looks(t)
			l.looks(t)
			if !l.current.empty() {
				t.Fatalf("%d records of an order that is not decided on", len(l.current.records))
			}

			now = now.Add(-time.Hour) // the replies came in time
			world.flows, world.newer = known, nil
			l.state.Rescan()
			wakes(l, id)
			order = l.current.orders[id].order
			if len(order.Waiting) > 0 || order.State != projections.Error || order.Step("mail").State != projections.Completed {
				t.Errorf("it is %s with %d inputs that wait: %s", order.State, len(order.Waiting), order.Reason)
			}
			if shipped := order.Step("ship").State == projections.Completed; shipped != (name == "asked by a reply") {
				t.Errorf("shipped: %t", shipped)
			}
		})
	}
}

// In the first format inputs do not wait in an order that is not held: a release of before
// would pass over them.
func TestNewerWorkflowsInTheFirstFormat(t *testing.T) {
	l, world := newLane(t)
	l.format = 1
	id, _ := l.keys()
	must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", id, `{"workflow":"order"}`)}))
	world.flows, world.newer = workflow.Set{}, map[string]int{"order": 2}
	must(t, l.decide([]*kgo.Record{reply(l, id, "mail")}))
	if order := l.current.orders[id].order; order.State != projections.Error || len(order.Waiting) > 0 {
		t.Errorf("it is %s with %d inputs that wait", order.State, len(order.Waiting))
	}
}

// reply says that a step was done.
func reply(l *Lane, id, step string) *kgo.Record {
	return typed(l.topics.Replies, "", id, fmt.Sprintf(`{"order":%q,"step":%q,"attempt":1,"status":"completed"}`, id, step))
}

// What is read while a submission is looked at counts: it is not rejected as one of an
// unknown workflow that is known by then, and that only a newer release can run.
func TestAWorkflowThatIsReadMeanwhile(t *testing.T) {
	l, world := newLane(t)
	l.format = 2
	id, _ := l.keys()
	world.reads = func() { world.newer = map[string]int{"trip": 2} }
	must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", id, `{"workflow":"trip"}`)}))
	if len(l.parked.inputs) != 1 {
		t.Errorf("it does not wait: %v", l.current.orders[id])
	}
}

// What leaves no event is counted, also where what waited in its order is decided on
// with it.
func TestWhatIsDroppedBehindWhatWaited(t *testing.T) {
	l, world := newLane(t)
	l.format = 2
	id, _ := l.keys()
	another := func() *kgo.Record { return typed(l.topics.Orders, "", id, `{"workflow":"order","input":{"n":1}}`) }
	must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", id, `{"workflow":"order"}`), another()}))
	l.commits(t)
	known := world.flows
	world.flows, world.newer = workflow.Set{}, map[string]int{"order": 2}
	must(t, l.decide([]*kgo.Record{reply(l, id, "mail")}))
	l.commits(t)
	world.flows, world.newer = known, nil
	must(t, l.decide([]*kgo.Record{another()}))
	if o := l.current.orders[id]; o == nil || len(o.order.Waiting) > 0 || l.current.dropped != 1 {
		t.Errorf("it has dropped %d, and made %+v", l.current.dropped, o)
	}
}

// Each input counts that leaves no event: one that waited as well, whoever goes on with the order: an input that is
// dropped, too, or nobody but the supervisor.
func TestWhatWaitedAndIsDropped(t *testing.T) {
	for by, want := range map[string]int{"an input": 2, "the supervisor": 1} {
		l, _ := newLane(t)
		l.format = events.JournalFormat
		id, _ := l.keys()
		another := typed(l.topics.Orders, "", id, `{"workflow":"order","input":{"n":1}}`)
		must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", id, `{"workflow":"order"}`), another}))
		l.commits(t)
		o, err := l.order(id)
		must(t, err)
		waits := o.Clone() // as one that was released is, of which one decision could not do all
		waits.Waiting = []projections.Held{{Source: l.topics.Orders + "/0/9", Raw: events.Raw{Key: another.Key, Value: another.Value}}}
		l.current.orders[id] = &change{order: waits}
		if by == "an input" {
			must(t, l.decide([]*kgo.Record{another}))
		} else {
			_, err := l.decideDue(l.env(), step{order: id})
			must(t, err)
		}
		if after := l.current.orders[id].order; len(after.Waiting) > 0 || l.current.dropped != want {
			t.Errorf("%s goes on with it: %d wait, %d were dropped", by, len(after.Waiting), l.current.dropped)
		}
	}
}

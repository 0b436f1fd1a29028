package lane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
)

// newEmitter is a round with workflows whose orders give a topic an event, which they are named for.
func newEmitter(t *testing.T, topics ...string) *round {
	t.Helper()
	r := newRound(t)
	r.format, r.cfg.StatusPatience = events.EmitFormat, time.Second
	for _, topic := range topics {
		name := strings.ReplaceAll(topic, ".", "-")
		r.world.(*still).flows.Add(parseFlow(t, fmt.Sprintf(`
workflow: %s
steps:
  - {name: tell, emit: {topic: %s, type: com.acme.told, key: '"k"'}, timeout: 1m, retry: {attempts: 2, backoff: 1s}}
`, name, topic)))
	}
	return r
}

// emits has n orders begin that are to give a topic an event.
func (r *round) emits(topic string, n int) (orders []string) {
	r.Helper()
	for range n {
		r.orders++
		id := fmt.Sprintf("o-%04d", r.orders)
		r.take(decide.Submit(r.env(), nil, &decide.Input{Record: new(decide.Record), Order: id, Submission: events.Submission{
			Workflow: strings.ReplaceAll(topic, ".", "-"), Input: []byte(fmt.Sprint(r.orders)),
		}}))
		orders = append(orders, id)
	}
	r.commits()
	r.confirmed()
	return orders
}

// submits has an order of a workflow begin.
func (r *round) submits(flow, id string) {
	r.Helper()
	r.take(decide.Submit(r.env(), nil, &decide.Input{Record: new(decide.Record), Order: id, Submission: events.Submission{Workflow: flow}}))
	r.commits()
	r.confirmed()
}

// told are the events of the last batch of a type: the orders that have them, in turn.
func (r *round) told(kind events.Type) (orders []string) {
	for _, record := range r.committed {
		if record.Topic == r.topics.Journal && headerText(record, events.HeaderType) == string(kind) {
			orders = append(orders, string(record.Key))
		}
	}
	return orders
}

// nowhereElse wants that the last batch has nothing but events of the journal, and status messages.
func (r *round) nowhereElse() {
	r.Helper()
	for _, record := range r.committed {
		if kind := headerText(record, events.HeaderType); record.Topic != r.topics.Journal && kind != string(events.OrderStatus) && kind != string(events.AlertRaised) {
			r.Errorf("the transaction has %s of type %s", record.Topic, kind)
		}
	}
	if n := len(r.told(events.StatusRefused)); n > 0 {
		r.Errorf("%d callers' topics are given up", n)
	}
}

func ids(records []*kgo.Record) (ids []string) {
	for _, record := range records {
		ids = append(ids, headerText(record, "ce_id"))
	}
	return ids
}

// is wants two lists to be the same.
func (r *round) is(what string, got, want any) {
	r.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.Errorf("%s: %v, and not %v", what, got, want)
	}
}

func TestEventsOfUsersLeaveBehindTheCommit(t *testing.T) {
	r := newEmitter(t, "shop.a")
	for _, id := range []string{"o-1", "o-2"} {
		r.take(decide.Submit(r.env(), nil, &decide.Input{Record: new(decide.Record), Order: id, Submission: events.Submission{Workflow: "shop-a", Input: []byte(`{"of":"` + id + `"}`)}}))
	}
	r.commits()
	r.nowhereElse()
	r.is("begun", r.told(events.StepEmitting), []string{"o-1", "o-2"})
	must(t, r.deliver(r))
	r.carries("before the journal was read", nil)
	r.confirmed()
	r.carries("then", map[string]int{"shop.a": 2})
	m := r.deliveries[0].Records[1]
	if string(m.Key) != "k" || string(m.Value) != `{"of":"o-2"}` || headerText(m, "ce_id") != "o-2/tell" || headerText(m, "ce_source") != "/waybill/waybill" ||
		headerText(m, events.HeaderType) != "com.acme.told" || headerText(m, "ce_subject") != "o-2" || headerText(m, "ce_time") == "" || headerText(m, "content-type") != "application/json" {
		t.Errorf("%+v", m)
	}
	must(t, r.deliver(r))
	r.carries("nothing is given twice", map[string]int{"shop.a": 2})
	r.take(decide.Submit(r.env(), nil, &decide.Input{Record: new(decide.Record), Order: "o-3", Submission: events.Submission{Workflow: "shop-a"}}))
	r.commits()
	r.ends("shop.a", 2, nil)
	r.carries("of what was not read in the journal", nil)
	r.commits()
	r.is("completed", r.told(events.OrderCompleted), []string{"o-1", "o-2"})
	r.confirmed()
	r.is("what was read since", ids(r.deliveries[0].Records), []string{"o-3/tell"})
	r.ends("shop.a", 1, nil)
	r.commits()
	r.pass(deliveredEvery)
	r.commits()
	r.is("told of it but by the orders", len(r.committed), 0)
	must(t, r.flush())
	if topic, err := r.state.EmittingTo(""); r.courier.busy() || topic != "" || err != nil {
		t.Errorf("something is left for %q: %v, %+v", topic, err, r.courier)
	}
}

// A topic that does not exist: once Kafka has said so twice, more than five seconds apart, the steps
// fail, all of them, and are repaired as any; nothing goes to the namespace's topic.
func TestEventsForATopicThatDoesNotExist(t *testing.T) {
	gone := &UndeliverableError{Reason: "topic shop.gone does not exist"}
	r := newEmitter(t, "shop.gone", "shop.a")
	orders := r.emits("shop.gone", 3)
	r.ends("shop.gone", 0, gone)
	r.emits("shop.a", 1)
	r.carries("another topic is given its own", map[string]int{"shop.a": 1})
	r.ends("shop.a", 1, nil)
	for _, pause := range []time.Duration{time.Second, 2 * time.Second} {
		r.tries(pause)
		r.ends("shop.gone", 0, gone)
		r.commits()
		r.is("without proof", r.told(events.StepFailed), []string(nil))
	}
	r.tries(4 * time.Second)
	r.ends("shop.gone", 0, gone)
	r.commits()
	r.nowhereElse()
	r.is("failed", r.told(events.StepFailed), orders)
	r.is("to be tried again", r.told(events.StepRetried), orders)
	if got := r.written(r.topics.Journal, events.StepFailed); !strings.Contains(got[0], `"code":"event-refused"`) || !strings.Contains(got[0], "does not exist") || strings.Contains(got[0], "permanent") {
		t.Errorf("%s", got[0])
	}
	r.confirmed()
	r.pass(time.Second)
	r.looks(t)
	r.commits()
	r.is("tried again", r.told(events.StepEmitting), orders)
	r.confirmed()
	r.tries(0)
	r.carries("given once more", map[string]int{"shop.gone": 3})
	r.is("with the same ids", ids(r.deliveries[0].Records), []string{"o-0001/tell", "o-0002/tell", "o-0003/tell"})
	r.ends("shop.gone", 3, nil)
	r.commits()
	r.is("completed", r.told(events.OrderCompleted), orders)
}

// A topic that is away for long: the courier tries again by itself, longer than status messages wait,
// and the step's timeout ends the attempt. What is over is not given any more.
func TestEventsForATopicThatIsAway(t *testing.T) {
	r := newEmitter(t, "shop.away", "shop.a")
	orders := r.emits("shop.away", 2)
	for range 5 {
		r.ends("shop.away", 0, errAway)
		r.tries(deliveryPause)
		r.carries("it is tried again", map[string]int{"shop.away": 1})
	}
	r.commits()
	r.is("nothing was decided", len(r.committed), 0)
	r.looks(t)
	r.commits()
	r.nowhereElse()
	r.is("expired", r.told(events.StepExpired), orders)
	r.ends("shop.away", 0, errAway)
	r.tries(deliveryPause)
	r.carries("nothing is to be given", nil)
	r.emits("shop.a", 1)
	r.carries("another topic", map[string]int{"shop.a": 1})
	r.ends("shop.a", 1, nil)
	r.looks(t)
	r.commits()
	r.is("tried again", r.told(events.StepEmitting), orders)
	r.confirmed()
	r.tries(deliveryPause)
	r.ends("shop.away", 2, nil)
	r.commits()
	r.is("completed", r.told(events.OrderCompleted), orders)

	r = newEmitter(t, "shop.away")
	orders = r.emits("shop.away", 1)
	for _, pause := range []time.Duration{time.Minute, time.Second, time.Minute} {
		r.pass(pause)
		r.looks(t)
		r.commits()
	}
	r.is("in error", r.told(events.OrderErrored), orders)
	r.nowhereElse()
}

// An event that the topic does not take for what it is fails its step at once, and no other.
func TestAnEventThatIsTooLarge(t *testing.T) {
	large := func(batch bool) error { return &UndeliverableError{Reason: "too large", Message: true, Batch: batch} }
	r := newEmitter(t, "shop.a")
	orders := r.emits("shop.a", 4)
	r.ends("shop.a", 0, large(true))
	r.carries("alone", map[string]int{"shop.a": 1})
	r.ends("shop.a", 1, nil)
	r.commits()
	r.is("completed", r.told(events.StepCompleted), orders[:1])
	r.ends("shop.a", 0, large(true))
	r.ends("shop.a", 0, large(false))
	r.carries("the others go on", map[string]int{"shop.a": 1})
	r.commits()
	r.nowhereElse()
	r.is("failed", r.told(events.StepFailed), orders[1:2])
	r.ends("shop.a", 1, nil)
	r.carries("more at a time", map[string]int{"shop.a": 1})
	r.ends("shop.a", 1, nil)
	r.commits()
	r.is("completed", r.told(events.StepCompleted), orders[2:])
	if r.courier.busy() {
		t.Errorf("something is left: %+v", r.courier)
	}
}

// A thousand orders give a topic an event: each once, in their order, a part of them at a time. What is
// not taken of a part is given again after what is behind it.
func TestAThousandOrdersEmit(t *testing.T) {
	r := newEmitter(t, "shop.a")
	orders := r.emits("shop.a", 1_000)
	var given, completed []string
	for n := 0; len(given) < len(orders); n++ {
		if len(r.deliveries) == 0 {
			r.tries(eventPause)
		}
		records := r.deliveries[0].Records
		if len(r.deliveries) > 1 || len(records) > eventsAtOnce {
			t.Fatalf("%d deliveries, of %d", len(r.deliveries), len(records))
		}
		taken, err := len(records), error(nil)
		if n == 1 {
			taken, err = 10, errAway
		}
		given = append(given, ids(records[:taken])...)
		r.ends("shop.a", taken, err)
		if n%2 == 0 { // the others are decided on while it commits, or wait
			r.commits()
			completed = append(completed, r.told(events.OrderCompleted)...)
		}
	}
	for len(completed) < len(orders) {
		must(t, r.deliver(r))
		r.commits()
		if len(r.committed) == 0 {
			t.Fatalf("of %d orders %d completed", len(orders), len(completed))
		}
		completed = append(completed, r.told(events.OrderCompleted)...)
	}
	want := make([]string, 0, len(orders))
	at := slices.Concat(orders[:eventsAtOnce+10], orders[2*eventsAtOnce:], orders[eventsAtOnce+10:2*eventsAtOnce])
	for _, id := range at {
		want = append(want, id+"/tell")
	}
	r.is("given", given, want)
	r.is("completed", completed, at)
	r.tries(eventPause)
	if r.courier.busy() {
		t.Errorf("something is left: %+v", r.courier)
	}
	r.emits("shop.a", 1)
	if from := r.courier.targets[destination{"shop.a", true}].next; from < 1_000 {
		t.Errorf("it looks from %d on, though all before is given", from)
	}
}

// somePartitions is a topic of which a partition takes nothing.
type somePartitions struct {
	Broker
	dead  func(id string) bool
	given map[string]int
}

func (b somePartitions) Deliver(_ context.Context, records []*kgo.Record) []error {
	untaken := make([]error, len(records))
	for i, r := range records {
		if id := headerText(r, "ce_id"); b.dead(id) {
			untaken[i] = errAway
		} else {
			b.given[id]++
		}
	}
	return untaken
}

// Events of which one partition of their topic takes nothing keep none from the others, each of which is given
// once; they are tried again, and taken once it is back.
func TestEventsOfADeadPartition(t *testing.T) {
	r := newEmitter(t, "shop.a")
	dead := true
	b := somePartitions{given: make(map[string]int), dead: func(id string) bool { return dead && strings.HasSuffix(id, "4/tell") }}
	var orders, completed []string
	second := func(n int) {
		orders = append(orders, r.emits("shop.a", n)...)
		for again := true; again; again = len(r.committed) > 0 {
			for len(r.deliveries) > 0 {
				d := r.deliveries[0]
				r.deliveries = r.deliveries[1:]
				r.broker = b
				must(t, r.delivered(r.Lane.Deliver(r.Context(), d)))
				must(t, r.deliver(r))
			}
			r.commits()
			completed = append(completed, r.told(events.OrderCompleted)...)
			r.confirmed()
		}
		r.tries(time.Second)
	}
	for range 30 { // less than their timeout
		second(50)
	}
	if len(completed) != len(orders)*9/10 {
		t.Errorf("of %d orders %d completed", len(orders), len(completed))
	}
	dead = false
	for range 4 {
		second(0)
	}
	if len(completed) != len(orders) || r.courier.busy() {
		t.Errorf("of %d orders %d completed; something is left: %t", len(orders), len(completed), r.courier.busy())
	}
	for id, n := range b.given {
		if n != 1 {
			t.Errorf("%s was given %d times", id, n)
		}
	}
}

// A topic that is well again is tried before long, whatever its past: an attempt that has five seconds is
// given, and one that is not says why.
func TestEventsForATopicThatIsBack(t *testing.T) {
	r := newEmitter(t, "shop.away")
	r.world.(*still).flows.Add(parseFlow(t, "{workflow: quick, steps: [{name: tell, emit: {topic: shop.away, type: t}, timeout: 5s, retry: {attempts: 1}}]}"))
	orders := r.emits("shop.away", 1)
	for range 6 {
		r.ends("shop.away", 0, errAway)
		r.tries(eventPause)
	}
	r.submits("quick", "q-1")
	for range 3 { // both have their turn, one after the other
		r.ends("shop.away", 0, errAway)
		r.tries(eventPause)
	}
	r.looks(t)
	r.commits()
	r.is("expired", r.told(events.StepExpired), []string{"q-1"})
	if got := r.written(r.topics.Journal, events.StepExpired); !strings.Contains(got[0], "the last try for its topic ended with: "+errAway.Error()) {
		t.Errorf("it says %s", got[0])
	}
	r.submits("quick", "q-2")
	var completed []string
	for range 3 {
		if len(r.deliveries) > 0 {
			r.ends("shop.away", len(r.deliveries[0].Records), nil)
		}
		r.commits()
		completed = append(completed, r.told(events.OrderCompleted)...)
		r.confirmed()
		r.tries(eventPause)
	}
	slices.Sort(completed)
	r.is("completed", completed, append(orders, "q-2"))
}

// Kafka acknowledges an event after its attempt expired: that changes nothing, and leaves no event. The
// next attempt gives the same once more, but not before it is in the journal.
func TestAnAcknowledgementAfterTheAttemptExpired(t *testing.T) {
	r := newEmitter(t, "shop.a")
	orders := r.emits("shop.a", 1)
	r.pass(time.Minute)
	r.looks(t)
	r.commits()
	r.is("expired", r.told(events.StepExpired), orders)
	r.ends("shop.a", 1, nil)
	r.commits()
	r.is("recorded", len(r.committed), 0)
	r.pass(time.Second)
	r.looks(t)
	r.courier.targets[destination{"shop.a", true}] = &target{destination: destination{"shop.a", true}, window: 1}
	r.tries(time.Second)
	r.carries("it is being decided", nil)
	r.commits()
	r.confirmed()
	r.is("the next attempt", ids(r.deliveries[0].Records), []string{"o-0001/tell"})
	r.ends("shop.a", 1, nil)
	r.commits()
	r.is("completed", r.told(events.StepCompleted), orders)

	// It expires, and the next begins at once, which the journal does not have yet.
	r = newEmitter(t)
	r.world.(*still).flows.Add(parseFlow(t, `
workflow: shop-b
steps:
  - {name: tell, emit: {topic: shop.b, type: com.acme.told}, timeout: 1m, retry: {backoff: 0s}}
`))
	r.emits("shop.b", 1)
	r.pass(time.Minute)
	r.looks(t)
	r.ends("shop.b", 1, nil)
	r.courier.targets[destination{"shop.b", true}] = &target{destination: destination{"shop.b", true}, window: 1} // it looks at all anew
	r.tries(time.Second)
	r.carries("before that is committed", nil)
	r.commits()
	r.is("the next has begun", len(r.told(events.StepEmitting)), 1)
	r.confirmed()
	r.carries("then", map[string]int{"shop.b": 1})

	// The first attempt is still under way when the second has begun.
	r = newEmitter(t, "shop.a")
	orders = r.emits("shop.a", 1)
	r.pass(time.Minute)
	r.looks(t)
	r.commits()
	r.pass(time.Second)
	r.looks(t)
	r.commits()
	r.is("the next begins", r.told(events.StepEmitting), orders)
	r.confirmed()
	r.ends("shop.a", 1, nil)
	r.commits()
	r.is("that of the first counts for none", r.told(events.StepCompleted), []string(nil))
	r.ends("shop.a", 1, nil)
	r.commits()
	r.is("completed", r.told(events.StepCompleted), orders)
}

// An owner that is gone before the journal has the acknowledgement: the next gives the event once more,
// with the same id, and then the step completes.
func TestATakeoverBeforeTheAcknowledgementWasRecorded(t *testing.T) {
	r := newEmitter(t, "shop.a")
	orders := r.emits("shop.a", 2)
	first := ids(r.deliveries[0].Records)
	value := string(r.deliveries[0].Records[0].Value)
	r.ends("shop.a", 2, nil)
	if len(r.current.orders) != 2 {
		t.Fatalf("%d orders are decided on", len(r.current.orders))
	}
	r.current = newBatch() // which nobody commits
	must(t, r.owing())
	must(t, r.deliver(r))
	r.is("the next owner gives", ids(r.deliveries[0].Records), first)
	r.is("the same", string(r.deliveries[0].Records[0].Value), value)
	r.ends("shop.a", 2, nil)
	r.commits()
	r.is("completed", r.told(events.OrderCompleted), orders)
	must(t, r.owing())
	must(t, r.deliver(r))
	r.carries("after that", nil)
}

// Of an order that is held nothing is given, and it holds up no other. Once it is released that goes on.
func TestEventsOfAnOrderThatIsHeld(t *testing.T) {
	r := newEmitter(t, "shop.a")
	orders := r.emits("shop.a", 1)
	r.world.(*still).poisoned = true
	r.ends("shop.a", 1, nil)
	r.world.(*still).poisoned = false
	r.commits()
	r.is("held", r.told(events.OrderErrored), orders)
	r.carries("nothing of it", nil)
	others := r.emits("shop.a", 1)
	r.carries("another's", map[string]int{"shop.a": 1})
	r.ends("shop.a", 1, nil)
	r.commits()
	r.is("completed", r.told(events.OrderCompleted), others)
	o, err := r.order(orders[0])
	must(t, err)
	r.take(decide.On(r.env(), o, &decide.Input{Record: new(decide.Record), Order: o.ID, Command: &events.Command{Command: events.CommandRelease, ID: "c-1"}}))
	r.commits()
	r.confirmed()
	r.is("once more", ids(r.deliveries[0].Records), []string{"o-0001/tell"})
	r.ends("shop.a", 1, nil)
	r.commits()
	r.is("completed", r.told(events.OrderCompleted), orders)
}

// What Kafka refuses of what follows from an acknowledgement is found as that of inputs is: a batch
// decides on as many as it may, and what is found is held.
func TestWhatFollowsFromAnEventIsRefused(t *testing.T) {
	r := newEmitter(t, "shop.a")
	orders := r.emits("shop.a", 3)
	r.halves.most = 1
	r.halves.suspects = map[unit]*suspect{ofDue(orders[0]): {why: "Kafka refuses it"}}
	r.ends("shop.a", 3, nil)
	r.is("decided on", len(r.current.units), 1)
	r.commits()
	r.is("held", r.told(events.OrderErrored), orders[:1])
	r.carries("while the others wait", nil)
	for _, id := range orders[1:] {
		r.halves.most = 1
		must(t, r.deliver(r))
		r.commits()
		r.is("completed", r.told(events.OrderCompleted), []string{id})
	}
	must(t, r.deliver(r))
	r.carries("nothing again", nil)
}

// Status messages and events for one topic hold up nothing of each other: what the one does not get
// says nothing of the other.
func TestEventsAndStatusMessagesForOneTopic(t *testing.T) {
	r := newEmitter(t, "shop.a")
	r.cfg.StatusPatience = 24 * time.Hour
	r.owes("shop.a", 1)
	r.ends("shop.a", 0, errAway)
	orders := r.emits("shop.a", 1)
	r.carries("the event", map[string]int{"shop.a": 1})
	r.ends("shop.a", 1, nil)
	r.commits()
	r.is("completed", r.told(events.OrderCompleted), orders)
	r.tries(time.Second)
	r.is("the status message", headerText(r.deliveries[0].Records[0], events.HeaderType), events.OrderStatus)
	r.ends("shop.a", 1, nil)
	r.pass(deliveredEvery)
	r.commits()
	r.is("the journal is told of that", len(r.written(r.topics.Journal, events.PartitionDelivered)), 1)
}

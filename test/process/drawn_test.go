//go:build unix

package process

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/leftout"
	"github.com/waybill-dev/waybill/test/office"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/world"
)

// All rows together: workflows that nobody thought of, agents that fail, refuse,
// hang and are slow, operators who interfere, and processes that are killed.
// Nothing is lost, nothing is doubled, nothing is stuck: every history keeps
// every rule of the oracle, every message left once (S1 to S6, V2 to V6, T1 to
// T5, C1 to C3, P1 to P4), and what the services did agrees with what the orders
// say was done, and undone. WAYBILL_SEED repeats a drawing, WAYBILL_KILLS sets
// how often it is killed.
func TestDrawnOrdersWhileDevIsKilled(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	w := draw(t, d.books.topics, d.kafka, d.client, d.http, 0)
	for range number(t, "WAYBILL_KILLS", 3) {
		w.load.more(d.process, 10+rand.Int64N(40))
		d.kill()
		d.again()
	}
	d.ready(d.client)
	w.load.more(d.process, 50)
	w.finish(d.process)
	w.check()
	waybill(t, "replay", "--verify", "--brokers", d.kafka, "--server", d.http)
	d.stop()
}

// The same with two instances on Apache Kafka, one of which is killed, and comes
// back (V6, S5).
func TestDrawnOrdersWhileInstancesAreKilled(t *testing.T) {
	leftout.UnlessLong(t, "drawn orders while one of two instances is killed")
	t.Parallel()
	c := newCluster(t, kafka.Container(t))
	c.createTopics()
	one, two := c.two()
	w := draw(t, c.topics, c.broker.Brokers[0], one.client, one.http, 0)
	one.owned(one, two)
	w.load.more(one.process, 60)
	two.kill()
	one.owned(one)
	two.again()
	two.ready(two.client)
	one.owned(one, two)
	w.load.more(one.process, 50)
	w.finish(one.process)
	w.check()
	for _, s := range []*serve{one, two} {
		waybill(t, append([]string{"replay", "--verify", "--server", s.http}, c.flags...)...)
	}
	one.stop()
	two.stop()
}

// number is a setting of the environment.
func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// drawnSeed is that of what a test draws. WAYBILL_SEED repeats it.
func drawnSeed(t *testing.T) uint64 {
	t.Helper()
	seed := number(t, "WAYBILL_SEED", int(rand.Int32()))
	t.Logf("WAYBILL_SEED=%d", seed)
	return uint64(seed)
}

// drawn are orders, agents and operators that were drawn by lot.
type drawn struct {
	*testing.T
	seed    uint64
	topics  *events.Topics
	broker  string
	server  string
	client  *api.Client
	caller  string // the topic that half of the orders name
	load    *load
	beside  int64 // how many orders others submitted
	service *world.Service
	office  *operators
}

const (
	drawnFlows  = 8
	drawnAgents = 3
)

// family is a workflow whose steps other orders do, and items that an agent lists page by page.
const family = `
workflow: drawn-family
steps:
  - {name: near, order: drawn-sure, exhausted: continue}
  - name: many
    each:
      items: {agent: drawn-1, do: list, timeout: 1s, retry: {attempts: 3, backoff: 50ms}}
      steps:
        - {name: pay, agent: drawn-0, undo: back, timeout: 1s, retry: {attempts: 2, backoff: 50ms}}
      tolerate: 50%
      onFailure: finish
    exhausted: compensate
    after: []
`

// draw registers drawn workflows, of a level of the language at most, and has agents serve
// them and orders come.
func draw(t *testing.T, topics *events.Topics, broker string, client *api.Client, http string, level int) *drawn {
	t.Helper()
	w := &drawn{T: t, server: http, seed: drawnSeed(t), topics: topics, broker: broker, client: client, caller: topics.Namespace + "-caller"}
	by := rand.New(rand.NewPCG(w.seed, 0))
	if level == 0 {
		oracle.Until(t, "the namespace is in the newest format", func() error { return office.NewestFormat(t.Context(), client) })
		waybill(t, "limit", "apply", fileOf(t, "limit: drawn\natATime: 4"), "--server", http)
	}
	for n := range drawnFlows {
		drawing := world.Drawing{
			Name: fmt.Sprintf("drawn-%d", n), Version: 1, Agents: []string{"drawn-0", "drawn-1", "drawn-2"},
			Timeout: 500 * time.Millisecond, Pause: 50 * time.Millisecond, Level: level, Until: time.Now().Add(time.Minute),
		}
		if level == 0 {
			drawing.Topics, drawing.Limits, drawing.Keyed, drawing.Turns = []string{w.caller}, []string{"drawn"}, true, true
		}
		source := drawing.Flow(func(_ string, n int) int { return by.IntN(n) })
		t.Log(source)
		registerSource(t, http, source)
	}
	kafka, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		t.Fatal(err)
	}
	defer kafka.Close()
	if _, err := kadm.NewClient(kafka).CreateTopic(t.Context(), 2, 1, nil, w.caller); err != nil {
		t.Fatal(err)
	}
	registerSource(t, http, world.Sure("drawn-sure", "drawn-0", "drawn-1", "drawn-2"))
	if level == 0 {
		registerSource(t, http, family)
	}
	w.service = world.NewService(w.seed)
	for n := range drawnAgents {
		w.agent(topics.Requests(fmt.Sprintf("drawn-%d", n)), n)
	}
	w.load = submittingTo(t, 100*time.Millisecond, func(n int64) string {
		replyTo := ""
		if n%2 == 0 {
			replyTo = `,"replyTo":"` + w.caller + `"`
		}
		flow := fmt.Sprintf("drawn-%d", n%drawnFlows)
		switch {
		case n%5 == 0:
			flow = "drawn-sure"
		case n%7 == 0 && level == 0:
			flow = "drawn-family"
		}
		return fmt.Sprintf(`{"workflow":%q,"input":{"n":%d}%s}`, flow, n, replyTo)
	}, topics, broker)
	w.office = operate(t, w)
	return w
}

// agent serves one queue until the test ends. Every second agent sends its
// replies anywhere.
func (w *drawn) agent(topic string, n int) {
	w.Helper()
	partitioner := kgo.StickyKeyPartitioner(nil)
	if n%2 == 0 {
		partitioner = kgo.RoundRobinPartitioner()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(w.broker), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RecordPartitioner(partitioner), kgo.ProducerLinger(0), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.service.Agent(ctx, client, w.Errorf) })
	w.Cleanup(func() {
		cancel()
		client.Close()
		running.Wait()
	})
}

// operators interfere with orders until they are dismissed.
type operators struct {
	*office.Office
	dismiss func()
	signals int
}

func operate(t *testing.T, w *drawn) *operators {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.broker), kgo.ProducerLinger(0), kgo.RecordDeliveryTimeout(10*time.Second), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	f := &operators{Office: office.Open(client, w.topics.Commands)}
	ctx, cancel := context.WithCancel(context.Background())
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		by := rand.New(rand.NewPCG(w.seed, 1))
		again := time.NewTicker(20 * time.Millisecond)
		defer again.Stop()
		for {
			select {
			case <-again.C:
				if n := w.load.Through(); n > 0 {
					f.Interfere(w.Context(), by, w.client, world.OrderID(1+by.Int64N(n)))
					f.signal(w, by, client, 1+by.Int64N(n))
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	f.dismiss = sync.OnceFunc(func() { cancel(); <-closed })
	t.Cleanup(func() { f.dismiss(); client.Close() })
	return f
}

// signal signals to an order, or under a key, perhaps twice.
func (f *operators) signal(w *drawn, by *rand.Rand, client *kgo.Client, n int64) {
	f.signals++
	order, key := world.OrderID(n), ""
	if by.IntN(2) == 1 {
		order, key = world.Key(n), fmt.Sprintf(`"key":%q,`, world.Key(n))
	}
	value := fmt.Appendf(nil, `{"signal":%q,%s"id":"p-%d","data":{"n":%d}}`, []string{"go", "stop"}[by.IntN(2)], key, f.signals, n)
	for range 1 + by.IntN(2) {
		client.Produce(w.Context(), &kgo.Record{Topic: w.topics.Signals, Key: []byte(order), Value: value}, nil)
	}
}

// finish lets all come to an end: the services are well, the operators let go
// what waits for them, and every order ends.
func (w *drawn) finish(p *process) {
	w.Helper()
	ending := &office.Ending{Client: w.client, Office: w.office.Office, Open: w.load.stop(p)}
	w.office.dismiss()
	w.service.Recover()
	began := time.Now()
	defer func() {
		for _, id := range ending.Open[:min(len(ending.Open), 3)] {
			said, err := command(context.Background(), w.T, "order", "history", id, "--server", w.server).CombinedOutput()
			w.Logf("%s has not ended: %v\n%s", id, err, said)
		}
		w.Logf("%d orders; the last ended %s after the services were well", w.load.Acked(), time.Since(began).Round(time.Millisecond))
	}()
	// What is stuck shows in that nothing ends any more. A machine that is busy makes agents late, and an agent that was late
	// is asked for little until it is found to be well (ADR 0020): then the last of a thousand take minutes.
	last := began
	p.within(flightPatience, "all orders have ended", func() error {
		ended := ending.Ended()
		err := ending.Look(p.Context())
		if ending.Ended() > ended {
			last = time.Now()
		}
		if err != nil && time.Since(last) > oracle.Patience {
			p.Fatalf("no order has ended for %s: %v", oracle.Patience, err)
		}
		return err
	})
}

// comesUp is what must come up in each run, whatever the workflows are that were drawn: it does dozens of times.
var comesUp = []events.Type{
	events.StepRetried, events.StepExpired, events.OrderCompensating, events.CommandRefused, events.ReplyDiscarded, events.SignalDiscarded,
}

// check holds everything against everything.
func (w *drawn) check() {
	w.Helper()
	found := audit.Namespace(w, []string{w.broker}, w.topics, true, w.caller)
	w.Log(found)
	ids, have := w.load.Acked()+w.beside, int64(0)
	for id := range found.Histories {
		if !events.OwnID(id) { // else the audit knows who asked for it
			have++
		}
	}
	if have != ids {
		w.Errorf("%d orders were submitted, and the journal has %d", ids, have)
	}
	if a := found.Accounts; a.Rejected > 0 || a.Panicked > 0 || a.PutAside > 0 {
		w.Errorf("%d orders were rejected, deciding panicked %d times, and %d inputs were put aside", a.Rejected, a.Panicked, a.PutAside)
		for r := range oracle.Records(w, []string{w.broker}, w.topics.DeadLetters) {
			w.Logf("%s of %s: %s", r.Value, r.Key, r.Headers)
		}
	}
	kinds := make(map[events.Type]int)
	for _, history := range found.Histories {
		for i := range history {
			kinds[history[i].Type]++
		}
	}
	for _, kind := range comesUp {
		if kinds[kind] == 0 {
			w.Errorf("%s never came up", kind)
		}
	}
	if len(w.office.Sent()) == 0 {
		w.Error("operators did nothing")
	}
	for order, commands := range w.office.Sent() {
		for _, id := range commands {
			if n := found.Commands(order, id); n != 1 {
				w.Errorf("order %s: command %s was acted on %d times", order, id, n)
			}
		}
	}
	for order := range found.Histories {
		if events.OwnID(order) { // which may name a topic that is not there
			continue
		}
		if n := found.Count(order, func(e *events.Event) bool { return e.Type == events.StatusRefused }); n > 0 {
			w.Errorf("order %s: the caller's topic was refused", order)
		}
	}
	lost, doubled := w.service.Compare(found)
	for _, wrong := range slices.Concat(lost, doubled, found.Unearned()) {
		w.Error(wrong)
	}
}

//go:build unix

package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/office"
)

// All rows together: workflows that nobody thought of, agents that fail, refuse,
// hang and are slow, operators who interfere, and processes that are killed.
// Nothing is lost, nothing is doubled, nothing is stuck: every history keeps
// every rule of the oracle, every message left once (S1 to S6, V2 to V6, T1 to
// T5, C1 to C3, P1 to P4), and what the services did agrees with what the orders
// say was done, and undone. WAYBILL_SEED repeats a drawing, WAYBILL_KILLS sets
// how often it is killed.
func TestDrawnOrdersWhileDevIsKilled(t *testing.T) {
	d := startDev(t)
	w := draw(t, d.books.topics, d.kafka, d.client, d.http)
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
	c := newCluster(t, kafka.Container(t))
	c.createTopics()
	one, two := c.serve("one"), c.serve("two")
	one.ready(one.client)
	two.ready(two.client)
	w := draw(t, c.topics, c.broker.Brokers[0], one.client, one.http)
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

// drawn are orders, agents and operators that were drawn by lot.
type drawn struct {
	*testing.T
	seed    uint64
	topics  *events.Topics
	broker  string
	client  *api.Client
	caller  string // the topic that half of the orders name
	load    *load
	service *service
	office  *operators
}

const (
	drawnFlows  = 8
	drawnAgents = 3
)

func draw(t *testing.T, topics *events.Topics, broker string, client *api.Client, http string) *drawn {
	t.Helper()
	w := &drawn{T: t, seed: uint64(number(t, "WAYBILL_SEED", int(rand.Int32()))), topics: topics, broker: broker, client: client, caller: topics.Namespace + "-caller"}
	t.Logf("WAYBILL_SEED=%d", w.seed)
	by := rand.New(rand.NewPCG(w.seed, 0))
	for n := range drawnFlows {
		source := drawFlow(by, n)
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
	w.service = &service{seed: w.seed, did: make(map[string]map[string]bool)}
	for n := range drawnAgents {
		w.service.agent(t, topics.Requests(fmt.Sprintf("drawn-%d", n)), broker, n)
	}
	w.load = submittingTo(t, 100*time.Millisecond, func(n int64) string {
		replyTo := ""
		if n%2 == 0 {
			replyTo = `,"replyTo":"` + w.caller + `"`
		}
		return fmt.Sprintf(`{"workflow":"drawn-%d","input":{"n":%d}%s}`, n%drawnFlows, n, replyTo)
	}, topics, broker)
	w.office = operate(t, w)
	return w
}

// drawFlow draws a workflow: its shape, its undos, its patience.
func drawFlow(by *rand.Rand, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "workflow: drawn-%d\nsteps:\n", n)
	for s := range 2 + by.IntN(4) {
		fmt.Fprintf(&b, "  - {name: s%d, agent: drawn-%d, timeout: %dms, retry: {attempts: %d, backoff: %dms, multiplier: 2, jitter: 0.5}",
			s, by.IntN(drawnAgents), 300+by.IntN(900), 1+by.IntN(3), 1+by.IntN(100))
		if by.IntN(4) > 0 {
			fmt.Fprintf(&b, ", undo: un-s%d", s)
		}
		if by.IntN(2) > 0 {
			var after []string
			for earlier := range s {
				if by.IntN(2) > 0 {
					after = append(after, fmt.Sprintf("s%d", earlier))
				}
			}
			fmt.Fprintf(&b, ", after: [%s]", strings.Join(after, ", "))
		}
		if by.IntN(4) == 0 {
			fmt.Fprintf(&b, `, when: "input.n %% %d != 0"`, 2+by.IntN(3))
		}
		if by.IntN(4) == 0 {
			b.WriteString(`, with: "{'n': input.n, 'twice': input.n * 2}"`)
		}
		switch by.IntN(4) {
		case 0, 1:
			b.WriteString(", exhausted: compensate")
		case 2:
			fmt.Fprintf(&b, ", exhausted: wait, wait: {for: %dms, rounds: %d}", 50+by.IntN(300), 1+by.IntN(2))
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// service is what stands behind all agents. What it does, and whether anybody
// hears of it, follows from the seed, the key and the attempt; once it is well,
// all is done.
type service struct {
	seed uint64

	mu   sync.Mutex
	well bool
	did  map[string]map[string]bool // of an order: operation and step
}

// drawnRequest is as much of a request as the agent needs.
type drawnRequest struct {
	Order          string    `json:"order"`
	Step           string    `json:"step"`
	Attempt        int       `json:"attempt"`
	IdempotencyKey string    `json:"idempotencyKey"`
	CompleteBy     time.Time `json:"completeBy"`
	Undo           bool      `json:"undo"`
	ReplyTo        string    `json:"replyTo"`
}

func (r *drawnRequest) deed() string {
	if r.Undo {
		return "undo " + r.Step
	}
	return "do " + r.Step
}

// handle does what is asked, or not, and returns the replies, each with when it
// is sent.
func (s *service) handle(r *drawnRequest) (outcomes []string, slow bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do := func() {
		if s.did[r.Order] == nil {
			s.did[r.Order] = make(map[string]bool)
		}
		s.did[r.Order][r.deed()] = true
	}
	const (
		completed = `"status":"completed","output":{"receipt":7}`
		transient = `"status":"failed","error":{"code":"busy"}`
		permanent = `"status":"failed","error":{"code":"refused","permanent":true}`
	)
	h := fnv.New64a()
	fmt.Fprint(h, s.seed, r.IdempotencyKey, r.Attempt)
	chance := h.Sum64() >> 8 % 100
	switch {
	case s.well || chance < 65:
		do()
		return []string{completed}, false
	case chance < 70:
		do()
		return []string{completed, completed}, false
	case chance < 75:
		do()
		return []string{completed}, true
	case chance < 88:
		return []string{transient}, false
	case chance < 92:
		return []string{permanent}, false
	case chance < 96:
		do() // and nobody hears of it
	}
	return nil, false
}

// agent serves one queue until the test ends, one request after the other. Every
// second agent sends its replies anywhere.
func (s *service) agent(t *testing.T, topic, broker string, n int) {
	t.Helper()
	partitioner := kgo.StickyKeyPartitioner(nil)
	if n%2 == 0 {
		partitioner = kgo.RoundRobinPartitioner()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RecordPartitioner(partitioner), kgo.ProducerLinger(0), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	send := func(r *drawnRequest, outcomes []string) {
		undo := ""
		if r.Undo {
			undo = `"undo":true,`
		}
		for _, outcome := range outcomes {
			if time.Now().Before(r.CompleteBy) { // A4
				client.Produce(ctx, &kgo.Record{
					Topic: r.ReplyTo, Key: []byte(r.Order),
					Value: fmt.Appendf(nil, `{"order":%q,"step":%q,"attempt":%d,%s%s}`, r.Order, r.Step, r.Attempt, undo, outcome),
				}, nil) // what is lost is asked for again
			}
		}
	}
	running.Go(func() {
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
				var r drawnRequest
				if err := json.Unmarshal(record.Value, &r); err != nil {
					t.Errorf("request %s: %v", record.Value, err)
				}
				if !time.Now().Before(r.CompleteBy) {
					return
				}
				outcomes, slow := s.handle(&r)
				if !slow {
					send(&r, outcomes)
					return
				}
				running.Go(func() {
					select {
					case <-time.After(time.Until(r.CompleteBy) * 9 / 10):
						send(&r, outcomes)
					case <-ctx.Done():
					}
				})
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		client.Close()
		running.Wait()
	})
}

func (s *service) recovers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.well = true
}

// operators interfere with orders until they are dismissed.
type operators struct {
	*office.Office
	dismiss func()
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
				if n := w.load.acked.Load(); n > 0 {
					f.Interfere(w.Context(), by, w.client, orderID(1+by.Int64N(n)))
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

// finish lets all come to an end: the services are well, the operators let go
// what waits for them, and every order ends.
func (w *drawn) finish(p *process) {
	w.Helper()
	ids := w.load.stop(p)
	w.office.dismiss()
	w.service.recovers()
	began := time.Now()
	defer func() {
		w.Logf("%d orders; the last ended %s after the services were well", w.load.acked.Load(), time.Since(began).Round(time.Millisecond))
	}()
	told := make(map[string]time.Time) // when each order had last changed when an operator acted on it
	p.until("all orders have ended", func() error {
		var open []string
		for _, id := range ids {
			o, err := w.client.Order(p.Context(), id)
			if err != nil {
				return err
			}
			if o.ProcessState.Final() {
				continue
			}
			open = append(open, id)
			command := `"command":"resubmit","sameKey":true`
			if o.Paused {
				command = `"command":"resume"`
			} else if o.ProcessState != "Error" {
				continue
			}
			if at := o.UpdatedAt.Time; !at.Equal(told[id]) {
				told[id] = at
				w.office.Send(w.Context(), id, command)
			}
		}
		if ids = open; len(ids) > 0 {
			o, err := w.client.Order(p.Context(), ids[0])
			return errors.Join(err, fmt.Errorf("%d have not, the first is %+v", len(ids), o))
		}
		return nil
	})
}

// check holds everything against everything.
func (w *drawn) check() {
	w.Helper()
	found := audit.Namespace(w, []string{w.broker}, w.topics, true, w.caller)
	w.Log(found)
	ids := w.load.acked.Load()
	if int64(len(found.Histories)) != ids {
		w.Errorf("%d orders were submitted, and the journal has %d", ids, len(found.Histories))
	}
	(&books{w.T, w.topics, []string{w.broker}}).noDeadLetters()
	for order, commands := range w.office.Sent() {
		for _, id := range commands {
			if n := found.Commands(order, id); n != 1 {
				w.Errorf("order %s: command %s was acted on %d times", order, id, n)
			}
		}
	}
	for order, l := range found.Ledgers {
		did := w.service.did[order]
		for _, s := range l.Steps {
			switch done, undone := did["do "+s.Name], did["undo "+s.Name]; {
			case s.State == "completed" && !done:
				w.Errorf("order %s says that step %s was done, and the service did not do it", order, s.Name)
			case s.State == "undone" && !undone:
				w.Errorf("order %s says that step %s was undone, and the service did not undo it", order, s.Name)
			case s.State != "undone" && undone && (s.Undo == nil || s.Undo.State == "not-started"):
				w.Errorf("order %s says that step %s is %s, and the service undid it", order, s.Name, s.State)
			case done && s.State == "not-started":
				w.Errorf("order %s says that step %s was not begun, and the service did it", order, s.Name)
			}
		}
	}
}

// Package integration tries a whole Waybill over real topics. Every test runs
// twice: on the embedded broker and on Apache Kafka in a container.
package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
	kit "github.com/waybill-dev/waybill/test/world"
)

// Tests that wait for others most of the time run side by side, more of them than
// there are processors. Those that stop the container, or measure out their
// deadlines, run alone.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	kafka.Main(m)
}

const partitions = 3

// fulfilment is a workflow of three steps that three agents serve. Nothing that is
// lost heals: no step is asked for again.
const fulfilment = `
workflow: fulfilment
version: 1
steps:
  - {name: reserve, agent: inventory, do: reserve, timeout: 1h, retry: {attempts: 1}}
  - {name: charge, agent: payment, do: charge, timeout: 1h, retry: {attempts: 1}}
  - {name: ship, agent: shipping, do: ship, timeout: 1h, retry: {attempts: 1}}
`

// world is a namespace of its own on a broker. When the test has ended, and all
// that ran has stopped, it is audited, unless the test did that itself.
type world struct {
	*kit.Outsider
	broker  *kafka.Broker
	topics  events.Topics
	client  *kgo.Client
	admin   *kadm.Client
	audited bool
}

func newWorld(t *testing.T, b *kafka.Broker) *world {
	t.Helper()
	w := &world{broker: b}
	var err error
	if w.topics, err = events.NewTopics(kafka.Namespace(t)); err != nil {
		t.Fatal(err)
	}
	w.Outsider = kit.NewOutsider(t, b.Brokers, w.topics.Namespace)
	w.client = b.Client(t)
	w.admin = kadm.NewClient(w.client)
	if _, err := orchestrator.CreateTopics(t.Context(), w.admin, &w.topics, partitions, 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !w.audited && !t.Failed() {
			audit.Namespace(afterwards{t}, b.Brokers, &w.topics, true, w.Callers...)
		}
	})
	return w
}

// afterwards is a test whose context has ended, but which has something to do.
type afterwards struct{ testing.TB }

func (afterwards) Context() context.Context { return context.Background() }

// running is an instance that runs.
type running struct {
	*orchestrator.Instance
	dir  string
	stop func() // stops it in good order; safe to call again
}

func (w *world) config(id, dir string) orchestrator.Config {
	return orchestrator.Config{
		ID: id, Namespace: w.topics.Namespace, DataDir: dir,
		Kafka:          []kgo.Opt{kgo.SeedBrokers(w.broker.Brokers...)},
		SuperviseEvery: 20 * time.Millisecond, SessionTimeout: 6 * time.Second,
		Logger: slog.New(slog.NewTextHandler(testLog{w}, nil)),
	}
}

// start runs an instance until the test ends, and returns once it serves all
// partitions that it was given.
func (w *world) start(id, dir string, options ...func(*orchestrator.Config)) *running {
	w.Helper()
	cfg := w.config(id, dir)
	for _, set := range options {
		set(&cfg)
	}
	i, err := orchestrator.New(w.Context(), cfg)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- i.Run(ctx) }()
	r := &running{Instance: i, dir: dir, stop: sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, i.Close()); err != nil {
			w.Errorf("instance %s: %v", id, err)
		}
	})}
	w.Cleanup(r.stop)
	w.until("instance "+id+" is ready", i.Ready)
	return r
}

func (w *world) register(r *running, source string) *workflow.Workflow {
	w.Helper()
	flow, err := workflow.Parse("test.yaml", []byte(source))
	if err != nil {
		w.Fatal(err)
	}
	if err := r.Register(w.Context(), flow); err != nil {
		w.Fatal(err)
	}
	return flow
}

// serve runs an agent until the test ends. It does one thing for every
// operation.
func (w *world) serve(agent string, do func(context.Context, agents.Request[any]) (any, error), operations ...string) {
	w.Helper()
	all := agents.Operations{}
	for _, name := range operations {
		all[name] = agents.Do(do)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- agents.Serve(ctx, agents.Config{
			Agent: agent, Brokers: w.broker.Brokers, Namespace: w.topics.Namespace, StopTimeout: time.Second,
			Logger: slog.New(slog.DiscardHandler),
		}, all)
	}()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("agent %s: %v", agent, err)
		}
	})
}

// serveFulfilment runs the agents of [fulfilment].
func (w *world) serveFulfilment() {
	w.Helper()
	echo := func(_ context.Context, r agents.Request[any]) (any, error) { return r.IdempotencyKey, nil }
	w.serve("inventory", echo, "reserve")
	w.serve("payment", echo, "charge")
	w.serve("shipping", echo, "ship")
}

// order waits until an order is as wanted.
func (w *world) order(r *running, id string, wanted func(*projections.Order) bool) *projections.Order {
	w.Helper()
	var found *projections.Order
	w.until("order "+id, func() error {
		o, _, err := r.Store().Order(r.Partition(id), id)
		if err != nil {
			return err
		}
		if found = o; !wanted(o) {
			return fmt.Errorf("it is %s: %+v", o.State, o.Steps)
		}
		return nil
	})
	return found
}

func in(state projections.State) func(*projections.Order) bool {
	return func(o *projections.Order) bool { return o.State == state }
}

func (w *world) until(what string, check func() error) {
	w.Helper()
	oracle.Until(w, what, check)
}

// read returns the committed records of a topic up to its end of now.
func (w *world) read(topic string) []*kgo.Record {
	w.Helper()
	return oracle.Read(w, w.broker.Brokers, topic)
}

// every returns the same records one by one.
func (w *world) every(topic string) iter.Seq[*kgo.Record] {
	w.Helper()
	return oracle.Records(w, w.broker.Brokers, topic)
}

// records waits until a topic has n records that match.
func (w *world) records(topic string, n int, match func(*kgo.Record) bool) []*kgo.Record {
	w.Helper()
	var found []*kgo.Record
	w.until(fmt.Sprintf("%d records on %s", n, topic), func() error {
		found = nil
		for _, r := range w.read(topic) {
			if match(r) {
				found = append(found, r)
			}
		}
		if len(found) < n {
			return fmt.Errorf("%d of %d", len(found), n)
		}
		return nil
	})
	if len(found) != n {
		w.Fatalf("%s has %d records of %d", topic, len(found), n)
	}
	return found
}

func keyed(id string) func(*kgo.Record) bool {
	return func(r *kgo.Record) bool { return string(r.Key) == id }
}

// types returns the journal of one order in short: each event's type without
// its prefix.
func (w *world) types(id string) string {
	w.Helper()
	var short []string
	for _, r := range w.read(w.topics.Journal) {
		if string(r.Key) == id {
			short = append(short, strings.TrimPrefix(events.Header(r, events.HeaderType), "waybill."))
		}
	}
	return strings.Join(short, " ")
}

// audit holds all that is on Kafka against all rules.
func (w *world) audit() *audit.Books {
	w.Helper()
	w.audited = true
	return audit.Namespace(w, w.broker.Brokers, &w.topics, true, w.Callers...)
}

// dump returns all keys and values of an instance's projection, but for the
// heads: every owner claims its partitions anew.
func (w *world) dump(r *running) string {
	w.Helper()
	var all strings.Builder
	for p := range r.Partitions() {
		err := r.Store().Dump(p, func(projections.Head) error { return nil }, func(key, value []byte) error {
			if key[4] != 'h' {
				fmt.Fprintf(&all, "%x %x\n", key, value)
			}
			return nil
		})
		if err != nil {
			w.Fatal(err)
		}
	}
	return all.String()
}

// testLog writes an instance's log to the test's.
type testLog struct{ t testing.TB }

func (l testLog) Write(line []byte) (int, error) {
	l.t.Logf("%s", strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

// Package waybill gives a test a running Waybill, with all that it needs, and
// with those outside by hand:
//
//	w := waybill.Start(t, "workflow.yaml")
//	shop, bank := w.Caller("shop"), w.Hand("payment")
//	w.Submit("o-1", `{"workflow":"order","replyTo":"`+shop.Topic+`"}`)
//	bank.Does("o-1", "charge", world.Refused)
//	shop.Hears("o-1", "received", "failed")
//
// When the test ends all that ran is stopped, and all that is on Kafka is held
// against what Waybill promises: every input is accounted for, and nothing came
// twice, or never, or out of order.
package waybill

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
	"github.com/waybill-dev/waybill/test/world"
)

// Partitions is how many each namespace has.
const Partitions = 3

// Waybill is a namespace of its own on a broker, with the instances that run
// there.
type Waybill struct {
	*world.Outsider
	Broker    *kafka.Broker
	Topics    events.Topics
	Admin     *kadm.Client
	Instances []*Instance // all that were run, in turn
	Foreign   bool        // see [audit.Audit]

	keys    func() *proof.Keys // of the instances, nil if they have none
	audited map[string]int64   // up to where, see ends; nil if it was not yet
	last    bool               // see LastAudit
}

// Instance is one of Waybill's that runs.
type Instance struct {
	*orchestrator.Instance
	Dir  string // where its state store is
	Stop func() // stops it in good order; safe to call again
}

// Start runs one instance until t ends, on a broker in memory, and registers the
// workflows of some files. [Waybill.Run] runs more of them.
func Start(t testing.TB, files ...string) *Waybill {
	t.Helper()
	w := New(t)
	i := w.Run("i-1", t.TempDir())
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		w.register(i, file, text)
	}
	return w
}

// New makes the topics of a new namespace on a broker in memory. Nothing runs
// there yet.
func New(t testing.TB) *Waybill {
	t.Helper()
	return On(t, kafka.Embedded(t))
}

// On does the same on any broker.
func On(t testing.TB, b *kafka.Broker) *Waybill {
	t.Helper()
	topics, err := events.NewTopics(kafka.Namespace(t))
	if err != nil {
		t.Fatal(err)
	}
	w := &Waybill{Outsider: world.NewOutsider(t, b.Brokers, topics.Namespace), Broker: b, Topics: topics, Admin: b.Admin(t)}
	if _, err := orchestrator.CreateTopics(t.Context(), w.Admin, &w.Topics, Partitions, 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if w.unaudited(afterwards{t}) {
			w.audit(afterwards{t})
		}
	})
	return w
}

// Run runs an instance until the test ends, and returns once it serves all
// partitions that it was given, and knows the others.
func (w *Waybill) Run(id, dir string, settings ...func(*orchestrator.Config)) *Instance {
	w.Helper()
	i := w.Begin(id, dir, settings...)
	oracle.Until(w, "instance "+id+" is ready", i.Ready)
	return i
}

// Begin does the same, and does not wait until any partition is served.
func (w *Waybill) Begin(id, dir string, settings ...func(*orchestrator.Config)) *Instance {
	w.Helper()
	config := orchestrator.Config{
		ID: id, Namespace: w.Namespace, DataDir: dir,
		Kafka:          []kgo.Opt{kgo.SeedBrokers(w.Broker.Brokers...)},
		SuperviseEvery: 20 * time.Millisecond, SessionTimeout: 6 * time.Second,
		Logger: w.logger(),
	}
	for _, set := range settings {
		set(&config)
	}
	w.keys = config.Keys
	instance, err := orchestrator.New(w.Context(), config)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- instance.Run(ctx) }()
	i := &Instance{Instance: instance, Dir: dir, Stop: sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, instance.Close()); err != nil {
			w.Errorf("instance %s: %v", id, err)
		}
	})}
	w.Cleanup(func() {
		// What callers hear is noted behind that: nobody does once the last has stopped.
		if len(w.Callers) > 0 && w.unaudited(afterwards{w}) {
			audit.Delivered(afterwards{w}, w.Broker.Brokers, &w.Topics, w.Callers...)
		}
		i.Stop()
	})
	w.Instances = append(w.Instances, i)
	return i
}

// logger writes to the test's log.
func (w *Waybill) logger() *slog.Logger { return slog.New(slog.NewTextHandler(w.Output(), nil)) }

// Register registers the text of a workflow with an instance.
func (w *Waybill) Register(i *Instance, text string) *workflow.Workflow {
	w.Helper()
	return w.register(i, "workflow.yaml", []byte(text))
}

func (w *Waybill) register(i *Instance, file string, text []byte) *workflow.Workflow {
	w.Helper()
	flow, err := workflow.Parse(file, text)
	if err != nil {
		w.Fatal(err)
	}
	if err := i.Register(w.Context(), flow); err != nil {
		w.Fatal(err)
	}
	return flow
}

// Serve runs an agent of the SDK until the test ends. Where Kafka is, and where the
// log goes, need not be said.
func (w *Waybill) Serve(config agents.Config, operations agents.Operations) {
	w.Helper()
	config.Brokers, config.Namespace = w.Broker.Brokers, w.Namespace
	config.Logger = cmp.Or(config.Logger, w.logger())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agents.Serve(ctx, config, operations) }()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("agent %s: %v", config.Agent, err)
		}
	})
}

// Audit holds all that is on Kafka against the rules now: nothing may be under way any more. What comes later is held against
// them when the test ends.
func (w *Waybill) Audit() *audit.Books {
	w.Helper()
	ends := w.ends(w)
	books := w.audit(w)
	w.audited = ends
	return books
}

// LastAudit does the same, and what comes later is not held against the rules: why says for what reason.
func (w *Waybill) LastAudit(why string) {
	w.Helper()
	w.audit(w)
	w.last = true
	w.Logf("no audit of what comes from now on: %s", why)
}

// unaudited says whether there is something that was not held against the rules, and can be.
func (w *Waybill) unaudited(t testing.TB) bool {
	t.Helper()
	return !t.Failed() && !w.last && (w.audited == nil || !maps.Equal(w.audited, w.ends(t)))
}

// ends says how much is on the topics that others write, and on the journal.
func (w *Waybill) ends(t testing.TB) map[string]int64 {
	t.Helper()
	topics := []string{w.Topics.Journal}
	for _, topic := range w.Topics.Inputs() {
		topics = append(topics, topic)
	}
	listed, err := w.Admin.ListEndOffsets(t.Context(), topics...)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]int64)
	listed.Each(func(o kadm.ListedOffset) { all[o.Topic] += o.Offset })
	return all
}

func (w *Waybill) audit(t testing.TB) *audit.Books {
	t.Helper()
	a := audit.Audit{Rest: true, Callers: w.Callers, Foreign: w.Foreign}
	if w.keys != nil {
		a.Keys = w.keys()
	}
	return a.Namespace(t, w.Broker.Brokers, &w.Topics)
}

// afterwards is a test whose context has ended, but which has something to do.
type afterwards struct{ testing.TB }

func (afterwards) Context() context.Context { return context.Background() }

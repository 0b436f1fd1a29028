package integration

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
)

// A broker that goes away takes nothing with it: when it is back, what was
// under way goes on, and what was submitted completes.
func TestABrokerThatGoesAwayAndComesBack(t *testing.T) {
	b := kafka.Own(t)
	w := newWorld(t, b)
	i := w.start("i-1", t.TempDir())
	w.register(i, fulfilment)
	w.serveFulfilment()
	const n = 100
	for k := range n {
		w.submit(fmt.Sprintf("before-%d", k), `{"workflow":"fulfilment"}`)
	}
	b.Stop(t)
	b.Start(t)
	for k := range n {
		w.submit(fmt.Sprintf("after-%d", k), `{"workflow":"fulfilment"}`)
	}
	for k := range n {
		w.order(i, fmt.Sprintf("before-%d", k), in(projections.Processed))
		w.order(i, fmt.Sprintf("after-%d", k), in(projections.Processed))
	}
	w.checkJournal()
}

// One broker that is gone, behind something that takes connections and ends them,
// keeps nobody from taking partitions over: another answers.
func TestATakeoverGoesAroundABrokerThatIsGone(t *testing.T) {
	w := newWorld(t, kafka.Embedded(t))
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	go func() {
		for {
			c, err := gone.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	said := &lines{}
	i := w.start("i-1", t.TempDir(), func(cfg *orchestrator.Config) {
		cfg.Kafka = []kgo.Opt{kgo.SeedBrokers(append([]string{gone.Addr().String()}, w.broker.Brokers...)...)}
		cfg.Logger = slog.New(slog.NewTextHandler(said, nil))
	})
	w.register(i, fulfilment)
	w.serveFulfilment()
	w.complete(i, "o", 10)
	if strings.Contains(said.String(), "the lane ended") {
		t.Errorf("a takeover failed:\n%s", said)
	}
	w.checkJournal()
}

// A caller's transaction that stays open keeps what is behind it from being read.
// The log tells whose it is, and once it is aborted all goes on without it.
func TestACallersOpenTransactionIsTold(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		said := &lines{}
		i := w.start("i-1", t.TempDir(), func(cfg *orchestrator.Config) { cfg.Logger = slog.New(slog.NewTextHandler(said, nil)) })
		w.register(i, fulfilment)
		w.serveFulfilment()
		caller := b.Client(t, kgo.TransactionalID(w.topics.Namespace+"-caller"))
		if err := caller.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		submission := &kgo.Record{Topic: w.topics.Orders, Key: []byte("open"), Value: []byte(`{"workflow":"fulfilment"}`)}
		if err := caller.ProduceSync(t.Context(), submission).FirstErr(); err != nil {
			t.Fatal(err)
		}
		w.submit("open", `{"workflow":"fulfilment","input":{"of":"another"}}`) // behind it
		w.until("the log tells of the transaction", func() error {
			if want := fmt.Sprintf("topic=%s offset=%d", w.topics.Orders, submission.Offset); !strings.Contains(said.String(), want) {
				return fmt.Errorf("it does not have %q", want)
			}
			return nil
		})
		if err := caller.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
			t.Fatal(err)
		}
		w.order(i, "open", in(projections.Processed))
		o, _, err := i.Order("open")
		if err != nil || string(o.Input) != `{"of":"another"}` {
			t.Errorf("the order is %+v, %v", o, err)
		}
		w.checkJournal()
	})
}

// An instance that finds no broker at its start says so, and goes on trying
// until it is told to stop.
func TestNoBrokerAtTheStart(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := nobody.Addr().String()
	if err := nobody.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = orchestrator.New(ctx, orchestrator.Config{ID: "i-1", DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(address)}})
	if err == nil || !strings.Contains(err.Error(), "no Kafka broker answers") {
		t.Errorf("it ended with %v", err)
	}
}

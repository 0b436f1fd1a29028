package integration

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	kit "github.com/waybill-dev/waybill/test/world"
)

// hasty has steps that expire while a broker is away, and nothing but the usual
// retries.
const hasty = `
workflow: hasty
version: 1
steps:
  - {name: reserve, agent: inventory, do: reserve, timeout: 2s}
  - {name: charge, agent: payment, do: charge, timeout: 2s}
`

// A broker that goes away takes nothing with it: when it is back, what was under way
// goes on, and what was submitted completes. However long it is away, no order comes
// into Error for that: nobody answered, and nobody could. WAYBILL_OUTAGE says how
// long, for example 5m; else it is as long as a broker takes to start.
func TestABrokerThatGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	outage, err := time.ParseDuration(cmp.Or(os.Getenv("WAYBILL_OUTAGE"), "0s"))
	if err != nil {
		t.Fatal(err)
	}
	b := kafka.Own(t)
	w := newWorld(t, b)
	i := w.Run("i-1", t.TempDir())
	w.Register(i, fulfilment)
	w.Register(i, hasty)
	w.serveFulfilment()
	client := b.Client(t)
	var written sync.WaitGroup
	var orders []string
	submit := func(when string) {
		for k := range 250 {
			for _, workflow := range []string{"fulfilment", "hasty"} {
				order := fmt.Sprintf("%s-%s-%d", workflow, when, k)
				orders = append(orders, order)
				written.Add(1)
				client.Produce(t.Context(), &kgo.Record{Topic: w.Topics.Orders, Key: []byte(order), Value: fmt.Appendf(nil, `{"workflow":%q}`, workflow)}, func(_ *kgo.Record, err error) {
					if err != nil {
						t.Errorf("submitting: %v", err)
					}
					written.Done()
				})
			}
		}
	}
	submit("before")
	b.Stop(t)
	submit("away")
	time.Sleep(outage)
	b.Start(t)
	submit("after")
	written.Wait()
	for _, order := range orders {
		w.order(i, order, in(projections.Processed))
	}
	for r := range w.every(w.Topics.Journal) {
		if kind := events.Header(r, events.HeaderType); kind == string(events.OrderErrored) {
			t.Errorf("order %s came into Error: %s", r.Key, r.Value)
		}
	}
}

// One broker that is gone, behind something that takes connections and ends them,
// keeps nobody from taking partitions over: another answers.
func TestATakeoverGoesAroundABrokerThatIsGone(t *testing.T) {
	t.Parallel()
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
	said := &kit.Log{}
	i := w.Run("i-1", t.TempDir(), func(cfg *orchestrator.Config) {
		cfg.Kafka = []kgo.Opt{kgo.SeedBrokers(append([]string{gone.Addr().String()}, w.Broker.Brokers...)...)}
		cfg.Logger = slog.New(slog.NewTextHandler(said, nil))
	})
	w.Register(i, fulfilment)
	w.serveFulfilment()
	w.complete(i, "o", 10)
	if strings.Contains(said.String(), "the lane ended") {
		t.Errorf("a takeover failed:\n%s", said)
	}
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
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	said := &kit.Log{}
	said.Heard = func() {
		if strings.Count(said.String(), "no Kafka broker answers; trying on") == 2 {
			stop()
		}
	}
	_, err = orchestrator.New(ctx, orchestrator.Config{
		ID: "i-1", DataDir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(said, nil)),
		Kafka: []kgo.Opt{kgo.SeedBrokers(address), kgo.RequestRetries(0)},
	})
	if err == nil || !strings.Contains(err.Error(), "no Kafka broker answers") || ctx.Err() == nil {
		t.Errorf("it ended with %v before it was told to stop; it said\n%s", err, said)
	}
}

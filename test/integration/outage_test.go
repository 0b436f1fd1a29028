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
	"github.com/waybill-dev/waybill/test/child"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/reliability"
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
// into Error for that: nobody answered, and nobody could. WAYBILL_OUTAGES says how long,
// for example 30s,5m; else it is as long as a broker takes to start.
func TestABrokerThatGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	named := cmp.Or(os.Getenv("WAYBILL_OUTAGES"), "0s")
	var rows reliability.Figures
	for text := range strings.SplitSeq(named, ",") {
		outage, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(text, func(t *testing.T) {
			rows = append(rows, reliability.Figure{Name: text, Value: goAway(t, outage)})
		})
	}
	reliability.Write(t, "outage", "make reliability PART=outage OUTAGES="+named, reliability.Figures{
		{Name: "restarts", Value: len(rows)},
		{Name: "the broker was away for", Value: rows},
	})
}

// goAway has a broker go away for at least so long, while orders are under way and others
// are submitted.
func goAway(t *testing.T, outage time.Duration) reliability.Figures {
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
	gone := time.Now()
	if there, err := new(net.Dialer).DialContext(t.Context(), "tcp", b.Brokers[0]); err == nil {
		there.Close()
		t.Error("the broker is still there")
	}
	submit("away")
	time.Sleep(outage)
	b.Start(t)
	back := time.Now()
	submit("after")
	written.Wait()
	for _, order := range orders {
		w.order(i, order, in(projections.Processed))
	}
	done := time.Now()
	kinds := make(map[events.Type]int)
	for r := range w.every(w.Topics.Journal) {
		kind := events.Type(events.Header(r, events.HeaderType))
		kinds[kind]++
		if kind == events.OrderErrored {
			t.Errorf("order %s came into Error: %s", r.Key, r.Value)
		}
	}
	return reliability.Figures{
		{Name: "in fact", Value: back.Sub(gone).Round(time.Second).String()},
		{Name: "orders", Value: len(orders)},
		{Name: "all had ended after", Value: done.Sub(back).Round(100 * time.Millisecond).String()},
		{Name: "attempts that expired", Value: kinds[events.StepExpired]},
		{Name: "orders in Error", Value: kinds[events.OrderErrored]},
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
	address := child.FreeAddress(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	said := &kit.Log{}
	said.Heard = func() {
		if strings.Count(said.String(), "no Kafka broker answers; trying on") == 2 {
			stop()
		}
	}
	_, err := orchestrator.New(ctx, orchestrator.Config{
		ID: "i-1", DataDir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(said, nil)),
		Kafka: []kgo.Opt{kgo.SeedBrokers(address), kgo.RequestRetries(0)},
	})
	if err == nil || !strings.Contains(err.Error(), "no Kafka broker answers") || ctx.Err() == nil {
		t.Errorf("it ended with %v before it was told to stop; it said\n%s", err, said)
	}
}

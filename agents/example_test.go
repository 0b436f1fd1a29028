package agents_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
)

type Charge struct {
	Card  string `json:"card"`
	Cents int    `json:"cents"`
}

type Receipt struct {
	ID string `json:"id"`
}

// Bank stands for the remote service. It remembers keys, as services should.
type Bank struct{ receipts map[string]string }

func (b *Bank) Charge(ctx context.Context, key, card string, cents int) (string, error) {
	if card == "expired" {
		return "", errors.New("the card has expired")
	}
	if b.receipts[key] == "" {
		b.receipts[key] = fmt.Sprintf("receipt for %d.%02d", cents/100, cents%100)
	}
	return b.receipts[key], nil
}

// An agent with one operation. It retries nothing itself here, and says of one
// fault that retries cannot heal it.
func ExampleServe() {
	broker := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "waybill.requests.payment", "waybill.replies"))
	defer broker.Close()
	bank := &Bank{receipts: make(map[string]string)}

	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() {
		served <- agents.Serve(ctx, agents.Config{
			Agent:       "payment",
			Brokers:     broker.ListenAddrs(),
			Concurrency: 1, // the bank above is not safe for more
			Logger:      slog.New(slog.DiscardHandler),
		}, agents.Operations{
			"charge": agents.Do(func(ctx context.Context, req agents.Request[Charge]) (Receipt, error) {
				id, err := bank.Charge(ctx, req.IdempotencyKey, req.Input.Card, req.Input.Cents)
				if err != nil {
					return Receipt{}, agents.Permanent("card-declined", err)
				}
				return Receipt{ID: id}, nil
			}),
		})
	}()

	// What an orchestrator sends, and what it gets.
	orchestrator, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...), kgo.ConsumeTopics("waybill.replies"))
	if err != nil {
		panic(err)
	}
	defer orchestrator.Close()
	for order, card := range []string{"valid", "expired"} {
		request := events.Request{
			Order: fmt.Sprintf("o-%d", order), Step: "charge", Attempt: 1, Operation: "charge",
			CompleteBy:     time.Now().Add(time.Minute),
			IdempotencyKey: fmt.Sprintf("o-%d/charge", order),
			Input:          []byte(`{"card":"` + card + `","cents":1999}`),
			ReplyTo:        "waybill.replies",
		}
		record := kgo.Record{Topic: "waybill.requests.payment", Key: []byte(request.Order), Value: request.Append(nil)}
		if err := orchestrator.ProduceSync(ctx, &record).FirstErr(); err != nil {
			panic(err)
		}
	}
	for replies := 0; replies < 2; {
		for _, reply := range orchestrator.PollFetches(ctx).Records() {
			fmt.Println(string(reply.Value))
			replies++
		}
	}

	stop()
	if err := <-served; err != nil {
		panic(err)
	}
	// Output:
	// {"order":"o-0","step":"charge","attempt":1,"status":"completed","output":{"id":"receipt for 19.99"}}
	// {"order":"o-1","step":"charge","attempt":1,"status":"failed","error":{"code":"card-declined","message":"the card has expired","permanent":true}}
}

// An agent that repeats calls itself, and that takes itself out of service while
// the bank fails.
func ExampleConfig() {
	config := agents.Config{
		Agent:       "payment",
		Brokers:     []string{"127.0.0.1:9092"},
		Concurrency: 20, // what the bank allows
		Retry: &agents.Retry{
			Attempts: 3,
			Backoff:  200 * time.Millisecond,
		},
		Breaker: &agents.Breaker{
			Failures: 10, // of the last
			Window:   20, // attempts
			Delay:    30 * time.Second,
		},
	}
	charge := agents.Do(func(ctx context.Context, req agents.Request[Charge]) (Receipt, error) {
		busy := time.Duration(0) // what the bank's Retry-After says
		if busy > 0 {
			return Receipt{}, agents.RetryAfter(agents.Transient("busy", errors.New("the bank is busy")), busy)
		}
		return Receipt{ID: req.IdempotencyKey}, nil
	})
	refund := agents.Do(func(ctx context.Context, req agents.Request[Charge]) (struct{}, error) {
		if req.OutcomeUnknown {
			// Ask the bank whether there is a payment for the order at all. If not,
			// there is nothing to undo, and that is a success.
			return struct{}{}, nil
		}
		// Refund the payment that req.Output names.
		return struct{}{}, nil
	})
	ctx, stop := context.WithCancel(context.Background())
	stop() // for the example's sake
	fmt.Println(agents.Serve(ctx, config, agents.Operations{"charge": charge, "refund": refund}))
	// Output: <nil>
}

// A handler that measures with a meter of its own.
func ExampleAttributes() {
	provider := sdk.NewMeterProvider() // with a reader of yours
	cents, err := provider.Meter("shop/payment").Int64Histogram("shop.charged", metric.WithUnit("{cent}"))
	if err != nil {
		panic(err)
	}
	charge := agents.Do(func(ctx context.Context, req agents.Request[Charge]) (Receipt, error) {
		cents.Record(ctx, int64(req.Input.Cents), metric.WithAttributeSet(agents.Attributes(ctx)))
		return Receipt{ID: req.IdempotencyKey}, nil
	})
	_ = agents.Operations{"charge": charge} // for Serve
}

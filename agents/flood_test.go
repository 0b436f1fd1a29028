package agents_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	flooded "github.com/waybill-dev/waybill/test/kafka"
)

// Batches of requests that are small each do not fill the memory together.
func TestWhatAnAgentFetchesAtATimeIsBounded(t *testing.T) {
	k := newKafka(t, 1)
	(&flooded.Broker{Kind: flooded.KindEmbedded, Brokers: k.cluster.ListenAddrs()}).Flood(t, queue, 0)
	held := new(flooded.Held)
	config := k.config()
	config.KafkaOptions = append(config.KafkaOptions, kgo.WithHooks(held))
	asked := make(chan struct{})
	k.serve(config, agents.Operations{"charge": agents.Do(func(context.Context, agents.Request[string]) (string, error) {
		close(asked)
		return "", nil
	})})
	k.ask(request("behind", "charge", `""`))
	select {
	case <-asked:
	case <-time.After(time.Minute):
		t.Fatal("what is behind them is not read")
	}
	held.Bounded(t, 1)
}

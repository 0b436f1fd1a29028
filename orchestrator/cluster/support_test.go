package cluster

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/test/kafka"
)

func TestMain(m *testing.M) { kafka.Main(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// journal is a namespace that has a journal, and nothing else yet.
func journal(t *testing.T, b *kafka.Broker) *events.Topics {
	t.Helper()
	topics, err := events.NewTopics(kafka.Namespace(t))
	must(t, err)
	b.Create(t, 1, nil, topics.Journal)
	return &topics
}

// reached is the cluster, as the lane of partition 0 reaches it.
func reached(t *testing.T, b *kafka.Broker, topics *events.Topics) lane.Broker {
	t.Helper()
	return New(b.Client(t), topics, []kgo.Opt{kgo.SeedBrokers(b.Brokers...)}, func(string) (int, bool) { return 0, false }).Broker(0)
}

func seesAll(lane.TopicPartition) bool { return false }

// fenced is the producer of a slot.
func fenced(t *testing.T, k lane.Broker, slot int) *producer {
	t.Helper()
	all, err := k.Fence(t.Context(), seesAll, slot)
	must(t, err)
	t.Cleanup(all[0].Close)
	return all[0].(*producer)
}

func record(topic string) *kgo.Record { return &kgo.Record{Topic: topic, Value: []byte("{}")} }

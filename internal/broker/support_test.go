package broker

import (
	"hash/crc32"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// startBroker starts a broker on a free port that is closed with the test.
func startBroker(t *testing.T, cfg Config) *Broker {
	t.Helper()
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	b, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeBroker(t, b) })
	return b
}

func closeBroker(t *testing.T, b *Broker) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

func newClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.DisableClientMetrics()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func createTopics(t *testing.T, addr string, partitions int32, topics ...string) {
	t.Helper()
	client := newClient(t, addr)
	defer client.Close()
	created, err := kadm.NewClient(client).CreateTopics(t.Context(), partitions, 1, nil, topics...)
	if err != nil || created.Error() != nil {
		t.Fatal(err, created.Error())
	}
}

// produce writes each value as a batch of its own.
func produce(t *testing.T, addr, topic string, values ...string) {
	t.Helper()
	client := newClient(t, addr, kgo.DefaultProduceTopic(topic))
	defer client.Close()
	for _, value := range values {
		if err := client.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// consume returns the first n committed values of a topic, in order.
func consume(t *testing.T, addr, topic string, n int) string {
	t.Helper()
	client := newClient(t, addr, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer client.Close()
	var values []string
	for len(values) < n {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return strings.Join(values, " ")
}

// rawProduce sends one record without a client's retries.
func rawProduce(t *testing.T, client *kgo.Client, topic string) error {
	t.Helper()
	metadata, err := kadm.NewClient(client).ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = oneRecordBatch()
	top := kmsg.NewProduceRequestTopic()
	top.Topic, top.TopicID = topic, metadata[topic].ID
	top.Partitions = append(top.Partitions, part)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.Topics = -1, append(req.Topics, top)
	resp, err := req.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

// oneRecordBatch encodes a batch as a client would send it.
func oneRecordBatch() []byte {
	rec := kmsg.Record{Value: []byte("raw")}
	rec.Length = int32(len(rec.AppendTo(nil)) - 1)
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, NumRecords: 1,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		Records: rec.AppendTo(nil),
	}
	b.Length = int32(len(b.AppendTo(nil)) - batchPrefix)
	b.CRC = int32(crc32.Checksum(b.AppendTo(nil)[21:], castagnoli))
	return b.AppendTo(nil)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

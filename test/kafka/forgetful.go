package kafka

import (
	"context"
	"hash/crc32"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Forgetful is a Kafka that leaves a transaction hanging: its records are there,
// and the coordinator has forgotten it without a marker.
type Forgetful struct {
	*testing.T
	broker *Broker
	client *kgo.Client // an old one

	// Of the embedded broker, which cannot forget: this stands between it and its
	// clients.
	mu          sync.Mutex
	next        bool   // the next commit is acknowledged and forgotten
	name        string // the transactional id of what is forgotten
	id          int64
	epoch, told int16 // of the producer, for the broker and for its clients
}

// NewForgetful makes one of a broker.
func NewForgetful(t *testing.T, b *Broker) *Forgetful {
	t.Helper()
	if b.Kind == KindEmbedded {
		f := &Forgetful{T: t, broker: b}
		b.Fake.Control(f.stand)
		return f
	}
	// An old client's record is taken though the coordinator knows of no transaction.
	f := &Forgetful{T: t, broker: b, client: b.Client(t, kgo.MaxVersions(kversion.V3_6_0()))}
	admin := b.Admin(t)
	const verify = "transaction.partition.verification.enable"
	verifies := func(ctx context.Context, c kadm.AlterConfig) {
		c.Name = verify
		answers, err := admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{c})
		mustHave(t, err)
		for _, answer := range answers {
			mustHave(t, answer.Err)
		}
	}
	off := "false"
	verifies(t.Context(), kadm.AlterConfig{Op: kadm.SetConfig, Value: &off})
	t.Cleanup(func() { verifies(context.Background(), kadm.AlterConfig{Op: kadm.DeleteConfig}) })
	return f
}

// stand takes requests to the embedded broker, in the form that it wants.
func (f *Forgetful) stand(r kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive // kfake's order of results
	f.broker.Fake.KeepControl()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r := r.(type) {
	case *kmsg.EndTxnRequest:
		switch {
		case f.next && r.Commit:
			f.next = false
			f.name, f.id, f.epoch, f.told = r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.ProducerEpoch+1
			answer := r.ResponseKind().(*kmsg.EndTxnResponse) //nolint:forcetypeassert // of its own request
			answer.ProducerID, answer.ProducerEpoch = f.id, f.told
			return answer, nil, true
		case r.TransactionalID == f.name:
			r.ProducerEpoch, f.name = f.epoch, "" // it is covered
		}
	case *kmsg.AddPartitionsToTxnRequest:
		if r.TransactionalID == f.name {
			r.ProducerEpoch = f.epoch
		}
	case *kmsg.InitProducerIDRequest:
		r.TransactionTimeoutMillis = int32((10 * time.Minute).Milliseconds()) // nor does it end what it has forgotten
		if r.TransactionalID != nil && *r.TransactionalID == f.name {
			f.told++
			answer := r.ResponseKind().(*kmsg.InitProducerIDResponse) //nolint:forcetypeassert // of its own request
			answer.ProducerID, answer.ProducerEpoch = f.id, f.told
			return answer, nil, true
		}
	case *kmsg.WriteTxnMarkersRequest:
		if f.name != "" && r.Markers[0].ProducerID == f.id {
			return f.mark(r), nil, true
		}
	}
	return nil, nil, false
}

// mark ends what is forgotten as a marker says.
func (f *Forgetful) mark(r *kmsg.WriteTxnMarkersRequest) kmsg.Response {
	ask := kmsg.NewPtrEndTxnRequest()
	ask.TransactionalID, ask.ProducerID, ask.ProducerEpoch, ask.Commit = f.name, f.id, f.epoch, r.Markers[0].Committed
	f.mu.Unlock()
	f.broker.Fake.SleepControl(func() { f.broker.End(f.T, ask) })
	f.mu.Lock()
	answer := r.ResponseKind().(*kmsg.WriteTxnMarkersResponse) //nolint:forcetypeassert // of its own request
	of := kmsg.NewWriteTxnMarkersResponseMarker()
	of.ProducerID = f.id
	for _, topic := range r.Markers[0].Topics {
		on := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
		on.Topic = topic.Topic
		for _, p := range topic.Partitions {
			part := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
			part.Partition = p
			on.Partitions = append(on.Partitions, part)
		}
		of.Topics = append(of.Topics, on)
	}
	answer.Markers = append(answer.Markers, of)
	return answer
}

// Forget is about the next commit to the embedded broker.
func (f *Forgetful) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = true
}

// Leave writes records to Apache Kafka in a transaction that the producer of a
// transactional id had before its last initialisation, and of which no coordinator
// knows.
func (f *Forgetful) Leave(name string, records []*kgo.Record) {
	f.Helper()
	described, err := f.broker.Admin(f.T).DescribeTransactions(f.Context(), name)
	mustHave(f.T, err)
	id, epoch := described[name].ProducerID, described[name].ProducerEpoch
	if epoch == 0 {
		f.Fatal("the producer had no transaction before")
	}
	for _, r := range records {
		request := kmsg.NewPtrProduceRequest()
		request.TransactionID, request.Acks, request.TimeoutMillis = &name, -1, 10_000
		part := kmsg.NewProduceRequestTopicPartition()
		part.Partition, part.Records = r.Partition, batchOf(r, id, epoch-1)
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic, topic.Partitions = r.Topic, append(topic.Partitions, part)
		request.Topics = append(request.Topics, topic)
		answer, err := request.RequestWith(f.Context(), f.client)
		mustHave(f.T, err)
		mustHave(f.T, kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode))
		r.Offset = answer.Topics[0].Partitions[0].BaseOffset
	}
}

// batchOf encodes a record as the first of a transaction.
func batchOf(r *kgo.Record, producer int64, epoch int16) []byte {
	record := kmsg.Record{Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		record.Headers = append(record.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
	}
	record.Length = int32(len(record.AppendTo(nil)) - 1) // the length of 0 takes a byte
	at := time.Now().UnixMilli()
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: 0x10, NumRecords: 1, FirstTimestamp: at, MaxTimestamp: at,
		ProducerID: producer, ProducerEpoch: epoch,
	}
	b.Records = record.AppendTo(nil)
	b.Length = int32(len(b.AppendTo(nil)) - 12)
	b.CRC = int32(crc32.Checksum(b.AppendTo(nil)[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b.AppendTo(nil)
}

// End ends a transaction as its client asked.
func (b *Broker) End(t *testing.T, asked *kmsg.EndTxnRequest) {
	answer, err := asked.RequestWith(t.Context(), b.Client(t))
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	if err != nil {
		t.Error(err)
	}
}

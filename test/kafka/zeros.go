package kafka

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Zeros is a batch of one record whose value has so many zeros, as a producer of bad
// will makes it: compressed with zstd, it takes a few bytes.
func Zeros(t testing.TB, size int) []byte {
	t.Helper()
	// Attributes, two deltas, no key, and the value.
	record := binary.AppendVarint([]byte{0, 0, 0, 1}, int64(size))
	begin := binary.AppendVarint(nil, int64(len(record)+size+1))
	var compressed bytes.Buffer
	w, err := zstd.NewWriter(&compressed, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	write := func(b []byte) {
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	write(append(begin, record...))
	zeros := make([]byte, 1<<20)
	for left := size; left > 0; left -= len(zeros) {
		write(zeros[:min(left, len(zeros))])
	}
	write([]byte{0}) // no headers
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return Batch(compressed.Bytes(), 4, 1) // zstd
}

// Batch is a batch with whatever stands for its records.
func Batch(records []byte, codec int16, n int32) []byte {
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{
		Magic: 2, Attributes: codec, LastOffsetDelta: n - 1, FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: n, Records: records,
	}
	b := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// Put produces a batch as it is, and returns its first offset.
func (b *Broker) Put(t testing.TB, topic string, partition int32, batch []byte) int64 {
	t.Helper()
	client := b.Client(t, kgo.MaxVersions(kversion.V3_0_0())) // topics have names
	metadata, err := b.Admin(t).Metadata(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	request := kmsg.NewPtrProduceRequest()
	request.Acks, request.TimeoutMillis = -1, 30_000
	to := kmsg.NewProduceRequestTopic()
	on := kmsg.NewProduceRequestTopicPartition()
	to.Topic, on.Partition, on.Records = topic, partition, batch
	to.Partitions = append(to.Partitions, on)
	request.Topics = append(request.Topics, to)
	answer, err := client.Broker(int(metadata.Topics[topic].Partitions[partition].Leader)).Request(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	written := answer.(*kmsg.ProduceResponse).Topics[0].Partitions[0] //nolint:forcetypeassert // the answer to the request
	if err := kerr.ErrorForCode(written.ErrorCode); err != nil {
		t.Fatalf("produce a batch of %d bytes to %s: %v", len(batch), topic, err)
	}
	return written.BaseOffset
}

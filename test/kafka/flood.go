package kafka

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// floodBatch is how many bytes of zeros a batch of a flood has, a few kilobytes of zstd.
const floodBatch = events.MaxDecompressed / 4

// Flood puts batches on a partition that take far more memory together than a client may
// have, while none of them does, and returns how many: one answer of Kafka's has all.
func (b *Broker) Flood(t testing.TB, topic string, partition int32) (batches int) {
	t.Helper()
	zeros := Zeros(t, floodBatch)
	for batches = range 10 {
		b.Put(t, topic, partition, zeros)
	}
	return batches + 1
}

// Held is how many bytes of values a client holds that it has fetched and nobody has
// polled. It is a hook of that client.
type Held struct{ now, most atomic.Int64 }

var (
	_ kgo.HookFetchRecordBuffered   = (*Held)(nil)
	_ kgo.HookFetchRecordUnbuffered = (*Held)(nil)
)

// OnFetchRecordBuffered is the client's.
func (h *Held) OnFetchRecordBuffered(r *kgo.Record) {
	now := h.now.Add(int64(len(r.Value)))
	for most := h.most.Load(); now > most && !h.most.CompareAndSwap(most, now); most = h.most.Load() {
	}
}

// OnFetchRecordUnbuffered is the client's.
func (h *Held) OnFetchRecordUnbuffered(r *kgo.Record, _ bool) { h.now.Add(-int64(len(r.Value))) }

// Bounded fails t if the client held more of a flood on so many brokers than it may, or
// nothing.
func (h *Held) Bounded(t testing.TB, brokers int) {
	t.Helper()
	most := h.most.Load()
	t.Logf("at most %d MiB were held", most>>20)
	if most == 0 || most > int64(events.MaxDecompressed+brokers*floodBatch) {
		t.Errorf("of batches that take %d MiB each, %d MiB were held at a time; %d may be, and one batch of each of %d brokers", floodBatch>>20, most>>20, events.MaxDecompressed>>20, brokers)
	}
}

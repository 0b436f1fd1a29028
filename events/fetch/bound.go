// Package fetch bounds what Kafka's answers take in memory.
package fetch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
)

// Bound bounds what the batches that a client fetches at a time take in memory, together,
// to [events.MaxDecompressed] and one batch more of each broker. A batch of a few kilobytes
// can be a gigabyte of zeros, or of empty records, which take more than their bytes. kgo
// bounds the bytes of a batch alone, and one answer of Kafka's has many, of many partitions.
// What a caller polled is its own. Batches that nobody compressed are counted and not
// refused: the bytes of an answer bound them.
//
// The zero Bound is of one client, which [Bound.NewClient] makes, and [Bound.Poll] alone
// polls, one goroutine at a time.
type Bound struct {
	client  *kgo.Client
	refused atomic.Int64

	mu      sync.Mutex
	answers map[int32]*answer            // the last of each broker
	from    map[string]map[int32]*answer // of each partition
	total   int64                        // of what they hold

	// recent is whose record was told of last: many of one partition are, one after the other.
	recent          *answer
	recentTopic     string
	recentPartition int32
}

// answer is what kgo holds of one: so many records, which take so many bytes. Some that it
// had may never have been records, or were dropped before they were buffered.
type answer struct {
	records int
	bytes   int64
}

var (
	_ kgo.Decompressor              = (*Bound)(nil)
	_ kgo.HookFetchBatchRead        = (*Bound)(nil)
	_ kgo.HookFetchRecordBuffered   = (*Bound)(nil)
	_ kgo.HookFetchRecordUnbuffered = (*Bound)(nil)
	_ kgo.HookBrokerRead            = (*Bound)(nil)
	_ kgo.HookBrokerDisconnect      = (*Bound)(nil)
)

// errLater leaves a batch to the next fetch. kgo then delivers what is before it.
var errLater = errors.New("as much was fetched as is read at a time")

// recordCost is about what a record takes besides its bytes.
const recordCost = 256

// decompressor is kgo's, and refuses what is larger than [events.MaxDecompressed].
var decompressor = sync.OnceValue(func() kgo.Decompressor {
	client, err := kgo.NewClient(kgo.MaxDecompressBatchBytes(events.MaxDecompressed))
	if err != nil {
		panic(err) // the option is wrong
	}
	defer client.Close()
	return client.OptValue(kgo.WithDecompressor).(kgo.Decompressor) //nolint:forcetypeassert // the option's type
})

// NewClient is [kgo.NewClient] of a client that fetches no more than the bound.
func (b *Bound) NewClient(opts ...kgo.Opt) (*kgo.Client, error) {
	b.answers, b.from = make(map[int32]*answer), make(map[string]map[int32]*answer)
	var err error
	b.client, err = kgo.NewClient(append(opts[:len(opts):len(opts)], kgo.WithDecompressor(b), kgo.WithHooks(b))...)
	return b.client, err
}

// wakeEvery is how often a client that waits for records is told to fetch.
const wakeEvery = time.Second

// Poll is [kgo.Client.PollRecords], 0 being no limit. It may return nothing before the
// context ends. A client that waits may rebalance meanwhile, also if polling blocks that:
// nothing of an earlier poll may be in hand that has not been allowed.
//
// A client that waits is told to fetch, again and again: kgo may have stopped without a word
// when it was given other partitions, since what began to fetch for those that it had until
// then forgets that it is wanted for those that it has
// (docs/patches/kgo-fetch-after-reassignment.patch). One that fetches does not notice.
func (b *Bound) Poll(ctx context.Context, limit int) kgo.Fetches {
	var fetches kgo.Fetches
	for {
		round, cancel := context.WithTimeout(ctx, wakeEvery)
		fetches = b.client.PollRecords(round, limit)
		over := round.Err()
		cancel()
		if over == nil || !saysOnly(fetches, over) {
			break
		}
		b.client.ResumeFetchPartitions(nil) // resumes none, and has all begin to fetch that do not
		if err := ctx.Err(); err != nil {
			return kgo.NewErrFetch(err)
		}
		b.client.AllowRebalance()
	}
	for f := range fetches {
		for t := range fetches[f].Topics {
			partitions := fetches[f].Topics[t].Partitions
			for p := range partitions {
				if errors.Is(partitions[p].Err, errLater) {
					partitions[p].Err = nil // it is fetched anew
				}
			}
		}
	}
	return fetches
}

// saysOnly says whether there is nothing but that the context of a poll has ended.
func saysOnly(fetches kgo.Fetches, why error) bool {
	return len(fetches) == 1 && len(fetches[0].Topics) == 1 && fetches[0].Topics[0].Topic == "" && fetches.Err0() == why //nolint:errorlint // a dial's time may be over, too
}

// OnFetchBatchRead implements [kgo.HookFetchBatchRead].
func (b *Bound) OnFetchBatchRead(broker kgo.BrokerMetadata, topic string, partition int32, batch kgo.FetchBatchMetrics) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.answers[broker.NodeID]
	if a == nil {
		a = new(answer)
		b.answers[broker.NodeID] = a
	}
	if b.from[topic] == nil {
		b.from[topic] = make(map[int32]*answer)
	}
	b.from[topic][partition], b.recent = a, nil
	b.add(a, int64(batch.UncompressedBytes+batch.NumRecords*recordCost))
}

// OnFetchRecordBuffered implements [kgo.HookFetchRecordBuffered].
func (b *Bound) OnFetchRecordBuffered(r *kgo.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(r).records++
}

// OnFetchRecordUnbuffered implements [kgo.HookFetchRecordUnbuffered]: it was polled, or dropped.
func (b *Bound) OnFetchRecordUnbuffered(r *kgo.Record, _ bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.of(r)
	a.records--
	if a.records <= 0 {
		b.add(a, -a.bytes)
		return
	}
	b.add(a, -min(int64(recordCost+events.Size(r)), a.bytes))
}

// OnBrokerRead implements [kgo.HookBrokerRead]: kgo fetches from a broker once nothing is
// left of that one's last answer.
func (b *Bound) OnBrokerRead(broker kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.Fetch) {
		b.settle(broker.NodeID)
	}
}

// OnBrokerDisconnect implements [kgo.HookBrokerDisconnect]: it may be fetched from no more.
func (b *Bound) OnBrokerDisconnect(broker kgo.BrokerMetadata, _ net.Conn) { b.settle(broker.NodeID) }

// settle forgets what a broker's answer had beside records that are held.
func (b *Bound) settle(broker int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.answers[broker]; a != nil && a.records <= 0 {
		b.add(a, -a.bytes)
	}
}

// of is the answer that a record is of.
func (b *Bound) of(r *kgo.Record) *answer {
	if b.recent == nil || b.recentPartition != r.Partition || b.recentTopic != r.Topic {
		b.recent, b.recentTopic, b.recentPartition = b.from[r.Topic][r.Partition], r.Topic, r.Partition
	}
	return b.recent
}

func (b *Bound) add(a *answer, bytes int64) {
	a.bytes += bytes
	b.total += bytes
}

// Refused is how many batches could not be read.
func (b *Bound) Refused() int64 { return b.refused.Load() }

// Decompress implements [kgo.Decompressor]. A batch that cannot be read fails with
// [kgo.ErrMaxDecompress], whatever the reason: then kgo tells where it ends. Its
// checksum was right, so it cannot be read another time either.
func (b *Bound) Decompress(batch []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	b.mu.Lock()
	full := b.total >= events.MaxDecompressed
	b.mu.Unlock()
	if full {
		return nil, errLater
	}
	records, err := decompressor().Decompress(batch, codec)
	if err != nil {
		b.refused.Add(1)
		return nil, fmt.Errorf("%w: %w", kgo.ErrMaxDecompress, err)
	}
	if n, ok := count(records); !ok || len(records)+n*recordCost > events.MaxDecompressed {
		b.refused.Add(1)
		return nil, kgo.ErrMaxDecompress
	}
	return records, nil
}

// count counts the records of a batch, each of which begins with its length. It
// reports false for what are none.
func count(records []byte) (n int, ok bool) {
	for ; len(records) > 0; n++ {
		length, width := binary.Varint(records)
		if width <= 0 || length < 0 || length > int64(len(records)-width) {
			return n, false
		}
		records = records[width+int(length):]
	}
	return n, true
}

// Package fetch bounds what Kafka's answers take in memory.
package fetch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// Bound bounds what the batches that a client fetches at a time take in memory, together,
// to [events.MaxDecompressed] and one batch more. A batch of a few kilobytes can be a
// gigabyte of zeros, or of empty records, which take more than their bytes. kgo bounds
// the bytes of a batch alone, and one answer of Kafka's has many, of many partitions. What
// a caller polled is its own, and what it has left of an answer with [Bound.Poll]'s limit
// is no more counted.
//
// The zero Bound is of one client, which is made with [Bound.Option] and polled by
// [Bound.Poll] alone.
type Bound struct {
	used    atomic.Int64 // by what was fetched since the last poll
	refused atomic.Int64
}

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

// Option has a client fetch no more than the bound.
func (b *Bound) Option() kgo.Opt { return kgo.WithDecompressor(b) }

// Poll is [kgo.Client.PollRecords], 0 being no limit. It may return nothing before the
// context ends.
func (b *Bound) Poll(ctx context.Context, client *kgo.Client, limit int) kgo.Fetches {
	b.used.Store(0)
	fetches := client.PollRecords(ctx, limit)
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

// Refused is how many batches could not be read.
func (b *Bound) Refused() int64 { return b.refused.Load() }

// Decompress implements [kgo.Decompressor]. A batch that cannot be read fails with
// [kgo.ErrMaxDecompress], whatever the reason: then kgo tells where it ends. Its
// checksum was right, so it cannot be read another time either.
func (b *Bound) Decompress(batch []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if b.used.Load() >= events.MaxDecompressed {
		return nil, errLater
	}
	records, err := decompressor().Decompress(batch, codec)
	if err != nil {
		b.refused.Add(1)
		return nil, fmt.Errorf("%w: %w", kgo.ErrMaxDecompress, err)
	}
	n, ok := count(records)
	size := len(records) + n*recordCost
	if !ok || size > events.MaxDecompressed {
		b.refused.Add(1)
		return nil, kgo.ErrMaxDecompress
	}
	b.used.Add(int64(size))
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

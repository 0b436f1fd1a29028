package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// bounded bounds what the batches that a reader fetches at a time take in memory.
// Anybody may write to an input, and a batch of a few kilobytes can be a gigabyte of
// zeros, or of empty records, which take more than their bytes. kgo bounds the bytes
// of a batch alone, and one answer of Kafka's has many.
type bounded struct {
	kgo.Decompressor
	used    atomic.Int64 // by what was fetched since the last poll
	refused atomic.Int64 // batches that cannot be read
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

// Decompress implements [kgo.Decompressor]. A batch that cannot be read fails with
// [kgo.ErrMaxDecompress], whatever the reason: then kgo tells where it ends. Its
// checksum was right, so it cannot be read another time either.
func (b *bounded) Decompress(batch []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if b.used.Load() >= events.MaxDecompressed {
		return nil, errLater
	}
	records, err := b.Decompressor.Decompress(batch, codec)
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

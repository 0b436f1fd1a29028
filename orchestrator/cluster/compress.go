package cluster

import (
	"bytes"
	"sync"

	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

// smallBlocks compresses batches as Kafka's own clients do: LZ4 in blocks of
// 64 KiB. kgo's compressor writes blocks of up to 4 MiB, however small the batch
// is, and a reader takes buffers of the size that stands in the frame: for each
// batch, in every language.
type smallBlocks struct{ writers sync.Pool }

var compressor = &smallBlocks{sync.Pool{New: func() any {
	w := lz4.NewWriter(nil)
	if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb)); err != nil {
		panic(err) // the option is wrong
	}
	return w
}}}

// Compress implements [kgo.Compressor].
func (c *smallBlocks) Compress(dst *bytes.Buffer, batch []byte, _ ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	w := c.writers.Get().(*lz4.Writer) //nolint:forcetypeassert // the pool has no other
	defer c.writers.Put(w)
	w.Reset(dst)
	if _, err := w.Write(batch); err != nil {
		return nil, kgo.CodecError
	}
	if err := w.Close(); err != nil {
		return nil, kgo.CodecError
	}
	return dst.Bytes(), kgo.CodecLz4
}

package cluster

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/test/kafka"
)

// What a frame says of its blocks is what a reader takes for its buffers,
// however small the batch is.
func TestBatchesAreCompressedInSmallBlocks(t *testing.T) {
	b := kafka.Embedded(t)
	p := fenced(t, reached(t, b, journal(t, b)), 0)
	compressor, ok := p.client.OptValue(kgo.WithCompressor).(kgo.Compressor)
	if !ok {
		t.Fatal("a lane's producer does not compress")
	}
	for _, n := range []int{0, 1, 100, 100_000} {
		var dst bytes.Buffer
		batch := bytes.Repeat([]byte(`{"order":"o-1"}`), n)
		compressed, codec := compressor.Compress(&dst, batch)
		if codec != kgo.CodecLz4 {
			t.Fatalf("%d bytes: the codec is %d", len(batch), codec)
		}
		// LZ4's frame: four bytes that say what it is, one of flags, and one that has
		// the block size in bits 4 to 6: 4 is 64 KiB, and 7 is 4 MiB.
		if size := compressed[5] >> 4 & 7; size != 4 {
			t.Errorf("%d bytes: the frame's block size is %d", len(batch), size)
		}
		read, err := kgo.DefaultDecompressor().Decompress(compressed, codec)
		if err != nil || !bytes.Equal(read, batch) {
			t.Errorf("%d bytes became %d: %v", len(batch), len(read), err)
		}
	}
}

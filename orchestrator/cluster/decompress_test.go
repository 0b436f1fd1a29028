package cluster

import (
	"bytes"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/kafka"
)

// What one answer of Kafka's has is bounded all together, and nothing of it is lost.
func TestWhatIsFetchedAtATimeIsBounded(t *testing.T) {
	b := kafka.Embedded(t)
	topics := journal(t, b)
	const size, n = events.MaxDecompressed / 4, 20
	zeros := kafka.Zeros(t, size)
	for range n {
		b.Put(t, topics.Journal, 0, zeros)
	}
	r, err := reached(t, b, topics).Read(0, true)
	must(t, err)
	defer r.Close()
	r.Seek(map[string]int64{topics.Journal: 0})
	for read := 0; read < n; {
		fetches := r.Poll(t.Context(), 1000)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		records := fetches.Records()
		if len(records)*size > events.MaxDecompressed+size {
			t.Errorf("%d records of %d MiB were fetched at a time", len(records), size>>20)
		}
		for _, r := range records {
			if r.Offset != int64(read) || len(r.Value) != size {
				t.Fatalf("after %d records comes that of offset %d", read, r.Offset)
			}
			read++
		}
	}
}

func TestWhatABatchMayTake(t *testing.T) {
	compressor, err := kgo.DefaultCompressor(kgo.ZstdCompression())
	must(t, err)
	empty := []byte{12, 0, 0, 0, 1, 1, 0} // a record without key, value and headers
	for _, c := range []struct {
		name    string
		records []byte
		taken   bool
	}{
		{"records", bytes.Repeat(empty, 1000), true},
		{"as many records as fit", bytes.Repeat(empty, events.MaxDecompressed/(recordCost+len(empty))), true},
		{"more", bytes.Repeat(empty, events.MaxDecompressed/(recordCost+len(empty))+1), false},
		{"what are no records", []byte("no records"), false},
		{"more than a record has", append(bytes.Clone(empty), 100), false},
		{"nothing", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			compressed, codec := compressor.Compress(new(bytes.Buffer), c.records)
			got, err := (&bounded{Decompressor: decompressor()}).Decompress(compressed, codec)
			if (err == nil) != c.taken || err != nil && !errors.Is(err, kgo.ErrMaxDecompress) || err == nil && !bytes.Equal(got, c.records) {
				t.Errorf("%d bytes: %v", len(got), err)
			}
		})
	}
}

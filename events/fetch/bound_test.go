package fetch

import (
	"bytes"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
)

func TestWhatABatchMayTake(t *testing.T) {
	compressor, err := kgo.DefaultCompressor(kgo.ZstdCompression())
	if err != nil {
		t.Fatal(err)
	}
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
			got, err := new(Bound).Decompress(compressed, codec)
			if (err == nil) != c.taken || err != nil && !errors.Is(err, kgo.ErrMaxDecompress) || err == nil && !bytes.Equal(got, c.records) {
				t.Errorf("%d bytes: %v", len(got), err)
			}
		})
	}
}

// What kgo dropped of a broker's answer is not held when that broker is gone.
func TestABrokerThatGoesHoldsNothing(t *testing.T) {
	var b Bound
	client, err := b.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	compressor, err := kgo.DefaultCompressor(kgo.ZstdCompression())
	if err != nil {
		t.Fatal(err)
	}
	batch, codec := compressor.Compress(new(bytes.Buffer), []byte{12, 0, 0, 0, 1, 1, 0})
	gone, other := kgo.BrokerMetadata{NodeID: 1}, kgo.BrokerMetadata{NodeID: 2}
	b.OnFetchBatchRead(gone, "topic", 0, kgo.FetchBatchMetrics{NumRecords: 1, UncompressedBytes: events.MaxDecompressed})
	b.OnBrokerDisconnect(other, nil)
	if _, err := b.Decompress(batch, codec); !errors.Is(err, errLater) {
		t.Errorf("beside as much as is held at a time: %v", err)
	}
	record := &kgo.Record{Topic: "topic"}
	b.OnFetchRecordBuffered(record)
	b.OnBrokerDisconnect(gone, nil)
	if _, err := b.Decompress(batch, codec); !errors.Is(err, errLater) {
		t.Errorf("when a broker is gone whose answer nobody has polled: %v", err)
	}
	b.OnFetchBatchRead(gone, "topic", 0, kgo.FetchBatchMetrics{NumRecords: 1, UncompressedBytes: events.MaxDecompressed})
	b.OnFetchRecordUnbuffered(record, false)
	if _, err := b.Decompress(batch, codec); err != nil {
		t.Errorf("when all of an answer was dropped: %v", err)
	}
	b.OnFetchBatchRead(gone, "topic", 0, kgo.FetchBatchMetrics{NumRecords: 1, UncompressedBytes: events.MaxDecompressed})
	b.OnBrokerRead(gone, int16(kmsg.Fetch), 0, 0, 0, nil)
	if _, err := b.Decompress(batch, codec); err != nil {
		t.Errorf("when the next answer comes, after one of which no record was for the caller: %v", err)
	}
	b.OnFetchBatchRead(gone, "topic", 0, kgo.FetchBatchMetrics{NumRecords: 1, UncompressedBytes: events.MaxDecompressed})
	b.OnBrokerDisconnect(gone, nil)
	if _, err := b.Decompress(batch, codec); err != nil {
		t.Errorf("when nothing is held: %v", err)
	}
}

package cluster

import (
	"context"
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

// The follower's reader takes no more either, whatever stands in the journals.
func TestWhatAFollowerFetchesAtATimeIsBounded(t *testing.T) {
	b := kafka.Embedded(t)
	topics := journal(t, b)
	n := b.Flood(t, topics.Journal, 0)
	held := new(kafka.Held)
	opts := []kgo.Opt{kgo.SeedBrokers(b.Brokers...), kgo.WithHooks(held)}
	j, err := New(b.Client(t), topics, opts, nil).Journals()
	must(t, err)
	defer j.Close()
	j.Read(0, 0)
	for read := 0; read < n; {
		fetches := j.Poll(t.Context())
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.DeadlineExceeded) {
				t.Fatal(failed.Err)
			}
		}
		read += fetches.NumRecords()
	}
	held.Bounded(t, 1)
}

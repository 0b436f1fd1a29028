package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// unread is a batch that nobody can read.
func unread() []byte { return kafka.Batch([]byte("no batch of zstd"), 4, 2) }

// Each batch that cannot be read is told once, and each record behind is read once,
// whatever else is there to read.
func TestReadingGoesOnBehindWhatCannotBeRead(t *testing.T) {
	b := kafka.Embedded(t)
	const partitions = 16
	topics, r := reading(t, b, partitions)
	r.patience = time.Hour
	app := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var want, got [partitions][]string
	n := 0
	for range 3 {
		for p := range int32(partitions) {
			record := &kgo.Record{Topic: topics.Replies, Partition: p}
			if p%2 == 0 {
				must(t, app.ProduceSync(t.Context(), record).FirstErr())
				want[p] = append(want[p], fmt.Sprint("record ", record.Offset))
			}
			first := b.Put(t, topics.Replies, p, unread())
			want[p] = append(want[p], fmt.Sprintf("none from %d to %d", first, first+2))
			must(t, app.ProduceSync(t.Context(), record).FirstErr())
			want[p] = append(want[p], fmt.Sprint("record ", record.Offset))
		}
	}
	for p := range want {
		n += len(want[p])
	}
	r.Seek(map[string]int64{topics.Replies: 0})
	for p := range int32(partitions - 1) {
		r.Add(lane.TopicPartition{Topic: topics.Replies, Partition: p + 1}, 0)
	}
	ctx, cancel := context.WithTimeout(t.Context(), oracle.Patience)
	defer cancel()
	for n > 0 {
		fetches := r.Poll(ctx, 1)
		if ctx.Err() != nil {
			t.Fatalf("%d of them are not read: %q and not %q", n, got, want)
		}
		for _, failed := range fetches.Errors() {
			batch := told(t, failed)
			got[failed.Partition] = append(got[failed.Partition], fmt.Sprintf("none from %d to %d", batch.Offset, batch.NextOffset))
			n--
		}
		for _, record := range fetches.Records() {
			got[record.Partition] = append(got[record.Partition], fmt.Sprint("record ", record.Offset))
			n--
		}
	}
	for p := range want {
		if !slices.Equal(got[p], want[p]) {
			t.Errorf("of partition %d are read %q, and not %q", p, got[p], want[p])
		}
	}
}

// What kgo drops with what it has fetched, and does not say again, is told all the same.
func TestWhatKgoDoesNotSayAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		drop func(r *reader, topics *events.Topics)
	}{
		{"it fetches anew", func(r *reader, topics *events.Topics) { // as for another leader
			r.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{topics.Replies: {0: {Epoch: -1}}})
		}},
		{"the partition is paused", func(r *reader, topics *events.Topics) {
			r.Pause(lane.TopicPartition{Topic: topics.Commands})
			r.Poll(t.Context(), 1)
			r.Resume(lane.TopicPartition{Topic: topics.Commands})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := kafka.Embedded(t)
			topics, r := reading(t, b, 1)
			r.patience = 100 * time.Millisecond
			r.Seek(map[string]int64{topics.Replies: 0, topics.Commands: 0})
			first := b.Put(t, topics.Commands, 0, unread())
			oracle.Until(t, "it was fetched", func() error {
				if r.fetched.Refused() == 0 {
					return errors.New("it was not")
				}
				return nil
			})
			c.drop(r, topics)
			ctx, cancel := context.WithTimeout(t.Context(), oracle.Patience)
			defer cancel()
			var failed []kgo.FetchError
			for len(failed) == 0 {
				failed = r.Poll(ctx, 1).Errors()
			}
			if len(failed) != 1 || told(t, failed[0]).Offset != first {
				t.Errorf("told are %v", failed)
			}
		})
	}
}

// reading is a reader, and topics of so many partitions.
func reading(t *testing.T, b *kafka.Broker, partitions int32) (*events.Topics, *reader) {
	t.Helper()
	topics := journal(t, b)
	_, err := b.Admin(t).CreateTopics(t.Context(), partitions, 1, nil, topics.Replies, topics.Commands)
	must(t, err)
	r, err := reached(t, b, topics).Read(0, true)
	must(t, err)
	t.Cleanup(r.Close)
	return topics, r.(*reader)
}

// told is what an error says of a batch.
func told(t *testing.T, failed kgo.FetchError) *kgo.ErrDecompressTooLarge {
	t.Helper()
	batch := new(kgo.ErrDecompressTooLarge)
	if !errors.As(failed.Err, &batch) {
		t.Fatal(failed.Err)
	}
	return batch
}

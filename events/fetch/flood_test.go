package fetch_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/fetch"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// What is fetched at a time is bounded, however it is polled, and all of it is read.
func TestAFloodIsBounded(t *testing.T) {
	const brokers = 2
	b := kafka.Embedded(t, kfake.NumBrokers(brokers))
	topic := kafka.Namespace(t)
	b.Create(t, brokers, nil, topic)
	var flood [brokers]int
	start := make(map[int32]kgo.Offset)
	for p := range int32(brokers) {
		if err := b.Fake.MoveTopicPartition(topic, p, p); err != nil {
			t.Fatal(err)
		}
		flood[p] = b.Flood(t, topic, p)
		start[p] = kgo.NewOffset().At(0)
	}
	for _, c := range []struct {
		name  string
		wait  time.Duration
		limit int
		drops bool // what was fetched first
	}{
		{"one at a time, by whoever gives up while an answer is worked on", time.Millisecond, 1, false},
		{"after another answer was dropped", time.Minute, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			held, bound := new(kafka.Held), new(fetch.Bound)
			client, err := bound.NewClient(kgo.SeedBrokers(b.Brokers...), kgo.WithHooks(held),
				kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: start}))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if c.drops {
				oracle.Until(t, "an answer is there", func() error {
					if client.BufferedFetchRecords() == 0 {
						return errors.New("none is")
					}
					return nil
				})
				client.RemoveConsumePartitions(map[string][]int32{topic: {0, 1}})
				client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: start})
			}
			var read [brokers]int
			for read != flood {
				ctx, cancel := context.WithTimeout(t.Context(), c.wait)
				fetches := bound.Poll(ctx, c.limit)
				cancel()
				if err := fetches.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				for _, r := range fetches.Records() {
					if r.Offset != int64(read[r.Partition]) || len(r.Value) < events.MaxDecompressed/8 {
						t.Fatalf("after %v records comes that of %d, offset %d, of %d bytes", read, r.Partition, r.Offset, len(r.Value))
					}
					read[r.Partition]++
				}
			}
			held.Bounded(t, brokers)
		})
	}
}

// What was dropped of one broker, which is asked for nothing more, keeps nobody from the others.
func TestWhatIsDroppedIsNotHeld(t *testing.T) {
	b := kafka.Embedded(t, kfake.NumBrokers(2))
	topic := kafka.Namespace(t)
	b.Create(t, 2, nil, topic)
	for p := range int32(2) {
		if err := b.Fake.MoveTopicPartition(topic, p, p); err != nil {
			t.Fatal(err)
		}
		b.Flood(t, topic, p)
	}
	first := map[string][]int32{topic: {0}}
	for name, drop := range map[string]func(*kgo.Client){
		"removed": func(c *kgo.Client) { c.RemoveConsumePartitions(first) },
		"paused":  func(c *kgo.Client) { c.PauseFetchPartitions(first) },
	} {
		t.Run(name, func(t *testing.T) {
			bound := new(fetch.Bound)
			client, err := bound.NewClient(kgo.SeedBrokers(b.Brokers...), kgo.ConnIdleTimeout(15*time.Minute),
				kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			oracle.Until(t, "an answer is there", func() error {
				if client.BufferedFetchRecords() == 0 {
					return errors.New("none is")
				}
				return nil
			})
			drop(client)
			client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {1: kgo.NewOffset().At(0)}})
			ctx, cancel := context.WithTimeout(t.Context(), oracle.Patience)
			defer cancel()
			for bound.Poll(ctx, 0).NumRecords() == 0 {
				if ctx.Err() != nil {
					t.Fatal("the other broker's records never come")
				}
			}
		})
	}
}

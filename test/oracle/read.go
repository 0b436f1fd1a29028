package oracle

import (
	"context"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Patience is for machines that are busy; no test is about time.
const Patience = 3 * time.Minute

// Read returns the committed records of a topic up to its end of now, each
// partition's in order: of all partitions, or only of some.
func Read(t testing.TB, brokers []string, topic string, only ...int32) []*kgo.Record {
	t.Helper()
	return slices.Collect(Records(t, brokers, topic, only...))
}

// Records are those that [Read] returns, for topics that are too large to be
// held: each is read when its turn comes. What is kept of a record keeps all that
// was fetched with it.
func Records(t testing.TB, brokers []string, topic string, only ...int32) iter.Seq[*kgo.Record] {
	t.Helper()
	return func(yield func(*kgo.Record) bool) {
		client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		ends := endOffsets(t, client, topic)
		left := make(map[int32]int64)
		from := make(map[int32]kgo.Offset)
		ends.Each(func(o kadm.ListedOffset) {
			if o.Offset > 0 && (len(only) == 0 || slices.Contains(only, o.Partition)) {
				left[o.Partition], from[o.Partition] = o.Offset, kgo.NewOffset().AtStart()
			}
		})
		client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
		for len(left) > 0 {
			for r := range poll(t, client, topic, left).RecordsAll() {
				if !r.Attrs.IsControl() && !yield(r) {
					return
				}
				if r.Offset+1 >= left[r.Partition] {
					delete(left, r.Partition)
				}
			}
		}
	}
}

func endOffsets(t testing.TB, client *kgo.Client, topic string) kadm.ListedOffsets {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil || ends.Error() != nil {
		t.Fatal(err, ends.Error())
	}
	return ends
}

// poll waits for more of a topic that has not been read up to what is left.
func poll(t testing.TB, client *kgo.Client, topic string, left map[int32]int64) kgo.Fetches {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	fetches := client.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		t.Fatalf("read %s: %v; not read up to %v", topic, err, left)
	}
	return fetches
}

// Until waits for a condition.
func Until(t testing.TB, what string, check func() error) {
	t.Helper()
	Within(t, Patience, what, check)
}

// Within waits for a condition that takes long where there is much.
func Within(t testing.TB, patience time.Duration, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

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
		r := NewReader(t, brokers)
		defer r.Close()
		r.Records(topic, only...)(yield)
	}
}

// Reader reads topics one after the other. One is for many: a client of its own for each topic is half a dozen
// connections for Kafka.
type Reader struct {
	testing.TB
	client *kgo.Client
	topic  string // that it reads, if it does
}

// NewReader returns a reader, which is to be closed.
func NewReader(t testing.TB, brokers []string) *Reader {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.MetadataMinAge(10*time.Millisecond)) // each topic is new to it
	if err != nil {
		t.Fatal(err)
	}
	return &Reader{TB: t, client: client}
}

// Close ends it.
func (r *Reader) Close() { r.client.Close() }

// Partitions says how many each topic has that there is.
func (r *Reader) Partitions() map[string]int {
	r.Helper()
	all, err := kadm.NewClient(r.client).ListTopics(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	partitions := make(map[string]int)
	for name, topic := range all {
		partitions[name] = len(topic.Partitions)
	}
	return partitions
}

// Records are those of [Records].
func (r *Reader) Records(topic string, only ...int32) iter.Seq[*kgo.Record] {
	return func(yield func(*kgo.Record) bool) {
		if r.topic != "" {
			r.Fatalf("to read %s while %s is read takes another reader", topic, r.topic)
		}
		r.topic = topic
		defer func() {
			r.client.PurgeTopicsFromClient(topic) // which may be another one the next time
			r.topic = ""
		}()
		ends := r.ends()
		left := make(map[int32]int64)
		from := make(map[int32]kgo.Offset)
		ends.Each(func(o kadm.ListedOffset) {
			if o.Offset > 0 && (len(only) == 0 || slices.Contains(only, o.Partition)) {
				left[o.Partition], from[o.Partition] = o.Offset, kgo.NewOffset().AtStart()
			}
		})
		r.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
		for len(left) > 0 {
			for record := range r.poll(left).RecordsAll() {
				if record.Topic != topic {
					r.Fatalf("%s is read, and not %s", record.Topic, topic)
				}
				if !record.Attrs.IsControl() && !yield(record) {
					return
				}
				if record.Offset+1 >= left[record.Partition] {
					delete(left, record.Partition)
				}
			}
		}
	}
}

// ends are where the topic ends that it reads.
func (r *Reader) ends() kadm.ListedOffsets {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), Patience)
	defer cancel()
	ends, err := kadm.NewClient(r.client).ListEndOffsets(ctx, r.topic)
	if err != nil || ends.Error() != nil {
		r.Fatal(err, ends.Error())
	}
	return ends
}

// poll waits for more of the topic, which has not been read up to what is left.
func (r *Reader) poll(left map[int32]int64) kgo.Fetches {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), Patience)
	defer cancel()
	fetches := r.client.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		r.Fatalf("read %s: %v; not read up to %v", r.topic, err, left)
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
	began := time.Now()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(min(max(10*time.Millisecond, time.Since(began)/10), time.Second/4)): // to look may take a processor
		}
	}
}

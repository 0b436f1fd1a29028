package lane_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// lose commits records, which Kafka acknowledges and forgets.
func (c *contender) lose(f *kafka.Forgetful, b *kafka.Broker, records []*kgo.Record) error {
	c.Helper()
	if b.Kind == kafka.KindEmbedded {
		f.Forget()
		return c.lane.Writes(records...)
	}
	f.Leave(cluster.TransactionalID(c.topics, 0, c.lane.Passes()), records)
	return nil
}

// loses is [contender.write], which Kafka forgets.
func (c *contender) loses(f *kafka.Forgetful, b *kafka.Broker, id string) {
	c.Helper()
	must(c.T, c.lane.Concludes(c.lose(f, b, c.decide(id))))
}

// unprivileged is a broker that lets the lane write no marker.
type unprivileged struct{ lane.Broker }

func (unprivileged) Finish(context.Context, lane.OpenTransaction, bool) error {
	return fmt.Errorf("write a marker: %w", &kadm.AuthError{Err: kerr.ClusterAuthorizationFailed})
}

// A takeover ends what the owner before it left hanging: it was committed if
// something stands behind it, or if this instance folded it. Without the right to
// write markers it ends in the same way, and the lane has all its producers.
func TestATakeoverEndsWhatHangs(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		f := kafka.NewForgetful(t, b)
		for _, c := range []struct {
			name      string
			behind    bool // another transaction was written behind it
			folded    bool // the one that takes over is the one that wrote it
			committed bool
		}{
			{name: "the last"},
			{name: "followed", behind: true, committed: true},
			{name: "folded", folded: true, committed: true},
		} {
			for _, privileged := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, right to alter %t", c.name, privileged), func(t *testing.T) {
					topics := onePartition(t, b)
					newContender(t, b, topics, "first").takeOver()
					old := newContender(t, b, topics, "old")
					old.takeOver()
					must(t, old.write("before"))
					old.loses(f, b, "hung")
					if c.behind {
						must(t, old.write("behind"))
					}
					next := newContender(t, b, topics, "next")
					if c.folded {
						next = old.anew()
					}
					if !privileged {
						next.broker = unprivileged{next.broker}
						next = next.anew()
					}
					next.takeOver()
					for slot := range lane.Slots {
						must(t, next.write(fmt.Sprint("after-", slot)))
					}
					oracle.Until(t, "nothing hangs", func() error {
						if open, _, err := next.broker.Open(t.Context(), next.lane.Places()...); err != nil || len(open) > 0 {
							return fmt.Errorf("open are %+v, %w", open, err)
						}
						return nil
					})
					last := newContender(t, b, topics, "last")
					last.takeOver()
					for id, want := range map[string]bool{"before": true, "hung": c.committed, "behind": c.behind, "after-3": true} {
						if last.has(id) != want {
							t.Errorf("the journal has %s: %t", id, !want)
						}
					}
				})
			}
		}
	})
}

// A takeover that ends what hangs asks everything to which its producer wrote, and
// a topic whose beginning was deleted keeps it from nothing.
func TestASweepReadsWhatIsLeftOfATopic(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		f, topics := kafka.NewForgetful(t, b), onePartition(t, b)
		shop := topics.Namespace + "-shop"
		b.Create(t, 1, nil, shop)
		client := b.Client(t)
		for n := range 10 {
			must(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: shop, Value: fmt.Append(nil, n)}).FirstErr())
		}
		deleted := make(kadm.Offsets)
		deleted.AddOffset(shop, 0, 6, -1)
		_, err := b.Admin(t).DeleteRecords(t.Context(), deleted)
		must(t, err)

		newContender(t, b, topics, "first").takeOver()
		old := newContender(t, b, topics, "old")
		old.takeOver()
		records := append(old.decide("hung"), &kgo.Record{Topic: shop, Key: []byte("hung"), Value: []byte("{}"), Timestamp: time.Now()})
		must(t, old.lose(f, b, records))
		newContender(t, b, topics, "next").takeOver()
	})
}

// A broker that does not answer about others' partitions does not keep a lane from
// taking over. It knows that it has not searched everything.
func TestASilentBrokerKeepsNobodyWaiting(t *testing.T) {
	b := kafka.Embedded(t, kfake.NumBrokers(2))
	topics := onePartition(t, b)
	b.Create(t, 2, nil, "others")
	newContender(t, b, topics, "first").takeOver()
	for _, name := range append(topics.Partitioned(), topics.Status, topics.Alerts, topics.DeadLetters, topics.Workflows) {
		must(t, b.Fake.MoveTopicPartition(name, 0, 0))
	}
	must(t, b.Fake.MoveTopicPartition("others", 1, 1))
	answer := b.FirstAnswersAlone(kmsg.DescribeProducers)
	defer answer()
	next := newContender(t, b, topics, "next")
	next.takeOver()
	if next.lane.Searched() {
		t.Error("it believes that it has searched all partitions")
	}
}

// An owner that cannot see what hangs on a partition of the topics for alerts, dead letters
// and status messages writes them beside it. A status message stays with its key: only one
// that goes there is not committed.
func TestALaneWritesBesideAPartitionWithoutALeader(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	byKey := []string{topics.Status, topics.Alerts, topics.DeadLetters}
	_, err := b.Admin(t).UpdatePartitions(t.Context(), 3, byKey...)
	must(t, err)
	newContender(t, b, topics, "first").takeOver()
	b.Leaderless(t, 1, byKey...)
	keys := make(map[int32]string)
	for i := 0; len(keys) < 3; i++ {
		key := fmt.Sprint("o-", i)
		keys[lane.NewPartitioner(3).Of([]byte(key))] = key
	}
	c := newContender(t, b, topics, "next")
	c.takeOver()
	record := func(topic, key string) *kgo.Record {
		r := &kgo.Record{Topic: topic, Value: []byte("{}"), Timestamp: time.Now()}
		if key != "" {
			r.Key = []byte(key)
		}
		return r
	}
	var records []*kgo.Record
	for _, key := range []string{keys[0], keys[1], keys[2], ""} {
		for _, topic := range []string{topics.Alerts, topics.DeadLetters} {
			records = append(records, record(topic, key))
		}
	}
	must(t, c.lane.Commits(t.Context(), append(records, record(topics.Status, keys[0]), c.lane.Nothing())...))
	for _, r := range records {
		if r.Partition == 1 {
			t.Errorf("%s with the key %q was written where nobody sees what hangs", r.Topic, r.Key)
		}
	}
	if err := c.lane.Commits(t.Context(), record(topics.Status, keys[1]), c.lane.Nothing()); err == nil {
		t.Error("a status message was written where nobody sees what hangs")
	}
}

// A lane that commits without a pause does not take itself for fenced when it looks
// whose a transaction is.
func TestALaneKnowsItselfWhileItCommits(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics := onePartition(t, b)
		c := newContender(t, b, topics, "i-1")
		c.takeOver()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			for ctx.Err() == nil {
				if err := c.lane.Writes(c.lane.Nothing()); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
		for range 200 {
			if is, err := c.lane.OwnsWhatHangs(ctx, 7); err != nil || !is {
				t.Errorf("%t, %v", is, err)
			}
		}
		cancel()
		must(t, <-ended)
		must(t, newContender(t, b, topics, "i-2").lane.FencesAll(t.Context()))
		if _, err := c.lane.OwnsWhatHangs(t.Context(), 7); !errors.Is(err, kerr.ProducerFenced) {
			t.Errorf("a lane that was fenced: %v", err)
		}
	})
}

package orchestrator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// Somebody adds partitions to topics of the namespace, while instances run: they go
// on with what they had, call an operator, and nothing is written with the wrong
// number. One that comes anew, with its store or without, becomes ready.
func TestAddedPartitions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		on   func(topics *events.Topics) []string
	}{
		{"to the orders alone", func(topics *events.Topics) []string { return []string{topics.Orders} }},
		{"to all", func(topics *events.Topics) []string { return topics.Partitioned() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
				h := newTorn(t, b)
				stop := h.run("before")
				must(t, h.instance.Register(t.Context(), parseFlow(t, "workflow: order\nsteps: [{name: charge, agent: payment, timeout: 1h}]")))
				h.submit(h.earlier)
				h.started(h.earlier)

				h.widen(6, c.on(&h.topics)...)
				other, stopOther := runs(t, b, Config{ID: "other", Namespace: h.topics.Namespace, watchEvery: time.Second})
				oracle.Until(t, "both own partitions", func() error { return h.all(2, h.instance, other) })
				why := h.alerted()
				if !strings.Contains(why, h.topics.Orders+" has 6 partitions") {
					t.Errorf("the alert says: %s", why)
				}
				for _, id := range []string{"torn", h.elsewhere[0]} { // where they belong, by whatever instance
					_, err := other.Submit(t.Context(), id, &events.Submission{Workflow: "order"}, Context{}, nil)
					must(t, err)
					h.started(id)
				}
				strayed := []string{h.stray("s-1", 2), h.stray("s-2", 3), h.stray("s-3", 5)}
				stopOther()
				oracle.Until(t, "one owns all", func() error { return h.all(2, h.instance) })
				stop()

				h.run("again")
				oracle.Until(t, "it is ready", func() error { return h.instance.Ready() })
				h.submit(h.waits)
				h.started(h.waits)
				strayed = append(strayed, h.stray("s-4", 2))
				for _, r := range oracle.Read(t, b.Brokers, h.topics.Journal) {
					e, err := events.Decode[events.Event](r.Value)
					must(t, err)
					if r.Partition >= 2 || e.Type == events.PartitionClaimed && e.Partitions != 2 {
						t.Errorf("in the journal's partition %d, at %d, stands %+v", r.Partition, r.Offset, e)
					}
				}
				var forwarded []string
				for _, r := range oracle.Read(t, b.Brokers, h.topics.Orders) {
					from := events.Header(r, "waybill_forwarded_from")
					if from != "" {
						forwarded = append(forwarded, from)
					}
					if r.Partition != h.instance.Partition(string(r.Key)) && !strings.HasPrefix(string(r.Key), "s-") {
						t.Errorf("order %s was written to partition %d", r.Key, r.Partition)
					}
				}
				slices.Sort(forwarded)
				slices.Sort(strayed)
				if !slices.Equal(forwarded, strayed) {
					t.Errorf("forwarded are %q, and must be %q", forwarded, strayed)
				}
			})
		})
	}
}

// Releases before claimed partitions with the new number, after some had been added,
// and decided nothing then: the journal is what it was, and the partition goes on.
func TestClaimsWithAnotherNumberAreVoid(t *testing.T) {
	h := newTorn(t, kafka.Embedded(t))
	stop := h.run("before")
	must(t, h.instance.Register(t.Context(), parseFlow(t, "workflow: order\nsteps: [{name: charge, agent: payment, timeout: 1h}]")))
	h.submit("torn")
	h.started("torn")
	stop()
	h.learn()
	h.widen(6, h.topics.Partitioned()...)
	h.write([][]*kgo.Record{h.seal(0, 1, h.event(events.Event{Type: events.PartitionClaimed, Instance: "older", Claim: "c", Partitions: 6, Format: 1}))})
	h.submit(h.waits)
	for _, store := range []string{"as it was", "lost"} {
		stop := h.run("after")
		h.started(h.waits)
		stop()
		if store == "as it was" {
			h.dir = t.TempDir()
		}
	}
}

// stray submits an order on an added partition, and returns where, once it is worked on.
func (h *torn) stray(order string, partition int32) string {
	h.Helper()
	client := h.producer() // that knows the partition
	r := &kgo.Record{Topic: h.topics.Orders, Partition: partition, Key: []byte(order), Value: []byte(`{"workflow":"order"}`)}
	must(h, client.ProduceSync(h.Context(), r).FirstErr())
	h.started(order)
	return fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset)
}

// widen adds partitions to topics, up to a number of them.
func (h *torn) widen(to int, topics ...string) {
	h.Helper()
	widened, err := h.broker.Admin(h.T).UpdatePartitions(h.Context(), to, topics...)
	must(h, err)
	must(h, widened.Error())
	oracle.Until(h, "the partitions are there", func() error {
		metadata, err := h.broker.Admin(h.T).Metadata(kadm.WithAuthorizedOps(h.Context()), topics...)
		must(h, err)
		for _, topic := range topics {
			if have := len(metadata.Topics[topic].Partitions); have != to {
				return fmt.Errorf("%s has %d", topic, have)
			}
		}
		return nil
	})
}

// all says whether the instances are ready, and own all partitions.
func (h *torn) all(partitions int, instances ...*Instance) error {
	owned := 0
	for _, i := range instances {
		if err := i.Ready(); err != nil {
			return err
		}
		owned += i.Owned()
	}
	if owned != partitions {
		return fmt.Errorf("%d of %d partitions are served", owned, partitions)
	}
	return nil
}

// Added partitions are found though others have no leader.
func TestAddedPartitionsAreFoundBesideOneWithoutALeader(t *testing.T) {
	b := kafka.Embedded(t)
	topics, err := events.NewTopics(kafka.Namespace(t))
	must(t, err)
	want := make(map[lane.TopicPartition]int64)
	for _, topic := range topics.Inputs() {
		b.Create(t, 3, nil, topic)
		want[lane.TopicPartition{Topic: topic, Partition: 2}] = 0
	}
	b.Leaderless(t, 1, topics.Orders)
	i := &Instance{admin: b.Admin(t), topics: topics, partitions: 1}
	err = i.lookForStarts(t.Context())
	for _, topic := range []string{topics.Replies, topics.Commands, topics.Signals, topics.Internal} {
		want[lane.TopicPartition{Topic: topic, Partition: 1}] = 0
	}
	if got := i.added.Added(); err == nil || !maps.Equal(got, want) {
		t.Errorf("found are %v: %v", got, err)
	}
}

// With how many partitions the journal was begun stands in any that was claimed, though
// another has no leader. Where none of the others tells, nobody knows: it is not 0.
func TestTheNumberOfPartitionsBesideOneWithoutALeader(t *testing.T) {
	for leaderless, want := range map[int32]int32{0: 3, 2: 0} {
		t.Run(fmt.Sprint(leaderless), func(t *testing.T) {
			b := kafka.Embedded(t)
			topics, err := events.NewTopics(kafka.Namespace(t))
			must(t, err)
			_, err = CreateTopics(t.Context(), b.Admin(t), &topics, 3, 1)
			must(t, err)
			client := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
			claim := events.Event{Type: events.PartitionClaimed, Instance: "i-0", Claim: "c", Partitions: 3}
			must(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: topics.Journal, Partition: 2, Value: claim.Append(nil)}).FirstErr())
			b.Leaderless(t, leaderless, topics.Journal)

			if n, err := partitionsOf(t.Context(), b.Client(t), topics.Journal, 3); n != want || (err == nil) != (want > 0) {
				t.Errorf("it was begun with %d: %v", n, err)
			}
			differences, err := CheckTopics(t.Context(), b.Client(t), &topics, nil)
			if (err == nil) != (want > 0) || len(differences) > 0 && differences[0].Harmful {
				t.Errorf("found are %v: %v", differences, err)
			}
		})
	}
}

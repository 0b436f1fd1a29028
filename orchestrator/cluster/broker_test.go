package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/test/kafka"
)

// Where a partition begins, and what it has since a time, is found though another of the
// same topic has no leader.
func TestPlacesBesideOneWithoutALeader(t *testing.T) {
	b := kafka.Embedded(t)
	topics, err := events.NewTopics(kafka.Namespace(t))
	must(t, err)
	for _, topic := range topics.Inputs() {
		b.Create(t, 3, nil, topic)
	}
	began := time.UnixMilli(0)
	client := b.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	deleted := make(kadm.Offsets)
	for topic, partition := range map[string]int32{topics.Replies: 0, topics.Orders: 2} {
		for minute := range 3 {
			r := record(topic)
			r.Partition, r.Timestamp = partition, began.Add(time.Duration(minute)*time.Minute)
			must(t, client.ProduceSync(t.Context(), r).FirstErr())
		}
		deleted.Add(kadm.Offset{Topic: topic, Partition: partition, At: 1})
	}
	_, err = b.Admin(t).DeleteRecords(t.Context(), deleted)
	must(t, err)
	b.Leaderless(t, 1, topics.Partitioned()...)

	k := reached(t, b, &topics)
	starts, err := k.Starts(t.Context(), lane.TopicPartition{Topic: topics.Orders, Partition: 2})
	must(t, err)
	if starts.At(events.InputOrders) != 0 || starts.At(events.InputReplies) != 1 || starts.At(events.InputCommands) != 0 || starts.Of(events.InputOrders, 2) != 1 {
		t.Errorf("they begin at %v", starts)
	}
	for after, want := range map[time.Duration]int64{0: 1, 2 * time.Minute: 2, time.Hour: 3} {
		at, err := k.Since(t.Context(), lane.TopicPartition{Topic: topics.Replies}, began.Add(after))
		if must(t, err); at != want {
			t.Errorf("since %s it has offset %d", after, at)
		}
	}
	if at, err := k.Since(t.Context(), lane.TopicPartition{Topic: topics.Replies, Partition: 1}, began); err == nil {
		t.Errorf("of the other it is said that it has offset %d", at)
	}
}

// What hangs is looked for though the journal of another partition has no leader: only the
// lane's own must answer.
func TestAnotherPartitionsJournalWithoutALeader(t *testing.T) {
	b := kafka.Embedded(t)
	topics, err := events.NewTopics(kafka.Namespace(t))
	must(t, err)
	b.Create(t, 2, nil, topics.Journal)
	b.Leaderless(t, 1, topics.Journal)
	k := reached(t, b, &topics)
	own, other := lane.TopicPartition{Topic: topics.Journal}, lane.TopicPartition{Topic: topics.Journal, Partition: 1}
	_, unseen, silent, err := k.Everywhere(t.Context())
	if want := []lane.TopicPartition{other}; err != nil || silent != nil || !slices.Equal(unseen, want) {
		t.Errorf("everywhere: unseen are %v: %v, %v", unseen, silent, err)
	}
	_, unseen, err = k.Open(t.Context(), own, other)
	if want := []lane.TopicPartition{other}; err != nil || !slices.Equal(unseen, want) {
		t.Errorf("unseen are %v: %v", unseen, err)
	}
}

package cluster

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
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

// Whoever reads an input on where the instance had read it, or before, is told that it was cut
// off since, though it was written on. Of where others have read it nothing is known, nor is
// it asked by who looks at the past.
func TestWhoReadsOnIsToldWhatWasCutOff(t *testing.T) {
	b := kafka.Embedded(t)
	topics := journal(t, b)
	b.Create(t, 1, nil, topics.Replies)
	app := b.Client(t)
	writes := func(n int) {
		for range n {
			must(t, app.ProduceSync(t.Context(), record(topics.Replies)).FirstErr())
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), oracle.Patience)
	defer cancel()
	reads := func(k lane.Broker, committed bool, from int64, n int) (err error) {
		r, err := k.Read(0, committed)
		must(t, err)
		defer r.Close()
		for r.Seek(map[string]int64{topics.Replies: from}); n > 0; {
			fetches := r.Poll(ctx, 100)
			if failed := fetches.Errors(); len(failed) > 0 {
				err = failed[0].Err
			}
			if n -= len(fetches.Records()); ctx.Err() != nil {
				return ctx.Err()
			}
		}
		return err
	}
	k, other := reached(t, b, topics), reached(t, b, topics)
	writes(10)
	must(t, reads(k, true, 0, 10))
	must(t, reads(other, true, 0, 10))
	b.Fake.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		told := r.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
		topic.Topic = topics.Replies
		p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		p.LeaderEpoch, p.EndOffset = 0, 4
		topic.Partitions = append(topic.Partitions, p)
		told.Topics = append(told.Topics, topic)
		return told, nil, true
	})
	writes(2)
	for _, from := range []int64{10, 5} {
		if told, ok := errors.AsType[*kgo.ErrDataLoss](reads(k, true, from, 8)); !ok || told.ResetTo != 4 {
			t.Errorf("who reads on from %d is told %+v", from, told)
		}
	}
	for name, err := range map[string]error{
		"what others had read":        reads(other, true, 11, 1),
		"what was read since":         reads(k, true, 11, 1), // by who was told
		"the past":                    reads(k, false, 10, 1),
		"what was there":              reads(k, true, 4, 1),
		"what another instance reads": reads(reached(t, b, topics), true, 10, 1),
	} {
		if err != nil {
			t.Errorf("%s: who reads it is told: %v", name, err)
		}
	}
}

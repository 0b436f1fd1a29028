package cluster

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/test/kafka"
)

// What a lane writes for agents, for itself and for other lanes stays in the
// partition that the record names; the rest goes where its key says.
func TestLanePartitioner(t *testing.T) {
	topics, err := events.NewTopics("shop")
	must(t, err)
	p := Partitioner(&topics)
	const partitions, named = 12, 11
	byKey := int(lane.NewPartitioner(partitions).Of([]byte("o-1")))
	if byKey == named {
		t.Fatal("choose another key")
	}
	for topic, want := range map[string]int{
		topics.Journal: named, topics.Orders: named, topics.Replies: named, topics.Commands: named, topics.Requests("payment"): named,
		topics.Status: byKey, topics.Alerts: byKey, topics.DeadLetters: byKey, "callers.status": byKey, "waybill.journal": byKey,
	} {
		r := &kgo.Record{Topic: topic, Key: []byte("o-1"), Partition: named, Context: t.Context()}
		if got := p.ForTopic(topic).Partition(r, partitions); got != want {
			t.Errorf("%s: partition %d, not %d", topic, got, want)
		}
		if !p.ForTopic(topic).RequiresConsistency(r) {
			t.Errorf("%s: another partition is taken while this one cannot be written", topic)
		}
	}
	// A dead letter may have no key.
	r := &kgo.Record{Topic: topics.DeadLetters, Context: t.Context()}
	if got := p.ForTopic(r.Topic).Partition(r, partitions); got < 0 || got >= partitions {
		t.Errorf("a record without a key: partition %d", got)
	}
}

// Where a lane does not see what hangs it writes nothing. Alerts and dead letters have
// another partition then, if there is one that it sees; all else stays where it belongs.
func TestALaneWritesNothingWhereItDoesNotSee(t *testing.T) {
	topics, err := events.NewTopics("shop")
	must(t, err)
	const partitions = 3
	byKey := lane.NewPartitioner(partitions).Of([]byte("o-1"))
	beside := (byKey + 1) % partitions
	last := (byKey + 2) % partitions
	for _, c := range []struct {
		unseen          []int32
		anywhere, fixed int32
	}{
		{nil, byKey, byKey},
		{[]int32{beside}, byKey, byKey},
		{[]int32{byKey}, beside, -1},
		{[]int32{byKey, beside}, last, -1},
		{[]int32{byKey, last}, beside, -1},
		{[]int32{byKey, beside, last}, -1, -1},
	} {
		p := seeing(&topics, func(at lane.TopicPartition) bool {
			return at.Topic != "other" && slices.Contains(c.unseen, at.Partition)
		})
		for topic, want := range map[string]int32{
			topics.Alerts: c.anywhere, topics.DeadLetters: c.anywhere, "other": byKey,
			topics.Status: c.fixed, "callers.status": c.fixed, topics.Requests("payment"): c.fixed, topics.Journal: c.fixed,
		} {
			r := &kgo.Record{Topic: topic, Key: []byte("o-1"), Partition: byKey, Context: t.Context()}
			if got := p.ForTopic(topic).Partition(r, partitions); got != int(want) {
				t.Errorf("%v are unseen, %s: partition %d, not %d", c.unseen, topic, got, want)
			}
		}
		r := &kgo.Record{Topic: topics.DeadLetters, Context: t.Context()} // may have no key
		if got := p.ForTopic(r.Topic).Partition(r, partitions); slices.Contains(c.unseen, int32(got)) || got < 0 != (c.anywhere < 0) {
			t.Errorf("%v are unseen, a record without a key: partition %d", c.unseen, got)
		}
	}
}

// The ids are part of the protocol: instances of every release fence each
// other by them.
func TestTransactionalIDs(t *testing.T) {
	topics, err := events.NewTopics("waybill")
	must(t, err)
	for slot, want := range []string{"waybill-p3-0", "waybill-p3-1", "waybill-p3-2", "waybill-p3-3"} {
		if got := TransactionalID(&topics, 3, slot); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	if lane.Slots != 4 {
		t.Errorf("%d slots: a release with another number does not fence all of them", lane.Slots)
	}
}

// The client reports success where it believes that there is nothing to commit.
// A lane must not: it has always written something.
func TestACommitThatWasNotAskedForIsNone(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics := journal(t, b)
		p := fenced(t, reached(t, b, topics), 0)
		must(t, p.Commit([]*kgo.Record{record(topics.Journal)}))
		if err := p.Commit(nil); !errors.Is(err, ErrNotAsked) {
			t.Errorf("nothing was committed, and the commit ended with %v", err)
		}
	})
}

// S3: a record that is forwarded keeps its time, and is committed however old it is.
func TestAnOldRecordIsCommitted(t *testing.T) {
	b := kafka.Embedded(t)
	topics := journal(t, b)
	old := record(topics.Journal)
	old.Timestamp = time.UnixMilli(1)
	must(t, fenced(t, reached(t, b, topics), 0).Commit([]*kgo.Record{old}))
}

// A commit to a partition that has no leader any more gives up, and says which topic
// was late.
func TestACommitWithoutALeader(t *testing.T) {
	b := kafka.Embedded(t)
	topics := journal(t, b)
	b.Create(t, 1, nil, "shop")
	p := fenced(t, reached(t, b, topics), 0)
	must(t, p.Commit([]*kgo.Record{record(topics.Journal), record("shop")}))

	b.Leaderless(t, 0, "shop")
	b.Fake.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		produced, answer := r.(*kmsg.ProduceRequest), r.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range produced.Topics {
			if topic.Topic != "shop" && topic.TopicID != b.Fake.TopicInfo("shop").TopicID {
				return nil, nil, false
			}
			said := kmsg.NewProduceResponseTopic()
			said.Topic, said.TopicID = topic.Topic, topic.TopicID
			at := kmsg.NewProduceResponseTopicPartition()
			at.ErrorCode = kerr.NotLeaderForPartition.Code
			said.Partitions = append(said.Partitions, at)
			answer.Topics = append(answer.Topics, said)
		}
		return answer, nil, true
	})
	err := p.Commit([]*kgo.Record{record("shop")})
	if late, ok := errors.AsType[*lane.LateError](err); !ok || !slices.Equal(late.Topics, []string{"shop"}) || !errors.Is(err, kerr.LeaderNotAvailable) {
		t.Errorf("it ended with %v", err)
	}
}

// A producer that is fenced says so, and not that a topic was late of which the client has
// not heard yet.
func TestAFencedCommitWaitsForNoTopic(t *testing.T) {
	b := kafka.Embedded(t)
	topics := journal(t, b)
	b.Create(t, 1, nil, "shop")
	k := reached(t, b, topics)
	p := fenced(t, k, 0)
	must(t, p.Commit([]*kgo.Record{record(topics.Journal)}))
	fenced(t, k, 0) // somebody else's
	ended := make(chan struct{})
	b.Fake.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		if slices.ContainsFunc(r.(*kmsg.MetadataRequest).Topics, func(of kmsg.MetadataRequestTopic) bool { return of.Topic != nil && *of.Topic == "shop" }) {
			b.Fake.SleepControl(func() { <-ended })
		}
		return nil, nil, false
	})
	err := p.Commit([]*kgo.Record{record(topics.Journal), record("shop")})
	close(ended)
	if _, ok := errors.AsType[*lane.RefusedError](err); !ok || errors.Is(err, lane.ErrLate) {
		t.Errorf("it ended with %v", err)
	}
}

// Slots that are fenced at the same time have each their own producer. If one cannot be, a
// lane has none of them: it would write on slots that somebody else may claim over.
func TestSlotsAreFencedTogether(t *testing.T) {
	b := kafka.Embedded(t)
	topics := journal(t, b)
	k := reached(t, b, topics)
	all, err := k.Fence(t.Context(), seesAll, 3, 1, 2)
	must(t, err)
	for i, slot := range []int{3, 1, 2} {
		if name := all[i].(*producer).name; name != TransactionalID(topics, 0, slot) {
			t.Errorf("slot %d has the producer %s", slot, name)
		}
		all[i].Close()
	}
	b.Fake.ControlKey(int16(kmsg.InitProducerID), func(q kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		asked := q.(*kmsg.InitProducerIDRequest)
		if *asked.TransactionalID != TransactionalID(topics, 0, 2) {
			return nil, nil, false
		}
		refused := asked.ResponseKind().(*kmsg.InitProducerIDResponse)
		refused.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		return refused, nil, true
	})
	if all, err := k.Fence(t.Context(), seesAll, 3, 1, 2); !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) || all != nil {
		t.Errorf("with a slot that cannot be fenced: %v, %v", all, err)
	}
}

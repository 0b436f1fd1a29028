package orchestrator

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// The vectors are those of Kafka's own test of its default partitioner. Any
// client that follows it writes an order where its lane reads it.
func TestPartitionerIsKafkasDefault(t *testing.T) {
	for key, hash := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		for _, n := range []int32{1, 2, 3, 12, 100, 1<<31 - 1} {
			want := (hash & 0x7fffffff) % n
			if got := newPartitioner(n).of([]byte(key)); got != want {
				t.Errorf("%q is in partition %d of %d, not %d", key, got, n, want)
			}
		}
	}
}

// What a lane writes for agents, for itself and for other lanes stays in the
// partition that the record names; the rest goes where its key says.
func TestLanePartitioner(t *testing.T) {
	topics, err := events.NewTopics("shop")
	must(t, err)
	p := lanePartitioner(&topics)
	const partitions, named = 12, 11
	byKey := int(newPartitioner(partitions).of([]byte("o-1")))
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

// The ids are part of the protocol: instances of every release fence each
// other by them.
func TestTransactionalIDs(t *testing.T) {
	topics, err := events.NewTopics("waybill")
	must(t, err)
	for slot, want := range []string{"waybill-p3-0", "waybill-p3-1", "waybill-p3-2", "waybill-p3-3"} {
		if got := transactionalID(&topics, 3, slot); got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
	if slots != 4 {
		t.Errorf("%d slots: a release with another number does not fence all of them", slots)
	}
}

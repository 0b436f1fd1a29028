package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// A takeover that ends what hangs asks everything to which its producer wrote, and
// a topic whose beginning was deleted keeps it from nothing.
func TestASweepReadsWhatIsLeftOfATopic(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		f, topics := newForgetful(t, b), onePartition(t, b)
		shop := topics.Namespace + "-shop"
		_, err := b.Admin(t).CreateTopic(t.Context(), 1, 1, nil, shop)
		must(t, err)
		client := b.Client(t)
		for n := range 10 {
			must(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: shop, Value: fmt.Append(nil, n)}).FirstErr())
		}
		deleted := make(kadm.Offsets)
		deleted.AddOffset(shop, 0, 6, -1)
		_, err = b.Admin(t).DeleteRecords(t.Context(), deleted)
		must(t, err)

		newContender(t, b, &topics, "first").takeOver()
		old := newContender(t, b, &topics, "old")
		old.takeOver()
		records := append(old.decide("hung"), &kgo.Record{Topic: shop, Key: []byte("hung"), Value: []byte("{}"), Timestamp: time.Now()})
		if b.Kind == kafka.KindEmbedded {
			f.forget()
			must(t, old.lane.producers.commit(records))
		} else {
			f.leave(old.lane.producers.ring[old.lane.producers.next].(*kafkaProducer), records)
		}
		newContender(t, b, &topics, "next").takeOver()
	})
}

// A broker that does not answer about others' partitions does not keep a lane from
// taking over. It knows that it has not searched everything.
func TestASilentBrokerKeepsNobodyWaiting(t *testing.T) {
	b := kafka.Embedded(t, kfake.NumBrokers(2))
	topics := onePartition(t, b)
	_, err := b.Admin(t).CreateTopic(t.Context(), 2, 1, nil, "others")
	must(t, err)
	newContender(t, b, &topics, "first").takeOver()
	for _, name := range append(topics.Partitioned(), topics.Status, topics.Alerts, topics.DeadLetters, topics.Workflows) {
		must(t, b.Fake.MoveTopicPartition(name, 0, 0))
	}
	must(t, b.Fake.MoveTopicPartition("others", 1, 1))
	talk := make(chan struct{})
	defer close(talk)
	b.Fake.ControlKey(int16(kmsg.DescribeProducers), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		if b.Fake.CurrentNode() != 0 {
			b.Fake.SleepControl(func() { <-talk })
		}
		return nil, nil, false
	})
	next := newContender(t, b, &topics, "next")
	next.takeOver()
	if next.lane.searched {
		t.Error("it believes that it has searched all partitions")
	}
}

// Somebody's transaction on a queue is none of the lane's, however long it stands.
func TestSomebodysTransactionOnAQueueEndsNoLane(t *testing.T) {
	b := kafka.Embedded(t)
	topics, said := onePartition(t, b), &lines{}
	i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace, watchEvery: 10 * time.Millisecond, Logger: said.logger()})
	oracle.Until(t, "ready", i.Ready)
	must(t, i.Register(t.Context(), parseFlow(t, silentFlow)))
	i.waits(t, "before", `{}`)
	other := b.Client(t, kgo.TransactionalID("a-tool"), kgo.TransactionTimeout(time.Minute))
	must(t, other.BeginTransaction())
	must(t, other.ProduceSync(t.Context(), &kgo.Record{Topic: topics.Requests("phone"), Value: []byte("{}")}).FirstErr())
	var looks atomic.Int32
	b.Fake.ControlKey(int16(kmsg.DescribeProducers), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		looks.Add(1)
		return nil, nil, false
	})
	oracle.Until(t, "it was seen often enough", func() error {
		if n := looks.Load(); n < 20 {
			return fmt.Errorf("%d looks", n)
		}
		return nil
	})
	i.waits(t, "after", `{}`)
	if strings.Contains(said.String(), "the lane ended") {
		t.Error("a lane ended")
	}
	must(t, other.EndTransaction(t.Context(), kgo.TryAbort))
}

// A lane that commits without a pause does not take itself for fenced when it looks
// whose a transaction is.
func TestALaneKnowsItselfWhileItCommits(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics := onePartition(t, b)
		c := newContender(t, b, &topics, "i-1")
		c.takeOver()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			for ctx.Err() == nil {
				e := events.Event{Type: events.PartitionAdvanced, At: now()}
				if err := c.lane.producers.commit([]*kgo.Record{c.lane.laneEvent(&e, "x")}); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
		former := []openTransaction{{transaction: transaction{producer: 7}, slot: spent}}
		for range 200 {
			if found, err := c.lane.ours(ctx, &past{writers: map[int64]bool{7: true}}, former); err != nil || len(found) != 1 {
				t.Errorf("%+v, %v", found, err)
			}
		}
		cancel()
		must(t, <-ended)
		must(t, newContender(t, b, &topics, "i-2").lane.fence(t.Context()))
		if _, err := c.lane.ours(t.Context(), &past{writers: map[int64]bool{7: true}}, former); !errors.Is(err, kerr.ProducerFenced) {
			t.Errorf("a lane that was fenced: %v", err)
		}
	})
}

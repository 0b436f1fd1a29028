package orchestrator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// A lane that finds one of its own transactions hanging ends, and the takeover
// that follows ends what hangs. What Kafka had acknowledged stays.
func TestALaneFindsWhatHangsOfItsOwn(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		f, topics, said := kafka.NewForgetful(t, b), onePartition(t, b), &lines{}
		first, stop := runs(t, b, Config{ID: "i-0", Namespace: topics.Namespace}) // so that slots have been initialised twice
		oracle.Until(t, "the first is ready", first.Ready)
		stop()
		i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace, watchEvery: 50 * time.Millisecond, Logger: said.logger()})
		oracle.Until(t, "ready", i.Ready)
		must(t, i.Register(t.Context(), parseFlow(t, silentFlow)))
		i.waits(t, "before", `{}`)
		if b.Kind == kafka.KindEmbedded {
			f.Forget()
			i.waits(t, "hung", `{}`)
		} else { // of a slot that has written nothing since
			e := events.Event{Type: events.OrderRejected, Order: "hung", Seq: 1, At: now()}
			m := decide.Outbox(nil, &topics, nil, &projections.Order{ID: "hung"}, &e)[0]
			f.Leave(cluster.TransactionalID(&topics, 0, lane.Slots-1), []*kgo.Record{m.Envelope.Record(m.Topic, m.Value)})
		}
		said.until(t, "the lane ended; taking the partition over again", "a transaction hangs on "+topics.Namespace)
		said.until(t, "ended a transaction that hung", "topic="+topics.Journal, fmt.Sprintf("commit=%t", b.Kind == kafka.KindEmbedded))
		i.waits(t, "after", `{}`)
		found := slices.ContainsFunc(oracle.Read(t, b.Brokers, topics.Journal), func(r *kgo.Record) bool { return string(r.Key) == "hung" })
		if acknowledged := b.Kind == kafka.KindEmbedded; found != acknowledged {
			t.Errorf("what hung is in the journal: %t; it was acknowledged: %t", found, acknowledged)
		}
		audit.Namespace(t, b.Brokers, &topics, true)
	})
}

// A caller's transaction that stays open keeps what is behind it from being read.
// The log tells whose it is, and once it is aborted all goes on without it.
func TestACallersOpenTransactionIsTold(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		topics, said := onePartition(t, b), &lines{}
		i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace, watchEvery: 50 * time.Millisecond, Logger: said.logger()})
		oracle.Until(t, "ready", i.Ready)
		must(t, i.Register(t.Context(), parseFlow(t, silentFlow)))
		caller := b.Client(t, kgo.TransactionalID(topics.Namespace+"-caller"))
		must(t, caller.BeginTransaction())
		submission := &kgo.Record{Topic: topics.Orders, Key: []byte("open"), Value: []byte(`{"workflow":"silent"}`)}
		must(t, caller.ProduceSync(t.Context(), submission).FirstErr())
		behind, err := i.Submit(t.Context(), "open", &events.Submission{Workflow: "silent", Input: []byte(`{"of":"another"}`)}, Context{}, nil)
		must(t, err)
		said.until(t, "somebody's transaction keeps the inputs behind it from being read", fmt.Sprintf("topic=%s offset=%d", topics.Orders, submission.Offset))
		if o, _, err := i.Order(behind); !errors.Is(err, projections.ErrNotFound) {
			t.Errorf("what is behind it was read: %+v, %v", o, err)
		}
		must(t, caller.EndTransaction(t.Context(), kgo.TryAbort))
		i.waits(t, "open", `{"of":"another"}`)
		audit.Namespace(t, b.Brokers, &topics, true)
	})
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

// silentFlow is a workflow whose orders wait for an agent that never answers.
const silentFlow = "workflow: silent\nsteps: [{name: call, agent: phone, timeout: 1h}]"

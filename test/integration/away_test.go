package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/waybill"
)

// near and far are alike, but that all of the one is on the first broker, and
// something of the other on the second. Nothing that is lost heals.
const (
	near = `
workflow: near
version: 1
steps:
  - {name: do, agent: at-hand, do: it, timeout: 1h, retry: {attempts: 1}}
`
	far = `
workflow: far
version: 1
steps:
  - {name: first, agent: at-hand, do: it, timeout: 1h, retry: {attempts: 1}}
  - {name: do, agent: away, do: it, after: [first], timeout: 1h, retry: {attempts: 1}}
`
)

// An agent whose requests are on a broker that is killed while it is written to is
// away. Nobody else's order waits for that broker, also under another owner, and
// when it is back the agent's go on.
func TestAnAgentsBrokerIsKilled(t *testing.T) {
	t.Parallel()
	suite := newTwoBrokers(t)
	w := suite.world
	w.put(w.Topic("requests.away"), partitions)
	w.Register(suite.instance, far)
	suite.tried(`{"workflow":"far"}`, "near")
}

// A caller's own topic on a broker that is killed while it is written to holds up
// nobody, not even the orders that name it: only their status messages wait, and come
// when it is back. So it is under another owner, too.
func TestACallersBrokerIsKilled(t *testing.T) {
	t.Parallel()
	suite := newTwoBrokers(t)
	w := suite.world
	topic := w.Namespace + "-shop"
	w.put(topic, 3)
	w.Callers = append(w.Callers, topic)
	suite.tried(`{"workflow":"near","replyTo":"`+topic+`"}`, "near", "far")
	heard := w.Inbox(topic)
	for _, when := range []string{"before", "away", "restarted"} {
		for k := range 30 {
			heard.Hears(fmt.Sprintf("far-%s-%d", when, k), "received", "completed")
		}
	}
}

// A partition of the topics for alerts and dead letters on a broker that is killed stops
// nobody, not even who has dead letters for it: they are in another one. So it is under
// another owner, too.
func TestADeadLettersBrokerIsKilled(t *testing.T) {
	t.Parallel()
	suite := newTwoBrokers(t)
	w, i := suite.world, suite.instance
	w.move(1, w.Topics.Alerts, w.Topics.DeadLetters)
	const n = 30
	complete := func(when string) {
		for k := range n {
			order := fmt.Sprintf("%s-%d", when, k)
			w.Produce(&kgo.Record{Topic: w.Topics.Replies, Key: []byte(order), Value: []byte("hello")})
			w.Submit(order, `{"workflow":"near"}`)
		}
		for k := range n {
			w.order(i, fmt.Sprintf("%s-%d", when, k), in(projections.Processed))
		}
	}
	suite.second.Kill(t)
	complete("away")
	i.Stop()
	i = w.Run("i-2", t.TempDir())
	complete("restarted")
	suite.second.Start(t)
	if letters := len(w.read(w.Topics.DeadLetters)); letters != 2*n {
		t.Errorf("there are %d dead letters, and not %d", letters, 2*n)
	}
	w.Audit()
}

// Instances that start while a partition of the journal and of all inputs has no leader
// serve and follow all others, and that one when its leader is back.
func TestInstancesStartWhileABrokerIsAway(t *testing.T) {
	t.Parallel()
	suite := newTwoBrokers(t)
	w := suite.world
	const lost = 1
	w.move(lost, w.Topics.Partitioned()...)
	suite.instance.Stop()
	suite.second.Kill(t)
	instances := []*waybill.Instance{w.Begin("i-2", t.TempDir()), w.Begin("i-3", t.TempDir())}
	completes := func(order string) {
		w.Submit(order, `{"workflow":"near"}`)
		for _, i := range instances {
			w.order(i, order, in(projections.Processed))
		}
	}
	var waiting []string
	for k := range 30 {
		order := fmt.Sprintf("o-%d", k)
		if instances[0].Partition(order) == lost {
			waiting = append(waiting, order)
		} else {
			completes(order)
		}
	}
	suite.second.Start(t)
	for _, order := range waiting {
		completes(order)
	}
	w.Audit() // while the second broker is there
}

// move has the second broker alone keep a partition of some topics.
func (w *world) move(partition int32, topics ...string) {
	w.Helper()
	var to kadm.AlterPartitionAssignmentsReq
	for _, topic := range topics {
		to.Assign(topic, partition, []int32{2})
	}
	answer, err := w.Admin.AlterPartitionAssignments(w.Context(), to)
	if err := errors.Join(err, answer.Error()); err != nil {
		w.Fatal(err)
	}
	w.until("the partition has moved", func() error {
		found, err := w.Admin.Metadata(w.Context(), topics...)
		if err != nil {
			return err
		}
		for topic, is := range found.Topics {
			if p := is.Partitions[partition]; p.Err != nil || p.Leader != 2 || !slices.Equal(p.Replicas, []int32{2}) {
				return fmt.Errorf("%s: leader %d of %d, %v", topic, p.Leader, p.Replicas, p.Err)
			}
		}
		return nil
	})
}

type twoBrokers struct {
	*testing.T
	world    *world
	instance *waybill.Instance
	second   *kafka.Broker
}

// newTwoBrokers runs an instance on two brokers, with all but what is put on the
// second on the first.
func newTwoBrokers(t *testing.T) *twoBrokers {
	b := kafka.Own(t)
	w := newWorld(t, b)
	i := w.Run("i-1", t.TempDir())
	w.Register(i, near)
	echo := func(_ context.Context, r agents.Request[any]) (any, error) { return r.IdempotencyKey, nil }
	w.serve("at-hand", echo, "it")
	w.Submit("warm", `{"workflow":"near"}`)
	w.order(i, "warm", in(projections.Processed))
	return &twoBrokers{T: t, world: w, instance: i, second: b.Second(t)}
}

// put makes a topic whose only replicas are on the second broker.
func (w *world) put(topic string, partitions int32) {
	w.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	made := kmsg.NewCreateTopicsRequestTopic()
	made.Topic, made.NumPartitions, made.ReplicationFactor = topic, -1, -1
	for p := range partitions {
		at := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		at.Partition, at.Replicas = p, []int32{2}
		made.ReplicaAssignment = append(made.ReplicaAssignment, at)
	}
	req.Topics = append(req.Topics, made)
	answer, err := req.RequestWith(w.Context(), w.Broker.Client(w))
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	}
	if err != nil {
		w.Fatal(err)
	}
	w.until(topic+" has its leader", func() error {
		found, err := w.Admin.Metadata(w.Context(), topic)
		if err != nil {
			return err
		}
		for _, p := range found.Topics[topic].Partitions.Sorted() {
			if p.Err != nil || p.Leader != 2 {
				return fmt.Errorf("partition %d: leader %d, %v", p.Partition, p.Leader, p.Err)
			}
		}
		return found.Topics[topic].Err
	})
}

// tried submits orders that need the second broker, kills it meanwhile, and wants
// some kinds to complete while it is away, and all when it is back.
func (s *twoBrokers) tried(submission string, meanwhile ...string) {
	s.Helper()
	w, i := s.world, s.instance
	const n = 30
	several := func(when string) {
		for k := range n {
			w.Submit(fmt.Sprintf("far-%s-%d", when, k), submission)
			w.Submit(fmt.Sprintf("near-%s-%d", when, k), `{"workflow":"near"}`)
		}
	}
	complete := func(kind, when string) {
		for k := range n {
			w.order(i, fmt.Sprintf("%s-%s-%d", kind, when, k), in(projections.Processed))
		}
	}
	completes := func(when string) {
		for _, kind := range meanwhile {
			complete(kind, when)
		}
	}
	several("before")
	s.second.Kill(s)
	completes("before")
	several("away")
	completes("away")
	i.Stop()
	i = w.Run("i-2", s.TempDir())
	several("restarted")
	completes("restarted")
	s.second.Start(s)
	echo := func(_ context.Context, r agents.Request[any]) (any, error) { return r.IdempotencyKey, nil }
	w.serve("away", echo, "it")
	for _, when := range []string{"before", "away", "restarted"} {
		complete("far", when)
	}
	w.Audit() // while the second broker is there
}

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/leftout"
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

// A broker is killed, and comes back. Each of these has a namespace of its own; they share the
// two brokers, because what takes time is to start them.
func TestABrokerIsKilled(t *testing.T) {
	leftout.UnlessLong(t, "one of two brokers that is killed")
	t.Parallel()
	all := map[string]func(*guest, *testing.T){
		"of an agent": (*guest).ofAnAgent, "of a caller": (*guest).ofACaller, "of dead letters": (*guest).ofDeadLetters,
		"while instances start": (*guest).whileInstancesStart,
	}
	s := &twoBrokers{first: kafka.Own(t)}
	for n := range s.meetings {
		s.meetings[n].over = make(chan struct{})
		s.meetings[n].coming.Add(len(all))
	}
	var running sync.WaitGroup // all of them, however few tests may run side by side: they wait for each other
	for name, test := range all {
		running.Go(func() {
			g := s.guest()
			defer g.leave() // also where -run leaves it out
			t.Run(name, func(t *testing.T) { test(g, t) })
		})
	}
	n := 0
	defer func() { // nobody waits for what fails here
		for ; n < len(s.meetings); n++ {
			close(s.meetings[n].over)
		}
		running.Wait()
	}()
	for ; n < len(s.meetings); n++ {
		s.meetings[n].coming.Wait()
		switch n {
		case entered:
			s.second = s.first.Second(t)
		case killed:
			s.second.Kill(t)
		case back:
			s.second.Start(t)
		}
		close(s.meetings[n].over)
	}
}

// An agent whose requests are on a broker that is killed while it is written to is
// away. Nobody else's order waits for that broker, also under another owner, and
// when it is back the agent's go on.
func (g *guest) ofAnAgent(t *testing.T) {
	w := g.enter(t)
	w.put(w.Topic("requests.away"), partitions)
	w.Register(w.instance, far)
	w.tried(`{"workflow":"far"}`, "near")
}

// A caller's own topic on a broker that is killed while it is written to holds up
// nobody, not even the orders that name it: only their status messages wait, and come
// when it is back. So it is under another owner, too.
func (g *guest) ofACaller(t *testing.T) {
	w := g.enter(t)
	topic := w.Namespace + "-shop"
	w.put(topic, 3)
	w.Callers = append(w.Callers, topic)
	submitted := w.tried(`{"workflow":"near","replyTo":"`+topic+`"}`, "near", "far")
	heard := w.Inbox(topic)
	for when, n := range submitted {
		for k := range n {
			heard.Hears(fmt.Sprintf("far-%s-%d", when, k), "received", "completed")
		}
	}
}

// A partition of the topics for alerts and dead letters on a broker that is killed stops
// nobody, not even who has dead letters for it: they are in another one. So it is under
// another owner, too.
func (g *guest) ofDeadLetters(t *testing.T) {
	w := g.enter(t)
	i := w.instance
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
	<-w.ready()
	<-w.killed()
	complete("away")
	i.Stop()
	i = w.Run("i-2", t.TempDir())
	complete("restarted")
	<-w.back()
	if letters := len(w.read(w.Topics.DeadLetters)); letters != 2*n {
		t.Errorf("there are %d dead letters, and not %d", letters, 2*n)
	}
	w.Audit()
}

// Instances that start while a partition of the journal and of all inputs has no leader
// serve and follow all others, and that one when its leader is back.
func (g *guest) whileInstancesStart(t *testing.T) {
	w := g.enter(t)
	const lost = 1
	w.move(lost, w.Topics.Partitioned()...)
	w.instance.Stop()
	<-w.ready()
	<-w.killed()
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
	<-w.back()
	for _, order := range waiting {
		completes(order)
	}
	w.LastAudit("the second broker, which has some of it, goes away")
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

// Where tests on two brokers meet: all have what is theirs on the first; all have what they need on the second, and are
// about to write; it is killed; it is back.
const (
	entered = iota
	ready
	killed
	back
	meetings
)

// twoBrokers are what several tests share.
type twoBrokers struct {
	first, second *kafka.Broker
	meetings      [meetings]meeting
	starting      sync.Mutex // a world at a time
}

// guest is one of these tests, which comes to all meetings: a second time is none.
type guest struct {
	*twoBrokers
	comes [meetings]func() <-chan struct{} // what they return is closed once the meeting is over
}

func (s *twoBrokers) guest() *guest {
	g := &guest{twoBrokers: s}
	for n := range g.comes {
		m := &s.meetings[n]
		g.comes[n] = sync.OnceValue(func() <-chan struct{} {
			m.coming.Done()
			return m.over
		})
	}
	return g
}

// leave has nobody wait for it any more.
func (g *guest) leave() {
	for _, come := range g.comes {
		come()
	}
}

// besides is one of these tests: a world on the two brokers.
type besides struct {
	*world
	instance *waybill.Instance
	// ready, killed and back say that the test waits until all are about to write, the second
	// broker is killed, and back. What they return is closed once it is so.
	ready, killed, back func() <-chan struct{}
}

// enter runs an instance with all that is its own on the first broker, and returns once
// the second is there.
func (g *guest) enter(t *testing.T) *besides {
	t.Helper()
	w := &besides{ready: g.comes[ready], killed: g.comes[killed], back: g.comes[back]}
	g.starting.Lock()
	func() {
		defer g.starting.Unlock()
		w.world = newWorld(t, g.first)
		w.instance = w.Run("i-1", t.TempDir())
		w.Register(w.instance, near)
		echo := func(_ context.Context, r agents.Request[any]) (any, error) { return r.IdempotencyKey, nil }
		w.serve("at-hand", echo, "it")
		w.Submit("warm", `{"workflow":"near"}`)
		w.order(w.instance, "warm", in(projections.Processed))
	}()
	t.Cleanup(g.leave) // before its world ends, which may take long
	if <-g.comes[entered](); g.second == nil {
		t.Fatal("there is no second broker")
	}
	return w
}

// meeting is where tests wait for each other, and for what is done once all have come.
type meeting struct {
	coming sync.WaitGroup
	over   chan struct{}
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

// tried submits orders that need the second broker until it is killed, and wants some kinds to
// complete while it is away, and all when it is back. It returns how many it submitted of each
// kind, by when.
func (w *besides) tried(submission string, meanwhile ...string) (submitted map[string]int) {
	w.Helper()
	i := w.instance
	submitted = make(map[string]int)
	several := func(when string, n int) {
		for range n {
			w.Submit(fmt.Sprintf("far-%s-%d", when, submitted[when]), submission)
			w.Submit(fmt.Sprintf("near-%s-%d", when, submitted[when]), `{"workflow":"near"}`)
			submitted[when]++
		}
	}
	complete := func(kind, when string) {
		for k := range submitted[when] {
			w.order(i, fmt.Sprintf("%s-%s-%d", kind, when, k), in(projections.Processed))
		}
	}
	completes := func(when string) {
		for _, kind := range meanwhile {
			complete(kind, when)
		}
	}
	const n = 30
	<-w.ready()
	several("before", n)
	for killed := w.killed(); ; several("before", 1) {
		select {
		case <-killed:
		default:
			continue
		}
		break
	}
	completes("before")
	several("away", n)
	completes("away")
	i.Stop()
	i = w.Run("i-2", w.TempDir())
	several("restarted", n)
	completes("restarted")
	<-w.back()
	echo := func(_ context.Context, r agents.Request[any]) (any, error) { return r.IdempotencyKey, nil }
	w.serve("away", echo, "it")
	for when := range submitted {
		complete("far", when)
	}
	w.LastAudit("the second broker, which has some of it, goes away")
	return submitted
}

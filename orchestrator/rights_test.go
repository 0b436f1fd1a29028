package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// An instance needs the rights that docs/operations.md lists and no more: a
// caller's topic that it may not write, or not even see, harms the status
// messages of the order that names it, and nothing else.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	const namespace = "least"
	topics, err := events.NewTopics(namespace)
	must(t, err)
	var rights []kfake.ACL
	allow := func(kind kmsg.ACLResourceType, name string, pattern kmsg.ACLResourcePatternType, operations ...kmsg.ACLOperation) {
		for _, operation := range operations {
			rights = append(rights, kfake.ACL{Resource: kind, Name: name, Pattern: pattern, Operation: operation, Allow: true})
		}
	}
	const read, write, describe = kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationDescribeConfigs
	topic, exact, prefixed := kmsg.ACLResourceTypeTopic, kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLResourcePatternTypePrefixed
	for _, name := range []string{topics.Orders, topics.Replies, topics.Commands, topics.Signals, topics.Internal, topics.Journal, topics.Workflows, topics.Status} {
		allow(topic, name, exact, read, write, describe)
	}
	for _, name := range []string{topics.Alerts, topics.DeadLetters} {
		allow(topic, name, exact, write, describe)
	}
	allow(topic, topics.Requests(""), prefixed, read, write, describe)
	allow(topic, "seen", exact, kmsg.ACLOperationDescribe)
	allow(kmsg.ACLResourceTypeGroup, namespace+".orchestrators", exact, read)
	allow(kmsg.ACLResourceTypeGroup, namespace+".traces", exact, read)
	allow(kmsg.ACLResourceTypeGroup, namespace+".agent.seen", exact, kmsg.ACLOperationDescribe)
	allow(kmsg.ACLResourceTypeTransactionalId, namespace+"-", prefixed, write)
	b := kafka.Embedded(t, kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.Superuser("PLAIN", "root", "root"), kfake.User("PLAIN", "orchestrator", "secret", rights...))

	as := func(user, password string) []kgo.Opt {
		return []kgo.Opt{kgo.SeedBrokers(b.Brokers...), kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism())}
	}
	root, err := kgo.NewClient(as("root", "root")...)
	must(t, err)
	defer root.Close()
	admin := kadm.NewClient(root)
	_, err = CreateTopics(t.Context(), admin, &topics, 2, 1)
	must(t, err)
	flow, err := workflow.Parse("f", []byte("workflow: f\nsteps: [{name: call, agent: phone}]"))
	must(t, err)
	must(t, createRequestTopics(t.Context(), admin, &topics, 2, flow.Agents()))
	for _, name := range []string{"seen", "unseen"} {
		_, err = admin.CreateTopic(t.Context(), 1, 1, nil, name)
		must(t, err)
	}

	i, err := New(t.Context(), Config{ID: "i-1", Namespace: namespace, Kafka: as("orchestrator", "secret"), DataDir: t.TempDir()})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- i.Run(ctx) }()
	defer func() {
		cancel()
		must(t, <-ended)
		must(t, i.Close())
	}()
	oracle.Until(t, "ready", i.Ready)
	must(t, i.Register(t.Context(), flow))
	for _, to := range []string{"seen", "unseen", ""} {
		id, err := i.Submit(t.Context(), "to-"+to, &events.Submission{Workflow: "f", ReplyTo: to}, Context{}, nil)
		must(t, err)
		oracle.Until(t, "order "+id, func() error {
			o, _, err := i.Store().Order(i.Partition(id), id)
			if err == nil && o.State != projections.Processing {
				t.Fatalf("%+v", o)
			}
			return err
		})
		oracle.Until(t, "what became of its status message", func() error {
			history, err := i.History(t.Context(), id, 0, MaxHistory)
			refused := slices.ContainsFunc(history.Events, func(e events.Event) bool { return e.Type == events.StatusRefused })
			if err == nil && refused != (to != "") {
				err = fmt.Errorf("refused: %t", refused)
			}
			return err
		})
	}
	// What is made of the journals beside lanes says up to where.
	since, err := i.Since(t.Context(), now().Add(time.Hour))
	if err != nil || len(since) != 2 || since[0] == 0 {
		t.Errorf("the journals are at %v: %v", since, err)
	}
	for _, at := range []int64{3, 2} {
		must(t, i.Mark(t.Context(), "traces", map[int32]int64{1: at}))
		if marks, err := i.Marks(t.Context(), "traces"); err != nil || !maps.Equal(marks, map[int32]int64{1: at}) {
			t.Errorf("marked %v: %v", marks, err)
		}
	}
	if err := i.Mark(t.Context(), "others", map[int32]int64{1: 3}); err == nil {
		t.Error("it may mark for a group to which it has no right")
	}
	// Who reads an agent's requests is told of those of which it may ask.
	if all := i.attend(t.Context(), []string{"phone", "seen"}); all["phone"].Members != nil || all["phone"].Behind != nil || all["seen"].Members == nil {
		t.Errorf("they have %v", all)
	}
	// Without the right to alter the cluster a marker cannot be written, and a
	// transaction has to cover what hangs.
	reached := cluster.New(i.client, &topics, i.kafka, i.directory.Batch)
	err = reached.Broker(0).Finish(t.Context(), lane.OpenTransaction{TopicPartition: lane.TopicPartition{Topic: topics.Journal}}, true)
	if denied := new(kadm.AuthError); !errors.As(err, &denied) {
		t.Errorf("a marker without the right to write it: %v", err)
	}
	// A search of the whole cluster passes over what it may not describe.
	if _, _, silent, err := reached.Broker(0).Everywhere(t.Context()); silent != nil || err != nil {
		t.Errorf("what is open everywhere: silent %v, %v", silent, err)
	}
	// And what became of a transaction is told without topics that may not be read:
	// a takeover that finds one which seems to hang ends it, and goes on.
	must(t, root.ProduceSync(t.Context(), &kgo.Record{Topic: topics.Alerts, Key: []byte("x"), Value: []byte("{}")}).FirstErr())
	for p := range i.partitions {
		at := lane.TopicPartition{Topic: topics.Journal, Partition: p}
		store, err := projections.Temporary()
		must(t, err)
		state, err := store.Partition(p)
		must(t, err)
		l := lane.New(lane.Config{Instance: "i-2", Topics: topics, Partitions: i.partitions, Clock: lane.Clock{Wall: now, Timer: time.Now, Pause: pause}},
			p, &seesHanging{Broker: reached.Broker(p), at: at}, &knowledge{i.catalogue, i.directory, i.upgrade, &added{}}, state, i.log)
		must(t, l.TakeOver(t.Context()))
		l.Close()
		must(t, store.Close())
	}
}

// seesHanging is a broker that tells of a transaction that hangs of the first slot.
type seesHanging struct {
	lane.Broker
	at    lane.TopicPartition
	first lane.Producer
}

func (b *seesHanging) Fence(ctx context.Context, unseen func(lane.TopicPartition) bool, slots ...int) ([]lane.Producer, error) {
	fenced, err := b.Broker.Fence(ctx, unseen, slots...)
	if err == nil && slots[0] == 0 {
		b.first = fenced[0]
	}
	return fenced, err
}

func (b *seesHanging) Open(ctx context.Context, _ ...lane.TopicPartition) (open []lane.OpenTransaction, unseen []lane.TopicPartition, err error) {
	id, epoch, err := b.first.ID(ctx)
	return []lane.OpenTransaction{{Transaction: lane.Transaction{Producer: id, Epoch: epoch - 1}, TopicPartition: b.at, Written: time.Now().UnixMilli()}}, nil, err
}

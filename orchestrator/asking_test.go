package orchestrator

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// holds has the broker answer no question of a kind about a topic, until it is told to.
func holds(t *testing.T, b *kafka.Broker, kind kmsg.Key, topic string) (asked <-chan struct{}, release func()) {
	t.Helper()
	hears, held := make(chan struct{}), make(chan struct{})
	first, release := sync.OnceFunc(func() { close(hears) }), sync.OnceFunc(func() { close(held) })
	t.Cleanup(release)
	b.Fake.ControlKey(int16(kind), func(q kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		var about []string
		switch q := q.(type) {
		case *kmsg.MetadataRequest:
			for i := range q.Topics {
				if q.IncludeTopicAuthorizedOperations && q.Topics[i].Topic != nil {
					about = append(about, *q.Topics[i].Topic)
				}
			}
		case *kmsg.DescribeConfigsRequest:
			for i := range q.Resources {
				about = append(about, q.Resources[i].ResourceName)
			}
		}
		if slices.Contains(about, topic) {
			first()
			b.Fake.SleepControl(func() { <-held })
		}
		return nil, nil, false
	})
	return hears, release
}

const twoAgents = "workflow: two\nsteps: [{name: call, agent: phone, timeout: 1h}, {name: send, agent: pigeon, timeout: 1h}]"

// begunInFormat1 has had an owner who wrote in the first format, in which callers' topics
// are asked about.
func begunInFormat1(t *testing.T, b *kafka.Broker, topics *events.Topics) {
	t.Helper()
	claim := events.Event{Type: events.PartitionClaimed, At: time.Now(), Instance: "older", Claim: "c", Partitions: 1, Format: 1}
	envelope := events.Envelope{Source: "/waybill/" + topics.Namespace, Type: claim.Type, ID: "p0/c", Time: claim.At}
	r := envelope.Record(topics.Journal, claim.Append(nil))
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: events.HeaderLane, Value: (&events.Seal{Events: 1}).Append(nil)})
	must(t, b.Client(t).ProduceSync(t.Context(), r).FirstErr())
}

// While Kafka does not say what some topic is, those that need it wait, and nobody else.
func TestNobodyElseWaitsForAnAnswer(t *testing.T) {
	for _, kind := range []kmsg.Key{kmsg.Metadata, kmsg.DescribeConfigs} {
		t.Run(kmsg.NameForKey(int16(kind)), func(t *testing.T) {
			b := kafka.Embedded(t)
			topics := onePartition(t, b)
			begunInFormat1(t, b, &topics)
			i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace, askPatience: time.Hour, RaiseAfter: time.Hour})
			oracle.Until(t, "ready", i.Ready)
			must(t, i.Register(t.Context(), parseFlow(t, silentFlow)))
			i.waits(t, "o-1", "1")
			b.Create(t, 1, nil, "shop.status")
			asked, release := holds(t, b, kind, "shop.status")
			_, err := i.Submit(t.Context(), "o-2", &events.Submission{Workflow: "silent", ReplyTo: "shop.status"}, Context{}, nil)
			must(t, err)
			<-asked
			i.waits(t, "o-3", "3")
			if _, _, err := i.Order("o-2"); err == nil {
				t.Error("who needs the topic did not wait")
			}
			release()
			if o := i.reaches(t, "o-2", projections.Processing); o.ReplyTo != "shop.status" {
				t.Errorf("its status messages go to %q", o.ReplyTo)
			}
		})
	}
}

// How topics are configured is asked beside what they are: where Kafka does not say so in
// time, what it said before counts.
func TestASlowDescribeConfigs(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	b.Create(t, 1, nil, "shop.status")
	d := newDirectory(b.Client(t), &topics, 1, slog.New(slog.DiscardHandler))
	now := time.Now()
	d.now = func() time.Time { return now }
	for range 2 {
		must(t, d.ask(t.Context(), []string{topics.Journal}))
		now = now.Add(proving)
	}
	d.expects(t, topics.Journal, 1<<30, "max.message.bytes", "")
	_, release := holds(t, b, kmsg.DescribeConfigs, "shop.status")
	must(t, d.ask(t.Context(), []string{topics.Journal, "shop.status"}))
	d.expects(t, topics.Journal, 1<<30, "max.message.bytes", "")
	d.expects(t, "shop.status", 1<<30, "", "")
	if until := d.topics["shop.status"].until; until.Sub(now) > refusalsLast {
		t.Error("it is not asked again soon")
	}
	release()
	must(t, d.ask(t.Context(), []string{"shop.status"}))
	d.expects(t, "shop.status", 1<<30, "", "said once")
}

// Whoever waits for what Kafka says of a topic goes on once it has, and not when the
// lane looks at the deadlines again: here it never does.
func TestNothingWaitsForALook(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	i, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace, SuperviseEvery: time.Hour})
	oracle.Until(t, "ready", i.Ready)
	must(t, i.Register(t.Context(), parseFlow(t, twoAgents)))
	send := func(topic, id, value string) {
		t.Helper()
		must(t, b.Client(t).ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte(id), Value: []byte(value)}).FirstErr())
	}
	send(topics.Orders, "o-1", `{"workflow":"two"}`)
	o := i.reaches(t, "o-1", projections.Processing)
	if o.Steps[0].Due != (time.Time{}) || o.Seq != 2 {
		t.Errorf("a first order was begun in parts: %d events", o.Seq)
	}

	i.directory.mu.Lock()
	delete(i.directory.topics, topics.Requests("pigeon"))
	i.directory.mu.Unlock()
	asked, release := holds(t, b, kmsg.Metadata, topics.Requests("pigeon"))
	send(topics.Replies, "o-1", `{"order":"o-1","step":"call","attempt":1,"status":"completed"}`)
	<-asked
	oracle.Until(t, "the second step waits", func() error {
		o, _, err := i.Order("o-1")
		if err == nil && (o.Steps[1].Due.IsZero() || o.Steps[1].Attempt > 0) {
			err = fmt.Errorf("it is %s, attempt %d", o.Steps[1].State, o.Steps[1].Attempt)
		}
		return err
	})
	release()
	oracle.Until(t, "the second step runs", func() error {
		o, _, err := i.Order("o-1")
		if err == nil && o.Steps[1].Attempt != 1 {
			err = fmt.Errorf("it is %s", o.Steps[1].State)
		}
		return err
	})
}

// One topic that may not be seen, or may be seen and not described, hides no other, and
// all are asked about at once.
func TestAHiddenTopicHidesNoOther(t *testing.T) {
	const namespace = "hidden"
	topics, err := events.NewTopics(namespace)
	must(t, err)
	right := func(name string, may kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: name, Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: may, Allow: true}
	}
	b := kafka.Embedded(t, kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "root", "root"),
		kfake.User("PLAIN", "orchestrator", "secret",
			right("seen", kmsg.ACLOperationWrite), right("seen-1", kmsg.ACLOperationDescribeConfigs)))
	as := func(user, password string) *kgo.Client {
		client, err := kgo.NewClient(kgo.SeedBrokers(b.Brokers...), kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
		must(t, err)
		t.Cleanup(client.Close)
		return client
	}
	names := []string{"unseen"}
	for n := range 249 {
		names = append(names, fmt.Sprint("seen-", n))
	}
	_, err = kadm.NewClient(as("root", "root")).CreateTopics(t.Context(), 1, 1, nil, names...)
	must(t, err)
	questions := 0
	b.Fake.ControlKey(int16(kmsg.Metadata), func(q kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		if q.(*kmsg.MetadataRequest).IncludeTopicAuthorizedOperations {
			questions++
		}
		return nil, nil, false
	})
	d := newDirectory(as("orchestrator", "secret"), &topics, 1, slog.New(slog.DiscardHandler))
	must(t, d.ask(t.Context(), names))
	for _, name := range names {
		why := ""
		if name == "unseen" {
			why = "not authorised"
		}
		d.expects(t, name, 1, "", why)
	}
	d.expects(t, "seen-17", 1<<30, "", "said once")
	d.expects(t, "seen-2", 1<<30, "", "")
	if questions != 1 {
		t.Errorf("%d questions", questions)
	}
}

// However many topics callers make up, those of agents and Waybill's own are asked about
// first, and a question is short.
func TestCallersTopicsComeLast(t *testing.T) {
	d, _ := newBooks(t)
	var made []string
	for n := range directorySize + 1 {
		made = append(made, fmt.Sprint("made-up-", n))
	}
	d.Learn(made)
	d.Learn([]string{queue, "waybill.journal"})
	question := d.question()
	slices.Sort(question[:2])
	if len(d.wanted) != directorySize+2 || len(question) != topicsAtOnce || !slices.Equal(question[:2], []string{"waybill.journal", queue}) {
		t.Errorf("%d wanted; the question has %d topics, first %q", len(d.wanted), len(question), question[:2])
	}
}

// What is known of agents is never old, also while there is nothing to do: an agent whose
// topic was deleted meanwhile is away before anybody asks something of it.
func TestWhatIsKnownIsRefreshed(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	i, err := New(t.Context(), Config{ID: "i-1", Namespace: topics.Namespace, DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...)}})
	must(t, err)
	var later atomic.Int64
	i.directory.now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	stop := begins(t, i)
	oracle.Until(t, "ready", i.Ready)
	must(t, i.Register(t.Context(), parseFlow(t, silentFlow)))
	away := func() string {
		return i.directory.Away(lane.TopicPartition{Topic: topics.Requests("phone")}, "", 1)
	}
	oracle.Until(t, "the topic is known", func() error {
		if why := away(); why != "" {
			return errors.New(why)
		}
		return nil
	})
	b.Delete(t, topics.Requests("phone"))
	later.Store(int64(factsLast))
	oracle.Until(t, "the agent is away", func() error {
		if away() == "" {
			return errors.New("it is not")
		}
		return nil
	})
	stop()
}

package agents_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/events"
)

const (
	queue   = "waybill.requests.payment"
	replies = "waybill.replies"
	group   = "waybill.agent.payment"
)

func TestMain(m *testing.M) {
	if brokers := os.Getenv(childBrokers); brokers != "" {
		serveAsChild(brokers)
		return
	}
	goleak.VerifyTestMain(m)
}

// kafka is a broker in memory with the agent's topics, and the orchestrator's
// side of them.
type kafka struct {
	*testing.T
	cluster *kfake.Cluster
	client  *kgo.Client
	log     *journal
}

func newKafka(t *testing.T, partitions int32) *kafka {
	cluster := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, queue, replies),
		kfake.GroupMinSessionTimeout(100*time.Millisecond))
	k := &kafka{T: t, cluster: cluster, log: new(journal)}
	t.Cleanup(k.cluster.Close)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(k.cluster.ListenAddrs()...),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.ConsumeTopics(replies),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	k.client = client
	return k
}

// config is an agent's on this broker.
func (k *kafka) config() agents.Config {
	return agents.Config{
		Agent: "payment", Brokers: k.cluster.ListenAddrs(), Logger: k.log.logger(),
		KafkaOptions: []kgo.Opt{kgo.HeartbeatInterval(50 * time.Millisecond)},
	}
}

// serve runs an agent until the function that it returns is called.
func (k *kafka) serve(config agents.Config, operations agents.Operations) (stop func()) {
	ctx, cancel := context.WithCancel(k.Context())
	done := make(chan error, 1)
	go func() { done <- agents.Serve(ctx, config, operations) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			k.Errorf("Serve: %v", err)
		}
	})
	k.Cleanup(stop)
	return stop
}

// request is a request that the agent has a minute for.
func request(order, operation, input string) events.Request {
	return events.Request{
		Order: order, Step: "pay", Attempt: 2, Operation: operation,
		CompleteBy:     events.Time(time.Now().Add(time.Minute)),
		IdempotencyKey: order + "/pay",
		Input:          []byte(input),
		ReplyTo:        replies,
		Token:          "k1.of-" + order,
	}
}

func (k *kafka) ask(requests ...events.Request) {
	k.Helper()
	for _, r := range requests {
		e := events.Envelope{Source: "/test", Type: events.StepRequested, ID: r.Order, Order: r.Order, Time: time.Now(), Traceparent: trace, Tracestate: "rojo=1", Baggage: "tenant=a%20b"}
		k.produce(e.Record(queue, r.Append(nil)))
	}
}

const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func (k *kafka) produce(r *kgo.Record) {
	k.Helper()
	if err := k.client.ProduceSync(k.Context(), r).FirstErr(); err != nil {
		k.Fatal(err)
	}
}

// records waits for the next n replies.
func (k *kafka) records(n int) []*kgo.Record {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.Context(), patience)
	defer cancel()
	var got []*kgo.Record
	for len(got) < n {
		fetches := k.client.PollRecords(ctx, n-len(got))
		if err := fetches.Err0(); err != nil {
			k.Fatalf("%d of %d replies: %v\n%s", len(got), n, err, k.log)
		}
		got = append(got, fetches.Records()...)
	}
	return got
}

// reply waits for the next reply.
func (k *kafka) reply() events.Reply {
	k.Helper()
	reply, err := events.Decode[events.Reply](k.records(1)[0].Value)
	if err != nil {
		k.Fatal(err)
	}
	return reply
}

// replied is how many replies there are, consumed or not.
func (k *kafka) replied() (n int64) {
	for _, p := range k.cluster.PartitionInfos(replies) {
		n += p.HighWatermark
	}
	return n
}

// awaitGroup waits until the agent's group is as wanted.
func (k *kafka) awaitGroup(what string, wanted func(*kfake.GroupInfo) bool) {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.Context(), patience)
	defer cancel()
	info, err := k.cluster.WaitGroupInfo(ctx, group, func(g *kfake.GroupInfo) bool { return g != nil && wanted(g) })
	if err != nil {
		k.Fatalf("waiting for %s: %v; the group is %+v\n%s", what, err, info, k.log)
	}
}

// awaitCommit waits until exactly offset is committed.
func (k *kafka) awaitCommit(partition int32, offset int64) {
	k.Helper()
	k.awaitGroup("a commit", func(g *kfake.GroupInfo) bool { return g.Commits[queue][partition].Offset == offset })
}

// committed is the committed offset, 0 for none.
func (k *kafka) committed(partition int32) int64 {
	if g := k.cluster.GroupInfo(group); g != nil {
		return g.Commits[queue][partition].Offset
	}
	return 0
}

// patience bounds waits that only end in a broken test.
const patience = time.Minute

func await[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// journal collects log lines and lets a test wait for one.
type journal struct {
	mu    sync.Mutex
	lines bytes.Buffer
	waits []wait
}

type wait struct {
	text string
	seen chan struct{}
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, w := range j.waits {
		if w.seen != nil && bytes.Contains(line, []byte(w.text)) {
			close(w.seen)
			j.waits[i].seen = nil
		}
	}
	return j.lines.Write(line)
}

// on returns a channel that is closed when a line with text is written.
func (j *journal) on(text string) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	seen := make(chan struct{})
	j.waits = append(j.waits, wait{text, seen})
	return seen
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(j, nil)) }

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lines.String()
}

package kafka

import (
	"crypto/rand"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/internal/broker"
)

// Kind says what a broker is made of. It is also the name of the subtest that
// [Each] runs on it.
type Kind string

// The kinds of broker.
const (
	KindEmbedded  Kind = "embedded"  // kfake, in this process
	KindContainer Kind = "container" // Apache Kafka, in Docker
)

// The shortest session that both kinds of broker allow a group member, so that
// a test which kills a member need not wait for the usual six seconds.
const minSessionTimeout = time.Second

// Broker is a Kafka to test against.
type Broker struct {
	Kind Kind
	// Brokers are the addresses to begin with, for kgo.SeedBrokers. They stay
	// the same for as long as the broker lives, restarts included.
	Brokers []string
	// Fake injects faults into an embedded broker. It is nil for a container.
	Fake *kfake.Cluster

	container *container // nil unless it is one test's own
}

// Each runs suite on an embedded broker and, wherever a Docker engine answers,
// on Apache Kafka in a container. Options are the embedded broker's.
func Each(t *testing.T, suite func(t *testing.T, b *Broker), opts ...kfake.Opt) {
	t.Helper()
	t.Run(string(KindEmbedded), func(t *testing.T) { suite(t, Embedded(t, opts...)) })
	t.Run(string(KindContainer), func(t *testing.T) { suite(t, Container(t)) })
}

// Embedded starts an empty broker for t alone, in memory unless an option says
// otherwise, and closes it when t ends. Options come after the package's own, and so win.
func Embedded(t testing.TB, opts ...kfake.Opt) *Broker {
	t.Helper()
	fake, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.NumBrokers(1),
		kfake.GroupMinSessionTimeout(minSessionTimeout),
		kfake.MaxVersions(broker.Spoken()),
	}, opts...)...)
	if err != nil {
		t.Fatalf("starting the embedded broker: %v", err)
	}
	t.Cleanup(fake.Close)
	return &Broker{Kind: KindEmbedded, Brokers: fake.ListenAddrs(), Fake: fake}
}

// Client returns a client of the broker, closed when t ends.
func (b *Broker) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(b.Brokers...),
		kgo.AlwaysRetryEOF(), // what stands before a container takes connections while that is away
	}, opts...)...)
	if err != nil {
		t.Fatalf("making a Kafka client: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

// Create creates a topic, and waits until the broker knows of its leaders: the controller says that
// it is done before, and until then records are refused.
func (b *Broker) Create(t testing.TB, partitions int32, configs map[string]*string, topic string) {
	t.Helper()
	_, err := b.Admin(t).CreateTopic(t.Context(), partitions, 1, configs, topic)
	mustHave(t, err)
	b.knows(t, topic, func(known *kmsg.MetadataResponseTopic) bool {
		return known.ErrorCode == 0 && !slices.ContainsFunc(known.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool {
			return p.ErrorCode != 0
		})
	})
}

// Delete deletes a topic, and waits until the broker knows of none: the controller says that it
// is done before, and until then records are still taken.
func (b *Broker) Delete(t testing.TB, topic string) {
	t.Helper()
	_, err := b.Admin(t).DeleteTopic(t.Context(), topic)
	mustHave(t, err)
	b.knows(t, topic, func(known *kmsg.MetadataResponseTopic) bool {
		return known.ErrorCode == kerr.UnknownTopicOrPartition.Code
	})
}

// knows waits until what the broker itself knows of a topic is so.
func (b *Broker) knows(t testing.TB, topic string, so func(*kmsg.MetadataResponseTopic) bool) {
	t.Helper()
	ask, client := kmsg.NewPtrMetadataRequest(), b.Client(t)
	ask.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	for {
		known, err := ask.RequestWith(t.Context(), client)
		mustHave(t, err)
		if so(&known.Topics[0]) {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("of %s is known %+v: %v", topic, known.Topics[0], t.Context().Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Admin returns an admin client of the broker, closed when t ends.
func (b *Broker) Admin(t testing.TB) *kadm.Client {
	t.Helper()
	return kadm.NewClient(b.Client(t))
}

var notInNamespace = regexp.MustCompile(`[^a-zA-Z0-9-]+`)

// Namespace returns a namespace that no other test has, on this run or any
// other, and that can be recognised as t's in a list of topics.
func Namespace(t testing.TB) string {
	t.Helper()
	name := strings.Trim(notInNamespace.ReplaceAllString(t.Name(), "-"), "-")
	// Waybill takes namespaces of up to 100 bytes; ids of instances and
	// transactions are made from them, so stay well below.
	return name[:min(len(name), 48)] + "-" + strings.ToLower(rand.Text()[:8])
}

package world

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Outsider is the other side, as anybody can write it (A7): applications,
// operators and agents. It is a plain Kafka client that knows the contract, and
// nothing of ours.
type Outsider struct {
	testing.TB
	Namespace string
	Callers   []string // the topics of [Outsider.Caller]

	brokers []string
	client  *kgo.Client
}

// NewOutsider returns one that talks to a namespace on a Kafka until the test
// ends.
func NewOutsider(t testing.TB, brokers []string, namespace string) *Outsider {
	t.Helper()
	o := &Outsider{TB: t, Namespace: namespace, brokers: brokers}
	o.client = o.connect(kgo.ProducerBatchMaxBytes(4 << 20))
	return o
}

// connect returns a client that is closed when the test ends. The partition of a
// record follows from its key as in Kafka's own clients.
func (o *Outsider) connect(options ...kgo.Opt) *kgo.Client {
	o.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(o.brokers...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.ProducerLinger(0),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.FetchMaxWait(500 * time.Millisecond),           // a partition that is found meanwhile waits for it
		kgo.AlwaysRetryEOF(), kgo.UnknownTopicRetries(100), // a broker that goes away or comes back loses nothing
	}, options...)...)
	if err != nil {
		o.Fatal(err)
	}
	o.Cleanup(client.Close)
	return client
}

// Topic is one of the namespace's.
func (o *Outsider) Topic(name string) string { return o.Namespace + "." + name }

// Produce writes a record.
func (o *Outsider) Produce(r *kgo.Record) {
	o.Helper()
	if err := o.client.ProduceSync(o.Context(), r).FirstErr(); err != nil {
		o.Fatal(err)
	}
}

// Submit puts a submission on the orders topic, without any header.
func (o *Outsider) Submit(order, value string) {
	o.Helper()
	o.Produce(&kgo.Record{Topic: o.Topic("orders"), Key: []byte(order), Value: []byte(value)})
}

// Command puts an operator's command on its topic, without any header.
func (o *Outsider) Command(order, value string) {
	o.Helper()
	o.Produce(&kgo.Record{Topic: o.Topic("commands"), Key: []byte(order), Value: []byte(value)})
}

// Caller makes a private topic for the status messages of some orders (P1): they
// name it as their replyTo.
func (o *Outsider) Caller(name string) *Inbox {
	o.Helper()
	topic := o.Namespace + "-" + name
	admin := kadm.NewClient(o.client)
	if _, err := admin.CreateTopic(o.Context(), 1, 1, nil, topic); err != nil {
		o.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(o.Context(), patience)
	defer cancel()
	for { // a broker learns of its leader a moment after the answer
		found, err := admin.Metadata(ctx, topic)
		if err == nil {
			err = errors.Join(found.Topics[topic].Err, found.Topics[topic].Partitions[0].Err)
		}
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			o.Fatalf("%s has no leader: %v", topic, err)
		}
		pause(ctx, 10*time.Millisecond)
	}
	o.Callers = append(o.Callers, topic)
	return o.Inbox(topic)
}

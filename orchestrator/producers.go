package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// slots is the number of producers that a lane uses in turn. A producer that
// begins a transaction right after a commit meets the markers of the last one;
// its neighbours do not. The number is part of the protocol: whoever takes a
// partition over fences them all.
const slots = 4

const (
	// transactionTimeout is how long Kafka lets a transaction of a dead owner
	// stand before it aborts it, where no successor comes to do it earlier.
	transactionTimeout = 10 * time.Second
	// commitTimeout is how long a commit may take before its outcome counts as
	// unknown and the lane is taken over anew.
	commitTimeout = 20 * time.Second
)

// producers are the transactional producers of one partition, used in turn.
//
// Any error, and above all a commit whose outcome is unknown, makes them
// unusable for good: going on with the same client could commit twice, and kgo
// heals some errors by initialising its id again, which would make an owner of
// a zombie.
type producers struct {
	ring [slots]producer
	next int
}

// commit writes records in one transaction, on the next slot. On any error the
// producers must be closed.
func (p *producers) commit(records []*kgo.Record) error {
	slot := p.ring[p.next]
	p.next = (p.next + 1) % slots
	return slot.commit(records)
}

// disturbed reports whether one of them lost a connection since the last call.
func (p *producers) disturbed() bool {
	lost := false
	for _, slot := range p.ring {
		lost = slot.disturbed() || lost
	}
	return lost
}

// close gives the producers up. What they had open is aborted by a successor, or
// by Kafka after the [transactionTimeout].
func (p *producers) close() {
	for _, slot := range p.ring {
		if slot != nil {
			slot.close()
		}
	}
}

// transactionalID is part of the protocol for every instance and release.
func transactionalID(topics *events.Topics, partition int32, slot int) string {
	return fmt.Sprintf("%s-p%d-%d", topics.Namespace, partition, slot)
}

// kafkaProducer is the producer of one slot.
type kafkaProducer struct {
	client *kgo.Client
	name   string      // its transactional id
	lost   atomic.Bool // a connection; see [kafkaProducer.OnBrokerDisconnect]
	asked  commitAsked
}

// commitAsked notes whether the client asked Kafka to commit. Where kgo believes
// that no record of a transaction was written it asks for nothing, or to abort,
// and reports success all the same; only its log tells. It can believe that
// wrongly: when it meets a topic for the first time, it hands the records that
// waited out before it stores the partitions, where it looks at the end of the
// transaction, and Kafka's answer may come in between (kgo 1.22.2,
// storePartitionsUpdate).
type commitAsked struct{ atomic.Bool }

// Level implements [kgo.Logger].
func (*commitAsked) Level() kgo.LogLevel { return kgo.LogLevelInfo }

// Log implements [kgo.Logger].
func (c *commitAsked) Log(_ kgo.LogLevel, said string, about ...any) {
	if said == "ending transaction" {
		at := slices.Index(about, any("commit"))
		c.Store(at >= 0 && at+1 < len(about) && about[at+1] == kgo.TryCommit)
	}
}

// errNotAsked says that a commit that counted as done was none.
var errNotAsked = errors.New("the client ended a transaction without a commit, although its records were acknowledged")

// end commits the transaction of the client whose log it is. On an error the
// outcome is unknown, but for [errNotAsked]: then nothing was committed.
func (c *commitAsked) end(ctx context.Context, client *kgo.Client) error {
	c.Store(false)
	if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("commit a transaction, its outcome is unknown: %w", err)
	}
	if !c.Load() {
		return errNotAsked
	}
	return nil
}

func newKafkaProducer(ctx context.Context, opts []kgo.Opt, topics *events.Topics, partition int32, slot int) (*kafkaProducer, error) {
	id := transactionalID(topics, partition, slot)
	p := &kafkaProducer{name: id}
	client, err := kgo.NewClient(append(opts[:len(opts):len(opts)],
		kgo.TransactionalID(id),
		kgo.WithHooks(p),
		kgo.WithLogger(&p.asked),
		kgo.TransactionTimeout(transactionTimeout),
		kgo.RecordPartitioner(lanePartitioner(topics)),
		kgo.ProducerBatchMaxBytesFn(func(topic string) int32 {
			if topics.Owns(topic) {
				return events.MaxBatch
			}
			return 1000000 // what a topic takes that was created with Kafka's defaults
		}),
		kgo.WithCompressor(compressor),
		kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(1<<20), // a transaction is flushed whole; the lane bounds it
		// No RecordDeliveryTimeout: kgo measures it from the record's timestamp, and
		// a forwarded record keeps the one that it came with, however old it is.
		kgo.UnknownTopicRetries(1),
		// A produce that meets the last transaction's markers waits for
		// metadata, by default up to 5 s.
		kgo.MetadataMinAge(10*time.Millisecond),
		kgo.ConcurrentTransactionsBackoff(time.Millisecond),
	)...)
	if err != nil {
		return nil, fmt.Errorf("producer %s: %w", id, err)
	}
	if _, _, err := client.ProducerID(ctx); err != nil {
		client.Close()
		return nil, fmt.Errorf("initialise the transactional id %s: %w", id, err)
	}
	p.client = client
	return p, nil
}

func (p *kafkaProducer) id(ctx context.Context) (int64, int16, error) {
	return p.client.ProducerID(ctx)
}

func (p *kafkaProducer) cover(ctx context.Context, t openTransaction, commit bool) error {
	return cover(ctx, p.client, p.name, t, commit)
}

// OnBrokerDisconnect implements [kgo.HookBrokerDisconnect].
func (p *kafkaProducer) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) { p.lost.Store(true) }

func (p *kafkaProducer) disturbed() bool { return p.lost.Swap(false) }

func (p *kafkaProducer) close() {
	p.client.UnsafeAbortBufferedRecords()
	p.client.Close()
}

// refusedError is the error of a record that the broker, or the client on
// its behalf, would not take.
type refusedError struct {
	record *kgo.Record
	err    error
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("produce to %s: %v", e.record.Topic, e.err)
}
func (e *refusedError) Unwrap() error { return e.err }

func (p *kafkaProducer) commit(records []*kgo.Record) error {
	client := p.client
	// Not a lane's context: cutting a commit off makes its outcome unknown. The
	// client's ends when the instance gives Kafka up.
	ctx, cancel := context.WithTimeout(client.Context(), commitTimeout)
	defer cancel()

	if err := client.BeginTransaction(); err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	var refused atomic.Pointer[refusedError]
	promise := func(r *kgo.Record, err error) {
		if err == nil && r.Offset < 0 {
			err = errors.New("the broker did not say at which offset")
		}
		if err != nil {
			refused.CompareAndSwap(nil, &refusedError{r, err})
		}
	}
	for _, r := range records {
		client.Produce(ctx, r, promise)
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("flush a transaction: %w", err)
	}
	if r := refused.Load(); r != nil {
		return r
	}
	return p.asked.end(ctx, client)
}

// refusal says whether err is Kafka's answer to what the record is or where it
// goes, so that the same record would be refused again.
func refusal(err error) bool {
	for _, known := range []error{
		kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.PolicyViolation,
		kerr.UnknownTopicOrPartition, kerr.InvalidTopicException, kerr.TopicAuthorizationFailed, kerr.UnknownTopicID,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// lanePartitioner keeps a lane's records for agents, for itself and for other
// lanes in the partition that they name, so that no other lane's open
// transaction delays their readers. What callers and operators read goes where
// Kafka's default puts its key.
func lanePartitioner(topics *events.Topics) kgo.Partitioner {
	byKey := kgo.StickyKeyPartitioner(nil)
	return kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		named := topics.Owns(topic) && topic != topics.Alerts && topic != topics.DeadLetters
		hashed := byKey.ForTopic(topic)
		return func(r *kgo.Record, n int) int {
			if named {
				return int(r.Partition)
			}
			return hashed.Partition(r, n)
		}
	})
}

// partitioner is Kafka's default: murmur2 of the key.
type partitioner struct {
	keyed      kgo.TopicPartitioner
	partitions int
}

func newPartitioner(partitions int32) partitioner {
	return partitioner{kgo.StickyKeyPartitioner(nil).ForTopic(""), int(partitions)}
}

// of returns the partition of an order.
func (p partitioner) of(id []byte) int32 {
	return int32(p.keyed.Partition(&kgo.Record{Key: id}, p.partitions))
}

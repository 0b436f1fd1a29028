package cluster

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
	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// TransactionalID is part of the protocol for every instance and release.
func TransactionalID(topics *events.Topics, partition int32, slot int) string {
	return fmt.Sprintf("%s-p%d-%d", topics.Namespace, partition, slot)
}

// producer is that of one slot.
type producer struct {
	client *kgo.Client
	name   string      // its transactional id
	lost   atomic.Bool // a connection; see [producer.OnBrokerDisconnect]
	asked  CommitAsked
	met    map[string]bool // topics that the client has stored the partitions of
	batch  Batch
}

// CommitAsked notes whether the client asked Kafka to commit. Where kgo believes
// that no record of a transaction was written it asks for nothing, or to abort,
// and reports success all the same; only its log tells. It can believe that
// wrongly: when it meets a topic for the first time, it hands the records that
// waited out before it stores the partitions, where it looks at the end of the
// transaction, and Kafka's answer may come in between (kgo 1.22.2,
// storePartitionsUpdate).
type CommitAsked struct{ atomic.Bool }

// Level implements [kgo.Logger].
func (*CommitAsked) Level() kgo.LogLevel { return kgo.LogLevelInfo }

// Log implements [kgo.Logger].
func (c *CommitAsked) Log(_ kgo.LogLevel, said string, about ...any) {
	if said == "ending transaction" {
		at := slices.Index(about, any("commit"))
		c.Store(at >= 0 && at+1 < len(about) && about[at+1] == kgo.TryCommit)
	}
}

// ErrNotAsked says that a commit that counted as done was none.
var ErrNotAsked = errors.New("the client ended a transaction without a commit, although its records were acknowledged")

// End commits the transaction of the client whose log it is. On an error the
// outcome is unknown, but for [ErrNotAsked]: then nothing was committed.
func (c *CommitAsked) End(ctx context.Context, client *kgo.Client) error {
	c.Store(false)
	if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return fmt.Errorf("commit a transaction, its outcome is unknown: %w", err)
	}
	if !c.Load() {
		return ErrNotAsked
	}
	return nil
}

// NewProducer initialises the transactional id of a slot: see [lane.Broker].
func NewProducer(ctx context.Context, opts []kgo.Opt, topics *events.Topics, partition int32, slot int, batch Batch, unseen func(lane.TopicPartition) bool) (lane.Producer, error) {
	id := TransactionalID(topics, partition, slot)
	p := &producer{name: id, met: make(map[string]bool), batch: batch}
	client, err := kgo.NewClient(append(opts[:len(opts):len(opts)],
		kgo.TransactionalID(id),
		kgo.WithHooks(p),
		kgo.WithLogger(&p.asked),
		kgo.TransactionTimeout(lane.TransactionTimeout),
		kgo.RecordPartitioner(seeing(topics, unseen)),
		kgo.ProducerBatchMaxBytesFn(func(topic string) int32 {
			limit, _ := batch(topic)
			switch {
			case limit > 0:
				return int32(min(max(limit, smallestBatch), events.MaxBatch))
			case topics.Owns(topic):
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

// smallestBatch is the least that the client would make.
const smallestBatch = 512

func (p *producer) ID(ctx context.Context) (int64, int16, error) {
	return p.client.ProducerID(ctx)
}

func (p *producer) Cover(ctx context.Context, t lane.OpenTransaction, commit bool) error {
	return Cover(ctx, p.client, p.name, t, commit)
}

// OnBrokerDisconnect implements [kgo.HookBrokerDisconnect].
func (p *producer) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) { p.lost.Store(true) }

func (p *producer) Disturbed() bool { return p.lost.Swap(false) }

func (p *producer) Close() {
	p.client.UnsafeAbortBufferedRecords()
	p.client.Close()
}

func (p *producer) Commit(records []*kgo.Record) error {
	client := p.client
	// Not a lane's context: cutting a commit off makes its outcome unknown. The
	// client's ends when the instance gives Kafka up.
	ctx, cancel := context.WithTimeout(client.Context(), lane.CommitTimeout)
	defer cancel()

	if err := client.BeginTransaction(); err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	if err := p.write(ctx, records); err != nil {
		return err
	}
	p.meet(ctx, records)
	return p.asked.End(ctx, client)
}

// write puts records into the transaction, and returns once Kafka has all of them. Of
// topics of which nobody knows how large a batch may be they go one by one.
func (p *producer) write(ctx context.Context, records []*kgo.Record) error {
	var refused atomic.Pointer[lane.RefusedError]
	waiting := make(map[string]*atomic.Int64)
	for _, r := range records {
		if waiting[r.Topic] == nil {
			waiting[r.Topic] = new(atomic.Int64)
		}
	}
	refusal := func() error {
		if r := refused.Load(); r != nil {
			return r
		}
		return nil
	}
	// partitions are those of the records. The client sets them as it takes a record, but beside
	// us if it has yet to meet the topic: then what we named is what we know.
	partitions := make([]int32, len(records))
	flush := func() error {
		err := p.flush(ctx, refusal, func() error { return p.leaderless(records, partitions, waiting) })
		if err := refusal(); err != nil {
			return err
		}
		if err != nil {
			late := &lane.LateError{}
			for topic, n := range waiting {
				if n.Load() > 0 {
					late.Topics = append(late.Topics, topic)
				}
			}
			return fmt.Errorf("flush a transaction: %w: %w", err, late)
		}
		return nil
	}
	for i, r := range records {
		_, alone := p.batch(r.Topic)
		waiting[r.Topic].Add(1)
		partitions[i] = r.Partition
		p.client.Produce(ctx, r, func(r *kgo.Record, err error) {
			if ctx.Err() != nil {
				return // it is late, whatever became of it
			}
			waiting[r.Topic].Add(-1)
			if err == nil && r.Offset < 0 {
				err = errors.New("the broker did not say at which offset")
			}
			if err != nil {
				refused.CompareAndSwap(nil, &lane.RefusedError{Record: r, Err: err, Alone: alone})
			}
		})
		if p.met[r.Topic] {
			partitions[i] = r.Partition
		}
		if alone {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// electing is how long a partition may be without a leader before a commit gives up:
// another replica takes over in less. Where there is none, Kafka says that it has no
// leader some ten seconds after its broker died.
const electing = 5 * time.Second

// flush waits until Kafka has all records, has refused one, or hopeless says that it will
// not. It does not wait for all answers to one refusal: what the client has of a topic that
// it has just met may stay behind for good once its producer is fenced (kgo 1.22.2 fails
// what its stored partitions have, and stores those after it has handed the records out).
func (p *producer) flush(ctx context.Context, refused, hopeless func() error) error {
	for began := time.Now(); ; {
		step, cancel := context.WithTimeout(ctx, time.Second)
		err := p.client.Flush(step)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if err := refused(); err != nil {
			return err
		}
		if time.Since(began) < electing {
			continue
		}
		if err := hopeless(); err != nil {
			return err
		}
	}
}

// leaderless says that a record waits for a partition that has no leader.
func (p *producer) leaderless(records []*kgo.Record, partitions []int32, waiting map[string]*atomic.Int64) error {
	for i, r := range records {
		if waiting[r.Topic].Load() == 0 {
			continue
		}
		if _, _, err := p.client.PartitionLeader(r.Topic, partitions[i]); errors.Is(err, kerr.LeaderNotAvailable) {
			return fmt.Errorf("topic %s has no leader: %w", r.Topic, err)
		}
	}
	return nil
}

// meet waits until the client has stored the partitions of topics that it wrote to
// for the first time: a transaction that ends before has no records for it, see
// [CommitAsked]. If that takes longer than a goroutine is held up, [ErrNotAsked]
// tells.
func (p *producer) meet(ctx context.Context, records []*kgo.Record) {
	patience := 100 // for all of them
	for _, r := range records {
		for !p.met[r.Topic] && patience > 0 {
			if leader, _, err := p.client.PartitionLeader(r.Topic, r.Partition); err == nil && leader >= 0 {
				p.met[r.Topic] = true
				break
			}
			patience--
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
	}
}

// Partitioner keeps a lane's records for agents, for itself and for other
// lanes in the partition that they name, so that no other lane's open
// transaction delays their readers. What callers and operators read goes where
// Kafka's default puts its key.
func Partitioner(topics *events.Topics) kgo.Partitioner {
	byKey := kgo.StickyKeyPartitioner(nil)
	return kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		named := topics.Owns(topic) && !lane.Anywhere(topics, topic)
		hashed := byKey.ForTopic(topic)
		return func(r *kgo.Record, n int) int {
			if named {
				return int(r.Partition)
			}
			return hashed.Partition(r, n)
		}
	})
}

// seeing is [Partitioner] for a lane, which writes nothing where it does not see what
// hangs: an alert or a dead letter goes to the next partition that it sees, if there is
// one. What has to be where its key says, or its record, goes nowhere else.
func seeing(topics *events.Topics, unseen func(lane.TopicPartition) bool) kgo.Partitioner {
	all := Partitioner(topics)
	return kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		chosen, anywhere := all.ForTopic(topic), lane.Anywhere(topics, topic)
		return func(r *kgo.Record, n int) int {
			at := chosen.Partition(r, n)
			for tries := 1; unseen(lane.TopicPartition{Topic: topic, Partition: int32(at)}); tries++ {
				if !anywhere || tries == n {
					return nowhere
				}
				at = (at + 1) % n
			}
			return at
		}
	})
}

// nowhere is no partition: the client fails a record that goes there.
const nowhere = -1

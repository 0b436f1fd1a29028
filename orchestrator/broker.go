package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
)

// broker is all that a lane asks of Kafka, for its partition. Simulations put
// another in its place.
type broker interface {
	// fence initialises the producer id of a slot. That fences whoever had it,
	// and completes or aborts the transaction that it has open.
	fence(ctx context.Context, slot int) (producer, error)
	// read opens a reader of a partition of whatever topics, which reads nothing
	// before it is told from where. Readers of the committed records see no others.
	read(partition int32, committed bool) (reader, error)
	// starts is where reading begins on a partition without any journal.
	starts(ctx context.Context) (events.Positions, error)
	// end is up to where a partition can be read now: to its end, or with committed
	// only to the first transaction that is open, which may never end.
	end(ctx context.Context, at topicPartition, committed bool) (int64, error)
	// since is the offset of the first record of a partition that is not older, or
	// its end.
	since(ctx context.Context, at topicPartition, t time.Time) (int64, error)
	// open lists the transactions that are open in some places. It must know of the
	// lane's journal and requests.
	open(ctx context.Context, places ...topicPartition) ([]openTransaction, error)
	// everywhere lists those on all partitions that there are. Silent is the error of
	// a broker that does not tell of its own, which nobody can write meanwhile.
	everywhere(ctx context.Context) (open []openTransaction, silent, err error)
	// wrote lists the partitions, of all that there are, to which some producers
	// have written lately.
	wrote(ctx context.Context, producers map[int64]bool) ([]topicPartition, error)
	// finish ends a transaction that hangs on a partition. It fails with an
	// [kadm.AuthError] when the principal may not do that.
	finish(ctx context.Context, t openTransaction, commit bool) error
	// slots are the producer ids and epochs of the partition's slots, as Kafka knows
	// them.
	slots(ctx context.Context) ([slots]transaction, error)
	// learn asks for the newest workflows, if some are unknown, and which topics
	// can be written.
	learn(ctx context.Context, unknown bool, topics []string) error
}

// producer is one transactional producer. Any error, and above all a commit
// whose outcome is unknown, makes it unusable for good.
type producer interface {
	// id is the producer id, and the epoch of its next transaction.
	id(ctx context.Context) (int64, int16, error)
	// commit writes records in one transaction. Once it returned nil they are
	// committed, and their offsets are set. On an error nothing or everything was
	// committed.
	commit(records []*kgo.Record) error
	// cover ends what the producer's former owners left open on a partition, with
	// a transaction of its own that has no records. It is the last that the
	// producer does. Whoever fences it before the end aborts what it covers.
	cover(ctx context.Context, t openTransaction, commit bool) error
	// disturbed reports whether a connection was lost since it was asked last.
	disturbed() bool
	close()
}

// reader reads one partition of some topics.
type reader interface {
	// seek makes the reader read these topics, each from an offset, and nothing
	// else.
	seek(from map[string]int64)
	// poll waits for at most limit records. When ctx ends before any is there,
	// its error is that of the fetches.
	poll(ctx context.Context, limit int) kgo.Fetches
	pause(topic string)
	resume(topic string)
	close()
}

// kafkaBroker is the broker of an instance's partition.
type kafkaBroker struct {
	*Instance
	partition int32
}

func (k *kafkaBroker) fence(ctx context.Context, slot int) (producer, error) {
	return newKafkaProducer(ctx, k.kafka, &k.topics, k.partition, slot)
}

// fetchAtOnce is what a reader takes of a partition at a time, compressed: in
// memory it is several times as much, for all partitions side by side.
const fetchAtOnce = 256 << 10

func (k *kafkaBroker) read(partition int32, committed bool) (reader, error) {
	level := kgo.ReadCommitted() // of inputs too: a forwarded record is in another lane's transaction
	if !committed {
		level = kgo.ReadUncommitted()
	}
	client, err := kgo.NewClient(append(k.kafka[:len(k.kafka):len(k.kafka)],
		kgo.FetchIsolationLevel(level),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // the default goes back in time in silence
		kgo.KeepControlRecords(),                    // so that the positions reach the ends
		kgo.FetchMaxWait(time.Second),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.FetchMaxBytes(16<<20),
		kgo.FetchMaxPartitionBytes(fetchAtOnce),
	)...)
	if err != nil {
		return nil, fmt.Errorf("reader of the partition: %w", err)
	}
	return &kafkaReader{client: client, partition: partition}, nil
}

type kafkaReader struct {
	client    *kgo.Client
	partition int32
	reads     map[string][]int32
}

func (r *kafkaReader) seek(from map[string]int64) {
	r.client.RemoveConsumePartitions(r.reads)
	r.reads = make(map[string][]int32)
	at := make(map[string]map[int32]kgo.Offset)
	for topic, offset := range from {
		r.reads[topic] = []int32{r.partition}
		at[topic] = map[int32]kgo.Offset{r.partition: kgo.NewOffset().At(offset)}
	}
	r.client.AddConsumePartitions(at)
}

func (r *kafkaReader) poll(ctx context.Context, limit int) kgo.Fetches {
	return r.client.PollRecords(ctx, limit)
}
func (r *kafkaReader) pause(topic string)  { r.client.PauseFetchTopics(topic) }
func (r *kafkaReader) resume(topic string) { r.client.ResumeFetchTopics(topic) }

func (r *kafkaReader) close() {
	r.seek(nil) // else a partition that is only being assigned begins to fetch while the client closes
	r.client.Close()
}

func (k *kafkaBroker) starts(ctx context.Context) (events.Positions, error) {
	starts, err := k.admin.ListStartOffsets(ctx, k.topics.Orders, k.topics.Replies, k.topics.Commands)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return events.Positions{}, fmt.Errorf("find the beginning of the inputs: %w", err)
	}
	at := func(topic string) int64 {
		o, _ := starts.Lookup(topic, k.partition)
		return o.Offset
	}
	return events.Positions{Orders: at(k.topics.Orders), Replies: at(k.topics.Replies), Commands: at(k.topics.Commands)}, nil
}

func (k *kafkaBroker) end(ctx context.Context, at topicPartition, committed bool) (int64, error) {
	list := k.admin.ListEndOffsets
	if committed {
		list = k.admin.ListCommittedOffsets
	}
	return at.offset(list(ctx, at.topic))
}

func (k *kafkaBroker) since(ctx context.Context, at topicPartition, t time.Time) (int64, error) {
	return at.offset(k.admin.ListOffsetsAfterMilli(ctx, t.UnixMilli(), at.topic))
}

func (at topicPartition) offset(listed kadm.ListedOffsets, err error) (int64, error) {
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return 0, fmt.Errorf("find a place in %s: %w", at.topic, err)
	}
	found, _ := listed.Lookup(at.topic, at.partition)
	return found.Offset, nil
}

func (k *kafkaBroker) learn(ctx context.Context, unknown bool, topics []string) error {
	if unknown {
		if err := k.catalogue.catchUp(ctx); err != nil {
			return err
		}
	}
	k.directory.learn(ctx, topics...)
	return nil
}

func (k *kafkaBroker) open(ctx context.Context, places ...topicPartition) ([]openTransaction, error) {
	var on kadm.TopicsSet
	for _, at := range places {
		on.Add(at.topic, at.partition)
	}
	open, unknown := openTransactions(ctx, k.client, on)
	for at, err := range unknown {
		request := strings.HasPrefix(at.topic, k.topics.Requests("")) && at.partition == k.partition
		if at.topic == k.topics.Journal || request && !tellsNothing(err) {
			return nil, fmt.Errorf("look for open transactions on %s partition %d: %w", at.topic, at.partition, err)
		}
	}
	return open, nil
}

// searchTimeout is how long a takeover waits for brokers that do not answer about
// partitions that are none of its own.
const searchTimeout = 5 * time.Second

func (k *kafkaBroker) everywhere(ctx context.Context) (open []openTransaction, silent, err error) {
	return k.search.share(func() (open []openTransaction, silent, err error) {
		on, err := allPartitions(ctx, k.client)
		if err != nil {
			return nil, nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, searchTimeout)
		defer cancel()
		open, unknown := openTransactions(ctx, k.client, on)
		return open, silence(unknown), nil
	})
}

// search is one of all partitions, which costs more the more there are: lanes that
// take over at the same time share it.
type search struct {
	mu          sync.Mutex
	began       time.Time
	open        []openTransaction
	silent, err error
}

// share returns what a search found that began after it was called.
func (s *search) share(find func() ([]openTransaction, error, error)) (open []openTransaction, silent, err error) {
	asked := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.began.After(asked) {
		s.began = time.Now()
		s.open, s.silent, s.err = find()
	}
	return slices.Clone(s.open), s.silent, s.err
}

// silence is the error of a broker that does not answer, if there is one among
// those about partitions. That one has no leader, or may not be described, is an
// answer.
func silence(unknown map[topicPartition]error) error {
	for at, err := range unknown {
		if answer := new(kerr.Error); !errors.As(err, &answer) {
			return fmt.Errorf("look for who writes to %s partition %d: %w", at.topic, at.partition, err)
		}
	}
	return nil
}

func (k *kafkaBroker) wrote(ctx context.Context, producers map[int64]bool) (places []topicPartition, err error) {
	on, err := allPartitions(ctx, k.client)
	if err != nil {
		return nil, err
	}
	unknown := describeProducers(ctx, k.client, on, func(at topicPartition, p *kmsg.DescribeProducersResponseTopicPartitionActiveProducer) {
		if producers[p.ProducerID] && !slices.Contains(places, at) {
			places = append(places, at)
		}
	})
	return places, silence(unknown)
}

func (k *kafkaBroker) finish(ctx context.Context, t openTransaction, commit bool) error {
	var on kadm.TopicsSet
	on.Add(t.topic, t.partition)
	answers, err := k.admin.WriteTxnMarkers(ctx, kadm.TxnMarkers{
		ProducerID: t.producer, ProducerEpoch: t.epoch, CoordinatorEpoch: t.coordinator, Commit: commit, Topics: on,
	})
	answers.EachPartition(func(p kadm.TxnMarkersPartitionResponse) {
		if err == nil {
			err = p.Err
		}
	})
	if err != nil {
		return fmt.Errorf("end a hanging transaction on %s partition %d: %w", t.topic, t.partition, err)
	}
	return nil
}

func (k *kafkaBroker) slots(ctx context.Context) (have [slots]transaction, err error) {
	var names []string
	for i := range have {
		names = append(names, transactionalID(&k.topics, k.partition, i))
	}
	described, err := k.admin.DescribeTransactions(ctx, names...)
	for i, name := range names {
		t := described[name]
		if err == nil {
			err = t.Err
		}
		have[i] = transaction{t.ProducerID, t.ProducerEpoch}
	}
	if err != nil {
		return have, fmt.Errorf("describe the partition's transactional ids: %w", err)
	}
	return have, nil
}

// openTransactions lists what is open on partitions, and why of some it is not
// known.
func openTransactions(ctx context.Context, client *kgo.Client, on kadm.TopicsSet) (open []openTransaction, unknown map[topicPartition]error) {
	unknown = describeProducers(ctx, client, on, func(at topicPartition, p *kmsg.DescribeProducersResponseTopicPartitionActiveProducer) {
		if p.CurrentTxnStartOffset >= 0 {
			open = append(open, openTransaction{
				transaction: transaction{p.ProducerID, int16(p.ProducerEpoch)}, topic: at.topic, partition: at.partition,
				offset: p.CurrentTxnStartOffset, written: p.LastTimestamp, coordinator: max(p.CoordinatorEpoch, 0),
			})
		}
	})
	return open, unknown
}

// describeProducers tells who has written to partitions lately, and returns why
// of some it is not known.
func describeProducers(ctx context.Context, client *kgo.Client, on kadm.TopicsSet, each func(topicPartition, *kmsg.DescribeProducersResponseTopicPartitionActiveProducer)) map[topicPartition]error {
	request := kmsg.NewPtrDescribeProducersRequest()
	unknown := make(map[topicPartition]error)
	for _, t := range on.IntoList() {
		topic := kmsg.NewDescribeProducersRequestTopic()
		topic.Topic, topic.Partitions = t.Topic, t.Partitions
		request.Topics = append(request.Topics, topic)
		for _, p := range t.Partitions {
			unknown[topicPartition{t.Topic, p}] = errors.New("no broker answers for it")
		}
	}
	for _, shard := range client.RequestSharded(ctx, request) {
		if asked, ok := shard.Req.(*kmsg.DescribeProducersRequest); ok && shard.Err != nil {
			for _, t := range asked.Topics {
				for _, p := range t.Partitions {
					unknown[topicPartition{t.Topic, p}] = shard.Err
				}
			}
		}
		answer, ok := shard.Resp.(*kmsg.DescribeProducersResponse)
		if shard.Err != nil || !ok {
			continue
		}
		for _, t := range answer.Topics {
			for i := range t.Partitions {
				p := &t.Partitions[i]
				at := topicPartition{t.Topic, p.Partition}
				delete(unknown, at)
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					unknown[at] = err
				}
				for i := range p.ActiveProducers {
					each(at, &p.ActiveProducers[i])
				}
			}
		}
	}
	return unknown
}

// allPartitions are those of all topics that the client may see.
func allPartitions(ctx context.Context, client *kgo.Client) (kadm.TopicsSet, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = nil // all
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("list the topics: %w", err)
	}
	var all kadm.TopicsSet
	for _, topic := range response.Topics {
		for _, p := range topic.Partitions {
			if topic.ErrorCode == 0 && topic.Topic != nil {
				all.Add(*topic.Topic, p.Partition)
			}
		}
	}
	return all, nil
}

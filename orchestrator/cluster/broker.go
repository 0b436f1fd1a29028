// Package cluster is Kafka, as the lanes of an instance reach it: transactional
// producers, readers, and what is open on which partition.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/fetch"
	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// Cluster is Kafka, as all lanes of an instance reach it.
type Cluster struct {
	opts     []kgo.Opt
	client   *kgo.Client
	admin    *kadm.Client
	topics   *events.Topics
	batch    Batch
	search   search
	couriers couriers
	heads    heads
}

// Batch says how many bytes a batch for topic may have, 0 if that is not known, and
// whether it may have one record only. It is asked when a producer is made.
type Batch func(topic string) (limit int, alone bool)

// New returns the cluster that client has reached. Opts are those of every
// client: they say how it is reached.
func New(client *kgo.Client, topics *events.Topics, opts []kgo.Opt, batch Batch) *Cluster {
	return &Cluster{
		opts: opts, client: client, admin: kadm.NewClient(client), topics: topics, batch: batch,
		heads: heads{topics: topics, read: make(map[lane.TopicPartition]kgo.EpochOffset)},
	}
}

// MetadataMinAge lets a reader that was just given a topic find it at once.
const MetadataMinAge = 50 * time.Millisecond

// Broker is what the lane of a partition asks of the cluster.
func (c *Cluster) Broker(partition int32) lane.Broker { return &broker{c, partition} }

type broker struct {
	*Cluster
	partition int32
}

func (k *broker) Fence(ctx context.Context, unseen func(lane.TopicPartition) bool, slots ...int) ([]lane.Producer, error) {
	all, failed := make([]lane.Producer, len(slots)), make([]error, len(slots))
	var fencing sync.WaitGroup
	for i, slot := range slots {
		fencing.Go(func() { all[i], failed[i] = NewProducer(ctx, k.opts, k.topics, k.partition, slot, k.batch, unseen) })
	}
	fencing.Wait()
	for _, err := range failed {
		if err == nil {
			continue
		}
		for i := range all {
			if failed[i] == nil {
				all[i].Close()
			}
		}
		return nil, err
	}
	return all, nil
}

// fetchAtOnce is what a reader takes of a partition at a time, compressed: in
// memory it is several times as much, for all partitions side by side.
const fetchAtOnce = 256 << 10

func (k *broker) Read(partition int32, committed bool) (lane.Reader, error) {
	level := kgo.ReadCommitted() // of inputs too: a forwarded record is in another lane's transaction
	if !committed {
		level = kgo.ReadUncommitted()
	}
	fetched := new(fetch.Bound)
	client, err := fetched.NewClient(append(k.opts[:len(k.opts):len(k.opts)],
		kgo.FetchIsolationLevel(level),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), // the default goes back in time in silence
		kgo.KeepControlRecords(),                    // so that the positions reach the ends
		kgo.FetchMaxWait(time.Second),
		kgo.MetadataMinAge(MetadataMinAge),
		kgo.FetchMaxBytes(16<<20),
		kgo.FetchMaxPartitionBytes(fetchAtOnce),
	)...)
	if err != nil {
		return nil, fmt.Errorf("reader of the partition: %w", err)
	}
	r := &reader{client: client, partition: partition, fetched: fetched, patience: untoldAtMost}
	if committed {
		r.heads = &k.heads
	}
	return r, nil
}

// heads are up to where an instance has read inputs, and by which epochs of their leaders. Of
// an input that was cut off, and then written on, a position alone tells nothing: whoever
// reads on there, or before, asks Kafka by that epoch. Where others read further nothing is
// known; and if another went on behind the loss, and not yet as far as this instance had read,
// it is told here once more.
type heads struct {
	topics *events.Topics
	mu     sync.Mutex
	read   map[lane.TopicPartition]kgo.EpochOffset
}

// note notes up to where a partition was read.
func (h *heads) note(at lane.TopicPartition, to kgo.EpochOffset) {
	if _, ok := h.topics.Input(at.Topic); !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if known, ok := h.read[at]; !ok || known.Less(to) {
		h.read[at] = to
	}
}

// before is the epoch of what stood before an offset, or a later one in which that still
// stood there; -1 if it is not known.
func (h *heads) before(at lane.TopicPartition, offset int64) int32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known, ok := h.read[at]; ok && offset <= known.Offset {
		return known.Epoch
	}
	return -1
}

// untoldAtMost is how long a reader goes on when a batch was refused and it was not told
// which: far longer than an answer of Kafka's is worked on.
const untoldAtMost = time.Minute

// reader reads with kgo. Once kgo could not decompress a batch it reads that partition no
// more, until it is given an offset there, and says so with what it has fetched. It drops
// that, and the error for ever, when another partition is given an offset, when one gets
// another leader, or when it is paused. So all partitions are given the offsets
// where they are read on: at once, if one of them is, and after a while, if a batch was
// refused and the error did not come.
type reader struct {
	client    *kgo.Client
	partition int32
	fetched   *fetch.Bound
	patience  time.Duration
	heads     *heads // nil if it does not go on where others were

	mu   sync.Mutex                           // a lane adds partitions while it polls
	next map[string]map[int32]kgo.EpochOffset // where each partition is read on

	told   int64     // how many of the refused batches are, or are going to be fetched anew
	untold time.Time // since when there are others, zero if there are none
}

func (r *reader) Seek(from map[string]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reads := make(map[string][]int32)
	for topic, next := range r.next {
		reads[topic] = slices.Collect(maps.Keys(next))
	}
	r.client.RemoveConsumePartitions(reads)
	r.told, r.untold = r.fetched.Refused(), time.Time{}
	r.next = make(map[string]map[int32]kgo.EpochOffset)
	at := make(map[string]map[int32]kgo.Offset)
	for topic, offset := range from {
		r.next[topic] = make(map[int32]kgo.EpochOffset)
		at[topic] = map[int32]kgo.Offset{r.partition: r.begins(lane.TopicPartition{Topic: topic, Partition: r.partition}, offset)}
	}
	r.client.AddConsumePartitions(at)
}

func (r *reader) Add(at lane.TopicPartition, from int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{at.Topic: {at.Partition: r.begins(at, from)}})
}

// begins notes where reading of a partition begins. With an epoch Kafka is asked whether the
// partition was cut off since.
func (r *reader) begins(at lane.TopicPartition, from int64) kgo.Offset {
	next := kgo.EpochOffset{Epoch: -1, Offset: from}
	if r.heads != nil {
		next.Epoch = r.heads.before(at, from)
	}
	r.next[at.Topic][at.Partition] = next
	return kgo.NewOffset().At(from).WithEpoch(next.Epoch)
}

func (r *reader) Poll(ctx context.Context, limit int) kgo.Fetches {
	for {
		wait, cancel := context.WithTimeout(ctx, r.patience)
		fetches := r.fetched.Poll(wait, limit)
		late := wait.Err() != nil && ctx.Err() == nil
		cancel()
		r.goOn(fetches)
		if !late || !errors.Is(fetches.Err0(), context.DeadlineExceeded) {
			return fetches
		}
	}
}

// goOn has reading go on behind what was fetched, which may be a batch that cannot be
// read.
func (r *reader) goOn(fetches kgo.Fetches) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, failed := range fetches.Errors() {
		if _, ok := errors.AsType[*kgo.ErrDataLoss](failed.Err); ok {
			r.heads = nil // so that whoever comes next is told, too
		}
	}
	skips := false
	for f := range fetches {
		for t := range fetches[f].Topics {
			topic := &fetches[f].Topics[t]
			for p := range topic.Partitions {
				at := &topic.Partitions[p]
				if n := len(at.Records); n > 0 {
					next := kgo.EpochOffset{Epoch: at.Records[n-1].LeaderEpoch, Offset: at.Records[n-1].Offset + 1}
					r.next[topic.Topic][at.Partition] = next
					if r.heads != nil {
						r.heads.note(lane.TopicPartition{Topic: topic.Topic, Partition: at.Partition}, next)
					}
				}
				if batch := new(kgo.ErrDecompressTooLarge); errors.As(at.Err, &batch) {
					r.next[topic.Topic][at.Partition] = kgo.EpochOffset{Epoch: batch.Epoch, Offset: batch.NextOffset}
					r.told++
					skips = true
				}
			}
		}
	}
	refused := r.fetched.Refused()
	switch {
	case refused == r.told:
		r.untold = time.Time{}
	case r.untold.IsZero():
		r.untold = time.Now()
	}
	if skips || !r.untold.IsZero() && time.Since(r.untold) >= r.patience {
		r.told, r.untold = refused, time.Time{}
		r.client.SetOffsets(r.next)
	}
}

func (r *reader) Pause(at lane.TopicPartition) {
	r.client.PauseFetchPartitions(map[string][]int32{at.Topic: {at.Partition}})
}

func (r *reader) Resume(at lane.TopicPartition) {
	r.client.ResumeFetchPartitions(map[string][]int32{at.Topic: {at.Partition}})
}

func (r *reader) Close() {
	r.Seek(nil) // else a partition that is only being assigned begins to fetch while the client closes
	r.client.Close()
}

func (k *broker) Starts(ctx context.Context, added ...lane.TopicPartition) (at events.Positions, err error) {
	for in, topic := range k.topics.Inputs() {
		found, err := k.find(ctx, lane.TopicPartition{Topic: topic, Partition: k.partition}, earliest, false)
		if err != nil {
			return at, err
		}
		at.Set(in, found.Offset)
	}
	for _, more := range added {
		found, err := k.find(ctx, more, earliest, false)
		if err != nil {
			return at, err
		}
		in, _ := k.topics.Input(more.Topic)
		at.SetOf(in, more.Partition, found.Offset)
	}
	return at, nil
}

func (k *broker) Begins(ctx context.Context) (int64, error) {
	found, err := k.find(ctx, lane.TopicPartition{Topic: k.topics.Journal, Partition: k.partition}, earliest, false)
	return found.Offset, err
}

// Places that have no time of their own.
const latest, earliest, newest = -1, -2, -3

func (k *broker) End(ctx context.Context, at lane.TopicPartition, committed bool) (int64, error) {
	found, err := k.find(ctx, at, latest, committed)
	return found.Offset, err
}

func (k *broker) Newest(ctx context.Context, at lane.TopicPartition) (time.Time, error) {
	found, err := k.find(ctx, at, newest, false)
	if err != nil || found.Timestamp < 0 { // not all replicas have it yet
		return time.Time{}, err
	}
	return time.UnixMilli(found.Timestamp), nil
}

// find asks for a place in a partition, and for no others: that those have no leader
// is no answer about it.
func (k *broker) find(ctx context.Context, at lane.TopicPartition, timestamp int64, committed bool) (found kmsg.ListOffsetsResponseTopicPartition, err error) {
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = at.Partition, timestamp
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic, topic.Partitions = at.Topic, append(topic.Partitions, p)
	request := kmsg.NewPtrListOffsetsRequest()
	request.Topics = append(request.Topics, topic)
	if committed {
		request.IsolationLevel = 1
	}
	listed, err := request.RequestWith(ctx, k.client)
	switch {
	case err != nil:
	case len(listed.Topics) != 1 || len(listed.Topics[0].Partitions) != 1:
		err = errors.New("the answer is about something else")
	default:
		found = listed.Topics[0].Partitions[0]
		err = kerr.ErrorForCode(found.ErrorCode)
	}
	if err != nil {
		return found, fmt.Errorf("find a place in %s partition %d: %w", at.Topic, at.Partition, err)
	}
	return found, nil
}

func (k *broker) Since(ctx context.Context, at lane.TopicPartition, t time.Time) (int64, error) {
	found, err := k.find(ctx, at, t.UnixMilli(), false)
	if err != nil || found.Offset >= 0 {
		return found.Offset, err
	}
	return k.End(ctx, at, false)
}

func (k *broker) Open(ctx context.Context, places ...lane.TopicPartition) (open []lane.OpenTransaction, unseen []lane.TopicPartition, err error) {
	own := lane.TopicPartition{Topic: k.topics.Journal, Partition: k.partition}
	var journal, others kadm.TopicsSet
	// A broker answers what comes through one connection in turn: who leads the partitions is asked before anything that may
	// not be answered. Both questions below have it from the client's memory.
	leaders := kmsg.NewPtrMetadataRequest()
	leaders.Topics = make([]kmsg.MetadataRequestTopic, 0, len(places)) // nil stands for all topics
	for _, at := range places {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = new(at.Topic)
		leaders.Topics = append(leaders.Topics, topic)
		if at == own {
			journal.Add(at.Topic, at.Partition)
		} else {
			others.Add(at.Topic, at.Partition)
		}
	}
	if _, err := k.client.RequestCachedMetadata(ctx, leaders, 0); err != nil {
		return nil, nil, fmt.Errorf("look for who leads %s partition %d: %w", own.Topic, own.Partition, err)
	}
	var elsewhere []lane.OpenTransaction
	var unknown map[lane.TopicPartition]error
	var asking sync.WaitGroup
	asking.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, searchTimeout)
		defer cancel()
		elsewhere, unknown = OpenTransactions(ctx, k.client, others)
	})
	open, silent := OpenTransactions(ctx, k.client, journal)
	asking.Wait()
	if err := silent[own]; err != nil {
		return nil, nil, fmt.Errorf("look for open transactions on %s partition %d: %w", own.Topic, own.Partition, err)
	}
	return append(open, elsewhere...), untold(unknown), nil
}

// untold are the partitions of which nobody can tell now. That one is not there, or
// may not be described, is an answer.
func untold(unknown map[lane.TopicPartition]error) (unseen []lane.TopicPartition) {
	for at, err := range unknown {
		if !lane.TellsNothing(err) {
			unseen = append(unseen, at)
		}
	}
	return unseen
}

// searchTimeout is how long is waited for brokers that do not answer about partitions
// other than the lane's journal.
const searchTimeout = 5 * time.Second

func (k *broker) Everywhere(ctx context.Context) (open []lane.OpenTransaction, unseen []lane.TopicPartition, silent, err error) {
	return k.search.share(func() (open []lane.OpenTransaction, unseen []lane.TopicPartition, silent, err error) {
		on, err := allPartitions(ctx, k.client)
		if err != nil {
			return nil, nil, nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, searchTimeout)
		defer cancel()
		open, unknown := OpenTransactions(ctx, k.client, on)
		return open, untold(unknown), silence(unknown), nil
	})
}

// search is one of all partitions, which costs more the more there are: lanes that
// take over at the same time share it.
type search struct {
	mu          sync.Mutex
	began       time.Time
	open        []lane.OpenTransaction
	unseen      []lane.TopicPartition
	silent, err error
}

// share returns what a search found that began after it was called.
func (s *search) share(find func() ([]lane.OpenTransaction, []lane.TopicPartition, error, error)) (open []lane.OpenTransaction, unseen []lane.TopicPartition, silent, err error) {
	asked := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.began.After(asked) {
		s.began = time.Now()
		s.open, s.unseen, s.silent, s.err = find()
	}
	return slices.Clone(s.open), s.unseen, s.silent, s.err
}

// silence is the error of a broker that does not answer, if there is one among
// those about partitions. That one has no leader, or may not be described, is an
// answer.
func silence(unknown map[lane.TopicPartition]error) error {
	for at, err := range unknown {
		if answer := new(kerr.Error); !errors.As(err, &answer) {
			return fmt.Errorf("look for who writes to %s partition %d: %w", at.Topic, at.Partition, err)
		}
	}
	return nil
}

func (k *broker) Wrote(ctx context.Context, producers map[int64]bool) (places []lane.TopicPartition, err error) {
	on, err := allPartitions(ctx, k.client)
	if err != nil {
		return nil, err
	}
	unknown := describeProducers(ctx, k.client, on, func(at lane.TopicPartition, p *kmsg.DescribeProducersResponseTopicPartitionActiveProducer) {
		if producers[p.ProducerID] && !slices.Contains(places, at) {
			places = append(places, at)
		}
	})
	return places, silence(unknown)
}

func (k *broker) Finish(ctx context.Context, t lane.OpenTransaction, commit bool) error {
	var on kadm.TopicsSet
	on.Add(t.Topic, t.Partition)
	answers, err := k.admin.WriteTxnMarkers(ctx, kadm.TxnMarkers{
		ProducerID: t.Producer, ProducerEpoch: t.Epoch, CoordinatorEpoch: t.Coordinator, Commit: commit, Topics: on,
	})
	answers.EachPartition(func(p kadm.TxnMarkersPartitionResponse) {
		if err == nil {
			err = p.Err
		}
	})
	if err != nil {
		return fmt.Errorf("end a hanging transaction on %s partition %d: %w", t.Topic, t.Partition, err)
	}
	return nil
}

func (k *broker) Slots(ctx context.Context) (have [lane.Slots]lane.Slot, err error) {
	var names []string
	for i := range have {
		names = append(names, TransactionalID(k.topics, k.partition, i))
	}
	described, err := k.admin.DescribeTransactions(ctx, names...)
	for i, name := range names {
		t := described[name]
		if err == nil {
			err = t.Err
		}
		have[i].Transaction = lane.Transaction{Producer: t.ProducerID, Epoch: t.ProducerEpoch}
		if t.State == "PrepareCommit" || t.State == "PrepareAbort" { // then those are left out that have their marker
			for topic, partitions := range t.Topics {
				for partition := range partitions {
					have[i].Owed = append(have[i].Owed, lane.TopicPartition{Topic: topic, Partition: partition})
				}
			}
		}
	}
	if err != nil {
		return have, fmt.Errorf("describe the partition's transactional ids: %w", err)
	}
	return have, nil
}

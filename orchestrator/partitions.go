package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// countPartitions returns how many partitions the namespace has: as many as its
// journal was begun with. Topics may have more since, which somebody added; no order
// belongs there.
func (i *Instance) countPartitions(ctx context.Context) (int32, error) {
	must := append(i.topics.Partitioned(), i.topics.Status, i.topics.Alerts, i.topics.Workflows, i.topics.DeadLetters)
	metadata, err := i.admin.Metadata(ctx, must...)
	if err != nil {
		return 0, fmt.Errorf("look at the topics: %w", err)
	}
	var problems *multierror.Error
	for _, name := range must {
		switch t, ok := metadata.Topics[name]; {
		case !ok || errors.Is(t.Err, kerr.UnknownTopicOrPartition):
			problems = multierror.Append(problems, fmt.Errorf("%s is missing: `waybill topics create` creates it", name))
		case t.Err != nil:
			problems = multierror.Append(problems, fmt.Errorf("%s: %w", name, t.Err))
		}
	}
	n := int32(len(metadata.Topics[i.topics.Journal].Partitions))
	if problems == nil {
		begun, err := partitionsOf(ctx, i.client, i.topics.Journal, n)
		if err != nil {
			return 0, err
		}
		if begun > 0 {
			n = begun
		}
		for _, name := range i.topics.Partitioned() {
			if have := int32(len(metadata.Topics[name].Partitions)); have < n || have != n && begun == 0 {
				problems = multierror.Append(problems, fmt.Errorf("%s has %d partitions and %s has %d; they must have the same number", name, have, i.topics.Journal, n))
			}
		}
	}
	for _, err := range i.tooSmall(ctx) {
		problems = multierror.Append(problems, err)
	}
	if err := problems.ErrorOrNil(); err != nil {
		return 0, fmt.Errorf("%w; see `waybill topics check`: %w", ErrMissingTopics, err)
	}
	return n, nil
}

// tooSmall says which topics take too little. Not everybody may describe configurations:
// then it shows by what Kafka refuses.
func (i *Instance) tooSmall(ctx context.Context) (problems []error) {
	for _, s := range specs(&i.topics, 0, nil) {
		if s.least == 0 {
			continue
		}
		configs, err := i.admin.DescribeTopicConfigs(ctx, s.name)
		if err != nil {
			i.log.Debug("cannot see how large records may be", "topic", s.name, "error", err)
			continue
		}
		config, _ := configs.On(s.name, nil)
		for _, c := range config.Configs {
			if s.tooSmall(c) {
				problems = append(problems, fmt.Errorf("%s takes records of %s bytes, and must take %d: set its max.message.bytes with kafka-configs.sh, best to %s", s.name, c.MaybeValue(), s.least, *s.configs[c.Key]))
			}
		}
	}
	return problems
}

// added are the partitions that were added to inputs, each with where it begins.
type added struct {
	mu     sync.Mutex
	starts map[lane.TopicPartition]int64
}

// Added implements [lane.World].
func (a *added) Added() map[lane.TopicPartition]int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.starts
}

// lookForStarts asks Kafka where the partitions begin that were added to inputs. One of
// which it does not say is left out, or as it was.
func (i *Instance) lookForStarts(ctx context.Context) error {
	var inputs []string
	for _, topic := range i.topics.Inputs() {
		inputs = append(inputs, topic)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	listed, err := i.admin.ListStartOffsets(ctx, inputs...) // of the others though some have no leader
	starts := maps.Clone(i.added.Added())
	listed.Each(func(o kadm.ListedOffset) {
		if o.Err == nil && o.Partition >= i.partitions {
			if starts == nil {
				starts = make(map[lane.TopicPartition]int64)
			}
			starts[lane.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = o.Offset
		}
	})
	i.added.mu.Lock()
	defer i.added.mu.Unlock()
	i.added.starts = starts
	return err
}

// firstClaimTimeout is how long the first record of a partition of the journal is
// waited for, before it is looked for in the next.
const firstClaimTimeout = 5 * time.Second

// partitionsOf returns with how many partitions a journal was begun, 0 if nobody has
// claimed any; it has so many now. That stands in the first record of each that was
// claimed: one without a leader is in nobody's way, unless no other tells.
func partitionsOf(ctx context.Context, client *kgo.Client, journal string, has int32) (int32, error) {
	admin := kadm.NewClient(client)
	starts, noStarts := admin.ListStartOffsets(ctx, journal) // of the others though some have no leader
	ends, noEnds := admin.ListEndOffsets(ctx, journal)
	why := cmp.Or(noStarts, noEnds, starts.Error(), ends.Error(), errors.New("nobody says where it begins and ends"))
	var silent error
	for p := range has { // added ones are behind the others
		start, begins := starts.Lookup(journal, p)
		end, stops := ends.Lookup(journal, p)
		if !begins || !stops || start.Err != nil || end.Err != nil {
			silent = fmt.Errorf("look at the journal's partition %d: %w", p, why)
			continue
		}
		if start.Offset == end.Offset {
			continue
		}
		r, err := firstRecord(ctx, client.Opts(), journal, p)
		if err != nil {
			silent = err
			continue
		}
		if e, err := events.Decode[events.Event](r.Value); err == nil && e.Type == events.PartitionClaimed {
			return e.Partitions, nil
		}
	}
	return 0, silent
}

// firstRecord reads it whether it was committed or not: whoever wrote it knew the
// number, and a transaction that hangs is in nobody's way so.
func firstRecord(ctx context.Context, opts []kgo.Opt, topic string, p int32) (*kgo.Record, error) {
	client, err := kgo.NewClient(append(opts[:len(opts):len(opts)],
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {p: kgo.NewOffset().AtStart()}}),
		kgo.FetchMaxPartitionBytes(1), // a batch
		kgo.MetadataMinAge(cluster.MetadataMinAge),
	)...)
	if err != nil {
		return nil, fmt.Errorf("reader of the journal: %w", err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, firstClaimTimeout)
	defer cancel()
	fetches := client.PollRecords(ctx, 1)
	if records := fetches.Records(); len(records) > 0 {
		return records[0], nil
	}
	return nil, fmt.Errorf("read the beginning of the journal's partition %d: %w", p, errors.Join(fetches.Err(), ctx.Err()))
}

// lookForAdded looks from time to time whether somebody added partitions, and calls
// an operator, until ctx ends. Of all instances the owner of partition 0 does.
func (i *Instance) lookForAdded(ctx context.Context) {
	told := ""
	for pause(ctx, i.cfg.watchEvery) {
		metadata, err := i.admin.Metadata(ctx, i.topics.Partitioned()...)
		if err != nil {
			continue // it is asked again
		}
		var more []string
		for _, name := range i.topics.Partitioned() {
			if have := len(metadata.Topics[name].Partitions); have > int(i.partitions) {
				more = append(more, fmt.Sprintf("%s has %d partitions", name, have))
			}
		}
		if len(more) == 0 {
			continue
		}
		if err := i.lookForStarts(ctx); err != nil {
			i.log.Warn("cannot tell where the partitions begin that were added; trying on", "error", err)
		}
		if is := strings.Join(more, ", "); is != told && i.members.serves(0) {
			why := fmt.Errorf("partitions were added to topics of namespace %s, which was begun with %d and goes on with those: %s; its number of partitions can never change. What arrives on added partitions of orders, replies and commands is forwarded; have producers write elsewhere", i.topics.Namespace, i.partitions, is)
			i.log.Error("the instance goes on with the partitions that it knows", "error", why)
			if i.alert(ctx, "partitions", why) {
				told = is
			}
		}
	}
}

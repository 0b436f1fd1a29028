package orchestrator

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
)

// A transaction hangs when a partition has its records but never got its
// marker, and the coordinator has forgotten it: readers of that partition stand
// still for ever. Kafka 4.3 leaves such transactions behind when a broker shuts
// down in good order under load and its partitions have no other replica. The
// coordinator then finds no leader to send the markers to, takes the partitions
// for deleted, and passes over some or all of them, although it had
// acknowledged the commit.
//
// Waybill ends what hangs as it was acknowledged: see [lane.sweep].

// openTransaction is a transaction that a partition has open.
type openTransaction struct {
	transaction
	topic     string
	partition int32
	offset    int64 // of its first record
	written   int64 // when its last record was written, in ms since 1970
	// coordinator is the epoch of the coordinator that wrote its producer's last
	// marker there.
	coordinator int32
}

// hanging returns for each slot what hangs of it on some topics, or, if none is
// named, anywhere. The producers must have initialised their ids, which ended
// whatever the coordinator knew of.
func (l *lane) hanging(ctx context.Context, topics ...string) (found [slots][]openTransaction, hangs bool, err error) {
	open, err := l.broker.open(ctx, topics...)
	if err != nil {
		return found, false, err
	}
	for i, p := range l.producers.ring {
		id, epoch, err := p.id(ctx)
		if err != nil {
			return found, false, fmt.Errorf("look for hanging transactions: %w", err)
		}
		for _, t := range open {
			if t.producer == id && t.epoch < epoch {
				found[i], hangs = append(found[i], t), true
			}
		}
	}
	return found, hangs, nil
}

// sweep ends what former owners left hanging as it ended on other topics, the
// journal before all. Where it hangs everywhere, it was committed if
//   - something was written behind it on the journal: a lane begins a transaction
//     only once the one before was acknowledged, or
//   - this instance folded it, and so had that acknowledgement itself.
//
// Anything else is aborted, as if it had never been: its inputs are read again.
func (l *lane) sweep(ctx context.Context) error {
	_, hangs, err := l.hanging(ctx, l.usualTopics()...)
	if err != nil || !hangs {
		return err
	}
	// It may hang elsewhere too: on a caller's topic, or where it forwarded.
	found, _, err := l.hanging(ctx)
	if err != nil {
		return err
	}
	// The journal first. What it then says is what the others follow, whoever else
	// ends the same at the same time.
	for _, onJournal := range []bool{true, false} {
		past, err := l.readPast(ctx, found)
		if err != nil {
			return err
		}
		for slot, open := range found {
			for _, t := range open {
				if (t.topic == l.topics.Journal) != onJournal {
					continue
				}
				commit := past.committed(t)
				if err := l.endHanging(ctx, slot, t, commit); err != nil {
					return err
				}
				l.log.Warn("ended a transaction that hung", "commit", commit, "topic", t.topic, "on", t.partition, "offset", t.offset)
			}
		}
	}
	return nil
}

// endHanging writes the marker that is missing. That is one act, but needs the
// right to alter the cluster. Without it a transaction of the same producer has
// to serve: should this instance die between its beginning and its end, whoever
// comes next aborts what it was to commit.
func (l *lane) endHanging(ctx context.Context, slot int, t openTransaction, commit bool) error {
	err := l.broker.finish(ctx, t, commit)
	if denied := new(kadm.AuthError); !errors.As(err, &denied) {
		return err
	}
	if err := l.producers.ring[slot].cover(ctx, t, commit); err != nil {
		return err
	}
	l.producers.ring[slot].close()
	l.producers.ring[slot] = nil
	return l.fence(ctx, slot)
}

// past is what the ends of the topics tell of transactions that hang.
type past struct {
	journal string
	folded  int64 // up to where this instance has folded the journal
	hanging map[transaction]bool
	all     []*pastTransaction
}

// transaction names one: the epoch of a producer changes with each.
type transaction struct {
	producer int64
	epoch    int16
}

// pastTransaction is a transaction on one topic.
type pastTransaction struct {
	transaction
	topic            string
	last             int64 // offset of its last record
	ended, committed bool
	followed         bool // an owner wrote behind it, on the journal
}

// committed says whether a transaction that hangs was committed. Before Kafka
// 4.0 many transactions of a producer have the same epoch, and one that ended
// tells nothing of another.
func (p *past) committed(t openTransaction) bool {
	ended := make(map[bool]int) // of its parts on other topics, by whether they were committed
	topics := make(map[string]int)
	acknowledged := false
	for _, j := range p.all {
		if j.transaction != t.transaction {
			continue
		}
		topics[j.topic]++
		switch {
		case j.ended && j.topic == p.journal:
			ended[j.committed] += len(p.all) // it outweighs the others
		case j.ended:
			ended[j.committed]++
		case j.topic == p.journal:
			acknowledged = j.followed || j.last < p.folded
		}
	}
	for _, n := range topics {
		if n > 1 {
			return acknowledged
		}
	}
	return acknowledged || ended[true] > ended[false]
}

// add takes the next record of a topic, committed or not.
func (p *past) add(r *kgo.Record) {
	if r.Attrs.IsControl() {
		for _, j := range p.all {
			if j.topic == r.Topic && j.producer == r.ProducerID && !j.ended {
				j.ended, j.committed = true, commits(r)
			}
		}
		return
	}
	claim := events.Header(r, events.HeaderType) == string(events.PartitionClaimed)
	of := transaction{r.ProducerID, r.ProducerEpoch}
	its := -1
	for i, j := range p.all {
		switch {
		case j.ended || j.topic != r.Topic:
		case j.transaction == of:
			its = i
		case !claim:
			j.followed = true
		}
	}
	switch {
	case its >= 0:
		p.all[its].last = r.Offset
	case p.hanging[of]:
		p.all = append(p.all, &pastTransaction{transaction: of, topic: r.Topic, last: r.Offset})
	}
}

// commits says whether a control record is the marker of a commit.
func commits(r *kgo.Record) bool {
	return len(r.Key) >= 4 && binary.BigEndian.Uint16(r.Key[2:]) == 1
}

// readPast reads the topics to which the lane writes from before what hangs. All
// parts of a transaction were written at about the same time.
func (l *lane) readPast(ctx context.Context, found [slots][]openTransaction) (*past, error) {
	past := &past{journal: l.topics.Journal, folded: l.state.Head().Offset, hanging: make(map[transaction]bool)}
	oldest := int64(math.MaxInt64)
	for _, open := range found {
		for _, t := range open {
			oldest = min(oldest, t.written)
			past.hanging[t.transaction] = true
		}
	}
	begin, end := make(map[string]int64), make(map[string]int64)
	for _, topic := range l.usualTopics() {
		from, err := l.broker.since(ctx, topic, time.UnixMilli(oldest).Add(-2*commitTimeout))
		if gone := errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.TopicAuthorizationFailed); gone && topic != l.topics.Journal {
			continue // it tells nothing
		}
		if err != nil {
			return nil, err
		}
		to, err := l.broker.end(ctx, topic, false)
		if err != nil {
			return nil, err
		}
		if from < to {
			begin[topic], end[topic] = from, to
		}
	}
	r, err := l.broker.read(false)
	if err != nil {
		return nil, err
	}
	defer r.close()
	r.seek(begin)
	for len(end) > 0 {
		wait, cancel := context.WithTimeout(ctx, catchUpPatience)
		fetches := r.poll(wait, 10_000)
		cancel()
		if failed := fetches.Errors(); len(failed) > 0 {
			return nil, fmt.Errorf("read the ends of the topics, to see what became of a transaction that hangs: %w", failed[0].Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			past.add(r)
			if r.Offset+1 >= end[r.Topic] {
				delete(end, r.Topic)
			}
		})
	}
	return past, nil
}

// usualTopics are those to whose partition a lane's transactions write.
func (i *Instance) usualTopics() []string {
	return append(i.catalogue.requestTopics(), i.topics.Journal, i.topics.Status)
}

// cover ends what the client's producer has open on a partition, with a
// transaction that has no records. The broker gives the producer another epoch
// with that, so the client is of no use afterwards.
func cover(ctx context.Context, client *kgo.Client, name string, t openTransaction, commit bool) error {
	id, epoch, err := client.ProducerID(ctx)
	if err != nil {
		return fmt.Errorf("end a hanging transaction: %w", err)
	}
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = name, id, epoch
	on := kmsg.NewAddPartitionsToTxnRequestTopic()
	on.Topic, on.Partitions = t.topic, []int32{t.partition}
	add.Topics = append(add.Topics, on)
	added, err := add.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(added.ErrorCode)
	}
	if err == nil && len(added.Topics) == 1 && len(added.Topics[0].Partitions) == 1 {
		err = kerr.ErrorForCode(added.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("end a hanging transaction on %s partition %d: %w", t.topic, t.partition, err)
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = name, id, epoch, commit
	ended, err := end.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(ended.ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("end a hanging transaction on %s partition %d: %w", t.topic, t.partition, err)
	}
	return nil
}

// watch looks from time to time whether one of the lane's own transactions
// hangs although its commit was acknowledged, and reports it: a takeover mends
// it. A transaction that is seen twice does not only wait for its markers. Of one
// that somebody else has open on the inputs for so long it tells in the log: what
// is behind it cannot be read until it ends.
func (l *lane) watch(ctx context.Context, hung chan<- error) {
	own, others := make(looks), make(looks)
	for pause(ctx, l.cfg.watchEvery) {
		found, _, err := l.hanging(ctx, l.usualTopics()...)
		if err == nil {
			if again := own.look(slices.Concat(found[:]...)); len(again) > 0 {
				select {
				case hung <- fmt.Errorf("a transaction hangs on %s partition %d from offset %d", again[0].topic, again[0].partition, again[0].offset):
				case <-ctx.Done():
				}
				return
			}
			var open []openTransaction
			if open, err = l.broker.open(ctx, l.topics.Orders, l.topics.Replies, l.topics.Commands); err == nil {
				for _, t := range others.look(open) {
					l.log.Warn("somebody's transaction keeps the inputs behind it from being read until it ends",
						"topic", t.topic, "offset", t.offset, "producer", t.producer, "written", time.UnixMilli(t.written))
				}
			}
		}
		if err != nil {
			l.log.Debug("cannot look for open transactions", "error", err)
		}
	}
}

// looks counts how often a transaction was seen open, one time after the other.
type looks map[openTransaction]int

// look counts those that are open now, and returns what is seen for the second
// time. A transaction that goes on, and writes more, is the same.
func (l looks) look(open []openTransaction) (again []openTransaction) {
	before := maps.Clone(l)
	clear(l)
	for _, t := range open {
		same := openTransaction{transaction: t.transaction, topic: t.topic, partition: t.partition, offset: t.offset}
		if l[same] = before[same] + 1; l[same] == 2 {
			again = append(again, t)
		}
	}
	return again
}

// markersPatience is how long the markers of the last commit may take after a
// connection was lost.
const markersPatience = 5 * time.Second

// settle is called between two commits, after a connection was lost: Kafka may
// have been restarted. It returns once no transaction of the lane is open, so
// that none that hangs is covered by the next one of its producer, and ends as
// that does. While Kafka does not answer it waits as long as a commit would.
func (l *lane) settle(ctx context.Context) error {
	waited := time.Duration(0)
	for wait := time.Millisecond; ; wait = min(2*wait, time.Second) {
		found, hangs, err := l.hanging(ctx, l.usualTopics()...)
		patience := commitTimeout
		switch {
		case err == nil && !hangs:
			return nil
		case err == nil:
			patience = markersPatience
			err = fmt.Errorf("transactions hang: %v", found)
		}
		if waited > patience || !l.time.pause(ctx, wait) {
			return err
		}
		waited += wait
	}
}

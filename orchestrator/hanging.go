package orchestrator

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
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
	// slot is the one that it hangs of, [spent] if its producer id has run out.
	slot int
}

// spent is in place of the slot of a transaction whose producer id has run out: an
// id has some 32,000 epochs, one for each transaction, and then its slot gets
// another.
const spent = -1

// hanging returns what hangs of the lane's slots where its transactions write, as
// far as that is known, or everywhere. The producers must have initialised their ids, which ended
// whatever the coordinator knew of. Strange is what is open of producers that no
// slot has: it may be of ids that have run out, or of anybody.
func (l *lane) hanging(ctx context.Context, everywhere bool) (found, strange []openTransaction, err error) {
	open, err := l.broker.open(ctx, everywhere, l.places()...)
	if err != nil {
		return nil, nil, err
	}
	ids, err := l.ids(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range open {
		t.slot = slices.IndexFunc(ids[:], func(id transaction) bool { return id.producer == t.producer })
		switch {
		case t.slot == spent:
			strange = append(strange, t)
		case t.epoch < ids[t.slot].epoch:
			found = append(found, t)
		}
	}
	return found, strange, nil
}

// ids are the producer ids and epochs of the lane's slots.
func (l *lane) ids(ctx context.Context) (ids [slots]transaction, err error) {
	for i, p := range l.producers.ring {
		if ids[i].producer, ids[i].epoch, err = p.id(ctx); err != nil {
			return ids, fmt.Errorf("look for hanging transactions: %w", err)
		}
	}
	return ids, nil
}

// suspects are those of the strangers' transactions that may be of a former id of
// a slot. To the journal and the requests of the partition nobody else writes. On
// the status topic others may; but no lane lets a transaction stand so long.
func (l *lane) suspects(strange []openTransaction) (own, old []openTransaction) {
	for _, t := range strange {
		switch {
		case t.partition != l.partition:
		case t.topic == l.topics.Journal, slices.Contains(l.catalogue.requestTopics(), t.topic):
			own = append(own, t)
		case t.topic == l.topics.Status && l.time.wall().Sub(time.UnixMilli(t.written)) > 2*transactionTimeout:
			old = append(old, t)
		}
	}
	return own, old
}

// sweep ends what former owners left hanging as it ended on other topics, the
// journal before all. Where it hangs everywhere, it was committed if
//   - something was written behind it on the journal: a lane begins a transaction
//     only once the one before was acknowledged, or
//   - this instance folded it, and so had that acknowledgement itself.
//
// Anything else is aborted, as if it had never been: its inputs are read again.
func (l *lane) sweep(ctx context.Context) error {
	// Everywhere: former owners wrote to the topics of callers, and forwarded.
	found, strange, err := l.hanging(ctx, true)
	if err != nil {
		return err
	}
	suspects := slices.Concat(l.suspects(strange))
	if len(found)+len(suspects) == 0 {
		return nil
	}
	strange = slices.DeleteFunc(strange, func(t openTransaction) bool {
		return !slices.ContainsFunc(suspects, func(s openTransaction) bool { return s.producer == t.producer })
	})
	// The journal first. What it then says is what the others follow, whoever else
	// ends the same at the same time.
	for _, onJournal := range []bool{true, false} {
		past, err := l.readPast(ctx, slices.Concat(found, strange))
		if err != nil {
			return err
		}
		if strange, err = l.ours(ctx, past, strange); err != nil {
			return err
		}
		for _, t := range slices.Concat(found, strange) {
			if (t.topic == l.topics.Journal && t.partition == l.partition) != onJournal {
				continue
			}
			commit := past.committed(t)
			if err := l.endHanging(ctx, t, commit); err != nil {
				return err
			}
			l.log.Warn("ended a transaction that hung", "commit", commit, "topic", t.topic, "on", t.partition, "offset", t.offset)
		}
	}
	return nil
}

// ours are those of the strangers' transactions that hang of producer ids which
// slots of this partition had once: every transaction of a lane writes to its
// journal, where nobody else does. As long as all slots are still as the lane has
// initialised them, no successor has written anything.
func (l *lane) ours(ctx context.Context, past *past, strange []openTransaction) ([]openTransaction, error) {
	strange = slices.DeleteFunc(strange, func(t openTransaction) bool { return !past.writers[t.producer] })
	if len(strange) == 0 {
		return nil, nil
	}
	// A lane that serves commits meanwhile.
	before, err := l.ids(ctx)
	if err != nil {
		return nil, err
	}
	have, err := l.broker.slots(ctx)
	if err != nil {
		return nil, err
	}
	after, err := l.ids(ctx)
	if err != nil {
		return nil, err
	}
	for i, is := range have {
		since, until := before[i].producer == is.producer, after[i].producer == is.producer
		if !since && !until || since && is.epoch < before[i].epoch || until && is.epoch > after[i].epoch {
			return nil, fmt.Errorf("slot %d of the partition was taken over: %w", i, kerr.ProducerFenced)
		}
	}
	return strange, nil
}

// endHanging writes the marker that is missing. That is one act, but needs the
// right to alter the cluster. Without it a transaction of the same producer has
// to serve: should this instance die between its beginning and its end, whoever
// comes next aborts what it was to commit.
func (l *lane) endHanging(ctx context.Context, t openTransaction, commit bool) error {
	err := l.broker.finish(ctx, t, commit)
	if denied := new(kadm.AuthError); !errors.As(err, &denied) {
		return err
	}
	if t.slot == spent {
		word := "abort"
		if commit {
			word = "commit"
		}
		return fmt.Errorf("producer id %d has run out, so that only a marker ends what hangs of it: allow the principal to alter the cluster, or have somebody who may %s it: %w", t.producer, word, err)
	}
	if err := l.producers.ring[t.slot].cover(ctx, t, commit); err != nil {
		return err
	}
	// All of them again, in order: another may have initialised the others since, and
	// whoever initialises slot 0 alone could claim beside it.
	return l.fence(ctx)
}

// past is what the ends of the topics tell of transactions that hang.
type past struct {
	journal topicPartition
	folded  int64 // up to where this instance has folded the journal
	hanging map[transaction]bool
	writers map[int64]bool // the producers of what stands on the journal
	all     []*pastTransaction
}

// topicPartition is a partition of a topic.
type topicPartition struct {
	topic     string
	partition int32
}

// transaction names one: the epoch of a producer changes with each.
type transaction struct {
	producer int64
	epoch    int16
}

// pastTransaction is a transaction on one partition.
type pastTransaction struct {
	transaction
	at               topicPartition
	last             int64 // offset of its last record
	ended, committed bool
	followed         bool // an owner wrote behind it, on the journal
}

// committed says whether a transaction that hangs was committed. Before Kafka
// 4.0 many transactions of a producer have the same epoch, and one that ended
// tells nothing of another.
func (p *past) committed(t openTransaction) bool {
	ended := make(map[bool]int) // of its other parts, by whether they were committed
	parts := make(map[topicPartition]int)
	acknowledged := false
	for _, j := range p.all {
		if j.transaction != t.transaction {
			continue
		}
		parts[j.at]++
		switch {
		case j.ended && j.at == p.journal:
			ended[j.committed] += len(p.all) // it outweighs the others
		case j.ended:
			ended[j.committed]++
		case j.at == p.journal:
			acknowledged = j.followed || j.last < p.folded
		}
	}
	for _, n := range parts {
		if n > 1 {
			return acknowledged
		}
	}
	return acknowledged || ended[true] > ended[false]
}

// add takes the next record of a partition, committed or not.
func (p *past) add(r *kgo.Record) {
	at := topicPartition{r.Topic, r.Partition}
	if r.Attrs.IsControl() {
		for _, j := range p.all {
			if j.at == at && j.producer == r.ProducerID && !j.ended {
				j.ended, j.committed = true, commits(r)
			}
		}
		return
	}
	if at == p.journal {
		p.writers[r.ProducerID] = true
	}
	claim := events.Header(r, events.HeaderType) == string(events.PartitionClaimed)
	of := transaction{r.ProducerID, r.ProducerEpoch}
	its := -1
	for i, j := range p.all {
		switch {
		case j.ended || j.at != at:
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
		p.all = append(p.all, &pastTransaction{transaction: of, at: at, last: r.Offset})
	}
}

// commits says whether a control record is the marker of a commit.
func commits(r *kgo.Record) bool {
	return len(r.Key) >= 4 && binary.BigEndian.Uint16(r.Key[2:]) == 1
}

// pastRecords is how far back the past is read at least of a partition that is
// none of the lane's: what was forwarded there kept its time, however old it is.
const pastRecords = 10_000

// readPast reads the partitions to which the lane writes, and all others to which
// the producers of what hangs have written, from before that. All parts of a
// transaction were written at about the same time.
func (l *lane) readPast(ctx context.Context, open []openTransaction) (*past, error) {
	past := &past{
		journal: topicPartition{l.topics.Journal, l.partition}, folded: l.state.Head().Offset,
		hanging: make(map[transaction]bool), writers: make(map[int64]bool),
	}
	oldest := int64(math.MaxInt64)
	producers := make(map[int64]bool)
	for _, t := range open {
		oldest = min(oldest, t.written)
		past.hanging[t.transaction], producers[t.producer] = true, true
	}
	places, err := l.broker.wrote(ctx, producers)
	if err != nil {
		return nil, err
	}
	usual := l.usual()
	for _, at := range usual {
		if !slices.Contains(places, at) {
			places = append(places, at)
		}
	}
	for _, at := range places {
		from, err := l.broker.since(ctx, at, time.UnixMilli(oldest).Add(-2*commitTimeout))
		if gone := errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.TopicAuthorizationFailed); gone && at != past.journal {
			continue // it tells nothing
		}
		if err != nil {
			return nil, err
		}
		to, err := l.broker.end(ctx, at, false)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(usual, at) {
			from = max(0, min(from, to-pastRecords))
		}
		if err := l.readRange(ctx, at, from, to, past.add); err != nil {
			return nil, fmt.Errorf("read the ends of the topics, to see what became of a transaction that hangs: %w", err)
		}
	}
	return past, nil
}

// readRange reads all records of a partition, committed or not, from an offset to
// another.
func (l *lane) readRange(ctx context.Context, at topicPartition, from, to int64, each func(*kgo.Record)) error {
	if from >= to {
		return nil
	}
	r, err := l.broker.read(at.partition, false)
	if err != nil {
		return err
	}
	defer r.close()
	r.seek(map[string]int64{at.topic: from})
	for from < to {
		wait, cancel := context.WithTimeout(ctx, catchUpPatience)
		fetches := r.poll(wait, 10_000)
		cancel()
		if failed := fetches.Errors(); len(failed) > 0 {
			return fmt.Errorf("%s partition %d: %w", at.topic, at.partition, failed[0].Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			each(r)
			from = r.Offset + 1
		})
	}
	return nil
}

// usual are the topics to whose partition nearly all of a lane's transactions
// write.
func (l *lane) usual() []topicPartition {
	topics := append(l.catalogue.requestTopics(), l.topics.Journal, l.topics.Status, l.topics.Alerts, l.topics.DeadLetters)
	places := make([]topicPartition, len(topics))
	for i, topic := range topics {
		places[i] = topicPartition{topic, l.partition}
	}
	return places
}

// places are those to which the lane's transactions have written.
func (l *lane) places() []topicPartition {
	l.elsewhere.mu.Lock()
	defer l.elsewhere.mu.Unlock()
	return slices.AppendSeq(l.usual(), maps.Keys(l.elsewhere.all))
}

// places are partitions: those of callers' topics, and where a lane forwarded.
type places struct {
	mu  sync.Mutex
	all map[topicPartition]bool
}

func (p *places) note(at topicPartition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = make(map[topicPartition]bool)
	}
	p.all[at] = true
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
// hangs although its commit was acknowledged, and returns with that: a takeover
// mends it. A transaction that is seen twice does not only wait for its markers. Of
// one that somebody else has open on the inputs for so long it tells in the log:
// what is behind it cannot be read until it ends.
func (l *lane) watch(ctx context.Context) error {
	own, former, others := make(looks), make(looks), make(looks)
	for l.time.pause(ctx, l.cfg.watchEvery) {
		hang, err := l.lookAround(ctx, own, former)
		if hang != nil {
			return fmt.Errorf("a transaction hangs on %s partition %d from offset %d", hang.topic, hang.partition, hang.offset)
		}
		var open []openTransaction
		if err == nil {
			open, err = l.broker.open(ctx, false,
				topicPartition{l.topics.Orders, l.partition}, topicPartition{l.topics.Replies, l.partition}, topicPartition{l.topics.Commands, l.partition})
		}
		for _, t := range others.look(open) {
			l.log.Warn("somebody's transaction keeps the inputs behind it from being read until it ends",
				"topic", t.topic, "offset", t.offset, "producer", t.producer, "written", time.UnixMilli(t.written))
		}
		if err != nil {
			l.log.Debug("cannot look for open transactions", "error", err)
		}
	}
	return nil
}

// lookAround returns a transaction of the lane's own, or of who had the partition
// before, that it sees for the second time.
func (l *lane) lookAround(ctx context.Context, own, former looks) (*openTransaction, error) {
	found, strange, err := l.hanging(ctx, false)
	if err != nil {
		return nil, err
	}
	mine, old := l.suspects(strange)
	again := own.look(append(found, mine...))
	if old = former.look(old); len(again) == 0 && len(old) > 0 {
		past, err := l.readPast(ctx, old)
		if err == nil {
			again, err = l.ours(ctx, past, old)
		}
		if err != nil {
			clear(former) // it looks at them again
			return nil, err
		}
	}
	if len(again) == 0 {
		return nil, nil
	}
	return &again[0], nil
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
		found, strange, err := l.hanging(ctx, false)
		own, _ := l.suspects(strange)
		found = append(found, own...)
		patience := commitTimeout
		switch {
		case err == nil && len(found) == 0:
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

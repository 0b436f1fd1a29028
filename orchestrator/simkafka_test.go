package orchestrator

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/test/inspect"
)

// simKafka is a Kafka as far as lanes see it: logs with transactions (version 2:
// the epoch moves with each), a coordinator that fences, markers that come after
// the acknowledgement, applications that write in transactions of their own, and
// the ways in which all that goes wrong. Whatever happens between two steps of
// anybody happens at a [process.step].
type simKafka struct {
	topics     events.Topics
	partitions int32
	wide       int32 // of the inputs, to which some were added
	of         lane.Partitioner
	now        time.Time
	logs       map[lane.TopicPartition]*simLog
	rings      [][lane.Slots]*simTransaction // of each partition
	callers    []*simCaller
	ids        int64 // producer ids that were given
	// epochs is how many a producer id has: then it runs out, and another is given.
	epochs int16
	// stamps says that its clock says when inputs and journals were written.
	stamps bool
	// gone are topics that cannot be written at the moment, and why.
	gone map[string]error
	// limits is how many bytes a batch may have, of topics with such a limit.
	limits map[string]int
	// headless are partitions of inputs of which Kafka says that they have no leader.
	headless map[lane.TopicPartition]bool
	// late are requests that the network holds back.
	late []func()
	// acked are the records of commits that were acknowledged to a lane.
	acked   []*simRecord
	written int    // records
	tick    func() // whenever something is written
	fault   func(likely int, name string) bool
	trace   func(format string, args ...any)
	fatal   func(format string, args ...any)
	count   *simCounts
}

type simLog struct {
	records []*simRecord
	stable  int             // the last stable offset
	epochs  map[int64]int16 // of the last batch of each producer
}

type simRecord struct {
	*kgo.Record
	state recordState
	order int // in which it was written, among all topics
	// lost says that the marker never came, and the coordinator forgot it.
	lost bool
	// came is when it could be read, in the order of all that is written.
	came int
	// begins is the order that it begins, once somebody asked: see begun.
	begins *string
}

type recordState int

const (
	isOpen recordState = iota
	isCommitted
	isAborted
	isMarker
)

// simTransaction is what the coordinator knows of a transactional id.
type simTransaction struct {
	lane.Transaction // the producer id and epoch of its next transaction
	ongoing          bool
	began            time.Time
	places           []lane.TopicPartition // that have its records

	ended  lane.Transaction      // the last one that ended
	commit bool                  // how it ended
	owed   []lane.TopicPartition // that wait for its marker
}

// simCaller is an application that writes to the inputs in transactions.
type simCaller struct {
	producer int64
	began    time.Time
	places   []lane.TopicPartition // empty while none is open
}

func newSimKafka(topics events.Topics, partitions int32) *simKafka {
	k := &simKafka{
		topics: topics, partitions: partitions, of: lane.NewPartitioner(partitions), now: inspect.Curtain,
		logs: make(map[lane.TopicPartition]*simLog), gone: make(map[string]error), limits: make(map[string]int), headless: make(map[lane.TopicPartition]bool), epochs: 1 << 14,
	}
	for range partitions {
		var ring [lane.Slots]*simTransaction
		for i := range ring {
			ring[i] = &simTransaction{Transaction: lane.Transaction{Producer: k.newID()}}
		}
		k.rings = append(k.rings, ring)
	}
	for range 2 {
		k.callers = append(k.callers, &simCaller{producer: k.newID()})
	}
	return k
}

func (k *simKafka) newID() int64 { k.ids++; return 1000 + k.ids }

func (k *simKafka) log(at lane.TopicPartition) *simLog {
	if k.logs[at] == nil {
		k.logs[at] = &simLog{epochs: make(map[int64]int16)}
	}
	return k.logs[at]
}

// append puts a record at the end of its partition.
func (k *simKafka) append(r *kgo.Record, state recordState) *simRecord {
	log := k.log(lane.TopicPartition{Topic: r.Topic, Partition: r.Partition})
	copied := *r
	copied.Offset = int64(len(log.records))
	_, input := k.topics.Input(r.Topic)
	attrs := kgo.RecordAttrsOpts{Transactional: r.ProducerID != 0, Control: state == isMarker}
	if k.stamps && (input || r.Topic == k.topics.Journal) {
		copied.Timestamp, attrs.TimestampType = k.now, 1
	} else if copied.Timestamp.IsZero() {
		copied.Timestamp = k.now
	}
	copied.Attrs = kgo.NewRecordAttrs(attrs)
	k.written++
	k.tick()
	s := &simRecord{Record: &copied, state: state, order: k.written}
	log.records = append(log.records, s)
	log.epochs[r.ProducerID] = r.ProducerEpoch
	for ; log.stable < len(log.records) && log.records[log.stable].state != isOpen; log.stable++ {
		log.records[log.stable].came = k.written
	}
	return s
}

// place is where a lane's record goes: what callers read has one partition, and so has
// what is of no order, for which a client of Kafka draws one.
func (k *simKafka) place(r *kgo.Record) lane.TopicPartition {
	switch {
	case r.Key == nil && k.topics.Owns(r.Topic) && r.Topic != k.topics.Journal:
		return lane.TopicPartition{Topic: r.Topic, Partition: 0}
	case r.Topic == k.topics.Status, r.Topic == k.topics.Alerts, r.Topic == k.topics.DeadLetters:
		return lane.TopicPartition{Topic: r.Topic, Partition: k.of.Of(r.Key)}
	case !k.topics.Owns(r.Topic):
		return lane.TopicPartition{Topic: r.Topic, Partition: 0}
	}
	return lane.TopicPartition{Topic: r.Topic, Partition: r.Partition}
}

// produce writes a record in a transaction, which it begins if none is open.
func (k *simKafka) produce(t *simTransaction, r *kgo.Record, at lane.TopicPartition) *simRecord {
	if !t.ongoing {
		t.ongoing, t.began = true, k.now
	}
	if !slices.Contains(t.places, at) {
		t.places = append(t.places, at)
	}
	copied := *r
	copied.Partition, copied.ProducerID, copied.ProducerEpoch = at.Partition, t.Producer, t.Epoch
	return k.append(&copied, isOpen)
}

// bump gives a transactional id its next epoch, or, where those have run out,
// another producer id.
func (k *simKafka) bump(t *simTransaction) {
	if t.Epoch++; t.Epoch >= k.epochs {
		t.Transaction = lane.Transaction{Producer: k.newID()}
		k.count.happened("a producer id ran out")
	}
}

// conclude ends a transaction; its markers come later.
func (k *simKafka) conclude(t *simTransaction, by lane.Transaction, commit bool) error {
	if by != t.Transaction {
		return kerr.ProducerFenced
	}
	if !t.ongoing {
		return kerr.InvalidTxnState
	}
	t.ongoing, t.ended, t.commit, t.owed, t.places = false, t.Transaction, commit, t.places, nil
	k.bump(t)
	return nil
}

// mark writes the next marker of a transaction that ended, if one is missing.
func (k *simKafka) mark(t *simTransaction) bool {
	if len(t.owed) == 0 {
		return false
	}
	at := t.owed[0]
	t.owed = t.owed[1:]
	k.marker(at, lane.Transaction{Producer: t.ended.Producer, Epoch: t.ended.Epoch + 1}, t.commit)
	return true
}

// marker ends all that a producer has open on a partition.
func (k *simKafka) marker(at lane.TopicPartition, by lane.Transaction, commit bool) {
	state := isAborted
	key := make([]byte, 4)
	if commit {
		state = isCommitted
		binary.BigEndian.PutUint16(key[2:], 1)
	}
	log := k.log(at)
	for _, r := range log.records[log.stable:] {
		if r.state == isOpen && r.ProducerID == by.Producer {
			r.state = state
		}
	}
	k.append(&kgo.Record{
		Topic: at.Topic, Partition: at.Partition, Key: key, ProducerID: by.Producer, ProducerEpoch: by.Epoch, Timestamp: k.now,
	}, isMarker)
}

// end ends the transaction of an application.
func (k *simKafka) end(c *simCaller, commit bool) {
	for _, at := range c.places {
		k.marker(at, lane.Transaction{Producer: c.producer}, commit)
	}
	c.places = nil
}

// expire aborts transactions that stand for too long.
func (k *simKafka) expire() {
	for _, ring := range k.rings {
		for _, t := range ring {
			if t.ongoing && k.now.Sub(t.began) > lane.TransactionTimeout {
				k.count.happened("a transaction stood for too long")
				_ = k.conclude(t, t.Transaction, false)
			}
		}
	}
	for _, c := range k.callers {
		if len(c.places) > 0 && k.now.Sub(c.began) > 2*lane.TransactionTimeout {
			k.end(c, false)
		}
	}
}

// forget is what Kafka does that shuts down in good order under load: it passes
// over markers that it owes.
func (k *simKafka) forget() {
	for _, ring := range k.rings {
		for _, t := range ring {
			kept := t.owed[:0]
			for _, at := range t.owed {
				// Of ids that have run out nobody looks elsewhere: that is too rare.
				elsewhere := k.epochs < 1<<14 && at.Topic != k.topics.Journal && at.Topic != k.topics.Status && k.topics.Agent(at.Topic) == ""
				if elsewhere || !k.fault(2, "forget") {
					kept = append(kept, at)
					continue
				}
				k.count.happened("a marker was forgotten, and a transaction hung")
				k.trace("kafka forgets the marker of %v on %v", t.ended, at)
				for _, r := range k.log(at).records {
					if r.state == isOpen && r.ProducerID == t.ended.Producer {
						r.lost = true
					}
				}
			}
			t.owed = kept
		}
	}
}

// aborts checks that nothing is aborted of which somebody could know that it was
// acknowledged: that is not undone where a part of it was committed, or more
// was written behind it on the journal, or the one who decides had folded it.
func (k *simKafka) aborts(t lane.OpenTransaction, folded int64) {
	here := k.log(t.TopicPartition).records
	if !slices.ContainsFunc(here, func(r *simRecord) bool {
		return r.state == isOpen && r.ProducerID == t.Producer && r.ProducerEpoch == t.Epoch
	}) {
		return // somebody has ended it
	}
	on := false
	for _, r := range k.acked {
		if r.ProducerID != t.Producer || r.ProducerEpoch != t.Epoch {
			continue
		}
		on = true
		if r.state == isCommitted {
			k.fatal("%v is aborted on %s, and was acknowledged and committed on %s", t.Transaction, t.Topic, r.Topic)
		}
		if r.Topic != k.topics.Journal || r.state != isOpen {
			continue
		}
		if r.Offset < folded {
			k.fatal("%v is aborted by an instance that folded it", t.Transaction)
		}
		for _, behind := range k.log(lane.TopicPartition{Topic: r.Topic, Partition: r.Partition}).records[r.Offset+1:] {
			claim := events.Header(behind.Record, events.HeaderType) == string(events.PartitionClaimed)
			if behind.state != isMarker && !claim && (behind.ProducerID != t.Producer || behind.ProducerEpoch != t.Epoch) {
				k.fatal("%v is aborted, and was acknowledged before what stands behind it", t.Transaction)
			}
		}
	}
	if on {
		k.count.happened("an acknowledged transaction was aborted, since nobody could know")
	}
}

// standing lists what is open on the partitions that are wanted, in no order.
func (k *simKafka) standing(wanted func(lane.TopicPartition) bool) []lane.OpenTransaction {
	var all []lane.OpenTransaction
	for at, log := range k.logs {
		if log.stable == len(log.records) || !wanted(at) {
			continue
		}
		first := len(all)
		for _, r := range log.records[log.stable:] {
			if r.state != isOpen {
				continue
			}
			i := slices.IndexFunc(all[first:], func(t lane.OpenTransaction) bool { return t.Producer == r.ProducerID })
			if i < 0 {
				i = len(all) - first
				all = append(all, lane.OpenTransaction{Transaction: lane.Transaction{Producer: r.ProducerID}, TopicPartition: at, Offset: r.Offset})
			}
			all[first+i].Epoch, all[first+i].Written = r.ProducerEpoch, r.Timestamp.UnixMilli()
		}
	}
	slices.SortFunc(all, func(a, b lane.OpenTransaction) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return all
}

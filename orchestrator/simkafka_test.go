package orchestrator

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// simKafka is a Kafka of one partition a topic, as far as lanes see it: logs
// with transactions (version 2: the epoch moves with each), a coordinator that
// fences, markers that come after the acknowledgement, and the ways in which
// all that goes wrong. Whatever happens between two steps of anybody happens at
// a [process.step].
type simKafka struct {
	topics events.Topics
	now    time.Time
	logs   map[string]*simLog
	ring   [slots]*simTransaction
	// late are requests that the network holds back.
	late []func()
	// acked are the records of commits that were acknowledged to a lane.
	acked   []*simRecord
	written int // records
	fault   func(likely int, name string) bool
	trace   func(format string, args ...any)
	count   *simCounts
}

// simLog is the partition of a topic.
type simLog struct {
	records []*simRecord
	stable  int             // the first record that may be open
	epochs  map[int64]int16 // of the last batch of each producer
}

type simRecord struct {
	*kgo.Record
	state recordState
	order int // in which it was written, among all topics
	// lost says that the marker never came, and the coordinator forgot it.
	lost bool
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
	producer int64
	epoch    int16
	ongoing  bool
	began    time.Time
	topics   []string // that have its records; once it ended, that wait for its marker
	commit   bool     // how it ended
}

func newSimKafka(topics events.Topics) *simKafka {
	k := &simKafka{topics: topics, now: curtain, logs: make(map[string]*simLog)}
	for i := range k.ring {
		k.ring[i] = &simTransaction{producer: int64(1000 + i)}
	}
	return k
}

func (k *simKafka) log(topic string) *simLog {
	if k.logs[topic] == nil {
		k.logs[topic] = &simLog{epochs: make(map[int64]int16)}
	}
	return k.logs[topic]
}

// append puts a record at the end of its topic.
func (k *simKafka) append(r *kgo.Record, state recordState) *simRecord {
	log := k.log(r.Topic)
	copied := *r
	copied.Partition, copied.Offset = 0, int64(len(log.records))
	if copied.Timestamp.IsZero() {
		copied.Timestamp = k.now
	}
	k.written++
	s := &simRecord{Record: &copied, state: state, order: k.written}
	log.records = append(log.records, s)
	log.epochs[r.ProducerID] = r.ProducerEpoch
	return s
}

// lso is the last stable offset.
func (l *simLog) lso() int {
	for l.stable < len(l.records) && l.records[l.stable].state != isOpen {
		l.stable++
	}
	return l.stable
}

// conclude ends a transaction; its markers come later.
func (k *simKafka) conclude(t *simTransaction, epoch int16, commit bool) error {
	if epoch != t.epoch {
		return kerr.ProducerFenced
	}
	if !t.ongoing {
		return kerr.InvalidTxnState
	}
	t.ongoing, t.commit = false, commit
	t.epoch++
	return nil
}

// mark writes the next marker of a transaction that ended, if one is missing.
func (k *simKafka) mark(t *simTransaction) bool {
	if t.ongoing || len(t.topics) == 0 {
		return false
	}
	topic := t.topics[0]
	t.topics = t.topics[1:]
	k.marker(topic, t.producer, t.epoch, t.commit)
	return true
}

// marker ends all that a producer has open on a topic.
func (k *simKafka) marker(topic string, producer int64, epoch int16, commit bool) {
	state := isAborted
	key := make([]byte, 4)
	if commit {
		state = isCommitted
		binary.BigEndian.PutUint16(key[2:], 1)
	}
	log := k.log(topic)
	for _, r := range log.records[log.lso():] {
		if r.state == isOpen && r.ProducerID == producer {
			r.state = state
		}
	}
	k.append(&kgo.Record{
		Topic: topic, Key: key, ProducerID: producer, ProducerEpoch: epoch, Timestamp: k.now,
		Attrs: kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true, Control: true}),
	}, isMarker)
}

// expire aborts transactions that stand for too long.
func (k *simKafka) expire() {
	for _, t := range k.ring {
		if t.ongoing && k.now.Sub(t.began) > transactionTimeout {
			_ = k.conclude(t, t.epoch, false)
		}
	}
}

// forget is what Kafka does that shuts down in good order under load: it passes
// over markers that it owes.
func (k *simKafka) forget() {
	for _, t := range k.ring {
		if t.ongoing {
			continue
		}
		kept := t.topics[:0]
		for _, topic := range t.topics {
			if !k.fault(2, "forget") {
				kept = append(kept, topic)
				continue
			}
			k.count.Hung++
			k.trace("kafka forgets the marker of %d on %s", t.producer, topic)
			for _, r := range k.log(topic).records {
				if r.state == isOpen && r.ProducerID == t.producer {
					r.lost = true
				}
			}
		}
		t.topics = kept
	}
}

// process is a coroutine: what an instance does, or one of its commits. It runs
// until it takes a step, and goes on when it is told to.
type process struct {
	next  func() (struct{}, bool)
	kill  func()
	wait  func(struct{}) bool
	ended bool
	// panicked is with what it ended, and where.
	panicked any
	where    string
}

// killed ends a coroutine.
type killed struct{}

func start(run func(p *process)) *process {
	p := &process{}
	p.next, p.kill = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			p.ended = true
			if v := recover(); v != (killed{}) && p.panicked == nil {
				p.panicked, p.where = v, string(debug.Stack())
			}
		}()
		p.wait = yield
		run(p)
	})
	return p
}

// step lets the others do something. It does not return if the process is
// killed meanwhile.
func (p *process) step() {
	if p.ended || !p.wait(struct{}{}) {
		panic(killed{})
	}
}

// simBroker is the Kafka of one instance.
type simBroker struct {
	*simKafka
	in *simInstance
}

func (b *simBroker) fence(_ context.Context, slot int) (producer, error) {
	b.in.step()
	t := b.ring[slot]
	if t.ongoing {
		_ = b.conclude(t, t.epoch, false)
	}
	for len(t.topics) > 0 {
		b.in.step()
		b.mark(t)
	}
	if t.ongoing { // somebody was faster
		_ = b.conclude(t, t.epoch, false)
		for b.mark(t) {
		}
	}
	t.epoch++
	if b.fault(60, "init is not answered") {
		return nil, errNoAnswer
	}
	return &simProducer{b: b, t: t, slot: slot, epoch: t.epoch, lost: b.in.lost}, nil
}

var errNoAnswer = errors.New("the broker does not answer")

// simProducer is a producer of an instance.
type simProducer struct {
	b     *simBroker
	t     *simTransaction
	slot  int
	epoch int16
	lost  *bool // a connection of the instance
}

func (p *simProducer) id(context.Context) (int64, int16, error) {
	return p.t.producer, p.epoch, nil
}

func (p *simProducer) disturbed() bool {
	was := *p.lost
	*p.lost = false
	return was
}

func (p *simProducer) close() {}

func (p *simProducer) commit(records []*kgo.Record) error {
	b := p.b
	var written []*simRecord
	// A transaction waits for the markers of the one before (concurrent
	// transactions). That Kafka forgets them while it waits, and the instance dies
	// before it has committed, is what nobody can mend; see ADR 0006.
	for b.mark(p.t) {
	}
	for i, r := range records {
		if i == 0 || r.Topic != records[i-1].Topic {
			b.in.step()
		}
		if p.epoch != p.t.epoch {
			b.count.Fenced++
			return kerr.ProducerFenced
		}
		if b.fault(400, "produce fails") {
			return &refusedError{r, kerr.RequestTimedOut}
		}
		if !p.t.ongoing {
			p.t.ongoing, p.t.began = true, b.now
		}
		copied := *r
		copied.ProducerID, copied.ProducerEpoch = p.t.producer, p.epoch
		written = append(written, b.append(&copied, isOpen))
		if !slices.Contains(p.t.topics, r.Topic) {
			p.t.topics = append(p.t.topics, r.Topic)
		}
	}
	b.in.step()
	epoch := p.epoch
	if b.fault(40, "end is not answered") {
		b.count.Unknown++
		switch {
		case b.fault(3, "end is lost"):
		case b.fault(3, "end is late"):
			b.late = append(b.late, func() { _ = b.conclude(p.t, epoch, true) })
		default:
			_ = b.conclude(p.t, epoch, true)
		}
		return errNoAnswer
	}
	if err := b.conclude(p.t, epoch, true); err != nil {
		b.count.Fenced++
		return err
	}
	p.epoch++
	b.acked = append(b.acked, written...)
	b.count.Commits++
	b.in.step()
	for i, r := range records {
		r.Offset = written[i].Offset
	}
	return nil
}

func (p *simProducer) cover(context.Context, openTransaction, bool) error {
	panic("not needed with the right to end it")
}

func (b *simBroker) finish(_ context.Context, t openTransaction, commit bool) error {
	b.in.step()
	if b.fault(20, "finish is lost") {
		return errNoAnswer
	}
	if t.epoch < b.log(t.topic).epochs[t.producer] {
		return kerr.InvalidProducerEpoch
	}
	b.marker(t.topic, t.producer, t.epoch, commit)
	if b.fault(20, "finish is not answered") {
		return errNoAnswer
	}
	return nil
}

func (b *simBroker) starts(context.Context) (events.Positions, error) {
	b.in.step()
	return events.Positions{}, nil
}

func (b *simBroker) end(_ context.Context, topic string, committed bool) (int64, error) {
	log := b.log(topic)
	if committed {
		return int64(log.lso()), nil
	}
	return int64(len(log.records)), nil
}

func (b *simBroker) since(_ context.Context, topic string, t time.Time) (int64, error) {
	for _, r := range b.log(topic).records {
		if !r.Timestamp.Before(t) {
			return r.Offset, nil
		}
	}
	return int64(len(b.log(topic).records)), nil
}

func (b *simBroker) learn(context.Context, bool, []string) error { return nil }

func (b *simBroker) open(context.Context, ...string) ([]openTransaction, error) {
	var all []openTransaction
	for _, topic := range slices.Sorted(maps.Keys(b.logs)) {
		log := b.log(topic)
		found := make(map[int64]*openTransaction)
		var order []int64
		for _, r := range log.records[log.lso():] {
			if r.state != isOpen {
				continue
			}
			t := found[r.ProducerID]
			if t == nil {
				t = &openTransaction{transaction: transaction{producer: r.ProducerID}, topic: topic, offset: r.Offset}
				found[r.ProducerID] = t
				order = append(order, r.ProducerID)
			}
			t.epoch, t.written = r.ProducerEpoch, r.Timestamp.UnixMilli()
		}
		for _, id := range order {
			all = append(all, *found[id])
		}
	}
	return all, nil
}

func (b *simBroker) read(committed bool) (reader, error) {
	return &simReader{b: b, committed: committed, paused: make(map[string]bool)}, nil
}

// simReader is a reader of an instance.
type simReader struct {
	b         *simBroker
	committed bool
	topics    []string
	next      map[string]int64
	paused    map[string]bool
}

func (r *simReader) seek(from map[string]int64) {
	r.topics, r.next = slices.Sorted(maps.Keys(from)), from
}
func (r *simReader) pause(topic string)  { r.paused[topic] = true }
func (r *simReader) resume(topic string) { r.paused[topic] = false }
func (r *simReader) close()              {}

// patience is how many steps a reader waits. The others have done all by then
// that they can.
const patience = 200

func (r *simReader) poll(_ context.Context, limit int) kgo.Fetches {
	for range patience {
		r.b.in.step()
		if found := r.take(limit); len(found) > 0 {
			return found
		}
	}
	return kgo.NewErrFetch(context.DeadlineExceeded)
}

// take returns what there is to read, or a part of it.
func (r *simReader) take(limit int) kgo.Fetches {
	var fetch kgo.Fetch
	topics := r.topics
	if len(topics) > 1 && r.b.fault(2, "other order") {
		topics = slices.Clone(topics)
		slices.Reverse(topics)
	}
	for _, topic := range topics {
		if r.paused[topic] {
			continue
		}
		log := r.b.log(topic)
		end := len(log.records)
		if r.committed {
			end = log.lso()
		}
		var records []*kgo.Record
		for r.next[topic] < int64(end) && len(records) < limit {
			if len(records) > 0 && r.b.fault(8, "fetch ends") {
				break
			}
			at := log.records[r.next[topic]]
			r.next[topic]++
			if !r.committed || at.state != isAborted {
				copied := *at.Record
				records = append(records, &copied)
			}
		}
		if len(records) > 0 {
			fetch.Topics = append(fetch.Topics, kgo.FetchTopic{Topic: topic, Partitions: []kgo.FetchPartition{{Records: records}}})
		}
	}
	if len(fetch.Topics) == 0 {
		return nil
	}
	return kgo.Fetches{fetch}
}

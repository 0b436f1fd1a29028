package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// simBroker is the Kafka of a lane.
type simBroker struct {
	*simKafka
	in *simLane
}

var errNoAnswer = errors.New("the broker does not answer")

// ask is a question that may stay unanswered.
func (b *simBroker) ask() error {
	b.in.step()
	if b.fault(150, "no answer") {
		return errNoAnswer
	}
	return nil
}

// Fence: what happens at the same time happens in any order.
func (b *simBroker) Fence(_ context.Context, unseen func(lane.TopicPartition) bool, slots ...int) ([]lane.Producer, error) {
	var failed error
	all := make([]lane.Producer, len(slots))
	for left := slices.Clone(slots); len(left) > 0; {
		i := b.in.draw("init", 0, len(left)-1)
		p, err := b.fence(left[i], unseen)
		if err != nil {
			failed = err
		}
		all[slices.Index(slots, left[i])] = p
		left = slices.Delete(left, i, i+1)
	}
	if failed != nil {
		return nil, failed
	}
	return all, nil
}

func (b *simBroker) fence(slot int, unseen func(lane.TopicPartition) bool) (lane.Producer, error) {
	b.in.step()
	t := b.rings[b.in.partition][slot]
	if b.fault(60, "init is late") { // its sender has given up, and whoever has the slot by then is fenced
		b.late = append(b.late, func() {
			switch {
			case t.ongoing:
				_ = b.conclude(t, t.Transaction, false)
			case len(t.owed) == 0:
				b.bump(t)
			}
		})
		return nil, errNoAnswer
	}
	if t.ongoing {
		_ = b.conclude(t, t.Transaction, false)
	}
	for len(t.owed) > 0 {
		b.in.step()
		b.mark(t)
	}
	if t.ongoing { // somebody was faster
		_ = b.conclude(t, t.Transaction, false)
		for b.mark(t) {
		}
	}
	b.bump(t)
	if b.fault(60, "init is not answered") {
		return nil, errNoAnswer
	}
	return &simProducer{b: b, t: t, slot: slot, unseen: unseen, Transaction: t.Transaction}, nil
}

// simProducer is a producer of a lane.
type simProducer struct {
	b    *simBroker
	t    *simTransaction
	slot int
	lane.Transaction
	unseen func(lane.TopicPartition) bool
}

func (p *simProducer) ID(context.Context) (int64, int16, error) {
	return p.Producer, p.Epoch, p.b.ask()
}

// disturbed: a lost connection is the instance's, and each of its lanes hears of
// it once.
func (p *simProducer) Disturbed() bool {
	was := p.b.in.lost
	p.b.in.lost = false
	return was
}

func (p *simProducer) Close() {}

func (p *simProducer) Commit(records []*kgo.Record) error {
	b := p.b
	var written []*simRecord
	// A transaction waits for the markers of the one before (concurrent
	// transactions). That Kafka forgets them while it waits, and the instance dies
	// before it has committed, is what nobody can mend; see ADR 0012.
	for b.mark(p.t) {
	}
	met := make(map[string]bool) // a client writes to all of them side by side
	batches := make(map[lane.TopicPartition]int)
	for _, r := range records {
		if !met[r.Topic] {
			met[r.Topic] = true
			b.in.step()
		}
		if p.Transaction != p.t.Transaction {
			b.count.happened("a zombie was fenced")
			return kerr.ProducerFenced
		}
		if b.fault(400, "produce fails") {
			return &lane.RefusedError{Record: r, Err: kerr.RequestTimedOut}
		}
		if err := b.gone[r.Topic]; err != nil {
			b.count.happened("a record was refused that nobody foresaw")
			return &lane.RefusedError{Record: r, Err: err}
		}
		at, sees := p.place(r)
		if !sees {
			return &lane.RefusedError{Record: r, Err: errNoAnswer}
		}
		if err := p.limited(batches, at, r); err != nil {
			return err
		}
		if by := p.Transaction; b.fault(400, "produce is late") {
			b.late = append(b.late, func() {
				if by != p.t.Transaction {
					b.count.happened("a late record was fenced")
					return
				}
				b.count.happened("a late record was written")
				b.produce(p.t, r, at)
			})
			if b.fault(2, "not in time") {
				return &lane.LateError{Topics: []string{r.Topic}}
			}
			return &lane.RefusedError{Record: r, Err: kerr.RequestTimedOut}
		}
		written = append(written, b.produce(p.t, r, at))
	}
	b.in.step()
	by := p.Transaction
	if b.fault(40, "end is not answered") {
		switch {
		case b.fault(3, "end is lost"):
		case b.fault(3, "end is late"):
			b.late = append(b.late, func() { _ = b.conclude(p.t, by, true) })
		default:
			_ = b.conclude(p.t, by, true)
		}
		return errNoAnswer
	}
	if err := b.conclude(p.t, by, true); err != nil {
		b.count.happened("a zombie was fenced")
		return err
	}
	p.Transaction = p.t.Transaction
	b.acked = append(b.acked, written...)
	b.count.Commits++
	b.in.step()
	for i, r := range records {
		r.Offset, r.Partition = written[i].Offset, written[i].Partition
	}
	return nil
}

// simRecordSize is what Kafka counts besides what is in a record: about as much as a lane thinks.
const simRecordSize = decide.EnvelopeSize

// limited is how Kafka refuses the batch that a record completes, nil if it takes that.
func (p *simProducer) limited(batches map[lane.TopicPartition]int, at lane.TopicPartition, r *kgo.Record) error {
	limit := p.b.limits[r.Topic]
	if limit == 0 {
		return nil
	}
	known, alone := p.b.in.instance.directory.Batch(r.Topic)
	size := events.Size(r) + simRecordSize
	if alone || known > 0 && batches[at]+size > known { // it is the first of another batch
		batches[at] = 0
	}
	batches[at] += size
	switch {
	case batches[at] <= limit:
		return nil
	case size > limit:
		p.b.count.happened("a record was too large")
	default:
		p.b.count.happened("a batch was too large")
	}
	return &lane.RefusedError{Record: r, Err: kerr.MessageTooLarge, Alone: alone}
}

// place is where a record goes, if that is where its lane sees what hangs.
func (p *simProducer) place(r *kgo.Record) (at lane.TopicPartition, sees bool) {
	at = p.b.place(r)
	for tries := 1; p.unseen(at); tries++ {
		if !lane.Anywhere(&p.b.topics, r.Topic) || tries == int(p.b.partitions) {
			return at, false
		}
		at.Partition = (at.Partition + 1) % p.b.partitions
	}
	return at, true
}

// cover is two acts on Kafka. What happens if the instance dies between them
// nobody can mend; see ADR 0012.
func (p *simProducer) Cover(_ context.Context, t lane.OpenTransaction, commit bool) error {
	b := p.b
	b.in.step()
	if p.Transaction != p.t.Transaction {
		return kerr.ProducerFenced
	}
	if !commit {
		b.aborts(t, b.in.state.Head().Offset)
	}
	b.count.happened("a transaction that hung was covered")
	p.t.ongoing, p.t.began, p.t.places = true, b.now, []lane.TopicPartition{t.TopicPartition}
	return b.conclude(p.t, p.Transaction, commit)
}

func (b *simBroker) Finish(_ context.Context, t lane.OpenTransaction, commit bool) error {
	if err := b.ask(); err != nil {
		return err
	}
	if !b.in.mayAlter {
		return &kadm.AuthError{Err: kerr.ClusterAuthorizationFailed}
	}
	at := t.TopicPartition
	if t.Epoch < b.log(at).epochs[t.Producer] {
		return kerr.InvalidProducerEpoch
	}
	if !commit {
		b.aborts(t, b.in.state.Head().Offset)
	}
	b.marker(at, t.Transaction, commit)
	b.count.happened("a transaction that hung was ended")
	if b.fault(20, "finish is not answered") {
		return errNoAnswer
	}
	return nil
}

func (b *simBroker) Starts(context.Context, ...lane.TopicPartition) (at events.Positions, err error) {
	for in := range b.topics.Inputs() {
		at.Set(in, 0)
	}
	return at, b.ask()
}

func (b *simBroker) Begins(context.Context) (int64, error) { return 0, b.ask() }

func (b *simBroker) End(_ context.Context, at lane.TopicPartition, committed bool) (int64, error) {
	return int64(b.log(at).end(committed)), b.ask()
}

func (b *simBroker) Newest(_ context.Context, at lane.TopicPartition) (newest time.Time, err error) {
	for _, r := range b.log(at).records {
		if r.Timestamp.After(newest) {
			newest = r.Timestamp
		}
	}
	return newest, b.ask()
}

func (b *simBroker) Since(_ context.Context, at lane.TopicPartition, t time.Time) (int64, error) {
	records := b.log(at).records
	for _, r := range records {
		if !r.Timestamp.Before(t) {
			return r.Offset, b.ask()
		}
	}
	return int64(len(records)), b.ask()
}

func (b *simBroker) Wrote(_ context.Context, producers map[int64]bool) ([]lane.TopicPartition, error) {
	var places []lane.TopicPartition
	for at, log := range b.logs {
		for id := range log.epochs {
			if producers[id] && !slices.Contains(places, at) {
				places = append(places, at)
			}
		}
	}
	slices.SortFunc(places, func(a, b lane.TopicPartition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), int(a.Partition-b.Partition))
	})
	return places, b.ask()
}

func (b *simBroker) Open(_ context.Context, places ...lane.TopicPartition) (open []lane.OpenTransaction, unseen []lane.TopicPartition, err error) {
	unseen = b.leaderless()
	return b.standing(func(at lane.TopicPartition) bool { return slices.Contains(places, at) && !slices.Contains(unseen, at) }), unseen, b.ask()
}

func (b *simBroker) Everywhere(context.Context) (open []lane.OpenTransaction, unseen []lane.TopicPartition, silent, err error) {
	if b.fault(10, "a broker is silent about others' partitions") {
		silent = errNoAnswer
	}
	unseen = b.leaderless()
	return b.standing(func(at lane.TopicPartition) bool { return !slices.Contains(unseen, at) }), unseen, silent, b.ask()
}

// leaderless are the partitions that have no leader when somebody asks. They have one
// again when somebody writes.
func (b *simBroker) leaderless() (unseen []lane.TopicPartition) {
	if !b.fault(10, "only the journal has a leader") {
		return nil
	}
	all, one := !b.fault(2, "one partition of each topic has no leader"), int32(b.in.draw("leaderless", 0, int(b.partitions)-1))
	for at := range b.logs {
		if at.Topic != b.topics.Journal && (all || at.Partition == one) {
			unseen = append(unseen, at)
		}
	}
	return unseen
}

// Deliver: any part of it may be written, whatever is answered.
func (b *simBroker) Deliver(_ context.Context, records []*kgo.Record) (untaken []error) {
	untaken = make([]error, len(records))
	size := 0
	for _, r := range records {
		size += events.Size(r) + simRecordSize
	}
	if limit := b.limits[records[0].Topic]; limit > 0 && size > limit {
		b.in.step()
		refused := &lane.UndeliverableError{Reason: cluster.Refusal(records[0].Topic, kerr.MessageTooLarge), Message: true, Batch: len(records) > 1}
		return slices.Repeat([]error{refused}, len(records))
	}
	for i, r := range records {
		b.in.step()
		if err := b.gone[r.Topic]; err != nil {
			b.count.happened("a delivery was refused")
			untaken[i] = &lane.UndeliverableError{Reason: err.Error()}
			continue
		}
		if b.fault(20, "a delivery is not taken") {
			untaken[i] = errNoAnswer
			continue // one of another partition may be
		}
		b.append(&kgo.Record{Topic: r.Topic, Partition: b.place(r).Partition, Key: r.Key, Value: r.Value, Headers: r.Headers}, isCommitted)
		if b.fault(20, "a delivery is not answered") {
			untaken[i] = errNoAnswer
		}
	}
	b.in.step()
	return untaken
}

func (b *simBroker) Slots(context.Context) (have [lane.Slots]lane.Slot, err error) {
	err = b.ask()
	for i, t := range b.rings[b.in.partition] {
		have[i] = lane.Slot{Transaction: t.Transaction, Owed: slices.Clone(t.owed)}
	}
	return have, err
}

// simWorld is the world of a lane.
type simWorld struct {
	*directory
	b *simBroker
}

func (w *simWorld) Workflow(name string, version int) *workflow.Workflow {
	pc, file, _, _ := runtime.Caller(1)
	if decides := !slices.Contains([]string{"behind.go", "parked.go"}, filepath.Base(file)); w.b.in.poisoned && decides {
		panic("poisoned")
	}
	flows := &w.b.in.instance.flows
	flow := flows.Find(name, version)
	if flow == nil && name != "none" && strings.HasSuffix(runtime.FuncForPC(pc).Name(), ".unready") {
		w.b.count.happened("a child waited for its workflow")
	}
	switch {
	case !w.newer(flow):
		return flow
	case version == 0:
		return flows.Find(name, 1)
	}
	return nil
}

// newerLevel is that of the second workflow, for an instance that runs the first alone.
const newerLevel = 2

func (w *simWorld) Starts(signal string) *workflow.Workflow {
	return w.b.in.instance.flows.Starts(signal)
}

func (*simWorld) Retired(string, int) bool { return false }

func (w *simWorld) Newer(name string, version int) int {
	if !w.newer(w.b.in.instance.flows.Find(name, version)) {
		return 0
	}
	w.b.count.happened("a workflow was in a newer level of the language")
	return newerLevel
}

// newer says that the release of the instance cannot run a workflow. Before the
// partitions have their format nobody registers such a one.
func (w *simWorld) newer(flow *workflow.Workflow) bool {
	return w.b.in.instance.older && flow != nil && flow.Version == newerLevel && w.b.in.state.Head().Format() >= events.CourierFormat
}

func (w *simWorld) RequestTopics() []string {
	var topics []string
	for _, agent := range w.b.in.instance.flows.Agents() {
		topics = append(topics, w.b.topics.Requests(agent))
	}
	return topics
}

func (w *simWorld) Seek() uint64 { w.b.in.sought++; return w.b.in.sought }

// Found: it may take a while.
func (w *simWorld) Found(uint64) bool {
	if w.b.fault(2, "the workflows are not read to their end yet") {
		return false
	}
	w.b.in.instance.catchUp()
	return true
}

func (w *simWorld) Format() int { return events.JournalFormat }

// Newest: the group may just be settling.
func (w *simWorld) Newest(context.Context) int { return w.b.in.draw("newest", 0, events.JournalFormat) }

// Added: an instance looks from time to time.
func (w *simWorld) Added() map[lane.TopicPartition]int64 {
	in := w.b.in.instance
	if in.seen = in.seen || w.b.wide > w.b.partitions && (in.calm || in.one(20, "an instance sees added partitions")); !in.seen {
		return nil
	}
	all := make(map[lane.TopicPartition]int64)
	for _, topic := range w.b.topics.Inputs() {
		for p := w.b.partitions; p < w.b.wide; p++ {
			all[lane.TopicPartition{Topic: topic, Partition: p}] = 0
		}
	}
	return all
}

func (w *simWorld) CatchUp(context.Context) error {
	if err := w.b.ask(); err != nil {
		return err
	}
	w.b.in.instance.catchUp()
	return nil
}

// Learn: what an instance knows of workflows and topics may be old, until it
// asks, and the answer may be. It may come at once, or when somebody asks again.
func (w *simWorld) Learn(topics []string) <-chan struct{} {
	b, answered := w.b, w.directory.Learn(topics)
	if b.in.calm || !b.in.instance.lags {
		b.in.instance.catchUp()
	}
	all := make(map[string]said)
	for _, topic := range slices.Sorted(slices.Values(w.question())) {
		var said said
		switch {
		case b.fault(3, "the topics are not asked about"):
			continue
		case b.fault(20, "a broker does not know of a topic"):
			said.err = kerr.UnknownTopicOrPartition
		case b.gone[topic] != nil:
			said.err = b.gone[topic]
		}
		if said.config.limit = b.limits[topic]; said.config.limit > 0 {
			if said.silent = b.fault(3, "a limit is not told"); said.silent {
				said.config.limit = 0
			} else if b.fault(3, "a limit of long ago is told") {
				said.config.limit = 1 << 20
			}
		}
		said.partitions = make(kadm.PartitionDetails)
		for p := range b.partitions {
			said.partitions[p] = kadm.PartitionDetail{Partition: p}
			if b.headless[lane.TopicPartition{Topic: topic, Partition: p}] || b.fault(60, "an agent's partition has no leader") {
				said.partitions[p] = kadm.PartitionDetail{Partition: p, Leader: -1}
			}
		}
		all[topic] = said
	}
	if len(all) > 0 {
		w.answer(all)
	}
	return answered
}

// catchUp reads all workflows that are registered.
func (in *simInstance) catchUp() {
	for _, flow := range in.registered {
		in.flows.Add(flow)
	}
}

func (b *simBroker) Read(partition int32, committed bool) (lane.Reader, error) {
	r := &simReader{b: b, partition: partition, committed: committed, paused: make(map[lane.TopicPartition]bool)}
	r.patient = committed && b.in.lane != nil // the courier's, who waits for as long as the lane is there
	if committed && !r.patient {
		b.in.readers = append(b.in.readers, r)
	}
	return r, b.ask()
}

// simReader is a reader of a lane.
type simReader struct {
	b         *simBroker
	partition int32
	committed bool
	topics    []string
	next      map[string]int64
	added     []lane.TopicPartition
	from      []int64 // of these
	paused    map[lane.TopicPartition]bool
	patient   bool
}

func (r *simReader) Seek(from map[string]int64) {
	r.topics, r.next = slices.Sorted(maps.Keys(from)), from
	r.added, r.from = nil, nil
}

func (r *simReader) Add(at lane.TopicPartition, from int64) {
	r.added, r.from = append(r.added, at), append(r.from, from)
}

func (r *simReader) Pause(at lane.TopicPartition)  { r.paused[at] = true }
func (r *simReader) Resume(at lane.TopicPartition) { r.paused[at] = false }
func (r *simReader) Close()                        {}

// patience is how many steps a reader waits. The others have done all by then
// that they can.
const patience = 200

func (r *simReader) Poll(_ context.Context, limit int) kgo.Fetches {
	for tries := 0; tries < patience || r.patient; tries++ {
		r.b.in.step()
		if found := r.take(limit); len(found) > 0 {
			return found
		}
	}
	return kgo.NewErrFetch(context.DeadlineExceeded)
}

// take returns what there is to read, or a part of it, or that it cannot be read.
func (r *simReader) take(limit int) kgo.Fetches {
	var fetch kgo.Fetch
	topics := r.topics
	if len(topics) > 1 && r.b.fault(2, "other order") {
		topics = slices.Clone(topics)
		slices.Reverse(topics)
	}
	for _, topic := range topics {
		at := lane.TopicPartition{Topic: topic, Partition: r.partition}
		if r.paused[at] || r.next[topic] >= int64(r.b.log(at).end(r.committed)) {
			continue
		}
		if r.b.fault(300, "fetch fails") {
			fetch.Topics = append(fetch.Topics, kgo.FetchTopic{Topic: topic, Partitions: []kgo.FetchPartition{{Partition: at.Partition, Err: kerr.NotLeaderForPartition}}})
			continue // what others brought is not lost
		}
		var records []*kgo.Record
		records, r.next[topic] = r.b.fetch(at, r.next[topic], r.committed, limit)
		fetch.Topics = append(fetch.Topics, kgo.FetchTopic{Topic: topic, Partitions: []kgo.FetchPartition{{Partition: at.Partition, Records: records}}})
	}
	for i, at := range r.added {
		if r.paused[at] || r.from[i] >= int64(r.b.log(at).end(r.committed)) {
			continue
		}
		var records []*kgo.Record
		records, r.from[i] = r.b.fetch(at, r.from[i], r.committed, limit)
		fetch.Topics = append(fetch.Topics, kgo.FetchTopic{Topic: at.Topic, Partitions: []kgo.FetchPartition{{Partition: at.Partition, Records: records}}})
	}
	if len(fetch.Topics) == 0 {
		return nil
	}
	return kgo.Fetches{fetch}
}

// end is up to where a log can be read.
func (l *simLog) end(committed bool) int {
	if committed {
		return l.stable
	}
	return len(l.records)
}

// fetch reads a partition on, for a while.
func (k *simKafka) fetch(at lane.TopicPartition, next int64, committed bool, limit int) ([]*kgo.Record, int64) {
	log := k.log(at)
	var records []*kgo.Record
	for end := log.end(committed); next < int64(end) && len(records) < limit; next++ {
		if len(records) > 0 && k.fault(8, "fetch ends") {
			break
		}
		if r := log.records[next]; !committed || r.state != isAborted {
			copied := *r.Record
			records = append(records, &copied)
		}
	}
	return records, next
}

// ready says whether there is something to read of inputs.
func (r *simReader) ready() bool {
	if slices.Contains(r.topics, r.b.topics.Journal) { // it was closed
		return false
	}
	for i, at := range r.added {
		if !r.paused[at] && r.from[i] < int64(r.b.log(at).stable) {
			return true
		}
	}
	return slices.ContainsFunc(r.topics, func(topic string) bool {
		at := lane.TopicPartition{Topic: topic, Partition: r.partition}
		return !r.paused[at] && r.next[topic] < int64(r.b.log(at).stable)
	})
}

// simJournals is what the follower of an instance reads.
type simJournals struct {
	in   *simInstance
	next map[int32]int64
}

func (j *simJournals) Read(p int32, from int64) { j.next[p] = from }
func (j *simJournals) Drop(p int32)             { delete(j.next, p) }
func (j *simJournals) Close()                   {}

func (j *simJournals) Poll(context.Context) kgo.Fetches {
	var fetch kgo.Fetch
	topic := j.in.topics.Journal
	for _, p := range slices.Sorted(maps.Keys(j.next)) {
		at := lane.TopicPartition{Topic: topic, Partition: p}
		found := kgo.FetchPartition{Partition: p}
		switch {
		case j.next[p] >= int64(j.in.log(at).stable):
			continue
		case j.in.fault(100, "standby cannot read"):
			found.Err = kerr.NotLeaderForPartition
		default:
			found.Records, j.next[p] = j.in.fetch(at, j.next[p], true, 10_000)
		}
		fetch.Topics = append(fetch.Topics, kgo.FetchTopic{Topic: topic, Partitions: []kgo.FetchPartition{found}})
	}
	return kgo.Fetches{fetch}
}

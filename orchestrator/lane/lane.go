package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/spans"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/orchestrator/window"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

const (
	// A batch takes no more inputs once it has this many records or bytes: what
	// expires waits for the end of the one before.
	batchRecords = 1_000
	batchBytes   = 16 << 20
	// PollRecords is how many inputs are taken from Kafka at a time.
	PollRecords = 250
	// DueAtOnce is how many expired steps one look at the index brings. They leave
	// room in the batch for inputs.
	DueAtOnce = 100
)

// Config is what a lane needs to know. All lanes of an instance have the same.
type Config struct {
	// Instance is who owns the lane, in claims and as LockedBy.
	Instance   string
	Topics     events.Topics
	Partitions int32
	// Skew is the allowance for the difference between clocks.
	Skew time.Duration
	// AgentRate is how many requests a second an agent is believed to take from all
	// partitions together, before it has answered any.
	AgentRate float64 // 0: [DefaultAgentRate]
	// AgentBounds is how many attempts may be under way at an agent at a time, of all
	// partitions together, by its request topic. One without has no bound.
	AgentBounds map[string]int
	// ReplyTopics are patterns of the topics that submissions may name: see [decide.Env].
	ReplyTopics []string
	// Claims says that people decide who are not known, but claim to be somebody.
	Claims bool
	// SignalKeep is how long a signal is kept that does not say how long; 0 is [events.SignalKeep].
	SignalKeep time.Duration
	// StatusPatience is how long a status message waits for a caller's own topic that
	// takes none: then the namespace's has it.
	StatusPatience time.Duration
	// Deliveries are those of all lanes of an instance; nil if it has this lane alone.
	Deliveries *Deliveries
	// Signs are those that agents give to any lane of an instance; nil if it has this lane
	// alone.
	Signs *window.Signs
	// Repeats are those of all lanes of an instance; nil if it has this lane alone.
	Repeats *Repeats
	// Keys returns those of the namespace as they are now; nil if there are none.
	Keys func() *proof.Keys
	// Meters are those of all lanes of an instance; nil if nobody reads them.
	Meters *Meters
	// Sampled says of which traces there are spans: see [decide.Env].
	Sampled spans.Sampler
	// Turns are those of all lanes of an instance; nil if it has this lane alone.
	Turns *Turns
	// SuperviseEvery is how often it looks for what has expired, WatchEvery for what
	// hangs.
	SuperviseEvery, WatchEvery time.Duration
	Clock                      Clock
}

// Share is how many attempts each partition may have under way at an agent of which all
// together may have so many: an equal part, rounded down, and one at least.
func Share(most int, partitions int32) int { return max(1, most/int(partitions)) }

// DefaultAgentRate lets 250 requests leave at once that have five seconds each.
const DefaultAgentRate = 100

// Clock is what a lane knows of time.
type Clock struct {
	Wall  func() time.Time // what others see, too; it may jump
	Timer func() time.Time // for what lasts
	// Pause waits, and reports false once the context ended.
	Pause func(context.Context, time.Duration) bool
}

// Lane is the single writer of one partition. One goroutine, [Lane.Run],
// decides and folds; beside it one commits, one fetches, and one watches that
// nothing hangs: see [Lane.Serve].
//
// It decides its next batch while the last one commits, on state that is not
// committed yet. That is safe because a commit that fails ends the lane, and
// nothing that was decided on it is ever sent.
type Lane struct {
	cfg       Config
	topics    *events.Topics
	partition int32
	state     *projections.Partition
	log       *slog.Logger
	time      Clock

	broker    Broker
	world     World
	producers *producers
	inputs    Reader // reads the journal while the lane catches up, then all inputs but the orders
	orders    Reader // reads those, behind what was begun: see [begunFirst]
	journal   Reader // for the courier; nil while nobody is owed anything
	byKey     Partitioner

	position    events.Positions // of what was decided
	transaction uint64           // number of the last batch that was sealed
	format      int              // of the partition, as decided
	// passed is since when the position is behind markers that no transaction of ours
	// tells of; zero if there are none.
	passed   time.Time
	absent   string // the order that the store was asked for last, and has not
	current  *Batch // being decided
	inflight *Batch // being committed, nil if none

	turn         turnState
	look         bool // at the deadlines: it is time, or there was more than one look brings
	due          due
	asking       bool // Kafka, where the replies end
	clock        clock
	early        early // of commands
	earlySignals early
	added        []TopicPartition // partitions that were added to inputs, and that it reads too
	parked       parked
	rest         []input // was read, and found no room in the batch
	behind       []behind
	paused       []TopicPartition // of which no more is read
	away         away
	agents       agents
	// silences are those of agents for which something waits.
	silences silences
	courier  courier
	halves   *Halves
	flushing flushing
	learned  time.Time
	// answered is closed when Kafka has said something of topics since the lane asked.
	answered <-chan struct{}
	// known are the workflows whose agents' topics Kafka has said something of.
	known map[*workflow.Workflow]bool
	// tookOver is when the takeover was complete, until the first decision.
	tookOver time.Time
	// committed is the input position, for those who look on.
	committed atomic.Pointer[events.Positions]
	// read is up to where the orders were read, for them.
	read atomic.Int64
	// overdue is since when that was due, in Unix milliseconds, which was due first of what is to be decided on, for them; 0 for nothing.
	overdue atomic.Int64
	// blocked is [Lane.Blocked], for them.
	blocked atomic.Pointer[time.Time]
	// shown is how it stands with agents, for them.
	shown atomic.Pointer[map[string]Agent]
	// callers is how it stands with callers' topics, for them.
	callers atomic.Pointer[map[string]Caller]
	// elsewhere is where it has written besides the usual.
	elsewhere places
	// unseen is where something may hang of the lane, for all that it knows.
	unseen places
	// searched says that all partitions were searched for what hangs.
	searched bool
}

// New makes a lane that owns nothing yet: see [Lane.TakeOver].
func New(cfg Config, partition int32, broker Broker, world World, state *projections.Partition, log *slog.Logger) *Lane {
	l := &Lane{
		cfg: cfg, partition: partition, state: state, log: log, time: cfg.Clock,
		broker: broker, world: world, byKey: NewPartitioner(cfg.Partitions), known: make(map[*workflow.Workflow]bool), halves: new(Halves),
	}
	if l.cfg.Deliveries == nil {
		l.cfg.Deliveries = new(Deliveries)
	}
	if l.cfg.Signs == nil {
		l.cfg.Signs = new(window.Signs)
	}
	if l.cfg.Repeats == nil {
		l.cfg.Repeats = new(Repeats)
	}
	if l.cfg.Turns == nil {
		l.cfg.Turns = new(Turns)
	}
	if l.cfg.Meters == nil {
		l.cfg.Meters = NewMeters()
	}
	l.cfg.AgentRate = cmp.Or(l.cfg.AgentRate, DefaultAgentRate)
	l.topics, l.away.most = &l.cfg.Topics, awaySteps
	l.agents = agents{windows: make(map[string]*window.Window), granted: make(map[string]int), expired: make(map[attempt]lost)}
	l.courier.targets, l.courier.past = make(map[destination]*target), make(map[string]*target)
	return l
}

// Position is up to where the inputs were read, as it was committed last.
func (l *Lane) Position() events.Positions { return *l.committed.Load() }

// OrdersRead is up to where the orders were read and decided on, but for those that are
// parked.
func (l *Lane) OrdersRead() int64 { return l.read.Load() }

// Busy says whether something is decided that is not committed, inputs wait for what
// is not known yet, callers are owed something, or Kafka is being asked.
func (l *Lane) Busy() bool {
	return l.courier.busy() || l.inflight != nil || !l.current.empty() || len(l.early.inputs)+len(l.earlySignals.inputs) > 0 || len(l.parked.inputs) > 0 || len(l.rest) > 0 || len(l.behind) > 0 || l.asking || l.due.asks
}

// turnState is whether it is the lane's turn to commit.
type turnState int

const (
	notAsked turnState = iota
	awaited
	granted
)

// Batch is what becomes one transaction.
type Batch struct {
	records []*kgo.Record
	bytes   int
	orders  map[string]*change
	units   []unit // inputs, and orders of which something is due, on which it decides
	sealed  events.Seal
	last    *kgo.Record // the journal record that carries the seal
	// moved says that input positions changed, and waits that a step is due as soon as
	// it is committed, whose agent is away.
	moved, waits bool
	// raised is the format to which the batch raises the partition, 0 if it does not.
	raised int
	// owed is what callers' own topics are owed by it, delivered up to where they have what
	// they were owed before, and diverted the orders of which the namespace's topic is given
	// that, each with its caller's topic.
	owed      []owed
	delivered map[string]int64
	diverted  map[string]string
	// emits are the topics of users' that steps begin to give events of theirs.
	emits map[string]bool
	// told is what it says of agents: which fell silent, and which are silent no more.
	told []*events.Event
	// dropped is how many inputs it passes that leave no event.
	dropped int
	began   reading
	ended   time.Time // of the commit
	took    time.Duration
	tally   tally
}

// owed is a message that follows from an event that is not in the journal yet.
type owed struct {
	projections.Owed
	event *kgo.Record
}

// change is what a batch does to one order.
type change struct {
	order   *projections.Order
	journal []*kgo.Record
}

func newBatch() *Batch {
	return &Batch{orders: make(map[string]*change), emits: make(map[string]bool), diverted: make(map[string]string)}
}

func (b *Batch) empty() bool { return len(b.records) == 0 && !b.moved }
func (b *Batch) full() bool  { return len(b.records) >= batchRecords || b.bytes >= batchBytes }

func (b *Batch) add(records ...*kgo.Record) {
	for _, r := range records {
		b.bytes += len(r.Value) + 256
	}
	b.records = append(b.records, records...)
}

// itsTurn says whether there is anything to commit, none is under way, and it is the lane's
// turn, for which it asks then.
func (l *Lane) itsTurn(b Beside) bool {
	if l.inflight != nil || l.current.empty() && !l.tells() {
		return false
	}
	if l.turn == notAsked {
		l.turn = awaited
		if b.Turn() {
			l.turn = granted
		}
	}
	return l.turn == granted
}

// begin makes what was decided the batch to commit, unless one is under way or
// nothing was decided.
func (l *Lane) begin() bool {
	if l.inflight != nil {
		return false
	}
	l.tell(false)
	if l.current.empty() {
		return false
	}
	l.turn = notAsked
	l.inflight, l.current = l.current, newBatch()
	l.inflight.began = l.reading()
	l.seal(l.inflight)
	l.stamp(l.inflight.records)
	return true
}

// Commit writes a batch. It ends what it has begun though ctx ends: cutting a
// commit off makes its outcome unknown.
func (l *Lane) Commit(ctx context.Context, b *Batch) error {
	if l.producers.disturbed() || l.unseenOf(b) != nil {
		if err := l.settle(ctx); err != nil {
			return err
		}
	}
	if r := l.unseenOf(b); r != nil {
		return fmt.Errorf("%s cannot be written: nobody tells what hangs there", r.Topic)
	}
	began := l.time.Timer()
	err := l.producers.commit(b.records)
	b.took = l.time.Timer().Sub(began)
	b.ended = l.time.Wall() // the lane may hear of it much later
	return err
}

// unseenOf returns a record of the batch that goes where nobody can tell what hangs there,
// as far as the lane knows where that is: its producer does, once it has met the topic.
func (l *Lane) unseenOf(b *Batch) *kgo.Record {
	if l.unseen.none() {
		return nil
	}
	for _, r := range b.records {
		if l.isUnseen(r) {
			return r
		}
	}
	return nil
}

func (l *Lane) isUnseen(r *kgo.Record) bool {
	at := TopicPartition{r.Topic, r.Partition}
	anywhere := Anywhere(l.topics, r.Topic)
	if l.topics.Owns(r.Topic) && !anywhere {
		return l.unseen.has(at)
	}
	n := l.world.Partitions(r.Topic)
	switch {
	case anywhere:
		for at.Partition = 0; at.Partition < n && l.unseen.has(at); {
			at.Partition++
		}
		return n > 0 && at.Partition == n
	case r.Key == nil:
		return slices.ContainsFunc(l.unseen.list(), func(at TopicPartition) bool { return at.Topic == r.Topic })
	case n == 0:
		return false
	}
	at.Partition = NewPartitioner(n).Of(r.Key)
	return l.unseen.has(at)
}

// seal numbers the batch and puts the input positions on its last journal record.
func (l *Lane) seal(b *Batch) {
	l.transaction++
	b.sealed = events.Seal{Transaction: l.transaction, Next: l.position, Dropped: b.dropped}
	l.passed = time.Time{}
	for _, r := range b.records {
		if r.Topic == l.topics.Journal {
			b.sealed.Events++
			b.last = r
		}
	}
	if b.last == nil {
		e := events.Event{Type: events.PartitionAdvanced, At: l.time.Wall()}
		b.last = l.laneEvent(&e, strconv.FormatUint(l.transaction, 10))
		b.sealed.Events = 1
		b.records = append(b.records, b.last)
	}
	b.last.Headers = append(b.last.Headers, kgo.RecordHeader{Key: events.HeaderLane, Value: b.sealed.Append(nil)})
}

// laneEvent makes the journal record of an event that belongs to no order.
func (l *Lane) laneEvent(e *events.Event, id string) *kgo.Record {
	envelope := events.Envelope{
		Source: l.topics.Source(), Type: e.Type, Time: e.At,
		ID: fmt.Sprintf("p%d/%s", l.partition, id),
	}
	r := envelope.Record(l.topics.Journal, e.Append(nil))
	r.Partition = l.partition
	return r
}

// conclude folds the batch that was committed, or ends the lane.
func (l *Lane) conclude(err error) error {
	if err != nil {
		l.cfg.Meters.failed.Inc()
		// The next owner, which may be us, decides without what was not taken.
		if refused, ok := errors.AsType[*RefusedError](err); ok {
			r := refused.Record
			l.world.Refused(TopicPartition{r.Topic, r.Partition}, string(r.Key), recordSize(r), refused.Alone, refused.Err)
			// What waits from now on is not looked for among the inputs.
			if definite(refused.Err) && l.unwritable(r.Topic, recordSize(r)) == "" {
				l.halves.refused(l.inflight.units, l.time.Timer(), refused, r.Topic == l.topics.DeadLetters)
			}
		}
		if late, ok := errors.AsType[*LateError](err); ok {
			l.halves.late(l.inflight.bytes)
			for _, topic := range late.Topics {
				l.world.Refused(TopicPartition{topic, l.partition}, "", 0, false, ErrLate)
			}
		}
		return err
	}
	b := l.inflight
	l.inflight, l.clock.wrote = nil, b.began
	now := l.time.Timer()
	l.halves.committed(b.units, now)
	l.agents.acknowledged(b.began.wall, b.ended)
	l.halves.took(b.bytes, now.Sub(b.began.timer))
	updates := make([]projections.Update, 0, len(b.orders))
	for _, c := range b.orders {
		offsets := make([]int64, len(c.journal))
		for i, r := range c.journal {
			offsets[i] = r.Offset
		}
		updates = append(updates, projections.Update{Order: c.order, Offsets: offsets})
	}
	if err := l.state.Commit(b.sealed, b.last.Offset+1, updates); err != nil {
		return err
	}
	l.state.Raise(b.raised)
	if err := l.owe(b); err != nil {
		return err
	}
	l.state.Deliver(b.delivered)
	for _, e := range b.told {
		l.state.Silence(e)
	}
	l.look = l.look || b.waits
	l.committed.Store(&b.sealed.Next)
	l.report(b)
	l.cfg.Meters.committed(l, b)
	if len(updates) > 0 && !l.tookOver.IsZero() {
		l.log.Info("first decision after the takeover", "after", time.Since(l.tookOver))
		l.tookOver = time.Time{}
	}
	if b.raised > 0 {
		return errors.Join(ErrRaised, l.flush())
	}
	l.flushing.keeps = true
	if l.keeps() == time.Nanosecond {
		return l.flush()
	}
	return nil
}

// ErrRaised ends a lane that did nothing wrong: the partition is claimed anew, in its
// new format.
var ErrRaised = errors.New("the partition was raised to another format, and is claimed in that")

// report says in the log what a batch put aside, and notes where it wrote, also to the
// world. Before the commit that would be a guess: an owner that was fenced puts nothing aside.
func (l *Lane) report(b *Batch) {
	if b.dropped > 0 {
		l.log.Warn("inputs that change nothing left no event: their orders have recorded enough of their like", "inputs", b.dropped)
	}
	for _, r := range b.records {
		l.world.Took(TopicPartition{r.Topic, r.Partition})
		if r.Partition != l.partition || !l.topics.Owns(r.Topic) {
			l.elsewhere.note(TopicPartition{r.Topic, r.Partition})
		}
		if r.Topic == l.topics.DeadLetters {
			l.log.Warn("an input was put aside", "source", events.Header(r, HeaderSource), "reason", events.Header(r, HeaderReason))
		}
	}
}

// decided returns an order as decided on and not folded yet, nil if it was not.
func (l *Lane) decided(id string) *projections.Order {
	if c := l.current.orders[id]; c != nil {
		return c.order
	}
	if l.inflight != nil {
		if c := l.inflight.orders[id]; c != nil {
			return c.order
		}
	}
	return nil
}

// order returns an order as decided so far, committed or not; nil if there is none.
func (l *Lane) order(id string) (*projections.Order, error) {
	if o := l.decided(id); o != nil {
		return o, nil
	}
	if id == l.absent {
		return nil, nil
	}
	order, err := l.state.Order(id)
	if order == nil && err == nil {
		l.absent = id
	}
	return order, err
}

// env is what the decisions of one batch may know.
func (l *Lane) env() *decide.Env {
	return &decide.Env{
		Now:      l.time.Wall(),
		Doubted:  !l.believed(),
		Ahead:    time.Duration(l.clock.off.Load()),
		Instance: l.cfg.Instance,
		Skew:     l.cfg.Skew,
		Topics:   l.topics,
		Workflow: l.world.Workflow,
		Newer:    l.newer,
		Retired:  l.world.Retired,
		Starts:   l.world.Starts,
		Refuses:  l.refuses,
		Away: func(order, topic string, size int) string {
			return l.unwritableAt(TopicPartition{topic, l.partition}, order, size)
		},
		Untaken:     l.untaken,
		ReplyTopics: l.cfg.ReplyTopics,
		Keys:        l.namespaceKeys(),
		Sampled:     l.cfg.Sampled,
		Claims:      l.cfg.Claims,
		SignalKeep:  l.cfg.SignalKeep,

		Room:    l.room,
		Excuses: l.excuses,
		Format:  l.format,
	}
}

// raise begins to write in the format that all who may own the partition speak.
func (l *Lane) raise() {
	format := l.world.Format()
	if format <= l.format {
		return
	}
	l.log.Info("the partition's format rises; older releases cannot own it any more", "from", l.format, "to", format)
	e := events.Event{Type: events.PartitionRaised, At: l.time.Wall(), Format: format}
	l.current.add(l.laneEvent(&e, "format/"+strconv.Itoa(format)))
	l.current.raised, l.format = format, format
}

// decide makes the next batch of what one poll brought, and of what could not be read
// behind that, as far as there is room.
func (l *Lane) decide(records []*kgo.Record, unread ...input) error {
	return l.decideOn(append(l.readInputs(records), unread...))
}

func (l *Lane) decideOn(read []input) error {
	if l.rest = nil; len(read) == 0 {
		return nil
	}
	l.prepare(read)
	env := l.env()
	for i := range read {
		if l.full() {
			l.rest = read[i:]
			break
		}
		if l.stays(&read[i]) {
			continue
		}
		wait, err := l.tooEarly(&read[i])
		if err == nil && !wait {
			wait, err = l.park(&read[i])
		}
		if err == nil && !wait {
			err = l.takeIn(env, &read[i])
		}
		if err != nil {
			return err
		}
	}
	err := l.retryEarly(env)
	l.pause()
	return err
}

// takeIn deals with an input, and moves the position past it.
func (l *Lane) takeIn(env *decide.Env, in *input) error {
	l.advance(in.record)
	if in.record.Attrs.IsControl() {
		// The end of somebody's transaction: nothing that would be worth one of ours now.
		if l.passed.IsZero() {
			l.passed = l.time.Timer()
		}
		return nil
	}
	l.current.moved = true
	l.current.units = append(l.current.units, ofInput(in.Record))
	l.current.tally.reads(in.Record.Written, env.Now)
	switch {
	case in.Unreadable != "":
		l.putAside(in.Record, in.Unreadable)
	case l.strays(in):
		l.forward(in)
	default:
		return l.handle(env, in)
	}
	return nil
}

// handle decides on an input that belongs here.
func (l *Lane) handle(env *decide.Env, in *input) error {
	order, err := l.order(in.Order)
	if err != nil {
		return err
	}
	if order == nil && in.OfOrder() {
		what := "order of this id"
		if events.ScheduleOf(in.Order) != "" {
			what = "schedule of this name"
		} else if events.LimitOf(in.Order) != "" {
			what = "limit of this name"
		}
		l.putAside(in.Record, "there is no "+what)
		return nil
	}
	env.Full = l.crowded()
	var d decide.Decision
	if why, _ := l.halves.held(ofInput(in.Record)); why != "" {
		d = decide.Hold(env, order, &in.Input, why)
	} else {
		d = decide.On(env, order, &in.Input)
	}
	if in.Reply != nil {
		l.repeats(in, order, &d)
		if in.Reply.Status == events.ReplyProgress && (d.Discarded == "" || d.Discarded == events.DiscardFixed) {
			l.stillAt(in, order, &d)
		} else {
			l.heard(in, order, &d)
		}
	}
	l.agents.input = in
	l.take(d)
	l.agents.input = nil
	env.Reuse(d.Messages)
	return nil
}

// take adds a decision to the batch.
func (l *Lane) take(d decide.Decision) {
	l.current.dropped += d.Dropped
	for _, aside := range d.Aside {
		l.putAside(aside.Record, aside.Reason)
	}
	if d.Order == nil {
		for i := range d.Messages { // what goes back to its sender
			l.write(&d.Messages[i])
		}
		clear(l.agents.granted)
		return
	}
	if before, err := l.order(d.Order.ID); err == nil { // it was read to be decided on
		l.follow(before, &d)
		l.current.tally.note(before, &d)
	}
	l.absent = ""
	if d.Panic != "" {
		l.log.Error("deciding panicked", "order", d.Order.ID, "panic", d.Panic)
	}
	c := l.current.orders[d.Order.ID]
	if c == nil {
		c = &change{}
		l.current.orders[d.Order.ID] = c
	}
	c.order = d.Order
	l.current.waits = l.current.waits || d.Waits.Topic != ""
	l.emitsAgain(&d)
	for i := range d.Messages {
		m := &d.Messages[i]
		if m.Emits { // it is owed as long as the order says so
			if _, noted := l.current.emits[m.Topic]; !noted {
				l.current.emits[m.Topic] = false
			}
			continue
		}
		if m.OwnTopic && l.format >= events.CourierFormat {
			l.current.owed = append(l.current.owed, owed{m.Owed(), c.journal[len(c.journal)-1]})
			continue
		}
		if r := l.write(m); r.Topic == l.topics.Journal {
			c.journal = append(c.journal, r)
		}
	}
}

// write adds a message to the batch, in the lane's partition.
func (l *Lane) write(m *decide.Message) *kgo.Record {
	r := m.Envelope.Record(m.Topic, m.Value)
	r.Partition = l.partition
	l.current.add(r)
	return r
}

// prepare has Kafka asked what the decisions on a batch, and on what is parked, need to
// know of the world: which topics can be written. They go by what is known, and what
// is not known at all is waited for by those who need it.
func (l *Lane) prepare(read []input) {
	var topics []string
	for _, b := range l.behind {
		topics = append(topics, b.at.Topic)
	}
	for _, topic := range []string{l.topics.Commands, l.topics.Signals} {
		if len(l.earlyOf(topic).inputs) > 0 {
			topics = append(topics, topic) // one of them may stray
		}
	}
	for _, inputs := range [][]input{l.parked.inputs, read} {
		for i := range inputs {
			in := &inputs[i]
			if l.strays(in) {
				topics = append(topics, in.record.Topic) // it is forwarded there
				continue
			}
			if to := in.Submission.ReplyTo; to != "" && l.format < events.CourierFormat && events.ValidTopic(to) && !l.topics.Owns(to) {
				topics = append(topics, to)
			}
		}
	}
	if now := l.time.Timer(); now.Sub(l.learned) > time.Second {
		l.learned = now
		topics = append(append(topics, l.topics.Journal, l.topics.Status, l.topics.Alerts, l.topics.DeadLetters), l.world.RequestTopics()...)
	}
	select {
	case <-l.answered: // who waited for it hears of no other
		l.look = true
	default:
	}
	l.answered = l.world.Learn(topics)
}

// awaits is what tells that Kafka has answered, nil if nothing waits for that.
func (l *Lane) awaits() <-chan struct{} {
	if len(l.parked.inputs)+len(l.away.more) == 0 && !l.away.absent {
		return nil
	}
	return l.answered
}

// keepAfter is how long the position may be behind markers that are the last of an
// input before a transaction says so. If retention empties the input, nobody can tell
// any more that they were no inputs.
const keepAfter = time.Hour

// keepPosition has the position committed that is behind such markers for so long, if
// nothing else is decided.
func (l *Lane) keepPosition(after time.Duration) {
	if !l.passed.IsZero() && l.current.empty() && l.time.Timer().Sub(l.passed) >= after {
		l.current.moved = true
	}
}

// advance moves the input position past a record, but not past what is parked.
func (l *Lane) advance(r *kgo.Record) {
	if len(l.parked.inputs) > 0 && r.Topic == l.topics.Orders && r.Partition == l.partition {
		l.parked.reached = max(l.parked.reached, r.Offset+1)
		return
	}
	l.readsOn(TopicPartition{r.Topic, r.Partition}, r.Offset+1)
}

// forward sends a record that another partitioner put here to the partition of
// its order, as it is. It is in the same transaction as the position behind
// it: it is forwarded exactly once. One that Kafka would not take is put aside.
func (l *Lane) forward(in *input) {
	r := in.record
	why := l.refuses(r.Topic, in.Record.Size()+decide.EnvelopeSize)
	if held, _ := l.halves.held(ofInput(in.Record)); held != "" {
		why = held
	}
	if why != "" {
		l.putAside(in.Record, "it is in the wrong partition, and cannot be forwarded: "+why)
		return
	}
	key := r.Key // which need not be the order's id
	if len(key) == 0 {
		key = []byte(in.Order)
	}
	l.current.add(&kgo.Record{
		Topic: r.Topic, Partition: in.Partition, Key: key, Value: r.Value, Timestamp: l.notAhead(r.Timestamp),
		Headers: append(r.Headers[:len(r.Headers):len(r.Headers)],
			kgo.RecordHeader{Key: headerWritten, Value: events.AppendTime(nil, in.Record.Written)},
			kgo.RecordHeader{Key: headerForwarded, Value: []byte(in.Record.Source())}),
	})
}

// aheadAtMost is how far ahead a record's time may be that is written: Kafka takes an
// hour by default.
const aheadAtMost = 30 * time.Minute

// notAhead is t, or now if t is far ahead: Kafka refuses such a record, but may have taken
// one before it did so.
func (l *Lane) notAhead(t time.Time) time.Time {
	if now := l.time.Wall().Add(-l.clockAhead()); t.After(now.Add(aheadAtMost)) {
		return now
	}
	return t
}

// refuses says why a record of size bytes can never be produced on topic, "" if it
// can as far as is known.
func (l *Lane) refuses(topic string, size int) string {
	if size > events.MaxBatch {
		return fmt.Sprintf("%d bytes are more than the %d that are produced at a time", size, events.MaxBatch)
	}
	return l.world.Refuses(topic, size)
}

// unwritable says why a record of size bytes cannot be produced on topic now.
func (l *Lane) unwritable(topic string, size int) string {
	return l.unwritableAt(TopicPartition{topic, l.partition}, "", size)
}

func (l *Lane) unwritableAt(at TopicPartition, order string, size int) string {
	if l.unseen.has(at) {
		return "nobody tells what hangs there"
	}
	return l.world.Away(at, order, size)
}

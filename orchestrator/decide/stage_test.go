package decide

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/inspect"
)

// stage is one partition without Kafka: the pure core, a real state store in
// memory, a virtual clock, and slices in place of topics. It treats the core as
// a lane does. Plays and properties are performed on it.
type stage struct {
	now    time.Time
	skew   time.Duration
	format int // of the journal
	topics events.Topics
	flows  workflow.Set
	// refused is what Kafka would not take, by topic, away what it cannot take now.
	refused, away map[string]refusal
	// replyTopics are patterns of those that submissions may name, any if there are none.
	replyTopics []string
	// silent are the topics of agents that give no sign, while others wait for them.
	silent map[string]bool
	// cursed are the orders on which deciding panics; with brittle it also does on
	// every [pill].
	cursed  map[string]bool
	brittle bool
	// gone are the names of workflows that are not registered any more.
	gone map[string]bool
	// vanished are the offsets of the events that were decided while none was.
	vanished map[int64]bool

	// Topics. What stands here is committed.
	orders   []submission
	replies  []reply
	commands []command
	signals  []signal
	internal []*kgo.Record // what lanes tell each other: this one itself
	mute     bool          // it is not read for now
	journal  []*kgo.Record
	messages []*kgo.Record     // on all other topics
	letters  []*kgo.Record     // dead letters
	end      int64             // next offset of the journal
	dropped  map[string]bool   // the sources of the inputs that left no event
	early    map[string]bool   // the sources of those that came before their orders
	unfound  map[int]bool      // the submissions that were read while no workflow was registered
	audited  map[string]string // the events with which orders began that were held against their submissions
	unknown  []string          // orders that inputs named and nobody submitted: dead letters

	store *projections.Store
	state *projections.Partition

	// What an owner has in memory, and a crash loses.
	owner       string // "" while nobody owns the partition
	position    events.Positions
	transaction uint64
	moved       bool
	drops       []string // the sources of inputs
	tooSoon     []string // the same
	eventless   int      // how many inputs leave no event
	records     []*kgo.Record
	owed        []owed
	room        []Message // of decisions
	keys        *proof.Keys
	claims      bool            // whether people decide who claim to be somebody
	tokens      map[work]string // that were sent
	waits       bool            // something is due, and its agent away
	changes     map[string]*staged
	order       []string // of changes
}

// work is an attempt of a step, or of its undo.
type work struct {
	order, step string
	attempt     int
	undo        bool
}

type submission struct {
	id    string
	value events.Submission
	text  []byte // as it was written; nil for what encoding the value gives
	trace string
	// tracestate and baggage are what else it has passed on.
	tracestate, baggage string

	actor   []byte // as [events.HeaderActor] has it
	problem error
}

type reply struct {
	id      string
	value   events.Reply
	written time.Time
	source  string // as ce_source has it
}

type signal struct {
	id     string
	value  events.Signal
	source string // as ce_source has it
}

type command struct {
	id    string
	value events.Command
	actor []byte // as [events.HeaderActor] has it
}

type staged struct {
	order   *projections.Order
	journal []*kgo.Record
}

// owed is a status message for a caller's own topic, which it has at once.
type owed struct {
	projections.Owed
	event *kgo.Record
}

// fataler is what testing.T and rapid.T have in common.
type fataler = inspect.T

func newStage(t fataler) *stage {
	t.Helper()
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(t, err)
	s := &stage{
		now: inspect.Curtain, topics: topics, format: events.JournalFormat,
		refused: make(map[string]refusal), away: make(map[string]refusal), silent: make(map[string]bool),
		cursed: make(map[string]bool), gone: make(map[string]bool), vanished: make(map[int64]bool), dropped: make(map[string]bool), early: make(map[string]bool), unfound: make(map[int]bool), audited: make(map[string]string), tokens: make(map[work]string),
	}
	s.store, s.state = emptyStore(t)
	return s
}

func emptyStore(t fataler) (*projections.Store, *projections.Partition) {
	t.Helper()
	store, err := projections.Temporary()
	must(t, err)
	state, err := store.Partition(0)
	must(t, err)
	return store, state
}

func must(t fataler, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// pill is an input or output on which deciding panics while the stage is brittle.
const pill = `"poison-pill"`

// env is what decisions on an order may know.
func (s *stage) env(order string) *Env {
	return &Env{
		Now: s.now, Instance: s.owner, Skew: s.skew, Topics: &s.topics, Format: s.format, ReplyTopics: s.replyTopics, Keys: s.keys, Claims: s.claims, Retired: s.flows.Retired, room: s.room,
		Workflow: func(name string, version int) *workflow.Workflow {
			if s.cursed[order] {
				panic("cursed")
			}
			if s.gone[name] {
				return nil
			}
			return s.flows.Find(name, version)
		},
		Starts: func(signal string) *workflow.Workflow {
			if s.cursed[order] {
				panic("cursed")
			}
			return s.flows.Starts(signal)
		},
		Away:    func(_, topic string, _ int) string { return s.away[topic].why },
		Excuses: func(_ *projections.Order, ask *Ask, _ *projections.Work) bool { return s.silent[ask.Topic] },
		Refuses: func(topic string, size int) string {
			if s.brittle && topic == s.topics.Journal && s.hasPill(size) {
				panic("poison-pill")
			}
			switch r := s.refused[topic]; {
			case r.why != "":
				return r.why
			case r.limit > 0 && size > r.limit:
				return fmt.Sprintf("%d bytes are more than the %d that topic %s takes (max.message.bytes)", size, r.limit, topic)
			}
			return ""
		},
	}
}

// hasPill says whether an event of so many bytes is one with a [pill], be it that an
// order is accepted, which names the steps.
func (s *stage) hasPill(size int) bool {
	size -= len(pill)
	return size == EnvelopeSize || slices.ContainsFunc(s.flows.All(), func(flow *workflow.Workflow) bool {
		var accepted events.Event
		for i := range flow.Steps {
			accepted.Steps = append(accepted.Steps, flow.Steps[i].Name)
		}
		return size == estimate(&accepted)
	})
}

// refusal is what Kafka does not take on a topic.
type refusal struct {
	why   string // nothing, if it is said
	limit int    // bytes, if there is one
}

// input is what was written to a topic, as a lane reads it.
func (s *stage) input(topic string, offset int64, order string, value []byte, written time.Time) Input {
	r := &Record{Topic: topic, Offset: offset, Raw: events.Raw{Key: []byte(order), Value: value, Written: written}}
	return Input{Record: r, Order: order}
}

// of returns an order as decided so far, committed or not.
func (s *stage) of(t fataler, id string) *projections.Order {
	t.Helper()
	if c := s.changes[id]; c != nil {
		return c.order
	}
	o, err := s.state.Order(id)
	must(t, err)
	return o
}

// takeIn takes the decision on an input.
func (s *stage) takeIn(d Decision, in *Input) {
	if d.Dropped > 0 {
		s.drops = append(s.drops, in.Record.Source())
	}
	if d.Order == nil {
		for _, aside := range d.Aside {
			s.records = append(s.records, s.letter(aside))
		}
	}
	s.take(d)
}

func (s *stage) take(d Decision) {
	s.eventless += d.Dropped
	if d.Order == nil {
		for i := range d.Messages { // what goes back to its sender
			s.records = append(s.records, recordFor(&d.Messages[i]))
		}
		return
	}
	c := s.changes[d.Order.ID]
	if c == nil {
		c = &staged{}
		s.changes[d.Order.ID] = c
		s.order = append(s.order, d.Order.ID)
	}
	c.order = d.Order
	for i := range d.Messages {
		r := recordFor(&d.Messages[i])
		if r.Topic == s.topics.Journal {
			c.journal = append(c.journal, r)
		}
		if m := &d.Messages[i]; m.OwnTopic && !m.Emits && s.format >= events.CourierFormat {
			s.owed = append(s.owed, owed{m.Owed(), c.journal[len(c.journal)-1]})
		}
		s.records = append(s.records, r)
		if m := &d.Messages[i]; s.keys != nil && m.Envelope.Type == events.StepRequested {
			asked, _ := events.Decode[events.Request](m.Value)
			s.tokens[work{asked.Order, asked.Step, asked.Attempt, asked.Undo}] = asked.Token
		}
	}
	for _, aside := range d.Aside {
		s.records = append(s.records, s.letter(aside))
	}
	clear(d.Messages)
	s.room = d.Messages[:0] // as a lane does, see [Env.Reuse]
}

func recordFor(m *Message) *kgo.Record { return m.Envelope.Record(m.Topic, m.Value) }

// What a dead letter says of its input.
const (
	headerReason = "waybill_reason"
	headerSource = "waybill_source"
)

func (s *stage) letter(aside Aside) *kgo.Record {
	return &kgo.Record{
		Topic: s.topics.DeadLetters, Key: aside.Key, Value: aside.Value, Timestamp: aside.Written,
		Headers: []kgo.RecordHeader{{Key: headerReason, Value: []byte(aside.Reason)}, {Key: headerSource, Value: []byte(aside.Source())}},
	}
}

// read decides on all inputs that were not read yet.
func (s *stage) read(t fataler) {
	t.Helper()
	for at := s.position.At(events.InputOrders); int(at) < len(s.orders); at++ {
		in := &s.orders[at]
		s.position.Set(events.InputOrders, at+1)
		s.moved = true
		s.unfound[int(at)] = len(s.flows.All()) == 0
		r := s.submission(at)
		read := s.input(r.Topic, at, in.id, r.Value, s.now)
		for _, h := range r.Headers {
			read.Record.Headers = append(read.Record.Headers, events.RawHeader{Key: h.Key, Value: h.Value})
		}
		read.Submission, read.Problem = in.value, in.problem
		s.takeIn(On(s.env(in.id), s.of(t, in.id), &read), &read)
	}
	for at := s.position.At(events.InputReplies); int(at) < len(s.replies); at++ {
		in := &s.replies[at]
		s.position.Set(events.InputReplies, at+1)
		s.moved = true
		o := s.of(t, in.id)
		if o == nil {
			s.tooEarly(in.id, s.topics.Replies, at)
			continue
		}
		read := s.input(s.topics.Replies, at, in.id, in.value.Append(nil), in.written)
		read.Reply = &in.value
		if in.source != "" {
			read.Record.Headers = []events.RawHeader{{Key: events.HeaderSource, Value: []byte(in.source)}}
		}
		s.takeIn(On(s.env(in.id), o, &read), &read)
	}
	for at := s.position.At(events.InputCommands); int(at) < len(s.commands); at++ {
		in := &s.commands[at]
		s.position.Set(events.InputCommands, at+1)
		s.moved = true
		o := s.of(t, in.id)
		value, err := in.value.Encode()
		must(t, err)
		read := s.input(s.topics.Commands, at, in.id, value, s.now)
		read.Command = &in.value
		if o == nil && read.OfOrder() {
			s.tooEarly(in.id, s.topics.Commands, at)
			continue
		}
		if in.actor != nil {
			read.Record.Headers = []events.RawHeader{{Key: events.HeaderActor, Value: in.actor}}
		}
		d := On(s.env(in.id), o, &read)
		if s.takeIn(d, &read); o == nil && d.Order == nil { // what it was to apply is refused
			s.tooSoon = append(s.tooSoon, read.Record.Source())
		}
	}
	s.hear(t)
	s.listen(t)
}

// submission is one as it stands on the orders.
func (s *stage) submission(at int64) *kgo.Record {
	in := &s.orders[at]
	value := in.text
	if value == nil {
		value, _ = in.value.Encode() // hostile ones are no JSON
	}
	if in.text == nil && in.actor == nil && in.value.Input != nil { // as it was written
		bare := in.value
		bare.Input = nil
		value, _ = bare.Encode()
		value = slices.Concat(value[:len(value)-1], []byte(`,"input":`), in.value.Input, []byte("}"))
	}
	r := &kgo.Record{Topic: s.topics.Orders, Offset: at, Key: []byte(in.id), Value: value, Headers: []kgo.RecordHeader{
		{Key: events.HeaderTraceparent, Value: []byte(in.trace)}, {Key: events.HeaderTracestate, Value: []byte(in.tracestate)}, {Key: events.HeaderBaggage, Value: []byte(in.baggage)},
	}}
	if in.actor != nil {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: events.HeaderActor, Value: in.actor})
	}
	return r
}

// tooEarly notes an input whose order is not there: a lane makes a dead letter of it.
func (s *stage) tooEarly(id, topic string, at int64) {
	s.unknown = append(s.unknown, id)
	s.tooSoon = append(s.tooSoon, fmt.Sprintf("%s/0/%d", topic, at))
}

// listen decides on all that orders told each other and was not read yet.
func (s *stage) listen(t fataler) {
	t.Helper()
	for at := s.position.At(events.InputInternal); int(at) < len(s.internal) && !s.mute; at++ {
		r := s.internal[at]
		s.position.Set(events.InputInternal, at+1)
		s.moved = true
		record := &Record{Topic: r.Topic, Offset: at, Raw: events.Raw{Key: r.Key, Value: r.Value, Written: s.now}}
		for _, h := range r.Headers {
			record.Headers = append(record.Headers, events.RawHeader{Key: h.Key, Value: h.Value})
		}
		in := Read(record, &s.topics, Place{Of: func([]byte) int32 { return 0 }})
		o := s.of(t, in.Order)
		if in.Unreadable != "" || o == nil && in.OfOrder() {
			t.Fatalf("order %q is told %s: %s", in.Order, r.Value, in.Unreadable)
		}
		s.takeIn(On(s.env(in.Order), o, &in), &in)
	}
}

// hear decides on all signals that were not read yet.
func (s *stage) hear(t fataler) {
	t.Helper()
	for at := s.position.At(events.InputSignals); int(at) < len(s.signals); at++ {
		in := &s.signals[at]
		s.position.Set(events.InputSignals, at+1)
		s.moved = true
		o := s.of(t, in.id)
		if o == nil && in.value.Key == "" {
			s.tooEarly(in.id, s.topics.Signals, at)
			continue
		}
		value, err := in.value.Encode()
		must(t, err)
		read := s.input(s.topics.Signals, at, in.id, value, s.now)
		read.Signal = &in.value
		if in.source != "" {
			read.Record.Headers = []events.RawHeader{{Key: events.HeaderSource, Value: []byte(in.source)}}
		}
		s.takeIn(On(s.env(in.id), o, &read), &read)
	}
}

// passed is how many of an input were read, as the store has it.
func (s *stage) passed(in events.Input) int64 {
	head := s.state.Head()
	return max(0, head.Next.At(in))
}

// page is how many expired steps a lane looks at a time.
const page = 100

// supervise decides on all steps whose deadline has come, page by page.
func (s *stage) supervise(t fataler, page int) {
	t.Helper()
	must(t, s.state.Flush())
	if s.waits { // for an agent that may be back
		s.waits = false
		s.state.Rescan()
	}
	for {
		due, err := s.state.Due(s.now, page)
		must(t, err)
		changed := false
		for _, d := range due {
			decision := Supervise(s.env(d.Order), s.of(t, d.Order), d.Step)
			changed = changed || decision.Order != nil
			s.take(decision)
			s.waits = s.waits || decision.Waits.Topic != ""
		}
		if len(due) < page {
			return
		}
		if !changed {
			t.Fatalf("the supervisor goes in circles: %d due steps were handled before", len(due))
		}
	}
}

// deliver has Kafka acknowledge all that steps give a topic, or refuse it for a reason.
func (s *stage) deliver(t fataler, topic, refused string) {
	t.Helper()
	must(t, s.state.Flush())
	must(t, s.state.Emissions(topic, 0, s.end, func(order, step string, seq uint64, _ int64) (bool, error) {
		o := s.of(t, order)
		s.take(Emitted(s.env(order), o, step, seq, refused))
		return true, nil
	}))
}

// commit makes one transaction of what was decided, and returns its records.
func (s *stage) commit(t fataler) []*kgo.Record {
	t.Helper()
	if len(s.records) == 0 && !s.moved {
		return nil
	}
	s.transaction++
	seal := events.Seal{Transaction: s.transaction, Next: s.position, Dropped: s.eventless}
	if !slices.ContainsFunc(s.records, func(r *kgo.Record) bool { return r.Topic == s.topics.Journal }) {
		s.records = append(s.records, s.laneRecord(&events.Event{Type: events.PartitionAdvanced, At: s.now}))
	}
	var last *kgo.Record
	for _, r := range s.records {
		if r.Topic == s.topics.DeadLetters {
			s.letters = append(s.letters, r)
			continue
		}
		if r.Topic == s.topics.Internal {
			s.internal = append(s.internal, r)
		}
		if r.Topic != s.topics.Journal {
			s.messages = append(s.messages, r)
			continue
		}
		r.Offset = s.end
		s.end++
		seal.Events++
		last = r
		s.journal = append(s.journal, r)
	}
	last.Headers = append(last.Headers, kgo.RecordHeader{Key: events.HeaderLane, Value: seal.Append(nil)})
	s.end++ // the commit marker

	updates := make([]projections.Update, len(s.order))
	for i, id := range s.order {
		c := s.changes[id]
		updates[i].Order = c.order
		for _, r := range c.journal {
			updates[i].Offsets = append(updates[i].Offsets, r.Offset)
		}
	}
	must(t, s.state.Commit(seal, last.Offset+1, updates))
	written := s.records
	for _, o := range s.owed {
		o.Offset = o.event.Offset
		s.state.Owe(o.Owed)
	}
	for _, r := range written {
		if events.Type(events.Header(r, events.HeaderType)) == events.StatusRefused {
			e, err := events.Decode[events.Event](r.Value)
			must(t, err)
			must(t, s.state.Divert(e.Order, e.ReplyTo))
		}
	}
	for _, source := range s.drops {
		s.dropped[source] = true
	}
	for _, source := range s.tooSoon {
		s.early[source] = true
	}
	s.forget()
	return written
}

func (s *stage) laneRecord(e *events.Event) *kgo.Record {
	envelope := events.Envelope{Source: "/waybill/" + s.topics.Namespace, Type: e.Type, Time: e.At, ID: "p0"}
	return envelope.Record(s.topics.Journal, e.Append(nil))
}

func (s *stage) forget() {
	s.records, s.changes, s.order, s.moved, s.owed, s.drops, s.tooSoon, s.eventless = nil, make(map[string]*staged), nil, false, nil, nil, nil, 0
}

// crash loses the owner with all that it had in memory, and its store.
func (s *stage) crash(t fataler) {
	t.Helper()
	s.forget()
	s.owner = ""
	s.rebuild(t)
}

// rebuild replaces the store by a fold of the journal, and checks that they
// are the same, key by key (T1).
func (s *stage) rebuild(t fataler) {
	t.Helper()
	must(t, s.state.Flush())
	was := dump(t, s.store)
	must(t, s.store.Close())
	s.store, s.state = emptyStore(t)
	for _, r := range s.journal {
		must(t, s.state.Fold(r.Offset, r.Value, events.HeaderValue(r, events.HeaderLane)))
	}
	must(t, s.state.Flush())
	is := dump(t, s.store)
	for key, value := range was {
		if is[key] != value {
			t.Fatalf("rebuilt store differs at key %q:\n was %q\n  is %q", key, value, is[key])
		}
	}
	if len(is) != len(was) {
		t.Fatalf("rebuilt store has %d keys, and had %d", len(is), len(was))
	}
}

func dump(t fataler, store *projections.Store) map[string]string {
	t.Helper()
	all := make(map[string]string)
	must(t, store.Dump(0, func(projections.Head) error { return nil }, func(key, value []byte) error {
		all[string(key)] = string(value)
		return nil
	}))
	return all
}

// takeOver makes instance the owner: it claims, and goes on from the journal.
func (s *stage) takeOver(t fataler, instance string) *kgo.Record {
	t.Helper()
	s.forget()
	s.owner = instance
	claim := events.Event{
		Type: events.PartitionClaimed, At: s.now,
		Instance: instance, Claim: fmt.Sprint("claim-", s.end), Partitions: 1, Format: s.format,
	}
	r := s.laneRecord(&claim)
	r.Offset = s.end
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: events.HeaderLane, Value: (&events.Seal{Events: 1}).Append(nil)})
	s.journal = append(s.journal, r)
	s.end += 2
	s.state.Forget()
	must(t, s.state.Fold(r.Offset, r.Value, events.HeaderValue(r, events.HeaderLane)))
	s.state.Rescan()
	must(t, s.state.Flush())
	head := s.state.Head()
	s.position, s.transaction = head.Next, head.Transaction
	for in := range s.topics.Inputs() {
		s.position.Set(in, max(0, s.position.At(in)))
	}
	return r
}

// close frees the store.
func (s *stage) close() { _ = s.store.Close() }

// history returns the committed events of every order.
func (s *stage) history(t fataler) map[string][]events.Event {
	t.Helper()
	all := make(map[string][]events.Event)
	for _, r := range s.journal {
		e, err := events.Decode[events.Event](r.Value)
		must(t, err)
		if e.Order != "" {
			all[e.Order] = append(all[e.Order], e)
		}
	}
	return all
}

func parseFlow(t fataler, source string) *workflow.Workflow {
	t.Helper()
	flow, err := workflow.Parse("workflow.yaml", []byte(source))
	must(t, err)
	return flow
}

var _ fataler = (*testing.T)(nil)

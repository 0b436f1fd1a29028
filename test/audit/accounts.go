package audit

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/test/oracle"
)

// Kafka is what a namespace has on Kafka.
type Kafka struct {
	Topics *events.Topics
	// Partition is where Kafka's default puts an order.
	Partition func(order string) int32
	// Read returns every committed record of a topic, each partition in order.
	Read func(topic string) iter.Seq[*kgo.Record]
	// Flow finds a workflow that is registered; version 0 is the newest. Where it
	// finds none of version 0, version 1 stands for the newest.
	Flow func(name string, version int) *oracle.Flow
	// Retired says whether a version was retired at some time; nil says so of none.
	Retired func(name string, version int) bool
	// Rest says that every input must have been read. Else those behind the
	// journal's last positions are passed over.
	Rest bool
	// Jumps says that clocks jump, see [oracle.Doubted].
	Jumps bool
	// Came, if it is there, says when a record could be read first: a number that
	// grows from one record to the next, whatever their topics.
	Came func(r *kgo.Record) int64
	// InTime, if it is there, says whether a reply was in its partition when its
	// attempt ended. Of the reply there is its place, its time and its attributes.
	InTime func(reply *kgo.Record, x *Expiry) bool
	// Keys, if they are there, are those under which all requests got their tokens. It goes
	// with InTime.
	Keys *proof.Keys
}

// Expiry is that of an attempt.
type Expiry struct {
	Partition int32
	// Started and Expired are the offsets of its events in the journal.
	Started, Expired int64
	End              time.Time // when it counts as expired

	attempt      int
	agent, proof string
}

// Accounts say what became of every input of a namespace.
type Accounts struct {
	// Inputs are the records that were read. Each is in one of the counts below,
	// but for what was reported.
	Inputs int
	// Submissions.
	Accepted, Rejected, Known, Conflicts int
	// Replies.
	Replied, Discarded int
	// Commands.
	Acted, Refused, Repeated int
	// Signals that a step heard, or that were kept, and those that changed nothing.
	Heard, Unheard int
	// What orders told each other that led to something, and that changed nothing.
	Told, Moot int
	// Inputs of all kinds that left no event, because their order has enough of them.
	Dropped int
	// Held inputs wait for the release of their order.
	PutAside, Forwarded, Held int

	// Panicked is how often deciding did.
	Panicked int
}

// Count is one of the counts, with its name.
type Count struct {
	Name string
	N    int
}

// Figures are all counts.
func (a *Accounts) Figures() []Count {
	return []Count{
		{"records on the inputs", a.Inputs},
		{"orders accepted", a.Accepted},
		{"orders rejected", a.Rejected},
		{"submissions again", a.Known},
		{"submissions in conflict", a.Conflicts},
		{"replies that did something", a.Replied},
		{"replies discarded", a.Discarded},
		{"commands done", a.Acted},
		{"commands refused", a.Refused},
		{"commands that came again", a.Repeated},
		{"signals heard or kept", a.Heard},
		{"signals discarded", a.Unheard},
		{"words of other orders that did something", a.Told},
		{"words of other orders that changed nothing", a.Moot},
		{"inputs without an event", a.Dropped},
		{"dead letters", a.PutAside},
		{"forwarded", a.Forwarded},
		{"held", a.Held},
	}
}

func (a *Accounts) String() string {
	var all []string
	for _, c := range a.Figures() {
		all = append(all, fmt.Sprint(c.N, " ", c.Name))
	}
	return strings.Join(all, ", ")
}

// Settle holds the inputs of a namespace against the journal, the dead letters
// and what was forwarded: each submission, reply and command was taken once, in
// turn, and led to what it says; or it was refused for a reason that holds. What
// is not so is reported.
//
// The topics may be too large to be held: of what waits for its counterpart a
// fingerprint is kept.
func Settle(k Kafka, report func(format string, args ...any)) *Accounts {
	s := &settlement{
		Kafka: k, report: report,
		read: make(map[int32]events.Positions), upTo: make(map[int32]int64), transaction: make(map[int32]uint64),
		letters: make(map[place]letter), aside: make(map[string]*origin), away: make(map[place]fingerprint), copies: make(map[place]fingerprint),
		orders: make(map[string]*account), illegible: make(map[string]bool), orphans: make(map[int32][]orphan),
		tooNew: make(map[int32][]newer),
		format: make(map[int32]int), decidedIn: make(map[int32]int), behind: make(map[int32]events.Positions), full: make(map[int32]map[*account]bool), talks: make(map[int32]map[*account]bool), dropped: make(map[int32]int), either: make(map[int32]int), back: make(map[gave]bool), wentBack: make(map[passedTo]bool), unwanted: make(map[asked]bool), noPlace: make(map[asked]bool),
	}
	s.readPositions()
	for r := range k.Read(k.Topics.DeadLetters) {
		s.letter(r)
	}
	for _, begins := range []bool{true, false} { // an order first, and then what is said to it
		for _, topic := range k.Topics.Inputs() {
			if begins != (topic == k.Topics.Orders || topic == k.Topics.Internal) {
				continue
			}
			for r := range k.Read(topic) {
				s.input(r)
			}
		}
	}
	for r := range k.Read(k.Topics.Journal) {
		s.journal(r)
	}
	s.close()
	return &s.Accounts
}

// settlement is what is known while the topics are read.
type settlement struct {
	Kafka
	Accounts
	report func(format string, args ...any)

	read        map[int32]events.Positions // how far each partition's inputs were
	upTo        map[int32]int64            // the first record of each journal that is of no account
	transaction map[int32]uint64           // the last that began

	letters map[place]letter
	aside   map[string]*origin // of each dead letter, by where that stands
	// Of what was forwarded, the originals and the copies that have not met.
	away, copies map[place]fingerprint
	orders       map[string]*account
	illegible    map[string]bool // ids under which something stands on the orders that cannot be read
	orphans      map[int32][]orphan
	tooNew       map[int32][]newer // what was put aside since the partition was of an older format

	format map[int32]int // of each partition
	// decidedIn is the format that it had when the transaction began that is read, and behind what inputs the ones before were.
	decidedIn map[int32]int
	behind    map[int32]events.Positions
	full      map[int32]map[*account]bool // the orders that drop inputs
	talks     map[int32]map[*account]bool // the orders that others tell something
	back      map[gave]bool               // signals under keys that went back
	wentBack  map[passedTo]bool           // the same, by whom they were for
	unwanted  map[asked]bool              // places that went back without an event of their order
	noPlace   map[asked]bool              // that were asked for, and are not there
	dropped   map[int32]int               // inputs, in the transaction that is read
	either    map[int32]int               // that may have been dropped, or came again
	doubted   bool                        // the clock by which the event was decided that is read
}

// readPositions reads how far the inputs were read. What comes to the journal
// later is left alone: the inputs from which it follows may not be seen.
func (s *settlement) readPositions() {
	for r := range s.Read(s.Topics.Journal) {
		s.upTo[r.Partition] = r.Offset + 1
		if header := events.HeaderValue(r, events.HeaderLane); header != nil {
			seal, err := events.DecodeSeal(header)
			if err != nil {
				s.report("%s: %v", placeOf(r), err)
			} else if seal.Transaction > 0 {
				s.read[r.Partition] = seal.Next.Over(s.read[r.Partition])
			}
		}
	}
}

// next is where reading of a topic goes on.
func (s *settlement) next(topic string, in events.Positions) int64 {
	input, _ := s.Topics.Input(topic)
	return in.At(input)
}

// until is up to where a partition of a topic was read: by its own lane, or by another's
// if it was added.
func (s *settlement) until(topic string, partition int32) int64 {
	if own, ok := s.read[partition]; ok {
		return s.next(topic, own)
	}
	input, _ := s.Topics.Input(topic)
	for _, of := range s.read {
		if next := of.Of(input, partition); next >= 0 {
			return next
		}
	}
	return 0
}

// input takes a record of an input topic.
func (s *settlement) input(r *kgo.Record) {
	at := placeOf(r)
	if from, err := parsePlace(events.Header(r, "waybill_forwarded_from")); err == nil && from.input(s.Topics) {
		s.copied(from, r)
	}
	if r.Offset >= s.until(r.Topic, r.Partition) {
		if s.Rest {
			s.report("%s was not read", at)
		}
		delete(s.letters, at)
		return
	}
	if from := events.Header(r, "waybill_replayed_from"); from != "" {
		s.putBack(from, r)
	}
	s.Inputs++
	l, aside := s.letters[at]
	if l.batch {
		s.PutAside++
		delete(s.letters, at)
		if events.Size(r) < events.MaxDecompressed {
			s.report("%s was put aside unread, and it has %d bytes", at, events.Size(r))
		}
		return
	}
	m := read(r, s.Topics)
	if aside {
		s.PutAside++
		delete(s.letters, at)
		if other := l.other(fingerprintOf(r)); other != "" {
			s.report("%s was put aside with %s", at, other)
		}
		if l.part && events.Size(r) < events.MaxValue {
			s.report("%s was put aside in part, and it has %d bytes", at, events.Size(r))
		}
	}
	strange := m.order != "" && s.Partition(m.order) != r.Partition
	switch {
	case strange && !aside:
		s.Forwarded++
		s.leaves(at, fingerprintOf(r), len(r.Key) == 0)
	case strange:
		if !strings.HasPrefix(l.reason, "it is in the wrong partition, and cannot be forwarded: ") || events.Size(r) < events.MaxValue {
			s.report("%s belongs to partition %d, and was put aside: %s", at, s.Partition(m.order), l.reason)
		}
	case m.unreadable != "" && !aside:
		s.report("%s was taken: %s", at, m.unreadable)
	case m.unreadable != "":
		if l.reason == "" || l.reason == noOrder {
			s.report("%s cannot be read: %s; it was put aside: %s", at, m.unreadable, l.reason)
		}
		if r.Topic == s.Topics.Orders {
			s.illegible[string(r.Key)] = true
		}
	case aside && events.OwnID(m.order) && m.submission != nil && strings.HasPrefix(l.reason, ownID): // others are
	case aside && (l.reason == noOrder || l.reason == noSchedule || l.reason == noLimit):
		s.orphan(r, &m)
	case aside && m.command != nil && strings.HasPrefix(l.reason, "limits are of format 9, "):
	case aside && m.command != nil && m.command.do == events.CommandApply && strings.HasPrefix(l.reason, "schedules"+olderFormat),
		aside && m.signal != nil && m.signal.keyed && strings.HasPrefix(l.reason, "signals under keys"+olderFormat):
		s.tooNew[r.Partition] = append(s.tooNew[r.Partition], newer{at, events.SchedulesFormat})
	case aside && m.signal != nil && m.signal.keyed && strings.HasPrefix(l.reason, "signals that start orders are of format 9, "):
		s.tooNew[r.Partition] = append(s.tooNew[r.Partition], newer{at, events.StartFormat})
	case aside && l.reason == undecided && m.early() && s.illegible[m.order] && s.orders[m.order] == nil: // and never will be
	case aside && l.reason == undecided && m.early() && s.orders[m.order] != nil:
		s.orphans[r.Partition] = append(s.orphans[r.Partition], orphan{s.orders[m.order], at})
	case aside && l.reason == untold && m.early():
		if a := s.orders[m.order]; a != nil {
			s.orphans[r.Partition] = append(s.orphans[r.Partition], orphan{a, at})
		}
	default:
		s.expect(r, &m, l.reason)
	}
}

// early says that it waits for its order, if that may still come.
func (m *message) early() bool { return m.command != nil || m.signal != nil }

// noOrder is why a reply, a command or a signal is put aside that came before its order.
const noOrder = "there is no order of this id"

// noSchedule is why one is put aside that is for a schedule which was not applied.
const noSchedule = "there is no schedule of this name"

// noLimit is the same of a limit.
const noLimit = "there is no limit of this name"

// olderFormat is why something is put aside that the partition's format does not have yet.
const olderFormat = " are of format 8, "

// ownID begins why a submission is put aside whose id only an order may have that does a step of
// another.
const ownID = "ids that begin with @ "

// undecided is why a command is put aside whose order's submission waits for too long.
const undecided = "the submission of its order is not decided: what it needs is not known yet"

// untold is why a command is put aside of which Kafka does not tell whether its order's
// submission is still to come.
const untold = "nobody can tell whether the submission of its order is still to come: where the orders end is not known"

// newer is an input that a partition's format does not have before a later one.
type newer struct {
	place
	format int
}

// orphan is an input of an order that was not there yet, but was there later.
type orphan struct {
	*account
	place
}

func (s *settlement) orphan(r *kgo.Record, m *message) {
	a := s.orders[m.order]
	switch {
	case m.submission != nil:
		s.report("%s was put aside: %s", placeOf(r), noOrder)
	case a == nil: // and never will be
	case m.early() && events.ScheduleOf(m.order) == "" && events.LimitOf(m.order) == "" && !a.home() && !a.scheduled() && s.Came != nil && a.came < s.Came(r): // others wait for nothing
		s.report("%s was put aside: %s, and the submission of order %q came before it", placeOf(r), noOrder, m.order)
	default:
		s.orphans[r.Partition] = append(s.orphans[r.Partition], orphan{a, placeOf(r)})
	}
}

// home says that it has the signals or the turns of a key: it is forgotten, and begins anew.
func (a *account) home() bool { return events.IsCorrelation(a.id) || events.IsTurn(a.id) }

// scheduled says that a schedule begins the order, of which nothing is left once it is forgotten. Until then
// the journal tells, as of all orders: see sealed.
func (a *account) scheduled() bool {
	for _, w := range a.kin.words {
		if w.wish != nil && events.ScheduleOf(w.wish.Parent) != "" {
			return true
		}
	}
	return false
}

// sealed looks at the inputs that a transaction passed: to those that found no
// order none can have been there before it.
func (s *settlement) sealed(partition int32, next events.Positions) {
	s.tooNew[partition] = slices.DeleteFunc(s.tooNew[partition], func(n newer) bool {
		passed := n.offset < s.next(n.topic, next)
		if passed && s.decidedIn[partition] >= n.format {
			s.report("%s was put aside, and the partition was of format %d", n.place, s.decidedIn[partition])
		}
		return passed
	})
	left := s.orphans[partition][:0]
	for _, o := range s.orphans[partition] {
		born := o.born
		if o.home() {
			born = o.seen
		}
		switch {
		case o.offset >= s.next(o.topic, next):
			left = append(left, o)
		case o.gone: // nothing is known of it
		case born > 0 && born < s.transaction[partition]:
			s.report("%s was put aside: %s, and the journal has it", o.place, noOrder)
		}
	}
	if len(left) == 0 {
		delete(s.orphans, partition)
	} else {
		s.orphans[partition] = left
	}
}

// expect notes what an input must lead to. Reason is why it was put aside, if it
// was.
func (s *settlement) expect(r *kgo.Record, m *message, reason string) {
	a := s.orders[m.order]
	if a == nil {
		if m.forgets() {
			return // what it would be done to never began
		}
		if !m.begins() {
			s.report("%s is of order %q, which nobody submitted", placeOf(r), m.order)
			return
		}
		a = &account{id: m.order, partition: r.Partition, first: m.submission}
		if s.full[a.partition] == nil {
			s.full[a.partition] = make(map[*account]bool)
		}
		if s.Came != nil {
			a.came = s.Came(r)
		}
		if m.submission != nil && !s.schematic(m.submission) {
			m.submission.Input = nil // its fingerprint is enough
		}
		s.orders[m.order] = a
	}
	in := entry{offset: r.Offset, aside: hash([]byte(reason))}
	switch {
	case m.submission != nil:
		a.submissions = append(a.submissions, another{in, m.submission.digest, m.submission.ReplyTo})
	case m.reply != nil:
		a.replies = append(a.replies, reply{in, *m.reply, r.Timestamp.UnixMilli(), r.Attrs})
	case m.command != nil:
		a.commands = append(a.commands, command{in, *m.command})
	case m.signal != nil:
		if a.signals == nil {
			a.signals = make(map[int64]*heard)
		}
		m.signal.entry = in
		a.signals[r.Offset] = m.signal
	case m.word != nil:
		if a.kin.words == nil {
			a.kin.words = make(map[int64]*word)
		}
		m.word.entry, m.word.again = in, events.Header(r, "waybill_replayed_from") != ""
		if w := m.word.want; w != nil && w.Want == events.WantUnheard {
			s.back[gave{w.Correlation, w.Given}] = true
			s.wentBack[passedTo{asked{w.Correlation, w.Order, w.Wait}, w.SignalID}] = true
		}
		if b := m.word.bid; b != nil && b.Bid == events.BidUnwanted {
			s.unwanted[asked{b.Home, b.Order, b.Wait}] = true
		}
		if g := m.word.grant; g != nil && g.Error != nil {
			s.noPlace[asked{g.Home, g.Order, g.Wait}] = true
		}
		a.kin.words[r.Offset] = m.word
		if s.talks[a.partition] == nil {
			s.talks[a.partition] = make(map[*account]bool)
		}
		s.talks[a.partition][a] = true
	}
}

// quiet lists the events to which no input leads.
var quiet = map[events.Type]bool{
	events.StepStarted: true, events.StepExpired: true, events.StepRetried: true, events.UndoExpired: true, events.UndoRetried: true,
	events.AlertRaised:      true,
	events.PartitionClaimed: true, events.PartitionAdvanced: true,
}

// ofAttempts are the events with which attempts begin and expire.
var ofAttempts = map[events.Type]bool{
	events.StepStarted: true, events.StepExpired: true, events.UndoStarted: true, events.UndoExpired: true,
}

// journal takes a record of the journal.
func (s *settlement) journal(r *kgo.Record) {
	if r.Offset >= s.upTo[r.Partition] {
		return
	}
	if s.transaction[r.Partition] == 0 {
		s.transaction[r.Partition] = 1
	}
	s.event(r)
	if header := events.HeaderValue(r, events.HeaderLane); header != nil {
		if seal, err := events.DecodeSeal(header); err == nil && seal.Transaction > 0 {
			s.sealed(r.Partition, seal.Next)
			s.passed(r.Partition, &seal)
			s.behind[r.Partition] = seal.Next
			for a := range s.talks[r.Partition] {
				s.passWords(a, s.next(s.Topics.Internal, seal.Next))
			}
		}
		s.transaction[r.Partition]++
		s.decidedIn[r.Partition] = s.format[r.Partition]
	}
}

func (s *settlement) event(r *kgo.Record) {
	kind := events.Type(events.Header(r, events.HeaderType))
	if len(r.Key) == 0 {
		s.raised(r, kind)
		return
	}
	a := s.orders[string(r.Key)]
	if a == nil {
		if kind == events.OrderAccepted || kind == events.OrderRejected {
			s.report("%s: order %q came from no submission", placeOf(r), r.Key)
		}
		return
	}
	if r.Partition != a.partition {
		s.report("%s is of order %q, which lives in partition %d", placeOf(r), a.id, a.partition)
	}
	if quiet[kind] && (s.InTime == nil || !ofAttempts[kind]) {
		s.due(a, &events.Event{Type: kind})
		return
	}
	e, err := events.Decode[events.Event](r.Value)
	if err != nil || e.Order != a.id || e.Type != kind {
		s.report("%s is %s of order %q, and says %s of order %q: %v", placeOf(r), kind, a.id, e.Type, e.Order, err)
		return
	}
	a.seen = cmp.Or(a.seen, s.transaction[a.partition])
	s.doubted = oracle.Doubted(r, &e, s.Jumps)
	s.due(a, &e)
	as := a.names.Of(&e)
	s.attempted(a, as, r.Offset)
	s.follows(a, as)
}

// raised follows the format of a partition.
func (s *settlement) raised(r *kgo.Record, kind events.Type) {
	if kind != events.PartitionClaimed && kind != events.PartitionRaised {
		return
	}
	e, err := events.Decode[events.Event](r.Value)
	if err != nil {
		s.report("%s: %v", placeOf(r), err)
	}
	s.format[r.Partition] = max(s.format[r.Partition], e.Format)
}

// close says what is missing.
func (s *settlement) close() {
	for at := range s.letters {
		s.report("a dead letter is from %s, where nothing is", at)
	}
	for at := range s.copies {
		if at.offset < s.until(at.topic, at.partition) {
			s.report("something was forwarded from %s, where nothing is that belongs elsewhere", at)
		}
	}
	for at := range s.away {
		s.report("%s belongs to another partition, and was not forwarded", at)
	}
	for _, n := range s.either {
		s.Repeated += n
	}
	for p, n := range s.dropped {
		if n > 0 {
			s.report("after the last transaction of partition %d %d inputs were dropped", p, n)
		}
	}
	for _, a := range s.orders {
		s.due(a, &events.Event{})
		if a.born == 0 && len(a.submissions) == 0 {
			s.passWords(a, math.MaxInt64)
			s.closeSignals(a)
			continue
		}
		s.passWords(a, math.MaxInt64)
		if a.born == 0 {
			s.report("%s came to nothing", s.at(a, s.Topics.Orders, a.submissions[0].entry))
		} else {
			s.pass(a, math.MaxInt64)
		}
		for _, r := range a.replies {
			if r.said.progress {
				continue
			}
			s.report("%s came to nothing: %s", s.at(a, s.Topics.Replies, r.entry), &r.said)
		}
		s.closeSignals(a)
		s.again(a, math.MaxInt64, nil)
		for _, c := range a.commands {
			s.report("%s came to nothing: %s", s.at(a, s.Topics.Commands, c.entry), &c.told)
		}
		for _, w := range a.kin.words {
			s.Held++
			if !a.held {
				s.report("%s waits, and order %q is not held", s.at(a, s.Topics.Internal, w.entry), a.id)
			}
		}
		s.Held += len(a.waiting)
		for _, w := range a.waiting {
			if !a.held {
				s.report("%s waits, and order %q is not held", w.place, a.id)
			}
		}
	}
}

// at is where an input of an order stands.
func (s *settlement) at(a *account, topic string, in entry) place {
	return place{topic, a.partition, in.offset}
}

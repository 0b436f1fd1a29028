// Package audit holds everything that a namespace has on Kafka against the
// rules of the oracle: what every suite does at its end.
package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/test/oracle"
)

// Books are what was found, order by order.
type Books struct {
	Histories map[string][]events.Event
	Messages  map[string]*oracle.Messages
	Ledgers   map[string]*oracle.Ledger
	Accounts  *Accounts
	Repeated  []*kgo.Record // messages that were passed over; see [Audit.Twice]
	Gone      int           // requests that were; see [Audit.Forgetful]
}

// Audit says how a namespace is audited.
type Audit struct {
	// Rest says that nothing is being decided any more: no order may be stuck, and
	// every input that is there must come to be read.
	Rest bool
	// Callers are the topics that orders name for their status messages.
	Callers []string
	// Twice says that Kafka may have lost the end of a transaction that was
	// acknowledged: then callers' topics and alerts may tell what was decided
	// again, at another time.
	Twice bool
	// Wrong, if it is there, is how wrong the clocks may be of who began an attempt, and
	// of who let it expire.
	Wrong func(x *Expiry) time.Duration
	// Keys, if they are there, are those under which requests got their tokens and acts were signed, whatever the
	// setting: see [Kafka.Keys].
	Keys *proof.Keys
	// Refusing are callers' topics that took no status messages for a while.
	Refusing []string
	// Forgetful are topics of requests that were deleted, and made again: what they had
	// before is gone.
	Forgetful []string
	// Foreign says that others than lanes write where orders tell each other something. That need not have been sent.
	Foreign bool
}

// inTime says whether a reply was surely there before its attempt ended: by Kafka's
// clock, and not in a transaction, whose end nobody knows.
func (a Audit) inTime(reply *kgo.Record, x *Expiry) bool {
	late := time.Second // to be seen by those who ask where the replies end
	if a.Wrong != nil {
		late += a.Wrong(x)
	}
	return oracle.Stamped(reply) && !reply.Attrs.IsTransactional() && reply.Timestamp.Add(late).Before(x.End)
}

// Namespace reads all topics of a namespace, and the callers' own, and fails t
// for every rule that is broken: by the journal as a whole, by the history of an
// order, or by the requests, status messages and alerts that left on account of
// it. Of each kind every one was sent once, in order and to where it belongs, and
// none is missing. Every input is accounted for, as [Settle] does.
func (a Audit) Namespace(t testing.TB, brokers []string, topics *events.Topics) *Books {
	t.Helper()
	n := open(t, brokers, topics)
	defer n.reader.Close()
	if a.Rest {
		n.untilRead()
		if len(a.Callers) > 0 {
			n.untilDelivered(func(topic string) bool { return slices.Contains(a.Callers, topic) })
		}
	}
	b := n.books(a)
	k := n.kafka()
	k.InTime, k.Keys = a.inTime, a.Keys
	b.Accounts = Settle(k, n.reporting())
	return b
}

// Namespace is the audit of a namespace about which there is nothing special.
func Namespace(t testing.TB, brokers []string, topics *events.Topics, rest bool, callers ...string) *Books {
	t.Helper()
	return Audit{Rest: rest, Callers: callers}.Namespace(t, brokers, topics)
}

// books holds the journal and the messages against the rules.
func (n *namespace) books(a Audit) *Books {
	n.Helper()
	b := &Books{Histories: make(map[string][]events.Event), Messages: make(map[string]*oracle.Messages), Ledgers: make(map[string]*oracle.Ledger)}
	var at *kgo.Record
	format := make(map[int32]int) // of each partition
	records := func(yield func(*kgo.Record) bool) {
		for at = range n.records(n.topics.Journal) {
			if !yield(at) {
				return
			}
		}
	}
	for e := range oracle.Journal(n, records) {
		format[at.Partition] = max(format[at.Partition], e.Format)
		if e.Order == "" {
			continue
		}
		l := b.Ledgers[e.Order]
		if l == nil {
			l = oracle.NewLedger(e.Order, n.flow)
			b.Ledgers[e.Order] = l
		}
		l.Format, l.Doubted = format[at.Partition], oracle.Doubted(at, e, false)
		if err := l.Add(e); err != nil {
			n.Error(err)
		}
		b.Histories[e.Order] = append(b.Histories[e.Order], *e)
	}

	var sent []*kgo.Record
	report := n.reporting()
	for _, topic := range slices.Concat(n.requestTopics(), a.Callers, []string{n.topics.Status, n.topics.Alerts, n.topics.Internal}) {
		callers := slices.Contains(a.Callers, topic)
		records := slices.DeleteFunc(slices.Collect(n.records(topic)), func(r *kgo.Record) bool {
			return Copied(r) || callers && oracle.Emitted(r) || Returned(r) || a.Foreign && topic == n.topics.Internal && foreign(r)
		})
		if a.Twice && (topic == n.topics.Alerts || callers) {
			records = slices.DeleteFunc(records, b.undone)
		}
		if topic == n.topics.Alerts && !a.Twice {
			for _, wrong := range Calls(records, a.Wrong == nil) {
				report("%s", wrong)
			}
		}
		records, err := oracle.InOrder(records, callers)
		if err != nil {
			n.Error(err)
		}
		for _, r := range records {
			if why := b.misplaced(r, n.topics, n.partition); why != "" {
				report("%s", why)
			}
			if why := Token(r, a.Keys, n.topics); why != "" {
				report("%s", why)
			}
		}
		sent = append(sent, records...)
	}
	slices.SortStableFunc(sent, func(a, b *kgo.Record) int { return cmp.Compare(oracle.Number(a), oracle.Number(b)) })
	sent = oracle.AtLeastOnce(sent, n.topics.Status)
	if err := oracle.Sort(b.Messages, n.topics, sent); err != nil {
		n.Fatal(err)
	}
	n.emitted(b)
	gone, count := a.forgotten(b.Histories, sent, n.topics)
	b.Gone = count
	for id, history := range b.Histories {
		for _, wrong := range a.refusedForNothing(history, n.topics, func(topic string) bool { return n.partitions[topic] > 0 }) {
			report("%s", wrong)
		}
		if b.Messages[id] == nil {
			b.Messages[id] = new(oracle.Messages)
		}
		b.Messages[id].Gone, b.Messages[id].Old, b.Messages[id].Older = gone[id], b.Ledgers[id].Old, b.Ledgers[id].Older
		if err := oracle.CheckMessages(history, b.Messages[id]); err != nil {
			n.Error(err)
		}
		if a.Rest {
			if err := b.Ledgers[id].Rest(); err != nil {
				n.Error(err)
			}
		}
	}
	families := oracle.Families{
		Order: func(id string) []events.Event { return b.Histories[id] },
		Bare:  func(id string) bool { l := b.Ledgers[id]; return l != nil && l.Bare > 0 },
		Older: func(id string) uint64 {
			if l := b.Ledgers[id]; l != nil {
				return l.Older
			}
			return 0
		},
		Find: n.flow, Quiet: func(string) bool { return a.Rest },
	}
	for id := range b.Histories {
		if err := families.Check(id); err != nil {
			n.Error(err)
		}
	}
	for id := range b.Messages {
		if id != "" && b.Histories[id] == nil {
			n.Errorf("messages about order %q, which the journal does not have", id)
		}
	}
	return b
}

// Returned says that a record answers what was read, as a signal under a key that goes back: it follows from no event.
func Returned(r *kgo.Record) bool {
	kinds := []events.Type{events.SignalWanted, events.PlaceWanted, events.PlaceGiven, events.ChildReported, events.ChildWanted}
	return slices.Contains(kinds, events.Type(events.Header(r, events.HeaderType))) && strings.HasSuffix(events.Header(r, "ce_id"), "/back")
}

// Forwarded says that a lane wrote a record where its order lives, since it stood elsewhere.
func Forwarded(r *kgo.Record) bool { return events.Header(r, "waybill_forwarded_from") != "" }

// foreign says that a record is of no lane: these write in transactions.
func foreign(r *kgo.Record) bool { return !r.Attrs.IsTransactional() }

// Copied says that a record was there before: it was forwarded, or put back by somebody who found it among the dead
// letters.
func Copied(r *kgo.Record) bool {
	return Forwarded(r) || events.Header(r, "waybill_replayed_from") != ""
}

// emitted holds what topics of users' have of events of theirs against the histories.
func (n *namespace) emitted(b *Books) {
	n.Helper()
	topics := make(map[string]bool)
	for _, history := range b.Histories {
		for i := range history {
			if history[i].Type == events.StepEmitting {
				topics[history[i].Topic] = true
			}
		}
	}
	var records []*kgo.Record
	for topic := range topics {
		if n.partitions[topic] == 0 {
			continue // which has been refused
		}
		for r := range n.records(topic) {
			if oracle.Emitted(r) {
				records = append(records, r)
			}
		}
	}
	if err := oracle.CheckEmitted(b.Histories, n.topics, records); err != nil {
		n.Error(err)
	}
}

// undone says that a message tells of a decision that the journal does not have:
// what it has as that event was decided at another time.
func (b *Books) undone(r *kgo.Record) bool {
	history, seq := b.Histories[string(r.Key)], oracle.Number(r)
	gone := seq > len(history) || seq > 0 && string(events.AppendTime(nil, history[seq-1].At)) != events.Header(r, "ce_time")
	if gone {
		b.Repeated = append(b.Repeated, r)
	}
	return gone
}

// misplaced says what is wrong with where a message stands: a request is on the
// queue of its step's agent, in the partition of its order; the caller's topic
// has the status messages until it was refused, the namespace's has them from
// then on, and those that were refused; and the alerts are on theirs, where Kafka's default puts their key.
func (b *Books) misplaced(r *kgo.Record, topics *events.Topics, partition func(topic, key string) int32) string {
	id, seq := oracle.From(r), oracle.Number(r)
	history := b.Histories[id]
	if seq < 1 || seq > len(history) {
		return "" // of a partition; or nobody's, which others find
	}
	want, like := "", r.Topic
	switch e := &history[seq-1]; events.Type(events.Header(r, events.HeaderType)) {
	case events.StepRequested:
		want, like = topics.Requests(e.Agent), topics.Journal
	case events.ChildWanted, events.ChildReported, events.SignalWanted, events.SignalPassed, events.PlaceWanted, events.PlaceGiven: // its own lane takes it from there
		want, like = topics.Internal, topics.Journal
	case events.AlertRaised:
		want = topics.Alerts
	case events.OrderStatus:
		refused := func(e events.Event) bool { return e.Type == events.StatusRefused }
		want = history[0].ReplyTo
		switch { // the courier may have found out later
		case e.Type == events.SubmissionConflicted, e.Type == events.StepHeard, e.Type == events.SignalKept, e.Type == events.SignalStarted, e.Type == events.SignalDiscarded:
			if want = e.ReplyTo; want == "" || r.Topic == topics.Status { // which nobody records
				want = topics.Status
			}
		case want == "", slices.ContainsFunc(history[:seq], refused), r.Topic == topics.Status && slices.ContainsFunc(history, refused):
			want = topics.Status
		}
	}
	switch {
	case r.Topic != want:
		return fmt.Sprintf("order %q: the message of event %d is on %s, and belongs on %s", id, seq, r.Topic, want)
	case r.Partition != partition(like, id):
		return fmt.Sprintf("order %q: the message of event %d is in partition %d of %s, and belongs in %d", id, seq, r.Partition, r.Topic, partition(like, id))
	}
	return ""
}

// Token says what is wrong with the token of a request, by the keys, nil if they are not known. Whether it must have one is for the
// journal to say.
func Token(r *kgo.Record, keys *proof.Keys, topics *events.Topics) (wrong string) {
	if keys == nil || events.Type(events.Header(r, events.HeaderType)) != events.StepRequested {
		return ""
	}
	asks, err := events.Decode[events.Request](r.Value)
	if err != nil || asks.Token != "" && !keys.Repeats(&proof.Attempt{
		Namespace: topics.Namespace, Order: asks.Order, Step: asks.Step, Number: asks.Attempt, Undo: asks.Undo, Agent: topics.Agent(r.Topic),
	}, asks.Token) {
		return fmt.Sprintf("%s has a token that is not its own: %s, %v", placeOf(r), r.Value, err)
	}
	return ""
}

// Count says how many events of an order are as wanted.
func (b *Books) Count(order string, wanted func(*events.Event) bool) int {
	n := 0
	for i := range b.Histories[order] {
		if wanted(&b.Histories[order][i]) {
			n++
		}
	}
	return n
}

// Commands says how often a command was acted on: how often the order's history names it, and once where it does not and
// the order has refused so many, a hundred, that it leaves most out.
func (b *Books) Commands(order, id string) int {
	n, refused := 0, 0
	for i := range b.Histories[order] {
		e := &b.Histories[order][i]
		if e.Command == id {
			n++
		}
		if e.Type == events.CommandRefused {
			refused = max(refused, e.Count)
		}
	}
	if n == 0 && refused >= 100 {
		return 1
	}
	return n
}

// Statuses are the words that the caller heard, in order.
func (b *Books) Statuses(order string) string {
	var words []string
	if m := b.Messages[order]; m != nil {
		for i := range m.Statuses {
			words = append(words, m.Statuses[i].Status)
		}
	}
	return strings.Join(words, " ")
}

// String tells how much there is.
func (b *Books) String() string {
	kinds := make(map[events.Type]int)
	for _, history := range b.Histories {
		for i := range history {
			kinds[history[i].Type]++
		}
	}
	return fmt.Sprintf("%d orders, %v; %v", len(b.Histories), kinds, b.Accounts)
}

// Package audit holds everything that a namespace has on Kafka against the
// rules of the oracle: what every suite does at its end.
package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/oracle"
)

// Books are what was found, order by order.
type Books struct {
	Histories map[string][]events.Event
	Messages  map[string]*oracle.Messages
	Ledgers   map[string]*oracle.Ledger
	Accounts  *Accounts // nil if it was left out
}

// Namespace reads all topics of a namespace, and the callers' own, and fails t
// for every rule that is broken: by the journal as a whole, by the history of an
// order, or by the requests, status messages and alerts that left on account of
// it. Of each kind every one was sent once, in order and to where it belongs, and
// none is missing. Rest says that nothing is being decided any more: then no
// order may be stuck. Every input is accounted for, as [Settle] does; at rest it
// waits until all are read.
func Namespace(t testing.TB, brokers []string, topics *events.Topics, rest bool, callers ...string) *Books {
	t.Helper()
	n := open(t, brokers, topics)
	if rest {
		n.untilRead()
	}
	b := n.books(rest, callers)
	b.Accounts = Settle(n.kafka(), n.reporting())
	return b
}

// Unsettled is [Namespace] without the inputs, for the reason that is given.
func Unsettled(t testing.TB, why string, brokers []string, topics *events.Topics, rest bool, callers ...string) *Books {
	t.Helper()
	t.Logf("the inputs are not accounted for: %s", why)
	return open(t, brokers, topics).books(rest, callers)
}

// books holds the journal and the messages against the rules.
func (n *namespace) books(rest bool, callers []string) *Books {
	n.Helper()
	b := &Books{Histories: make(map[string][]events.Event), Messages: make(map[string]*oracle.Messages), Ledgers: make(map[string]*oracle.Ledger)}
	for e := range oracle.Journal(n, n.records(n.topics.Journal)) {
		if e.Order == "" {
			continue
		}
		l := b.Ledgers[e.Order]
		if l == nil {
			l = oracle.NewLedger(e.Order, n.flow)
			b.Ledgers[e.Order] = l
		}
		if err := l.Add(e); err != nil {
			n.Error(err)
		}
		b.Histories[e.Order] = append(b.Histories[e.Order], *e)
	}

	var sent []*kgo.Record
	report := n.reporting()
	for _, topic := range append(n.requestTopics(), append(callers, n.topics.Status, n.topics.Alerts)...) {
		records := slices.Collect(n.records(topic))
		inOrder(n, records)
		for _, r := range records {
			if why := b.misplaced(r, n.topics, n.partition); why != "" {
				report("%s", why)
			}
		}
		sent = append(sent, records...)
	}
	slices.SortStableFunc(sent, func(a, b *kgo.Record) int { return cmp.Compare(number(a), number(b)) })
	if err := oracle.Sort(b.Messages, sent); err != nil {
		n.Fatal(err)
	}
	for id, history := range b.Histories {
		if err := oracle.CheckMessages(history, b.Messages[id]); err != nil {
			n.Error(err)
		}
		if rest {
			if err := b.Ledgers[id].Rest(); err != nil {
				n.Error(err)
			}
		}
	}
	for id := range b.Messages {
		if id != "" && b.Histories[id] == nil {
			n.Errorf("messages about order %q, which the journal does not have", id)
		}
	}
	return b
}

// misplaced says what is wrong with where a message stands: a request is on the
// queue of its step's agent, in the partition of its order; the caller's topic
// has the status messages until it was refused, the namespace's has them from
// then on; and the alerts are on theirs, where Kafka's default puts their key.
func (b *Books) misplaced(r *kgo.Record, topics *events.Topics, partition func(topic, key string) int32) string {
	id, seq := string(r.Key), number(r)
	history := b.Histories[id]
	if seq < 1 || seq > len(history) {
		return "" // of a partition; or nobody's, which others find
	}
	want, like := "", r.Topic
	switch e := &history[seq-1]; events.Type(events.Header(r, events.HeaderType)) {
	case events.StepRequested:
		want, like = topics.Requests(e.Agent), topics.Journal
	case events.AlertRaised:
		want = topics.Alerts
	case events.OrderStatus:
		refused := func(e events.Event) bool { return e.Type == events.StatusRefused }
		if want = history[0].ReplyTo; want == "" || slices.ContainsFunc(history[:seq], refused) {
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

// inOrder wants that what a topic says of an order comes in the order of its
// history, and once.
func inOrder(t testing.TB, records []*kgo.Record) {
	t.Helper()
	last := make(map[string]int)
	for _, r := range records {
		if len(r.Key) == 0 {
			continue
		}
		n := number(r)
		if before := last[string(r.Key)]; n <= before {
			t.Errorf("%s: order %s: the message of event %d follows that of event %d", r.Topic, r.Key, n, before)
		}
		last[string(r.Key)] = n
	}
}

// number is that of the journal event from which a message follows.
func number(r *kgo.Record) int {
	id := strings.TrimPrefix(events.Header(r, "ce_id"), string(r.Key)+"/")
	digits, _, _ := strings.Cut(id, "/")
	n, _ := strconv.Atoi(digits) // 0 for what is about a partition
	return n
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

// Commands says how often an order's history names a command.
func (b *Books) Commands(order, id string) int {
	return b.Count(order, func(e *events.Event) bool { return e.Command == id })
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

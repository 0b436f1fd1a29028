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

	"github.com/twmb/franz-go/pkg/kadm"
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
// it. Of each kind every one was sent once, in order, and none is missing. Rest
// says that nothing is being decided any more: then no order may be stuck. Every
// input is accounted for, as [Settle] does; at rest it waits until all are read.
func Namespace(t testing.TB, brokers []string, topics *events.Topics, rest bool, callers ...string) *Books {
	t.Helper()
	k := onBrokers(t, brokers, topics)
	if rest {
		untilRead(t, k)
	}
	b := Unsettled(t, "", brokers, topics, rest, callers...)
	b.Accounts = Settle(k, reporting(t))
	return b
}

// Unsettled is [Namespace] without the inputs, for the reason that is given.
func Unsettled(t testing.TB, why string, brokers []string, topics *events.Topics, rest bool, callers ...string) *Books {
	t.Helper()
	if why != "" {
		t.Logf("the inputs are not accounted for: %s", why)
	}
	find, err := oracle.Flows(oracle.Read(t, brokers, topics.Workflows))
	if err != nil {
		t.Fatal(err)
	}
	b := &Books{Histories: make(map[string][]events.Event), Messages: make(map[string]*oracle.Messages), Ledgers: make(map[string]*oracle.Ledger)}
	for e := range oracle.Journal(t, oracle.Records(t, brokers, topics.Journal)) {
		if e.Order == "" {
			continue
		}
		l := b.Ledgers[e.Order]
		if l == nil {
			l = oracle.NewLedger(e.Order, find)
			b.Ledgers[e.Order] = l
		}
		if err := l.Add(e); err != nil {
			t.Error(err)
		}
		b.Histories[e.Order] = append(b.Histories[e.Order], *e)
	}

	var sent []*kgo.Record
	for _, topic := range append(requestTopics(t, brokers, topics), append(callers, topics.Status, topics.Alerts)...) {
		records := oracle.Read(t, brokers, topic)
		inOrder(t, records)
		sent = append(sent, records...)
	}
	slices.SortStableFunc(sent, func(a, b *kgo.Record) int { return cmp.Compare(number(a), number(b)) })
	if err := oracle.Sort(b.Messages, sent); err != nil {
		t.Fatal(err)
	}
	for id, history := range b.Histories {
		if err := oracle.CheckMessages(history, b.Messages[id]); err != nil {
			t.Error(err)
		}
		if rest {
			if err := b.Ledgers[id].Rest(); err != nil {
				t.Error(err)
			}
		}
	}
	for id := range b.Messages {
		if id != "" && b.Histories[id] == nil {
			t.Errorf("messages about order %q, which the journal does not have", id)
		}
	}
	return b
}

// requestTopics lists the queues of all agents.
func requestTopics(t testing.TB, brokers []string, topics *events.Topics) []string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	all, err := kadm.NewClient(client).ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all.Names(), func(name string) bool { return !strings.HasPrefix(name, topics.Requests("")) })
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

//go:build unix

package process

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/oracle"
)

// books are the topics of a namespace, from which every crash must be seen to
// have lost nothing and doubled nothing.
type books struct {
	*testing.T
	topics  *events.Topics
	brokers []string
}

// check holds the topics against the orders that were submitted to the patient
// workflow, all of which are Processed.
func (b *books) check(ids []string) {
	b.Helper()
	told := b.checkJournal()
	want := tally{
		"waybill.order.accepted": 1, "waybill.order.completed": 1,
		"waybill.step.started reserve 1": 1, "waybill.step.completed reserve 1": 1,
		"waybill.step.started charge 1": 1, "waybill.step.completed charge 1": 1,
		"waybill.step.started ship 1": 1, "waybill.step.completed ship 1": 1,
	}
	b.compare("the journal", told, ids, want)

	requests := make(map[string]tally)
	for _, agent := range []string{"inventory", "payment", "shipping"} {
		for _, r := range b.read(b.topics.Requests(agent)) {
			count(requests, string(r.Key), events.Header(r, "ce_step")+" "+events.Header(r, "ce_attempt"))
		}
	}
	b.compare("the requests", requests, ids, tally{"reserve 1": 1, "charge 1": 1, "ship 1": 1})

	status := make(map[string]tally)
	for _, r := range b.read(b.topics.Status) {
		s, err := events.Decode[events.Status](r.Value)
		if err != nil {
			b.Fatal(err)
		}
		count(status, string(r.Key), s.Status)
	}
	b.compare("the status messages", status, ids, tally{events.StatusReceived: 1, events.StatusCompleted: 1})
	b.noDeadLetters()
}

func (b *books) noDeadLetters() {
	b.Helper()
	if dead := b.read(b.topics.DeadLetters); len(dead) > 0 {
		b.Errorf("%d dead letters, the first because %s", len(dead), events.Header(dead[0], "waybill_reason"))
	}
}

// tally says how often there is what.
type tally map[string]int

func count(all map[string]tally, order, what string) {
	if all[order] == nil {
		all[order] = make(tally)
	}
	all[order][what]++
}

// compare wants the same of every order, and of no other.
func (b *books) compare(what string, have map[string]tally, ids []string, want tally) {
	b.Helper()
	wrong := 0
	report := func(id string) {
		if wrong++; wrong <= 10 {
			b.Errorf("%s of order %s: %v, want %v", what, id, have[id], want)
		}
	}
	strange := maps.Clone(have)
	for _, id := range ids {
		delete(strange, id)
		if !maps.Equal(have[id], want) {
			report(id)
		}
	}
	for id := range strange {
		report(id + ", which nobody submitted")
	}
	if wrong > 10 {
		b.Errorf("%s of %d orders are wrong", what, wrong)
	}
}

// checkJournal holds the journal against what must be true of every journal, and
// returns the events of each order, but for those of replies that came again.
func (b *books) checkJournal() map[string]tally {
	b.Helper()
	told := make(map[string]tally)
	claims, repeated := 0, 0
	for e := range oracle.Journal(b, oracle.Records(b, b.brokers, b.topics.Journal)) {
		switch {
		case e.Type == events.PartitionClaimed:
			claims++
		case e.Type == events.ReplyDiscarded:
			repeated++ // the agent had died before it noted that it had answered
		case e.Step != "":
			count(told, e.Order, fmt.Sprintf("%s %s %d", e.Type, e.Step, e.Attempt))
		case e.Order != "":
			count(told, e.Order, string(e.Type))
		}
	}
	b.Logf("the journal has %d orders, %d claims of partitions, %d replies that came again", len(told), claims, repeated)
	return told
}

// read returns the committed records of a topic up to its end of now.
func (b *books) read(topic string) []*kgo.Record {
	b.Helper()
	return oracle.Read(b, b.brokers, topic)
}

// lines are a topic's records of orders, each as its key and value.
func (b *books) lines(topic string) []string {
	b.Helper()
	var all []string
	for _, r := range b.read(topic) {
		if len(r.Key) > 0 {
			all = append(all, strings.Join([]string{string(r.Key), string(r.Value)}, " "))
		}
	}
	slices.Sort(all)
	return all
}

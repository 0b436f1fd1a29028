//go:build unix

package process

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/audit"
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
// workflow, all of which are Processed, and against all rules.
func (b *books) check(ids []string) {
	b.Helper()
	told := b.checkJournal()
	want := tally{
		"waybill.order.accepted": 1, "waybill.order.completed": 1,
		"waybill.step.started reserve 1": 1, "waybill.step.completed reserve 1": 1,
		"waybill.step.started charge 1": 1, "waybill.step.completed charge 1": 1,
		"waybill.step.started ship 1": 1, "waybill.step.completed ship 1": 1,
	}
	b.compare("the journal", told, ids, always(want))

	requests := b.requests([]string{"inventory", "payment", "shipping"})
	b.compare("the requests", requests, ids, always(tally{"reserve 1": 1, "charge 1": 1, "ship 1": 1}))

	b.compare("the status messages", b.status(), ids, always(tally{events.StatusReceived: 1, events.StatusCompleted: 1}))
	b.noDeadLetters()
	b.Log(audit.Namespace(b, b.brokers, b.topics, true))
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

// always wants the same of every order.
func always(want tally) func(string) tally { return func(string) tally { return want } }

// compare wants of every order what it must have, and nothing of any other.
func (b *books) compare(what string, have map[string]tally, ids []string, wanted func(id string) tally) {
	b.Helper()
	wrong := 0
	report := func(format string, args ...any) {
		if wrong++; wrong <= 10 {
			b.Errorf("%s of order "+format, append([]any{what}, args...)...)
		}
	}
	strange := maps.Clone(have)
	for _, id := range ids {
		delete(strange, id)
		if want := wanted(id); !maps.Equal(have[id], want) {
			report("%s: %v, want %v", id, have[id], want)
		}
	}
	for id := range strange {
		report("%s, which nobody submitted: %v", id, have[id])
	}
	if wrong > 10 {
		b.Errorf("%s of %d orders are wrong", what, wrong)
	}
}

// checkJournal holds the journal against what must be true of every journal, and
// returns the events of each order, but for those of replies that came again.
func (b *books) checkJournal() map[string]tally {
	b.Helper()
	return b.told(oracle.Journal(b, oracle.Records(b, b.brokers, b.topics.Journal)))
}

// told counts the events of each order, but for those of first attempts that waited.
func (b *books) told(all iter.Seq[*events.Event]) map[string]tally {
	b.Helper()
	told := make(map[string]tally)
	claims, repeated := 0, 0
	for e := range all {
		switch {
		case e.Type == events.PartitionClaimed:
			claims++
		case e.Type == events.ReplyDiscarded:
			repeated++ // the agent had died before it noted that it had answered
		case e.Type == events.StepRetried && e.Attempt == 1: // it waited until its agent could be asked
		case e.Step != "":
			count(told, e.Order, fmt.Sprintf("%s %s %d", e.Type, e.Step, e.Attempt))
		case e.Order != "":
			count(told, e.Order, string(e.Type))
		}
	}
	b.Logf("the journal has %d orders, %d claims of partitions, %d replies that came again", len(told), claims, repeated)
	return told
}

// requests counts the requests to agents, of each order: in all partitions, or
// only in some.
func (b *books) requests(agents []string, only ...int32) map[string]tally {
	b.Helper()
	requests := make(map[string]tally)
	for _, agent := range agents {
		for _, r := range b.read(b.topics.Requests(agent), only...) {
			count(requests, string(r.Key), events.Header(r, "ce_step")+" "+events.Header(r, "ce_attempt"))
		}
	}
	return requests
}

// status counts the status messages of each order: in all partitions, or only in
// some.
func (b *books) status(only ...int32) map[string]tally {
	b.Helper()
	status := make(map[string]tally)
	for _, r := range b.read(b.topics.Status, only...) {
		s, err := events.Decode[events.Status](r.Value)
		if err != nil {
			b.Fatal(err)
		}
		count(status, string(r.Key), s.Status)
	}
	return status
}

// read returns the committed records of a topic up to its end of now: of all
// partitions, or only of some.
func (b *books) read(topic string, only ...int32) []*kgo.Record {
	b.Helper()
	return oracle.Read(b, b.brokers, topic, only...)
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

package audit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// Where a message stands follows from the event behind it.
func TestMisplaced(t *testing.T) {
	topics := emptyDesk().topics
	b := &Books{Histories: map[string][]events.Event{
		"p": {
			{Type: events.OrderAccepted, ReplyTo: "shop"},
			{Type: events.StepStarted, Agent: "bank"},
			{Type: events.StatusRefused, ReplyTo: "shop"},
			{Type: events.OrderErrored},
			{Type: events.AlertRaised},
		},
		"o": {{Type: events.OrderRejected}},
		"q": {{Type: events.OrderAccepted, ReplyTo: "shop"}},
		"h": {{Type: events.SignalOrdered, ReplyTo: "shop"}, {Type: events.SignalStarted, ReplyTo: "mall"}},
	}}
	message := func(topic string, partition int32, kind events.Type, order string, seq int) *kgo.Record {
		return &kgo.Record{Topic: topic, Partition: partition, Key: []byte(order), Headers: []kgo.RecordHeader{
			header(events.HeaderType, string(kind)), header("ce_id", fmt.Sprintf("%s/%d/what", order, seq)),
		}}
	}
	where := func(topic, order string) int32 { // of callers' topics and queues; requests go by the journal's
		if topic != "ns.journal" && topic != "ns.status" && topic != "ns.alerts" {
			return 0
		}
		return partition(order)
	}
	for _, test := range []struct {
		message *kgo.Record
		says    string // "" if it is where it belongs
	}{
		{message("shop", 0, events.OrderStatus, "p", 1), ""},
		{message("shop", 1, events.OrderStatus, "p", 1), "in partition 1 of shop"},
		{message("mall", 1, events.OrderStatus, "p", 1), "belongs on shop"},
		{message("ns.status", 1, events.OrderStatus, "p", 1), ""}, // refused when it was delivered
		{message("ns.status", 1, events.OrderStatus, "q", 1), "belongs on shop"},
		{message("shop", 0, events.OrderStatus, "p", 4), "belongs on ns.status"},
		{message("ns.status", 1, events.OrderStatus, "p", 4), ""},
		{message("ns.status", 0, events.OrderStatus, "o", 1), ""},
		{message("ns.requests.bank", 1, events.StepRequested, "p", 2), ""},
		{message("ns.requests.bank", 0, events.StepRequested, "p", 2), "in partition 0"},
		{message("ns.requests.shop", 1, events.StepRequested, "p", 2), "belongs on ns.requests.bank"},
		{message("ns.alerts", 1, events.AlertRaised, "p", 5), ""},
		{message("ns.alerts", 0, events.AlertRaised, "p", 5), "belongs in 1"},
		{message("ns.status", 1, events.AlertRaised, "p", 5), "belongs on ns.alerts"},
		{message("mall", 0, events.OrderStatus, "h", 2), ""},
		{message("ns.status", 0, events.OrderStatus, "h", 2), ""}, // refused, which nobody records
		{message("shop", 0, events.OrderStatus, "h", 2), "belongs on mall"},
	} {
		said := b.misplaced(test.message, &topics, where)
		if (said == "") != (test.says == "") || !strings.Contains(said, test.says) {
			t.Errorf("%s/%d, %s: %q, want %q", test.message.Topic, test.message.Partition, events.Header(test.message, "ce_id"), said, test.says)
		}
	}
}

// An order comes into Error by what failed last, or by its deadline.
func TestUnearned(t *testing.T) {
	busy, gone, overdue := &events.Error{Code: "busy"}, &events.Error{Code: "gone"}, &events.Error{Code: "overdue"}
	bad := &events.Error{Code: "bad-expression"}
	for _, test := range []struct {
		name     string
		history  []events.Event
		unearned bool
	}{
		{"a step failed", []events.Event{{Type: events.StepFailed, Step: "a", Error: gone}, {Type: events.OrderErrored, Step: "a", Error: gone}}, false},
		{"a step expired", []events.Event{{Type: events.StepExpired, Step: "a", Error: gone}, {Type: events.OrderErrored, Step: "a", Error: gone}}, false},
		{"an undo failed", []events.Event{{Type: events.UndoFailed, Step: "a", Error: gone}, {Type: events.OrderErrored, Step: "a"}}, false},
		{"the deadline has passed", []events.Event{{Type: events.OrderErrored, At: noon, Error: overdue}}, false},
		{"the deadline has not passed", []events.Event{{Type: events.OrderErrored, At: noon.Add(-1), Error: overdue}}, true},
		{"the output of a skipped step was wanted", []events.Event{{Type: events.StepSkipped, Step: "b"}, {Type: events.OrderErrored, Step: "a", Error: bad}}, false},
		{"no step was skipped whose output is wanted", []events.Event{{Type: events.StepCompleted, Step: "b"}, {Type: events.OrderErrored, Step: "a", Error: bad}}, true},
		{"the message of a failure cannot be said", []events.Event{{Type: events.OrderErrored, Step: "a", Error: bad, Reason: "step a: message \"input.why\": no such key: why"}}, false},
		{"another step was skipped later", []events.Event{{Type: events.OrderErrored, Step: "a", Error: bad}, {Type: events.StepSkipped, Step: "b"}}, true},
		{"nothing failed", []events.Event{{Type: events.OrderErrored, Step: "a", Error: gone}}, true},
		{"no undo failed", []events.Event{{Type: events.StepFailed, Step: "a", Error: gone}, {Type: events.OrderErrored, Step: "a"}}, true},
		{"another step failed", []events.Event{{Type: events.StepFailed, Step: "b", Error: gone}, {Type: events.OrderErrored, Step: "a", Error: gone}}, true},
		{"it failed with another error", []events.Event{{Type: events.StepFailed, Step: "a", Error: busy}, {Type: events.OrderErrored, Step: "a", Error: gone}}, true},
		{"it was tried again", []events.Event{
			{Type: events.StepFailed, Step: "a", Error: gone}, {Type: events.StepStarted, Step: "a"}, {Type: events.OrderErrored, Step: "a", Error: gone},
		}, true},
		{"it was resubmitted", []events.Event{
			{Type: events.StepFailed, Step: "a", Error: gone}, {Type: events.OrderResubmitted}, {Type: events.OrderErrored, Step: "a", Error: gone},
		}, true},
		{"deciding panicked", []events.Event{
			{Type: events.StepFailed, Step: "a", Error: gone}, {Type: events.OrderErrored, Step: "a", Error: gone, Held: true},
		}, true},
	} {
		history := append([]events.Event{{Type: events.OrderAccepted, Deadline: noon}}, test.history...)
		if found := unearned(history); (len(found) > 0) != test.unearned {
			t.Errorf("%s: %v", test.name, found)
		}
	}
}

// What was decided again tells of another time, or is not there.
func TestUndone(t *testing.T) {
	message := func(seq int, at string) *kgo.Record {
		return &kgo.Record{Topic: "shop", Key: []byte("o"), Headers: []kgo.RecordHeader{header("ce_id", fmt.Sprintf("o/%d/status", seq)), header("ce_time", at)}}
	}
	b := &Books{Histories: map[string][]events.Event{"o": {{Type: events.OrderAccepted, At: noon}}}}
	const at = "2026-01-05T12:00:00.000Z"
	for _, test := range []struct {
		message *kgo.Record
		undone  bool
	}{
		{message(1, at), false},
		{message(1, "2026-01-05T12:00:00.001Z"), true},
		{message(2, at), true},
		{&kgo.Record{Topic: "ns.alerts"}, false}, // of a partition
	} {
		if b.undone(test.message) != test.undone {
			t.Errorf("%+v", test.message.Headers)
		}
	}
	if len(b.Repeated) != 2 {
		t.Errorf("%d came twice", len(b.Repeated))
	}
}

// A caller's topic is given up only if something is wrong with it.
func TestRefusedForNothing(t *testing.T) {
	topics := emptyDesk().topics
	there := func(topic string) bool { return topic != "nowhere" }
	a := Audit{Refusing: []string{"narrow"}}
	for to, wrong := range map[string]bool{"shop": true, "narrow": false, "nowhere": false, "no topic": false, "ns.journal": false, "ns.requests.bank": false} {
		history := []events.Event{{Type: events.OrderAccepted, ReplyTo: to}, {Type: events.StatusRefused, Seq: 2, ReplyTo: to}}
		if found := a.refusedForNothing(history, &topics, there); (len(found) > 0) != wrong {
			t.Errorf("%s: %q", to, found)
		}
	}
}

// Callers' own topics, and those of who sends signals, are waited for until they have all.
func TestOwed(t *testing.T) {
	all := func(string) bool { return true }
	for _, e := range []events.Event{
		{Type: events.OrderAccepted, ReplyTo: "shop"},
		{Type: events.SubmissionConflicted, ReplyTo: "shop"},
		{Type: events.StepHeard, ReplyTo: "shop"},
		{Type: events.SignalKept, ReplyTo: "shop"},
		{Type: events.SignalStarted, ReplyTo: "shop"},
		{Type: events.SignalDiscarded, ReplyTo: "shop"},
	} {
		d := emptyDesk()
		d.claim(events.JournalFormat)
		d.log("o", e)
		journal := func() error { return owed(slices.Values(d.records[d.topics.Journal]), all) }
		if err := journal(); err == nil {
			t.Errorf("%s: nothing is owed", e.Type)
		}
		for _, next := range []int64{1, 2} { // the first is before it
			delivered := events.Event{Type: events.PartitionDelivered, Delivered: map[string]int64{"shop": next}}
			d.add(d.topics.Journal, 0, "", string(delivered.Append(nil)))
			if err := journal(); (err == nil) != (next == 2) {
				t.Errorf("%s, delivered up to %d: %v", e.Type, next, err)
			}
		}
		if err := owed(slices.Values(d.records[d.topics.Journal][:2]), func(topic string) bool { return topic != "shop" }); err != nil {
			t.Errorf("%s: %v", e.Type, err)
		}
	}
}

// Of a topic that was deleted meanwhile requests may be missing, and of no other.
func TestForgotten(t *testing.T) {
	topics := emptyDesk().topics
	histories := map[string][]events.Event{"o": {
		{Type: events.OrderAccepted, Seq: 1},
		{Type: events.StepStarted, Seq: 2, Agent: "bank"},
		{Type: events.StepStarted, Seq: 3, Agent: "shop"},
		{Type: events.StepStarted, Seq: 4, Agent: "bank"},
		{Type: events.UndoStarted, Seq: 5, Agent: "bank"},
	}}
	sent := []*kgo.Record{{Topic: topics.Requests("bank"), Key: []byte("o"), Headers: []kgo.RecordHeader{header("ce_id", "o/4/request")}}}
	gone, n := Audit{Forgetful: []string{topics.Requests("bank")}}.forgotten(histories, sent, &topics)
	if n != 2 || !slices.Equal(gone["o"], []uint64{2, 5}) {
		t.Errorf("%v", gone)
	}
	if gone, n := (Audit{}).forgotten(histories, sent, &topics); n != 0 || gone != nil {
		t.Errorf("%v", gone)
	}
}

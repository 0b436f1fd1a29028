package audit

import (
	"fmt"
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
	}}
	message := func(topic string, partition int32, kind events.Type, order string, seq int) *kgo.Record {
		return &kgo.Record{Topic: topic, Partition: partition, Key: []byte(order), Headers: []kgo.RecordHeader{
			header(events.HeaderType, string(kind)), header("ce_id", fmt.Sprintf("%s/%d/what", order, seq)),
		}}
	}
	where := func(topic, order string) int32 { // callers' topics have one partition
		if topic == "shop" {
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
		{message("ns.status", 1, events.OrderStatus, "p", 1), "belongs on shop"},
		{message("shop", 0, events.OrderStatus, "p", 4), "belongs on ns.status"},
		{message("ns.status", 1, events.OrderStatus, "p", 4), ""},
		{message("ns.status", 0, events.OrderStatus, "o", 1), ""},
		{message("ns.requests.bank", 1, events.StepRequested, "p", 2), ""},
		{message("ns.requests.bank", 0, events.StepRequested, "p", 2), "in partition 0"},
		{message("ns.requests.shop", 1, events.StepRequested, "p", 2), "belongs on ns.requests.bank"},
		{message("ns.alerts", 1, events.AlertRaised, "p", 5), ""},
		{message("ns.alerts", 0, events.AlertRaised, "p", 5), "belongs in 1"},
		{message("ns.status", 1, events.AlertRaised, "p", 5), "belongs on ns.alerts"},
	} {
		said := b.misplaced(test.message, &topics, where)
		if (said == "") != (test.says == "") || !strings.Contains(said, test.says) {
			t.Errorf("%s/%d, %s: %q, want %q", test.message.Topic, test.message.Partition, events.Header(test.message, "ce_id"), said, test.says)
		}
	}
}

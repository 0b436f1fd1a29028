package orchestrator

import (
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// statusOutput is the largest output, in bytes, that a status message repeats:
// with it the message still fits a topic that was made with Kafka's defaults.
const statusOutput = 900_000

// Outbox appends to dst the record of a journal event, and the messages that
// follow from it: a request to an agent, a status message, an alert. They
// follow from the event and the order alone, so a replay can say what was
// sent. Partitions are left to the partitioner.
func Outbox(dst []*kgo.Record, topics *events.Topics, o *projections.Order, e *events.Event) []*kgo.Record {
	envelope := events.Envelope{
		Source: "/waybill/" + topics.Namespace,
		Type:   e.Type,
		ID:     o.ID + "/" + strconv.FormatUint(e.Seq, 10),
		Order:  o.ID, Time: e.At, Traceparent: o.Traceparent,
	}
	size := 256 + len(e.Input) + len(e.Output)
	dst = append(dst, envelope.Record(topics.Journal, e.Append(make([]byte, 0, size))))

	status := func(word string, detail *events.Detail) {
		to := o.ReplyTo
		if to == "" {
			to = topics.Status
		}
		m := events.Status{Order: o.ID, Status: word, At: e.At, Detail: detail}
		envelope.Type = events.OrderStatus
		envelope.ID += "/status"
		dst = append(dst, envelope.Record(to, m.Append(make([]byte, 0, 128))))
	}
	switch e.Type {
	case events.OrderAccepted:
		status(events.StatusReceived, nil)
	case events.OrderRejected:
		status(events.StatusRejected, &events.Detail{Reason: e.Reason})
	case events.OrderCompleted:
		var detail *events.Detail
		if output := o.Output(); len(output) > statusOutput {
			detail = &events.Detail{Reason: fmt.Sprintf("the output has %d bytes, and is only in the order's record", len(output))}
		} else if len(output) > 0 {
			detail = &events.Detail{Output: output}
		}
		status(events.StatusCompleted, detail)
	case events.OrderErrored:
		status(events.StatusFailed, &events.Detail{Step: e.Step, Reason: e.Reason, Error: e.Error})

	case events.StepStarted:
		m := events.Request{
			Order: o.ID, Step: e.Step, Attempt: e.Attempt, Operation: e.Operation,
			CompleteBy: e.CompleteBy, IdempotencyKey: e.IdempotencyKey,
			Input: o.Input, ReplyTo: topics.Replies,
		}
		envelope.Type = events.StepRequested
		envelope.ID += "/request"
		dst = append(dst, envelope.Record(topics.Requests(e.Agent), m.Append(make([]byte, 0, 256+len(o.Input))),
			kgo.RecordHeader{Key: "ce_step", Value: []byte(e.Step)},
			kgo.RecordHeader{Key: "ce_attempt", Value: strconv.AppendInt(nil, int64(e.Attempt), 10)},
			kgo.RecordHeader{Key: "ce_completeby", Value: events.AppendTime(nil, e.CompleteBy)},
			kgo.RecordHeader{Key: "ce_idempotencykey", Value: []byte(e.IdempotencyKey)},
			kgo.RecordHeader{Key: "ce_replyto", Value: []byte(topics.Replies)},
		))

	case events.AlertRaised:
		m := events.Alert{Order: o.ID, Step: e.Step, Reason: e.Reason, Errors: e.Errors, At: e.At}
		envelope.ID += "/alert"
		dst = append(dst, envelope.Record(topics.Alerts, m.Append(make([]byte, 0, 256))))
	}
	return dst
}

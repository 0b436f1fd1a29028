package decide

import (
	"fmt"
	"strconv"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// statusOutput is the largest output, in bytes, that a status message repeats:
// with it the message still fits a topic that was made with Kafka's defaults.
const statusOutput = 900_000

// Outbox appends to dst a journal event, and the messages that follow from it: a
// request to an agent, a status message, an alert. They follow from the event
// and the order alone, so a replay can say what was sent.
func Outbox(dst []Message, topics *events.Topics, o *projections.Order, e *events.Event) []Message {
	envelope := events.Envelope{
		Source: "/waybill/" + topics.Namespace,
		Type:   e.Type,
		ID:     o.ID + "/" + strconv.FormatUint(e.Seq, 10),
		Order:  o.ID, Time: e.At, Traceparent: o.Traceparent,
	}
	size := 256 + len(e.Input) + len(e.Output)
	dst = append(dst, Message{topics.Journal, envelope, e.Append(make([]byte, 0, size))})

	tell := func(to, word string, detail *events.Detail) {
		if to == "" {
			to = topics.Status
		}
		m := events.Status{Order: o.ID, Status: word, At: e.At, Detail: detail}
		envelope.Type = events.OrderStatus
		envelope.ID += "/status"
		dst = append(dst, Message{to, envelope, m.Append(make([]byte, 0, 128))})
	}
	status := func(word string, detail *events.Detail) { tell(o.ReplyTo, word, detail) }
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
	case events.OrderCompensating:
		status(events.StatusCompensating, &events.Detail{Step: e.Step, Reason: e.Reason, Error: e.Error})
	case events.OrderCompensated:
		status(events.StatusCompensated, &events.Detail{Undone: e.Undone, NotUndone: e.NotUndone})
	case events.OrderCancelled:
		status(events.StatusCancelled, &events.Detail{Undone: e.Undone, NotUndone: e.NotUndone})

	case events.SubmissionConflicted: // it is not the order's caller who is told
		tell(e.ReplyTo, events.StatusConflict, &events.Detail{Reason: e.Reason})

	case events.StepStarted, events.UndoStarted:
		dst = append(dst, request(topics, o, e, envelope))

	case events.AlertRaised:
		m := events.Alert{Order: o.ID, Step: e.Step, Reason: e.Reason, Errors: e.Errors, Action: e.Action, At: e.At}
		envelope.ID += "/alert"
		dst = append(dst, Message{topics.Alerts, envelope, m.Append(make([]byte, 0, 256))})
	}
	return dst
}

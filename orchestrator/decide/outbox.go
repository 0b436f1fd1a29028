package decide

import (
	"cmp"
	"strconv"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/events/spans"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/projections"
)

// Outbox appends to dst a journal event, and the messages that follow from it: a
// request to an agent, a status message, an event of the user's, an alert, and what orders tell
// each other. They follow from the event and the order alone, so a replay can say what was sent, but for the tokens of requests,
// which follow from the namespace's keys; they may be nil.
func Outbox(dst []Message, topics *events.Topics, keys *proof.Keys, o *projections.Order, e *events.Event) []Message {
	envelope := events.Envelope{
		Source: topics.Source(),
		Type:   e.Type,
		ID:     o.ID + "/" + strconv.FormatUint(e.Seq, 10),
		Order:  o.ID, Time: e.At, Traceparent: o.Traceparent,
	}
	size := 256 + len(e.Input) + len(e.Output) + len(e.Tracestate) + len(e.Baggage)
	dst = append(dst, Message{Topic: topics.Journal, Envelope: envelope, Value: e.Append(make([]byte, 0, size))})

	passed := func(of events.Envelope) events.Envelope {
		of.Tracestate, of.Baggage = o.Tracestate, o.Baggage
		return of
	}
	if to, id, m := o.Status(e); m != nil {
		envelope := envelope // and no more: the sender knows what it passed on, and a topic of its own may be narrow
		envelope.Type, envelope.ID = events.OrderStatus, id
		dst = append(dst, Message{Topic: cmp.Or(to, topics.Status), Envelope: envelope, Value: m.Append(make([]byte, 0, 128)), OwnTopic: to != ""})
	}
	tell := func(kind events.Type, what string, n int, to string, value []byte) {
		envelope := envelope
		envelope.Type, envelope.Order = kind, to
		if envelope.ID += "/" + what; n > 0 {
			envelope.ID += "/" + strconv.Itoa(n+1)
		}
		dst = append(dst, Message{Topic: topics.Internal, Envelope: envelope, Value: value})
	}
	for n, w := range wishes(o, e) {
		tell(events.ChildWanted, "wish", n, w.Child, w.Append(make([]byte, 0, 256+len(w.Input))))
		if last := &dst[len(dst)-1]; w.Wish == events.WishBegin { // there may be a thousand of others
			last.Envelope = passed(last.Envelope)
		}
	}
	if r := o.Reports(e); r != nil {
		tell(events.ChildReported, "report", 0, r.Parent, r.Append(make([]byte, 0, 256+len(r.Output))))
	}
	for n, w := range o.Wants(e) {
		tell(events.SignalWanted, "want", n, w.Correlation, w.Append(make([]byte, 0, 512)))
	}
	if p := o.Passes(e); p != nil {
		tell(events.SignalPassed, "pass", 0, p.Order, p.Append(make([]byte, 0, 512+len(p.Data))))
	}
	for n, b := range o.Bids(e) {
		tell(events.PlaceWanted, "bid", n, b.Home, b.Append(make([]byte, 0, 256)))
	}
	if g := o.Grant(e); g != nil {
		tell(events.PlaceGiven, "grant", 0, g.Order, g.Append(make([]byte, 0, 256)))
	}
	switch e.Type {
	case events.StepEmitting:
		dst = append(dst, Emission(topics, o, o.Step(e.Step)))

	case events.StepStarted, events.UndoStarted:
		dst = append(dst, request(topics, keys, o, e, passed(envelope)))

	case events.AlertRaised, events.StepReminded:
		m := events.Alert{Order: o.ID, Step: e.Step, Reason: e.Reason, Errors: append([]events.Error{}, e.Errors...), Action: e.Action, Reminder: e.Type == events.StepReminded, At: e.At}
		envelope := passed(envelope)
		envelope.Type = events.AlertRaised
		envelope.ID += "/alert"
		dst = append(dst, Message{Topic: topics.Alerts, Envelope: envelope, Value: m.Append(make([]byte, 0, 256))})
	}
	return dst
}

// trace has what an attempt asks others for name its span as their parent: agents, and orders that do the step. It
// follows from the order and its event, as that span does.
func trace(out []Message, sampled spans.Sampler, o *projections.Order, e *events.Event) {
	if e.Step == "" || o.Beside() {
		return
	}
	traceparent := ""
	for i := range out {
		envelope := &out[i].Envelope
		if envelope.Type != events.StepRequested && envelope.Type != events.ChildWanted {
			continue
		}
		if traceparent == "" {
			of := spans.Of(o.ID, o.AcceptedAt, o.Traceparent)
			traceparent = of.Traceparent(of.Attempt(o.Step(e.Step).Known(), e.Type == events.UndoStarted || e.Type == events.UndoOrdered, e.Attempt), sampled)
		}
		envelope.Traceparent = traceparent
	}
}

// Package spans has the words of traces: which ids the spans of orders have, and how their attributes are called.
//
// The ids follow from what the journal says, so whoever makes a span once more makes the same. Nothing here has
// effects.
package spans

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-dev/waybill/events"
)

// Sampler says whether a trace is sampled whose root has a parent, which is not valid if it has none.
type Sampler func(parent trace.SpanContext, id trace.TraceID) bool

// Order is what the spans of one order have in common.
type Order struct {
	// Parent is the span of whoever submitted the order, not valid if that is not known.
	Parent trace.SpanContext
	// Trace is the parent's, and else of the order's own.
	Trace trace.TraceID
	seed  []byte
}

// Of returns what an order's spans have, by its id, when it was accepted, and the traceparent of its submission. An
// id that counts again, once its order is forgotten, has other spans by the time.
func Of(id string, accepted time.Time, traceparent string) Order {
	o := Order{Parent: Parse(traceparent, ""), seed: binary.BigEndian.AppendUint64([]byte(id), uint64(events.Time(accepted).UnixMilli()))}
	if o.Trace = o.Parent.TraceID(); !o.Parent.IsValid() {
		o.Trace = trace.TraceID(o.hash("trace"))
	}
	return o
}

// Root is the id of the span of the order as a whole.
func (o *Order) Root() trace.SpanID { return o.span("order") }

// Undo is the id of the span of what an order that had ended does to undo what it did, by the number of the event with
// which that begins.
func (o *Order) Undo(seq uint64) trace.SpanID {
	return o.span("compensation" + string(binary.BigEndian.AppendUint64(nil, seq)))
}

// Attempt is the id of the span of an attempt of a step, or of its undo, by the name under which the step is known
// outside.
func (o *Order) Attempt(step string, undo bool, attempt int) trace.SpanID {
	direction := "do"
	if undo {
		direction = "undo"
	}
	return o.span(string(binary.BigEndian.AppendUint64([]byte(direction+" "+step), uint64(attempt))))
}

// Traceparent is what an attempt's message says of its span.
func (o *Order) Traceparent(span trace.SpanID, sampled Sampler) string {
	return Traceparent(trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: o.Trace, SpanID: span, TraceFlags: o.Parent.TraceFlags().WithSampled(sampled(o.Parent, o.Trace)),
	}))
}

// Traceparent writes a span as W3C Trace Context does.
func Traceparent(of trace.SpanContext) string {
	id, span := of.TraceID(), of.SpanID()
	b := append(make([]byte, 0, 55), "00-"...)
	b = append(hex.AppendEncode(b, id[:]), '-')
	b = append(hex.AppendEncode(b, span[:]), '-')
	return string(hex.AppendEncode(b, []byte{byte(of.TraceFlags())}))
}

func (o *Order) span(what string) trace.SpanID {
	sum := o.hash(what)
	return trace.SpanID(sum[:8])
}

// hash is never zero but by a chance that nobody meets.
func (o *Order) hash(what string) [16]byte {
	sum := sha256.Sum256(append(o.seed[:len(o.seed):len(o.seed)], what...))
	return [16]byte(sum[:16])
}

// Parse reads a traceparent of W3C Trace Context, and the tracestate that came with it. What is none, or names no span,
// gives one that is not valid, and what is no tracestate is left out.
func Parse(traceparent, tracestate string) trace.SpanContext {
	if len(traceparent) < 55 || traceparent[2] != '-' || traceparent[35] != '-' || traceparent[52] != '-' || traceparent[:2] == "ff" {
		return trace.SpanContext{}
	}
	var config trace.SpanContextConfig
	var flags [1]byte
	if _, err := hex.Decode(flags[:], []byte(traceparent[53:55])); err != nil || len(traceparent) > 55 && traceparent[55] != '-' {
		return trace.SpanContext{}
	}
	config.TraceID, _ = trace.TraceIDFromHex(traceparent[3:35])
	config.SpanID, _ = trace.SpanIDFromHex(traceparent[36:52])
	config.TraceFlags, config.Remote = trace.TraceFlags(flags[0]), true
	config.TraceState, _ = trace.ParseTraceState(tracestate)
	return trace.NewSpanContext(config)
}

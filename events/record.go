package events

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Headers beside those of CloudEvents.
const (
	HeaderType        = "ce_type"
	HeaderSource      = "ce_source"
	HeaderTime        = "ce_time"
	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
	HeaderBaggage     = "baggage"
	// HeaderActor is on a command, or a submission, whose author an instance knows: see [Actor].
	HeaderActor = "waybill_actor"
)

// Envelope says what the headers of a record carry: CloudEvents 1.0 in the
// binary mode of its Kafka binding.
type Envelope struct {
	// Source is who speaks, a URI reference.
	Source string
	Type   Type
	// ID is unique among the messages of one source.
	ID string
	// Order is the order id: the ce_subject, and the record's key where Key says no other.
	Order, Key  string
	Time        time.Time
	Traceparent string
	// Tracestate and Baggage are what else the sender of a submission wants passed on.
	Tracestate, Baggage string
	// Extra headers follow those of CloudEvents.
	Extra []RawHeader
}

var (
	specVersion = []byte("1.0")
	contentType = []byte("application/json")
)

// Record puts value into a record for topic.
func (e *Envelope) Record(topic string, value []byte) *kgo.Record {
	// All texts share one allocation: an order makes some twenty records.
	texts := make([]byte, 0, len(e.ID)+len(e.Type)+len(e.Source)+len(e.Order)+len(e.Traceparent)+len(e.Tracestate)+len(e.Baggage)+24)
	text := func(s string) []byte {
		from := len(texts)
		texts = append(texts, s...)
		return texts[from:len(texts):len(texts)]
	}
	headers := make([]kgo.RecordHeader, 0, 8+len(e.Extra))
	headers = append(headers,
		kgo.RecordHeader{Key: "ce_specversion", Value: specVersion},
		kgo.RecordHeader{Key: "ce_id", Value: text(e.ID)},
		kgo.RecordHeader{Key: HeaderType, Value: text(string(e.Type))},
		kgo.RecordHeader{Key: HeaderSource, Value: text(e.Source)},
	)
	r := &kgo.Record{Topic: topic, Value: value}
	if e.Order != "" {
		r.Key = text(e.Order)
		headers = append(headers, kgo.RecordHeader{Key: "ce_subject", Value: r.Key})
	}
	if e.Key != "" {
		r.Key = []byte(e.Key)
	}
	from := len(texts)
	texts = AppendTime(texts, e.Time)
	headers = append(headers,
		kgo.RecordHeader{Key: HeaderTime, Value: texts[from:len(texts):len(texts)]},
		kgo.RecordHeader{Key: "content-type", Value: contentType},
	)
	if e.Traceparent != "" {
		headers = append(headers, kgo.RecordHeader{Key: HeaderTraceparent, Value: text(e.Traceparent)})
	}
	if e.Tracestate != "" {
		headers = append(headers, kgo.RecordHeader{Key: HeaderTracestate, Value: text(e.Tracestate)})
	}
	if e.Baggage != "" {
		headers = append(headers, kgo.RecordHeader{Key: HeaderBaggage, Value: text(e.Baggage)})
	}
	for _, h := range e.Extra {
		headers = append(headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	r.Headers = headers
	return r
}

// Size is how many bytes of its own a record has.
func Size(r *kgo.Record) int {
	size := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += len(h.Key) + len(h.Value)
	}
	return size
}

// Header returns the value of a record's last header named key, "" if it has none.
func Header(r *kgo.Record, key string) string { return string(HeaderValue(r, key)) }

// HeaderValue is [Header] without a copy; nil if the record has no such header.
func HeaderValue(r *kgo.Record, key string) []byte {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == key {
			return h.Value
		}
	}
	return nil
}

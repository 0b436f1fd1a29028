package events

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Headers beside those of CloudEvents.
const (
	HeaderType        = "ce_type"
	HeaderTraceparent = "traceparent"
)

// Envelope says what the headers of a record carry: CloudEvents 1.0 in the
// binary mode of its Kafka binding.
type Envelope struct {
	// Source is who speaks, a URI reference.
	Source string
	Type   Type
	// ID is unique among the messages of one source.
	ID string
	// Order is the order id: the record's key and the ce_subject.
	Order       string
	Time        time.Time
	Traceparent string
}

// Record puts value into a record for topic. Extra headers follow the
// envelope's.
func (e *Envelope) Record(topic string, value []byte, extra ...kgo.RecordHeader) *kgo.Record {
	headers := make([]kgo.RecordHeader, 0, 8+len(extra))
	text := func(key, value string) { headers = append(headers, kgo.RecordHeader{Key: key, Value: []byte(value)}) }
	text("ce_specversion", "1.0")
	text("ce_id", e.ID)
	text(HeaderType, string(e.Type))
	text("ce_source", e.Source)
	if e.Order != "" {
		text("ce_subject", e.Order)
	}
	headers = append(headers, kgo.RecordHeader{Key: "ce_time", Value: AppendTime(make([]byte, 0, 24), e.Time)})
	text("content-type", "application/json")
	if e.Traceparent != "" {
		text(HeaderTraceparent, e.Traceparent)
	}
	r := &kgo.Record{Topic: topic, Value: value, Headers: append(headers, extra...)}
	if e.Order != "" {
		r.Key = []byte(e.Order)
	}
	return r
}

// Header returns the value of a record's last header named key, "" if it has none.
func Header(r *kgo.Record, key string) string {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key == key {
			return string(r.Headers[i].Value)
		}
	}
	return ""
}

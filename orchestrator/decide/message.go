package decide

import (
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// Message is what a decision writes to a topic. Its partition is that of the
// order on Waybill's own topics.
type Message struct {
	Topic    string
	Envelope events.Envelope
	Value    []byte
	// OwnTopic says that the topic is the caller's own: since [events.CourierFormat] the
	// message is owed to it, and not of the transaction.
	OwnTopic bool
	// Emits says that it is an event of the user's. It is owed as long as the attempt runs that is to
	// give it to the topic.
	Emits bool
}

// answered is a message that follows from a record alone.
func answered(env *Env, r *Record, kind events.Type, to string, value []byte) Message {
	return Message{
		Topic: env.Topics.Internal, Value: value,
		Envelope: events.Envelope{Source: env.Topics.Source(), Type: kind, ID: r.Source() + "/back", Order: to, Time: env.Now},
	}
}

// Owed is what the caller's own topic is owed, but for the offset of its event.
func (m *Message) Owed() projections.Owed {
	return projections.Owed{
		Topic: m.Topic, ID: m.Envelope.ID, Order: m.Envelope.Order, Time: m.Envelope.Time,
		Traceparent: m.Envelope.Traceparent, Value: m.Value,
	}
}

// Record is a record of an input topic, as it was read.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	events.Raw
}

// Source names the record: topic/partition/offset.
func (r *Record) Source() string {
	b := append(make([]byte, 0, len(r.Topic)+24), r.Topic...)
	b = strconv.AppendInt(append(b, '/'), int64(r.Partition), 10)
	return string(strconv.AppendInt(append(b, '/'), r.Offset, 10))
}

// Size is what the record takes in bytes, roughly and not less.
func (r *Record) Size() int {
	size := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += len(h.Key) + len(h.Value) + 8
	}
	return size
}

// header is the value of the last header named key, "" if it has none.
func (r *Record) header(key string) string { return string(r.headerValue(key)) }

// headerValue is header without a copy.
func (r *Record) headerValue(key string) []byte {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == key {
			return h.Value
		}
	}
	return nil
}

// recordOf is the record that waits, as it came.
func recordOf(h *projections.Held) *Record {
	r := &Record{Raw: h.Raw}
	parts := strings.Split(h.Source, "/")
	if len(parts) == 3 {
		partition, _ := strconv.ParseInt(parts[1], 10, 32)
		r.Topic, r.Partition = parts[0], int32(partition)
		r.Offset, _ = strconv.ParseInt(parts[2], 10, 64)
	}
	return r
}

// Aside is an input that is to be put aside, among the dead letters.
type Aside struct {
	*Record
	Reason string
}

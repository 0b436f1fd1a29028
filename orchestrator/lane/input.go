package lane

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/proof"
)

// input is a record of an input topic, and what could be read of it: nothing of
// the marker of somebody's transaction.
type input struct {
	decide.Input
	record *kgo.Record
	// sought is the question for its workflow, 0 if it was not asked: see [World].
	sought uint64
	// parked is since when it is, by the lane's timer, and newer says that its workflow is not
	// run here.
	parked time.Time
	newer  bool
}

// readInputs reads records of the partition's inputs.
func (l *Lane) readInputs(records []*kgo.Record) []input {
	n := 0
	for _, r := range records {
		n += len(r.Headers)
	}
	// All share three allocations: an order has some four inputs.
	read, seen, headers := make([]input, len(records)), make([]decide.Record, len(records)), make([]events.RawHeader, 0, n)
	for i, r := range records {
		read[i] = input{Input: decide.Input{Partition: l.partition}, record: r}
		if !r.Attrs.IsControl() {
			seen[i], headers = seenBy(r, headers)
			read[i].Input = decide.Read(&seen[i], l.topics, decide.Place{Here: r.Partition, Of: l.byKey.Of}) // of what strays no more than where to
		}
	}
	return read
}

// seenBy is the record as decisions see it. Its headers are behind the others.
func seenBy(r *kgo.Record, headers []events.RawHeader) (decide.Record, []events.RawHeader) {
	first := len(headers)
	for _, h := range r.Headers {
		headers = append(headers, events.RawHeader{Key: h.Key, Value: h.Value})
	}
	return decide.Record{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
		Raw: events.Raw{Written: firstWritten(r), Key: r.Key, Value: r.Value, Headers: headers[first:len(headers):len(headers)]},
	}, headers
}

// What a forwarded record has besides the headers that it came with: where it was,
// and when it was written there.
const (
	headerForwarded = "waybill_forwarded_from"
	headerWritten   = "waybill_written"
)

// firstWritten is when an input was written first: a lane says so of what it
// forwards, and does that in a transaction. Anybody else's word for it is nothing,
// unless he may write in transactions too; and nobody's is that it was later.
func firstWritten(r *kgo.Record) time.Time {
	if r.Attrs.IsTransactional() {
		first, err := time.Parse(time.RFC3339Nano, events.Header(r, headerWritten))
		if err == nil && first.Before(r.Timestamp) {
			return first
		}
	}
	return r.Timestamp
}

// What a dead letter has besides the headers of the input, behind these: why it was put aside,
// topic/partition/offset where it was, and, as its last header, when it was put aside.
const (
	HeaderReason = "waybill_reason"
	HeaderSource = "waybill_source"
	HeaderAside  = "waybill_put_aside"
)

// PutAside is when a dead letter was put aside; the zero time if it does not say so. In one of a release
// before, what has the name of the header is the input's, and not the last.
func PutAside(letter *kgo.Record) time.Time {
	n := len(letter.Headers)
	if n == 0 || letter.Headers[n-1].Key != HeaderAside {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, string(letter.Headers[n-1].Value))
	if err != nil {
		return time.Time{}
	}
	return at
}

// putAside puts an input among the dead letters, byte for byte but for the token of a reply. What is too large
// for that stays at its source, and the dead letter says so.
func (l *Lane) putAside(in *decide.Record, reason string) {
	letter := &kgo.Record{Topic: l.topics.DeadLetters, Partition: l.partition, Key: in.Key, Value: in.Value, Timestamp: l.notAhead(in.Written)}
	tokenless := true
	if in.Topic == l.topics.Replies { // its attempt may be under way still
		letter.Value, tokenless = proof.Hidden(in.Value)
	}
	for _, h := range in.Headers {
		letter.Headers = append(letter.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	reason = decide.Cut(reason, decide.MaxText)
	if !tokenless {
		letter.Value = nil
		reason += "; the value is only at the source: it may have a token, and cannot be read"
	}
	if why, bare := l.halves.held(ofInput(in)); bare {
		letter = &kgo.Record{Topic: l.topics.DeadLetters, Partition: l.partition, Timestamp: l.time.Wall()}
		reason += "; all of it is only at the source: " + decide.Cut(why, decide.MaxText)
	}
	for _, part := range []struct {
		name string
		drop func()
	}{
		{"value", func() { letter.Value = nil }},
		{"headers", func() { letter.Headers = nil }},
		{"key", func() { letter.Key = nil }},
	} {
		why := l.refuses(letter.Topic, recordSize(letter)+decide.EnvelopeSize)
		if why == "" {
			break
		}
		part.drop()
		reason += fmt.Sprintf("; the %s is only at the source: %s", part.name, why)
	}
	letter.Headers = append(letter.Headers,
		kgo.RecordHeader{Key: HeaderReason, Value: []byte(reason)},
		kgo.RecordHeader{Key: HeaderSource, Value: []byte(in.Source())},
		kgo.RecordHeader{Key: HeaderAside, Value: events.AppendTime(nil, l.time.Wall())})
	l.current.add(letter)
}

// unread are the batches of inputs that nobody can read, each as one input that is put
// aside; reading goes on behind them. Others are what else failed.
func (l *Lane) unread(failed []kgo.FetchError) (unread []input, others []kgo.FetchError) {
	for _, f := range failed {
		batch := new(kgo.ErrDecompressTooLarge)
		if _, ok := l.topics.Input(f.Topic); !ok || !errors.As(f.Err, &batch) {
			others = append(others, f)
			continue
		}
		unread = append(unread, input{Input: decide.Input{
			Record:     &decide.Record{Topic: f.Topic, Partition: f.Partition, Offset: batch.Offset, Raw: events.Raw{Written: l.time.Wall()}},
			Unreadable: fmt.Sprintf("the batch with the offsets %d to %d is only at the source: it cannot be decompressed, or takes more than %d MiB", batch.Offset, batch.NextOffset-1, events.MaxDecompressed>>20),
			Partition:  l.partition,
		}, record: &kgo.Record{Topic: f.Topic, Partition: f.Partition, Offset: batch.NextOffset - 1}})
	}
	return unread, others
}

// recordSize is what a record takes, roughly and not less.
func recordSize(r *kgo.Record) int {
	seen, _ := seenBy(r, nil)
	return seen.Size()
}

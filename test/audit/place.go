package audit

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/test/oracle"
)

// place is where a record stands.
type place struct {
	topic     string
	partition int32
	offset    int64
}

func (p place) String() string { return fmt.Sprintf("%s/%d/%d", p.topic, p.partition, p.offset) }

// input says whether it is on one of the input topics.
func (p place) input(t *events.Topics) bool {
	_, ok := t.Input(p.topic)
	return ok
}

func placeOf(r *kgo.Record) place { return place{r.Topic, r.Partition, r.Offset} }

func parsePlace(s string) (place, error) {
	topic, rest, _ := strings.Cut(s, "/")
	p := place{topic: unique.Make(topic).Value()}
	if _, err := fmt.Sscanf(rest, "%d/%d", &p.partition, &p.offset); err != nil {
		return p, fmt.Errorf("%q is no place: %w", s, err)
	}
	if p.String() != s {
		return p, fmt.Errorf("%q is no place, but %s would be", s, p)
	}
	return p, nil
}

// fingerprint tells a record from others.
type fingerprint struct {
	key, value, headers uint64
	written             int64
	// waited is the value as it is kept of a reply that waits: without its token.
	waited uint64
}

var hashing = maphash.MakeSeed()

// hash is never 0, but for nothing.
func hash(b []byte) uint64 {
	if len(b) == 0 {
		return 0
	}
	return max(1, maphash.Bytes(hashing, b))
}

// hashHeader is of a header behind others.
func hashHeader(before uint64, h kgo.RecordHeader) uint64 {
	return maphash.Comparable(hashing, struct {
		before     uint64
		key, value string
	}{before, h.Key, string(h.Value)})
}

func fingerprintOf(r *kgo.Record) fingerprint {
	hidden, _ := proof.Hidden(r.Value)
	f := fingerprint{key: hash(r.Key), value: hash(r.Value), written: firstWritten(r).UnixMilli(), waited: hash(hidden)}
	for _, h := range r.Headers {
		f.headers = hashHeader(f.headers, h)
	}
	return f
}

// firstWritten is when a record was written that may have been forwarded.
func firstWritten(r *kgo.Record) time.Time {
	first, err := time.Parse(time.RFC3339Nano, events.Header(r, "waybill_written"))
	if err == nil && r.Attrs.IsTransactional() && first.Before(r.Timestamp) {
		return first
	}
	return r.Timestamp
}

// other says what is different about a record, "" if nothing is.
func (f fingerprint) other(than fingerprint) string {
	switch {
	case f.value != than.value && f.waited != than.value && f.value != than.waited:
		return "another value"
	case f.key != than.key:
		return "another key"
	case f.written != than.written:
		return "another timestamp"
	case f.headers != than.headers:
		return "other headers"
	}
	return ""
}

// before is the fingerprint of a record without the headers that were added to
// it last.
func before(r *kgo.Record, added int) fingerprint {
	copied := *r
	copied.Headers = r.Headers[:max(0, len(r.Headers)-added)]
	f := fingerprintOf(&copied)
	f.written = firstWritten(r).UnixMilli()
	return f
}

// letter is what is known of a dead letter.
type letter struct {
	fingerprint
	reason string // at most of the usual length; what follows it is left off
	part   bool   // some of it was too large to be put aside
	// Whether the value, the headers and the key are with it.
	valued, headed, keyed bool
	batch                 bool // it stands for a batch that takes too much memory, and has nothing of it
}

// wholeBatch begins why a batch of one record was put aside unread.
const wholeBatch = "the batch with the offsets %[1]d to %[1]d is only at the source: "

// onlyAtTheSource begins what a reason says of each part that is left out.
const onlyAtTheSource = "; the %s is only at the source: "

// letter takes a dead letter.
func (s *settlement) letter(r *kgo.Record) {
	if events.Header(r, "waybill_discards") != "" && events.Header(r, "waybill_reason") == "" {
		return // a mark that one was dealt with
	}
	from, err := parsePlace(events.Header(r, "waybill_source"))
	if err != nil || !from.input(s.Topics) {
		s.report("dead letter %s: it is from no input: %v", placeOf(r), err)
		return
	}
	if _, found := s.letters[from]; found {
		s.report("%s is among the dead letters twice, the second time as %s", from, placeOf(r))
	}
	reason := events.Header(r, "waybill_reason")
	lacks := func(part string) bool { return strings.Contains(reason, fmt.Sprintf(onlyAtTheSource, part)) }
	added := 2
	if r.Headers[len(r.Headers)-1].Key == "waybill_put_aside" { // a release before has not
		added++
	}
	l := letter{fingerprint: before(r, added), valued: !lacks("value"), headed: !lacks("headers"), keyed: !lacks("key")}
	l.written = r.Timestamp.UnixMilli() // whatever its headers say
	l.part = !l.valued || !l.headed || !l.keyed
	l.reason, _, _ = strings.Cut(reason, fmt.Sprintf(onlyAtTheSource, "value"))
	l.reason = unique.Make(l.reason).Value()
	l.batch = strings.HasPrefix(reason, fmt.Sprintf(wholeBatch, from.offset))
	s.letters[from] = l
	s.aside[placeOf(r).String()] = originOf(from.topic, r)
}

// origin is what an input has again that was put back.
type origin struct {
	topic      string
	key, value uint64
	headers    uint64 // but for Waybill's own, and who wrote it
	source     string
	actor      string
}

func originOf(topic string, r *kgo.Record) *origin {
	o := &origin{topic: topic, key: hash(r.Key), value: hash(r.Value), source: events.Header(r, events.HeaderSource), actor: events.Header(r, events.HeaderActor)}
	for _, h := range r.Headers {
		if h.Key != events.HeaderSource && !strings.HasPrefix(h.Key, "waybill_") {
			o.headers = hashHeader(o.headers, h)
		}
	}
	return o
}

// putBack takes what was a dead letter, and is an input again: as it was, with the signature of who signed it, or with
// another value, which has another author, and that nobody has signed.
func (s *settlement) putBack(from string, r *kgo.Record) {
	is, was := originOf(r.Topic, r), s.aside[from]
	wrong := func(what string) { s.report("%s was put back from %s %s", placeOf(r), from, what) }
	if was == nil {
		wrong("where no dead letter is")
		return
	}
	source, actor := was.source, was.actor
	if is.value != was.value {
		source, actor = s.Topics.Source()+"/api", ""
		if r.Topic == s.Topics.Internal {
			wrong("with another value, which nobody may give what orders tell each other")
		}
	}
	switch {
	case is.topic != was.topic:
		wrong("and came from " + was.topic)
	case is.key != was.key:
		wrong("with another key")
	case is.headers != was.headers:
		wrong("with other headers")
	case is.source != source:
		wrong(fmt.Sprintf("by %q, and it is by %q", is.source, source))
	case is.actor != actor:
		wrong("with a signature that is not that of its value")
	}
	own := []string{"waybill_replayed_from", events.HeaderActor}
	if Forwarded(r) {
		own = append(own, "waybill_written", "waybill_forwarded_from")
	}
	for _, h := range r.Headers {
		if strings.HasPrefix(h.Key, "waybill_") && !slices.Contains(own, h.Key) {
			wrong("with " + h.Key + ", which its dead letter had")
		}
	}
}

// isAhead says that the time of a record is so far ahead that a copy does not keep it:
// Kafka would refuse that.
func isAhead(original, copied fingerprint) bool {
	return time.Duration(original.written-copied.written)*time.Millisecond > 30*time.Minute
}

// other says what is different about the record that was put aside, as far as it
// is there.
func (l *letter) other(than fingerprint) string {
	if !l.valued {
		than.value = 0
	}
	if !l.headed {
		than.headers = 0
	}
	if !l.keyed {
		than.key = 0
	}
	if isAhead(than, l.fingerprint) {
		than.written = l.written
	}
	return l.fingerprint.other(than)
}

// copied takes what was forwarded from a place.
func (s *settlement) copied(from place, r *kgo.Record) {
	added := 1 // as older releases do
	if n := len(r.Headers); n > 1 && r.Headers[n-2].Key == "waybill_written" {
		added = 2
	}
	f := before(r, added)
	if added == 1 && oracle.Stamped(r) {
		f.written = anyTime // Kafka stamped it anew, and releases of before do not say what stood there
	}
	if from.topic != r.Topic {
		s.report("%s was forwarded to %s", from, placeOf(r))
	}
	if original, met := s.away[from]; met {
		delete(s.away, from)
		s.meet(from, original, f)
		return
	}
	if _, found := s.copies[from]; found {
		s.report("%s was forwarded twice, the second time to %s", from, placeOf(r))
	}
	s.copies[from] = f
}

// leaves takes a record that belongs to another partition. One without a key is
// forwarded with that of its order.
func (s *settlement) leaves(at place, f fingerprint, keyless bool) {
	if keyless {
		f.key = anyKey
	}
	if copied, met := s.copies[at]; met {
		delete(s.copies, at)
		s.meet(at, f, copied)
		return
	}
	s.away[at] = f
}

// anyKey is the fingerprint of a key that is not there.
const anyKey = 0

// anyTime is when a record was written that does not say so.
const anyTime = -1

func (s *settlement) meet(at place, original, copied fingerprint) {
	if original.key == anyKey {
		copied.key = anyKey
	}
	if copied.written == anyTime || isAhead(original, copied) {
		copied.written = original.written
	}
	if other := copied.other(original); other != "" {
		s.report("%s was forwarded with %s", at, other)
	}
}

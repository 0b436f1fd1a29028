package lane

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waybill-dev/waybill/orchestrator/decide"
)

// Halves finds the one input, or step that is due, whose records Kafka refuses for what
// they are though nobody foresaw it: each batch that is refused so has the next ones
// take half as many, until it is refused alone. It is held only if it is refused for
// longer than a while, and Kafka took another batch meanwhile: else the trouble may be
// anybody's, and all of it waits. So it finds how many bytes Kafka takes before a commit's
// time is up, be that by a quota or a slow line: else each lane would try the same again.
// It is kept from lane to lane of a partition.
type Halves struct {
	most     int // inputs and steps that are due a batch may have, 0 if any number
	bytes    int // after so many a batch takes no more, 0 if there is no such bound
	suspects map[unit]*suspect
	// Proofs is how many batches were committed that only show that Kafka takes one.
	Proofs uint64
}

// suspect is what was refused alone.
type suspect struct {
	since, last time.Time
	others      bool   // were committed since
	why         string // it is held, "" if it is not
	bare        bool   // its dead letter was refused, too
}

const (
	// holdAfter is how long it must have been refused: longer than it takes to be sure
	// of a limit that nobody knew.
	holdAfter = 10 * time.Second
	// suspectedFor is how long something is remembered that was not refused again.
	suspectedFor = time.Minute
)

// definite says that Kafka refused a record, or its batch, for what it is: not for where
// it goes, nor for who writes it when.
func definite(err error) bool {
	for _, known := range []error{
		kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.CorruptMessage, kerr.PolicyViolation,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// refused notes that a batch was, and of what it was made. Letter says that it was for a
// dead letter.
func (h *Halves) refused(units []unit, now time.Time, why error, letter bool) {
	if len(units) == 0 {
		return
	}
	if h.most = max(1, len(units)/2); len(units) > 1 {
		return
	}
	s := h.suspects[units[0]]
	switch {
	case s == nil:
		if h.suspects == nil {
			h.suspects = make(map[unit]*suspect)
		}
		s = &suspect{since: now}
		h.suspects[units[0]] = s
	case s.why != "" && letter && !s.bare:
		s.bare = true
	case s.why != "": // what holds it is refused, too: it is not the input
		*s = suspect{since: now}
	case s.proven(now):
		s.why = fmt.Sprintf("Kafka refuses what follows from it, and takes other batches: %v", why)
	}
	s.last = now
}

func (s *suspect) proven(now time.Time) bool { return s.others && now.Sub(s.since) >= holdAfter }

// committed notes that a batch was taken.
func (h *Halves) committed(units []unit, now time.Time) {
	if len(units) == 0 && len(h.suspects) > 0 {
		h.Proofs++
	}
	for _, u := range units {
		delete(h.suspects, u)
	}
	for u, s := range h.suspects {
		if s.others = true; now.Sub(s.last) > suspectedFor {
			delete(h.suspects, u)
		}
	}
	if len(h.suspects) == 0 && h.most > 0 {
		if h.most *= 2; h.most > batchRecords {
			h.most = 0
		}
	}
}

// late notes that a batch of so many bytes was not taken in time.
func (h *Halves) late(bytes int) { h.bytes = max(1, bytes/2) }

// took notes how long one took that was. One that was as large as it might be, and not
// slow, shows that there may be more, little by little: too much costs a takeover.
func (h *Halves) took(bytes int, d time.Duration) {
	if bytes < h.bytes || d > CommitTimeout/2 {
		return
	}
	if h.bytes += (h.bytes + 7) / 8; h.bytes >= batchBytes {
		h.bytes = 0
	}
}

// unproven says that it is time to prove that Kafka takes another batch.
func (h *Halves) unproven(now time.Time) bool {
	for _, s := range h.suspects {
		if !s.others && now.Sub(s.since) >= holdAfter {
			return true
		}
	}
	return false
}

// held says why something is held, "" if it is not.
func (h *Halves) held(u unit) (why string, bare bool) {
	if s := h.suspects[u]; s != nil {
		return s.why, s.bare
	}
	return "", false
}

// Narrows has the lane go on as those before it found out.
func (l *Lane) Narrows(h *Halves) { l.halves = h }

// full says that the batch takes nothing more.
func (l *Lane) full() bool {
	h := l.halves
	return l.current.full() || h.most > 0 && len(l.current.units) >= h.most || h.bytes > 0 && l.current.bytes >= h.bytes
}

// crowded says that the batch is full without what is decided on now, whose unit it has already: alone nothing is too
// much, or where a batch has one unit no order would be released.
func (l *Lane) crowded() bool {
	return l.current.full() || l.halves.bytes > 0 && l.current.bytes >= l.halves.bytes
}

// unit is one of what a batch decides on: an input, or what is due of an order. Every
// input has one, so it is not the text of [decide.Record.Source].
type unit struct {
	topic     string
	partition int32
	offset    int64
	due       string // the order; empty for an input
}

func ofInput(r *decide.Record) unit {
	return unit{topic: r.Topic, partition: r.Partition, offset: r.Offset}
}

func ofDue(order string) unit { return unit{due: order} }

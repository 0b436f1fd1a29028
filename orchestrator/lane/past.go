package lane

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// past is what the ends of the topics tell of transactions that hang.
type past struct {
	journal TopicPartition
	folded  int64 // up to where this instance has folded the journal
	hanging map[Transaction]bool
	writers map[int64]bool // the producers of what stands on the journal
	all     []*pastTransaction
}

func newPast(journal TopicPartition, folded int64, open []OpenTransaction) *past {
	p := &past{journal: journal, folded: folded, hanging: make(map[Transaction]bool), writers: make(map[int64]bool)}
	for _, t := range open {
		p.hanging[t.Transaction] = true
	}
	return p
}

// pastTransaction is a transaction on one partition.
type pastTransaction struct {
	Transaction
	at               TopicPartition
	last             int64 // offset of its last record
	ended, committed bool
	followed         bool // an owner wrote behind it, on the journal
}

// committed says whether a transaction that hangs was committed. Before Kafka
// 4.0 many transactions of a producer have the same epoch, and one that ended
// tells nothing of another.
func (p *past) committed(t OpenTransaction) bool {
	ended := make(map[bool]int) // of its other parts, by whether they were committed
	parts := make(map[TopicPartition]int)
	acknowledged := false
	for _, j := range p.all {
		if j.Transaction != t.Transaction {
			continue
		}
		parts[j.at]++
		switch {
		case j.ended && j.at == p.journal:
			ended[j.committed] += len(p.all) // it outweighs the others
		case j.ended:
			ended[j.committed]++
		case j.at == p.journal:
			acknowledged = j.followed || j.last < p.folded
		}
	}
	for _, n := range parts {
		if n > 1 {
			return acknowledged
		}
	}
	return acknowledged || ended[true] > ended[false]
}

// add takes the next record of a partition, committed or not.
func (p *past) add(r *kgo.Record) {
	at := TopicPartition{r.Topic, r.Partition}
	if r.Attrs.IsControl() {
		for _, j := range p.all {
			if j.at == at && j.Producer == r.ProducerID && !j.ended {
				j.ended, j.committed = true, commits(r)
			}
		}
		return
	}
	if at == p.journal {
		p.writers[r.ProducerID] = true
	}
	claim := events.Header(r, events.HeaderType) == string(events.PartitionClaimed)
	of := Transaction{r.ProducerID, r.ProducerEpoch}
	its := -1
	for i, j := range p.all {
		switch {
		case j.ended || j.at != at:
		case j.Transaction == of:
			its = i
		case !claim:
			j.followed = true
		}
	}
	switch {
	case its >= 0:
		p.all[its].last = r.Offset
	case p.hanging[of]:
		p.all = append(p.all, &pastTransaction{Transaction: of, at: at, last: r.Offset})
	}
}

// commits says whether a control record is the marker of a commit.
func commits(r *kgo.Record) bool {
	return len(r.Key) >= 4 && binary.BigEndian.Uint16(r.Key[2:]) == 1
}

// met says whether the journal's part of each transaction is there.
func (p *past) met(open []OpenTransaction) bool {
	return !slices.ContainsFunc(open, func(t OpenTransaction) bool {
		return !slices.ContainsFunc(p.all, func(j *pastTransaction) bool { return j.at == p.journal && j.Transaction == t.Transaction })
	})
}

const (
	// pastRecords is how far back a partition is read at least.
	pastRecords = 10_000
	// strangersRecords is how far back the journal is read at most for the part of a
	// transaction that may be anybody's.
	strangersRecords = 1_000_000
)

// readPast reads the journal from before what hangs, and, where it is the journal's
// part that hangs, all other partitions to which its producers have written. Folded
// is up to where this instance has folded the journal.
//
// Records that were forwarded kept their time, whatever it says. So the journal is
// read further back until it has a part of all that hangs of the lane's slots.
func (l *Lane) readPast(ctx context.Context, open []OpenTransaction, folded int64) (*past, error) {
	journal := TopicPartition{l.topics.Journal, l.partition}
	first, err := l.broker.Since(ctx, journal, time.UnixMilli(0))
	if err != nil {
		return nil, err
	}
	end, err := l.broker.End(ctx, journal, false)
	if err != nil {
		return nil, err
	}
	from, oldest := end-pastRecords, int64(math.MaxInt64)
	var slots []OpenTransaction
	for _, t := range open {
		switch {
		case t.TopicPartition == journal:
			from, oldest = min(from, t.Offset), min(oldest, t.Written)
		case t.slot == spent:
			at, err := l.broker.Since(ctx, journal, time.UnixMilli(t.Written).Add(-2*longestCommit))
			if err != nil {
				return nil, err
			}
			from = min(from, max(at, end-strangersRecords))
		default:
			slots = append(slots, t)
		}
	}
	p := newPast(journal, folded, open)
	for from = max(from, first); ; from = max(first, end-4*(end-from)) {
		if err := l.readRange(ctx, journal, from, end, p.add); err != nil {
			return nil, err
		}
		if from == first || p.met(slots) {
			break
		}
		p = newPast(journal, folded, open)
	}
	if oldest == math.MaxInt64 {
		return p, nil // the journal says it all
	}
	producers := make(map[int64]bool)
	for t := range p.hanging {
		producers[t.Producer] = true
	}
	places, err := l.broker.Wrote(ctx, producers)
	if err != nil {
		return nil, err
	}
	for _, at := range l.usual() {
		if !slices.Contains(places, at) {
			places = append(places, at)
		}
	}
	for _, at := range places {
		if at == journal {
			continue
		}
		err := l.readEnd(ctx, at, time.UnixMilli(oldest).Add(-2*longestCommit), p.add)
		if err != nil && !TellsNothing(err) {
			return nil, fmt.Errorf("read the ends of the topics, to see what became of a transaction that hangs: %w", err)
		}
	}
	return p, nil
}

// sealedAt is when the partition's last transaction was written: inputs that are older
// were read. Claims may stand behind it, and what nobody has acknowledged.
func (l *Lane) sealedAt(ctx context.Context) (at time.Time, err error) {
	journal, last := TopicPartition{l.topics.Journal, l.partition}, l.state.Head().Transaction
	at = time.UnixMilli(0)
	end, err := l.broker.End(ctx, journal, false)
	if err != nil || last == 0 {
		return at, err
	}
	for from := end; from > 0 && at.UnixMilli() == 0; {
		to := from
		from = max(0, from-pastRecords)
		err := l.readRange(ctx, journal, from, to, func(r *kgo.Record) {
			if seal, err := events.DecodeSeal(events.HeaderValue(r, events.HeaderLane)); err == nil && seal.Transaction == last {
				at = r.Timestamp
			}
		})
		if err != nil {
			return at, err
		}
	}
	return at, nil
}

// TellsNothing says whether err is about what is not there, or may not be read.
func TellsNothing(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.OffsetOutOfRange)
}

// readEnd reads the records of a partition since a time, and some before.
func (l *Lane) readEnd(ctx context.Context, at TopicPartition, since time.Time, each func(*kgo.Record)) error {
	first, err := l.broker.Since(ctx, at, time.UnixMilli(0))
	if err != nil {
		return err
	}
	from, err := l.broker.Since(ctx, at, since)
	if err != nil {
		return err
	}
	end, err := l.broker.End(ctx, at, false)
	if err != nil {
		return err
	}
	return l.readRange(ctx, at, max(first, min(from, end-pastRecords)), end, each)
}

// readRange reads all records of a partition, committed or not, from an offset to
// another.
func (l *Lane) readRange(ctx context.Context, at TopicPartition, from, to int64, each func(*kgo.Record)) error {
	if from >= to {
		return nil
	}
	r, err := l.broker.Read(at.Partition, false)
	if err != nil {
		return err
	}
	defer r.Close()
	r.Seek(map[string]int64{at.Topic: from})
	for from < to {
		wait, cancel := context.WithTimeout(ctx, catchUpPatience)
		fetches := r.Poll(wait, 10_000)
		cancel()
		fetches.EachRecord(func(r *kgo.Record) {
			each(r)
			from = r.Offset + 1
		})
		for _, failed := range fetches.Errors() {
			batch := new(kgo.ErrDecompressTooLarge)
			if at.Topic == l.topics.Journal || !errors.As(failed.Err, &batch) {
				return fmt.Errorf("%s partition %d: %w", at.Topic, at.Partition, failed.Err)
			}
			from = batch.NextOffset // no lane has written such a one
		}
	}
	return nil
}

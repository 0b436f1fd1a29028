package projections

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/go-json-experiment/json"

	"github.com/waybill-dev/waybill/events"
)

// Head is how far a partition's journal was folded, and what its last
// transaction and claim said.
type Head struct {
	// Offset is the next journal offset to fold.
	Offset int64
	// Transaction is the number of the last folded transaction, 0 before the
	// first.
	Transaction uint64
	// Next are the input positions after that transaction: of each input what the
	// last transaction said that named it. An input that none has named was not read.
	Next events.Positions
	// Owner is the instance that claimed the partition last, Claim and
	// ClaimedAt which claim that was.
	Owner, Claim string
	ClaimedAt    time.Time
	// Partitions is the number of partitions of the namespace, which never changes:
	// that of the first claim.
	Partitions int32

	// format is the one of the partition, and vocabulary the
	// newest that an event of it was of: see [Partition.readable].
	format, vocabulary int
}

// Format is the format of the partition: what is new in a later one does not stand
// there, and must not be written.
func (h Head) Format() int { return max(h.format, 1) }

func appendHead(dst []byte, h *Head) []byte {
	w := writer{dst}
	w.int(h.Offset)
	w.uint(h.Transaction)
	w.text(string(h.Next.Append(nil)))
	w.text(h.Owner)
	w.text(h.Claim)
	w.time(h.ClaimedAt)
	w.uint(uint64(h.Partitions))
	w.uint(uint64(h.format))
	w.uint(uint64(h.vocabulary))
	return w.b
}

func (s *Store) head(r pebble.Reader, partition int32) (Head, error) {
	b, err := s.get(r, prefix(partition, kindHead))
	if b == nil || err != nil {
		return Head{}, err
	}
	h, err := decodeHead(b)
	if err != nil {
		return Head{}, fmt.Errorf("partition %d: %w", partition, err)
	}
	return h, nil
}

func decodeHead(b []byte) (Head, error) {
	r := reader{b: b}
	h := Head{Offset: r.int(), Transaction: r.uint()}
	if err := json.Unmarshal([]byte(r.text()), &h.Next); err != nil && r.err == nil {
		r.err = fmt.Errorf("%w: %v", errDamaged, err)
	}
	h.Owner, h.Claim, h.ClaimedAt, h.Partitions = r.text(), r.text(), r.time(), int32(r.uint())
	h.format, h.vocabulary = int(r.uint()), int(r.uint())
	return h, r.err
}

// headOfLayout3 reads what heads of the layouts 3 and 4 begin with.
func (r *reader) headOfLayout3() Head {
	h := Head{Offset: r.int(), Transaction: r.uint()}
	for _, in := range []events.Input{events.InputOrders, events.InputReplies, events.InputCommands} {
		if next := r.int(); h.Transaction > 0 {
			h.Next.Set(in, next)
		}
	}
	h.Owner, h.Claim, h.ClaimedAt, h.Partitions = r.text(), r.text(), r.time(), int32(r.uint())
	return h
}

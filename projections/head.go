package projections

import (
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

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
	// Next are the input positions after that transaction. They mean nothing
	// before the first.
	Next events.Positions
	// Owner is the instance that claimed the partition last, Claim and
	// ClaimedAt which claim that was.
	Owner, Claim string
	ClaimedAt    time.Time
	// Partitions is the number of partitions of the namespace, which never changes.
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
	w.int(h.Next.Orders)
	w.int(h.Next.Replies)
	w.int(h.Next.Commands)
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
	h := r.headOfLayout3()
	h.format, h.vocabulary = int(r.uint()), int(r.uint())
	return h, r.err
}

func (r *reader) headOfLayout3() Head {
	return Head{
		Offset: r.int(), Transaction: r.uint(),
		Next:  events.Positions{Orders: r.int(), Replies: r.int(), Commands: r.int()},
		Owner: r.text(), Claim: r.text(), ClaimedAt: r.time(), Partitions: int32(r.uint()),
	}
}

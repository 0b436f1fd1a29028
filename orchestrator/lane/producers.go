package lane

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Slots is the number of producers that a lane uses in turn. A producer that
// begins a transaction right after a commit meets the markers of the last one;
// its neighbours do not. The number is part of the protocol: whoever takes a
// partition over fences them all.
const Slots = 4

const (
	// TransactionTimeout is how long Kafka lets a transaction of a dead owner
	// stand before it aborts it, where no successor comes to do it earlier.
	TransactionTimeout = 10 * time.Second
	// CommitTimeout is how long a commit may take before its outcome counts as
	// unknown and the lane is taken over anew. It is shorter than the other: what
	// takes longer Kafka would abort, and it would be decided again, for ever.
	CommitTimeout = 8 * time.Second
	// longestCommit is how long one took at most, in any release.
	longestCommit = 20 * time.Second
)

// producers are the transactional producers of one partition, used in turn.
//
// Any error, and above all a commit whose outcome is unknown, makes them
// unusable for good: going on with the same client could commit twice, and kgo
// heals some errors by initialising its id again, which would make an owner of
// a zombie.
type producers struct {
	ring [Slots]Producer
	next int
}

// commit writes records in one transaction, on the next slot. On any error the
// producers must be closed.
func (p *producers) commit(records []*kgo.Record) error {
	slot := p.ring[p.next]
	p.next = (p.next + 1) % Slots
	return slot.Commit(records)
}

// disturbed reports whether one of them lost a connection since the last call.
func (p *producers) disturbed() bool {
	lost := false
	for _, slot := range p.ring {
		lost = slot.Disturbed() || lost
	}
	return lost
}

// close gives the producers up. What they had open is aborted by a successor, or
// by Kafka after the [TransactionTimeout].
func (p *producers) close() {
	for _, slot := range p.ring {
		if slot != nil {
			slot.Close()
		}
	}
}

// RefusedError is the error of a record that the broker, or the client on
// its behalf, would not take.
type RefusedError struct {
	Record *kgo.Record
	Err    error
	// Alone says that it was not in a batch with others, which may be what was
	// refused.
	Alone bool
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("produce to %s: %v", e.Record.Topic, e.Err)
}
func (e *RefusedError) Unwrap() error { return e.Err }

// LateError says that topics did not take their records in time.
type LateError struct{ Topics []string }

// ErrLate says that a record was not taken in time.
var ErrLate = errors.New("not taken in time")

func (e *LateError) Error() string { return fmt.Sprintf("%v: the records for %v", ErrLate, e.Topics) }
func (e *LateError) Unwrap() error { return ErrLate }

package orchestrator

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrBehind says that the lane of an order is too far behind to be given more.
var ErrBehind = errors.New("too much waits to be read")

// backlog says which lanes are behind: a submission that was taken here has not been
// read for too long. It goes by offsets, and by when they were seen here: the times of
// records are their writers', and where a topic ends may be behind markers, which a lane
// that has nothing to do does not say that it has read.
type backlog struct {
	most time.Duration // 0: nobody is ever behind
	// read says whether a submission was: it was decided on, or the lane is behind it.
	read func(partition int32, m mark) (bool, error)
	now  func() time.Time

	mu    sync.Mutex
	marks map[int32][]mark    // of a partition, oldest first
	tried map[int32]time.Time // when one was let through though its lane seems to be behind
}

// mark is a submission of which it is not known whether it was read.
type mark struct {
	at     time.Time
	offset int64
	order  string
}

// check fails with [ErrBehind] if the lane of a partition is.
func (b *backlog) check(partition int32) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	marks := b.marks[partition]
	if b.most <= 0 || len(marks) == 0 || b.since(marks[0]) < b.most {
		return nil
	}
	// One may be parked while others behind it are decided on. And Kafka may have lost
	// one, by a leader that did not have it: it is never read.
	for n := len(marks); n > 0; n-- {
		read, err := b.read(partition, marks[n-1])
		if err != nil {
			return err
		}
		if read || b.since(marks[n-1]) >= 10*b.most {
			marks = marks[n:]
			break
		}
	}
	b.marks[partition] = marks
	if len(marks) > 0 && b.since(marks[0]) >= b.most {
		// The last may be parked: whether others are read shows by one that comes behind it.
		if now := b.now(); now.Sub(b.tried[partition]) >= b.most/10 {
			b.tried[partition] = now
			return nil
		}
		return fmt.Errorf("%w: partition %d is more than %s behind", ErrBehind, partition, b.most)
	}
	return nil
}

// took notes a submission that Kafka has taken. A few marks are enough: they say how
// far behind a lane is to a tenth of what it may be.
func (b *backlog) took(partition int32, offset int64, order string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	marks := b.marks[partition]
	if b.most <= 0 || len(marks) > 0 && b.since(marks[len(marks)-1]) < b.most/10 {
		return
	}
	b.marks[partition] = append(marks, mark{b.now(), offset, order})
}

func (b *backlog) since(m mark) time.Duration { return b.now().Sub(m.at) }

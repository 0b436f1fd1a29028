//go:build unix

package chaos

import (
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// All instances allow for clocks that differ by the allowance: within it no
// attempt expires before its complete-by has passed for the agent, whose clock
// is right. The clock of one instance goes further wrong than that, up to the
// furthest: attempts may then expire early, or late, and nothing else may come
// of it. What is more than believed is found out, within the time that a commit
// may take, and nothing expires.
const (
	allowance = 500 * time.Millisecond
	believed  = time.Minute
	furthest  = 2 * time.Minute
)

// started is a start of an instance, and how wrong its clock is.
type started struct {
	at     time.Time
	offset time.Duration
}

// drawOffset draws how wrong a clock is: every second time within the allowance.
func drawOffset(by *rand.Rand) time.Duration {
	limit := allowance
	if by.IntN(2) == 0 {
		limit = furthest
	}
	return time.Duration(by.Int64N(2*int64(limit))) - limit
}

// offsetAt is how wrong the instance's clock was at a time.
func (i *instance) offsetAt(at time.Time) (offset time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, s := range i.starts {
		if !s.at.After(at) {
			offset = s.offset
		}
	}
	return offset
}

// setClocks sets all clocks right.
func (r *run) setClocks() {
	for _, i := range r.instances {
		i.mu.Lock()
		wrong := i.clock != nil
		i.clock = nil
		i.mu.Unlock()
		if !wrong {
			continue
		}
		if !i.down(syscall.SIGTERM, 30*time.Second) {
			r.forced++
		}
		i.up()
	}
}

// clocks hold what expired against the clocks that there were.
type clocks struct {
	completeBy map[attempt]time.Time
	owner      map[int32]time.Duration // of each partition: how wrong its clock is
	early      int                     // attempts that expired early by a clock beyond the allowance
}

type attempt struct {
	order, step string
	undo        bool
}

// take takes the next event of a journal. It returns false if an attempt expired
// early, and no clock beyond the allowance is to blame. Kafka's clients stamp
// records with the system's time, which is right.
func (c *clocks) take(r *run, record *kgo.Record, e *events.Event) bool {
	this := attempt{e.Order, e.Step, e.Type == events.UndoStarted || e.Type == events.UndoExpired}
	switch e.Type {
	case events.PartitionClaimed:
		for _, i := range r.instances {
			if i.name == e.Instance {
				c.owner[record.Partition] = i.offsetAt(record.Timestamp)
			}
		}
	case events.StepStarted, events.UndoStarted:
		c.completeBy[this] = e.CompleteBy
	case events.StepExpired, events.UndoExpired:
		switch {
		case !record.Timestamp.Before(c.completeBy[this]):
		case c.owner[record.Partition] <= allowance, c.owner[record.Partition] > believed+lane.CommitTimeout:
			return false
		default:
			c.early++
		}
	}
	return true
}

package lane

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// clock is how the lane's clock is held against Kafka's, which stamps the journal
// where that is set: the newest record there is of after the lane's last commit
// began, and of before now. That holds however long anything took. A clock that
// is far off is not supervised by, or whatever runs would expire; and no input is
// decided on as if a deadline had passed. The claim is the first such record.
type clock struct {
	stamped bool         // as the claim was, by Kafka
	claimed time.Time    // when that was written
	wrote   reading      // when the last commit began that ended well
	asked   reading      // wrote, as of the last question
	judged  reading      // asked, as of the last answer
	at      time.Time    // of that, by the timer
	newest  time.Time    // what Kafka said then
	since   time.Time    // when it said so first, by the timer
	off     atomic.Int64 // how far the clock is ahead, if it is far off, else 0
	known   atomic.Bool  // the last look told
}

// reading is that of the clock, and of the timer beside it.
type reading struct{ wall, timer time.Time }

func (l *Lane) reading() reading { return reading{l.time.Wall(), l.time.Timer()} }

// stampedByKafka is the type of a record's time that is not its producer's
// (LogAppendTime).
const stampedByKafka = 1

const (
	// farOff is by how much a clock is wrong that is not believed, where no more is
	// allowed for. Clocks that are kept agree to well below a second.
	farOff = time.Minute
	// clockEvery is how often the clock is looked at beside what is due, while there
	// are commits.
	clockEvery = 10 * time.Second
	// anewEvery is how often a lane whose clock is wrong writes a record to look again.
	anewEvery = time.Minute
	// staysFor is for how long the greatest time of a journal has stayed that is not that
	// of its newest record. Two records can be of one millisecond.
	staysFor = time.Second
)

// parted says that the clock was set since a reading: what was found then says
// nothing of it now.
func (l *Lane) parted(since reading) bool {
	now := l.reading()
	d := now.wall.Sub(since.wall) - now.timer.Sub(since.timer)
	return d.Abs() > l.farOff()
}

func (l *Lane) farOff() time.Duration { return max(farOff, l.cfg.Skew) }

// believed says whether the clock is known to be right, or nobody can know.
func (l *Lane) believed() bool {
	return !l.clock.stamped || l.clock.off.Load() == 0 && !l.parted(l.clock.judged)
}

// clockAhead is how far the clock is ahead of Kafka's, if it is known to be far ahead, and was not set
// since; else 0.
func (l *Lane) clockAhead() time.Duration {
	if l.parted(l.clock.judged) {
		return 0
	}
	return max(0, time.Duration(l.clock.off.Load()))
}

// stamp has records that have no time be of now by Kafka's clock, if the lane's is known to be
// far ahead of it: of what is more than an hour ahead Kafka takes nothing. The client does
// so by the other.
func (l *Lane) stamp(records []*kgo.Record) {
	ahead := l.clockAhead()
	if ahead == 0 {
		return
	}
	now := l.time.Wall().Add(-ahead)
	for _, r := range records {
		if r.Timestamp.IsZero() {
			r.Timestamp = now
		}
	}
}

// check says whether it is time to look at the clock. One that was set, or is wrong,
// needs a record in the journal to be held against.
func (l *Lane) check() bool {
	c := &l.clock
	if !c.stamped {
		return false
	}
	since := func(t time.Time) time.Duration { return l.time.Timer().Sub(t) }
	if l.parted(c.wrote) || c.off.Load() != 0 && since(c.wrote.timer) >= anewEvery {
		l.current.moved = true
	}
	return c.wrote != c.judged && (since(c.at) >= clockEvery || l.parted(c.judged))
}

// judge holds the clock against the time of the newest record of the journal.
func (l *Lane) judge(newest time.Time) {
	c, now := &l.clock, l.reading()
	c.judged, c.at = c.asked, now.timer
	if !newest.Equal(c.newest) {
		c.newest, c.since = newest, now.timer
	}
	ahead, behind := c.judged.wall.Sub(newest), newest.Sub(now.wall)
	var off time.Duration
	told := true
	switch {
	// Kafka tells the greatest time. Where that stays although the lane has written since,
	// its clock was ahead once, and nobody can tell.
	case c.judged.timer.Sub(c.since) >= staysFor:
		told = false
	case ahead > l.farOff():
		off = ahead
	case behind > l.farOff():
		off = -behind
	}
	c.known.Store(told)
	was := c.off.Swap(int64(off))
	switch {
	case off != 0 && was == 0:
		err := l.Unwell()
		l.log.Error("the clock is wrong", "error", err)
		l.alert("", err.Error(), "")
	case off == 0 && was != 0:
		l.log.Info("the clock is right again")
	}
}

// Clock is how far the clock was ahead of Kafka's when it was looked at last, negative if it was behind, if it was far off, and
// else 0. It is not known where Kafka does not stamp the journal, or its own clock was ahead once.
func (l *Lane) Clock() (ahead time.Duration, known bool) {
	return time.Duration(l.clock.off.Load()), l.clock.known.Load()
}

// ErrClock says that the clock of an instance is far off Kafka's.
var ErrClock = errors.New("the clocks of this instance and of Kafka differ by so much that no attempt expires and none is tried again")

// Unwell says why the lane does not do all of its work, nil if it does.
func (l *Lane) Unwell() error {
	off := time.Duration(l.clock.off.Load())
	if off == 0 {
		return nil
	}
	where := "ahead"
	if off < 0 {
		where = "behind"
	}
	return fmt.Errorf("%w: that of %s is %s %s; set it right, or that of the broker", ErrClock, l.cfg.Instance, off.Abs().Round(time.Second), where)
}

package lane

import (
	"time"

	"github.com/waybill-dev/waybill/projections"
)

const (
	// flushEvery is how long a busy lane keeps committed state from the store.
	flushEvery = 100 * time.Millisecond
	// flushEach is for how long a lane that has nothing to decide keeps it, for each record that it wrote last beyond
	// flushFew. To write one takes a hundredth of that; to be woken for a few takes longer than to write them.
	flushEach = 500 * time.Microsecond
	flushFew  = 8
	// releaseEvery is how often partitions release records.
	releaseEvery = 5 * time.Second
)

// flushing is when the lane wrote committed state to the store, by the timer.
type flushing struct {
	at       time.Time
	wrote    int  // how many records, then
	keeps    bool // something was committed since
	releases releases
}

// releases is when a partition released records last, by the timer, and whether there are more.
type releases struct {
	at   time.Time
	more bool
}

// release has the memory of what nobody asks for be used for something else.
func (r *releases) release(of *projections.Partition, now time.Time) {
	if r.more || now.Sub(r.at) >= releaseEvery {
		r.at, r.more = now, of.Release()
	}
}

// keeps is for how long the lane keeps committed state from the store yet: a nanosecond if it is time to write it, 0 if there is
// none. One that has nothing to do does not keep it for long, but one that others use the processor of, or that waits for
// Kafka, may have nothing to do for a moment hundreds of times a second.
func (l *Lane) keeps() time.Duration {
	if !l.flushing.keeps {
		return 0
	}
	every := flushEvery
	if l.current.empty() && l.inflight == nil {
		every = min(every, time.Duration(max(0, l.flushing.wrote-flushFew))*flushEach)
	}
	return max(time.Nanosecond, l.flushing.at.Add(every).Sub(l.time.Timer()))
}

// flush writes what was folded to the store, where others find it.
func (l *Lane) flush() error {
	l.courier.unflushed = false
	l.flushing.at, l.flushing.wrote, l.flushing.keeps = l.time.Timer(), l.state.Unwritten(), false
	return l.state.Flush()
}

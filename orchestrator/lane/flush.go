package lane

import "time"

const (
	// flushEvery is how long a busy lane keeps committed state from the store.
	flushEvery = 100 * time.Millisecond
	// flushEach is for how long a lane that has nothing to decide keeps it, for each record that it wrote last beyond
	// flushFew. To write one takes a hundredth of that; to be woken for a few takes longer than to write them.
	flushEach = 500 * time.Microsecond
	flushFew  = 8
	// releaseEvery is how often the lane has its partition release records.
	releaseEvery = 5 * time.Second
)

// flushing is when the lane wrote committed state to the store, by the timer.
type flushing struct {
	at       time.Time
	wrote    int  // how many records, then
	keeps    bool // something was committed since
	released time.Time
}

// keeps is for how long the lane keeps committed state from the store yet: a nanosecond if it is time to write it, 0 if there is
// none. One that has nothing to decide does not keep it for long, but one that waits for its turn to commit, or for Kafka, may
// have nothing to decide for a moment hundreds of times a second.
func (l *Lane) keeps() time.Duration {
	if !l.flushing.keeps {
		return 0
	}
	every := flushEvery
	if l.current.empty() {
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

// release has the memory of what nobody asks for be used for something else.
func (l *Lane) release() {
	if now := l.time.Timer(); now.Sub(l.flushing.released) >= releaseEvery {
		l.flushing.released = now
		l.state.Release()
	}
}

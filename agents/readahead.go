package agents

import (
	"bytes"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/waybill-dev/waybill/events"
)

// Kafka knows no priorities, and an agent has one queue. So an instance reads
// ahead of what it executes, and chooses (P5). How far it reads bounds the memory,
// and how far back a high request is still seen.
const (
	// readAhead bounds the requests that were read and not started.
	readAhead = 4096
	// readAheadBytes bounds the sum of their values. One poll may go beyond it, by
	// no more than the client holds: fetchBytes from each broker.
	readAheadBytes = 64 << 20
	// fairness is how often the oldest request is taken whatever its priority: at
	// every one of so many picks. So the oldest never waits for more than
	// fairness-1 younger ones, whatever keeps coming, and the watermark of its
	// partition moves on.
	fairness = 8
)

// rank is a priority as the read-ahead orders it.
type rank uint8

const (
	high rank = iota
	normal
	low
	ranks
)

// rankOf takes what it does not know for normal: an agent may be older than the
// orchestrator.
func rankOf(p events.Priority) rank {
	switch p {
	case events.High:
		return high
	case events.Low:
		return low
	default:
		return normal
	}
}

// queue holds what was read ahead, between the fetching goroutine and the workers.
// What is in it is not started: when it closes, its jobs are dropped, and since
// they are uncommitted they come again, here or at another instance.
type queue struct {
	mu       sync.Mutex
	jobs     sync.Cond // a job came, or the queue closed
	room     sync.Cond // there is room for another poll, or the queue closed
	lanes    [ranks]lane
	arrivals uint64 // jobs that ever came
	picks    uint64 // jobs that were ever taken
	waiting  int
	bytes    int
	closed   bool
	now      func() time.Time
	tell     func(waiting int) // whenever that changes
}

func newQueue() *queue {
	q := &queue{now: time.Now, tell: func(int) {}}
	q.jobs.L, q.room.L = &q.mu, &q.mu
	return q
}

// put adds jobs; they are in the order of arrival.
func (q *queue) put(jobs []job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	for _, j := range jobs {
		q.arrivals++
		j.arrival = q.arrivals
		q.lanes[j.rank].push(j)
		q.bytes += len(j.Value)
		q.waiting++
		q.jobs.Signal()
	}
	q.tell(q.waiting)
}

// take waits for the job to execute next; false means that the queue closed.
func (q *queue) take() (job, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && q.waiting == 0 {
		q.jobs.Wait()
	}
	if q.closed {
		return job{}, false
	}
	q.picks++
	from := q.highest()
	if oldest := q.oldest(); oldest != from && (q.picks%fairness == 0 || !q.now().Before(oldest.first().halfway())) {
		from = oldest
	}
	j := from.pop()
	q.waiting--
	q.bytes -= len(j.Value)
	q.tell(q.waiting)
	if q.hasRoom() {
		q.room.Signal()
	}
	return j, true
}

func (q *queue) highest() *lane {
	for i := range q.lanes {
		if !q.lanes[i].empty() {
			return &q.lanes[i]
		}
	}
	panic("agents: took from an empty queue")
}

func (q *queue) oldest() *lane {
	oldest := q.highest()
	for i := range q.lanes {
		if l := &q.lanes[i]; !l.empty() && l.first().arrival < oldest.first().arrival {
			oldest = l
		}
	}
	return oldest
}

// awaitRoom waits until another poll fits; false means that the queue closed.
func (q *queue) awaitRoom() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && !q.hasRoom() {
		q.room.Wait()
	}
	return !q.closed
}

func (q *queue) hasRoom() bool {
	return q.waiting <= readAhead-pollAtMost && q.bytes < readAheadBytes
}

// forget drops the jobs of terms that ended, so that they take no room from those
// of the partitions that are left.
func (q *queue) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting, q.bytes = 0, 0
	for i := range q.lanes {
		kept := lane{}
		for _, j := range q.lanes[i].jobs[q.lanes[i].head:] {
			if !j.partition.over.Load() {
				kept.push(j)
				q.waiting++
				q.bytes += len(j.Value)
			}
		}
		q.lanes[i] = kept
	}
	q.tell(q.waiting)
	q.room.Signal()
}

// close lets everyone go, and what was not taken with it.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.lanes, q.waiting, q.bytes = [ranks]lane{}, 0, 0
	q.tell(0)
	q.jobs.Broadcast()
	q.room.Broadcast()
}

// lane holds the jobs of one rank, first come first served.
type lane struct {
	jobs []job
	head int
}

func (l *lane) empty() bool { return l.head == len(l.jobs) }

func (l *lane) first() *job { return &l.jobs[l.head] }

func (l *lane) push(j job) {
	if l.head > len(l.jobs)/2 && len(l.jobs) == cap(l.jobs) {
		n := copy(l.jobs, l.jobs[l.head:])
		clear(l.jobs[n:])
		l.jobs, l.head = l.jobs[:n], 0
	}
	l.jobs = append(l.jobs, j)
}

func (l *lane) pop() job {
	j := l.jobs[l.head]
	l.jobs[l.head] = job{} // a taken record is garbage once it is answered
	l.head++
	if l.empty() {
		l.jobs, l.head = l.jobs[:0], 0
	}
	return j
}

// halfway is when half of the time is over that a request has. What is asked of an agent
// fits into that: who is of low priority must not expire here behind the high ones that
// keep coming.
func (j *job) halfway() time.Time {
	if j.half.IsZero() {
		var r struct {
			CompleteBy time.Time `json:"completeBy"`
		}
		j.half = never // what cannot be read is reported by whoever reads the rest
		if err := json.Unmarshal(j.Value, &r, readInput); err == nil {
			j.half = j.Timestamp.Add(r.CompleteBy.Sub(j.Timestamp) / 2)
		}
	}
	return j.half
}

// never is later than anything that is asked for.
var never = time.Unix(1<<40, 0)

// priority reads a request's priority, ahead of the rest of it. What cannot be
// read is normal, and reported by whoever reads the rest.
func priority(value []byte) events.Priority {
	// Most have none, and then this is all it costs.
	if !bytes.Contains(value, []byte(`"priority"`)) {
		return events.Normal
	}
	var r struct {
		Priority events.Priority `json:"priority"`
	}
	if err := json.Unmarshal(value, &r, readInput); err != nil {
		return events.Normal
	}
	return r.Priority
}

// Package window says how many requests may be under way at an agent.
//
// The complete-by of an attempt begins when its request leaves, and agents skip what is
// past it (A4): what leaves must not queue for long behind what left before. A [Window]
// is how a lane sees one agent. It keeps what queues there below what the agent takes
// in half of the time that the shortest timeout leaves beside the work itself. Windows of
// other lanes and instances share the agent, and know nothing of each other.
//
// How long a request queued is what its answer took beyond the quickest one of the same
// operation. While requests wait and answers do not queue, the window grows: it doubles
// from one round of answers to the next. If even the quickest answer of a round queued
// for too long, the window shrinks by as much. One that is smaller than a request is a
// pause between two requests. See ADR 0020 for what this was tried against.
package window

import (
	"math"
	"slices"
	"time"
)

const (
	// slack is the part of the time to queue below which a window grows, and idle that
	// below which it may double.
	slack, idle = 0.5, 0.1
	// silent is how many attempts expire one after the other, with no answer to what was
	// asked since, before an agent counts as away: then one request at a time probes it.
	silent = 3
	// A probe follows an expired one after as long as its timeout, twice that the next
	// time, and so on.
	probeFirst, probeLongest = time.Second, 15 * time.Second
	// slowest is the rate, in requests a second, at which an agent is asked at least.
	slowest = 1.0 / 60
	// Those of all instances let their windows run empty at the same time, by the clock:
	// else an operation is never seen that did not queue.
	emptyEvery, emptyLongest = 5 * time.Minute, 10 * time.Second
	// lateLeast and lateLongest bound how long after a late answer others may follow.
	lateLeast, lateLongest = 10 * time.Second, 2 * time.Minute
)

// Window is what is under way at an agent, as far as one lane asked for it. Times are
// those of one clock; if that is set back, requests may leave late. Not safe for
// concurrent use.
type Window struct {
	rate       float64 // requests a second
	operations map[string]*operation

	last time.Time // when a request left
	cut  time.Time // when the rate was lowered because an attempt expired

	// A round ends with the answer to what was asked in it.
	round   time.Time
	least   float64 // how long answers of the round queued, as a part of what they may
	growing bool

	newest  time.Time  // of what was answered, when it was asked
	behind  []requests // those that were asked for after that, in order
	expired time.Time  // of what expired, when it was asked
	silence int        // attempts that expired since an answer to one that was asked later
	probe   time.Duration

	// late are attempts that expired, and that the agent may still work on: while answers
	// to such ones come.
	late    int
	lateAt  time.Time
	lateFor time.Duration

	epoch   int64 // of emptyEvery
	emptied time.Time
}

// operation is what one operation of an agent takes.
type operation struct {
	out, waiting int
	behind       int           // of those that are out, after the newest that was answered
	last         time.Time     // when a request left
	timeout      time.Duration // the shortest of these
	work         time.Duration // of the quickest answer, -1 if there was none
	rate         float64       // answers a second
	at           time.Time     // of the last answer
}

// requests are some of one operation that were asked for at one time.
type requests struct {
	asked time.Time
	of    *operation
	n     int
}

// New returns a window for an agent of which nothing is known but that it may take so
// many requests a second.
func New(rate float64) *Window {
	return &Window{rate: rate, operations: make(map[string]*operation), least: math.Inf(1), growing: true}
}

func (w *Window) operation(name string) *operation {
	o := w.operations[name]
	if o == nil {
		o = &operation{timeout: math.MaxInt64, work: -1}
		w.operations[name] = o
	}
	return o
}

// Waits says that so many more attempts wait to be asked for, or fewer.
func (w *Window) Waits(name string, timeout time.Duration, more int) {
	o := w.operation(name)
	if o.waiting += more; more > 0 {
		o.timeout = min(o.timeout, timeout)
	}
	o.rest()
}

// Asked says that a request leaves now.
func (w *Window) Asked(name string, timeout time.Duration, now time.Time) {
	w.add(name, timeout, now, 1)
	w.last, w.operation(name).last = now, now
}

// Known says that so many are under way, whoever asked for them, if those are more than
// were asked for here.
func (w *Window) Known(name string, timeout time.Duration, out int, now time.Time) {
	if more := out - w.operation(name).out; more > 0 {
		w.add(name, timeout, now, more)
	}
}

func (w *Window) add(name string, timeout time.Duration, asked time.Time, n int) {
	o := w.operation(name)
	o.out, o.behind = o.out+n, o.behind+n
	o.timeout = min(o.timeout, timeout)
	if last := len(w.behind) - 1; last >= 0 && w.behind[last].of == o && !asked.After(w.behind[last].asked) {
		w.behind[last].n += n
		return
	}
	w.behind = append(w.behind, requests{asked, o, n})
}

// Ended says that an attempt, which was asked for at a time, ended without an answer, and
// before it expired.
func (w *Window) Ended(name string, asked time.Time) { w.remove(w.operation(name), asked) }

// remove takes out one that is not under way any more.
func (w *Window) remove(o *operation, asked time.Time) {
	o.out = max(0, o.out-1)
	i, _ := slices.BinarySearchFunc(w.behind, asked, func(r requests, t time.Time) int { return r.asked.Compare(t) })
	for ; i < len(w.behind) && w.behind[i].asked.Equal(asked); i++ {
		if r := &w.behind[i]; r.of == o && r.n > 0 {
			r.n--
			o.behind--
			break
		}
	}
	o.rest()
}

// taken says that the agent has taken what was asked for before a time: it answered what
// was asked for then.
func (w *Window) taken(asked time.Time) {
	if !asked.After(w.newest) {
		return
	}
	w.newest = asked
	n := 0
	for ; n < len(w.behind) && w.behind[n].asked.Before(asked); n++ {
		w.behind[n].of.behind -= w.behind[n].n
	}
	w.behind = w.behind[n:]
}

// rest forgets the timeouts of what is not under way any more, and does not wait.
func (o *operation) rest() {
	if o.out+o.waiting <= 0 {
		o.timeout = math.MaxInt64
	}
}

// quick is how long the operation takes, if it does not queue.
func (o *operation) quick() time.Duration { return max(0, o.work) }

// allowance is how long a request of the operation may queue that has such a timeout.
func (o *operation) allowance(timeout time.Duration) time.Duration {
	return max(timeout-o.quick(), timeout/10) / 2
}

// Out is how many are under way.
func (w *Window) Out() (n int) {
	for _, o := range w.operations {
		n += o.out
	}
	return n
}

// waiting is how many wait.
func (w *Window) waiting() (n int) {
	for _, o := range w.operations {
		n += o.waiting
	}
	return n
}

// allowance is how long any request may queue, in seconds.
func (w *Window) allowance() float64 {
	least := time.Duration(math.MaxInt64)
	for _, o := range w.operations {
		if o.out+o.waiting > 0 {
			least = min(least, o.allowance(o.timeout))
		}
	}
	return least.Seconds()
}

// queue is how many queue at the agent: what it was asked for after the newest that it
// has answered, beyond what it works on, which is what it answers in as long as that
// takes.
func (w *Window) queue(now time.Time) (n float64) {
	for _, o := range w.operations {
		work := o.quick().Seconds()
		rate := o.rate * math.Exp(-max(0, now.Sub(o.at).Seconds()-1)/max(1, 4*work))
		n += max(0, float64(o.behind)-rate*work)
	}
	return n
}

// Size is how many may queue at the agent, less than 1 if each is followed by a pause.
func (w *Window) Size() float64 { return w.rate * w.allowance() }

// Away says that the agent gives no sign: only probes leave.
func (w *Window) Away() bool { return w.silence > silent }

// Free is how many more of an operation may leave now, with such a timeout. If none, an
// answer may make room, or time.
func (w *Window) Free(name string, timeout time.Duration, now time.Time) int {
	o := w.operation(name)
	allowance := o.allowance(min(o.timeout, timeout))
	if w.last.After(now) { // the clock was set back
		w.last, o.last = now, now
	}
	if epoch := now.UnixMilli() / emptyEvery.Milliseconds(); epoch != w.epoch {
		w.epoch, w.emptied = epoch, now.Add(emptyLongest)
	}
	queue := w.queue(now)
	if w.emptied.After(now) {
		if queue >= 2 {
			return 0
		}
		for _, o := range w.operations {
			o.work = -1
		}
		w.emptied, w.growing = time.Time{}, false
	}
	size := w.rate * min(w.allowance(), allowance.Seconds())
	late := w.late > 0 && now.Sub(w.lateAt) < w.lateFor
	paced := time.Duration(float64(time.Second) / w.rate)
	switch {
	case late && (w.Away() || size < float64(w.late)):
		return 0
	case late:
		queue += float64(w.late)
	}
	switch {
	case w.Away():
		pause := w.probe
		if w.lateAt.After(w.last) { // it is there, and far behind
			pause = max(pause, paced)
		}
		return one(w.Out() == 0 && now.Sub(w.last) >= pause)
	case o.out == 0: // others may take for ever: what is quick finds out
		return max(one(now.Sub(o.last) >= max(paced, allowance)), within(size, queue))
	case size < 1:
		return one(queue < 1 && now.Sub(w.last) >= paced)
	}
	return within(size, queue)
}

func within(size, queue float64) int { return int(min(max(0, size-queue), most)) }

// most is more than anybody asks for at a time.
const most = 1 << 30

func one(may bool) int {
	if may {
		return 1
	}
	return 0
}

// Answered says that an attempt that was asked for at a time, and whose request was
// there at another, was answered in time, by a reply that was written at a third.
func (w *Window) Answered(name string, asked, there, written, now time.Time) {
	o := w.operation(name)
	allowance := o.allowance(o.timeout) // while it is known
	w.remove(o, asked)
	w.taken(asked)
	took := max(0, written.Sub(there))
	if o.work < 0 || took < o.work {
		o.work = took
	}
	over := max(1, 2*o.work.Seconds())
	o.rate = o.rate*math.Exp(-max(0, now.Sub(o.at).Seconds())/over) + 1/over
	o.at = now
	if !asked.Before(w.expired) {
		w.silence, w.probe, w.late = 0, 0, 0
	}
	queued := float64(took-o.work) / float64(max(allowance, 1))
	w.least = min(w.least, queued)
	if asked.After(w.round) {
		if w.least > 1 {
			w.slow(w.least)
		}
		w.growing = w.least < slack
		w.round, w.least = now, math.Inf(1)
	}
	if w.growing && queued < slack && w.waiting() > 0 {
		more := min(1/w.allowance(), w.rate)
		if queued > idle {
			more /= max(1, w.Size())
		}
		w.rate += more
	}
}

func (w *Window) slow(times float64) { w.rate = max(w.rate/times, slowest) }

// Expired says that an attempt that was asked for at a time expired.
func (w *Window) Expired(name string, timeout time.Duration, asked, now time.Time) {
	w.remove(w.operation(name), asked)
	w.late++
	if asked.After(w.expired) {
		w.expired = asked
	}
	if asked.Before(w.newest) {
		return // what was asked later was answered: it is lost, or failed by itself
	}
	w.silence++
	if w.Away() {
		w.probe = min(max(2*w.probe, timeout, probeFirst), max(probeLongest, timeout))
		return
	}
	if asked.After(w.cut) {
		w.slow(2)
		w.cut = now
	}
}

// Late says that an attempt was answered that had expired. When it was asked for is zero
// if that is not known any more.
func (w *Window) Late(asked, now time.Time) {
	if asked.After(w.cut) {
		w.slow(2)
		w.cut = now
	}
	w.late = max(0, w.late-1)
	if !w.lateAt.IsZero() {
		w.lateFor = max(w.lateFor, 4*now.Sub(w.lateAt))
	}
	w.lateFor = min(max(w.lateFor, lateLeast), lateLongest)
	w.lateAt = now
}

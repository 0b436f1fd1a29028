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
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
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
	// time, and so on: longer where the agent has given a sign to any lane of late, so that it
	// is there, and has too much to do. What takes longer than a part of its timeout expires so
	// late that the sign may be of before the agent went away.
	probeFirst, probeLongest, probeBusy = time.Second, 15 * time.Second, time.Minute
	signLasts                           = 2 * probeLongest
	quickWork                           = 10
	// slowest is the rate, in requests a second, at which an agent is asked at least.
	slowest = 1.0 / 60
	// Those of all instances let the windows of an agent for which something waits, and
	// whose answers queue, run empty at the same time, by the clock: else an operation is
	// never seen that did not queue. In so many times as long as the last one queued they
	// have run empty, and one of each operation leaves before the others do. It takes the
	// inverse of a part of the time at most.
	emptyEvery, emptyLongest, emptyPart, emptyAfter, probing = 5 * time.Minute, time.Minute, 20, 1.2, 500 * time.Millisecond
	// lateLeast and lateLongest bound how long after a late answer others may follow.
	lateLeast, lateLongest = 10 * time.Second, 2 * time.Minute
	// excused is how many attempts of a step an agent may answer too late, and outrun how many
	// while it answers others in time.
	excused, outrun = 5, 20
	// keeps is how many answers are kept to tell how long an operation takes.
	keeps = 100
	// idlesAfter is how long a rate is kept that is not needed.
	idlesAfter = 5 * time.Second
	// endsLate is how much later than after twice its timeout an attempt may end.
	endsLate = time.Minute
)

// Window is what is under way at an agent, as far as one lane asked for it. Times are
// those of one clock; if that is set back, requests may leave late. Not safe for
// concurrent use.
type Window struct {
	rate       float64 // requests a second
	believed   float64 // the rate of an agent of which nothing is known
	most       int     // under way at a time, 0 for any number
	operations map[string]*operation
	each       []*operation // in the order in which they became known
	under      int          // requests under way
	waiting    int          // attempts that wait
	resting    int          // attempts that expired, and of which the next one is not due yet
	sums       sums

	last time.Time // when a request left
	// used is the longest queue since a time, and needed says that something waited.
	used   float64
	since  time.Time
	needed bool
	cut    time.Time // when the rate was lowered because an attempt expired

	// A round ends with the answer to what was asked in it.
	round   time.Time
	least   float64 // how long answers of the round queued, as a part of what they may
	growing bool

	out     []requests // what is under way, in the order in which it was asked for, and gaps
	gaps    int
	newest  time.Time // of what was answered, when it was asked
	expired time.Time // of what expired, when it was asked
	silence int       // attempts that expired since an answer to one that was asked later
	probe   time.Duration
	away    time.Time // since when it counts as away
	told    bool      // that is what the lane was told, and nothing that it asked for
	// vain is how long after one that found out the next does at the earliest, longer with each until one is answered.
	vain time.Duration

	// late are attempts that expired, and that the agent may still work on: while answers
	// to such ones come.
	late    int
	lateAt  time.Time
	lateFor time.Duration
	// heard says that one was answered since the last request left, and heardBefore that one
	// was between that and the one before.
	heard, heardBefore bool

	// jitter is what a pause is multiplied with until the next request leaves: else all lanes
	// ask at the same time.
	jitter float64
	draws  *rand.Rand

	sign *Sign

	epoch  int64         // of emptyEvery
	queued time.Duration // what was answered last
	// empty is when it has run empty, and reopens when all goes on.
	empty, reopens time.Time
}

// operation is what one operation of an agent takes.
type operation struct {
	out, waiting int
	behind       int       // of those that are out, after the newest that was answered
	last         time.Time // when a request left
	timeouts     map[time.Duration]int
	timeout      time.Duration // the shortest of these
	// took are some of how long answers took since they were first asked for, in order, and
	// seen is of how many. By the clocks of both sides, so they may be negative.
	took   []time.Duration
	seen   int
	known  time.Time // when the first was asked for
	worked bool      // they are of work that was done; until there is one, also of what failed
	rate   float64   // answers a second
	at     time.Time // of the last answer
}

// sums are over all operations, as long as nothing changes.
type sums struct {
	allowance time.Duration // see [Window.allowance]; 0 if it changed
	queue     float64       // see [Window.queue]
	at        time.Time     // of that; zero if it changed
}

// requests are some of one operation that were asked for at one time, with one timeout.
// None are left of them once all ended.
type requests struct {
	asked   time.Time
	timeout time.Duration
	of      *operation
	n       int
	last    time.Time // when the agent said that it is still at one of them
}

// Signs say when agents answered last, whichever lane of an instance, and what became of
// what they were asked for since. The zero value is ready, and safe for concurrent use.
type Signs struct{ agents sync.Map }

// Of is that of an agent.
func (s *Signs) Of(agent string) *Sign {
	sign, _ := s.agents.LoadOrStore(agent, new(Sign))
	return sign.(*Sign) //nolint:forcetypeassert // nothing else is stored
}

// Sign is when an agent answered last, and when in time, in nanoseconds since 1970, and what it
// was asked for.
type Sign struct {
	last, inTime atomic.Int64
	atOnce       atomic.Int64 // when the newest was asked for that it answered at once, as if nothing queued
	spent        atomic.Int64 // what that was when a lane asked because of it
	expired      atomic.Int64 // attempts, asked for after that, since it answered
	// Attempts in all lanes.
	under, waiting, resting atomic.Int64
}

func (s *Sign) given(now time.Time, inTime bool) {
	s.last.Store(now.UnixNano())
	s.expired.Store(0)
	if inTime {
		s.inTime.Store(now.UnixNano())
	}
}

// answered says that an attempt was answered in time that was asked for at a time, and whether at once.
func (s *Sign) answered(asked, now time.Time, atOnce bool) {
	s.given(now, true)
	at, newest := asked.UnixNano(), s.atOnce.Load()
	if atOnce && !asked.After(now) && (at > newest || newest > now.UnixNano()) { // a clock was set back
		s.atOnce.Store(at)
	}
}

// missed says that an attempt expired that was asked for at a time.
func (s *Sign) missed(asked time.Time) {
	if asked.UnixNano() > s.last.Load() {
		s.expired.Add(1)
	}
}

// lately says that the agent answered of late.
func (s *Sign) lately(now time.Time) bool { return lately(&s.last, now) }

// InTime says that the agent answered in time of late, in the last half minute.
func (s *Sign) InTime(now time.Time) bool { return lately(&s.inTime, now) }

// One of later than now is of a clock that was set back.
func lately(at *atomic.Int64, now time.Time) bool {
	ago := now.Sub(time.Unix(0, at.Load()))
	return ago >= 0 && ago < signLasts
}

// New returns a window for an agent of which nothing is known but that it may take so
// many requests a second, and what sign it gave. At most so many are under way at a time; 0
// is any number. Those of other lanes have other seeds, and so pauses of other lengths.
func New(rate float64, most int, seed uint64, sign *Sign) *Window {
	return &Window{
		sign: sign,
		rate: rate, believed: rate, most: most, operations: make(map[string]*operation), least: math.Inf(1), growing: true,
		jitter: 1, draws: rand.New(rand.NewPCG(seed, 0)),
	}
}

func (w *Window) operation(name string) *operation {
	o := w.operations[name]
	if o == nil {
		o = &operation{timeout: math.MaxInt64, timeouts: make(map[time.Duration]int)}
		w.operations[name], w.each = o, append(w.each, o)
	}
	return o
}

// Waits says that so many more attempts wait to be asked for, or fewer.
func (w *Window) Waits(name string, timeout time.Duration, more int) {
	o := w.operation(name)
	w.sign.waiting.Add(int64(more))
	o.waiting += more
	w.waiting += more
	o.bounds(timeout, more)
	w.sums = sums{}
}

// Asked says that a request leaves now. By the time at which it was asked, and its timeout,
// the window knows it again.
func (w *Window) Asked(name string, timeout time.Duration, asked, now time.Time) {
	w.idles(now)
	if at := w.findsOut(); !at.IsZero() { // else it cannot have left because of that
		if free, _ := w.free(name, timeout, now); free == 0 {
			w.vain = min(max(2*w.vain, 2*probeFirst), probeLongest)
			w.sign.spent.Store(w.sign.atOnce.Load())
		}
	}
	w.Known(name, timeout, asked)
	w.used, w.needed = max(w.used, w.queue(now)), w.needed || w.waiting > 0
	w.last, w.operation(name).last = now, now
	w.jitter = 0.5 + w.draws.Float64()
	w.heardBefore, w.heard = w.heard, false
}

// idles takes back what a rate was raised to that nobody needs any more: it may have been
// that of one lane while all others had nothing to ask for.
func (w *Window) idles(now time.Time) {
	if now.Sub(w.since) < idlesAfter {
		return
	}
	if now.Sub(w.last) >= idlesAfter {
		w.used, w.needed = 0, false
	}
	if !w.needed {
		w.rate = min(w.rate, max(w.believed, 2*w.used/w.allowance()))
	}
	w.since, w.used, w.needed = now, 0, false
}

// Known says that a request is under way, whoever asked for it.
func (w *Window) Known(name string, timeout time.Duration, asked time.Time) {
	o := w.operation(name)
	w.sign.under.Add(1)
	o.out++
	w.under++
	w.sums = sums{}
	o.bounds(timeout, 1)
	i := len(w.out)
	for i > 0 && asked.Before(w.out[i-1].asked) {
		i--
	}
	if !asked.Before(w.newest) {
		o.behind++
	}
	if i > 0 && w.out[i-1].of == o && w.out[i-1].timeout == timeout && w.out[i-1].asked.Equal(asked) {
		if w.out[i-1].n == 0 {
			w.gaps--
		}
		w.out[i-1].n++
		return
	}
	w.out = slices.Insert(w.out, i, requests{asked: asked, timeout: timeout, of: o, n: 1})
}

// Ended says that an attempt, which was asked for at a time, ended without an answer, and
// before it expired.
func (w *Window) Ended(name string, timeout time.Duration, asked time.Time) {
	w.remove(w.operation(name), timeout, asked)
}

// remove takes out one that is not under way any more.
func (w *Window) remove(o *operation, timeout time.Duration, asked time.Time) {
	for i := w.from(asked); i < len(w.out) && w.out[i].asked.Equal(asked); i++ {
		if r := &w.out[i]; r.of == o && r.timeout == timeout && r.n > 0 {
			w.less(r, 1)
			break
		}
	}
	for len(w.out) > 0 && w.out[0].n == 0 { // most end in about the order in which they began
		w.out, w.gaps = w.out[1:], w.gaps-1
	}
	if w.gaps > len(w.out)/2 {
		w.out, w.gaps = slices.DeleteFunc(w.out, func(r requests) bool { return r.n == 0 }), 0
	}
}

// less takes out some that were asked for at one time.
func (w *Window) less(r *requests, n int) {
	r.of.bounds(r.timeout, -n)
	w.sign.under.Add(int64(-n))
	r.of.out -= n
	w.under -= n
	w.sums = sums{}
	if !r.asked.Before(w.newest) {
		r.of.behind -= n
	}
	if r.n -= n; r.n == 0 {
		w.gaps++
	}
}

// from is where those begin that were asked for at a time or later.
func (w *Window) from(asked time.Time) int {
	i, _ := slices.BinarySearchFunc(w.out, asked, func(r requests, t time.Time) int { return r.asked.Compare(t) })
	return i
}

// Forget takes out those of which nobody said how they ended: they have.
func (w *Window) Forget(now time.Time) {
	for i := range w.out {
		r := &w.out[i]
		last := r.asked
		if r.last.After(last) {
			last = r.last
		}
		if r.n > 0 && last.Add(2*r.timeout+endsLate).Before(now) {
			w.less(r, r.n)
		}
	}
}

// taken says that the agent has taken what was asked for before a time: it answered what
// was asked for then.
func (w *Window) taken(asked time.Time) {
	if !asked.After(w.newest) {
		return
	}
	for i := w.from(w.newest); i < len(w.out) && w.out[i].asked.Before(asked); i++ {
		w.out[i].of.behind -= w.out[i].n
	}
	w.newest = asked
}

// back has nothing be later than now: the clock was set back.
func (w *Window) back(now time.Time) {
	w.sums = sums{}
	for i := w.from(now); i < len(w.out) && w.out[i].asked.Before(w.newest); i++ {
		w.out[i].of.behind += w.out[i].n
	}
	for _, t := range []*time.Time{&w.last, &w.newest, &w.round, &w.cut, &w.expired, &w.away, &w.lateAt, &w.since, &w.empty, &w.reopens} {
		if t.After(now) {
			*t = now
		}
	}
	for _, o := range w.each {
		if o.last.After(now) {
			o.last = now
		}
	}
}

// bounds counts those of a timeout that are under way or wait.
func (o *operation) bounds(timeout time.Duration, more int) {
	if o.timeouts[timeout] += more; o.timeouts[timeout] > 0 {
		o.timeout = min(o.timeout, timeout)
		return
	}
	delete(o.timeouts, timeout)
	o.timeout = math.MaxInt64
	for t := range o.timeouts {
		o.timeout = min(o.timeout, t)
	}
}

// learn takes it that an answer took so long.
func (o *operation) learn(took time.Duration, draws *rand.Rand) {
	o.seen++
	if len(o.took) == keeps {
		if draws.IntN(o.seen) >= keeps {
			return
		}
		i := draws.IntN(keeps)
		o.took = slices.Delete(o.took, i, i+1)
	}
	i, _ := slices.BinarySearch(o.took, took)
	o.took = slices.Insert(o.took, i, took)
}

// work is how long the operation takes that does not queue: as the quickest fiftieth. Of
// few, what is the quickest: one of many may be answered without any work.
func (o *operation) work() time.Duration {
	if len(o.took) == 0 {
		return 0
	}
	return o.took[len(o.took)/50]
}

// quick is how long the operation takes, if it does not queue.
func (o *operation) quick() time.Duration { return max(0, o.work()) }

// allowance is how long a request of the operation may queue that has such a timeout.
func (o *operation) allowance(timeout time.Duration) time.Duration {
	return max(timeout-o.quick(), timeout/10) / 2
}

// Out is how many are under way.
func (w *Window) Out() int { return w.under }

// Oldest is when that was asked for which is under way for longest, zero if nothing is.
func (w *Window) Oldest() time.Time {
	if w.under == 0 {
		return time.Time{}
	}
	return w.out[0].asked
}

// Silenced is how many would have used up their attempts but for the silence of the agent, to
// all or to this lane alone, and the shortest timeout of those that are under way.
func (w *Window) Silenced() (n int, timeout time.Duration) {
	timeout = math.MaxInt64
	if !w.Silent() && !w.Away() {
		return 0, timeout
	}
	for _, o := range w.each {
		if o.out > 0 {
			timeout = min(timeout, o.timeout)
		}
	}
	return w.under + w.resting, timeout
}

// Rests says that so many more attempts expired of which the next one is not due yet, or fewer.
func (w *Window) Rests(more int) {
	w.resting += more
	w.sign.resting.Add(int64(more))
}

// Wanted is how many are under way, wait or rest, in all lanes of the instance.
func (w *Window) Wanted() int {
	return int(w.sign.under.Load() + w.sign.waiting.Load() + w.sign.resting.Load())
}

// Close takes those of the lane out of that, when it ends.
func (w *Window) Close() {
	w.sign.under.Add(-int64(w.under))
	w.sign.waiting.Add(-int64(w.waiting))
	w.sign.resting.Add(-int64(w.resting))
}

// allowance is how long any request may queue, in seconds.
func (w *Window) allowance() float64 {
	if w.sums.allowance == 0 {
		w.sums.allowance = math.MaxInt64
		for _, o := range w.each {
			if o.out+o.waiting > 0 {
				w.sums.allowance = min(w.sums.allowance, o.allowance(o.timeout))
			}
		}
	}
	return w.sums.allowance.Seconds()
}

// queue is how many queue at the agent: what it was asked for after the newest that it
// has answered, beyond what it works on, which is what it answers in as long as that
// takes.
func (w *Window) queue(now time.Time) float64 {
	if w.sums.at.IsZero() || !w.sums.at.Equal(now) {
		w.sums.queue, w.sums.at = 0, now
		for _, o := range w.each {
			if o.behind > 0 {
				work := o.quick().Seconds()
				rate := o.rate * math.Exp(-max(0, now.Sub(o.at).Seconds()-1)/max(1, 4*work))
				w.sums.queue += max(0, float64(o.behind)-rate*work)
			}
		}
	}
	return w.sums.queue
}

// Size is how many may queue at the agent, less than 1 if each is followed by a pause.
func (w *Window) Size() float64 { return w.rate * w.allowance() }

// Away says that the agent answers nothing in time: only probes leave.
func (w *Window) Away() bool {
	if w.told && w.sign.inTime.Load() > w.away.UnixNano() { // it answers others
		w.silence, w.probe, w.told = 0, 0, false
	}
	return w.silence > silent
}

// Silent says that attempts expired one after the other, with no answer to any lane of the
// instance since.
func (w *Window) Silent() bool { return w.sign.expired.Load() > silent }

// WasAway says that the agent was away before the window was made: so it is until it answers,
// this lane or another of the instance. If it has answered none so far, it is silent to all.
func (w *Window) WasAway(now time.Time) {
	w.silence, w.away, w.probe, w.told = silent+1, now, probeFirst, true
	if w.sign.last.Load() == 0 {
		w.sign.expired.CompareAndSwap(0, silent+1)
	}
}

// Rested says that nothing was wanted of the agent for long: what was known of it is of before.
func (w *Window) Rested() {
	w.silence, w.probe, w.vain, w.told = 0, 0, 0, false
	w.late, w.lateAt, w.lateFor = 0, time.Time{}, 0
}

// Idle says that nothing is under way, waits or rests.
func (w *Window) Idle() bool { return w.under+w.waiting+w.resting == 0 }

// Owes says that an attempt expired since the agent answered last.
func (w *Window) Owes() bool { return w.silence > 0 || w.late > 0 }

// Excuses says that an attempt, which was asked for at a time and expires now, says nothing of
// what was asked for: the agent answers nothing in time, or nothing to any lane, or others must ask
// it for more than it takes: it is asked for very little, or others wait in any lane, it answers any
// in time, and answered nothing here that was asked for later. Once it answers too late, that is so for the first few
// attempts only: either it has a queue, which is asked for less, or its work takes too long. For
// more of them if it answered any lane in time of late: then others were quicker.
// Of a retry policy of one attempt only the first two hold: its work may not be done twice.
func (w *Window) Excuses(name string, timeout time.Duration, asked time.Time, attempt, of int, now time.Time) bool {
	most, inTime := excused, w.sign.InTime(now)
	if inTime {
		most = outrun
	}
	switch {
	case attempt > most:
		return w.Away() && !w.heard && !w.heardBefore
	case w.Away() || w.Silent():
		return true
	case of == 1 || timeout <= w.operation(name).quick():
		return false
	}
	others := w.waiting > 0 || w.sign.waiting.Load() > 0 && w.operation(name).worked
	crowded := inTime && others && w.most != 1 && !asked.Before(w.newest) // of one at a time none is asked for later
	return crowded || w.Size() < 1 && w.rate < w.believed
}

// Free is how many more of an operation may leave now, with such a timeout. If none, an
// answer may make room; and so does time, if again is not zero.
func (w *Window) Free(name string, timeout time.Duration, now time.Time) (n int, again time.Time) {
	n, again = w.free(name, timeout, now)
	if n == 0 && w.operation(name).out == 0 && !now.Before(w.reopens) {
		if at := w.findsOut(); !at.IsZero() && (again.IsZero() || at.Before(again)) {
			n, again = one(!now.Before(at)), at
		}
	}
	if w.most > 0 {
		n = min(n, max(0, w.most-w.Out()))
	}
	if n > 0 || !again.After(now) {
		again = time.Time{}
	}
	return n, again
}

// findsOut is when one leaves at the latest of an operation of which none is under way, be the agent away, slow or far
// behind as far as this lane knows: soon after the last request if it answers others at once, so that it has nothing to do;
// about one lane after the other asks because of that. So it is where the instance wants so little of an agent that it
// makes no queue, and none of it is under way, whose answer could tell; but not just after a late answer. Each that leaves
// so makes it rarer. Else zero.
func (w *Window) findsOut() time.Time {
	pause := max(probeFirst, w.vain)
	switch {
	case w.answersOthers():
		return w.last.Add(w.random(pause))
	case w.sign.under.Load() > 0 || w.Wanted() > silent:
		return time.Time{}
	}
	at, late := w.last.Add(w.random(max(pause, min(w.probe, probeLongest)))), w.lateAt.Add(w.random(lateLeast))
	if late.After(at) {
		return late
	}
	return at
}

// answersOthers says that the agent answered another lane at once what was asked for after this lane's last request, and
// that no lane has asked because of that.
func (w *Window) answersOthers() bool {
	at := w.sign.atOnce.Load()
	return at != w.sign.spent.Load() && at > w.last.UnixNano()
}

func (w *Window) free(name string, timeout time.Duration, now time.Time) (n int, again time.Time) {
	o := w.operation(name)
	allowance := o.allowance(min(o.timeout, timeout))
	if w.last.After(now) || w.newest.After(now) {
		w.back(now)
	}
	if epoch := now.UnixMilli() / emptyEvery.Milliseconds(); epoch != w.epoch {
		w.epoch = epoch
		w.Forget(now)
		w.runEmpty()
	}
	switch {
	case now.Before(w.reopens) && now.Before(w.empty):
		return 0, w.empty
	case now.Before(w.reopens): // nothing else queues
		w.round, w.growing = now, false
		return one(o.last.Before(w.empty)), w.reopens
	}
	queue := w.queue(now)
	least := min(w.allowance(), allowance.Seconds())
	size := w.rate * least
	if w.quiet(least) {
		size = max(size, 2)
	}
	lateUntil := w.lateAt.Add(w.random(w.lateFor))
	late := w.late > 0 && now.Before(lateUntil)
	paced := w.random(time.Duration(float64(time.Second) / w.rate))
	switch {
	case late && (w.Away() || size < float64(w.late)):
		return 0, lateUntil
	case late:
		queue += float64(w.late)
	}
	alone := o.last.Add(max(paced, allowance)) // others may take for ever: what is quick finds out
	switch {
	case w.Away():
		pause := w.random(w.probe)
		if w.lateAt.After(w.last) { // it is there, and far behind
			pause = max(pause, paced)
		}
		if o.out > 0 && (!w.told || !o.last.IsZero()) { // what another owner asked for may be lost
			return 0, again
		}
		again = w.last.Add(pause)
		return one(!now.Before(again)), again
	case o.out == 0 && !now.Before(alone):
		return max(1, within(size, queue)), again
	case size < 1 && queue < 1:
		again = w.last.Add(paced)
		return one(!now.Before(again)), again
	case o.out == 0:
		again = alone
	}
	if size < 1 {
		return 0, again
	}
	return within(size, queue), again
}

// quiet says that nothing expires, and that what was answered last had not queued: who asks
// for little waits for nothing.
func (w *Window) quiet(allowance float64) bool {
	return !w.round.IsZero() && w.silence == 0 && w.late == 0 && w.queued.Seconds() < slack*allowance
}

// runEmpty has the window run empty from the beginning of the epoch on, if it must.
func (w *Window) runEmpty() {
	longest := time.Duration(w.allowance() * float64(time.Second))
	if w.waiting == 0 || float64(w.queued) < idle*float64(longest) {
		return
	}
	takes := min(time.Duration(emptyAfter*float64(min(w.queued, longest))), emptyLongest)
	for every := int64(1); time.Duration(every)*emptyEvery < emptyPart*takes; every *= 2 {
		if w.epoch%(2*every) != 0 {
			return
		}
	}
	w.empty = time.UnixMilli(w.epoch * emptyEvery.Milliseconds()).Add(takes)
	w.reopens = w.empty.Add(max(takes/6, probing))
}

// random is a pause of about d.
func (w *Window) random(d time.Duration) time.Duration { return time.Duration(w.jitter * float64(d)) }

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
// there at another, was answered in time, by a reply that was written at a third; and
// whether that was for work that was done.
func (w *Window) Answered(name string, timeout time.Duration, worked bool, asked, there, written, now time.Time) {
	o := w.operation(name)
	allowance := w.allowance() // of all that is under way, this one too
	w.remove(o, timeout, asked)
	w.taken(asked)
	took := written.Sub(there)
	if w.probe > probeLongest { // it is not back, but busy
		w.rate = max(slowest, min(w.rate, 1/w.probe.Seconds()))
	}
	if o.seen == 0 || worked && !o.worked || o.known.Before(w.empty) && !asked.Before(w.empty) {
		o.took, o.seen, o.known, o.worked = o.took[:0], 0, asked, worked
	}
	if worked == o.worked {
		o.learn(took, w.draws)
	}
	w.sums = sums{}
	over := max(1, 2*o.quick().Seconds())
	o.rate = o.rate*math.Exp(-max(0, now.Sub(o.at).Seconds())/over) + 1/over
	o.at, w.queued = now, took-o.work()
	w.sign.answered(asked, now, now.Sub(asked) <= timeout/quickWork+min(o.quick(), timeout/4))
	w.isThere(asked, now)
	queued := (took - o.work()).Seconds() / max(allowance, 1e-9)
	w.least = min(w.least, queued)
	if asked.After(w.round) {
		if w.least > 1 {
			w.slow(w.least)
		}
		w.growing = w.least < slack
		w.round, w.least = now, math.Inf(1)
	}
	if w.growing && queued < slack && w.waiting > 0 {
		more := min(1/w.allowance(), w.rate)
		if queued > idle {
			more /= max(1, w.Size())
		}
		w.rate += more
	}
}

// StillAt says that the agent is still at an attempt that was asked for at a time: it is there, and
// has taken what was asked for before. How long that queued is not known.
func (w *Window) StillAt(name string, timeout time.Duration, asked, now time.Time) {
	w.Lasts(name, timeout, asked, now)
	w.taken(asked)
	w.sums = sums{}
	w.isThere(asked, now)
}

// isThere notes that the agent gave a sign in time, at an attempt that was asked for at a time.
func (w *Window) isThere(asked, now time.Time) {
	w.sign.given(now, true)
	if !asked.Before(w.expired) {
		w.silence, w.probe, w.late, w.vain = 0, 0, 0, 0
	}
}

// Lasts says that the agent was still at an attempt, at a time: it is not forgotten.
func (w *Window) Lasts(name string, timeout time.Duration, asked, last time.Time) {
	o := w.operation(name)
	for i := w.from(asked); i < len(w.out) && w.out[i].asked.Equal(asked); i++ {
		if r := &w.out[i]; r.of == o && r.timeout == timeout {
			r.last = last
		}
	}
}

func (w *Window) slow(times float64) { w.rate = max(w.rate/times, slowest) }

// Expired says that an attempt that was asked for at a time expired.
func (w *Window) Expired(name string, timeout time.Duration, asked, now time.Time) {
	w.remove(w.operation(name), timeout, asked)
	w.late++
	if asked.After(w.expired) {
		w.expired = asked
	}
	if asked.Before(w.newest) {
		return // what was asked later was answered: it is lost, or failed by itself
	}
	w.silence++
	w.told = false
	w.sign.missed(asked)
	if w.Away() {
		if w.probe == 0 || asked.After(w.away) { // it was a probe
			longest := probeLongest
			if w.sign.lately(now) && timeout > quickWork*w.operation(name).quick() {
				longest = probeBusy
			}
			w.probe = min(max(2*w.probe, timeout, probeFirst), longest)
		}
		if w.silence == silent+1 {
			w.away = now
		}
		return
	}
	if asked.After(w.cut) {
		w.slow(2)
		w.cut = now
	}
}

// Heard says that an attempt was answered that had expired, whichever that was.
func (w *Window) Heard(now time.Time) {
	w.heard = true
	w.sign.given(now, false)
}

// Late says that an attempt was answered that had expired. How long the agent takes for one shows between two late answers
// of which the second was asked for before the first one came: else it had nothing to do in between.
func (w *Window) Late(asked, now time.Time) {
	if asked.After(w.cut) {
		w.slow(2)
		w.cut = now
	}
	w.late = max(0, w.late-1)
	if !w.lateAt.IsZero() && !asked.After(w.lateAt) {
		w.lateFor = max(w.lateFor, 4*now.Sub(w.lateAt))
	}
	w.lateFor = min(max(w.lateFor, lateLeast), lateLongest)
	w.lateAt = now
}

package window

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// model is an agent, and lanes that ask it for what waits, each by a window of its own.
type model struct {
	*testing.T
	random  *rand.Rand
	epoch   time.Time
	now     time.Time
	began   time.Time
	happens happenings
	lanes   []*modelLane

	// The agent has so many workers, and works on what comes first.
	workers, busy int
	queue         []request
	skips         bool // what is late (A4)
	away          bool
	signs         [3]Signs // of as many instances
	work          map[string]func() time.Duration
	timeouts      map[string]time.Duration
	may           map[string]bool // of which there is room, while a lane asks

	// ahead is by how much its clock is; once, for one answer.
	ahead time.Duration
	once  bool

	expired, failed, done, late int
	probes                      int
	last                        time.Time // when one was done
}

type modelLane struct {
	window *Window
	waits  []*modelStep
	timer  time.Time
}

type modelStep struct {
	lane      int
	operation string
	timeout   time.Duration
	tried     int
	attempt   int
	asked     time.Time // zero while it is not under way
}

type request struct {
	step  *modelStep
	asked time.Time
}

// attempts is how often a step is tried.
const attempts = 3

type happening struct {
	after time.Duration // the beginning
	n     int
	do    func()
}

type happenings []*happening

func (h *happenings) Len() int { return len(*h) }
func (h *happenings) Less(i, j int) bool {
	a, b := (*h)[i], (*h)[j]
	return a.after < b.after || a.after == b.after && a.n < b.n
}
func (h *happenings) Swap(i, j int) { (*h)[i], (*h)[j] = (*h)[j], (*h)[i] }
func (h *happenings) Push(x any)    { *h = append(*h, x.(*happening)) }
func (h *happenings) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

func newModel(t *testing.T, lanes, workers int, skips bool) *model {
	now := time.Date(2026, 1, 5, 12, 1, 0, 0, time.UTC)
	m := &model{
		T: t, random: rand.New(rand.NewPCG(1, 2)), epoch: now, now: now, began: now, last: now,
		workers: workers, skips: skips, work: make(map[string]func() time.Duration), timeouts: make(map[string]time.Duration), may: make(map[string]bool),
	}
	for n := range lanes {
		m.lanes = append(m.lanes, &modelLane{window: New(100/float64(lanes), 0, uint64(n), m.signs[n%len(m.signs)].Of("a"))})
	}
	return m
}

// takes says how long the agent works on an operation, half as long and half as much
// again.
func (m *model) takes(operation string, d time.Duration) {
	m.work[operation] = func() time.Duration { return d/2 + m.upTo(d) }
}

func (m *model) upTo(d time.Duration) time.Duration { return time.Duration(m.random.Int64N(int64(d))) }

func (m *model) in(d time.Duration, do func()) {
	heap.Push(&m.happens, &happening{m.now.Sub(m.epoch) + d, m.probes, do})
	m.probes++
}

func (m *model) submit(n int, operation string, timeout time.Duration) {
	m.timeouts[operation] = timeout
	for i := range n {
		m.wait(&modelStep{lane: i % len(m.lanes), operation: operation, timeout: timeout})
	}
}

func (m *model) wait(s *modelStep) {
	l := m.lanes[s.lane]
	if may, _ := m.free(s.lane, s.operation, s.timeout); may && len(l.waits) == 0 {
		m.leave(s)
		return
	}
	l.waits = append(l.waits, s)
	l.window.Waits(s.operation, s.timeout, 1)
	m.ask(s.lane)
}

const (
	commits = 20 * time.Millisecond // until a request is there
	hears   = 20 * time.Millisecond // until a lane reads a reply
	ticks   = 250 * time.Millisecond
	skew    = 100 * time.Millisecond
)

// free says whether a lane may ask for more of an operation, or when it may look again.
func (m *model) free(n int, operation string, timeout time.Duration) (may bool, again time.Time) {
	free, again := m.lanes[n].window.Free(operation, timeout, m.now)
	return free > 0, again
}

// ask asks for what waits in a lane, as far as there is room.
func (m *model) ask(n int) {
	l := m.lanes[n]
	at := m.now.Add(ticks)
	for {
		clear(m.may)
		room := false
		for name := range m.work {
			may, again := m.free(n, name, m.timeouts[name])
			if m.may[name] = may; !may && !again.IsZero() && again.Before(at) {
				at = again
			}
			room = room || may
		}
		if !room {
			break
		}
		next := slices.IndexFunc(l.waits, func(s *modelStep) bool { return m.may[s.operation] })
		if next < 0 {
			break
		}
		s := l.waits[next]
		if next == 0 {
			l.waits = l.waits[1:]
		} else {
			l.waits = slices.Delete(l.waits, next, next+1)
		}
		l.window.Waits(s.operation, s.timeout, -1)
		m.leave(s)
	}
	if len(l.waits) > 0 && (!l.timer.After(m.now) || at.Before(l.timer)) {
		l.timer = at
		m.in(at.Sub(m.now), func() { m.ask(n) })
	}
}

func (m *model) leave(s *modelStep) {
	asked := m.now
	m.lanes[s.lane].window.Asked(s.operation, s.timeout, asked, asked)
	s.asked = asked
	m.in(commits, func() {
		m.queue = append(m.queue, request{s, asked})
		m.agent()
	})
	m.in(s.timeout+skew, func() { m.expire(s, asked) })
}

func (m *model) expire(s *modelStep, asked time.Time) {
	if s.asked != asked {
		return
	}
	m.expired++
	s.asked = time.Time{}
	l := m.lanes[s.lane]
	if s.attempt++; !l.window.Excuses(s.operation, s.timeout, asked, s.attempt, attempts, m.now) || l.window.Wanted() == 1 { // else it does not count
		s.tried++
	}
	l.window.Expired(s.operation, s.timeout, asked, m.now)
	if s.tried == attempts {
		m.failed++
		m.ask(s.lane)
		return
	}
	l.window.Rests(1)
	m.in(time.Second/2+m.upTo(time.Second), func() {
		l.window.Rests(-1)
		m.wait(s)
	})
	m.ask(s.lane)
}

func (m *model) agent() {
	for !m.away && m.busy < m.workers && len(m.queue) > 0 {
		r := m.queue[0]
		m.queue = m.queue[1:]
		if m.skips && m.now.Sub(r.asked) > r.step.timeout {
			continue
		}
		m.busy++
		m.in(m.work[r.step.operation](), func() {
			m.busy--
			written := m.now
			if !m.skips || m.now.Sub(r.asked) <= r.step.timeout { // else it keeps to itself what comes too late
				m.in(hears, func() { m.answer(r, written) })
			}
			m.agent()
		})
	}
}

func (m *model) answer(r request, written time.Time) {
	s := r.step
	w := m.lanes[s.lane].window
	if s.asked != r.asked {
		m.late++
		w.Late(r.asked, m.now)
		w.Heard(m.now)
	} else {
		s.asked = time.Time{}
		m.done++
		m.last = m.now
		w.Answered(s.operation, s.timeout, true, r.asked, r.asked.Add(commits), written.Add(m.ahead), m.now)
		if m.once {
			m.ahead, m.once = 0, false
		}
	}
	m.ask(s.lane)
}

// run lets time pass until so many steps have ended, or so long.
func (m *model) run(ends int, most time.Duration) {
	until := m.began.Add(most)
	for m.done+m.failed < ends && len(m.happens) > 0 && m.happens[0].after <= until.Sub(m.epoch) {
		h := heap.Pop(&m.happens).(*happening)
		m.now = m.epoch.Add(h.after)
		h.do()
	}
	if m.done+m.failed < ends {
		m.now = until
	}
}

// all are agents of each sort, seen from few lanes and from many.
func all(t *testing.T, check func(t *testing.T, lanes int, skips bool)) {
	for _, lanes := range []int{1, 12, 64} {
		for _, skips := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d lanes, skips %v", lanes, skips), func(t *testing.T) {
				t.Parallel()
				check(t, lanes, skips)
			})
		}
	}
}

// ended checks that all were done, in the time that the agent needs and a part of it
// more, with so many attempts that expired.
func (m *model) ended(n, expired int, needs time.Duration, more float64) {
	m.Helper()
	took := m.last.Sub(m.began)
	m.Logf("%d done, %d failed, %d expired, %d late answers, in %s of %s", m.done, m.failed, m.expired, m.late, took.Round(time.Millisecond), needs)
	if m.done != n || m.expired > expired || float64(took) > float64(needs)*(1+more) {
		m.Errorf("%d of %d are done, %d attempts expired, and it took %s of %s", m.done, n, m.expired, took, needs)
	}
}

// A burst waits here, and not at the agent.
func TestABurst(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		for _, workers := range []int{1, 50} {
			m := newModel(t, lanes, workers, skips)
			m.takes("a", time.Duration(workers)*time.Second/170)
			m.submit(8_000, "a", 5*time.Second)
			m.run(8_000, time.Hour)
			m.ended(8_000, 0, 8_000*time.Second/170, 0.1)
		}
	})
}

// Of an agent that takes half of what is believed of one, down to a quarter, what leaves before its pace shows may
// expire: the first window, half of that once the rate is halved, and so on, and no more than twice the first in all.
func TestTheFirstWindow(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		for _, rate := range []float64{50, 45, 40, 35, 30, 25} {
			m := newModel(t, lanes, 1, skips)
			pace := time.Duration(float64(time.Second) / rate)
			m.work["a"] = func() time.Duration { return pace } // always: nothing is quicker than another
			m.submit(500, "a", 4*time.Second)
			m.run(500, time.Hour)
			const first = 100 * 4 / 2
			m.ended(500, 2*first, 500*pace, 2)
		}
	})
}

// A lane that had an agent for itself does not take it that it has it later.
func TestOneLaneHadMore(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		m := newModel(t, lanes, 1, skips)
		m.takes("a", time.Second/170)
		m.timeouts["a"] = 5 * time.Second
		for lane := range m.lanes { // one after the other
			m.in(time.Duration(lane)*2*time.Second, func() {
				for range 300 {
					m.wait(&modelStep{lane: lane, operation: "a", timeout: 5 * time.Second})
				}
			})
		}
		begins := time.Duration(lanes)*2*time.Second + 10*time.Second
		m.in(begins, func() { m.submit(4_000, "a", 5*time.Second) })
		m.run(lanes*300+4_000, time.Hour)
		m.ended(lanes*300+4_000, 0, begins+4_000*time.Second/170, 0.1)
	})
}

// What takes longer than it did is no queue: that shows when all windows have run empty.
func TestLongerWork(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		m := newModel(t, lanes, 50, skips)
		m.takes("a", time.Second/10)
		m.submit(8_000, "a", 10*time.Second)
		m.in(5*time.Second, func() { m.takes("a", 4*time.Second) })
		m.run(8_000, time.Hour)
		took, most := m.last.Sub(m.began), emptyEvery+6_000*4*time.Second/50
		t.Logf("%d done, %d failed, %d expired, %d late, in %s of %s", m.done, m.failed, m.expired, m.late, took, most)
		if m.done+m.failed != 8_000 || m.failed > 8_000/200 || m.expired > 8_000/4 || took > most {
			t.Errorf("%d of 8,000 are done, %d failed, %d attempts expired, in %s of %s", m.done, m.failed, m.expired, took, most)
		}
	})
}

// A burst waits here also while windows run empty: all of them do, before any fills again. Else one
// that is late takes the queue of others for the work.
func TestABurstWhileWindowsRunEmpty(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		m := newModel(t, lanes, 1, skips)
		m.takes("a", time.Second/170)
		for _, at := range []time.Duration{emptyEvery - 85*time.Second, emptyEvery - 80*time.Second} {
			m.in(at, func() { m.submit(8_000, "a", 5*time.Second) })
		}
		m.run(16_000, time.Hour)
		m.ended(16_000, 0, emptyEvery-85*time.Second+16_000*time.Second/170, 0.02)
	})
}

// Operations that share an agent share its queue, whatever time each has.
func TestTwoTimeoutsOfOneQueue(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		m := newModel(t, lanes, 1, skips)
		m.takes("long", time.Second/170)
		m.takes("short", time.Second/170)
		for range 3_000 {
			m.submit(1, "long", time.Minute)
			m.submit(1, "short", time.Second)
		}
		m.run(6_000, time.Hour)
		m.ended(6_000, 0, 6_000*time.Second/170, 0.1)
	})
}

// More than the agent takes, for a long time.
func TestAnOverload(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		m := newModel(t, lanes, 50, skips)
		m.takes("a", 50*time.Second/170)
		for i := range 360 {
			m.in(time.Duration(i)*time.Second, func() { m.submit(200, "a", 5*time.Second) })
		}
		n := 360 * 200
		m.run(n, 3*time.Hour)
		m.ended(n, n/40, time.Duration(n)*time.Second/170, 0.05)
	})
}

// What an agent works on does not queue.
func TestLongWork(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		m := newModel(t, lanes, 1_000_000, skips)
		m.takes("a", 5*time.Second)
		m.submit(5_000, "a", time.Hour)
		m.run(5_000, time.Hour)
		m.ended(5_000, 0, 8*time.Second, 0)

		m = newModel(t, lanes, 1_000, skips)
		m.takes("a", 39*time.Second)
		for i := range 600 {
			m.in(time.Duration(i)*time.Second, func() { m.submit(20, "a", time.Minute) })
		}
		m.run(12_000, time.Hour)
		m.ended(12_000, 0, 660*time.Second, 0.05)

		m = newModel(t, lanes, 1_000_000, skips)
		m.takes("a", time.Second)
		for i := range 300 {
			m.in(time.Duration(i)*time.Second, func() { m.submit(100, "a", time.Minute) })
		}
		m.in(50*time.Second, func() { m.takes("a", 38*time.Second) })
		m.run(30_000, time.Hour)
		m.ended(30_000, 0, 360*time.Second, 0.6)
	})
}

// An agent that is away is probed, and goes on when it is back.
func TestAway(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		const gone = time.Hour
		m := newModel(t, lanes, 1, skips)
		m.takes("a", time.Second/170)
		m.away = true
		m.submit(5_000, "a", 5*time.Second)
		m.run(5_000, gone)
		if m.failed > 0 {
			t.Errorf("%d failed, as their agent was away", m.failed)
		}
		m.away, m.began = false, m.now
		m.agent()
		m.run(5_000, time.Hour)
		works := 5_000 * time.Second / 170
		if !skips { // it does what has expired, too
			works += time.Duration(m.expired) * time.Second / 170
		}
		m.ended(5_000, m.expired, works+20*time.Second, 0)
	})
}

// An agent that comes and goes is there for good: no lane leaves it alone for long after that, whatever it heard of it
// meanwhile.
func TestAwayAgainAndAgain(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		m := newModel(t, lanes, 1_000, skips)
		m.takes("a", time.Second/20)
		m.timeouts["a"] = 5 * time.Second
		const goes, until, every = 30 * time.Second, 5 * time.Minute, time.Second / 10
		n := int(until / every)
		for i := range n {
			m.in(time.Duration(i)*every, func() {
				m.wait(&modelStep{lane: m.random.IntN(lanes), operation: "a", timeout: 5 * time.Second})
			})
		}
		for at := goes; at < until; at += goes {
			m.in(at, func() { m.away = true })
			m.in(at+goes-2*time.Second, func() { m.away = false; m.agent() })
		}
		m.run(n, time.Hour)
		more := 0.05
		if lanes == 1 { // it goes by what it asks itself
			more = 0.25
		}
		m.ended(n, m.expired, until, more)
	})
}

// An agent is away for ten minutes, and each lane has an order for it now and then. Those of an
// instance wait for it together, and only who is alone in the whole of it fails.
func TestAwayFromATrickle(t *testing.T) {
	for every, fails := range map[time.Duration]int{time.Second: 0, 5 * time.Second: 6} {
		all(t, func(t *testing.T, lanes int, skips bool) {
			m := newModel(t, lanes, 1, skips)
			m.takes("a", time.Second/170)
			m.away = true
			n := int(10 * time.Minute / every)
			for i := range n {
				m.in(time.Duration(i)*every, func() {
					m.wait(&modelStep{lane: m.random.IntN(lanes), operation: "a", timeout: 5 * time.Second})
				})
			}
			m.timeouts["a"] = 5 * time.Second
			m.in(10*time.Minute, func() { m.away = false; m.agent() })
			m.run(n, time.Hour)
			if m.failed > fails || m.done+m.failed != n {
				t.Errorf("one each %s: %d of %d are done, and %d failed", every, m.done, n, m.failed)
			}
		})
	}
}

// An agent becomes slow, and quick again.
func TestASlowWhile(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		m := newModel(t, lanes, 1, skips)
		m.takes("a", time.Second/170)
		m.submit(8_000, "a", 5*time.Second)
		m.in(10*time.Second, func() { m.takes("a", time.Second/20) })
		m.in(40*time.Second, func() { m.takes("a", time.Second/170) })
		m.run(8_000, time.Hour)
		m.ended(8_000, 700, 74*time.Second, 0.2)
	})
}

// An agent that is away while it works for long, and was there just before: what it answered
// then is no sign that it is only busy.
func TestAwayFromLongWork(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		m := newModel(t, lanes, 1_000, skips)
		m.takes("a", 25*time.Second)
		for i := range 600 {
			m.in(time.Duration(i)*time.Second, func() { m.submit(20, "a", time.Minute) })
		}
		m.in(200*time.Second, func() { m.away = true })
		m.in(290*time.Second, func() { m.away = false; m.agent() })
		m.run(12_000, time.Hour)
		took := m.last.Sub(m.began)
		t.Logf("%d done, %d failed, %d expired, %d late, in %s", m.done, m.failed, m.expired, m.late, took)
		if m.done+m.failed != 12_000 || m.failed > 0 || took > 12*time.Minute {
			t.Errorf("%d of 12,000 are done, %d failed, in %s", m.done, m.failed, took)
		}
	})
}

// An agent that takes two a second of all lanes together: most lanes have none under way.
func TestASlowAgent(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		m := newModel(t, lanes, 1, skips)
		m.takes("a", time.Second/2)
		m.submit(640, "a", 5*time.Second)
		m.run(640, 2*time.Hour)
		took, needs := m.last.Sub(m.began), 640*time.Second/2
		t.Logf("%d done, %d failed, %d expired, %d late, in %s of %s", m.done, m.failed, m.expired, m.late, took, needs)
		if m.done != 640 || took > 2*needs && skips || took > 7*needs/2 {
			t.Errorf("%d of 640 are done, %d failed, in %s of %s", m.done, m.failed, took, needs)
		}
	})
}

// Where all lanes are of one instance, and each begins with more than its share: what expires then
// uses up nobody's attempts, however the agent's work and the pauses fall.
func TestASlowAgentOfOneInstance(t *testing.T) {
	for _, skips := range []bool{true, false} {
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("skips %v, %d", skips, seed), func(t *testing.T) {
				t.Parallel()
				const lanes = 64
				m := newModel(t, lanes, 1, skips)
				m.random = rand.New(rand.NewPCG(seed, 2))
				for n, l := range m.lanes {
					l.window = New(100./lanes, 0, seed*lanes+uint64(n), m.signs[0].Of("a"))
				}
				m.takes("a", time.Second/2)
				m.submit(400, "a", 5*time.Second)
				m.run(400, 2*time.Hour)
				m.ended(400, 1_200, 400*time.Second/2, 3)
			})
		}
	}
}

// Where each instance has few of the lanes, and hears of few answers.
func TestASlowAgentOfManyInstances(t *testing.T) {
	for _, instances := range []int{12, 16} {
		for _, skips := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d instances, skips %v", instances, skips), func(t *testing.T) {
				t.Parallel()
				const lanes = 64
				m, signs := newModel(t, lanes, 1, skips), make([]Signs, instances)
				for n, l := range m.lanes {
					l.window = New(100./lanes, 0, uint64(n), signs[n%instances].Of("a"))
				}
				m.takes("a", time.Second/2)
				m.submit(640, "a", 5*time.Second)
				m.run(640, 2*time.Hour)
				took, needs := m.last.Sub(m.began), 640*time.Second/2
				t.Logf("%d done, %d failed, %d expired, %d late, in %s of %s", m.done, m.failed, m.expired, m.late, took, needs)
				if m.failed > 640/100 || m.expired > 7*640 || took > 4*needs {
					t.Errorf("%d of 640 are done, %d failed, %d attempts expired, in %s of %s", m.done, m.failed, m.expired, took, needs)
				}
			})
		}
	}
}

// What takes an hour, and was never answered, is not in the way of what is quick.
func TestNobodyWaitsBehindAnHour(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		m := newModel(t, lanes, 1_000_000, skips)
		m.takes("hour", 50*time.Minute)
		m.takes("quick", time.Second/20)
		m.submit(500, "hour", 2*time.Hour)
		m.submit(500, "quick", time.Second/2)
		m.run(500, 30*time.Minute)
		m.ended(500, 0, time.Minute, 0)
	})
}

// Operations of a second and of a minute on one agent.
func TestTwoTimeouts(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		m := newModel(t, lanes, 100, skips)
		m.takes("long", 5*time.Second)
		m.takes("short", time.Second/10)
		m.submit(4_000, "long", time.Minute)
		m.submit(4_000, "short", time.Second)
		m.run(8_000, 2*time.Hour)
		t.Logf("%d done, %d failed, %d expired, %d late, %s", m.done, m.failed, m.expired, m.late, m.last.Sub(m.began))
		if m.failed > 40 || m.done+m.failed != 8_000 {
			t.Errorf("%d of 8000 are done, %d failed", m.done, m.failed)
		}
	})
}

// One operation had a shorter timeout before: once that is over, it is over.
func TestAShorterTimeoutBefore(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		for _, first := range []time.Duration{time.Second, 20 * time.Second} {
			m := newModel(t, lanes, 1_000_000, skips)
			m.work["a"] = func() time.Duration { return 20*time.Second + m.upTo(20*time.Second) }
			m.timeouts["a"] = time.Minute
			for lane := range m.lanes {
				m.wait(&modelStep{lane: lane, operation: "a", timeout: first, tried: attempts - 1})
			}
			for i := range 600 {
				m.in(time.Duration(i)*time.Second, func() { m.submit(20, "a", time.Minute) })
			}
			m.run(12_000+lanes, 2*time.Hour)
			if took := m.last.Sub(m.began); m.done < 12_000 || took > 11*time.Minute {
				t.Errorf("%d of 12,000 are done, in %s", m.done, took)
			}
		}
	})
}

// An answer that was there too early is one of many: what the lane takes an operation to
// take does not follow it for hours.
func TestAnAnswerBeforeItsTime(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		m := newModel(t, lanes, 1, skips)
		m.takes("a", time.Second/170)
		m.in(5*time.Second, func() { m.ahead, m.once = -3*time.Second, true })
		m.submit(8_000, "a", 5*time.Second)
		m.run(8_000, time.Hour)
		m.ended(8_000, 0, 8_000*time.Second/170, 0.1)
	})
}

// One in two hundred is answered at once: the others are no queue for that.
func TestSomeAreQuick(t *testing.T) {
	all(t, func(t *testing.T, lanes int, skips bool) {
		m := newModel(t, lanes, 1_000_000, skips)
		m.work["a"] = func() time.Duration {
			if m.random.IntN(200) == 0 {
				return 5 * time.Millisecond
			}
			return 38*time.Second + m.upTo(4*time.Second)
		}
		for i := range 600 {
			m.in(time.Duration(i)*time.Second, func() { m.submit(20, "a", time.Minute) })
		}
		m.run(12_000, 2*time.Hour)
		m.ended(12_000, 0, 640*time.Second, 0.25)
	})
}

// People work for minutes or hours: that is no queue, and they never wait for work for long.
func TestPeople(t *testing.T) {
	m := newModel(t, 1, 1_000_000, false)
	m.lanes[0].window = New(8, 10, 0, new(Sign))
	m.work["a"] = func() time.Duration { return time.Minute + m.upTo(6*time.Hour) }
	m.submit(500, "a", 24*time.Hour)
	idle := time.Duration(0)
	for at := time.Minute; at < 10*24*time.Hour; at += time.Minute {
		m.in(at, func() {
			if l := m.lanes[0]; len(l.waits) > 0 && l.window.Out() < 10 {
				idle += time.Minute
			}
		})
	}
	m.run(500, 60*24*time.Hour)
	if took := m.last.Sub(m.began); m.done != 500 || idle > took/50 {
		t.Errorf("%d are done in %s; for %s fewer than ten were with them, though others waited", m.done, took, idle)
	}
}

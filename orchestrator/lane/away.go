package lane

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// away are the steps that are due, and whose agents cannot be asked now: their topics
// cannot be written, or they have enough to do. They stay in the index of deadlines,
// which is not looked at again for them, so that many that wait hold up nothing: when
// an agent can be asked again, those that wait for it are decided on, [DueAtOnce] at a
// time.
type away struct {
	mu     sync.Mutex // is held by the lane to change steps and topics, and by who looks on
	steps  map[step]turn
	topics map[string]*line // those that wait, by the topic for which they do
	came   int
	// more are the kinds of which others wait, too: there were more than most. Until they
	// are looked for, what comes behind them finds no place either.
	more map[kind]bool
	most int
	// past is when the first of the others has waited for long enough; zero if none of them
	// may not wait for ever. Sought is when they were looked for last because of that, by the
	// timer, and whole says that the last look at what is due came to its end.
	past, sought time.Time
	whole        bool
	// bounds are when those have waited for long enough that may not wait for ever.
	bounds bounds
	// absent says that a topic cannot be written for which some wait.
	absent bool
	// again is when time makes room at an agent for which some wait; zero if it makes none.
	again time.Time
}

const (
	// awaySteps is how many are kept of each kind of those that wait for an agent.
	awaySteps = 100_000
	// soughtEvery is how often the others are looked for that have waited for long enough:
	// each time all of them are looked at.
	soughtEvery = 10 * time.Second
)

// kind is what has places of its own: none of them is taken by what is less urgent, or by
// another operation, which may have no room while this one has.
type kind struct {
	topic, operation string
	rank             int
}

func (w *waiter) kind() kind { return kind{w.ask.Topic, w.ask.Operation, w.rank()} }

// turn is which place one has among all that came, and for what it waits.
type turn struct {
	came  int
	topic string
	undo  bool
}

// waits says whether one waits.
func (a *away) waits(s step) bool {
	_, waits := a.steps[s]
	return waits
}

// step names one of an order, as it is known outside; empty, its deadline.
type step struct{ order, name string }

// line is what waits for an agent: undos first, then by the priority of their orders,
// then in the order in which they came. An operation may have room while another has none.
type line struct {
	operations map[string]*ranks
	waiting    int
	left       int
}

// ranks are those of one operation that wait.
type ranks [4][]waiter

type waiter struct {
	step
	ask  decide.Ask
	came int
}

// oldestTurn says how often the oldest leaves, whatever its rank: nothing waits for ever
// behind what is more urgent.
const oldestTurn = 8

func (q *line) len() int {
	if q == nil {
		return 0
	}
	return q.waiting
}

// since is from when on what waits longest could have begun; zero if nothing waits.
func (q *line) since() (first time.Time) {
	if q == nil {
		return first
	}
	for _, of := range q.operations {
		for _, waiting := range of {
			if len(waiting) > 0 {
				first = earlier(first, waiting[0].ask.Since)
			}
		}
	}
	return first
}

// earlier is the first of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// kept is how many of a kind wait.
func (q *line) kept(k kind) int {
	if q == nil || q.operations[k.operation] == nil {
		return 0
	}
	return len(q.operations[k.operation][k.rank])
}

// rank is the place of one in [ranks].
func (w *waiter) rank() int {
	switch {
	case w.ask.Undo:
		return 0
	case w.ask.Priority == events.High:
		return 1
	case w.ask.Priority == events.Low:
		return 3
	}
	return 2
}

func (q *line) add(w waiter) {
	rank := w.rank()
	of := q.operations[w.ask.Operation]
	if of == nil {
		of = new(ranks)
		q.operations[w.ask.Operation] = of
	}
	q.waiting++
	i, _ := place(of[rank], w.came)
	of[rank] = slices.Insert(of[rank], i, w)
}

// next takes the next that leaves, of an operation that may: of those first the most
// urgent, or the oldest of all.
func (q *line) next(oldest bool, may func(*decide.Ask) bool) (w waiter, ok bool) {
	var from *[]waiter
	first := 0
	oldest = oldest || q.left%oldestTurn == oldestTurn-1
	for _, of := range q.operations {
		for rank := range of {
			if len(of[rank]) == 0 || !may(&of[rank][0].ask) {
				continue
			}
			older := from == nil || of[rank][0].came < (*from)[0].came
			if oldest && older || !oldest && (from == nil || rank < first || rank == first && older) {
				from, first = &of[rank], rank
			}
		}
	}
	if from == nil {
		return w, false
	}
	w = (*from)[0]
	if *from = (*from)[1:]; len(*from) == 0 {
		*from = nil
	}
	q.left++
	q.waiting--
	return w, true
}

// waits notes that a step waits for an agent.
func (l *Lane) waits(s step, ask decide.Ask) { l.waitsSince(0, s, ask) }

// waitsSince does so for one that came at a place before, if that is not 0, and has it again.
func (l *Lane) waitsSince(came int, s step, ask decide.Ask) {
	a := &l.away
	a.mu.Lock()
	defer a.mu.Unlock()
	w := waiter{s, ask, came}
	of := w.kind()
	switch {
	case a.steps == nil:
		a.steps, a.topics, a.more = make(map[step]turn), make(map[string]*line), make(map[kind]bool)
	case a.waits(s):
		return
	case a.topics[ask.Topic].kept(of) >= a.most || a.more[of] && !l.agents.waited: // who waited has a place
		a.more[of] = true
		if until := ask.Until; !until.IsZero() && (a.past.IsZero() || until.Before(a.past)) {
			a.past = until
		}
		return
	}
	absent := l.unwritable(ask.Topic, events.MaxBatch) != ""
	a.absent = a.absent || absent
	if w.came == 0 {
		a.came++
		w.came = a.came
	}
	a.steps[s] = turn{w.came, ask.Topic, ask.Undo}
	if a.topics[ask.Topic] == nil {
		a.topics[ask.Topic] = &line{operations: make(map[string]*ranks)}
	}
	a.topics[ask.Topic].add(w)
	a.bound(w)
	to, now := l.agents.window(l, ask.Topic), l.time.Wall()
	to.Waits(ask.Operation, ask.Timeout, 1)
	switch free, again := to.Free(ask.Operation, ask.Timeout, now); {
	case absent || l.agents.waited:
	case free > 0: // it only had to wait for its turn
		a.open(now)
	default:
		a.open(again)
	}
}

// open notes when time makes room at an agent, unless that is zero.
func (a *away) open(at time.Time) {
	if !at.IsZero() && (a.again.IsZero() || at.Before(a.again)) {
		a.again = at
	}
}

// opens is how long it takes until time makes room at an agent for which some wait, 0 if
// it makes none; or until it is looked whether the workflows were read on which a signal waits.
func (l *Lane) opens() time.Duration {
	soon := l.seeksAgain()
	if l.away.again.IsZero() {
		return soon
	}
	room := max(1, l.away.again.Sub(l.time.Wall()))
	if soon > 0 {
		return min(room, soon)
	}
	return room
}

// admit decides on what waited for agents that can be asked now.
func (l *Lane) admit(env *decide.Env) error {
	a := &l.away
	a.absent, a.again = false, time.Time{}
	for _, topic := range slices.Sorted(maps.Keys(a.topics)) {
		if err := l.admitTo(env, topic); err != nil {
			return err
		}
	}
	for of := range a.more {
		if a.topics[of.topic].kept(of) <= a.most/2 { // there is room for some of the others
			l.rescan()
			break
		}
	}
	return nil
}

// rescan has all be looked at again that is due, the oldest first: what found no place may
// find one, and what has waited for long enough is given up.
func (l *Lane) rescan() {
	clear(l.away.more)
	l.away.past, l.away.whole = time.Time{}, false
	l.due = due{} // what was found may be younger
	l.state.Rescan()
	l.look = true
}

// rescanPast does so when one that found no place has waited for long enough.
func (l *Lane) rescanPast(now time.Time) {
	a, timer := &l.away, l.time.Timer()
	if a.whole && !a.past.IsZero() && !now.Before(a.past) && (a.sought.IsZero() || timer.Sub(a.sought) >= soughtEvery) {
		a.sought = timer
		l.rescan()
	}
}

// admitTo decides on what waited for an agent, as far as that may be asked for more.
// None of it was under way, so no reply is waited for.
func (l *Lane) admitTo(env *decide.Env, topic string) error {
	a := &l.away
	if l.unwritable(topic, events.MaxBatch) != "" {
		a.absent = true
		return nil
	}
	q, w, now := a.topics[topic], l.agents.window(l, topic), l.time.Wall()
	if q.len() == 0 { // what was decided before took the others out
		return nil
	}
	may := func(ask *decide.Ask) bool {
		free, again := w.Free(ask.Operation, ask.Timeout, now)
		a.open(again)
		return free > 0
	}
	for left := 0; ; left++ {
		if left == DueAtOnce || l.full() {
			l.look = true
			return nil
		}
		a.mu.Lock()
		next, ok := q.next(w.Away(), may)
		delete(a.steps, next.step)
		if q.len() == 0 {
			delete(a.topics, topic)
		}
		a.mu.Unlock()
		if !ok {
			return nil
		}
		w.Waits(next.ask.Operation, next.ask.Timeout, -1)
		l.agents.waited = true
		d, err := l.decideDue(env, next.step)
		waits := err == nil && d.Order == nil && d.Waits.Topic != ""
		if waits { // its topic cannot be written after all
			l.waitsSince(next.came, next.step, d.Waits)
		}
		l.agents.waited = false
		if err != nil || waits || q.len() == 0 {
			return err
		}
	}
}

// pending leaves out of what is due what waits for an agent that cannot be asked, and notes what was due first of the rest.
func (l *Lane) pending(due []projections.Due) []step {
	var pending []step
	first := int64(0)
	for _, d := range due {
		if s := (step{d.Order, d.Step}); !l.away.waits(s) {
			pending = append(pending, s)
			if first == 0 {
				first = d.At.UnixMilli() // 0 of what is due at once
			}
		}
	}
	l.overdue.Store(first)
	return pending
}

// ranks gives one that waits the place that a priority has.
func (a *away) ranks(t turn, priority events.Priority) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q := a.topics[t.topic]
	if w, found := q.remove(t.came); found {
		w.ask.Priority = priority
		q.add(w)
	}
}

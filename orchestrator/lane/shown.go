package lane

import (
	"slices"
	"time"
)

// Agent is how a lane stands with an agent, for those who look on.
type Agent struct {
	// Waiting is how many steps wait for it, as far as the lane keeps them, and UnderWay how
	// many requests are with it.
	Waiting, UnderWay int
	// WaitingSince is from when on that could have begun which waits longest; zero if nothing
	// waits.
	WaitingSince time.Time
	// AskedSince is when that was asked for which is with it for longest; zero if nothing is.
	AskedSince time.Time
	// Window is how many of the lane's requests may queue there; less than 1 if each is
	// followed by a pause, and 0 while nothing waits and nothing is under way.
	Window float64
	// Probed says that it gives no sign: one request at a time probes it, and Window is 0.
	Probed bool
	// SilentSince is since when it has answered nothing, if an operator was called for that.
	SilentSince time.Time
}

// Add adds what another lane shows of the same agent: probed if one of them says so, and
// waiting and silent since the first.
func (a *Agent) Add(other Agent) {
	a.Waiting, a.UnderWay, a.Window = a.Waiting+other.Waiting, a.UnderWay+other.UnderWay, a.Window+other.Window
	a.WaitingSince, a.SilentSince = earlier(a.WaitingSince, other.WaitingSince), earlier(a.SilentSince, other.SilentSince)
	a.AskedSince = earlier(a.AskedSince, other.AskedSince)
	a.Probed = a.Probed || other.Probed
}

// Agents are those of which the lane has asked something since it took over, by name, as
// of a second ago at most.
func (l *Lane) Agents() map[string]Agent {
	if shown := l.shown.Load(); shown != nil {
		return *shown
	}
	return nil
}

// Overdue is since when that was due which was due first of what the lane is to decide on, as of its last look; zero if nothing is. What
// waits until its agent can be asked is not, nor what is due at once.
func (l *Lane) Overdue() time.Time {
	if since := l.overdue.Load(); since > 0 {
		return time.UnixMilli(since)
	}
	return time.Time{}
}

// Blocked is since when a transaction was seen open that keeps readers from going on: somebody's, on the lane's inputs, or one of the
// lane's that has ended, of which Kafka has yet to write a marker, or nobody may write it. It is zero if none was seen twice, [Config.WatchEvery]
// apart, or thrice if it waits for a marker. Where nobody can look it is what was known last, and so does what has ended there count until somebody can.
func (l *Lane) Blocked() time.Time {
	if since := l.blocked.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

// Caller is how a lane stands with a caller's own topic that is owed status messages, for
// those who look on.
type Caller struct {
	// Failing says that it did not take what it was given last.
	Failing bool
	// Since is of when the oldest message is that it is owed; zero if that was not looked at
	// yet.
	Since time.Time
}

// Callers are those whose topics the lane owes something, by topic, as of a second ago at
// most.
func (l *Lane) Callers() map[string]Caller {
	if shown := l.callers.Load(); shown != nil {
		return *shown
	}
	return nil
}

// show shows how the lane stands with agents and callers to those who look on.
func (l *Lane) show() {
	all := make(map[string]Agent, len(l.agents.windows))
	for topic, w := range l.agents.windows {
		a := Agent{Waiting: l.away.topics[topic].len(), WaitingSince: l.away.topics[topic].since(), UnderWay: w.Out(), AskedSince: w.Oldest()}
		switch {
		case a.Waiting+a.UnderWay == 0:
		case w.Away():
			a.Probed = true
		default:
			a.Window = w.Size()
			if most := l.most(topic); most > 0 {
				a.Window = min(a.Window, float64(most))
			}
		}
		if s := l.silences.of[topic]; s != nil && s.raised {
			a.SilentSince = s.since.wall
		}
		all[l.topics.Agent(topic)] = a
	}
	l.shown.Store(&all)
	callers := make(map[string]Caller, len(l.courier.targets))
	for to, t := range l.courier.targets {
		if !to.emits { // how long an event waits the orders show
			callers[to.topic] = Caller{Failing: t.failures > 0, Since: t.oldest}
		}
	}
	l.callers.Store(&callers)
}

// Before is how many others leave before a step, or its undo, that waits for its agent;
// not found if that is not known.
func (l *Lane) Before(order, name string) (n int, found bool) {
	a := &l.away
	a.mu.Lock()
	defer a.mu.Unlock()
	t, waits := a.steps[step{order, name}]
	if !waits {
		return 0, false
	}
	return a.topics[t.topic].before(t.came)
}

// before is how many leave before one: the more urgent, and of its own rank those that
// came before it.
func (q *line) before(came int) (n int, found bool) {
	for rank := range len(ranks{}) {
		all, earlier := 0, 0
		for _, of := range q.operations {
			i, here := place(of[rank], came)
			all, earlier, found = all+len(of[rank]), earlier+i, found || here
		}
		if found {
			return n + earlier, true
		}
		n += all
	}
	return 0, false
}

// place is that of one among those of an operation and a rank.
func place(all []waiter, came int) (int, bool) {
	return slices.BinarySearchFunc(all, came, func(w waiter, came int) int { return w.came - came })
}

package lane

import (
	"maps"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/window"
	"github.com/waybill-dev/waybill/projections"
)

// agents are the windows of the lane, by the request topics of agents.
type agents struct {
	windows map[string]*window.Window
	// granted is how many each may be asked by the decision that is being made.
	granted map[string]int
	// waited says that it is made on what waited, which goes before all else.
	waited bool
	// reply is the one on which it is made, nil if it is made on something else.
	reply *input
	// commits say when what was decided was committed, the last ones.
	commits []acknowledged
	since   time.Time // of those
	// expired are attempts that the agent may still answer, and when it was asked.
	expired map[attempt]lost
	// began is when the lane began to ask them, and counted says that what was under way
	// then is known.
	began   time.Time
	counted bool

	was, is []underWay
}

type acknowledged struct{ decided, at time.Time }

type attempt struct {
	step
	undo bool
	n    int
}

// lost is an attempt that expired: whom it asked, and when.
type lost struct {
	topic string
	asked time.Time
}

// underWay is an attempt that is with its agent.
type underWay struct {
	ask   decide.Ask
	place int
	work  *projections.Work
}

const (
	// keptCommits and keptExpired bound what is remembered of them.
	keptCommits = 1_000
	keptExpired = 10_000
	// inheritAtMost is how many attempts are looked at that were under way at the takeover.
	inheritAtMost = 20_000
)

func (a *agents) window(l *Lane, topic string) *window.Window {
	w := a.windows[topic]
	if w == nil {
		w = window.New(l.cfg.AgentRate/float64(l.cfg.Partitions), l.most(topic), uint64(l.partition))
		a.windows[topic] = w
	}
	return w
}

// most is how many may be under way at an agent, 0 if it has no bound.
func (l *Lane) most(topic string) int {
	if n, bounded := l.cfg.AgentBounds[topic]; bounded {
		return max(1, n/int(l.cfg.Partitions))
	}
	return 0
}

// room says whether an agent may be asked for more by the decision that is being made.
func (l *Lane) room(ask *decide.Ask) bool {
	a := &l.agents
	if !a.waited && l.away.topics[ask.Topic].len() > 0 {
		return false
	}
	w := a.window(l, ask.Topic)
	free, _ := w.Free(ask.Operation, ask.Timeout, l.time.Wall())
	if !a.counted && crowded(w) || free <= a.granted[ask.Topic] {
		return false
	}
	a.granted[ask.Topic]++
	return true
}

// silent says whether an agent gives no sign, and others wait for it.
func (l *Lane) silent(ask *decide.Ask) bool {
	w := l.agents.window(l, ask.Topic)
	return w.Away() && (w.Out() > 1 || l.away.topics[ask.Topic].len() > 0)
}

// follow tells the windows what a decision made of an order.
func (l *Lane) follow(before *projections.Order, d *decide.Decision) {
	a, now := &l.agents, l.time.Wall()
	clear(a.granted)
	a.was, a.is = a.was[:0], a.is[:0]
	d.UnderWay(l.topics, before, func(ask decide.Ask, place int, w *projections.Work) {
		a.was = append(a.was, underWay{ask, place, w})
	})
	d.UnderWay(l.topics, d.Order, func(ask decide.Ask, place int, w *projections.Work) {
		a.is = append(a.is, underWay{ask, place, w})
	})
	was := a.was
	for _, is := range a.is { // both are in the same order
		for len(was) > 0 && was[0].before(&is) {
			l.ended(before, &was[0], now)
			was = was[1:]
		}
		same := len(was) > 0 && !is.before(&was[0])
		if same && was[0].work.Attempt == is.work.Attempt {
			was = was[1:]
			continue
		}
		if same {
			l.ended(before, &was[0], now)
			was = was[1:]
		}
		a.window(l, is.ask.Topic).Asked(is.ask.Operation, is.ask.Timeout, is.asked(), now)
	}
	for i := range was {
		l.ended(before, &was[i], now)
	}
}

// asked is when the agent was asked; too early where the order's deadline cut the timeout.
func (u *underWay) asked() time.Time { return u.work.CompleteBy.Add(-u.ask.Timeout) }

func (u *underWay) before(other *underWay) bool {
	return u.place < other.place || u.place == other.place && !u.ask.Undo && other.ask.Undo
}

// ended tells a window of an attempt that is not under way any more.
func (l *Lane) ended(o *projections.Order, u *underWay, now time.Time) {
	a, w := &l.agents, l.agents.window(l, u.ask.Topic)
	name := o.Steps[u.place].Name
	asked := u.asked()
	cut := u.work.CompleteBy.Equal(o.Deadline) // by the order's deadline: who knows when it was asked
	switch in := a.reply; {
	case in != nil && in.Reply.Step == name && in.Reply.Undo == u.ask.Undo && in.Reply.Attempt == u.work.Attempt && !cut:
		w.Answered(u.ask.Operation, asked, a.committed(asked), in.Record.Written, now)
	case in == nil && !u.work.Ends().After(now):
		w.Expired(u.ask.Operation, u.ask.Timeout, asked, now)
		if len(a.expired) >= keptExpired {
			clear(a.expired)
		}
		a.expired[attempt{step{o.ID, name}, u.ask.Undo, u.work.Attempt}] = lost{u.ask.Topic, asked}
	default:
		w.Ended(u.ask.Operation, asked)
	}
	if l.away.topics[u.ask.Topic].len() > 0 {
		l.look = true // there may be room now
	}
}

// heard tells a window of an answer to what has expired.
func (l *Lane) heard(in *input, o *projections.Order) {
	a, r := &l.agents, in.Reply
	if r == nil || o == nil || len(a.expired) == 0 {
		return
	}
	which := attempt{step{o.ID, r.Step}, r.Undo, r.Attempt}
	of, late := a.expired[which]
	if !late {
		return
	}
	delete(a.expired, which)
	a.window(l, of.topic).Late(of.asked, l.time.Wall())
	l.look = l.look || l.away.topics[of.topic].len() > 0
}

// committed is when what was decided at a time was committed, as far as that is known.
func (a *agents) committed(decided time.Time) time.Time {
	i, _ := slices.BinarySearchFunc(a.commits, decided, func(c acknowledged, t time.Time) int { return c.decided.Compare(t) })
	if i == len(a.commits) || !decided.After(a.since) {
		return decided
	}
	return a.commits[i].at
}

// acknowledged notes that what was decided up to a time is committed.
func (a *agents) acknowledged(decided, now time.Time) {
	if n := len(a.commits); n > 0 && decided.Before(a.commits[n-1].decided) { // the clock was set back
		a.commits, a.since = a.commits[:0], time.Time{}
	}
	if len(a.commits) >= keptCommits {
		a.since = a.commits[keptCommits/2].decided
		a.commits = append(a.commits[:0], a.commits[keptCommits/2+1:]...)
	}
	a.commits = append(a.commits, acknowledged{decided, now})
}

// crowded says that half of what may queue at an agent is with it.
func crowded(w *window.Window) bool { return w.Out() > 0 && float64(w.Out()) >= w.Size()/2 }

// inherit finds out what was under way when the lane took the partition over, once it
// matters: what an agent was asked before counts, too.
func (l *Lane) inherit() error {
	a := &l.agents
	if a.counted || len(l.away.steps) == 0 && !slices.ContainsFunc(slices.Collect(maps.Values(a.windows)), crowded) {
		return nil
	}
	a.counted = true
	if err := l.flush(); err != nil {
		return err
	}
	due, err := l.state.Deadlines(l.time.Wall(), inheritAtMost)
	if err != nil {
		return err
	}
	seen := make(map[string]bool)
	for _, d := range due {
		if seen[d.Order] {
			continue
		}
		seen[d.Order] = true
		o, err := l.order(d.Order)
		if err != nil {
			return err
		}
		if o == nil {
			continue
		}
		decide.UnderWay(l.topics, l.world.Workflow(o.Workflow, o.Version), o, func(ask decide.Ask, place int, w *projections.Work) {
			if u := (underWay{ask, place, w}); u.asked().Before(a.began) {
				a.window(l, ask.Topic).Known(ask.Operation, ask.Timeout, u.asked())
			}
		})
	}
	return nil
}

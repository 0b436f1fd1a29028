package lane

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/events"
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
	// input is that on which it is made, nil if it is made on what is due.
	input *input
	// commits say when what was decided was committed, the last ones.
	commits []acknowledged
	since   time.Time // of those
	// expired are attempts that the agent may still answer, and when it was asked.
	expired map[attempt]lost
	// left is when attempts left whose complete-by does not say it: the order's deadline cut
	// their timeout.
	left map[attempt]time.Time
	// resting are the steps whose attempt expired, and that are to be asked for again later.
	resting map[step]*window.Window
	// silent are the agents of which the journal says that they are, what the lane decided
	// on included.
	silent map[string]bool
	// began is when the lane began to ask them, and counted says that what was under way
	// then is known.
	began   time.Time
	counted bool
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
		w = window.New(l.cfg.AgentRate/float64(l.cfg.Partitions), l.most(topic), uint64(l.partition), l.cfg.Signs.Of(topic))
		a.windows[topic] = w
	}
	return w
}

// most is how many may be under way at an agent, 0 if it has no bound.
func (l *Lane) most(topic string) int {
	if n, bounded := l.cfg.AgentBounds[topic]; bounded {
		return Share(n, l.cfg.Partitions)
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
	if !a.counted && (l.most(ask.Topic) > 0 || crowded(w)) || free <= a.granted[ask.Topic] {
		return false
	}
	a.granted[ask.Topic]++
	return true
}

// excuses says whether an attempt of an order that expires uses up none of its retry
// policy: its agent gives no sign, or has more to do than it takes, and other orders wait for it, in
// whichever lane of the instance.
func (l *Lane) excuses(o *projections.Order, ask *decide.Ask, at *projections.Work) bool {
	w := l.agents.window(l, ask.Topic)
	asked := at.FirstCompleteBy().Add(-ask.Timeout) // too early where the order's deadline cut its timeout: then it may count
	attempt := at.Attempt
	for i := range o.Steps {
		if at == &o.Steps[i].Work { // of a step that is repeated, of the present time
			attempt -= o.Steps[i].AttemptsBefore
		}
	}
	if !w.Excuses(ask.Operation, ask.Timeout, asked, attempt, ask.Attempts, l.time.Wall()) {
		return false
	}
	others := w.Wanted()
	decide.UnderWay(l.topics, l.world.Workflow(o.Workflow, o.Version), o, func(own decide.Attempt) {
		if own.Topic == ask.Topic {
			others--
		}
	})
	for i := range o.Steps {
		own := step{o.ID, o.Steps[i].Known()}
		if t, waits := l.away.steps[own]; waits && t.topic == ask.Topic || l.agents.resting[own] == w {
			others--
		}
	}
	return others > 0
}

// follow tells the windows what a decision made of an order.
func (l *Lane) follow(before *projections.Order, d *decide.Decision) {
	a, now := &l.agents, l.time.Wall()
	clear(a.granted)
	l.stepsAside(d.Order)
	a.restless(d.Order)
	var goesOn map[attempt]time.Time // when those were asked that are with their agents while the order migrates
	if d.Migrated() {
		l.linesUpAnew(before)
		goesOn = make(map[attempt]time.Time)
	}
	d.Moves(l.topics, before, func(was decide.Attempt) {
		if which := attemptOf(before, &was); d.Migrated() {
			goesOn[which], _ = a.asked(which, &was)
		}
		asked, known := l.ended(before, &was, now)
		if d.Migrated() {
			return
		}
		if known {
			is := &d.Order.Steps[was.Place].Work
			if was.Undo {
				is = d.Order.Steps[was.Place].Undo
			}
			t := &l.current.tally
			t.attempts = append(t.attempts, attempted{was.Topic, outcome(was.Work, is), now.Sub(asked)})
		}
		if s := &d.Order.Steps[was.Place]; a.input == nil && d.Order.Hold == nil && armed(s, was.Undo) {
			a.rests(step{d.Order.ID, s.Known()}, a.window(l, was.Topic))
		}
	}, func(is decide.Attempt) {
		which := attemptOf(d.Order, &is)
		if at, before := goesOn[which]; before || cut(d.Order, &is) {
			if !before {
				at = now
			}
			if a.left == nil {
				a.left = make(map[attempt]time.Time)
			}
			a.left[which] = at
		}
		asked, _ := a.asked(which, &is)
		if asked.Before(a.began) { // the clock was set back: what leaves from now on is the lane's own
			a.began = asked
		}
		a.window(l, is.Topic).Asked(is.Operation, is.Timeout, asked, now)
	})
}

// armed says whether a step, or its undo, is to be asked for again.
func armed(s *projections.Step, undo bool) bool {
	if undo {
		return s.Undo != nil && !s.Undo.Due.IsZero()
	}
	return !s.Due.IsZero()
}

// rests notes that a step is to be asked for again later.
func (a *agents) rests(s step, w *window.Window) {
	if _, rests := a.resting[s]; rests || len(a.resting) >= keptExpired {
		return
	}
	if a.resting == nil {
		a.resting = make(map[step]*window.Window)
	}
	a.resting[s] = w
	w.Rests(1)
}

// rested notes that a step does not rest any more, if it did.
func (a *agents) rested(s step) {
	if w := a.resting[s]; w != nil {
		delete(a.resting, s)
		w.Rests(-1)
	}
}

// restless notes which steps of an order do not rest any more: they were asked for again, or
// ended, or are held.
func (a *agents) restless(o *projections.Order) {
	if o == nil || len(a.resting) == 0 {
		return
	}
	for i := range o.Steps {
		if s := &o.Steps[i]; o.Hold != nil || !armed(s, false) && !armed(s, true) {
			a.rested(step{o.ID, s.Known()})
		}
	}
}

// asked is when the agent was asked, and says whether the lane noted that; too early where
// it did not, and the order's deadline cut the timeout.
func (a *agents) asked(which attempt, at *decide.Attempt) (asked time.Time, noted bool) {
	if asked, noted = a.left[which]; !noted {
		asked = at.Work.FirstCompleteBy().Add(-at.Timeout)
	}
	return asked, noted
}

// cut says that the order's deadline may have cut the timeout.
func cut(o *projections.Order, at *decide.Attempt) bool {
	return at.Work.FirstCompleteBy().Equal(o.Deadline)
}

func attemptOf(o *projections.Order, at *decide.Attempt) attempt {
	return attempt{step{o.ID, o.Steps[at.Place].Known()}, at.Undo, at.Work.Attempt}
}

// ended tells a window of an attempt that is not under way any more. It returns when its agent was
// asked, if that is known.
func (l *Lane) ended(o *projections.Order, at *decide.Attempt, now time.Time) (_ time.Time, known bool) {
	a, w := &l.agents, l.agents.window(l, at.Topic)
	which, short := attemptOf(o, at), cut(o, at)
	asked, noted := a.asked(which, at)
	delete(a.left, which)
	known = noted || !short // else nobody knows when it was asked
	switch in := a.input; {
	case in != nil && in.Reply != nil && in.Reply.Step == which.name && in.Reply.Undo == at.Undo && in.Reply.Attempt == at.Work.Attempt && known:
		if at.Work.Extended > 0 { // how long it took says nothing of how long others queue
			w.StillAt(at.Operation, at.Timeout, asked, now)
			w.Ended(at.Operation, at.Timeout, asked)
			break
		}
		w.Answered(at.Operation, at.Timeout, in.Reply.Status == events.ReplyCompleted, asked, a.committed(asked), in.Record.Written, now)
	case in == nil && !at.Work.Ends().After(now):
		// It had less time than its workflow gives it, or none: that says nothing of the agent.
		if short || a.committed(asked).After(at.Work.CompleteBy) {
			w.Ended(at.Operation, at.Timeout, asked)
		} else {
			w.Expired(at.Operation, at.Timeout, asked, now)
		}
		if len(a.expired) >= keptExpired {
			clear(a.expired)
		}
		a.expired[which] = lost{at.Topic, asked}
	default:
		w.Ended(at.Operation, at.Timeout, asked)
	}
	if l.away.topics[at.Topic].len() > 0 {
		l.look = true // there may be room now
	}
	l.tellSilence(at.Topic, w)
	return asked, known
}

// heard takes notice of an answer: one in time ends the silence of its agent, and one that
// is late says that it has more to do than was thought.
func (l *Lane) heard(in *input, o *projections.Order, d *decide.Decision) {
	a, r := &l.agents, in.Reply
	late := d.Discarded == events.DiscardLate || d.Discarded == events.DiscardStale
	if !late && len(a.expired)+len(l.silences.of) == 0 {
		return
	}
	if d.Discarded == events.DiscardForged || l.saysNothing(in, o, d) {
		return
	}
	topic := l.topics.Requests(d.Agent(o, r.Step))
	if o != nil {
		which := attempt{step{o.ID, r.Step}, r.Undo, r.Attempt}
		if of, known := a.expired[which]; known {
			topic, late = of.topic, true
			if r.Status != events.ReplyProgress {
				delete(a.expired, which)
				a.window(l, topic).Late(of.asked, l.time.Wall())
				l.look = l.look || l.away.topics[topic].len() > 0
			}
		}
	}
	if w := a.windows[topic]; late && w != nil {
		w.Heard(l.time.Wall())
	}
	l.answers(topic, late)
}

// stillAt takes notice that an agent is still at what it was asked for: it is there, as if it had
// answered, and has taken what it was asked for before that.
func (l *Lane) stillAt(in *input, o *projections.Order, d *decide.Decision) {
	r, now := in.Reply, l.time.Wall()
	d.UnderWay(l.topics, o, func(at decide.Attempt) {
		which := attemptOf(o, &at)
		if which.name != r.Step || which.undo != r.Undo || which.n != r.Attempt {
			return
		}
		w := l.agents.window(l, at.Topic)
		if asked, noted := l.agents.asked(which, &at); noted || !cut(o, &at) { // else nobody knows when it was asked
			w.StillAt(at.Operation, at.Timeout, asked, now)
		}
		l.answers(at.Topic, false)
		l.look = l.look || l.away.topics[at.Topic].len() > 0
		l.tellSilence(at.Topic, w)
	})
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

// crowded says that half of what may queue at an agent is with it, or that it is only probed.
func crowded(w *window.Window) bool {
	return w.Away() || w.Out() > 0 && float64(w.Out()) >= w.Size()/2
}

// tellSilence has the journal say that an agent fell silent, or is silent no more: whoever
// takes the partition over does not find it out anew.
func (l *Lane) tellSilence(topic string, w *window.Window) {
	agent, silent := l.topics.Agent(topic), w.Away() || w.Silent()
	if silent == l.agents.silent[agent] || l.format < events.SilenceFormat {
		return
	}
	l.says(agent, silent)
}

// says has the journal say whether an agent is silent.
func (l *Lane) says(agent string, silent bool) {
	e := &events.Event{Type: events.PartitionAdvanced, At: l.time.Wall(), Agent: agent, Silent: silent}
	l.current.add(l.laneEvent(e, fmt.Sprintf("silent/%d/%d/%s", l.transaction+1, len(l.current.told), agent)))
	l.current.told = append(l.current.told, e)
	l.agents.hush(agent, silent)
}

func (a *agents) hush(agent string, silent bool) {
	if a.silent == nil {
		a.silent = make(map[string]bool)
	}
	if a.silent[agent] = silent; !silent {
		delete(a.silent, agent)
	}
}

// recall has the agents be probed that were silent.
func (l *Lane) recall() error {
	silent, err := l.state.Silent()
	if err != nil {
		return err
	}
	now := l.time.Wall()
	for _, agent := range silent {
		l.agents.hush(agent, true)
		l.agents.window(l, l.topics.Requests(agent)).WasAway(now)
	}
	return nil
}

// inherit finds out what was under way when the lane took the partition over, once it
// matters: what an agent was asked before counts, too. So does what is to be asked of a silent
// one again: it keeps others from being alone with it.
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
		o := l.decided(d.Order)
		if o == nil {
			if o, err = l.state.Peek(d.Order); err != nil {
				return err
			}
		}
		if o == nil {
			continue
		}
		flow := l.world.Workflow(o.Workflow, o.Version)
		decide.UnderWay(l.topics, flow, o, func(at decide.Attempt) {
			if asked, _ := a.asked(attemptOf(o, &at), &at); asked.Before(a.began) {
				w := a.window(l, at.Topic)
				w.Known(at.Operation, at.Timeout, asked)
				if at.Work.Extended > 0 {
					w.Lasts(at.Operation, at.Timeout, asked, at.Work.CompleteBy.Add(-at.Timeout))
				}
			}
		})
		if o.Hold != nil || len(a.silent) == 0 {
			continue
		}
		decide.Resting(l.topics, flow, o, func(at decide.Attempt) {
			if w := a.window(l, at.Topic); w.Away() {
				a.rests(step{o.ID, o.Steps[at.Place].Known()}, w)
			}
		})
	}
	return nil
}

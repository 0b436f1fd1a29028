package lane

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// silences are those of agents for which something waits, by their request topics.
type silences struct {
	of     map[string]*silence
	looked time.Time // by the timer
	forgot time.Time // when it was looked for what ended unseen, by the timer
}

// silence is how long an agent has answered nothing.
type silence struct {
	// since is when it answered in time last; or when something began to wait for it, or the
	// lane saw that first, if that is later. Late is when it answered too late last.
	since reading
	late  time.Time
	// idle is since when nothing waits for it, and it was asked for nothing, by the timer;
	// zero while there is something.
	idle time.Time
	// raised says that an operator was called.
	raised bool
}

const (
	// silentLeast is how long an agent answers nothing at least before an operator is
	// called; and for how long nothing is wanted of it before its silence is forgotten: a
	// probe that expired waits for its next turn.
	silentLeast = time.Minute
	// silencesEvery is how often they are looked at.
	silencesEvery = time.Second
	// forgetEvery is how often it is looked for attempts of which nobody said how they ended.
	forgetEvery = time.Minute
	// busyLeast is that where the agent answers other lanes of the instance: it has so much
	// to do that this one asks it only from time to time.
	busyLeast = 5 * time.Minute
)

// answers notes an answer: one in time, whatever it says, ends the silence of its agent.
func (l *Lane) answers(topic string, late bool) {
	s := l.silences.of[topic]
	switch {
	case s == nil:
	case late:
		s.late = l.time.Wall()
	default:
		l.ends(l.topics.Agent(topic), s, "it answered")
		s.since, s.late = l.reading(), time.Time{}
	}
}

// ends notes that a silence is over, if somebody was told of it: as loudly.
func (l *Lane) ends(agent string, s *silence, why string) {
	if s.raised {
		l.log.Warn("an agent is silent no more", "agent", agent, "since", s.since.wall, "reason", why)
	}
	s.raised = false
}

// listen calls an operator to agents that have answered nothing for a minute, or for as
// long as the shortest timeout of what waits if that is more, while something waits for
// them: once, until they answer. Of one that answers other lanes it waits for five minutes.
func (l *Lane) listen() {
	all, now := &l.silences, l.reading()
	if now.timer.Sub(all.looked) < silencesEvery {
		return
	}
	all.looked = now.timer
	defer l.show()
	l.tellBehind(now.timer)
	forget := now.timer.Sub(all.forgot) >= forgetEvery
	if forget {
		all.forgot = now.timer
	}
	for _, topic := range slices.Sorted(maps.Keys(l.agents.windows)) { // what it tells the journal has an order
		w := l.agents.windows[topic]
		if forget {
			w.Forget(now.wall) // else what is held keeps others from being alone
		}
		waiting, timeout := l.waiting(topic)
		agent := l.topics.Agent(topic)
		s := all.of[topic]
		if s == nil {
			if waiting == 0 && !l.agents.silent[agent] {
				continue
			}
			if all.of == nil {
				all.of = make(map[string]*silence)
			}
			s = &silence{since: now}
			all.of[topic] = s
		}
		if (w.Out() == 0 && !w.Owes() || l.repliesBehind() != nil) && l.unwritable(topic, events.MaxBatch) == "" {
			s.since = now // it has answered all, and the lane pauses; or the lane hears no answer
		}
		switch {
		case waiting > 0 || w.Out() > 0:
			s.idle = time.Time{}
		case s.idle.IsZero():
			s.idle = now.timer
		case now.timer.Sub(s.idle) >= silentLeast:
			l.ends(agent, s, "nothing is wanted of it")
			delete(all.of, topic)
			if w.Idle() && l.agents.silent[agent] {
				w.Rested()
				l.says(agent, false)
			}
			continue
		}
		least := silentLeast
		if l.busy(topic) {
			least = busyLeast
		}
		if waiting > 0 && !s.raised && now.timer.Sub(s.since.timer) >= max(least, timeout) && l.believed() {
			s.raised = true
			l.raiseSilence(agent, topic, s)
		}
	}
}

// waiting is how many wait for an agent, with those that its silence alone keeps from using up
// their attempts; and the shortest timeout of them, as far as that shows.
func (l *Lane) waiting(topic string) (n int, timeout time.Duration) {
	n, timeout = l.agents.window(l, topic).Silenced()
	if q := l.away.topics[topic]; q.len() > 0 {
		return n + q.len(), min(timeout, q.timeout())
	}
	return n, timeout
}

// busy says that an agent answers other lanes of the instance in time, or this one.
func (l *Lane) busy(topic string) bool { return l.cfg.Signs.Of(topic).InTime(l.time.Wall()) }

// timeout is the shortest of what waits, as far as that shows by those that are next.
func (q *line) timeout() time.Duration {
	shortest := time.Duration(math.MaxInt64)
	for _, of := range q.operations {
		for rank := range of {
			if len(of[rank]) > 0 {
				shortest = min(shortest, of[rank][0].ask.Timeout)
			}
		}
	}
	return shortest
}

func (l *Lane) raiseSilence(agent, topic string, s *silence) {
	waiting, timeout := l.waiting(topic)
	why := fmt.Sprintf("agent %s has answered nothing in time since %s, and %d steps wait for it", agent, events.AppendTime(nil, s.since.wall), waiting)
	action := fmt.Sprintf("see that the agent runs, reads %s and writes %s, and that its work takes no longer than the timeout of its steps, %s here: past it agents are silent; what waits goes on by itself once it answers", topic, l.topics.Replies, timeout)
	switch away := l.unwritable(topic, events.MaxBatch); {
	case away != "":
		why += fmt.Sprintf("; its topic %s cannot be written: %s", topic, away)
		action = fmt.Sprintf("have %s be writable: `waybill topics check` says what is wrong; what waits goes on by itself then", topic)
	case l.busy(topic):
		why += "; it answers for other partitions"
		action = fmt.Sprintf("it has more to do than it takes, or what reads partition %d of %s stands still: see that all of its instances work, or have more of them; what waits goes on by itself once it answers", l.partition, topic)
	case !s.late.IsZero():
		why += fmt.Sprintf("; what it answered at %s was too late", events.AppendTime(nil, s.late))
		action = fmt.Sprintf("its work takes longer than the timeout of its steps, %s here, or it has more to do than Waybill asks of it: register a version of the workflow with a longer timeout, or have it do less else; what waits goes on by itself once it answers in time", timeout)
	}
	l.log.Warn("an agent is silent", "agent", agent, "since", s.since.wall, "waiting", waiting, "reason", why)
	l.alert(agent+"/", why, action)
}

// alert calls an operator to something that is of no order.
func (l *Lane) alert(about, why, action string) {
	now := l.time.Wall()
	alert := events.Alert{Reason: fmt.Sprintf("partition %d of namespace %s: %s", l.partition, l.topics.Namespace, why), Errors: []events.Error{}, Action: action, At: now}
	envelope := events.Envelope{
		Source: l.topics.Source(), Type: events.AlertRaised, Time: now,
		ID: fmt.Sprintf("p%d/%s%s", l.partition, about, strconv.FormatInt(now.UnixMilli(), 10)),
	}
	l.current.add(envelope.Record(l.topics.Alerts, alert.Append(nil)))
}

package lane

import (
	"maps"
	"slices"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// away are the steps that are due, and whose agents' topics cannot be written now.
// They stay in the index of deadlines, which is not looked at again for them, so that
// many that wait hold up nothing: when a topic can be written again, those that wait
// for it are decided on, [DueAtOnce] at a time.
type away struct {
	steps  map[step]string   // the topic that it waits for
	topics map[string][]step // in the order in which they came
	// more are the topics for which others wait, too: there were more than most.
	more map[string]bool
	most int
}

// awaySteps is how many are kept of those that wait.
const awaySteps = 100_000

// step names one of an order; empty, its deadline.
type step struct{ order, name string }

// waits notes that a step waits for a topic.
func (a *away) waits(s step, topic string) {
	switch {
	case a.steps == nil:
		a.steps, a.topics = make(map[step]string), make(map[string][]step)
	case a.steps[s] != "":
		return
	case len(a.steps) >= a.most:
		if a.more == nil {
			a.more = make(map[string]bool)
		}
		a.more[topic] = true
		return
	}
	a.steps[s] = topic
	a.topics[topic] = append(a.topics[topic], s)
}

// pending leaves out of what is due what waits for a topic that cannot be written,
// and adds what waited for one that can.
func (l *Lane) pending(due []projections.Due) []step {
	var pending []step
	for _, topic := range slices.Sorted(maps.Keys(l.away.topics)) {
		waiting := l.away.topics[topic]
		if l.unwritable(topic, events.MaxBatch) != "" {
			continue
		}
		n := min(len(waiting), DueAtOnce)
		for _, s := range waiting[:n] {
			delete(l.away.steps, s)
		}
		pending = append(pending, waiting[:n]...)
		if l.away.topics[topic] = waiting[n:]; n == len(waiting) {
			delete(l.away.topics, topic)
		}
	}
	for topic := range l.away.more {
		if l.unwritable(topic, events.MaxBatch) == "" && len(l.away.topics[topic]) == 0 {
			clear(l.away.more) // the others are found again
			l.state.Rescan()
			l.look = true
			break
		}
	}
	l.look = l.look || len(pending) > 0
	for _, d := range due {
		s := step{d.Order, d.Step}
		if l.away.steps[s] == "" {
			pending = append(pending, s)
		}
	}
	return pending
}

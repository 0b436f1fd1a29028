package lane

import (
	"container/heap"
	"slices"

	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// bounds are those that wait for an agent, and may not for ever, by when they have
// waited for long enough. One may be on its way already, or wait anew.
type bounds []waiter

// bound notes when one has waited for long enough, if it may not for ever.
func (a *away) bound(w waiter) {
	if w.ask.Until.IsZero() {
		return
	}
	heap.Push(&a.bounds, w)
	if len(a.bounds) > 2*len(a.steps)+awaySteps/100 { // most are on their way
		a.bounds = slices.DeleteFunc(a.bounds, func(w waiter) bool { return a.steps[w.step].came != w.came })
		heap.Init(&a.bounds)
	}
}

func (b *bounds) Len() int           { return len(*b) }
func (b *bounds) Less(i, j int) bool { return (*b)[i].ask.Until.Before((*b)[j].ask.Until) }
func (b *bounds) Swap(i, j int)      { (*b)[i], (*b)[j] = (*b)[j], (*b)[i] }
func (b *bounds) Push(w any)         { *b = append(*b, w.(waiter)) } //nolint:forcetypeassert // nothing else is pushed

func (b *bounds) Pop() any {
	last := len(*b) - 1
	w := (*b)[last]
	*b = slices.Delete(*b, last, last+1)
	return w
}

// outwaited decides on those that have waited for long enough, and whose agents have no
// room for them.
func (l *Lane) outwaited(env *decide.Env) error {
	a := &l.away
	for n := 0; len(a.bounds) > 0 && !a.bounds[0].ask.Until.After(env.Now); n++ {
		if n == DueAtOnce || l.full() {
			l.look = true
			break
		}
		w, _ := heap.Pop(&a.bounds).(waiter)
		if a.steps[w.step].came != w.came {
			continue // it is on its way
		}
		l.dequeue(w.step)
		l.agents.waited = true
		d, err := l.decideDue(env, w.step)
		l.agents.waited = false
		if err != nil {
			return err
		}
		if d.Order == nil && d.Waits.Topic != "" { // it began to wait anew meanwhile
			l.waits(w.step, d.Waits)
		}
	}
	return nil
}

// dequeue takes one out of its line.
func (l *Lane) dequeue(s step) {
	a := &l.away
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.steps[s]
	delete(a.steps, s)
	q := a.topics[t.topic]
	if w, found := q.remove(t.came); found {
		l.agents.window(l, t.topic).Waits(w.ask.Operation, w.ask.Timeout, -1)
	}
	if q.len() == 0 {
		delete(a.topics, t.topic)
	}
}

// stepsAside takes what an order does not wait for any more out of its line: a step that
// was ended, or is to be undone. What waits has the priority that its order has now.
func (l *Lane) stepsAside(o *projections.Order) {
	if o == nil || len(l.away.steps) == 0 {
		return
	}
	for i := range o.Steps {
		s := step{o.ID, o.Steps[i].Known()}
		t, waits := l.away.steps[s]
		if !waits {
			continue
		}
		if !armed(&o.Steps[i], t.undo) {
			l.dequeue(s)
			continue
		}
		l.away.ranks(t, o.Priority)
	}
}

// linesUpAnew takes what an order waits for out of its lines: it migrates, and may wait for another
// agent. What is to be asked for again is found anew.
func (l *Lane) linesUpAnew(o *projections.Order) {
	for i := range o.Steps {
		if s := (step{o.ID, o.Steps[i].Known()}); l.away.waits(s) {
			l.dequeue(s)
			l.rescan()
		}
	}
}

// remove takes one out, wherever it stands.
func (q *line) remove(came int) (w waiter, found bool) {
	for _, of := range q.operations {
		for rank := range of {
			i, found := place(of[rank], came)
			if !found {
				continue
			}
			w = of[rank][i]
			q.waiting--
			if i == 0 { // most often, and then nothing is moved
				of[rank] = of[rank][1:]
			} else {
				of[rank] = slices.Delete(of[rank], i, i+1)
			}
			return w, true
		}
	}
	return w, false
}

package oracle

import (
	"slices"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// kept: for how long an order is known after its end, its workflow says, once the partition's format does.
func (l *Ledger) kept(e *events.Event) {
	if l.find == nil || l.flow == nil {
		return
	}
	keep := 0
	if l.Format >= events.KeepFormat {
		keep = int(time.Duration(l.flow.Keep) / time.Second)
	}
	l.rule("T1", e.Keep == keep, "it is known for %d s after its end, and its workflow says %d", e.Keep, keep)
}

// forgotten: an order is forgotten once, after its end, and never before its time. One that does a step of
// another goes with that one; it says who goes with it.
func (l *Ledger) forgotten(e *events.Event) {
	l.rule("T1", l.ended && !l.Forgotten, "it is %s, forgotten: %t", l.State, l.Forgotten)
	if child := l.accepted.Parent != "" && !l.accepted.Detached && !isSchedule(l.accepted.Parent); !child {
		l.rule("V2", l.keep > 0 && !e.At.Before(l.endedAt.Add(time.Duration(l.keep)*time.Second)), "it ended at %v, and is known for %d s after that", l.endedAt, l.keep)
	}
	var children []string
	for _, s := range l.Steps {
		if s.Child == nil {
			continue
		}
		for n := range s.Resubmissions + 1 { // some of them may never have begun
			children = append(children, childID(l.key(s, false, n)))
		}
	}
	l.rule("C3", slices.Equal(e.Children, children), "with it go %s, and not %s", names(e.Children), names(children))
	l.Forgotten = true
}

// forgets are the wishes that follow.
func forgets(e *events.Event) (all []events.Wish) {
	if e.Type == events.OrderForgotten {
		for _, child := range e.Children {
			all = append(all, events.Wish{Child: child, Wish: "forget", Parent: e.Order})
		}
	}
	return all
}

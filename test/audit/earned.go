package audit

import (
	"fmt"

	"github.com/waybill-dev/waybill/events"
)

// Unearned are the times when an order came into Error and neither an agent's
// reply nor an expiry had brought it there.
func (b *Books) Unearned() []string {
	var all []string
	for id, history := range b.Histories {
		for _, n := range unearned(history) {
			all = append(all, fmt.Sprintf("order %q: nothing brought it into Error: event %d: %s", id, n, history[n-1].Reason))
		}
	}
	return all
}

// unearned are the numbers of such events.
func unearned(history []events.Event) (all []uint64) {
	broken := make(map[task]events.Error)
	for i := range history {
		e := &history[i]
		switch e.Type {
		case events.StepFailed, events.StepExpired, events.UndoFailed, events.UndoExpired:
			if e.Error != nil {
				broken[task{e.Step, e.Type == events.UndoFailed || e.Type == events.UndoExpired}] = *e.Error
			}
		case events.StepStarted, events.StepCompleted, events.StepSkipped:
			delete(broken, task{e.Step, false})
		case events.UndoStarted, events.UndoCompleted, events.UndoSkipped:
			delete(broken, task{e.Step, true})
		case events.OrderResubmitted:
			clear(broken)
		case events.OrderErrored:
			fault, failed := broken[task{e.Step, false}]
			earned := failed && e.Error != nil && *e.Error == fault
			if e.Error == nil { // undos failed
				for w := range broken {
					earned = earned || w.undo
				}
			} else if deadline := history[0].Deadline; e.Error.Code == "overdue" {
				earned = !deadline.IsZero() && !e.At.Before(deadline)
			}
			if !earned || e.Held {
				all = append(all, e.Seq)
			}
		}
	}
	return all
}

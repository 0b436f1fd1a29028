package decide

import (
	"fmt"
	"strings"

	"github.com/waybill-dev/waybill/compensation"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// turnBack begins to undo what was done; e says why. What still runs is waited for
// before it, and what it comes after, is undone: nobody can say what an undo
// does beside the work itself.
func (d *decider) turnBack(end projections.State, e events.Event) {
	e.Type, e.End, e.LockedBy = events.OrderCompensating, string(end), d.lock()
	d.tell(e)
	d.advance()
}

// lock is who holds the order from here on: this instance while anything runs.
func (d *decider) lock() string {
	if d.order.Running() {
		return d.env.Instance
	}
	return ""
}

// compensate starts every undo whose turn has come (C1), and ends the order
// after the last: with its outcome (C3), or as a case for an operator, with
// every error that occurred (C2).
func (d *decider) compensate() {
	d.recallAll()
	d.idle()
	for i := range d.order.Steps {
		if t := d.task(i, undoing); t.step.Each != nil && t.work().State == projections.Running {
			d.undoItems(t)
		}
	}
	ready, done := compensation.Next(d.order, d.flow, hasUndo)
	was := d.order.Seq
	for _, i := range ready {
		if t := d.task(i, undoing); t.work().State == projections.NotStarted && !t.work().Waits() { // what follows one that fails may begin others
			d.start(t)
		}
	}
	switch {
	case d.order.Seq > was: // one that could not even begin holds up nothing
		d.advance()
	case done:
		d.compensated()
	}
}

func (d *decider) compensated() {
	if failed := compensation.Failures(d.order); failed != nil {
		step, undos := "", 0
		for i := range d.order.Steps {
			if t := d.task(i, undoing); t.work().Broken() {
				step = t.step.Name
				undos++
			}
		}
		if undos > 1 {
			step = ""
		}
		failed.ErrorFormat = sentence
		d.errored(events.Event{Step: step, Reason: fmt.Sprintf("%d of the undos failed: %v", undos, failed)}, d.action(step))
		return
	}
	e := events.Event{Type: events.OrderCompensated}
	if d.order.Toward == projections.Cancelled {
		e.Type = events.OrderCancelled
	}
	e.Undone, e.NotUndone = compensation.Outcome(d.order)
	d.tell(e)
}

// sentence puts errors on one line.
func sentence(all []error) string {
	texts := make([]string, len(all))
	for i, err := range all {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

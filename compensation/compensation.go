package compensation

import (
	"fmt"
	"slices"

	"github.com/hashicorp/go-multierror"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// Next returns the places of the steps whose undo may begin now, in the order
// of the file, and whether nothing is left to be done or waited for. An undo
// with nothing left to try counts as done. Which steps have an undo says hasUndo.
func Next(o *projections.Order, flow *workflow.Workflow, hasUndo func(*workflow.Step) bool) (ready []int, done bool) {
	place := make(map[string]int, len(flow.Steps))
	for i := range flow.Steps {
		place[flow.Steps[i].Name] = i
	}
	followers := make([][]int, len(flow.Steps))
	for i := range flow.Steps {
		for _, name := range flow.Steps[i].After {
			followers[place[name]] = append(followers[place[name]], i)
		}
	}

	waits := func(i int) bool { return hasUndo(&flow.Steps[i]) && unbegun(&o.Steps[i]) }
	const unknown, no, yes = 0, 1, 2
	known := make([]byte, len(flow.Steps))
	var over func(i int) bool // nothing is left to be done for the step, nor for what follows it
	behind := func(i int) bool {
		for _, f := range followers[i] {
			if !over(f) {
				return false
			}
		}
		return true
	}
	over = func(i int) bool {
		if known[i] == unknown {
			known[i] = no
			if !waits(i) && settled(&o.Steps[i], &flow.Steps[i]) && behind(i) {
				known[i] = yes
			}
		}
		return known[i] == yes
	}
	done = true
	for i := range flow.Steps {
		done = over(i) && done
		if waits(i) && behind(i) {
			ready = append(ready, i)
		}
	}
	return ready, done
}

// unbegun says that there is something to undo of the step, and its undo has not begun.
func unbegun(s *projections.Step) bool {
	return s.State != projections.Running && s.Ran() &&
		(s.Undo == nil || s.Undo.State == projections.NotStarted)
}

// settled says that nothing runs or is tried again, of the step or of its undo.
func settled(s *projections.Step, def *workflow.Step) bool {
	switch {
	case s.State == projections.Running:
		return false
	case s.Undo == nil:
		return true
	case s.Undo.Broken():
		return Spent(s.Undo, def)
	}
	return s.Undo.State != projections.Running
}

// Spent says that a step, or its undo, that failed has nothing left to try: the
// error is permanent (A5), or all attempts of all rounds are used up (V5).
func Spent(w *projections.Work, def *workflow.Step) bool {
	return Permanent(w, def) || w.Tried >= def.Retry.Attempts && w.Round >= def.Wait.Rounds
}

// Permanent says that no retry can heal the last error of a step, or of its undo: whoever made
// it says so, or the workflow.
func Permanent(w *projections.Work, def *workflow.Step) bool {
	return w.Error != nil && (w.Error.Permanent || slices.Contains(def.Retry.Never, w.Error.Code))
}

// Failures gathers every error of the undos that failed for good, nil if there
// are none. Its elements are of type *[UndoError].
func Failures(o *projections.Order) *multierror.Error {
	var all *multierror.Error
	for i := range o.Steps {
		s := &o.Steps[i]
		if s.Undo == nil || !s.Undo.Broken() {
			continue
		}
		for _, e := range s.Undo.Errors {
			e.Step, e.Undo = s.Name, true
			all = multierror.Append(all, (*UndoError)(&e))
		}
	}
	return all
}

// UndoError is one error of an undo.
type UndoError events.Error

func (e *UndoError) Error() string {
	return fmt.Sprintf("undo of step %s, attempt %d: %s", e.Step, e.Attempt, (*events.Error)(e).Text())
}

// Outcome names the steps that were undone, and those that ran, or may have
// run, and were not (C3). Of a step that another order does, and of one with items, it names
// the one that left something done with those that were not, though its undo completed.
func Outcome(o *projections.Order) (undone, notUndone []string) {
	for i := range o.Steps {
		switch s := &o.Steps[i]; {
		case s.Leaves || s.Ran():
			notUndone = append(notUndone, s.Name)
		case s.State == projections.Undone:
			undone = append(undone, s.Name)
		}
	}
	return undone, notUndone
}

package oracle

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// Mutant is a history in which one thing is not as it was. Its events are
// numbered anew, so that no gap tells.
type Mutant struct {
	Kind    string // what was done to which type of event
	At      int    // the place of the event
	History []events.Event
}

// Mutants does to each event of a history whatever can be done to it: what holds
// histories against rules must refuse the result.
func Mutants(history []events.Event) iter.Seq[Mutant] {
	return func(yield func(Mutant) bool) {
		for i := range history {
			for kind, mutated := range mutate(history, i) {
				for n := range mutated {
					mutated[n].Seq = uint64(n + 1)
				}
				kind += " " + strings.TrimPrefix(string(history[i].Type), "waybill.")
				if !yield(Mutant{kind, i, mutated}) {
					return
				}
			}
		}
	}
}

func mutate(history []events.Event, i int) iter.Seq2[string, []events.Event] {
	return func(yield func(string, []events.Event) bool) {
		e := history[i]
		if !yield("lost", slices.Delete(slices.Clone(history), i, i+1)) ||
			!yield("twice", slices.Insert(slices.Clone(history), i, e)) {
			return
		}
		if i+1 < len(history) {
			swapped := slices.Clone(history)
			swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
			if !yield("too late", swapped) {
				return
			}
		}
		for _, c := range changes {
			changed := slices.Clone(history)
			if c.make(&changed[i]) && !yield(c.kind, changed) {
				return
			}
		}
	}
}

// changes are what can be done to an event; each says whether it could.
var changes = []struct {
	kind string
	make func(e *events.Event) bool
}{
	{"attempt after the next of", func(e *events.Event) bool { e.Attempt++; return e.Step != "" && e.Attempt > 1 }},
	{"other step of", func(e *events.Event) bool { return other(&e.Step) }},
	{"no step of", func(e *events.Event) bool { return empty(&e.Step) }},
	{"other key of", func(e *events.Event) bool { return other(&e.IdempotencyKey) }},
	{"other agent of", func(e *events.Event) bool { return other(&e.Agent) }},
	{"other operation of", func(e *events.Event) bool { return other(&e.Operation) }},
	{"other instance of", func(e *events.Event) bool { return other(&e.LockedBy) }},
	{"no lock of", func(e *events.Event) bool { return empty(&e.LockedBy) }},
	{"other reason of", func(e *events.Event) bool { return other(&e.Reason) }},
	{"no reason of", func(e *events.Event) bool { return empty(&e.Reason) }},
	{"other action of", func(e *events.Event) bool { return other(&e.Action) }},
	{"other source of", func(e *events.Event) bool { return other(&e.Source) }},
	{"other topic of", func(e *events.Event) bool { return other(&e.ReplyTo) }},
	{"other workflow of", func(e *events.Event) bool { return other(&e.Workflow) }},
	{"later due of", func(e *events.Event) bool { return later(&e.Due) }},
	{"later complete-by of", func(e *events.Event) bool { return later(&e.CompleteBy) }},
	{"later expiry of", func(e *events.Event) bool { return later(&e.Expires) }},
	{"later deadline of", func(e *events.Event) bool { return later(&e.Deadline) }},
	{"next round of", func(e *events.Event) bool {
		e.Round++
		return e.Type == events.StepRetried || e.Type == events.UndoRetried
	}},
	{"no round of", func(e *events.Event) bool { was := e.Round; e.Round = 0; return was > 0 }},
	{"other output of", func(e *events.Event) bool { return replace(&e.Output) }},
	{"output added to", func(e *events.Event) bool {
		was := e.Output
		e.Output = jsontext.Value(`{"mutant":1}`)
		return was == nil && (e.Type == events.StepCompleted || e.Type == events.StepSkipped)
	}},
	{"other input of", func(e *events.Event) bool { return replace(&e.Input) }},
	{"input added to", func(e *events.Event) bool {
		was := e.Input
		e.Input = jsontext.Value(`{"mutant":1}`)
		return was == nil && (e.Type == events.StepStarted || e.Type == events.UndoStarted)
	}},
	{"other outcome of", func(e *events.Event) bool {
		was := e.Outcome
		if e.Outcome = events.OutcomeUnknown; was == events.OutcomeUnknown {
			e.Outcome = events.OutcomeCompleted
		}
		return was != ""
	}},
	{"other end of", func(e *events.Event) bool {
		was := e.End
		if e.End = "Cancelled"; was == "Cancelled" {
			e.End = "Compensated"
		}
		return was != ""
	}},
	{"same key for", func(e *events.Event) bool { e.SameKey = !e.SameKey; return e.Type == events.OrderResubmitted }},
	{"fewer undone of", func(e *events.Event) bool { return fewer(&e.Undone) }},
	{"fewer not undone of", func(e *events.Event) bool { return fewer(&e.NotUndone) }},
	{"fewer steps of", func(e *events.Event) bool { return fewer(&e.Steps) }},
	{"fewer errors of", func(e *events.Event) bool { return fewer(&e.Errors) }},
	{"other code of", func(e *events.Event) bool { return fault(e, func(f *events.Error) { f.Code += "-mutant" }) }},
	{"other permanence of", func(e *events.Event) bool { return fault(e, func(f *events.Error) { f.Permanent = !f.Permanent }) }},
	{"no error of", func(e *events.Event) bool { was := e.Error; e.Error = nil; return was != nil }},
	{"hold changed of", func(e *events.Event) bool { e.Held = !e.Held; return e.Type == events.OrderErrored }},
	{"success instead of", func(e *events.Event) bool {
		return become(e, events.StepCompleted, events.StepFailed, events.StepExpired) ||
			become(e, events.UndoCompleted, events.UndoFailed, events.UndoExpired)
	}},
	{"failure instead of", func(e *events.Event) bool {
		if e.Error == nil {
			e.Error = &events.Error{Code: "mutant"}
		}
		return become(e, events.StepFailed, events.StepCompleted, events.StepExpired) ||
			become(e, events.UndoFailed, events.UndoCompleted, events.UndoExpired)
	}},
	{"expiry instead of", func(e *events.Event) bool {
		e.Error = &events.Error{Code: "expired"}
		return become(e, events.StepExpired, events.StepCompleted, events.StepFailed) ||
			become(e, events.UndoExpired, events.UndoCompleted, events.UndoFailed)
	}},
	{"skip instead of", func(e *events.Event) bool {
		return become(e, events.StepSkipped, events.StepStarted) || become(e, events.UndoSkipped, events.UndoStarted)
	}},
	{"other end of the order than", func(e *events.Event) bool {
		return become(e, events.OrderCancelled, events.OrderCompensated) || become(e, events.OrderCompensated, events.OrderCancelled, events.OrderCompleted)
	}},
	{"Error instead of", func(e *events.Event) bool { return become(e, events.OrderErrored, events.OrderCompensating) }},
	{"resumed instead of", func(e *events.Event) bool { return become(e, events.OrderResumed, events.OrderPaused) }},
	{"paused instead of", func(e *events.Event) bool { return become(e, events.OrderPaused, events.OrderResumed) }},
	{"discarded instead of", func(e *events.Event) bool { return become(e, events.InputDiscarded, events.InputReleased) }},
	{"released instead of", func(e *events.Event) bool { return become(e, events.InputReleased, events.InputDiscarded) }},
}

func other(text *string) bool {
	was := *text
	*text += "x"
	return was != ""
}

func empty(text *string) bool {
	was := *text
	*text = ""
	return was != ""
}

func later(at *time.Time) bool {
	was := *at
	*at = at.Add(time.Hour)
	return !was.IsZero()
}

func replace(value *jsontext.Value) bool {
	was := *value
	*value = jsontext.Value(`{"mutant":1}`)
	return was != nil
}

func fewer[T any](list *[]T) bool {
	n := len(*list)
	*list = (*list)[:max(n-1, 0)]
	return n > 0
}

func fault(e *events.Event, change func(*events.Error)) bool {
	if e.Error == nil {
		return false
	}
	e.Error = new(*e.Error)
	change(e.Error)
	return true
}

func become(e *events.Event, kind events.Type, from ...events.Type) bool {
	if !slices.Contains(from, e.Type) {
		return false
	}
	e.Type = kind
	return true
}

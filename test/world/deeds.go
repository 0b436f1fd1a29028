package world

import (
	"fmt"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/audit"
	"github.com/waybill-dev/waybill/test/oracle"
)

// Compare holds what the service did against what the orders say: what they say
// was done and was not is lost, and what was done and they do not know is
// doubled.
func (s *Service) Compare(b *audit.Books) (lost, doubled []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for order, history := range b.Histories {
		l, d := compare(history, b.Ledgers[order].Steps, s.keys[order], s.deeds[order])
		lost, doubled = append(lost, l...), append(doubled, d...)
	}
	for order := range s.keys {
		if b.Histories[order] == nil {
			doubled = append(doubled, fmt.Sprintf("order %s is unknown to the journal, and agents did something for it", order))
		}
	}
	return lost, doubled
}

func compare(history []events.Event, steps []*oracle.Step, keys, deeds map[string]bool) (lost, doubled []string) {
	order := history[0].Order
	history = oracle.AsKnown(history)
	asked := make(map[string]string) // the key of each attempt
	known, agentless := make(map[string]bool), make(map[string]bool)
	attempt := func(e *events.Event, undo bool) string { return fmt.Sprintf("%s %d", deed(e.Step, undo), e.Attempt) }
	for i := range history {
		switch e := &history[i]; e.Type {
		case events.StepStarted, events.UndoStarted:
			asked[attempt(e, e.Type == events.UndoStarted)] = e.IdempotencyKey
			known[e.IdempotencyKey] = true
		case events.StepEmitting, events.StepOrdered, events.StepItemized: // which no agent does
			agentless[e.Step] = true
		case events.StepCompleted, events.StepRepeated, events.UndoCompleted:
			if key := asked[attempt(e, e.Type == events.UndoCompleted)]; !keys[key] && !agentless[e.Step] {
				lost = append(lost, fmt.Sprintf("order %s: event %d says that %s completed under key %q, and no agent did it", order, e.Seq, e.Step, key))
			}
		}
	}
	for key := range keys {
		if !known[key] {
			doubled = append(doubled, fmt.Sprintf("order %s: agents did something under key %q, which the journal did not ask for", order, key))
		}
	}
	for _, s := range steps {
		switch done, undone := deeds["do "+s.Known], deeds["undo "+s.Known]; {
		case agentless[s.Known]:
		case s.State == "completed" && !done && s.Asks():
			lost = append(lost, fmt.Sprintf("order %s says that step %s was done, and no agent did it", order, s.Name))
		case s.State == "undone" && !undone:
			lost = append(lost, fmt.Sprintf("order %s says that step %s was undone, and no agent undid it", order, s.Name))
		case s.State != "undone" && undone && (s.Undo == nil || s.Undo.State == "not-started" && s.Undo.Done == 0):
			doubled = append(doubled, fmt.Sprintf("order %s says that step %s is %s, and an agent undid it", order, s.Name, s.State))
		case done && s.State == "not-started" && !s.Ran(): // nor in doubt under the key of before, as a resubmission leaves it
			doubled = append(doubled, fmt.Sprintf("order %s says that step %s was not begun, and an agent did it", order, s.Name))
		}
	}
	return lost, doubled
}

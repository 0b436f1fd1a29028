package words

import (
	"fmt"
	"strings"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// Ordered says which order does a step.
func Ordered(o *workflow.Order) string {
	text := "order of " + o.Workflow
	if o.Version > 0 {
		text = "order of " + workflow.ID(o.Workflow, o.Version)
	}
	if o.Detached {
		text += ", whose end is not awaited"
	}
	return text
}

// Emits says which event a step gives which topic.
func Emits(e *workflow.Emit) string { return e.Type + " to " + e.Topic }

// Sleeps says how long a step sleeps, or until when.
func Sleeps(s *workflow.Sleep) string {
	switch {
	case s.Until != nil:
		return "until " + s.Until.String()
	case s.Lasts != nil:
		return "for " + s.Lasts.String()
	}
	return "for " + s.For.String()
}

// Raises says what a step raises.
func Raises(r *workflow.Raise) string {
	text := "raise " + r.Code
	if r.Message != nil {
		text += ": " + r.Message.String()
	}
	if r.Compensate {
		text += ", and undo"
	}
	return text
}

// Each says what a step is done for, and by whom.
func Each(e *workflow.Each) string {
	by := "an order of " + e.Order.Workflow
	if e.Steps != nil {
		names := make([]string, len(e.Steps.Steps))
		for i := range e.Steps.Steps {
			names[i] = e.Steps.Steps[i].Name
		}
		by = strings.Join(names, ", ")
	}
	if e.Pages != nil {
		return fmt.Sprintf("each that %s/%s lists: %s", e.Pages.Steps[0].Agent, e.Pages.Steps[0].Do, by)
	}
	return fmt.Sprintf("each of %s: %s", e.Items, by)
}

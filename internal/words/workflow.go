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
		by = stepNames(e.Steps)
	}
	if e.Pages != nil {
		return fmt.Sprintf("each that %s/%s lists: %s", e.Pages.Steps[0].Agent, e.Pages.Steps[0].Do, by)
	}
	return fmt.Sprintf("each of %s: %s", e.Items, by)
}

func stepNames(flow *workflow.Workflow) string {
	names := make([]string, len(flow.Steps))
	for i := range flow.Steps {
		names[i] = flow.Steps[i].Name
	}
	return strings.Join(names, ", ")
}

// EachSays is what a step says of its items, one thing a line: which they are, who does them, and how many may be
// under way and fail.
func EachSays(e *workflow.Each) []string {
	items, by := "items ", Ordered(&e.Order)
	if e.Pages != nil {
		items += fmt.Sprintf("that %s/%s lists", e.Pages.Steps[0].Agent, e.Pages.Steps[0].Do)
	} else {
		items += Line(e.Items.String())
	}
	if e.Steps != nil {
		by = "steps " + stepNames(e.Steps)
	}
	tolerate, onFailure := fmt.Sprint(e.Tolerate), "stop"
	if e.TolerateShare > 0 {
		tolerate = fmt.Sprintf("%d%%", e.TolerateShare)
	}
	if e.Finish {
		onFailure = "finish"
	}
	return []string{items, by, fmt.Sprintf("atOnce %d, tolerate %s, onFailure %s", e.AtOnce, tolerate, onFailure)}
}

// Retries says how often, and how far apart, a step is attempted, and done again.
func Retries(s *workflow.Step) string {
	text := fmt.Sprintf("%d, %s x%g to %s", s.Retry.Attempts, s.Retry.Backoff, s.Retry.Multiplier, s.Retry.Max)
	if s.Retry.Jitter > 0 {
		text += fmt.Sprintf(", jitter %g", s.Retry.Jitter)
	}
	if len(s.Retry.Never) > 0 {
		text += "; never " + strings.Join(s.Retry.Never, ",")
	}
	if len(s.Retry.AtOnce) > 0 {
		text += "; at once " + strings.Join(s.Retry.AtOnce, ",")
	}
	if s.Repeat != nil {
		text += fmt.Sprintf("; %s every %s until %s", Several(s.Repeat.Max, "time", "times"), s.Repeat.Every, Short(Line(s.Repeat.Until.String())))
	}
	return text
}

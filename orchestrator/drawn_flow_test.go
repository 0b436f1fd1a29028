package orchestrator

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// drawFlow draws a version of the workflow "flow": a random graph, and whatever
// a workflow can say of its steps.
func drawFlow(t *rapid.T, version int) *workflow.Workflow {
	var source strings.Builder
	seconds := func(label string, low, high int) string {
		return fmt.Sprintf("%dms", 500*rapid.IntRange(low, high).Draw(t, label))
	}
	fmt.Fprintf(&source, "workflow: flow\nversion: %d\n", version)
	if rapid.IntRange(0, 3).Draw(t, "late") == 0 {
		fmt.Fprintf(&source, "deadline: %s\n", seconds("deadline", 1, 60))
	}
	if rapid.Bool().Draw(t, "overdue") {
		source.WriteString("overdue: compensate\n")
	}
	if rapid.IntRange(0, 7).Draw(t, "strict") == 7 {
		source.WriteString("input: {type: object}\n")
	}
	var steps []string
	for i := range rapid.IntRange(1, 5).Draw(t, "steps") {
		var after []string
		for from := range i {
			if rapid.Bool().Draw(t, "after") {
				after = append(after, fmt.Sprint("s", from))
			}
		}
		retry := fmt.Sprintf("attempts: %d, backoff: %s, multiplier: %d",
			rapid.IntRange(1, 3).Draw(t, "attempts"), seconds("backoff", 0, 6), rapid.IntRange(1, 3).Draw(t, "multiplier"))
		if rapid.IntRange(0, 2).Draw(t, "jitters") == 0 {
			retry += fmt.Sprintf(", jitter: %s", rapid.SampledFrom([]string{"0.3", "1"}).Draw(t, "jitter"))
		}
		source := new(strings.Builder)
		fmt.Fprintf(source, "  - {name: s%d, agent: a%d, after: [%s], timeout: %s, retry: {%s}",
			i, rapid.IntRange(0, 2).Draw(t, "agent"), strings.Join(after, ", "), seconds("timeout", 1, 10), retry)
		undo := rapid.IntRange(0, 3).Draw(t, "undo") > 0
		if undo {
			source.WriteString(", undo: back")
		}
		switch exhausted := rapid.SampledFrom([]string{"error", "compensate", "compensate", "wait"}).Draw(t, "exhausted"); exhausted {
		case "wait":
			fmt.Fprintf(source, ", exhausted: wait, wait: {for: %s, rounds: %d}", seconds("for", 1, 20), rapid.IntRange(1, 2).Draw(t, "rounds"))
		default:
			fmt.Fprintf(source, ", exhausted: %s", exhausted)
		}
		drawExpressions(t, source, fmt.Sprint("s", i), after, undo)
		steps = append(steps, source.String()+"}\n")
	}
	if rapid.IntRange(0, 3).Draw(t, "order") == 3 {
		slices.Reverse(steps) // a step may stand above what it comes after
	}
	return parseFlow(t, source.String()+"steps:\n"+strings.Join(steps, ""))
}

// drawExpressions draws what a step computes. input.n fails where the order has
// no such input.
func drawExpressions(t *rapid.T, source *strings.Builder, name string, after []string, undo bool) {
	draw := func(key string, choices ...string) {
		if rapid.IntRange(0, 5).Draw(t, key) == 0 {
			fmt.Fprintf(source, ", %s: '%s'", key, rapid.SampledFrom(choices).Draw(t, key+" is"))
		}
	}
	when, with := []string{"input != null", "true", "input.n > 1"}, []string{`{"a": input}`, "null", "input"}
	if len(after) > 0 {
		when = append(when, fmt.Sprintf(`steps.%s.state == "completed"`, after[0]))
		when = append(when, fmt.Sprintf(`steps.%s.state == "skipped"`, after[0]))
		with = append(with, "input.n", fmt.Sprintf("steps.%s.output", after[0]))
	}
	draw("when", when...)
	draw("with", with...)
	if undo {
		draw("undoWith", fmt.Sprintf(`{"was": steps.%s.output}`, name), fmt.Sprintf("steps.%s.output", name), "input.n")
	}
}

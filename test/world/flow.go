package world

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Lot draws one of n numbers, from 0 on. What it decides is for who reads what
// was drawn.
type Lot func(what string, n int) int

// Drawing says what a workflow is drawn with. Its orders have an input with a
// number n; those that have none fail in some of its expressions. The undo of a
// step that may have been done may fail in them too.
type Drawing struct {
	Name    string
	Version int
	Agents  []string
	Timeout time.Duration // the shortest of an attempt
	Pause   time.Duration // the shortest between attempts
	Level   int           // the newest of the language that it uses; 0, whatever there is
}

// Flow draws the file of a workflow: a random graph, and whatever a workflow can
// say of its steps.
func (d *Drawing) Flow(lot Lot) string {
	var file strings.Builder
	fmt.Fprintf(&file, "workflow: %s\nversion: %d\n", d.Name, d.Version)
	if lot("late", 4) == 0 {
		fmt.Fprintf(&file, "deadline: %s\n", lot.times("deadline", d.Timeout, 1, 60))
	}
	if lot("overdue", 2) == 1 {
		file.WriteString("overdue: compensate\n")
	}
	if lot("strict", 8) == 7 {
		file.WriteString("input: {type: object}\n")
	}
	reversed := lot("order", 4) == 3 // a step may stand above what it comes after
	var steps []string
	for i := range 1 + lot("steps", 5) {
		steps = append(steps, d.step(lot, i, reversed))
	}
	if reversed {
		slices.Reverse(steps)
	}
	return file.String() + "steps:\n" + strings.Join(steps, "")
}

func (d *Drawing) step(lot Lot, i int, reversed bool) string {
	var step strings.Builder
	name := fmt.Sprint("s", i)
	fmt.Fprintf(&step, "  - {name: %s, agent: %s, timeout: %s, retry: {attempts: %d, backoff: %s, multiplier: %d", name, lot.of("agent", d.Agents...),
		lot.times("timeout", d.Timeout, 1, 10), 1+lot("attempts", 3), lot.times("backoff", d.Pause, 0, 6), 1+lot("multiplier", 3))
	if lot("jitters", 3) == 0 {
		fmt.Fprintf(&step, ", jitter: %s", lot.of("jitter", "0.3", "1"))
	}
	step.WriteString("}")
	if d.Level != 1 && lot("queues", 3) == 0 {
		fmt.Fprintf(&step, ", queue: %s", lot.times("queue", d.Timeout, 1, 4))
	}
	var after []string
	if !reversed && i > 0 && lot("in turn", 4) == 3 {
		after = []string{fmt.Sprint("s", i-1)} // which stands above, and so need not be named
	} else {
		for from := range i {
			if lot("after", 2) == 1 {
				after = append(after, fmt.Sprint("s", from))
			}
		}
		fmt.Fprintf(&step, ", after: [%s]", strings.Join(after, ", "))
	}
	undo := lot("undo", 4) > 0
	if undo {
		step.WriteString(", undo: back")
	}
	exhausted := lot.of("exhausted", "error", "compensate", "compensate", "wait")
	fmt.Fprintf(&step, ", exhausted: %s", exhausted)
	if exhausted == "wait" {
		fmt.Fprintf(&step, ", wait: {for: %s, rounds: %d}", lot.times("for", d.Pause, 1, 20), 1+lot("rounds", 2))
	}
	lot.expressions(&step, name, after, undo)
	return step.String() + "}\n"
}

// expressions draws what a step computes.
func (lot Lot) expressions(step *strings.Builder, name string, after []string, undo bool) {
	draw := func(key string, choices ...string) {
		if lot(key, 6) == 0 {
			fmt.Fprintf(step, ", %s: '%s'", key, lot.of(key+" is", choices...))
		}
	}
	when, with := []string{"input != null", "true", "input.n > 1", "input.n % 3 != 0"}, []string{`{"a": input}`, "null", "input"}
	if len(after) > 0 {
		when = append(when, fmt.Sprintf(`steps.%s.state == "completed"`, after[0]))
		when = append(when, fmt.Sprintf(`steps.%s.state == "skipped"`, after[0]))
		with = append(with, `{"n": input.n, "twice": input.n * 2}`, "input.n", fmt.Sprintf("steps.%s.output", after[0]))
	}
	draw("when", when...)
	draw("with", with...)
	if undo {
		draw("undoWith", fmt.Sprintf(`{"was": steps.%s.output}`, name), fmt.Sprintf("steps.%s.output", name), "input.n")
	}
}

// of draws one of some.
func (lot Lot) of(what string, some ...string) string { return some[lot(what, len(some))] }

// times draws how many times a duration.
func (lot Lot) times(what string, d time.Duration, least, most int) time.Duration {
	return d * time.Duration(least+lot(what, most-least+1))
}

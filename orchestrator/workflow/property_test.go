package workflow_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// TestCanonicalRoundTrip: every workflow there can be is what its canonical
// form says.
func TestCanonicalRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { roundTrip(t, drawWorkflow(t)) })
}

// TestSameMeaningSameBytes: how a file is written makes no difference.
func TestSameMeaningSameBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorkflow(t)
		source := writeYAML(t, w)
		if got, want := roundTrip(t, mustParse(t, source)), roundTrip(t, w); string(got) != string(want) {
			t.Fatalf("%s\nmeans\n%s, not\n%s", source, got, want)
		}
	})
}

// TestCircles: a graph is accepted if its steps can be put in an order, and
// otherwise at least one circle of it is named.
func TestCircles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.IntRange(1, 12).Draw(t, "steps")
		after := make([][]int, steps)
		var source strings.Builder
		source.WriteString("workflow: graph\nsteps:\n")
		for i := range after {
			var names []string
			for from := range steps {
				if from != i && rapid.IntRange(0, steps).Draw(t, "edge") == 0 {
					after[i] = append(after[i], from)
					names = append(names, fmt.Sprintf("s%d", from))
				}
			}
			fmt.Fprintf(&source, "  - {name: s%d, agent: a, after: [%s]}\n", i, strings.Join(names, ", "))
		}
		_, err := workflow.Parse("graph.yaml", []byte(source.String()))
		if canBeOrdered(after) {
			if err != nil {
				t.Fatalf("refused: %v\n%s", err, &source)
			}
			return
		}
		var errs workflow.Errors
		errors.As(err, &errs)
		if len(errs) == 0 {
			t.Fatalf("accepted although there is a circle:\n%s", &source)
		}
		for _, e := range errs {
			_, circle, _ := strings.Cut(e.Message, "each other: ")
			circle, _, _ = strings.Cut(circle, ";")
			names := strings.Split(circle, " -> ")
			if len(names) < 3 || names[0] != names[len(names)-1] {
				t.Fatalf("no circle: %v", e)
			}
			for i, name := range names[1:] {
				var from, to int
				if _, err := fmt.Sscanf(names[i]+" "+name, "s%d s%d", &from, &to); err != nil {
					t.Fatal(err)
				}
				if !slices.Contains(after[to], from) {
					t.Fatalf("%s is not after %s: %v\n%s", name, names[i], e, &source)
				}
			}
		}
	})
}

func canBeOrdered(after [][]int) bool {
	done := make([]bool, len(after))
	for range after {
		for i, before := range after {
			if !slices.ContainsFunc(before, func(b int) bool { return !done[b] }) {
				done[i] = true
			}
		}
	}
	return !slices.Contains(done, false)
}

var (
	names      = rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?`)
	agents     = rapid.StringMatching(`[a-zA-Z0-9._-]{3,20}`)
	operations = rapid.StringOfN(rapid.Rune().Filter(func(r rune) bool { return r > ' ' && r != '\uFFFD' && printable(r) }), 1, 20, -1)
	years      = 8760 * time.Hour
)

func printable(r rune) bool {
	quoted := fmt.Sprintf("%+q", r)
	return quoted[1] != '\\' || r == '\\' || r == '\'' || r > 0x7f && fmt.Sprintf("%q", r)[1] != '\\'
}

func drawDuration(t *rapid.T, label string, least, most time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(int64(least), int64(most)).Draw(t, label))
}

func drawRetry(t *rapid.T) workflow.Retry {
	r := workflow.Retry{
		Attempts:   rapid.IntRange(1, 1000).Draw(t, "attempts"),
		Backoff:    drawDuration(t, "backoff", 0, years),
		Multiplier: rapid.Float64Range(1, 100).Draw(t, "multiplier"),
		Jitter:     rapid.Float64Range(0, 1).Draw(t, "jitter"),
	}
	r.Max = drawDuration(t, "max", r.Backoff, years)
	return r
}

// drawWorkflow draws any valid workflow. Steps follow only steps above them;
// TestCircles looks at the other graphs.
func drawWorkflow(t *rapid.T) *workflow.Workflow {
	w := &workflow.Workflow{
		Name:    names.Draw(t, "workflow"),
		Version: rapid.IntRange(1, math.MaxInt32).Draw(t, "version"),
		Overdue: rapid.SampledFrom([]workflow.Exhausted{workflow.ExhaustedError, workflow.ExhaustedCompensate}).Draw(t, "overdue"),
	}
	if rapid.Bool().Draw(t, "has deadline") {
		w.Deadline = drawDuration(t, "deadline", 1, years)
	}
	if rapid.Bool().Draw(t, "is kept") {
		w.Keep = time.Duration(rapid.IntRange(1, 31_536_000).Draw(t, "keep")) * time.Second
	}
	if rapid.Bool().Draw(t, "has schema") {
		w.Input = drawSchema(t)
	}
	starts := rapid.SampledFrom([]string{"null", "go", "{signal: stop.it}", "{signal: go, key: 'input.a'}"}).Draw(t, "start")
	if starts != "null" {
		w.Start = mustParse(t, "{workflow: w, steps: [{name: s, agent: a}], start: "+starts+"}").Start
	}
	if keys := rapid.SampledFrom([]string{"", "{key: input.a}", "{key: '\"all\"', onConflict: reject}", "{key: input.b, onConflict: cancel-other}"}).Draw(t, "concurrency"); keys != "" {
		w.Concurrency = mustParse(t, "{workflow: w, steps: [{name: s, agent: a}], concurrency: "+keys+"}").Concurrency
	}
	marks := rapid.SampledFrom([]string{"", "[a]", "{b: 'string(input.b)', a: input.a}"}).Draw(t, "search")
	w.Search = mustParse(t, "{workflow: w, steps: [{name: s, agent: a}], search: "+cmp.Or(marks, "[]")+"}").Search
	for _, name := range rapid.SliceOfNDistinct(names, 1, 6, rapid.ID).Draw(t, "names") {
		s := workflow.Step{
			Name:      name,
			Agent:     agents.Draw(t, "agent"),
			Do:        operations.Draw(t, "do"),
			Timeout:   drawDuration(t, "timeout", 1, years),
			Retry:     drawRetry(t),
			Exhausted: rapid.SampledFrom([]workflow.Exhausted{workflow.ExhaustedError, workflow.ExhaustedCompensate, workflow.ExhaustedWait}).Draw(t, "exhausted"),
		}
		if rapid.Bool().Draw(t, "has queue") {
			s.Queue = drawDuration(t, "queue", 1, years)
		}
		if rapid.Bool().Draw(t, "has undo") {
			s.Undo = operations.Draw(t, "undo")
		}
		for i := range w.Steps {
			if rapid.Bool().Draw(t, "after") {
				s.After = append(s.After, w.Steps[i].Name)
			}
		}
		if rapid.Bool().Draw(t, "has limit") {
			s.Limit = &workflow.Limit{Name: names.Draw(t, "limit")}
		}
		s.When = drawExpression(t, "when", s)
		s.With = drawExpression(t, "with", s)
		if s.Undo != "" {
			s.UndoWith = drawExpression(t, "undoWith", s)
		}
		if s.Exhausted == workflow.ExhaustedWait {
			s.Wait = workflow.Wait{For: drawDuration(t, "for", 1, years), Rounds: rapid.IntRange(1, 1000).Draw(t, "rounds")}
		}
		w.Steps = append(w.Steps, s)
	}
	return w
}

// writeYAML writes w as a person might: keys in any order, in block or flow
// style, predecessors in any order or, where they are the step above, left out.
func writeYAML(t *rapid.T, w *workflow.Workflow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "workflow: %q\nversion: %d\n", w.Name, w.Version)
	if w.Deadline > 0 {
		fmt.Fprintf(&b, "deadline: %v\n", w.Deadline)
	}
	const day = 24 * time.Hour
	if w.Keep > 0 && rapid.Bool().Draw(t, "in days") {
		fmt.Fprintf(&b, "keep: %dd%v\n", w.Keep/day, w.Keep%day)
	} else if w.Keep > 0 {
		fmt.Fprintf(&b, "keep: %v\n", w.Keep)
	}
	if w.Overdue != workflow.ExhaustedError {
		fmt.Fprintf(&b, "overdue: %s\n", w.Overdue)
	}
	if w.Input != nil {
		fmt.Fprintf(&b, "input: %v\n", w.Input)
	}
	if s := w.Start; s != nil && s.Key == nil && rapid.Bool().Draw(t, "the signal alone") {
		fmt.Fprintf(&b, "start: %s\n", s.Signal)
	} else if s != nil && s.Key == nil {
		fmt.Fprintf(&b, "start: {signal: '%s'}\n", s.Signal)
	} else if s != nil {
		fmt.Fprintf(&b, "start: {key: '%s', signal: %s}\n", s.Key, s.Signal)
	}
	if c := w.Concurrency; c != nil && c.OnConflict == events.ConflictQueue && rapid.Bool().Draw(t, "the key alone") {
		fmt.Fprintf(&b, "concurrency: {key: '%s'}\n", c.Key)
	} else if c != nil {
		fmt.Fprintf(&b, "concurrency: {onConflict: %s, key: '%s'}\n", c.OnConflict, c.Key)
	}
	if len(w.Search) > 0 {
		b.WriteString("search:\n")
		for _, m := range rapid.Permutation(w.Search).Draw(t, "search order") {
			fmt.Fprintf(&b, "  %s: '%v'\n", m.Name, m.Value)
		}
	}
	b.WriteString("steps:\n")
	for i, s := range w.Steps {
		keys := []string{
			fmt.Sprintf("name: '%s'", s.Name),
			fmt.Sprintf("agent: %q", s.Agent),
			fmt.Sprintf("do: '%s'", strings.ReplaceAll(s.Do, "'", "''")),
			fmt.Sprintf("timeout: %v", s.Timeout),
			fmt.Sprintf("retry: {max: %v, backoff: %v, attempts: %d, multiplier: %v, jitter: %v}", s.Retry.Max, s.Retry.Backoff, s.Retry.Attempts, s.Retry.Multiplier, s.Retry.Jitter),
		}
		for key, e := range map[string]*workflow.Expression{"when": s.When, "with": s.With, "undoWith": s.UndoWith} {
			if e != nil {
				keys = append(keys, fmt.Sprintf("%s: '%s'", key, strings.ReplaceAll(e.String(), "'", "''")))
			}
		}
		slices.Sort(keys) // rapid must draw the same again
		if s.Queue > 0 {
			keys = append(keys, fmt.Sprintf("queue: %v", s.Queue))
		}
		if s.Limit != nil {
			keys = append(keys, fmt.Sprintf("limit: %q", s.Limit.Name))
		}
		if s.Undo != "" {
			keys = append(keys, fmt.Sprintf("undo: '%s'", strings.ReplaceAll(s.Undo, "'", "''")))
		}
		usual := i == 0 && s.After == nil || i > 0 && slices.Equal(s.After, []string{w.Steps[i-1].Name})
		if !usual || rapid.Bool().Draw(t, "spell out after") {
			quoted := make([]string, len(s.After))
			for j, name := range s.After {
				quoted[j] = fmt.Sprintf("%q", name)
			}
			keys = append(keys, fmt.Sprintf("after: [%s]", strings.Join(rapid.Permutation(quoted).Draw(t, "after order"), ", ")))
		}
		if s.Exhausted != workflow.ExhaustedError {
			keys = append(keys, fmt.Sprintf("exhausted: %s", s.Exhausted))
		}
		if s.Exhausted == workflow.ExhaustedWait {
			keys = append(keys, fmt.Sprintf("wait: {rounds: %d, for: %v}", s.Wait.Rounds, s.Wait.For))
		}
		keys = rapid.Permutation(keys).Draw(t, "key order")
		if rapid.Bool().Draw(t, "flow") {
			fmt.Fprintf(&b, "  - {%s}\n", strings.Join(keys, ", "))
		} else {
			fmt.Fprintf(&b, "  - %s\n", strings.Join(keys, "\n    "))
		}
	}
	return b.String()
}

// drawExpression draws an expression for a step, or none.
func drawExpression(t *rapid.T, key string, s workflow.Step) *workflow.Expression {
	condition := []string{"true", "input.total > 1 && has(input.note)", `input == {'a': "<'>"}`}
	value := append([]string{"input", "1", `{"a": input.total, "b": [input.?c.orValue('x')]}`}, condition...)
	for _, name := range s.After {
		condition = append(condition, fmt.Sprintf("steps[%q].state == 'completed'", name))
		value = append(value, fmt.Sprintf("steps[%q].output.id", name), fmt.Sprintf("[steps['%s'].?input]", name))
	}
	sources := value
	switch key {
	case "when":
		sources = condition
	case "undoWith":
		sources = append(sources, fmt.Sprintf("steps['%s'].output", s.Name))
	}
	source := rapid.SampledFrom(append(sources, "")).Draw(t, key)
	if source == "" {
		return nil
	}
	var file strings.Builder
	file.WriteString("workflow: w\nsteps:\n")
	for _, name := range s.After {
		fmt.Fprintf(&file, "- {name: '%s', agent: a, after: []}\n", name)
	}
	fmt.Fprintf(&file, "- {name: '%s', agent: a, undo: u, after: ['%s'], %s: '%s'}\n", s.Name, strings.Join(s.After, "', '"), key, strings.ReplaceAll(source, "'", "''"))
	step, _ := mustParse(t, strings.ReplaceAll(file.String(), "['']", "[]")).Step(s.Name)
	switch key {
	case "when":
		return step.When
	case "with":
		return step.With
	}
	return step.UndoWith
}

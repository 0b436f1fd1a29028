package compensation

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

func TestC1Reverse(t *testing.T)  { datadriven.RunTest(t, "testdata/c1-reverse.txt", next) }
func TestC2Failures(t *testing.T) { datadriven.RunTest(t, "testdata/c2-failures.txt", next) }
func TestC3Outcome(t *testing.T)  { datadriven.RunTest(t, "testdata/c3-outcome.txt", next) }

// next says what is to be undone of the order that the input describes.
func next(t *testing.T, d *datadriven.TestData) string {
	o, flow := &projections.Order{Toward: projections.Compensated}, &workflow.Workflow{}
	for line := range strings.Lines(d.Input) {
		step(t, strings.Fields(line), o, flow)
	}
	ready, done := Next(o, flow, named)
	var out strings.Builder
	names := make([]string, len(ready))
	for i, place := range ready {
		names[i] = o.Steps[place].Name
	}
	fmt.Fprintf(&out, "begin: %s\n", strings.Join(names, " "))
	if done {
		fmt.Fprintln(&out, "nothing is left")
	}
	undone, notUndone := Outcome(o)
	fmt.Fprintf(&out, "undone: %s\nnot undone: %s\n", strings.Join(undone, " "), strings.Join(notUndone, " "))
	for _, err := range Failures(o).WrappedErrors() {
		fmt.Fprintf(&out, "failed: %v\n", err)
	}
	return out.String()
}

// step adds the step of a line to the order and to its workflow.
func step(t *testing.T, words []string, o *projections.Order, flow *workflow.Workflow) {
	t.Helper()
	def := workflow.Step{Name: words[0], Retry: workflow.Retry{Attempts: 1}}
	s := projections.Step{Name: words[0]}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch {
		case word == "undo":
			def.Undo = "back"
		case key == "after":
			def.After = strings.Split(value, ",")
		case key == "undo":
			s.Undo = &projections.Work{State: projections.StepState(value)}
		case key == "error":
			s.Undo.Attempt++
			s.Undo.Tried++
			fault := events.Error{Code: strings.TrimSuffix(value, "!"), Attempt: s.Undo.Attempt, Permanent: strings.HasSuffix(value, "!")}
			s.Undo.Error = &fault
			s.Undo.Errors = append(s.Undo.Errors, fault)
		case key == "attempts":
			def.Retry.Attempts = number(t, value)
		case key == "rounds":
			def.Wait.Rounds = number(t, value)
		case key == "round":
			s.Undo.Round = number(t, value)
		case word == "may-have-run":
			s.Unknown = true
		case word == "leaves":
			s.Leaves = true
		default:
			s.State = projections.StepState(word)
		}
	}
	if s.State == "" {
		t.Fatalf("step %s has no state", s.Name)
	}
	o.Steps, flow.Steps = append(o.Steps, s), append(flow.Steps, def)
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

package compensation

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// TestC1AnyGraph: whatever the graph, whatever ran and whatever agents answer,
// the undos are a reverse topological order, there is an end of them, and
// nothing that could be undone is left out.
func TestC1AnyGraph(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, flow := drawOrder(t)
		toUndo := 0 // what must come to an end, at last
		for i := range o.Steps {
			if s := &o.Steps[i]; flow.Steps[i].Undo != "" && (s.Ran() || s.State == projections.Running) {
				toUndo++
			}
		}
		for acts := 0; ; acts++ {
			ready, done := Next(o, flow, named)
			if again, same := Next(o, flow, named); !slices.Equal(ready, again) || done != same {
				t.Fatalf("asked twice it says %v, %t and %v, %t", ready, done, again, same)
			}
			if !slices.IsSorted(ready) {
				t.Fatalf("%v is not in the order of the file", ready)
			}
			for _, i := range ready {
				begin(t, o, flow, i)
			}
			busy := atWork(o)
			if done != (len(busy) == 0) {
				t.Fatalf("done: %t, while %v are at work", done, busy)
			}
			if done {
				break
			}
			if acts > 2*len(o.Steps)+toUndo {
				t.Fatalf("there is no end of it: %v are at work", busy)
			}
			finish(t, &o.Steps[rapid.SampledFrom(busy).Draw(t, "which")])
		}
		checkOutcome(t, o, flow)
	})
}

// named says that a step has an undo if its workflow names one.
func named(def *workflow.Step) bool { return def.Undo != "" }

func drawOrder(t *rapid.T) (*projections.Order, *workflow.Workflow) {
	o, flow := &projections.Order{Toward: projections.Cancelled}, &workflow.Workflow{}
	for i := range rapid.IntRange(1, 7).Draw(t, "steps") {
		def := workflow.Step{Name: fmt.Sprint("s", i)}
		for from := range i {
			if rapid.IntRange(0, 2).Draw(t, "after") == 0 {
				def.After = append(def.After, fmt.Sprint("s", from))
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "undo") > 0 {
			def.Undo = "back"
		}
		s := projections.Step{Name: def.Name, Unknown: rapid.Bool().Draw(t, "unknown"), Leaves: rapid.IntRange(0, 3).Draw(t, "leaves") == 0}
		s.State = rapid.SampledFrom([]projections.StepState{
			projections.Completed, projections.Completed, projections.Running, projections.NotStarted,
			projections.Failed, projections.Expired, projections.Skipped,
		}).Draw(t, "state")
		s.Unknown = s.State == projections.Expired || s.Unknown && s.State != projections.Completed && s.State != projections.NotStarted
		o.Steps, flow.Steps = append(o.Steps, s), append(flow.Steps, def)
	}
	// A step may stand above what it comes after.
	if rapid.Bool().Draw(t, "upside down") {
		slices.Reverse(o.Steps)
		slices.Reverse(flow.Steps)
	}
	return o, flow
}

// begin starts an undo, and says why it may not.
func begin(t *rapid.T, o *projections.Order, flow *workflow.Workflow, i int) {
	s := &o.Steps[i]
	if flow.Steps[i].Undo == "" || !s.Ran() || s.State == projections.Running || s.Undo != nil {
		t.Fatalf("step %s is not to be undone: %+v", s.Name, s)
	}
	for _, j := range behind(flow, i) {
		f := &o.Steps[j]
		open := f.Undo == nil && f.Ran() && flow.Steps[j].Undo != ""
		if f.State == projections.Running || open || f.Undo != nil && f.Undo.State == projections.Running {
			t.Fatalf("the undo of step %s begins before that of step %s, which comes after it: %+v", s.Name, f.Name, f)
		}
	}
	s.Undo = &projections.Work{State: projections.Running, Attempt: 1}
}

// behind returns all that comes after step i, however far.
func behind(flow *workflow.Workflow, i int) []int {
	reached := map[string]bool{flow.Steps[i].Name: true}
	var found []int
	for more := true; more; {
		more = false
		for j := range flow.Steps {
			if def := &flow.Steps[j]; !reached[def.Name] && slices.ContainsFunc(def.After, func(name string) bool { return reached[name] }) {
				reached[def.Name], more = true, true
				found = append(found, j)
			}
		}
	}
	return found
}

// atWork returns the steps that run, or whose undo runs.
func atWork(o *projections.Order) []int {
	var busy []int
	for i := range o.Steps {
		if s := &o.Steps[i]; s.State == projections.Running || s.Undo != nil && s.Undo.State == projections.Running {
			busy = append(busy, i)
		}
	}
	return busy
}

// finish has what runs end in any way, for good.
func finish(t *rapid.T, s *projections.Step) {
	if s.State == projections.Running {
		s.State = rapid.SampledFrom([]projections.StepState{projections.Completed, projections.Failed, projections.Expired}).Draw(t, "ends")
		s.Unknown = s.State == projections.Expired || s.Unknown && s.State == projections.Failed
		return
	}
	s.Undo.State = rapid.SampledFrom([]projections.StepState{
		projections.Completed, projections.Completed, projections.Failed, projections.Expired, projections.Skipped,
	}).Draw(t, "ends")
	switch s.Undo.State {
	case projections.Completed:
		s.State = projections.Undone
	case projections.Failed, projections.Expired:
		s.Undo.Error = &events.Error{Code: "no", Attempt: 1, Permanent: true}
		s.Undo.Errors = []events.Error{*s.Undo.Error}
	}
}

// checkOutcome: what was not undone has no undo, or its undo was tried (C3);
// what failed is told of (C2).
func checkOutcome(t *rapid.T, o *projections.Order, flow *workflow.Workflow) {
	undone, notUndone := Outcome(o)
	failures := 0
	for i := range o.Steps {
		s := &o.Steps[i]
		if flow.Steps[i].Undo != "" && s.Ran() && s.Undo == nil {
			t.Fatalf("step %s was left out: %+v", s.Name, s)
		}
		if s.Undo != nil && s.Undo.Broken() {
			failures++
		}
		if is, not := slices.Contains(undone, s.Name), slices.Contains(notUndone, s.Name); is != (s.State == projections.Undone && !s.Leaves) || not != (s.Leaves || s.Ran()) {
			t.Fatalf("undone %q, not undone %q, and step %s is %+v", undone, notUndone, s.Name, s)
		}
	}
	if n := len(Failures(o).WrappedErrors()); n != failures {
		t.Fatalf("%d undos failed, and %d errors are told", failures, n)
	}
}

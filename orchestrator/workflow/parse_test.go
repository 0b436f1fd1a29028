package workflow_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// TestPlays runs the files of testdata, which document the language. The
// command "parse" prints a good file's canonical form, one step a line, and a
// refused file's problems. The command "evaluate" prints what each of some
// expressions, one a line, is; "check" prints what is wrong with each of some
// inputs, which follow a schema and an empty line.
func TestPlays(t *testing.T) {
	datadriven.Walk(t, "testdata/plays", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "parse":
				return play(t, d.Input)
			case "evaluate":
				return evaluate(t, d.Input)
			case "check":
				return check(t, d.Input)
			default:
				d.Fatalf(t, "unknown command %q", d.Cmd)
				return ""
			}
		})
	})
}

func play(t *testing.T, source string) string {
	w, err := workflow.Parse("orders.yaml", []byte(source))
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(roundTrip(t, w)), `{"name":"`, "\n  {\"name\":\"")
}

// scope is what the expressions of the plays see.
var scope = workflow.Scope{
	Input: jsontext.Value(`{"customer": {"name": "Ada"}, "total": 120, "discount": 0.5, "id": 123456789012345678901234567890,
		"items": [{"sku": "b-1", "count": 2}, {"sku": "a-7", "count": 1}], "note": null}`),
	Step: func(name string) workflow.Result {
		if name == "pick-up" {
			return workflow.Result{State: "skipped"}
		}
		return workflow.Result{State: "completed", Input: jsontext.Value(`{"count":3}`), Output: jsontext.Value(`{"id": "r-9", "price": 1.10}`)}
	},
}

// evaluate prints what some expressions are, in a step that comes after the
// steps reserve and pick-up.
func evaluate(t *testing.T, sources string) string {
	var b strings.Builder
	for source := range strings.SplitSeq(sources, "\n") {
		w, err := workflow.Parse("f", fmt.Appendf(nil, `
workflow: w
steps:
- {name: reserve, agent: a}
- {name: pick-up, agent: a}
- {name: charge, agent: a, with: %q}`, source))
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		got, err := w.Steps[2].With.Value(scope)
		if err != nil {
			fmt.Fprintln(&b, err)
			continue
		}
		fmt.Fprintln(&b, string(got))
	}
	return b.String()
}

func check(t *testing.T, text string) string {
	schema, inputs, _ := strings.Cut(text, "\n\n")
	w := mustParse(t, "workflow: w\nsteps: [{name: s, agent: a}]\ninput:\n  "+strings.ReplaceAll(schema, "\n", "\n  "))
	var b strings.Builder
	for input := range strings.SplitSeq(inputs, "\n") {
		if input == "absent" {
			input = ""
		}
		if err := w.CheckInput(jsontext.Value(input)); err != nil {
			fmt.Fprintln(&b, err)
			continue
		}
		b.WriteString("ok\n")
	}
	return b.String()
}

// fataler is what both a test and a property can do.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// written is a workflow with its expressions and its schema as text: compiled
// ones cannot be compared.
func written(w *workflow.Workflow) any {
	type step struct {
		workflow.Step
		when, with, undoWith, lasts, until, enough, message, show, key, data, items, listed, turns string
		inner, pages                                                                               any
	}
	text := func(e *workflow.Expression) string {
		if e == nil {
			return "none"
		}
		return fmt.Sprint(e, e.Steps())
	}
	plain := *w
	input := "none"
	if w.Input != nil {
		input = w.Input.String()
	}
	starts := "none"
	if s := w.Start; s != nil {
		starts = s.Signal + " " + text(s.Key)
	}
	if c := w.Concurrency; c != nil {
		starts += " one at a time " + text(c.Key) + string(c.OnConflict)
	}
	plain.Input, plain.Start, plain.Concurrency, plain.Search, plain.Steps = nil, nil, nil, nil, nil
	var search []string
	for _, m := range w.Search {
		search = append(search, m.Name+": "+text(m.Value))
	}
	steps := make([]step, len(w.Steps))
	for i, s := range w.Steps {
		steps[i] = step{Step: s, when: text(s.When), with: text(s.With), undoWith: text(s.UndoWith)}
		steps[i].When, steps[i].With, steps[i].UndoWith = nil, nil, nil
		if s.Sleep != nil {
			steps[i].Sleep = &workflow.Sleep{For: s.Sleep.For}
			steps[i].lasts, steps[i].until = text(s.Sleep.Lasts), text(s.Sleep.Until)
		}
		if s.Raise != nil {
			steps[i].Raise = &workflow.Raise{Code: s.Raise.Code, Compensate: s.Raise.Compensate}
			steps[i].message = text(s.Raise.Message)
		}
		if l := s.Listen; l != nil && l.Key != nil {
			plain := *l
			plain.Key = nil
			steps[i].Listen, steps[i].key = &plain, text(l.Key)
		}
		if l := s.Limit; l != nil {
			steps[i].Limit, steps[i].turns = &workflow.Limit{Name: l.Name}, text(l.Key)
		}
		if e := s.Emit; e != nil {
			plain := *e
			plain.Key, plain.Data = nil, nil
			steps[i].Emit, steps[i].key, steps[i].data = &plain, text(e.Key), text(e.Data)
		}
		if e := s.Each; e != nil {
			plain := *e
			if e.Steps != nil {
				steps[i].inner = written(e.Steps)
			}
			if e.Pages != nil {
				steps[i].pages = written(e.Pages)
			}
			plain.Items, plain.With, plain.Pages, plain.Steps = nil, nil, nil, nil
			steps[i].Each, steps[i].items, steps[i].listed = &plain, text(e.Items), text(e.With)
		}
		if a := s.Approve; a != nil {
			plain := *a
			plain.Show = nil
			steps[i].Approve, steps[i].show = &plain, text(a.Show)
		}
		if s.Repeat != nil {
			steps[i].Repeat = &workflow.Repeat{Every: s.Repeat.Every, Max: s.Repeat.Max}
			steps[i].enough = text(s.Repeat.Until)
		}
	}
	return []any{plain, input, starts, search, steps}
}

// roundTrip returns the canonical form, having checked that it means the same.
func roundTrip(t fataler, w *workflow.Workflow) []byte {
	t.Helper()
	canonical, err := w.MarshalJSON()
	if err != nil {
		t.Fatalf("no canonical form: %v", err)
	}
	again, err := workflow.Parse("canonical", canonical)
	if err != nil {
		t.Fatalf("the canonical form %s is refused: %v", canonical, err)
	}
	if !reflect.DeepEqual(written(again), written(w)) {
		t.Fatalf("the canonical form %s means\n%+v, not\n%+v", canonical, again, w)
	}
	if bytes, err := again.MarshalJSON(); err != nil || string(bytes) != string(canonical) {
		t.Fatalf("the canonical form of %s is %s (%v)", canonical, bytes, err)
	}
	return canonical
}

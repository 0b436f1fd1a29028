package workflow_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// TestPlays runs the files of testdata, which document the language. The
// command "parse" prints a good file's canonical form, one step a line, and a
// refused file's problems.
func TestPlays(t *testing.T) {
	datadriven.Walk(t, "testdata/plays", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "parse":
				return play(t, d.Input)
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
	return strings.ReplaceAll(string(roundTrip(t, w)), `{"name"`, "\n  {\"name\"")
}

// fataler is what both a test and a property can do.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
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
	if !reflect.DeepEqual(again, w) {
		t.Fatalf("the canonical form %s means\n%+v, not\n%+v", canonical, again, w)
	}
	if bytes, err := again.MarshalJSON(); err != nil || string(bytes) != string(canonical) {
		t.Fatalf("the canonical form of %s is %s (%v)", canonical, bytes, err)
	}
	return canonical
}

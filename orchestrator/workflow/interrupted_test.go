package workflow

import (
	"context"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"cel.dev/cel-go/common/types/ref"
)

// An expression is not bad because the machine was busy while it was evaluated. One
// that always takes too long is.
func TestAnEvaluationThatIsInterrupted(t *testing.T) {
	w, err := Parse("f", []byte(`{workflow: w, steps: [{name: a, agent: a, with: "input.map(x, x + 1)"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	input := jsontext.Value("[" + strings.Repeat("1,", 1000) + "1]")
	for interruptions, want := range []string{"", "", "", "it costs too much"} {
		tries := 0
		given := func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			if tries++; tries <= interruptions {
				cancel()
			}
			return ctx, cancel
		}
		err := w.Steps[0].With.within(given, Scope{Input: input}, func(ref.Val) error { return nil })
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d interruptions: %v", interruptions, err)
		}
		if tries != min(interruptions+1, maxTries) {
			t.Errorf("%d interruptions: it was tried %d times", interruptions, tries)
		}
	}
	tries := 0
	given := func() (context.Context, context.CancelFunc) { tries++; return context.WithCancel(t.Context()) }
	err = w.Steps[0].With.within(given, Scope{Input: jsontext.Value("7")}, func(ref.Val) error { return nil })
	if err == nil || tries != 1 {
		t.Errorf("what is bad was tried %d times: %v", tries, err)
	}
}

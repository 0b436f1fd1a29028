package workflow

import (
	"fmt"
	"strings"
	"testing"
)

// What is refused of files now may be registered: orders of it go on, and an operator says when
// they wake.
func TestWhatIsRegisteredIsRead(t *testing.T) {
	source := []byte(`{workflow: w, steps: [{name: nap, sleep: {for: '"1d"'}}]}`)
	if _, err := Parse("w.yaml", source); err == nil || !strings.Contains(err.Error(), `this is the text "1d"`) {
		t.Errorf("a file may say it: %v", err)
	}
	if _, err := Registered("w.yaml", source); err != nil {
		t.Error(err)
	}
}

// However many constants a file has, and whatever they cost, reading it ends.
func TestConstantsCostNoMoreThanADecision(t *testing.T) {
	var b strings.Builder
	b.WriteString("workflow: w\nsteps:\n")
	for i := range 500 {
		fmt.Fprintf(&b, "- {name: s%d, sleep: {for: 'lists.range(300).all(i, lists.range(90).all(j, j >= 0)) ? \"1h\" : \"2h\"'}}\n", i)
	}
	_, err := Parse("w.yaml", []byte(b.String()))
	if err == nil || !strings.Contains(err.Error(), "cost too much together") {
		t.Errorf("they may cost anything: %v", err)
	}
}

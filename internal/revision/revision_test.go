package revision

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/test/world"
)

// drawTwo draws two workflows that have much in common.
func drawTwo(t *rapid.T) (a, b *workflow.Workflow) {
	parse := func(lot world.Lot) *workflow.Workflow {
		d := world.Drawing{Name: "w", Version: 1, Agents: []string{"x", "y"}, Timeout: time.Second, Pause: time.Second, Until: time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)}
		flow, err := workflow.Parse("w.yaml", []byte(d.Flow(lot)))
		if err != nil {
			t.Fatalf("%v", err)
		}
		return flow
	}
	var drawn []int
	a = parse(func(what string, n int) int {
		drawn = append(drawn, rapid.IntRange(0, n-1).Draw(t, what))
		return drawn[len(drawn)-1]
	})
	other, at := rapid.IntRange(0, len(drawn)).Draw(t, "other"), -1
	b = parse(func(what string, n int) int {
		switch at++; {
		case at == other:
			return rapid.IntRange(0, n-1).Draw(t, what)
		case at < len(drawn):
			return drawn[at] % n
		}
		return 0
	})
	return a, b
}

// Nothing is different where both mean the same, and something is where they do not.
func TestNoChangesMeansTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawTwo(t)
		r := Of(a, b)
		if same := string(encode(a)) == string(encode(b)); same != (len(r.Changes) == 0) {
			t.Fatalf("the same: %v, but %v between\n%s\n%s", same, r.Changes, string(encode(a)), string(encode(b)))
		}
	})
}

// What changes from one file to the other changes back the other way round.
func TestChangesHaveTwoSides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawTwo(t)
		there, back := lines(Of(a, b)), lines(turned(Of(b, a)))
		if !slices.Equal(there, back) {
			t.Fatalf("there %q\nback %q", there, back)
		}
	})
}

func turned(r Revision) Revision {
	for i, c := range r.Changes {
		r.Changes[i].From, r.Changes[i].To = c.To, c.From
	}
	return r
}

// lines are the changes in an order that does not depend on that of steps.
func lines(r Revision) []string {
	var all []string
	for _, c := range r.Changes {
		all = append(all, fmt.Sprintf("%s %s: %s -> %s", c.Step, c.Key, c.From, c.To))
	}
	slices.Sort(all)
	return all
}

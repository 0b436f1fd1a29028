package decide

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// Before an order migrates it is said of which steps that stay something else follows, whatever of their
// definitions it is, and of no others: what they are called is no difference.
func TestWhatAMigrationChanges(t *testing.T) {
	from := []string{
		`{name: a, agent: x, undo: u}`, `{name: b, agent: x, after: [a]}`, `{name: c, agent: x, after: [a], timeout: 1m}`, `{name: n, sleep: 1h, after: [a]}`,
		`{name: d, agent: x, after: [b, c], with: 'steps["b"].output'}`, `{name: e, each: {items: steps.b.output, steps: [{name: b, agent: x}]}, after: [d]}`,
	}
	for _, c := range []struct{ was, is, names, want string }{
		{"", "", "", "[]"},
		{"{name: b, agent: x, after: [a]}, {name: c, agent: x, after: [a], timeout: 1m}", "{name: c, agent: x, after: [a], timeout: 1m}, {name: b, agent: x, after: [a]}", "", "[]"},
		{"timeout: 1m", "timeout: 1m, limit: l", "", "[c]"},
		{"timeout: 1m", "timeout: 2m", "", "[c]"},
		{"agent: x, after: [b", "agent: x, when: input, after: [b", "", "[d]"},
		{`with: 'steps["b"].output'`, `with: input`, "", "[d]"},
		{"[b, c]", "[b]", "", "[d]"},
		{"[{name: b, agent: x}]", "[{name: b, agent: x, retry: {attempts: 9}}]", "", "[e]"},
		{"steps.b.output, steps", "input, steps", "", "[e]"},
		{"undo: u", "undo: u, timeout: 2m", "", "[a]"},
		{"b, agent: x, after", "b, agent: x, timeout: 2m, after", "", "[]"},
		{"sleep: 1h", "sleep: 2h", "", "[]"},
		{"name: c, agent: x", "name: c, agent: y", "", "[]"},
		{"", "", "b z", "[]"},
		{"", "", "c z", "[]"},
		{"timeout: 1m", "timeout: 2m", "b z", "[c]"},
	} {
		s := newStage(t)
		source := "[" + strings.Join(from, ", ") + "]"
		other := strings.ReplaceAll(source, c.was, c.is)
		if other == source && c.was != "" {
			t.Fatalf("there is no %s", c.was)
		}
		if old, name, is := strings.Cut(c.names, " "); is {
			other = strings.NewReplacer("name: "+old+", agent: x, after", "name: "+name+", do: "+old+", agent: x, after", "["+old+",", "["+name+",", ", "+old+"]", ", "+name+"]", `["`+old, `["`+name, "steps."+old, "steps."+name).Replace(other)
		}
		flow := parseFlow(t, "{workflow: w, version: 2, steps: "+other+"}")
		s.flows.Add(parseFlow(t, "{workflow: w, steps: "+source+"}"))
		s.flows.Add(flow)
		var names map[string]string
		if old, name, is := strings.Cut(c.names, " "); is {
			names = map[string]string{old: name}
		}
		o := &projections.Order{ID: "o", Workflow: "w", Version: 1, State: projections.Processing}
		for name, state := range map[string]projections.StepState{"a": projections.Completed, "b": projections.Completed, "c": projections.Failed, "n": projections.Sleeping, "d": projections.NotStarted, "e": projections.NotStarted} {
			step := projections.Step{Name: name}
			if step.State = state; state != projections.NotStarted && state != projections.Sleeping {
				step.IdempotencyKey = "o/" + name
			}
			step.Sleeps = state == projections.Sleeping
			o.Steps = append(o.Steps, step)
		}
		env := s.env("o")
		env.Format = events.JournalFormat
		m := Migrate(env, o, 2, names)
		if fmt.Sprint(m.Changed) != c.want || len(m.Forbids) > 0 {
			t.Errorf("%s: changed are %v, not %s; forbidden by %v; renewed %v", other, m.Changed, c.want, m.Forbids, m.Renewed)
		}
		s.close()
	}
}

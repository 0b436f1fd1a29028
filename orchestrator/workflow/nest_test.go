package workflow_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// ordering is a workflow, such as trip@2, whose steps other orders do, such as hotel or hotel@1.
func ordering(t fataler, id string, children ...string) *workflow.Workflow {
	t.Helper()
	name, version, _ := strings.Cut(id, "@")
	if version == "" {
		version = "1"
	}
	source := fmt.Sprintf("workflow: %s\nversion: %s\nsteps:\n- {name: s, agent: a}\n", name, version)
	for i, child := range children {
		name, version, named := strings.Cut(child, "@")
		order := name
		if named {
			order = fmt.Sprintf("{workflow: %s, version: %s}", name, version)
		}
		source += fmt.Sprintf("- {name: s%d, order: %s}\n", i, order)
	}
	return mustParse(t, source)
}

// TestAdmits: of those that are to be registered, one after the other, all but the last are.
func TestAdmits(t *testing.T) {
	chain := func(prefix string, n int) (all []string) {
		for i := range n {
			w := fmt.Sprintf("%s%d", prefix, i)
			if i > 0 {
				w += fmt.Sprintf(" %s%d", prefix, i-1)
			}
			all = append(all, w)
		}
		return all
	}
	for _, c := range []struct {
		flows []string // a definition and what it orders; -id retires one
		why   string   // "" if the last is registered too
	}{
		{[]string{"trip hotel"}, "step s0 orders workflow hotel, which is not registered; register that first"},
		{[]string{"hotel", "trip hotel"}, ""},
		{[]string{"hotel", "trip hotel@1"}, ""},
		{[]string{"hotel", "trip hotel hotel@2"}, "step s1 orders workflow hotel@2, which is not registered; register that first"},
		{[]string{"hotel", "-hotel", "trip hotel"}, "step s0 orders workflow hotel, of which every version is retired; register another first, or restore one"},
		{[]string{"hotel", "hotel@2", "-hotel@2", "trip hotel"}, ""},
		{[]string{"hotel", "hotel@2", "-hotel@2", "trip hotel@2"}, "step s0 orders workflow hotel@2, which is retired; restore it first, or name another version"},
		{[]string{"hotel", "trip hotel", "-hotel", "trip@2"}, ""},

		{[]string{"a a"}, "workflow a orders itself; no workflow may, in any of its versions"},
		{[]string{"a", "a@2 a@1"}, "workflow a orders itself; no workflow may, in any of its versions"},
		{[]string{"a", "b a", "a@2 b"}, "these workflows order each other: a -> b -> a; none may order itself by way of others, whichever versions are named"},
		{[]string{"a", "b a", "c b", "a@2 x c"}, "a -> c -> b -> a;"},
		{[]string{"a", "b a@1", "a@2 b"}, "a -> b -> a;"}, // though a@1 orders nobody
		{[]string{"a", "b a", "a@2 b@1"}, "a -> b -> a;"}, // though b@1 is not the newest for ever
		{[]string{"a", "b a", "b@2", "a@2 b@1"}, "a -> b -> a;"},
		{[]string{"a", "b a", "b@2", "a@2 b"}, "a -> b -> a;"}, // b@1 is ordered by nobody, and is the newest again once b@2 is retired
		{[]string{"a", "b a", "b@2", "-b", "a@2 b"}, ""},
		{[]string{"a", "a@3", "b a", "a@2 b"}, "a -> b -> a;"}, // also under a version that is not the newest
		{[]string{"a", "b a", "c", "d b@1 c", "b@2", "a@2 d"}, "a -> d -> b -> a;"},
		{[]string{"a", "b a", "-b", "a@2", "c", "a@3 c"}, ""},
		{[]string{"a", "b", "c", "a@2 b c", "b@2 c"}, ""},

		{append(chain("a", 9), "b"), ""},
		{append(chain("a", 9), "b a8"), "orders would be nested 9 deep, and at most 8 are allowed: b -> a8 -> a7 -> a6 -> a5 -> a4 -> a3 -> a2 -> a1 -> a0"},
		{slices.Concat(chain("a", 4), []string{"b0"}, chain("b", 6)[1:], []string{"b0@2 a3"}), "orders would be nested 9 deep, and at most 8 are allowed: b5 -> b4 -> b3 -> b2 -> b1 -> b0 -> a3 -> a2 -> a1 -> a0"},
		{slices.Concat(chain("a", 4), []string{"b0"}, chain("b", 5)[1:], []string{"b0@2 a3"}), ""},
	} {
		var set workflow.Set
		for i, text := range c.flows {
			if id, retires := strings.CutPrefix(text, "-"); retires {
				flow := ordering(t, id)
				set.Retire(flow.Name, flow.Version, true)
				continue
			}
			names := strings.Fields(text)
			flow := ordering(t, names[0], names[1:]...)
			err := set.Admits(flow)
			switch last := i == len(c.flows)-1; {
			case !last && err == nil:
			case !last:
				t.Errorf("%q: %s is refused: %v", c.flows, text, err)
			case c.why == "" && err != nil:
				t.Errorf("%q: the last is refused: %v", c.flows, err)
			case c.why != "" && (!errors.Is(err, workflow.ErrChild) || !strings.Contains(err.Error(), c.why)):
				t.Errorf("%q: the last is refused for %v, not for %s", c.flows, err, c.why)
			}
			set.Add(flow)
		}
	}
}

// TestWhatIsAdmittedEnds: whatever is registered, no order begins others for ever, nor nests them too
// deeply.
func TestWhatIsAdmittedEnds(t *testing.T) {
	refused := 0
	rapid.Check(t, func(t *rapid.T) {
		var set workflow.Set
		names := []string{"a", "b", "c", "d"}
		for range rapid.IntRange(1, 30).Draw(t, "definitions") {
			name := rapid.SampledFrom(names).Draw(t, "name")
			id := workflow.ID(name, rapid.IntRange(1, 3).Draw(t, "version"))
			var children []string
			for range rapid.IntRange(0, 2).Draw(t, "children") {
				child := rapid.SampledFrom(names).Draw(t, "child")
				if v := rapid.IntRange(0, 3).Draw(t, "of version"); v > 0 {
					child = workflow.ID(child, v)
				}
				children = append(children, child)
			}
			flow := ordering(t, id, children...)
			if set.Find(flow.Name, flow.Version) != nil {
				continue
			}
			if set.Admits(flow) != nil {
				refused++
				continue
			}
			set.Add(flow)
			if all := set.All(); rapid.Bool().Draw(t, "retires") { // or restores
				w := rapid.SampledFrom(all).Draw(t, "which")
				retired := set.Retired(w.Name, w.Version)
				if !retired || set.Admits(w) == nil {
					set.Retire(w.Name, w.Version, !retired)
				}
			}
			var nest func(flow *workflow.Workflow, above []string)
			nest = func(flow *workflow.Workflow, above []string) {
				if slices.Contains(above, flow.Name) || len(above) > events.MaxDepth {
					t.Fatalf("%q order %s", above, flow.ID())
				}
				for _, o := range flow.Children() {
					child := set.Find(o.Workflow, o.Version)
					if child == nil && set.Retired(o.Workflow, o.Version) {
						continue
					}
					if child == nil {
						t.Fatalf("%s orders %v, which is not there", flow.ID(), o)
					}
					nest(child, append(above, flow.Name))
				}
			}
			for _, name := range names {
				if newest := set.Find(name, 0); newest != nil {
					nest(newest, nil)
				}
			}
		}
	})
	if refused == 0 && !testing.Short() { // which draws a fifth
		t.Error("none was refused")
	}
}

// TestSpares: what others order is not retired before they are.
func TestSpares(t *testing.T) {
	for _, c := range []struct {
		flows    []string // as those of TestAdmits
		id, want string   // which is retired, and which orders it; "" if that is none
	}{
		{[]string{"hotel", "trip hotel"}, "hotel", "trip@1"},
		{[]string{"hotel", "trip hotel"}, "trip", ""},
		{[]string{"hotel", "hotel@2", "trip hotel"}, "hotel@2", ""},
		{[]string{"hotel", "hotel@2", "-hotel", "trip hotel"}, "hotel@2", "trip@1"},
		{[]string{"hotel", "hotel@2", "trip hotel@1"}, "hotel", "trip@1"},
		{[]string{"hotel", "hotel@2", "trip hotel@1"}, "hotel@2", ""},
		{[]string{"hotel", "trip hotel", "-trip"}, "hotel", ""},
	} {
		var set workflow.Set
		for _, text := range c.flows {
			if id, retires := strings.CutPrefix(text, "-"); retires {
				set.Retire(ordering(t, id).Name, ordering(t, id).Version, true)
				continue
			}
			names := strings.Fields(text)
			set.Add(ordering(t, names[0], names[1:]...))
		}
		err := set.Spares(ordering(t, c.id))
		if got := fmt.Sprint(err); (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, workflow.ErrChild) || !strings.Contains(got, "workflow "+c.want+" orders it")) {
			t.Errorf("%q: %s is not retired: %v", c.flows, c.id, err)
		}
	}
}

// TestSorted: what is ordered stands before what orders it, and all else as it was.
func TestSorted(t *testing.T) {
	for all, want := range map[string]string{
		"":                               "",
		"c; b; a":                        "c b a",
		"trip hotel car; car; hotel":     "hotel car trip",
		"trip hotel@2; hotel@1; hotel@2": "hotel hotel@2 trip",
		"trip hotel; hotel@1; hotel@2":   "hotel hotel@2 trip",
		"a b; b c; c; d a":               "c b a d",
		"a x; b":                         "a b",
		"a b; b a":                       "these workflows order each other: a -> b -> a;",
		"x; y a; a b; b c; c b":          "these workflows order each other: b -> c -> b;",
		"a a":                            "workflow a orders itself;",
		"a@2 a@1; a":                     "workflow a orders itself;",
		"a@2 b; b a@1; a@1":              "these workflows order each other: a -> b -> a;",
	} {
		var flows []*workflow.Workflow
		for text := range strings.SplitSeq(all, "; ") {
			if names := strings.Fields(text); len(names) > 0 {
				flows = append(flows, ordering(t, names[0], names[1:]...))
			}
		}
		sorted, err := workflow.Sorted(flows, func(w *workflow.Workflow) *workflow.Workflow { return w })
		var got []string
		for _, w := range sorted {
			got = append(got, strings.TrimSuffix(w.ID(), "@1"))
		}
		if err != nil {
			got = []string{err.Error()}
			if !errors.As(err, new(*workflow.CircleError)) {
				t.Errorf("%s: %v is no circle", all, err)
			}
		}
		if text := strings.Join(got, " "); text != want && (err == nil || !strings.Contains(text, want)) {
			t.Errorf("%s: %s, not %s", all, text, want)
		}
	}
}

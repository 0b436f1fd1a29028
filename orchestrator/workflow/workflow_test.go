package workflow_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/docs/schemas"
	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

const trip = `
workflow: trip
version: 3
steps:
  - {name: flight, agent: air}
  - {name: hotel, agent: inn}
  - {name: seat, agent: air}
`

func mustParse(t fataler, source string) *workflow.Workflow {
	t.Helper()
	w, err := workflow.Parse("orders.yaml", []byte(source))
	if err != nil {
		t.Fatalf("refused:\n%v\n%s", err, source)
	}
	return w
}

func TestLookups(t *testing.T) {
	w := mustParse(t, trip)
	if got := w.ID(); got != "trip@3" || got != workflow.ID("trip", 3) {
		t.Errorf("the ID is %q", got)
	}
	if got, want := w.Agents(), []string{"air", "inn"}; !slices.Equal(got, want) {
		t.Errorf("the agents are %q, not %q", got, want)
	}
	for i, name := range []string{"flight", "hotel", "seat"} {
		step, ok := w.Step(name)
		if !ok || step != &w.Steps[i] || w.Index(name) != i {
			t.Errorf("%s is found as %v, %d", name, step, w.Index(name))
		}
	}
	if step, ok := w.Step("train"); ok || step != nil || w.Index("train") != -1 {
		t.Errorf("a step that does not exist is found as %v", step)
	}
	if n := testing.AllocsPerRun(100, func() { w.Step("seat") }); n != 0 {
		t.Errorf("Step allocates %v times", n)
	}
}

// What a level added needs that level, and what was there before needs none.
func TestLevels(t *testing.T) {
	formats := map[int]int{3: events.SleepFormat, 4: events.SignalsFormat, 5: events.ChildrenFormat, 6: events.EmitFormat, 7: events.LimitsFormat}
	for step, level := range map[string]int{
		"agent: phone, queue: 1h": 2, "agent: phone, timeout: 1h": 1, "agent: phone, exhausted: wait": 1, "agent: phone, with: input.error": 1,
		"sleep: 1s": 3, "agent: phone, exhausted: continue": 3, "agent: phone, retry: {never: [a]}": 3, "agent: phone, retry: {atOnce: [a]}": 3,
		"agent: phone, repeat: {until: 'true'}": 3, "raise: {code: a}": 4, "listen: a": 4, "agent: phone, timeout: {after: 1m, max: 1h}": 4,
		"order: call": 5, "order: {workflow: call, await: false}": 5,
		"agent: phone, limit: a": 7, "each: {items: {agent: b, do: c, limit: a}, order: call}": 7, "each: {items: input, steps: [{name: a, agent: b, limit: c}]}": 7,
		"emit: {topic: a, type: t}": 6, "each: {items: input, order: call}": 6, "each: {items: input, steps: [{name: a, agent: b}]}": 6,
	} {
		flow := mustParse(t, "{workflow: ping, steps: [{name: mail, agent: office}, {name: call, "+step+"}]}")
		if got := flow.Level(); got != level {
			t.Errorf("%s needs level %d, and not %d", step, level, got)
		}
		if got, want := flow.Format(), formats[level]; got != want {
			t.Errorf("%s of level %d needs format %d, not %d", step, level, want, got)
		}
	}
	starts := mustParse(t, "{workflow: ping, start: a, search: [b], keep: 1h, steps: [{name: mail, agent: office}]}")
	if starts.Level() != 7 || starts.Format() != events.StartFormat {
		t.Errorf("start needs level 7 and format %d, not %d and %d", events.StartFormat, starts.Level(), starts.Format())
	}
	if flow := mustParse(t, "{workflow: ping, concurrency: {key: input.a}, steps: [{name: mail, agent: office}]}"); flow.Level() != 7 || flow.Format() != events.LimitsFormat {
		t.Errorf("concurrency needs level 7 and format %d, not %d and %d", events.LimitsFormat, flow.Level(), flow.Format())
	}
	for search, level := range map[string]int{"[]": 1, "{}": 1, "[a]": 4} {
		if got := mustParse(t, "{workflow: ping, search: "+search+", steps: [{name: mail, agent: office}]}").Level(); got != level {
			t.Errorf("search: %s needs level %d, and not %d", search, level, got)
		}
	}
}

// The table of the levels in the documentation names all that a level added: each of it is in the row of its
// level, and no other key needs one.
func TestTheTableOfLevels(t *testing.T) {
	page, err := os.ReadFile("../../docs/workflows.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Levels\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := make(map[string]int)
	for _, m := range regexp.MustCompile(`(?m)^\| ([2-9]) \| (.*?) \|`).FindAllStringSubmatch(table, -1) {
		for what := range strings.SplitSeq(m[2], ", ") {
			rows[what] = int(m[1][0] - '0')
		}
	}
	const asks = "steps: [{name: a, agent: b}]"
	files := map[string]string{ // `steps` of one step where the key is a step's
		"`queue`": "agent: b, queue: 1h", "`sleep`": "sleep: 1s", "`repeat`": "agent: b, repeat: {until: 'true'}", "`exhausted: continue`": "agent: b, exhausted: continue",
		"`steps.NAME.error`":               "steps: [{name: a, agent: b, exhausted: continue}, {name: c, agent: b, when: has(steps.a.error)}]",
		"`retry` with `never` or `atOnce`": "agent: b, retry: {never: [c]}", "`listen`": "listen: b", "`approve`": "approve: {roles: [b]}", "`raise`": "raise: {code: b}",
		"`timeout` with `max`": "agent: b, timeout: {after: 1m, max: 1h}", "`search`": "search: [b], " + asks, "`order`": "order: b", "`keep`": "keep: 1h, " + asks,
		"`each`": "each: {items: input, order: b}", "`emit`": "emit: {topic: b, type: c}", "`listen` with `key`": "listen: b, key: input.c",
		"`limit`": "agent: b, limit: c", "also in `items`": "each: {items: {agent: b, do: c, limit: d}, order: e}",
		"`start`": "start: b, " + asks, "`concurrency`": "concurrency: {key: input.b}, " + asks,
	}
	for what, source := range files {
		if !strings.Contains(source, "steps: [") {
			source = "steps: [{name: a, " + source + "}]"
		}
		if level := mustParse(t, "{workflow: ping, "+source+"}").Level(); level == 1 || rows[what] != level {
			t.Errorf("%s is of level %d, and stands in the row of %d", what, level, rows[what])
		}
		delete(rows, what)
	}
	if len(rows) > 0 {
		t.Errorf("nothing is tried of %v", rows)
	}
	first := "name agent do undo after when with undoWith timeout retry exhausted wait workflow version deadline overdue input steps"
	type keys struct {
		Properties map[string]any `json:"properties"`
	}
	var schema struct {
		keys
		Defs struct {
			Step keys `json:"step"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(schemas.Workflow, &schema); err != nil {
		t.Fatal(err)
	}
	for _, of := range []keys{schema.keys, schema.Defs.Step} {
		for key := range of.Properties {
			if newer := files["`"+key+"`"] != "" || key == "key"; slices.Contains(strings.Fields(first), key) == newer {
				t.Errorf("%s is said to be of the first level and of another, or of none", key)
			}
		}
	}
}

// An order is found by what is a text, a number or a truth. What is not leaves nothing.
func TestTextOfAMark(t *testing.T) {
	for source, want := range map[string]string{
		`input.customer.name`: "Ada", `input.total`: "120", `input.discount`: "0.5", `input.id`: "123456789012345678901234567890", `input.total > 100`: "true",
		`double(input.total) * 2.0`: "240", `"a\nb"`: "a b", `""`: "", `"\"ä"`: `"ä`, `"` + strings.Repeat("v", 300) + `"`: strings.Repeat("v", 200),
		`timestamp("2026-01-02T03:04:05Z")`: "2026-01-02T03:04:05Z",
		`input.none`:                        "none", `input.note`: "none", `input.items`: "none", `input.customer`: "none", `input.total / 0`: "none", `input.customer.name + 1`: "none",
	} {
		w := mustParse(t, fmt.Sprintf("{workflow: w, search: {m: %q}, steps: [{name: s, agent: a}]}", source))
		text, ok := w.Search[0].Text(scope)
		if !ok {
			text += "none"
		}
		if text != want {
			t.Errorf("%s is found by %q, want %q", source, text, want)
		}
		if !w.Marks("m") || w.Marks("s") {
			t.Error("it is not known what it marks")
		}
	}
	w := mustParse(t, "{workflow: w, search: [in, 2nd-choice], steps: [{name: s, agent: a}]}")
	for i, want := range []string{"b", "a"} {
		if text, ok := w.Search[i].Text(workflow.Scope{Input: jsontext.Value(`{"in": "a", "2nd-choice": "b"}`)}); !ok || text != want {
			t.Errorf("%s is %q, want %q", w.Search[i].Name, text, want)
		}
	}
}

func TestCanonicalBytesSurviveEncodingJSON(t *testing.T) {
	w := mustParse(t, `{workflow: ping, steps: [{name: call, agent: phone, do: "a<b>&c"}]}`)
	got, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	if want := roundTrip(t, w); string(got) != string(want) {
		t.Errorf("json.Marshal makes %s of %s", got, want)
	}
}

func ExampleParse() {
	w, err := workflow.Parse("ping.yaml", []byte(`
workflow: ping
steps:
  - name: call
    agent: phone
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(w.ID(), w.Steps[0].Do, w.Steps[0].Timeout)
	// Output: ping@1 call 30s
}

func ExampleErrors() {
	_, err := workflow.Parse("ping.yaml", []byte(`
workflow: ping
steps:
  - name: call
    agnet: phone
    timeout: 10
`))
	fmt.Println(err)
	// Output:
	// ping.yaml:4:5: the step has no "agent", no "sleep", no "listen", no "approve", no "order", no "each", no "emit" and no "raise"; add one
	// ping.yaml:5:5: unknown key "agnet" in a step; did you mean "agent"?; the keys are name, sleep, listen, key, approve, order, each, emit, raise, agent, do, undo, after, when, with, undoWith, timeout, queue, limit, retry, repeat, exhausted, wait
	// ping.yaml:6:14: timeout is "10" of what? write a unit, for example 10s
}

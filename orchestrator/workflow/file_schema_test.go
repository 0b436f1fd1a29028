package workflow_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/docs/schemas"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/test/world"
)

// fileSchema is docs/schemas/workflow.json.
var fileSchema = sync.OnceValue(func() *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schemas.Workflow))
	if err != nil {
		panic(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("workflow.json", doc); err != nil {
		panic(err)
	}
	return c.MustCompile("workflow.json")
})

// follows says what an editor has against a file, which is YAML.
func follows(source string) error {
	text, err := yaml.YAMLToJSON([]byte(source))
	if err != nil {
		panic(err)
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	return fileSchema().Validate(instance)
}

// Whatever file of the repository is a workflow follows the schema: examples, what documents
// show, and what plays parse.
func TestWorkflowFilesFollowTheSchema(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	found := map[string]int{}
	check := func(path, source string) {
		if _, err := workflow.Parse(path, []byte(source)); err != nil {
			return
		}
		found[filepath.Ext(path)]++
		if strings.Contains(source, "name: true") {
			return // text that YAML takes for a boolean: the schema wants it quoted
		}
		if err := follows(source); err != nil {
			t.Errorf("%s: %v\n%s", path, err, source)
		}
	}
	if err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		switch ext := filepath.Ext(path); {
		case err != nil:
			return err
		case ext == ".yaml", ext == ".md":
			file, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if ext == ".yaml" {
				check(path, string(file))
			}
			for _, m := range block.FindAllStringSubmatch(string(file), -1) {
				check(path, m[1])
			}
		case strings.Contains(path, "testdata") && ext == ".txt":
			file, err := os.ReadFile(path)
			if err == nil && bytes.Contains(file, []byte("\n----\n")) {
				datadriven.RunTestFromString(t, string(file), func(_ *testing.T, d *datadriven.TestData) string {
					check(path, d.Input)
					return d.Expected
				})
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for ext, least := range map[string]int{".yaml": 3, ".md": 3, ".txt": 50} {
		if found[ext] < least {
			t.Errorf("%d files of %s are workflows, expected %d or more: %v", found[ext], ext, least, found)
		}
	}
}

// Whatever workflow is drawn follows the schema, and so does its canonical form.
func TestDrawnWorkflowsFollowTheSchema(t *testing.T) {
	follow := func(t *rapid.T, source string) {
		canonical, err := mustParse(t, source).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{source, string(canonical)} {
			if err := follows(text); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
		}
	}
	t.Run("of histories", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			d := world.Drawing{Name: "w", Version: 1, Agents: []string{"x", "y"}, Timeout: time.Second, Pause: time.Second, Until: time.Unix(0, 0)}
			follow(t, d.Flow(func(what string, n int) int { return rapid.IntRange(0, n-1).Draw(t, what) }))
		})
	})
	t.Run("of anything", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { follow(t, writeYAML(t, drawWorkflow(t))) })
	})
}

// The mappings of a file: how the parser is asked for the keys of each, and where the schema has it.
var mappings = []struct{ what, source, pointer string }{
	{"a workflow", "{no-key: 1}", ""},
	{"a step", "{steps: [{no-key: 1}]}", "/$defs/step"},
	{"sleep", "{steps: [{sleep: {no-key: 1}}]}", "/$defs/step/properties/sleep/oneOf/1"},
	{"listen", "{steps: [{listen: {no-key: 1}}]}", "/$defs/step/properties/listen/oneOf/1"},
	{"approve", "{steps: [{approve: {no-key: 1}}]}", "/$defs/approve"},
	{"order", "{steps: [{order: {no-key: 1}}]}", "/$defs/step/properties/order/oneOf/1"},
	{"each", "{steps: [{each: {no-key: 1}}]}", "/$defs/each"},
	{"order", "{steps: [{each: {order: {no-key: 1}}}]}", "/$defs/each/properties/order/oneOf/1"},
	{"items", "{steps: [{each: {items: {no-key: 1}}}]}", "/$defs/each/properties/items/oneOf/1"},
	{"start", "{start: {no-key: 1}}", "/properties/start/oneOf/1"},
	{"concurrency", "{concurrency: {no-key: 1}}", "/properties/concurrency"},
	{"emit", "{steps: [{emit: {no-key: 1}}]}", "/$defs/emit"},
	{"raise", "{steps: [{raise: {no-key: 1}}]}", "/$defs/raise"},
	{"timeout", "{steps: [{timeout: {no-key: 1}}]}", "/$defs/step/properties/timeout/oneOf/1"},
	{"retry", "{steps: [{retry: {no-key: 1}}]}", "/$defs/retry"},
	{"limit", "{steps: [{limit: {no-key: 1}}]}", "/$defs/step/properties/limit/oneOf/1"},
	{"repeat", "{steps: [{repeat: {no-key: 1}}]}", "/$defs/repeat"},
	{"wait", "{steps: [{wait: {no-key: 1}}]}", "/$defs/wait"},
}

// keysOf returns the keys that the parser says a mapping may have.
func keysOf(t *testing.T, what, source string) []string {
	t.Helper()
	_, err := workflow.Parse("f", []byte(source))
	m := regexp.MustCompile(`unknown key "no-key" in ` + what + `.*; the keys are (.*)`).FindStringSubmatch(fmt.Sprint(err))
	if m == nil {
		t.Fatalf("it does not name the keys of %s: %v", what, err)
	}
	return slices.Sorted(slices.Values(strings.Split(m[1], ", ")))
}

// The parser and the schema know the same keys, and each is described.
func TestTheSchemaHasTheKeysOfTheParser(t *testing.T) {
	var doc any
	if err := yaml.Unmarshal(schemas.Workflow, &doc); err != nil {
		t.Fatal(err)
	}
	mapped := map[string]bool{}
	for _, m := range mappings {
		mapped[m.pointer] = true
		part := at(doc, m.pointer)
		properties := part["properties"].(map[string]any)
		if got, want := slices.Sorted(maps.Keys(properties)), keysOf(t, m.what, m.source); !slices.Equal(got, want) {
			t.Errorf("in %s the schema has %q, the parser %q", m.what, got, want)
		}
		if part["additionalProperties"] != false {
			t.Errorf("in %s the schema takes other keys", m.what)
		}
		for key := range properties {
			p := at(doc, m.pointer+"/properties/"+key)
			if ref, ok := p["$ref"].(string); ok && p["description"] == nil {
				p = at(doc, strings.TrimPrefix(ref, "#"))
			}
			if p["description"] == nil {
				t.Errorf("%s in %s has no description", key, m.what)
			}
		}
	}
	// Of what is no mapping of the file, conditions alone have properties.
	var walk func(v any, pointer string)
	walk = func(v any, pointer string) {
		switch v := v.(type) {
		case map[string]any:
			if v["type"] == "object" && !mapped[pointer] {
				t.Errorf("%s is a mapping that no parser is asked about", pointer)
			}
			for key := range v {
				walk(v[key], pointer+"/"+key)
			}
		case []any:
			for i := range v {
				walk(v[i], fmt.Sprintf("%s/%d", pointer, i))
			}
		}
	}
	walk(doc, "")
}

func at(doc any, pointer string) map[string]any {
	for _, part := range strings.Split(pointer, "/")[1:] {
		switch v := doc.(type) {
		case map[string]any:
			doc = v[part]
		case []any:
			doc = v[int(part[0]-'0')]
		}
	}
	return doc.(map[string]any)
}

// A default of the schema is what the parser takes where the key is missing.
func TestTheSchemaHasTheDefaultsOfTheParser(t *testing.T) {
	file, step := fileSchema(), fileSchema().Properties["steps"].Items2020.Ref
	for _, c := range []struct {
		schema        *jsonschema.Schema
		before, after string
		defaults      int
	}{
		{file, "{workflow: w, steps: [{name: a, agent: x}], ", "}", 2},
		{step, "{workflow: w, steps: [{name: a, agent: x, ", "}]}", 2},
		{step.Properties["retry"].Ref, "{workflow: w, steps: [{name: a, agent: x, retry: {", "}}]}", 5},
		{step.Properties["repeat"].Ref, "{workflow: w, steps: [{name: a, agent: x, repeat: {until: 'true', ", "}}]}", 2},
		{step.Properties["approve"].Ref, "{workflow: w, steps: [{name: a, approve: {roles: [x], ", "}}]}", 1},
		{step.Properties["order"].OneOf[1], "{workflow: w, steps: [{name: a, order: {workflow: x, ", "}}]}", 1},
		{step.Properties["wait"].Ref, "{workflow: w, steps: [{name: a, agent: x, exhausted: wait, wait: {", "}}]}", 2},
	} {
		want, found := roundTrip(t, mustParse(t, c.before+c.after)), 0
		for key, p := range c.schema.Properties {
			if p.Default == nil {
				continue
			}
			found++
			if got := roundTrip(t, mustParse(t, fmt.Sprintf("%s%s: %v%s", c.before, key, *p.Default, c.after))); string(got) != string(want) {
				t.Errorf("with %s as in the schema a file means %s, without it %s", key, got, want)
			}
		}
		if found != c.defaults {
			t.Errorf("%s has %d defaults, not %d", c.schema.Location, found, c.defaults)
		}
	}
}

// What a step of one kind cannot have is the same in the parser and in the schema.
func TestTheSchemaKnowsWhatKindsExclude(t *testing.T) {
	kinds := fileSchema().Properties["steps"].Items2020.Ref.AllOf
	for _, c := range []struct {
		is, says string
		excluded map[string]*jsonschema.Schema
	}{
		{"sleep: 1h", "asks nobody", kinds[0].Then.Properties},
		{"listen: b", "asks nobody", kinds[0].Else.Then.Properties},
		{"raise: {code: c}", "ends the order", kinds[1].Then.Properties},
		{"approve: {roles: [b]}", "asks people asks no agent", kinds[2].Then.Properties},
		{"order: b", "another order does asks no agent", kinds[3].Then.Properties},
		{"each: {items: input, order: b}", "asks no agent itself", kinds[4].Then.Properties},
		{"emit: {topic: b, type: c}", "emits asks no agent", kinds[5].Then.Properties},
	} {
		for _, key := range keysOf(t, "a step", "{steps: [{no-key: 1}]}") {
			if strings.HasPrefix(c.is, key) {
				continue
			}
			_, err := workflow.Parse("f", fmt.Appendf(nil, "{workflow: w, steps: [{name: a, %s, %s: b}]}", c.is, key))
			parser := strings.Contains(fmt.Sprint(err), fmt.Sprintf("%s, so it has no %q", c.says, key))
			none := c.excluded[key]
			if schema := none != nil && none.Bool != nil && !*none.Bool; schema != parser {
				t.Errorf("%s beside %s: the parser refuses it: %v, the schema: %v", key, c.is, parser, schema)
			}
		}
	}
}

// What the schema refuses the parser refuses, and both take what is just inside of a bound.
func TestTheSchemaRefusesWhatTheParserRefuses(t *testing.T) {
	long := func(n int) string { return strings.Repeat("a", n) }
	codes := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprint("c", i)
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	steps := func(n int) string {
		return strings.NewReplacer("c", "{agent: x, name: c", ",", "},", "]", "}]").Replace(codes(n))
	}
	for _, c := range []struct{ file, good, bad string }{
		{"%s", "{workflow: w, steps: [{name: a, agent: x}]}", "[] | text | {} | {workflow: w} | {steps: [{name: a, agent: x}]}"},
		{"{workflow: %s, steps: [{name: a, agent: x}]}", "w-1 | 2024 | " + long(100), "W | '' | -w | w- | w_1 | [] | ~ | " + long(101)},
		{"{workflow: w, steps: [{name: a, agent: x}], %s}", "version: 1 | version: 2147483647", "verson: 1 | version: 0 | version: 2147483648 | version: '1' | version: 1.5"},
		{"{workflow: w, steps: [{name: a, agent: x}], deadline: %s}", "1ns | 1h30m | +.5s | 1.s | 2us3µs4μs | 1d | 2d1h", "0s | 10 | -1s | 1w | 0d | 1h1d | '' | 1h-30m | s"},
		{"{workflow: w, steps: [{name: a, agent: x}], overdue: %s}", "error | compensate", "wait | continue | ''"},
		{"{workflow: w, steps: [{name: a, agent: x}], input: %s}", "{} | true | {type: object}", "[] | 1 | text | ~"},
		{"{workflow: w, steps: %s}", "[{name: a, agent: x}] | " + steps(1000), steps(1001) + " | [] | {} | text | [a] | [[]]"},
		{
			"{workflow: w, steps: [{%s}]}",
			"name: a, agent: x | name: a, sleep: 1h | name: 1, agent: x.Y_z-2 | name: a, agent: 7 | name: a, agent: " + long(100),
			"agent: x | name: a | sleep: 1h | nam: a, agent: x | name: A, agent: x | name: a, agent: [] | name: a, agent: x/y | name: a, agent: '' | name: a, agent: . | name: a, agent: .. | name: a, agent: " + long(101),
		},
		{
			"{workflow: w, steps: [{name: a, agent: x, %s}]}",
			"do: é/! | do: 1 | undo: " + long(200) + " | after: [] | when: true | when: input.a | with: 1 | with: true | undo: u, undoWith: '2' | exhausted: wait, wait: {} | queue: 1s | timeout: 1s | limit: a.b_c-9 | limit: 7 | limit: {name: b} | limit: {name: b, key: input.a} | limit: {name: b, key: 1} | limit: " + long(100),
			"do: '' | do: [] | do: a b | undo: " + long(201) + " | after: b | after: [b, b] | after: [B] | when: 1 | when: {} | when: '' | with: {} | with: [] | with: ~ | with: '' | undoWith: input | undo: u, undoWith: {} | exhausted: stop | exhausted: Error | wait: {} | exhausted: error, wait: {} | timeout: 0s | timeout: 30 | queue: 0s | sleep: 1h | limit: '' | limit: B | limit: -b | limit: b. | limit: [] | limit: {} | limit: {key: input.a} | limit: {name: b, key: ''} | limit: {name: b, key: {}} | limit: {name: b, atATime: 1} | limit: " + long(101),
		},
		{
			"{workflow: w, steps: [{name: a, agent: x, retry: %s}]}",
			"{} | {attempts: 1} | {attempts: 1000} | {backoff: 0s} | {multiplier: 1} | {multiplier: 1.5} | {multiplier: 100} | {backoff: 0s, max: 0s} | {jitter: 0} | {jitter: 0.5} | {jitter: 1}",
			"[] | {attempt: 1} | {attempts: 0} | {attempts: -1} | {attempts: 1001} | {attempts: 2.5} | {backoff: -1s} | {backoff: 1} | {multiplier: 0.9} | {multiplier: 101} | {multiplier: '2'} | {max: -1s} | {jitter: -0.1} | {jitter: 1.1} | {jitter: '0.5'}",
		},
		{
			"{workflow: w, steps: [{name: a, agent: x, retry: {%s}}]}",
			"never: [] | never: [c, 404, a b] | atOnce: [" + long(200) + "] | never: " + codes(100),
			"never: lost | never: [''] | never: [a, a] | never: [[]] | atOnce: [" + long(201) + "] | atOnce: " + codes(101),
		},
		{
			"{workflow: w, steps: [{name: a, agent: x, repeat: %s}]}",
			"{until: input.a} | {until: 'true', every: 1ns} | {until: 'true', max: 1} | {until: 'true', max: 1000}",
			"[] | input.a | {} | {every: 1s} | {until: ''} | {until: 1} | {until: 'true', each: 1s} | {until: 'true', every: 0s} | {until: 'true', every: 1} | {until: 'true', max: 0} | {until: 'true', max: 1001} | {until: 'true', max: 1.5}",
		},
		{"{workflow: w, steps: [{name: a, agent: x, repeat: {until: 'true'}, %s}]}", "do: b | timeout: 1s", "undo: b | sleep: 1s"},
		{"{workflow: w, steps: [{name: a, agent: x, exhausted: wait, wait: %s}]}", "{for: 1ns} | {rounds: 1} | {rounds: 1000}", "[] | 10m | {four: 1s} | {for: 0s} | {for: 1} | {rounds: 0} | {rounds: 1001} | {rounds: 1.5}"},
		{"{workflow: w, steps: [{name: a, sleep: %s}]}", "1h | {for: 1h} | {for: input.a} | {until: input.a}", "0s | 10 | [] | {} | {for: 1h, until: input.a} | {at: input.a} | {for: ''} | {for: 1} | {until: ''} | {until: 1}"},
		{
			"{workflow: w, steps: [{name: a, sleep: 1h, %s}]}",
			"after: [] | when: input.a",
			"agent: x | do: a | undo: a | with: input | undo: a, undoWith: input | timeout: 1s | queue: 1s | limit: b | retry: {} | exhausted: error | exhausted: wait, wait: {}",
		},
		{
			"{workflow: w, steps: [{name: a, listen: %s}]}",
			"a | 7 | A.b_c-9 | " + long(100) + " | {one: a} | {one: a, count: 1} | {one: a, count: 100} | {any: [a]} | {all: [a, b]} | {any: " + codes(100) + "}",
			"'' | a b | ~ | [] | {} | " + long(101) + " | {one: a, any: [b]} | {any: [a], all: [b]} | {any: a} | {any: []} | {any: [a, a]} | {all: [a], count: 2} | {count: 2} | {one: a, count: 0} | {one: a, count: 101} | {one: a, count: 1.5} | {some: a} | {any: " + codes(101) + "}",
		},
		{
			"{workflow: w, steps: [{name: a, listen: b, %s}]}",
			"after: [] | when: input.a | timeout: 1s",
			"agent: x | do: a | undo: a | with: input | undo: a, undoWith: input | queue: 1s | limit: b | retry: {} | exhausted: error | exhausted: wait, wait: {} | sleep: 1h | timeout: 0s",
		},
		{
			"{workflow: w, steps: [{name: a, each: {order: b, items: %s}}]}",
			"input.a | {agent: x, do: list} | {agent: 7, do: 7, with: input, timeout: 1s, queue: 1s, limit: b, retry: {}} | {agent: x, do: list, timeout: {after: 1s, max: 2s}}",
			"{} | [a] | {agent: x} | {do: list} | {agent: x, do: list, undo: a} | {agent: x, do: a b} | {agent: x, do: list, timeout: 0s} | {agent: x, do: list, exhausted: continue} | {agent: x, do: list, with: {}} | {agent: x, do: list, limit: {name: b}}",
		},
		{
			"{workflow: w, steps: [{name: a, approve: %s}]}",
			"{roles: [b]} | {roles: [b, c], outcomes: [yes-1], count: 1} | {roles: [b], count: 10} | {roles: [b], due: 1ns} | {roles: [b], due: 1s, escalate: [c]} | {roles: [b], show: input.a} | {roles: [b], show: 1} | {roles: " + codes(16) + "}",
			"b | [] | {} | ~ | {roles: b} | {roles: []} | {roles: [B]} | {roles: [b, b]} | {roles: [b], outcomes: []} | {roles: [b], outcomes: [c, c]} | {roles: [b], count: 0} | {roles: [b], count: 11} | {roles: [b], count: 1.5} | {roles: [b], due: 0s} | {roles: [b], due: 1} | {roles: [b], escalate: [c]} | {roles: [b], due: 1s, escalate: []} | {roles: [b], show: ''} | {roles: [b], show: {}} | {role: [b]} | {roles: " + codes(17) + "}",
		},
		{
			"{workflow: w, steps: [{name: a, approve: {roles: [b]}, %s}]}",
			"after: [] | when: input.a | timeout: 1s",
			"agent: x | do: a | undo: a | with: input | undo: a, undoWith: input | queue: 1s | limit: b | retry: {} | exhausted: error | exhausted: wait, wait: {} | sleep: 1h | timeout: 0s",
		},
		{
			"{workflow: w, steps: [{name: a, order: %s}]}",
			"b | 7 | " + long(100) + " | {workflow: b} | {workflow: b, version: 1} | {workflow: b, version: 2147483647} | {workflow: b, await: false} | {workflow: b, await: true, replyTo: A.b_c-9} | {workflow: b, replyTo: " + long(249) + "}",
			"B | '' | ~ | [] | b@1 | {} | " + long(101) + " | {version: 1} | {workflow: B} | {workflow: b, version: 0} | {workflow: b, version: 2147483648} | {workflow: b, version: '1'} | {workflow: b, await: 1} | {workflow: b, await: 'true'} | {workflow: b, replyTo: ''} | {workflow: b, replyTo: a b} | {workflow: b, replyTo: __a} | {workflow: b, replyTo: .} | {workflow: b, replyTo: " + long(250) + "} | {workflow: b, input: {}}",
		},
		{
			"{workflow: w, steps: [{name: a, order: b, %s}]}",
			"after: [] | when: input.a | with: input | timeout: 1s | exhausted: error | exhausted: compensate | exhausted: continue",
			"agent: x | do: a | undo: a | undoWith: input | undo: a, undoWith: input | queue: 1s | limit: b | retry: {} | repeat: {until: 'true'} | exhausted: wait | exhausted: wait, wait: {} | sleep: 1h | listen: a | approve: {roles: [b]} | raise: {code: c} | timeout: 0s | timeout: {max: 1h}",
		},
		{"{workflow: w, steps: [{name: a, order: {workflow: b, await: false}, %s}]}", "exhausted: continue", "timeout: 1s"},
		{
			"{workflow: w, steps: [{name: a, emit: %s}]}",
			"{topic: b, type: c} | {topic: B.c_d-9, type: com.acme.é} | {topic: 7, type: 7} | {topic: b, type: c, key: input.a, data: 1} | {topic: " + strings.Repeat("a", 249) + ", type: " + long(200) + "}",
			"b | [] | {} | {topic: b} | {type: c} | {topic: '', type: c} | {topic: b/c, type: c} | {topic: ., type: c} | {topic: .., type: c} | {topic: __b, type: c} | {topic: b, type: ''} | {topic: b, type: c d} | {topic: b, type: waybill.c} | {topic: b, type: c, key: ''} | {topic: b, type: c, key: 1} | {topic: b, type: c, data: ''} | {topic: b, type: c, data: {}} | {topic: b, type: c, to: d} | {topic: " + strings.Repeat("a", 250) + ", type: c} | {topic: b, type: " + long(201) + "}",
		},
		{
			"{workflow: w, steps: [{name: a, emit: {topic: b, type: c}, %s}]}",
			"after: [] | when: input.a | timeout: 1s | retry: {attempts: 1} | exhausted: continue | exhausted: wait, wait: {}",
			"agent: x | do: a | undo: a | with: input | undo: a, undoWith: input | queue: 1s | limit: b | repeat: {until: 'true'} | wait: {} | sleep: 1h | listen: a | raise: {code: c} | timeout: 0s | timeout: {max: 1h}",
		},
		{"{workflow: w, steps: [{name: a, raise: %s}]}", "{code: c} | {code: 404} | {code: a b, message: input.a, compensate: true} | {code: " + long(200) + ", compensate: false}", "c | [] | {} | {message: input.a} | {code: ''} | {code: []} | {code: c, message: 1} | {code: c, message: ''} | {code: c, compensate: 1} | {code: c, compensate: 'true'} | {code: c, undo: true} | {code: " + long(201) + "}"},
		{
			"{workflow: w, steps: [{name: a, raise: {code: c}, %s}]}",
			"after: [] | when: input.a",
			"sleep: 1h | agent: x | do: a | undo: a | with: input | undo: a, undoWith: input | timeout: 1s | queue: 1s | limit: b | retry: {} | exhausted: error | exhausted: wait, wait: {}",
		},
	} {
		for text := range strings.SplitSeq(c.good, " | ") {
			source := fmt.Sprintf(c.file, text)
			mustParse(t, source)
			if err := follows(source); err != nil {
				t.Errorf("the schema refuses %s: %v", source, err)
			}
		}
		for text := range strings.SplitSeq(c.bad, " | ") {
			source := fmt.Sprintf(c.file, text)
			if _, err := workflow.Parse("f", []byte(source)); err == nil {
				t.Errorf("the parser takes %s", source)
			}
			if follows(source) == nil {
				t.Errorf("the schema takes %s", source)
			}
		}
	}
}

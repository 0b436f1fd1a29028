package workflow_test

import (
	"fmt"
	"maps"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// patience is for machines that are busy, and for the race detector. What ends
// takes milliseconds.
const patience = 10 * time.Minute

// within fails the test where f takes so long that it would never end.
func within(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		if d := time.Since(began); d > time.Second {
			t.Logf("took %v", d)
		}
	case <-time.After(patience):
		debug.SetTraceback("all")
		panic("never ends: " + t.Name())
	}
}

// large repeats a text up to nearly the size of the largest message, or a quarter of that in a short run.
func large(text string) string {
	size := 1<<20 - 100
	if testing.Short() {
		size /= 4
	}
	return strings.Repeat(text, size/len(text))
}

// badInputs are refused, or cost something, before anybody looks at them.
var badInputs = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"too deep":     strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"endless":      large("["),
		"many members": "{" + large(`"a":1,`) + `"b":1}`,
		"same names":   "{" + strings.Repeat(`"a":[`, 5000) + strings.Repeat("]", 5000) + "}",
		"long numbers": "[" + strings.Repeat("9", 1<<20-100) + "]",
		"exponents":    "[" + large("1e999999999,") + "1]",
		"fractions":    "[" + large("1e-999999999,") + "1]",
		"escapes":      `"` + large(`\u0061`) + `"`,
		"not JSON":     `{"a":[1,2,"`,
		"nothing":      "",
	}
})

// hostileInputs are as large as messages may be, and take much where something
// is done for every element, character or level.
var hostileInputs = sync.OnceValue(func() map[string]string {
	half := large("a")
	half = half[:len(half)/2]
	return map[string]string{
		"deep objects":  strings.Repeat(`{"b":"`+strings.Repeat("x", 1000)+`","a":`, 1000) + "1" + strings.Repeat("}", 1000),
		"many numbers":  "[" + large("1.5,") + "1]",
		"equal lists":   "[" + strings.Repeat("["+strings.Repeat("1,", 1000)+"1],", 500) + "1]",
		"alike lists":   "[" + large("[[],[[]]],[[[]],[]],") + "1]",
		"long text":     `"` + large("a") + `"`,
		"long texts":    `{"a":"` + half + `","b":"` + half[len(half)/2:] + `b"}`,
		"lists of text": `{"a":[` + strings.Repeat("1,", 2000) + `1],"b":"` + half + `"}`,
	}
})

// Who asks whether a file may be a workflow at all is answered, whatever it is.
func TestKeysOfHostileFiles(t *testing.T) {
	for source, want := range map[string]string{
		"{workflow: w, steps: []}":   "[workflow steps]",
		strings.Repeat("[", 200_000): "[]",
		large("{a: "):                "[]",
		"[a, b]":                     "[]",
		"":                           "[]",
	} {
		within(t, func() {
			if got := fmt.Sprint(workflow.Keys([]byte(source))); got != want {
				t.Errorf("%.40s: %s", source, got)
			}
		})
	}
}

// TestHostileInputs: whatever the input, the evaluation of an expression ends.
func TestHostileInputs(t *testing.T) {
	for _, source := range []string{
		"input", "input == input", "input.distinct()", "input.all(i, input.all(j, j in input))",
		"input.sort()",
		"input.a.replace('a', input.b)",
		"input.matches('(a*)*b')", "input.matches(input)", "input.split('')",
		"'%s'.format([input])", "sets.equivalent(input, input)",
		"input.a.map(i, input.b + string(i))", "input.a.map(i, '%s'.format([input.b])).size()",
		"input.a.map(i, input.b).join(',')", "input.a.all(i, input.b == input.b)",
		"input.all(i, input.all(j, i == j || true))",
	} {
		t.Run(source, func(t *testing.T) {
			w := mustParse(t, fmt.Sprintf("workflow: w\nsteps: [{name: s, agent: a, with: %q}]", source))
			inputs := maps.Clone(hostileInputs())
			if source == "input" {
				maps.Copy(inputs, badInputs())
			}
			for name, input := range inputs {
				within(t, func() {
					began := time.Now()
					s := workflow.Scope{Input: jsontext.Value(input)}
					got, err := w.Steps[0].With.Value(s)
					if len(got) > workflow.MaxResult || err != nil && len(err.Error()) > 1024 {
						t.Errorf("%s: %d bytes, %v", name, len(got), err)
					}
					if d := time.Since(began); d > 100*time.Millisecond {
						t.Logf("%s: %v", name, d)
					}
				})
			}
		})
	}
}

// TestHostileExpressions: no expression of a file takes long to be refused, or
// to be evaluated.
func TestHostileExpressions(t *testing.T) {
	doubled := func(n int, start, step string) string {
		return start + strings.Repeat(step, n) + "[0]"
	}
	for name, source := range map[string]string{
		"parentheses":     strings.Repeat("(", 4000) + "1" + strings.Repeat(")", 4000),
		"lists":           strings.Repeat("[", 4000) + strings.Repeat("]", 4000),
		"maps":            strings.Repeat("{1:", 2500) + "1" + strings.Repeat("}", 2500),
		"nots":            strings.Repeat("!", 8000) + "true",
		"minuses":         strings.Repeat("-", 8000) + "1",
		"sums":            strings.Repeat("1+", 4000) + "1",
		"ands":            strings.Repeat("true&&", 1300) + "true",
		"conditions":      strings.Repeat("true?1:", 1100) + "1",
		"selects":         "input" + strings.Repeat(".a", 4000),
		"indices":         "input" + strings.Repeat("[0]", 2600),
		"calls":           strings.Repeat("size(", 1500) + "1" + strings.Repeat(")", 1500),
		"open":            strings.Repeat("(", 8000),
		"quotes":          strings.Repeat(`"`, 8001),
		"garbage":         strings.Repeat("@#$%", 2000),
		"operators":       strings.Repeat("+*/", 2700),
		"ten to the ten":  nested(8),
		"doubled lists":   doubled(40, "[[1]]", ".map(a, a + a)"),
		"doubled trees":   doubled(40, "[[1]]", ".map(a, [a, a])"),
		"doubled maps":    doubled(40, "[{'a': 1}]", ".map(a, {'a': a, 'b': a})"),
		"equal trees":     "[" + doubled(16, "[[1]]", ".map(a, [a, a])") + "].map(a, " + strings.Repeat("a == a && ", 60) + "true)[0]",
		"doubled text":    doubled(40, "['a']", ".map(a, a + a)"),
		"replaced text":   doubled(20, "['aa']", ".map(a, a.replace('a', 'aaaaaaaaaa'))"),
		"joined":          doubled(20, "['aa']", ".map(a, [a, a, a, a].join(a))"),
		"formatted":       doubled(20, "['aa']", ".map(a, '%s%s%s%s'.format([a, a, a, a]))"),
		"precise":         "'%.1000000000f'.format([1.0])",
		"formatted trees": "'%s'.format([" + doubled(30, "[[1]]", ".map(a, [a, a])") + "])",
		"flattened":       doubled(18, "[[1]]", ".map(a, [a, a])") + ".flatten(100)",
		"distinct":        "lists.range(10000).distinct()",
		"sorted":          "lists.range(10000).sort()",
		"contained":       "sets.contains(lists.range(10000), lists.range(10000))",
		"ranged":          "lists.range(1000000000)",
		"matched":         "'" + strings.Repeat("a", 3000) + "'.matches('(a{0,30}){0,30}b')",
		"nested binds":    strings.Repeat("cel.bind(a, 1, ", 40) + "a" + strings.Repeat(")", 40),
		"used binds":      "cel.bind(a, [1], cel.bind(b, a + a, cel.bind(c, b + b, cel.bind(d, c + c, cel.bind(e, d + d, e + e)))))",
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func() {
				began := time.Now()
				w, err := workflow.Parse("f", fmt.Appendf(nil, "workflow: w\nsteps: [{name: s, agent: a, with: %q}]", source))
				if d := time.Since(began); d > 200*time.Millisecond {
					t.Logf("parsed in %v", d)
				}
				if err != nil {
					if len(err.Error()) > 4096 {
						t.Errorf("says too much: %.200v", err)
					}
					return
				}
				began = time.Now()
				got, err := w.Steps[0].With.Value(scope)
				if d := time.Since(began); d > 100*time.Millisecond {
					t.Logf("evaluated in %v", d)
				}
				if len(got) > workflow.MaxResult || err != nil && len(err.Error()) > 1024 {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			})
		})
	}
}

func nested(levels int) string {
	source := "1"
	for i := range levels {
		source = fmt.Sprintf("lists.range(10).map(a%d, %s)", i, source)
	}
	return source
}

// TestHostileSchemas: neither a schema nor what it checks takes long.
func TestHostileSchemas(t *testing.T) {
	twice := `{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}`
	values := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%d,", i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	chain := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"a%d":{"allOf":[{"$ref":"#/$defs/a%d"}],"items":{"$ref":"#/$defs/a0"}},`, i, i+1)
		}
		return fmt.Sprintf(`{"$ref":"#/$defs/a0","$defs":{%s"a%d":true}}`, &b, n)
	}
	properties := func(n int, of string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%q:%s,", fmt.Sprint("p", i), of)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	for name, schema := range map[string]string{
		"exponential lists":   `{"$ref":"#/$defs/a","$defs":{"a":{"items":{"anyOf":[` + twice + `,` + twice + `]}}}}`,
		"exponential objects": `{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"a":{"allOf":[` + twice + `]}}}}}`,
		"exponential not":     `{"$ref":"#/$defs/a","$defs":{"a":{"items":{"oneOf":[` + twice + `]},"not":{"items":{"anyOf":[` + twice + `]}}}}}`,
		"unevaluated":         `{"unevaluatedItems":false,"anyOf":[{"items":{"type":"string"}},{"contains":{"type":"number"}},{"prefixItems":[true]}]}`,
		"recursive":           `{"items":{"$ref":"#"},"properties":{"a":{"$ref":"#"}},"unevaluatedProperties":{"$ref":"#"}}`,
		"unique":              `{"uniqueItems":true}`,
		"all unique":          `{"uniqueItems":true,"items":{"$ref":"#"},"properties":{"a":{"$ref":"#"}}}`,
		"all are something":   `{"items":{"type":"string"},"type":["array","object","string"]}`,
		"constant":            `{"items":{"enum":[` + values(4900) + `]}}`,
		"multiples":           `{"items":{"multipleOf":0.000000000000000000000000000001}}`,
		"pattern":             `{"pattern":"^(a|a)*(b|a?){1,20}(aa|a)*c$"}`,
		"patterns":            `{"patternProperties":{` + strings.ReplaceAll(properties(90, "true"), "p", ".*a.*p") + `}}`,
		"formats":             `{"anyOf":[{"format":"email"},{"format":"hostname"},{"format":"uri"},{"format":"regex"},{"format":"uri-template"},{"format":"duration"},{"format":"json-pointer"},{"format":"ipv6"},{"format":"date-time"},{"format":"semver"}]}`,
		"chains":              chain(90),
		"properties":          `{"properties":{` + properties(4000, "true") + `}}`,
		"too many":            `{"properties":{` + properties(20000, "{}") + `}}`,
		"anchors":             `{"$defs":{` + properties(2000, `{"$id":"x"}`) + `}}`,
		"many refs":           `{"$defs":{` + properties(1000, `{"x":{"$ref":"#/x"}}`) + `}}`,
		"many circles":        `{"$defs":{` + properties(1000, `{"$ref":"#/$defs/p0"}`) + `}}`,
		"huge pattern":        `{"pattern":"((a{1,100}){1,100}){1,100}"}`,
		"huge number":         `{"minimum":1e999999999}`,
		"meta":                `{"$ref":"https://json-schema.org/draft/2020-12/schema"}`,
		"old meta":            `{"$ref":"http://json-schema.org/draft-07/schema"}`,
		"own meta":            `{"$schema":"https://schema.invalid/input","$id":"https://schema.invalid/input"}`,
		"id":                  `{"$id":"file:///etc/passwd","$ref":"passwd#/a"}`,
		"bad id":              `{"$id":"%zz","$ref":"#"}`,
		"dynamic":             `{"$dynamicRef":"#a","$dynamicAnchor":"a"}`,
		"recursive old":       `{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,"items":{"$recursiveRef":"#"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func() {
				began := time.Now()
				w, err := workflow.Parse("f", []byte("{workflow: w, steps: [{name: s, agent: a}], input: "+schema+"}"))
				if d := time.Since(began); d > 200*time.Millisecond {
					t.Logf("parsed in %v", d)
				}
				if err != nil {
					t.Logf("refused: %.300v", err)
					return
				}
				inputs := map[string]string{}
				for _, what := range []string{"many numbers", "alike lists", "long text", "deep objects"} {
					inputs[what] = hostileInputs()[what]
				}
				if name == "unique" {
					maps.Copy(inputs, badInputs())
				}
				for what, input := range inputs {
					began := time.Now()
					err := w.CheckInput(jsontext.Value(input))
					if d := time.Since(began); d > 200*time.Millisecond {
						t.Logf("checked %s in %v: %.80v", what, d, err)
					}
					if err != nil && len(err.Error()) > 1024 {
						t.Errorf("%s: %d bytes", what, len(err.Error()))
					}
				}
			})
		})
	}
}

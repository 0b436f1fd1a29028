package workflow_test

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"weak"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// with returns a workflow whose step charge, which comes after the steps
// reserve and pick-up, has the expression as its `with`.
func with(source string) (*workflow.Workflow, error) {
	return workflow.Parse("f", fmt.Appendf(nil, `{workflow: w, steps: [{name: reserve, agent: a}, {name: pick-up, agent: a}, {name: charge, agent: a, with: %q}]}`, source))
}

// negativeZero is the same number as zero, and no number of its own in CEL.
var negativeZero = regexp.MustCompile(`-0\b`)

// TestPassedOn: a value that an expression passes on is the value that came.
func TestPassedOn(t *testing.T) {
	whole, err := with("input")
	if err != nil {
		t.Fatal(err)
	}
	member, err := with(`{"b": input.a, "c": [input.?a.orValue(1)]}`)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		value := negativeZero.ReplaceAllString(drawInput(t, 3), "0")
		got, err := whole.Steps[2].With.Value(workflow.Scope{Input: jsontext.Value(value)})
		if err != nil || canonical(t, got) != canonical(t, jsontext.Value(value)) {
			t.Fatalf("%s became %s (%v)", value, got, err)
		}
		input := fmt.Sprintf(`{"z": 1, "a": %s}`, value)
		want := fmt.Sprintf(`{"b": %s, "c": [%s]}`, value, value)
		got, err = member.Steps[2].With.Value(workflow.Scope{Input: jsontext.Value(input)})
		if err != nil || canonical(t, got) != canonical(t, jsontext.Value(want)) {
			t.Fatalf("%s became %s (%v)", want, got, err)
		}
	})
}

// What one decision looks at takes a bounded amount of memory, however many large values that
// are: the first is kept, and the last is not. To decode those again and again counts.
func TestWhatIsKeptDecodedIsBounded(t *testing.T) {
	w, err := with("size(input)")
	if err != nil {
		t.Fatal(err)
	}
	kept := new(workflow.Shared)
	var texts []weak.Pointer[byte]
	for range 20 {
		text := []byte(`"` + strings.Repeat("a", 1<<20) + `"`)
		texts = append(texts, weak.Make(&text[0]))
		if _, err := w.Steps[2].With.Value(workflow.Scope{Input: text, Shared: kept}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	if first, last := texts[0].Value(), texts[19].Value(); first == nil || last != nil {
		t.Errorf("kept: the first %t, the last %t", first != nil, last != nil)
	}
	text, n := []byte(`"`+strings.Repeat("a", 1<<20)+`"`), 0
	for ; err == nil && n < 100; n++ {
		_, err = w.Steps[2].With.Value(workflow.Scope{Input: text, Shared: kept})
	}
	if err == nil || !kept.Dear() {
		t.Errorf("it is decoded %d times", n)
	}
}

// What the expressions of one decision cost together is bounded: those that come then fail, and
// say why. Another decision has as much again.
func TestWhatExpressionsCostTogetherIsBounded(t *testing.T) {
	w, err := with("input.all(i, input.all(j, i + j > 0))")
	if err != nil {
		t.Fatal(err)
	}
	dear, scope := w.Steps[2].With, workflow.Scope{Input: []byte("[1" + strings.Repeat(",1", 119) + "]")}
	for range 2 {
		scope.Shared = new(workflow.Shared)
		half, all := 0, 0
		for ; err == nil; all++ {
			if !scope.Shared.Dear() {
				half++
			}
			_, err = dear.Value(scope)
		}
		if all < 100 || all > 10_000 || half < all/2-1 || half > all/2+1 || !strings.Contains(err.Error(), "cost too much together") {
			t.Errorf("%d evaluations, of them %d until they are dear: %v", all, half, err)
		}
		_, err = dear.Value(workflow.Scope{Input: scope.Input})
	}
}

// TestNumbersKeepTheirDigits: no number changes on its way, whatever its size.
func TestNumbersKeepTheirDigits(t *testing.T) {
	w, err := with(`{"a": input[0], "same": input[0] == input[1]}`)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?`).Draw(t, "number")
		got, err := w.Steps[2].With.Value(workflow.Scope{Input: jsontext.Value("[" + number + "," + number + "]")})
		if err != nil {
			t.Fatal(err)
		}
		var result struct {
			A    jsontext.Value `json:"a"`
			Same bool           `json:"same"`
		}
		if err := json.Unmarshal(got, &result); err != nil {
			t.Fatal(err)
		}
		is := mustParse(t, fmt.Sprintf("{workflow: w, steps: [{name: s, agent: a}], input: {const: %s}}", short(number)))
		if err := is.CheckInput(result.A); err != nil && short(number) == number || !result.Same {
			t.Fatalf("%s became %s", number, got)
		}
	})
}

// short returns the number where a schema can hold it.
func short(number string) string {
	if i := strings.IndexAny(number, "eE"); i >= 0 && len(number)-i > 3 {
		return "0"
	}
	return number
}

// canonical returns a value in a form that equal values share.
func canonical(t fataler, v jsontext.Value) string {
	t.Helper()
	var decoded any
	if err := json.Unmarshal(v, &decoded); err != nil {
		t.Fatalf("%s is no JSON: %v", v, err)
	}
	b, err := json.Marshal(decoded, json.Deterministic(true))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return string(b)
}

// TestStepIsAskedOnce: an evaluation asks for the steps that it names.
func TestStepIsAskedOnce(t *testing.T) {
	w, err := with(`input.a ? [steps.reserve.output, steps.reserve.state] : steps["pick-up"].output`)
	if err != nil {
		t.Fatal(err)
	}
	e := w.Steps[2].With
	expect(t, fmt.Sprint(e.Steps()), "[reserve pick-up]")
	var asked []string
	got, err := e.Value(workflow.Scope{Input: jsontext.Value(`{"a":true}`), Step: func(name string) workflow.Result {
		asked = append(asked, name)
		return workflow.Result{State: "completed", Output: jsontext.Value("1")}
	}})
	expect(t, fmt.Sprint(asked, " ", string(got), " ", err), `[reserve pick-up] [1,"completed"] <nil>`)
	if _, err := e.Value(workflow.Scope{Input: jsontext.Value(`{"a":true}`)}); err == nil {
		t.Error("there is an output without a Step")
	}
}

// TestHolds: only true and false decide.
func TestHolds(t *testing.T) {
	w := mustParse(t, "{workflow: w, steps: [{name: s, agent: a, when: input.a}]}")
	for input, want := range map[string]string{
		`{"a":true}`:  "true <nil>",
		`{"a":false}`: "false <nil>",
		`{"a":1}`:     `false when "input.a": it is true or false, this is 1`,
		`{"a":"yes"}`: `false when "input.a": it is true or false, this is the text "yes"`,
		`{"a":null}`:  `false when "input.a": it is true or false, this is null`,
		`{}`:          `false when "input.a": no such key: a`,
	} {
		holds, err := w.Steps[0].When.Holds(workflow.Scope{Input: jsontext.Value(input)})
		expect(t, fmt.Sprint(holds, " ", err), want)
	}
}

// TestConcurrentUse: one expression and one schema serve everybody.
func TestConcurrentUse(t *testing.T) {
	w := mustParse(t, `{workflow: w, input: {type: object, properties: {a: {pattern: '^a'}}}, steps: [{name: s, agent: a, with: '{"b": [input.a].map(x, x + "!"), "c": input.a.matches("a+")}'}]}`)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			input := jsontext.Value(fmt.Sprintf(`{"a":"a%d"}`, i))
			for range 200 {
				got, err := w.Steps[0].With.Value(workflow.Scope{Input: input})
				if want := fmt.Sprintf(`{"b":["a%d!"],"c":true}`, i); err != nil || string(got) != want {
					t.Errorf("%s (%v), not %s", got, err, want)
				}
				if err := w.CheckInput(input); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// FuzzExpression: whatever the expression and the input, the evaluation ends
// soon, with JSON or an error that says something.
func FuzzExpression(f *testing.F) {
	for _, source := range []string{
		"input", `{"a": input.total, "b": steps.reserve.output.id}`, "input.items.map(i, i.a).filter(x, x > 1)", `input.?a.orValue(1) == 1.0`,
		`cel.bind(x, input, [x, x]).flatten(2).distinct()`, `"%s %d".format([input, 1])`, `timestamp(input).getHours("+02:00")`, `input.matches("(a*)*")`,
		`{1: 2, "a": {true: b"x"}}.map(k, k)`, `math.greatest(input, 1)`, `sets.contains(input, [1])`, `has(steps["pick-up"].output)`, `lists.range(10).map(x, x*x)`,
		`input.split("a").join("b").replace("b", "c")`, `optional.ofNonZeroValue(input).hasValue()`, `-input.a / 0 % 3`, `type(input) == map`,
	} {
		for _, input := range []string{`{"total": 5, "items": [{"a": 1}, {"a": 2.5}]}`, `[1, [2, [3]], "a", null]`, `"aab"`, `123456789012345678901234567890`, ``} {
			f.Add(source, []byte(input))
		}
	}
	f.Fuzz(func(t *testing.T, source string, input []byte) {
		w, err := with(source)
		if err != nil || len(input) > 1<<20 {
			return
		}
		s := workflow.Scope{Input: input, Step: scope.Step}
		e := w.Steps[2].With
		var got jsontext.Value
		within(t, func() { got, err = e.Value(s) })
		switch valid := jsontext.Value(input).IsValid(jsontext.AllowDuplicateNames(true)); {
		case err != nil && len(err.Error()) > 1024:
			t.Errorf("the error has %d bytes", len(err.Error()))
		case err == nil && valid && !got.IsValid(jsontext.AllowDuplicateNames(true)):
			t.Errorf("%q is no JSON", got)
		case len(got) > workflow.MaxResult:
			t.Errorf("the result has %d bytes", len(got))
		}
	})
}

// FuzzSchema: whatever the schema and the input, the check ends soon, and ends
// the same way again.
func FuzzSchema(f *testing.F) {
	for _, schema := range []string{
		`{"type":"object","required":["a"],"properties":{"a":{"minLength":1,"format":"email"}},"additionalProperties":false}`,
		`{"$ref":"#/$defs/a","$defs":{"a":{"items":{"$ref":"#/$defs/a"}}}}`, `{"anyOf":[{"enum":[1,"a"]},{"multipleOf":0.1}],"unevaluatedItems":false}`,
		`{"$schema":"http://json-schema.org/draft-04/schema#","exclusiveMinimum":true,"minimum":1}`, `{"uniqueItems":true,"pattern":"^(a+)+$"}`, `true`,
		`{"$id":"https://example.com/x","$anchor":"y","properties":{"a":{"$ref":"#y"}}}`,
	} {
		for _, input := range []string{`{"a":"b"}`, `[1,1.0,[2]]`, `"aaab"`, `1e400`, ``} {
			f.Add([]byte(schema), []byte(input))
		}
	}
	f.Fuzz(func(t *testing.T, schema, input []byte) {
		w, err := workflow.Parse("f", fmt.Appendf(nil, "{workflow: w, steps: [{name: s, agent: a}], input: %s}", schema))
		if err != nil || len(input) > 1<<20 {
			return
		}
		roundTrip(t, w)
		within(t, func() { err = w.CheckInput(input) })
		if again := w.CheckInput(input); fmt.Sprint(err) != fmt.Sprint(again) || err != nil && len(err.Error()) > 1024 {
			t.Errorf("%v, and then %v", err, again)
		}
	})
}

func BenchmarkValue(b *testing.B) {
	w, err := with(`{"amount": input.total, "reservation": steps.reserve.output.id}`)
	if err != nil {
		b.Fatal(err)
	}
	s := workflow.Scope{
		Input: jsontext.Value(`{"customer":{"name":"Ada","email":"ada@example.com"},"items":[{"sku":"b-1","count":2},{"sku":"a-7","count":1}],"total":120}`),
		Step: func(string) workflow.Result {
			return workflow.Result{State: "completed", Output: jsontext.Value(`{"id":"r-9"}`)}
		},
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Steps[2].With.Value(s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHolds(b *testing.B) {
	w := mustParse(b, "{workflow: w, steps: [{name: s, agent: a, when: input.total > 100}]}")
	s := workflow.Scope{Input: jsontext.Value(`{"total":120}`)}
	b.ReportAllocs()
	for b.Loop() {
		if holds, err := w.Steps[0].When.Holds(s); err != nil || !holds {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheckInput(b *testing.B) {
	w := mustParse(b, `{workflow: w, steps: [{name: s, agent: a}], input: {type: object, required: [customer], properties: {customer: {type: object, required: [name], properties: {name: {type: string, minLength: 1}}}, total: {type: number, minimum: 0}}}}`)
	input := jsontext.Value(`{"customer":{"name":"Ada","email":"ada@example.com"},"items":[{"sku":"b-1","count":2}],"total":120}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := w.CheckInput(input); err != nil {
			b.Fatal(err)
		}
	}
}

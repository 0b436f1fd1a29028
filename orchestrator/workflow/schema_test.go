package workflow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// drawSchema draws the schema of an input.
func drawSchema(t *rapid.T) *workflow.Schema {
	schema := drawSchemaText(t, 2)
	if rapid.Bool().Draw(t, "referred to") && strings.HasPrefix(schema, "{") {
		schema = `{"$defs":{"node":` + schema + `},"properties":{"a":{"$ref":"#/$defs/node"},"b":{"$ref":"#/$defs/node"}}}`
	}
	return mustParse(t, "workflow: w\nsteps: [{name: s, agent: a}]\ninput: "+schema).Input
}

// drawSchemaText draws a schema with every keyword that a check knows, and few
// names and values, so that they meet those of inputs.
func drawSchemaText(t *rapid.T, depth int) string {
	if depth == 0 || rapid.IntRange(0, 9).Draw(t, "plain") == 0 {
		return rapid.SampledFrom([]string{"true", "false", `{"type":"string"}`, `{"type":["integer","null"]}`, `{"const":1.0}`, `{}`}).Draw(t, "leaf")
	}
	sub := func() string { return drawSchemaText(t, depth-1) }
	list := func() string { return "[" + sub() + "," + sub() + "]" }
	keywords := map[string]func() string{
		"type": func() string {
			return rapid.SampledFrom([]string{`"object"`, `"array"`, `["object","array"]`, `["number","string"]`, `"integer"`, `"boolean"`}).Draw(t, "type")
		},
		"enum":                 func() string { return `["a",1,{"a":[1,"a"]},null]` },
		"const":                func() string { return rapid.SampledFrom([]string{`{"a":1,"b":1.0}`, `[]`, `true`}).Draw(t, "const") },
		"properties":           func() string { return `{"a":` + sub() + `,"b":` + sub() + `}` },
		"patternProperties":    func() string { return `{"^[ac]$":` + sub() + `}` },
		"additionalProperties": sub,
		"propertyNames": func() string {
			return rapid.SampledFrom([]string{`{"pattern":"a|b"}`, `{"maxLength":1}`, `{"const":"a"}`}).Draw(t, "names")
		},
		"required":              func() string { return `["a"]` },
		"minProperties":         func() string { return "1" },
		"maxProperties":         func() string { return "2" },
		"dependentRequired":     func() string { return `{"a":["b"]}` },
		"dependentSchemas":      func() string { return `{"b":` + sub() + `}` },
		"unevaluatedProperties": sub,
		"prefixItems":           list,
		"items":                 sub,
		"contains":              sub,
		"minContains":           func() string { return rapid.SampledFrom([]string{"0", "2"}).Draw(t, "least") },
		"maxContains":           func() string { return "2" },
		"minItems":              func() string { return "1" },
		"maxItems":              func() string { return "2" },
		"uniqueItems":           func() string { return "true" },
		"unevaluatedItems":      sub,
		"minLength":             func() string { return "1" },
		"maxLength":             func() string { return "1" },
		"pattern":               func() string { return `"^a"` },
		"format":                func() string { return rapid.SampledFrom([]string{`"date"`, `"ipv4"`, `"unknown"`}).Draw(t, "format") },
		"minimum":               func() string { return "0" },
		"maximum":               func() string { return "1e2" },
		"exclusiveMinimum":      func() string { return "-0.5" },
		"exclusiveMaximum":      func() string { return "100.5" },
		"multipleOf":            func() string { return "0.5" },
		"allOf":                 list,
		"anyOf":                 list,
		"oneOf":                 list,
		"not":                   sub,
		"if":                    sub,
		"then":                  sub,
		"else":                  sub,
	}
	var names []string
	for name := range keywords {
		names = append(names, name)
	}
	chosen := rapid.SliceOfNDistinct(rapid.SampledFrom(sorted(names)), 1, 4, rapid.ID).Draw(t, "keywords")
	var members []string
	for _, name := range chosen {
		members = append(members, fmt.Sprintf("%q:%s", name, keywords[name]()))
	}
	return "{" + strings.Join(members, ",") + "}"
}

// drawInput draws a value that has much in common with what schemas ask for.
func drawInput(t *rapid.T, depth int) string {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "word")
	case 1:
		return rapid.SampledFrom([]string{"0", "-0", "1", "1.0", "10e-1", "0.5", "-1.5", "100", "100.5", "1e2", "0.25", "12345678901234567890"}).Draw(t, "number")
	case 2, 3:
		return rapid.SampledFrom([]string{`""`, `"a"`, `"\u0061"`, `"ab"`, `"é"`, `"2026-02-30"`, `"2026-02-28"`, `"127.0.0.1"`}).Draw(t, "text")
	case 4:
		var elements []string
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			elements = append(elements, drawInput(t, depth-1))
		}
		return "[" + strings.Join(elements, " , ") + "]"
	}
	var members []string
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID).Draw(t, "members") {
		members = append(members, fmt.Sprintf(" %q : %s", name, drawInput(t, depth-1)))
	}
	return "{" + strings.Join(members, ",") + "}"
}

// TestChecksLikeTheLibrary: the quick check, numbers in a normal form and our
// own uniqueItems change nothing of what the library says.
func TestChecksLikeTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ours := drawSchema(t)
		compiler := jsonschema.NewCompiler()
		compiler.AssertFormat()
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(ours.String()))
		if err != nil {
			t.Fatal(err)
		}
		if err := compiler.AddResource("test:schema", doc); err != nil {
			t.Fatal(err)
		}
		theirs, err := compiler.Compile("test:schema")
		if err != nil {
			t.Fatal(err)
		}
		w := &workflow.Workflow{Input: ours}
		for range 5 {
			text := drawInput(t, 3)
			input, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			got, want := w.CheckInput(jsontext.Value(text)), theirs.Validate(input)
			if (got == nil) != (want == nil) {
				t.Fatalf("%s\nof %s is\n%v, not\n%v", ours, text, got, want)
			}
			if got != nil && (got.Error() == "" || len(got.Error()) > 1024) {
				t.Fatalf("%s\nof %s is refused with %q", ours, text, got)
			}
		}
	})
}

// TestBoundedSchemas: what a schema asks for has an end, and is no more than
// can be checked soon.
func TestBoundedSchemas(t *testing.T) {
	file := func(schema string) string {
		return "{workflow: w, steps: [{name: s, agent: a}], input: " + schema + "}"
	}
	var doubled strings.Builder
	for i := range 14 {
		fmt.Fprintf(&doubled, `a%d: {anyOf: [{$ref: '#/$defs/a%d'}, {$ref: '#/$defs/a%d'}]}, `, i, i+1, i+1)
	}
	expect(t, refused(t, file(`{$ref: '#/$defs/a0', $defs: {`+doubled.String()+`a14: {}}}`)),
		"f:1:52: the schema has more than 10000 parts with its references written out; make it smaller, or let the agent check the rest")
	expect(t, refused(t, file(`{properties: {next: {$ref: '#'}}}`)),
		"f:1:72: the schema is recursive: this part refers to one that it is in; write out as many levels as inputs have, or let the agent check the rest")
	expect(t, refused(t, file(`{$ref: 'https://json-schema.org/draft/2020-12/schema'}`)),
		"f:1:52: $dynamicRef and $recursiveRef are not supported; use $ref")
	expect(t, refused(t, file("["+strings.Repeat("1,", 5000)+"]")),
		"f:1:10051: the schema has more than 5000 values; make it smaller, or let the agent check the rest")
}

// TestBoundedInputs: what takes too much to check is refused, and what takes
// too much to explain is not explained.
func TestBoundedInputs(t *testing.T) {
	w := mustParse(t, `{workflow: w, steps: [{name: s, agent: a}], input: {items: {type: integer, maximum: 5}}}`)
	for input, want := range map[string]string{
		"[1":                                     "the input is no JSON: jsontext: unexpected EOF after offset 2",
		"[" + strings.Repeat("1,", 1<<18) + "1]": "<nil>",
		"[" + strings.Repeat("1,", 1<<18) + "6]": "the input is not what the workflow wants; it has more than 65536 bytes, too many to say where",
		"[" + strings.Repeat("6,", 1000) + "1]":  "/0 is 6, must be at most 5; /1 is 6, must be at most 5; /10 is 6, must be at most 5; /100 is 6, must be at most 5; /101 is 6, must be at most 5; /102 is 6, must be at most 5; /103 is 6, must be at most 5; /104 is 6, must be at most 5; /105 is 6, must be at most 5; /106 is 6, must be at most 5; and more",
		strings.Repeat("[", 1001) + "1" + strings.Repeat("]", 1001): "the input is nested too deeply",
		"[1e1000]":                              "the input has a number with more than 100 characters or an exponent of more than 3 digits",
		strings.Repeat("9", 101):                "the input has a number with more than 100 characters or an exponent of more than 3 digits",
		strings.Repeat("9", 100):                "<nil>",
		`["` + strings.Repeat("a", 2000) + `"]`: "/0 is a string, must be an integer",
	} {
		expect(t, fmt.Sprint(w.CheckInput(jsontext.Value(input))), want)
	}
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

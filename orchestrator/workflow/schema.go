package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schema is what a workflow wants the input of an order to be: a JSON Schema,
// of draft 2020-12 unless its $schema names another. [Parse] compiles it; it
// may be used by several goroutines at once.
type Schema struct {
	source string // JSON, the names of members in order

	compiled *jsonschema.Schema
	quick    *jsonschema.Schema // the same, for who does not ask what is wrong
	names    map[string][]string
}

// What a schema may hold. With references written out it bounds what a check
// takes for each value of an input.
const (
	maxSchemaValues = 5000   // lists, mappings and scalars
	maxSubschemas   = 10_000 // with references written out
)

// schemaURL is what the schema is to the library. It stands for no place.
const schemaURL = "https://schema.invalid/input"

// String returns the schema as JSON.
func (s *Schema) String() string { return s.source }

// MarshalJSON returns the schema as JSON.
func (s *Schema) MarshalJSON() ([]byte, error) { return []byte(s.source), nil }

// schema reads and compiles the value of the key input; nil when it is wrong.
func (r *reader) schema(n ast.Node) *Schema {
	d := &schemaReader{reader: r, places: map[string]*token.Token{}}
	doc := d.read(n, "")
	if d.faults > 0 {
		return nil
	}
	switch doc.(type) {
	case bool, map[string]any:
	default:
		r.add(start(n), "input is a JSON Schema, this is %s; write a mapping, for example {type: object}", kind(n))
		return nil
	}
	s := &Schema{names: map[string][]string{}}
	source, err := json.Marshal(doc)
	if err == nil {
		s.source = string(source)
		s.compiled, err = compileSchema(doc)
	}
	if err != nil {
		d.refuse(start(n), err)
		return nil
	}
	d.expand(s, s.compiled, nil)
	if d.faults > 0 {
		return nil
	}
	// Below "not" the library asks only whether, and builds no errors.
	s.quick = &jsonschema.Schema{DraftVersion: 2020, Not: &jsonschema.Schema{DraftVersion: 2020, Not: s.compiled}}
	return s
}

// noLoader refuses what a schema refers to outside of itself: no file and no
// server is ever asked.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errors.New("outside of the schema") }

func compileSchema(doc any) (compiled *jsonschema.Schema, err error) {
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.AssertFormat()
	err = guarded(func() error {
		if err := c.AddResource(schemaURL, doc); err != nil {
			return err
		}
		compiled, err = c.Compile(schemaURL)
		return err
	})
	return compiled, err
}

// schemaReader turns a part of the file into the value that JSON would have,
// and remembers where its parts are.
type schemaReader struct {
	*reader

	places map[string]*token.Token // by JSON pointer
	parts  int                     // subschemas so far, with references written out
	faults int
}

func (d *schemaReader) fault(at *token.Token, format string, args ...any) {
	d.faults++
	d.add(at, format, args...)
}

func (d *schemaReader) read(n ast.Node, pointer string) any {
	at := start(n)
	d.places[pointer] = at
	if len(d.places) > maxSchemaValues {
		if len(d.places) == maxSchemaValues+1 {
			d.fault(at, "the schema has more than %d values; make it smaller, or let the agent check the rest", maxSchemaValues)
		}
		return nil
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		mapping, given := map[string]any{}, map[string]*token.Token{}
		for _, entry := range n.Values {
			at := entry.Key.GetToken()
			key := at.Value
			if given[key] != nil {
				d.fault(at, "the key %s is given twice, first at %s; remove one", quote(key), where(given[key]))
				continue
			}
			given[key] = at
			mapping[key] = d.read(entry.Value, pointer+pointerTo([]string{key}))
		}
		return mapping
	case *ast.SequenceNode:
		list := make([]any, len(n.Values))
		for i, entry := range n.Values {
			list[i] = d.read(entry, fmt.Sprintf("%s/%d", pointer, i))
		}
		return list
	case *ast.LiteralNode:
	default:
		// What YAML alone makes a number or a boolean of depends on whom one
		// asks; it takes a number of many digits for text.
		switch text := at.Value; {
		case quoted(at):
			return text
		case n.Type() == ast.NullType && (text == "null" || text == "" || text == "~"):
			return nil
		case text == "true", text == "false":
			return text == "true"
		case jsonNumber.MatchString(text) && short(text):
			return json.Number(text)
		case n.Type() == ast.StringType && !jsonNumber.MatchString(text):
			return text
		}
	}
	d.fault(at, "%s is no value of JSON that a schema can hold; write it as JSON does, or quote it if it is text", quote(at.Value))
	return nil
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// short says whether a number can be compared without much work.
func short(number string) bool {
	i := strings.IndexAny(number, "eE")
	return len(number) <= 100 && (i < 0 || len(strings.TrimLeft(number[i+1:], "+-0")) <= 3)
}

// expand counts what a schema asks with every reference written out, and
// refuses one that has no end.
func (d *schemaReader) expand(s *Schema, part *jsonschema.Schema, within []*jsonschema.Schema) {
	d.parts++
	switch {
	case d.faults > 0:
		return
	case part.DynamicRef != nil || part.RecursiveRef != nil:
		d.fault(d.place(part), "$dynamicRef and $recursiveRef are not supported; use $ref")
		return
	case slices.Contains(within, part):
		d.fault(d.place(within[len(within)-1]), "the schema is recursive: this part refers to one that it is in; write out as many levels as inputs have, or let the agent check the rest")
		return
	case d.parts > maxSubschemas:
		d.fault(d.places[""], "the schema has more than %d parts with its references written out; make it smaller, or let the agent check the rest", maxSubschemas)
		return
	}
	if len(part.Properties) > 0 {
		s.names[part.Location] = slices.Sorted(maps.Keys(part.Properties))
	}
	// The library compares with every value, one by one, and all pairs of
	// elements where an input is made for it.
	if part.UniqueItems {
		part.UniqueItems, part.Extensions = false, append(part.Extensions, unique{})
	}
	if part.Enum != nil {
		part.Enum, part.Extensions = nil, append(part.Extensions, newAllowed(part.Enum.Values))
	}
	for _, next := range subschemas(part) {
		d.expand(s, next, append(within, part))
	}
}

func subschemas(s *jsonschema.Schema) []*jsonschema.Schema {
	all := slices.Concat([]*jsonschema.Schema{
		s.Ref, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems,
	}, s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems,
		slices.Collect(maps.Values(s.Properties)), slices.Collect(maps.Values(s.PatternProperties)), slices.Collect(maps.Values(s.DependentSchemas)))
	for _, v := range append(slices.Collect(maps.Values(s.Dependencies)), s.AdditionalProperties, s.Items, s.AdditionalItems) {
		switch v := v.(type) {
		case *jsonschema.Schema:
			all = append(all, v)
		case []*jsonschema.Schema:
			all = append(all, v...)
		}
	}
	all = slices.DeleteFunc(all, func(s *jsonschema.Schema) bool { return s == nil })
	slices.SortStableFunc(all, func(a, b *jsonschema.Schema) int { return strings.Compare(a.Location, b.Location) })
	return all
}

// refuse reports why a schema was not compiled, where in it.
func (d *schemaReader) refuse(at *token.Token, err error) {
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if tree, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err); ok {
			_, base, _ := strings.Cut(invalid.URL, "#")
			d.invalid(base, tree, map[string]bool{})
			return
		}
	}
	message := strings.ReplaceAll(err.Error(), schemaURL, "")
	outside, _ := errors.AsType[*jsonschema.LoadURLError](err)
	for _, pointer := range slices.Sorted(maps.Keys(d.places)) {
		ref := d.places[pointer]
		target, fragment, _ := strings.Cut(ref.Value, "#")
		switch {
		case !strings.HasSuffix(pointer, "/$ref") && !strings.HasSuffix(pointer, "/$schema"):
		case outside != nil && target != "" && strings.HasSuffix(outside.URL, strings.TrimLeft(target, "./")):
			d.fault(ref, "%s is outside of this file, and nothing else is ever read; copy it under $defs and write #/$defs/NAME", quote(ref.Value))
			return
		case outside == nil && fragment != "" && strings.Contains(message, fragment):
			d.fault(ref, "there is no %s in this schema; write # and the path to a part of it, for example #/$defs/NAME", quote(ref.Value))
			return
		}
	}
	d.fault(at, "input is no JSON Schema: %s", brief(message))
}

// invalid reports what the schema of schemas says, once for each place.
func (d *schemaReader) invalid(base string, e *jsonschema.ValidationError, told map[string]bool) {
	for _, cause := range e.Causes {
		d.invalid(base, cause, told)
	}
	pointer := base + pointerTo(e.InstanceLocation)
	if len(e.Causes) > 0 || told[pointer] || len(told) == maxViolations {
		return
	}
	told[pointer] = true
	what, at := "input", d.places[""]
	if pointer != "" {
		what = quote(pointer)
	}
	if place := d.places[pointer]; place != nil {
		at = place
	}
	d.fault(at, "%s is not as JSON Schema has it: %s", what, brief(said(e)))
}

// place returns where a part of the schema is.
func (d *schemaReader) place(s *jsonschema.Schema) *token.Token {
	_, pointer, _ := strings.Cut(s.Location, "#")
	if pointer, err := url.PathUnescape(pointer); err == nil && d.places[pointer] != nil {
		return d.places[pointer]
	}
	return d.places[""]
}

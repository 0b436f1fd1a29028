package main

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/goccy/go-yaml"
	"pgregory.net/rapid"
)

// Whatever JSON there is, its YAML says the same.
func TestYAMLSaysWhatJSONSays(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ \t\n\r:#\-?*&!|>'"%@{}\[\],~\\x0-9yesnoNullTRUE.]{0,8}`), rapid.SampledFrom([]string{"yes", "No", "null", "~", "2030-01-02", "1e3", "0x1f", "-", "---", "...", "? a", "a: b", "\x1b[31m", "\u2028", "\u0085", " a", "a ", "=", "<<"}))
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		leaf := []*rapid.Generator[any]{
			text.AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil),
			rapid.Map(rapid.Int32(), func(n int32) any { return n }),
			rapid.Map(rapid.Float64Range(-1e6, 1e6), func(f float64) any { return f }),
		}
		if depth > 0 {
			leaf = append(leaf, rapid.SliceOfN(rapid.Deferred(func() *rapid.Generator[any] { return value(depth - 1) }), 0, 3).AsAny(),
				rapid.MapOfN(text, rapid.Deferred(func() *rapid.Generator[any] { return value(depth - 1) }), 0, 3).AsAny())
		}
		return rapid.OneOf(leaf...)
	}
	normal := func(v any) any {
		text, err := stdjson.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var out any
		if err := stdjson.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	rapid.Check(t, func(r *rapid.T) {
		v := value(3).Draw(r, "v")
		source, err := encodeJSON(v)
		if err != nil {
			r.Fatal(err)
		}
		var b bytes.Buffer
		if err := printYAML(&b, source); err != nil {
			r.Fatal(err)
		}
		var back any
		if err := yaml.Unmarshal(b.Bytes(), &back); err != nil {
			r.Fatalf("%s\n%v", &b, err)
		}
		if want, is := normal(v), normal(back); !reflect.DeepEqual(want, is) {
			r.Fatalf("%s\n%s\nis %s", source, &b, fmt.Sprint(is))
		}
	})
}

// What readers of YAML 1.1 take for something else stands in quotes, keys too, and numbers are written so that
// they read numbers.
func TestYAMLForOldReaders(t *testing.T) {
	for text, want := range map[string]string{
		`"yes"`: `"yes"`, `"No"`: `"No"`, `"y"`: `"y"`, `"OFF"`: `"OFF"`, `"on"`: `"on"`, `"12:30:45"`: `"12:30:45"`, `"1:20"`: `"1:20"`, `"="`: `"="`,
		`"<<"`: `"<<"`, `"1e5"`: `"1e5"`, `"0x1f"`: `"0x1f"`, `"0o7"`: `"0o7"`, `"1_000"`: `"1_000"`, `".5"`: `".5"`, `".inf"`: `".inf"`, `"+1"`: `"+1"`,
		`"2030-01-02"`: `"2030-01-02"`, `"~"`: `"~"`, `"null"`: `"null"`, `"TRUE"`: `"TRUE"`, `""`: `""`, `"a: b"`: `"a: b"`, `"a "`: `"a "`, `"a\n"`: `"a\n"`,
		`"o-1"`: `o-1`, `"not yet"`: `not yet`, `"Error"`: `Error`, `"nothing"`: `nothing`,
		`1e5`: `1.0e+5`, `1E+2`: `1.0e+2`, `-1.5e-7`: `-1.5e-7`, `2E3`: `2.0e+3`, `17`: `17`, `-0.5`: `-0.5`,
		`{"yes":"no","1:20":1,"=":1,"id":true}`: "\"yes\": \"no\"\n\"1:20\": 1\n\"=\": 1\nid: true",
	} {
		var b bytes.Buffer
		if err := printYAML(&b, []byte(text)); err != nil || b.String() != want+"\n" {
			t.Errorf("%s is %s %v", text, &b, err)
		}
	}
}

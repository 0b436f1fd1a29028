package workflow

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// field is a key that a mapping may have, and what reads its value.
type field struct {
	key  string
	read func(ast.Node)
}

// mapping reads the values of a mapping and returns where its keys are; nil
// when n is something else.
func (r *reader) mapping(n ast.Node, what string, fields []field) map[string]*token.Token {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		r.add(start(n), "%s is a mapping of keys to values, this is %s; the keys are %s", what, kind(n), keys(fields))
		return nil
	}
	given := make(map[string]*token.Token, len(m.Values))
	for _, entry := range m.Values {
		at := entry.Key.GetToken()
		key := at.Value
		read, known := fieldOf(fields, key)
		switch first := given[key]; {
		case !known:
			r.add(at, "unknown key %s in %s%s; the keys are %s", quote(key), what, didYouMean(key, names(fields)), keys(fields))
		case first != nil:
			r.add(at, "the key %q is given twice, first at %s; remove one", key, where(first))
		default:
			given[key] = at
			read(entry.Value)
		}
	}
	return given
}

// require reports which of the keys are not given. A mapping that could not be
// read has been reported already.
func (r *reader) require(n ast.Node, given map[string]*token.Token, what string, keys ...string) {
	for _, key := range keys {
		if given != nil && given[key] == nil {
			r.add(start(n), "%s has no %q; add it", what, key)
		}
	}
}

func fieldOf(fields []field, key string) (read func(ast.Node), ok bool) {
	for _, f := range fields {
		if f.key == key {
			return f.read, true
		}
	}
	return nil, false
}

func names(fields []field) []string {
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = f.key
	}
	return list
}

func keys(fields []field) string { return strings.Join(names(fields), ", ") }

// list returns the entries of a list.
func (r *reader) list(n ast.Node, what string) ([]ast.Node, bool) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		r.add(start(n), "%s is a list, this is %s; write [ ] around it or a dash before each entry", what, kind(n))
		return nil, false
	}
	return list.Values, true
}

// text returns a scalar as it is written. Unquoted numbers and booleans are
// text too where text is wanted: a step may be called 1 or true.
func (r *reader) text(n ast.Node, what string) (string, *token.Token, bool) {
	at := start(n)
	if _, ok := n.(ast.ScalarNode); !ok || n.Type() == ast.NullType {
		r.add(at, "%s is a text, this is %s", what, kind(n))
		return "", at, false
	}
	return at.Value, at, true
}

// checked returns a text that passes the check. A text that does not is
// reported and returned all the same, so that references to it can be found.
func (r *reader) checked(n ast.Node, what string, check func(string) error) (string, *token.Token) {
	text, at, ok := r.text(n, what)
	if ok {
		if err := check(text); err != nil {
			r.add(at, "%s %v", what, err)
		}
	}
	return text, at
}

// plain returns an unquoted scalar, which is what numbers are.
func (r *reader) plain(n ast.Node, what, want string) (string, *token.Token, bool) {
	at := start(n)
	if _, ok := n.(ast.ScalarNode); !ok || n.Type() == ast.NullType {
		r.add(at, "%s is %s, this is %s", what, want, kind(n))
		return "", at, false
	}
	if quoted(at) {
		r.add(at, "%s is %s, this is text; write it without quotes", what, want)
		return "", at, false
	}
	return at.Value, at, true
}

// whole reads an integer of 1 or more into value. Only decimal digits count: what YAML
// makes of 010 or 1_000 depends on whom one asks.
func (r *reader) whole(n ast.Node, what string, most int, value *int) {
	want := fmt.Sprintf("a whole number from 1 to %d", most)
	text, at, ok := r.plain(n, what, want)
	if !ok {
		return
	}
	i, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(i) != text || i < 1 || i > most {
		r.add(at, "%s is %s, this is %s", what, want, quote(text))
		return
	}
	*value = i
}

// truth reads true or false into value.
func (r *reader) truth(n ast.Node, what string, value *bool) {
	const want = "true or false"
	text, at, ok := r.plain(n, what, want)
	if !ok {
		return
	}
	if text != "true" && text != "false" {
		r.add(at, "%s is %s, this is %s", what, want, quote(text))
		return
	}
	*value = text == "true"
}

// number reads a number, possibly with a fraction, into value.
func (r *reader) number(n ast.Node, what string, least, most float64, value *float64) {
	want := fmt.Sprintf("a number from %v to %v", least, most)
	text, at, ok := r.plain(n, what, want)
	if !ok {
		return
	}
	f, err := strconv.ParseFloat(text, 64)
	// ParseFloat also takes hexadecimal numbers, infinity and NaN.
	if err != nil || strings.Trim(text, "0123456789.eE+-") != "" || math.IsNaN(f) || f < least || f > most {
		r.add(at, "%s is %s, this is %s", what, want, quote(text))
		return
	}
	*value = f
}

// duration reads a duration of at least the given length into value, and
// reports whether it could.
func (r *reader) duration(n ast.Node, what string, least time.Duration, value *time.Duration) bool {
	text, at, ok := r.text(n, what)
	if !ok {
		return false
	}
	d, err := time.ParseDuration(text)
	switch _, number := strconv.ParseFloat(text, 64); {
	case number == nil:
		r.add(at, "%s is %s of what? write a unit, for example 10s", what, quote(text))
	case err != nil:
		r.add(at, "%s is a duration, this is %s; write a number and a unit, for example 10s, 1m30s or 500ms", what, quote(text))
	case d < least && least == 0:
		r.add(at, "%s is %v; it cannot be negative", what, d)
	case d < least:
		r.add(at, "%s is %v; it must be more than 0s", what, d)
	case d > longest:
		r.add(at, "%s is %v; at most 8760h, a year, are allowed", what, d)
	default:
		*value = d
		return true
	}
	return false
}

func quoted(tk *token.Token) bool {
	return tk.Type == token.SingleQuoteType || tk.Type == token.DoubleQuoteType
}

// kind names what a node is, for the author of the file.
func kind(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "nothing"
	}
	return quote(start(n).Value)
}

// start returns the token at which a node starts, in the eyes of a reader: the
// library's is the first colon for a block mapping.
func start(n ast.Node) *token.Token {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return m.Values[0].Key.GetToken()
	}
	return n.GetToken()
}

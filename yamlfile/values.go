package yamlfile

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Field is a key that a mapping may have, and what reads its value.
type Field = struct {
	Key  string
	Read func(ast.Node)
}

// Mapping reads the values of a mapping and returns where its keys are; nil
// when n is something else.
func (r *Reader) Mapping(n ast.Node, what string, fields []Field) map[string]*token.Token {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Key
	}
	keys := "the keys are " + strings.Join(names, ", ")
	given := r.Entries(n, what, keys, func(key string, at *token.Token, value ast.Node) {
		if i := slices.Index(names, key); i >= 0 {
			fields[i].Read(value)
			return
		}
		r.Add(at, "unknown key %s in %s%s; %s", Quote(key), what, DidYouMean(key, names), keys)
	})
	maps.DeleteFunc(given, func(key string, _ *token.Token) bool { return !slices.Contains(names, key) })
	return given
}

// Entries calls read with each key of a mapping and its value, and returns where the keys are; nil
// when n is something else, for which hint says what to write.
func (r *Reader) Entries(n ast.Node, what, hint string, read func(key string, at *token.Token, value ast.Node)) map[string]*token.Token {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		r.Add(Start(n), "%s is a mapping of keys to values, this is %s; %s", what, Kind(n), hint)
		return nil
	}
	given := make(map[string]*token.Token, len(m.Values))
	for _, entry := range m.Values {
		at := entry.Key.GetToken()
		switch first := given[at.Value]; {
		case entry.Key.IsMergeKey():
			r.Add(at, "merge keys (<<) are not supported; write the keys out")
		case first != nil:
			r.Add(at, "the key %s is given twice, first at %s; remove one", Quote(at.Value), Where(first))
		default:
			given[at.Value] = at
			read(at.Value, at, entry.Value)
		}
	}
	return given
}

// Require reports which of the keys are not given. A mapping that could not be
// read has been reported already.
func (r *Reader) Require(n ast.Node, given map[string]*token.Token, what string, keys ...string) {
	for _, key := range keys {
		if given != nil && given[key] == nil {
			r.Add(Start(n), "%s has no %q; add it", what, key)
		}
	}
}

// List returns the entries of a list.
func (r *Reader) List(n ast.Node, what string) ([]ast.Node, bool) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		r.Add(Start(n), "%s is a list, this is %s; write [ ] around it or a dash before each entry", what, Kind(n))
		return nil, false
	}
	return list.Values, true
}

// Text returns a scalar as it is written. Unquoted numbers and booleans are
// text too where text is wanted: a step may be called 1 or true.
func (r *Reader) Text(n ast.Node, what string) (string, *token.Token, bool) {
	at := Start(n)
	if !IsScalar(n) || n.Type() == ast.NullType {
		r.Add(at, "%s is a text, this is %s", what, Kind(n))
		return "", at, false
	}
	return at.Value, at, true
}

// plain returns an unquoted scalar, which is what numbers are.
func (r *Reader) plain(n ast.Node, what, want string) (string, *token.Token, bool) {
	at := Start(n)
	switch {
	case !IsScalar(n) || n.Type() == ast.NullType:
		r.Add(at, "%s is %s, this is %s", what, want, Kind(n))
		return "", at, false
	case IsQuoted(at):
		r.Add(at, "%s is %s, this is text; write it without quotes", what, want)
		return "", at, false
	}
	return at.Value, at, true
}

// Whole reads an integer of 1 or more into value. Only decimal digits count: what YAML
// makes of 010 or 1_000 depends on whom one asks.
func (r *Reader) Whole(n ast.Node, what string, most int, value *int) {
	want := fmt.Sprintf("a whole number from 1 to %d", most)
	text, at, ok := r.plain(n, what, want)
	if !ok {
		return
	}
	i, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(i) != text || i < 1 || i > most {
		r.Add(at, "%s is %s, this is %s", what, want, Quote(text))
		return
	}
	*value = i
}

// Truth reads true or false into value.
func (r *Reader) Truth(n ast.Node, what string, value *bool) {
	const want = "true or false"
	text, at, ok := r.plain(n, what, want)
	if !ok {
		return
	}
	if text != "true" && text != "false" {
		r.Add(at, "%s is %s, this is %s", what, want, Quote(text))
		return
	}
	*value = text == "true"
}

// Number reads a number, possibly with a fraction, into value.
func (r *Reader) Number(n ast.Node, what string, least, most float64, value *float64) {
	want := fmt.Sprintf("a number from %v to %v", least, most)
	text, at, ok := r.plain(n, what, want)
	if !ok {
		return
	}
	f, err := strconv.ParseFloat(text, 64)
	// ParseFloat also takes hexadecimal numbers, infinity and NaN.
	if err != nil || strings.Trim(text, "0123456789.eE+-") != "" || math.IsNaN(f) || f < least || f > most {
		r.Add(at, "%s is %s, this is %s", what, want, Quote(text))
		return
	}
	*value = f
}

// Duration reads a duration of at least the given length into value, and reports whether it could.
// The limit says that one is longer than the longest.
func (r *Reader) Duration(n ast.Node, what string, least, longest time.Duration, limit string, value *time.Duration) bool {
	text, at, ok := r.Text(n, what)
	if !ok {
		return false
	}
	d, err := ParseDuration(text)
	switch _, number := strconv.ParseFloat(text, 64); {
	case number == nil:
		r.Add(at, "%s is %s of what? write a unit, for example 10s", what, Quote(text))
	case err != nil:
		r.Add(at, "%s is a duration, this is %s; write a number and a unit, for example 10s, 1m30s or 500ms", what, Quote(text))
	case d < least && least == 0:
		r.Add(at, "%s is %v; it cannot be negative", what, d)
	case d < least:
		r.Add(at, "%s is %v; it must be more than 0s", what, d)
	case d > longest:
		r.Add(at, "%s is %v; %s", what, d, limit)
	default:
		*value = d
		return true
	}
	return false
}

// ParseDuration is [time.ParseDuration], with days of 24 hours before all else: 30d, 1d12h.
func ParseDuration(text string) (time.Duration, error) {
	number, rest, ok := strings.Cut(text, "d")
	days, err := strconv.ParseUint(number, 10, 16)
	if !ok || err != nil {
		return time.ParseDuration(text)
	}
	d := time.Duration(days) * 24 * time.Hour
	if rest == "" {
		return d, nil
	}
	more, err := time.ParseDuration(rest)
	if more < 0 {
		err = strconv.ErrSyntax
	}
	return d + more, err
}

// IsScalar says whether a node is text, a number, a boolean or null, in one line. Anchors and the
// like are scalars to the library.
func IsScalar(n ast.Node) bool {
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode, *ast.NullNode:
		return true
	}
	return false
}

// IsQuoted says whether a scalar stands in quotes.
func IsQuoted(tk *token.Token) bool {
	return tk.Type == token.SingleQuoteType || tk.Type == token.DoubleQuoteType
}

// Kind names what a node is, for the author of the file.
func Kind(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "nothing"
	case *ast.AnchorNode, *ast.AliasNode:
		return "an anchor or alias, which are not supported: write the value out, or quote it if it is text"
	case *ast.TagNode:
		return "a tag, which is not supported: leave it away, or quote the value if it is text"
	case *ast.LiteralNode:
		return "block text, which is not supported here: write it in one line"
	}
	return Quote(Start(n).Value)
}

// Start returns the token at which a node starts, in the eyes of a reader: the
// library's is the first colon for a block mapping.
func Start(n ast.Node) *token.Token {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return m.Values[0].Key.GetToken()
	}
	return n.GetToken()
}

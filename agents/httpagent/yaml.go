package httpagent

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxFile is the size of the largest file, in bytes.
const maxFile = 1 << 20

// document returns the file's one document, nil after a problem.
func (r *reader) document(source []byte) ast.Node {
	switch {
	case len(source) > maxFile:
		r.add(nil, "the file has %d bytes; at most %d are allowed", len(source), maxFile)
		return nil
	case !utf8.Valid(source):
		r.add(nil, "the file is not UTF-8; save it as UTF-8")
		return nil
	}
	file, err := parse(source)
	if err != nil {
		// The Error method of the library's errors prints the source around them.
		if known, ok := errors.AsType[yaml.Error](err); ok {
			r.add(known.GetToken(), "this is not YAML: %s", known.GetMessage())
		} else {
			r.add(nil, "this is not YAML: %v", err)
		}
		return nil
	}
	var body ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body != nil:
			r.add(start(doc.Body), "a second document starts here; write one file for each agent")
		default:
			body = doc.Body
		}
	}
	if body == nil {
		r.add(nil, `the file is empty; start it with "agent: NAME"`)
	}
	return body
}

func parse(source []byte) (file *ast.File, err error) {
	// Malformed files have made the library panic before.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the structure cannot be read (%v)", r)
		}
	}()
	// Repeated keys are reported with all other problems, not here.
	return parser.ParseBytes(source, 0, parser.AllowDuplicateMapKey())
}

// field is a key that a mapping may have, and what reads its value.
type field struct {
	key  string
	read func(ast.Node)
}

// mapping reads the values of a mapping and returns where its keys are; nil
// when n is something else.
func (r *reader) mapping(n ast.Node, what string, fields []field) map[string]*token.Token {
	known := make([]string, len(fields))
	for i, f := range fields {
		known[i] = f.key
	}
	return r.entries(n, what, "the keys are "+strings.Join(known, ", "), func(key string, at *token.Token, value ast.Node) {
		if i := slices.Index(known, key); i >= 0 {
			fields[i].read(value)
			return
		}
		r.add(at, "unknown key %s in %s; the keys are %s", quote(key), what, strings.Join(known, ", "))
	})
}

// entries calls read with each key of a mapping and its value.
func (r *reader) entries(n ast.Node, what, hint string, read func(key string, at *token.Token, value ast.Node)) map[string]*token.Token {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		r.add(start(n), "%s is a mapping of keys to values, this is %s; %s", what, kind(n), hint)
		return nil
	}
	given := make(map[string]*token.Token, len(m.Values))
	for _, entry := range m.Values {
		at := entry.Key.GetToken()
		if entry.Key.Type() == ast.MergeKeyType {
			r.add(at, "merge keys (<<) are not supported; write the keys out")
			continue
		}
		key := at.Value
		if first := given[key]; first != nil {
			r.add(at, "the key %s is given twice, first in line %d; remove one", quote(key), first.Position.Line)
			continue
		}
		given[key] = at
		read(key, at, entry.Value)
	}
	return given
}

// scalar returns an entry's text as the file has it.
func (r *reader) scalar(n ast.Node, what string) (string, *token.Token, bool) {
	at := start(n)
	if !isScalar(n) {
		if name, ok := unquoted(n); ok {
			r.add(at, "%s is a mapping to YAML without quotes; write \"{%s}\"", what, name)
		} else {
			r.add(at, "%s is a text, this is %s", what, kind(n))
		}
		return "", at, false
	}
	return at.Value, at, true
}

// isScalar reports whether a value is text, a number or a boolean. Anchors and
// the like are scalars to the library.
func isScalar(n ast.Node) bool {
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return true
	}
	return false
}

// unquoted recognises a placeholder that was written without quotes.
func unquoted(n ast.Node) (string, bool) {
	m, ok := n.(*ast.MappingNode)
	if !ok || !m.IsFlowStyle || len(m.Values) != 1 || m.Values[0].Value.Type() != ast.NullType {
		return "", false
	}
	name := m.Values[0].Key.GetToken().Value
	root, _, _ := strings.Cut(strings.TrimSuffix(name, "?"), ".")
	return name, root == "response" || slices.Contains(requestRoots, root)
}

// plain returns an unquoted scalar, which is what numbers are.
func (r *reader) plain(n ast.Node, what, want string) (string, *token.Token, bool) {
	at := start(n)
	if !isScalar(n) || quoted(at) {
		r.add(at, "%s is %s, this is %s", what, want, kind(n))
		return "", at, false
	}
	return at.Value, at, true
}

// whole reads an integer of at least 1 into value. Only decimal digits count: what YAML makes
// of 010 or 1_000 depends on whom one asks.
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

// longest is the longest duration that a file may ask for.
const longest = 24 * time.Hour

// duration reads a duration of more than nothing into value.
func (r *reader) duration(n ast.Node, what string, value *time.Duration) {
	text, at, ok := r.scalar(n, what)
	if !ok {
		return
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		r.add(at, "%s is a duration, this is %s; write a number and a unit, for example 10s, 1m30s or 500ms", what, quote(text))
	case d <= 0 || d > longest:
		r.add(at, "%s is %v; it must be more than 0s, and 24h at most", what, d)
	default:
		*value = d
	}
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
	case *ast.AnchorNode, *ast.AliasNode:
		return "an anchor or alias, which are not supported: write the value out, or quote it if it is text"
	case *ast.TagNode:
		return "a tag, which are not supported: leave it away, or quote the value if it is text"
	case *ast.LiteralNode:
		return "block text, which is not supported: write it in one line"
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

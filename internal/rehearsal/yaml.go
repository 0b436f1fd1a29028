package rehearsal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// reader reads a test file, and goes on behind what is wrong with it.
type reader struct {
	file     string
	problems workflow.Errors
}

// add reports a problem at the token.
func (r *reader) add(at *token.Token, format string, args ...any) {
	r.addAt(placeOf(at), format, args...)
}

func (r *reader) addAt(at Place, format string, args ...any) {
	r.problems = append(r.problems, workflow.Error{File: r.file, Line: at.Line, Column: at.Column, Message: fmt.Sprintf(format, args...)})
}

// sorted is what is wrong, in the order of the file; nil if nothing is.
func (r *reader) sorted() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b workflow.Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r.problems
}

// Place is where something stands in a file. Both count from 1, Column in characters.
type Place struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

func placeOf(at *token.Token) Place {
	if at == nil || at.Position == nil {
		return Place{1, 1}
	}
	// The library counts backwards from the end of text that spans lines, and may pass the
	// start of the line.
	return Place{max(1, at.Position.Line), max(1, at.Position.Column)}
}

// document is the file's one document; nil if there is none, which has been reported.
func (r *reader) document(source []byte) ast.Node {
	file, err := parseYAML(bytes.TrimPrefix(source, []byte("\uFEFF")))
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
			r.add(doc.Start, "a second document begins here; write one a file")
		default:
			body = doc.Body
		}
	}
	if body == nil {
		r.add(nil, `the file is empty; start it with "workflow: PATH"`)
	}
	return body
}

func parseYAML(source []byte) (file *ast.File, err error) {
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

// mapping reads the values of a mapping and returns where its keys are; nil when n is
// something else.
func (r *reader) mapping(n ast.Node, what string, fields []field) map[string]*token.Token {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.key
	}
	m, ok := n.(*ast.MappingNode)
	if !ok {
		r.add(start(n), "%s is a mapping of keys to values, this is %s; the keys are %s", what, kind(n), strings.Join(names, ", "))
		return nil
	}
	return r.entries(m, func(key string, at *token.Token, value ast.Node) {
		i := slices.Index(names, key)
		if i < 0 {
			r.add(at, "unknown key %s in %s%s; the keys are %s", quote(key), what, workflow.DidYouMean(key, names), strings.Join(names, ", "))
			return
		}
		fields[i].read(value)
	})
}

// entries reads the members of a mapping, and returns where its keys are.
func (r *reader) entries(m *ast.MappingNode, read func(key string, at *token.Token, value ast.Node)) map[string]*token.Token {
	given := make(map[string]*token.Token, len(m.Values))
	for _, entry := range m.Values {
		at := entry.Key.GetToken()
		switch first := given[at.Value]; {
		case entry.Key.IsMergeKey():
			r.add(at, "merge keys (<<) are not supported; write the keys out")
		case first != nil:
			p := placeOf(first)
			r.add(at, "the key %s is given twice, first at line %d, column %d; remove one", quote(at.Value), p.Line, p.Column)
		default:
			given[at.Value] = at
			read(at.Value, at, entry.Value)
		}
	}
	return given
}

// require reports which of the keys are not given. A mapping that could not be read has been
// reported already.
func (r *reader) require(n ast.Node, given map[string]*token.Token, what string, keys ...string) {
	for _, key := range keys {
		if given != nil && given[key] == nil {
			r.add(start(n), "%s has no %q; add it", what, key)
		}
	}
}

// list returns the entries of a list.
func (r *reader) list(n ast.Node, what string) []ast.Node {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		r.add(start(n), "%s is a list, this is %s; write [ ] around it or a dash before each entry", what, kind(n))
		return nil
	}
	return list.Values
}

// text returns a scalar as it is written, unquoted numbers and booleans too.
func (r *reader) text(n ast.Node, what string) (string, bool) {
	if literal, ok := n.(*ast.LiteralNode); ok && literal.Value != nil {
		return strings.TrimRight(literal.Value.Value, "\n"), true
	}
	if !scalar(n) || n.Type() == ast.NullType {
		r.add(start(n), "%s is a text, this is %s", what, kind(n))
		return "", false
	}
	return n.GetToken().Value, true
}

// some returns a text that is not empty.
func (r *reader) some(n ast.Node, what string) string {
	text, ok := r.text(n, what)
	if ok && strings.TrimSpace(text) == "" {
		r.add(start(n), "%s is empty; write one", what)
	}
	return text
}

// oneOf returns a text that is one of those allowed, "" if it is another.
func (r *reader) oneOf(n ast.Node, what string, allowed []string) string {
	text, ok := r.text(n, what)
	if !ok || slices.Contains(allowed, text) {
		return text
	}
	use := "use one of " + strings.Join(allowed, ", ")
	if len(allowed) == 1 {
		use = "use " + allowed[0]
	}
	r.add(start(n), "%s is %s%s; %s", what, quote(text), workflow.DidYouMean(text, allowed), use)
	return ""
}

// duration reads one of at least the given length.
func (r *reader) duration(n ast.Node, what string, least time.Duration) time.Duration {
	text, ok := r.text(n, what)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(text)
	switch _, number := strconv.ParseFloat(text, 64); {
	case number == nil && text != "0":
		r.add(start(n), "%s is %s of what? write a unit, for example 10s", what, quote(text))
	case err != nil:
		r.add(start(n), "%s is a duration, this is %s; write a number and a unit, for example 10s, 1m30s or 500ms", what, quote(text))
	case d < 0:
		r.add(start(n), "%s is %v; it cannot be negative", what, d)
	case d < least:
		r.add(start(n), "%s is %v; it must be more than 0s", what, d)
	case d > longest:
		r.add(start(n), "%s is %v; a test lasts at most %v", what, d, longest)
	}
	return d
}

// truth reads true or false.
func (r *reader) truth(n ast.Node, what string) bool {
	if text := n.GetToken().Value; scalar(n) && !quoted(n.GetToken()) && (text == "true" || text == "false") {
		return text == "true"
	}
	r.add(start(n), "%s is true or false, this is %s", what, kind(n))
	return false
}

// count reads a whole number, 0 or more.
func (r *reader) count(n ast.Node, what string) int {
	text := n.GetToken().Value
	i, err := strconv.Atoi(text)
	if !scalar(n) || quoted(n.GetToken()) || err != nil || strconv.Itoa(i) != text || i < 0 {
		r.add(start(n), "%s is a whole number, 0 or more, this is %s", what, kind(n))
	}
	return i
}

// value returns what JSON makes of a node. What YAML alone makes a number or a boolean of
// depends on whom one asks, so that is refused, as in a workflow's schema.
func (r *reader) value(n ast.Node) jsontext.Value {
	before := len(r.problems)
	value := jsontext.Value(r.appendValue(nil, n))
	if len(r.problems) == before && !value.IsValid() {
		r.add(start(n), "the value is nested too deeply")
	}
	return value
}

func (r *reader) appendValue(b []byte, n ast.Node) []byte {
	switch n := n.(type) {
	case *ast.MappingNode:
		b = append(b, '{')
		first := true
		r.entries(n, func(key string, _ *token.Token, value ast.Node) {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = append(r.appendText(b, key), ':')
			b = r.appendValue(b, value)
		})
		return append(b, '}')
	case *ast.SequenceNode:
		b = append(b, '[')
		for i, entry := range n.Values {
			if i > 0 {
				b = append(b, ',')
			}
			b = r.appendValue(b, entry)
		}
		return append(b, ']')
	case *ast.LiteralNode:
		if n.Value != nil {
			return r.appendText(b, n.Value.Value)
		}
	}
	if scalar(n) {
		switch text := n.GetToken().Value; {
		case quoted(n.GetToken()):
			return r.appendText(b, text)
		case n.Type() == ast.NullType && (text == "null" || text == "" || text == "~"):
			return append(b, "null"...)
		case text == "true", text == "false", jsonNumber.MatchString(text):
			return append(b, text...)
		case n.Type() == ast.StringType:
			return r.appendText(b, text)
		}
	}
	r.add(start(n), "%s is no value of JSON; write it as JSON does, or quote it if it is text", kind(n))
	return append(b, "null"...)
}

func (r *reader) appendText(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, strings.ToValidUTF8(text, "\uFFFD"))
	return b
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// scalar says whether a node is one, and has neither anchor nor tag.
func scalar(n ast.Node) bool {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		return false
	}
	_, ok := n.(ast.ScalarNode)
	return ok
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
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		return "an anchor, alias or tag"
	}
	return quote(n.GetToken().Value)
}

// start returns the token at which a node starts, in the eyes of a reader: the library's is the
// first colon for a block mapping.
func start(n ast.Node) *token.Token {
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return m.Values[0].Key.GetToken()
	}
	return n.GetToken()
}

// quote shows a piece of the file, shortened to what fits in a message.
func quote(text string) string {
	if runes := []rune(text); len(runes) > 60 {
		text = string(runes[:60]) + "…"
	}
	return strconv.Quote(text)
}

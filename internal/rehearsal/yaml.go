package rehearsal

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/yamlfile"
)

// reader reads a test file, and goes on behind what is wrong with it.
type reader struct{ yamlfile.Reader }

// add reports a problem at the token.
func (r *reader) add(at *token.Token, format string, args ...any) { r.Add(at, format, args...) }

func (r *reader) addAt(at Place, format string, args ...any) {
	r.Add(&token.Token{Position: &token.Position{Line: at.Line, Column: at.Column}}, format, args...)
}

// Place is where something stands in a file. Both count from 1, Column in characters.
type Place struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

func placeOf(at *token.Token) Place {
	e := yamlfile.ErrorAt("", at, "")
	return Place{e.Line, e.Column}
}

// maxFile is the size of the largest file, in bytes.
const maxFile = 16 << 20

// document is the file's one document; nil if there is none, which has been reported.
func (r *reader) document(source []byte) ast.Node {
	return r.Document(source, maxFile, "workflow: PATH")
}

type field = yamlfile.Field

func (r *reader) mapping(n ast.Node, what string, fields []field) map[string]*token.Token {
	return r.Mapping(n, what, fields)
}

func (r *reader) require(n ast.Node, given map[string]*token.Token, what string, keys ...string) {
	r.Require(n, given, what, keys...)
}

func (r *reader) list(n ast.Node, what string) []ast.Node {
	entries, _ := r.List(n, what)
	return entries
}

// text returns a scalar as it is written, unquoted numbers and booleans too.
func (r *reader) text(n ast.Node, what string) (string, bool) {
	if literal, ok := n.(*ast.LiteralNode); ok && literal.Value != nil {
		return strings.TrimRight(literal.Value.Value, "\n"), true
	}
	text, _, ok := r.Text(n, what)
	return text, ok
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
	r.add(start(n), "%s is %s%s; %s", what, quote(text), yamlfile.DidYouMean(text, allowed), use)
	return ""
}

// duration reads one of at least the given length.
func (r *reader) duration(n ast.Node, what string, least time.Duration) time.Duration {
	if scalar(n) && n.GetToken().Value == "0" && least == 0 {
		return 0
	}
	var d time.Duration
	r.Duration(n, what, least, longest, fmt.Sprintf("a test lasts at most %v", longest), &d)
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

func (r *reader) value(n ast.Node) jsontext.Value { return r.JSON(n) }

func scalar(n ast.Node) bool        { return yamlfile.IsScalar(n) }
func quoted(tk *token.Token) bool   { return yamlfile.IsQuoted(tk) }
func kind(n ast.Node) string        { return yamlfile.Kind(n) }
func start(n ast.Node) *token.Token { return yamlfile.Start(n) }
func quote(text string) string      { return yamlfile.Quote(text) }

package workflow

import (
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/yamlfile"
)

// What all files have in common is in package yamlfile.

type field = yamlfile.Field

func (r *reader) mapping(n ast.Node, what string, fields []field) map[string]*token.Token {
	return r.Mapping(n, what, fields)
}

func (r *reader) require(n ast.Node, given map[string]*token.Token, what string, keys ...string) {
	r.Require(n, given, what, keys...)
}

func (r *reader) list(n ast.Node, what string) ([]ast.Node, bool) { return r.List(n, what) }

func (r *reader) text(n ast.Node, what string) (string, *token.Token, bool) { return r.Text(n, what) }

func (r *reader) whole(n ast.Node, what string, most int, value *int) {
	r.Whole(n, what, most, value)
}

func (r *reader) truth(n ast.Node, what string, value *bool) { r.Truth(n, what, value) }

func (r *reader) number(n ast.Node, what string, least, most float64, value *float64) {
	r.Number(n, what, least, most, value)
}

// duration reads a duration of at least the given length into value, and
// reports whether it could.
func (r *reader) duration(n ast.Node, what string, least time.Duration, value *time.Duration) bool {
	return r.Duration(n, what, least, longest, "at most 8760h, a year, are allowed", value)
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

func kind(n ast.Node) string            { return yamlfile.Kind(n) }
func start(n ast.Node) *token.Token     { return yamlfile.Start(n) }
func quoted(tk *token.Token) bool       { return yamlfile.IsQuoted(tk) }
func where(at *token.Token) string      { return yamlfile.Where(at) }
func quote(text string) string          { return yamlfile.Quote(text) }
func clip(text string, most int) string { return yamlfile.Clip(text, most) }

func didYouMean(word string, candidates []string) string {
	return yamlfile.DidYouMean(word, candidates)
}

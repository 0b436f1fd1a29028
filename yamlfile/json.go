package yamlfile

import (
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// JSON returns what JSON makes of a node. What YAML alone makes a number or a boolean of
// depends on whom one asks, so that is refused, as in a workflow's schema.
func (r *Reader) JSON(n ast.Node) jsontext.Value {
	before := r.Wrong()
	value := jsontext.Value(r.appendValue(nil, n))
	if r.Wrong() == before && !value.IsValid() {
		r.Add(Start(n), "the value is nested too deeply")
	}
	return value
}

func (r *Reader) appendValue(b []byte, n ast.Node) []byte {
	switch n := n.(type) {
	case *ast.MappingNode:
		b = append(b, '{')
		first := true
		r.Entries(n, "", "", func(key string, _ *token.Token, value ast.Node) {
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
	if IsScalar(n) {
		switch text := n.GetToken().Value; {
		case IsQuoted(n.GetToken()):
			return r.appendText(b, text)
		case n.Type() == ast.NullType && (text == "null" || text == "" || text == "~"):
			return append(b, "null"...)
		case text == "true", text == "false", jsonNumber.MatchString(text):
			return append(b, text...)
		case n.Type() == ast.StringType:
			return r.appendText(b, text)
		}
	}
	r.Add(Start(n), "%s is no value of JSON; write it as JSON does, or quote it if it is text", Quote(Start(n).Value))
	return append(b, "null"...)
}

func (r *Reader) appendText(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, strings.ToValidUTF8(text, "\uFFFD"))
	return b
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

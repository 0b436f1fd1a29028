package workflow

import (
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// expressionKeys are the keys of a step whose values are expressions.
var expressionKeys = []string{"when", "with", "undoWith", "until", "for", "message", "key", "data", "items"}

// required are those without which what they stand in says nothing.
var required = []string{"items", "until", "concurrency.key"}

// scalar is the text of an expression, and where its parts stand in the file.
type scalar struct {
	key   string
	text  string
	start *token.Token
	lines []*token.Position // of the lines of a block text; nil elements are unknown
	quote byte              // what the text stands in; 0 when it is plain
	raw   string            // a text on one line as the file has it, without the quotes
}

// scalar returns the text of an expression, nil when it is none.
func (r *reader) scalar(n ast.Node, key, example string) *scalar {
	at := start(n)
	if literal, ok := n.(*ast.LiteralNode); ok && literal.Value != nil {
		return blockText(key, literal)
	}
	switch n.(type) {
	case *ast.MappingNode, *ast.SequenceNode:
		r.add(at, "%s is an expression, this is %s; put quotes around it, for example %s", key, kind(n), example)
		return nil
	}
	if _, ok := n.(ast.ScalarNode); !ok || n.Type() == ast.NullType {
		r.add(at, "%s is an expression, this is %s; write one, for example %s", key, kind(n), example)
		return nil
	}
	s := &scalar{key: key, text: strings.TrimRight(at.Value, " \t\r\n"), start: at}
	raw := strings.Trim(at.Origin, " \t\r\n")
	switch at.Type {
	case token.SingleQuoteType:
		s.quote = '\''
	case token.DoubleQuoteType:
		s.quote = '"'
	}
	if s.quote != 0 && len(raw) >= 2 && raw[0] == s.quote && raw[len(raw)-1] == s.quote {
		raw = raw[1 : len(raw)-1]
	}
	if !strings.Contains(raw, "\n") {
		s.raw = raw
	}
	return s
}

// blockText finds the lines of a text after | or >.
func blockText(key string, n *ast.LiteralNode) *scalar {
	value := n.Value.GetToken()
	s := &scalar{key: key, text: strings.TrimRight(value.Value, " \t\r\n"), start: n.Start}
	if n.Start.Type != token.LiteralType || n.Start.Position == nil {
		return s // > joins lines
	}
	origins := strings.Split(strings.TrimPrefix(value.Origin, "\n"), "\n")
	for i, line := range strings.Split(s.text, "\n") {
		var at *token.Position
		if i < len(origins) {
			origin := strings.TrimRight(origins[i], "\r")
			if indent, ok := strings.CutSuffix(origin, line); ok && strings.Trim(indent, " ") == "" {
				at = &token.Position{Line: n.Start.Position.Line + 1 + i, Column: len(indent) + 1}
			}
		}
		s.lines = append(s.lines, at)
	}
	return s
}

// place returns where in the file a place of the text is: a line that counts
// from 1 and a column that counts characters from 0. Where it cannot be told,
// that is the start of the text.
func (s *scalar) place(line, column int) *token.Token {
	if line >= 1 && line <= len(s.lines) && s.lines[line-1] != nil {
		at := *s.lines[line-1]
		at.Column += column
		return &token.Token{Position: &at}
	}
	if s.raw == "" || line != 1 || s.start.Position == nil {
		return s.start
	}
	offset, ok := s.offset(column)
	if !ok {
		return s.start
	}
	at := *s.start.Position
	at.Column += offset
	return &token.Token{Position: &at}
}

// offset returns how many characters of the file lie before the given number
// of characters of the text.
func (s *scalar) offset(column int) (int, bool) {
	if s.quote == 0 {
		return column, strings.HasPrefix(s.raw, s.text)
	}
	at := 1 // the quote
	for raw := s.raw; column > 0 && raw != ""; column-- {
		_, length := utf8.DecodeRuneInString(raw)
		count := 1
		switch {
		case s.quote == '\'' && strings.HasPrefix(raw, "''"):
			length, count = 2, 2
		case s.quote == '"' && raw[0] == '\\':
			length = escapeLength(raw)
			count = length
		}
		raw = raw[min(length, len(raw)):]
		at += count
	}
	return at, true
}

// escapeLength is the length of the escape sequence that text begins with.
func escapeLength(text string) int {
	if len(text) < 2 {
		return 1
	}
	switch text[1] {
	case 'x':
		return 4
	case 'u':
		return 6
	case 'U':
		return 10
	}
	return 2
}

package httpagent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/token"
)

// Error is one problem in a file. Line and Column count from 1; they point at
// what has to be changed.
type Error struct {
	File         string
	Line, Column int
	Message      string // what is wrong and what to do about it
}

// Error returns "file:line:column: message".
func (e Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Errors is what is wrong with a file, in the order of the file. It is never
// empty where [Read] returns it.
type Errors []Error

// Error returns the problems, one a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// problems collects what is wrong with one file.
type problems struct {
	file string
	list Errors
}

// add reports a problem at the token, or at the start of the file without one.
func (p *problems) add(at *token.Token, format string, args ...any) {
	e := Error{File: p.file, Line: 1, Column: 1, Message: fmt.Sprintf(format, args...)}
	if at != nil && at.Position != nil {
		// The library's columns may lie before the line where a text spans several.
		e.Line, e.Column = max(1, at.Position.Line), max(1, at.Position.Column)
	}
	p.list = append(p.list, e)
}

// sorted returns the problems in the order of the file, nil when there are none.
func (p *problems) sorted() error {
	if len(p.list) == 0 {
		return nil
	}
	slices.SortStableFunc(p.list, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return p.list
}

// quote shows a piece of what others wrote, shortened to what fits in a message.
func quote(text string) string { return fmt.Sprintf("%q", shorten(text, 60)) }

// shorten cuts a text to a number of characters.
func shorten(text string, most int) string {
	count := 0
	for i := range text {
		if count == most {
			return text[:i] + "…"
		}
		count++
	}
	return text
}

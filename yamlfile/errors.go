package yamlfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/token"
)

// Error is one problem in a file. Line and Column count from 1, Column in
// characters; they point at what has to be changed.
type Error struct {
	File         string
	Line, Column int
	Message      string // what is wrong and what to do about it
}

// ErrorAt is a problem at the token, or at the start of the file without one.
func ErrorAt(file string, at *token.Token, format string, args ...any) Error {
	e := Error{File: file, Line: 1, Column: 1, Message: fmt.Sprintf(format, args...)}
	if at != nil && at.Position != nil {
		// The library counts backwards from the end of text that spans lines,
		// and may pass the start of the line.
		e.Line, e.Column = max(1, at.Position.Line), max(1, at.Position.Column)
	}
	return e
}

// Error returns "file:line:column: message".
func (e Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Errors is what is wrong with a file, in the order of the file. It is never
// empty where something was wrong.
type Errors []Error

// Error returns the problems, one a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// maxProblems is how many problems one file may report. Nobody reads more, and
// a hostile file could have hundreds of thousands.
const maxProblems = 100

// Reader collects what is wrong with one file.
type Reader struct {
	File string // the name that problems are reported under

	list Errors
	more bool
}

// Add reports a problem at the token.
func (r *Reader) Add(at *token.Token, format string, args ...any) {
	if len(r.list) == maxProblems {
		r.more = true
		return
	}
	r.list = append(r.list, ErrorAt(r.File, at, format, args...))
}

// Wrong is how many problems there are so far.
func (r *Reader) Wrong() int { return len(r.list) }

// Sorted returns the problems in the order of the file, nil when there are none.
func (r *Reader) Sorted() Errors {
	slices.SortStableFunc(r.list, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if r.more {
		last := r.list[len(r.list)-1]
		last.Message = "there are more problems; correct these first"
		r.list = append(r.list, last)
	}
	return r.list
}

// Where names a place to a reader of a message about another place.
func Where(at *token.Token) string {
	e := ErrorAt("", at, "")
	return fmt.Sprintf("line %d, column %d", e.Line, e.Column)
}

// Quote shows a piece of what others wrote, shortened to what fits in a message.
func Quote(text string) string { return fmt.Sprintf("%q", Clip(text, 60)) }

// Clip cuts a text off after so many characters.
func Clip(text string, most int) string {
	count := 0
	for i := range text {
		if count == most {
			return text[:i] + "…"
		}
		count++
	}
	return text
}

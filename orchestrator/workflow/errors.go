package workflow

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

// Error returns "file:line:column: message".
func (e Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Errors is what is wrong with a file, in the order of the file. It is never
// empty where [Parse] returns it.
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

// problems collects what is wrong with one file.
type problems struct {
	file string
	list Errors
	more bool
}

// add reports a problem at the token.
func (p *problems) add(at *token.Token, format string, args ...any) {
	if len(p.list) == maxProblems {
		p.more = true
		return
	}
	p.list = append(p.list, errorAt(p.file, at, format, args...))
}

// sorted returns the problems in the order of the file, nil when there are none.
func (p *problems) sorted() Errors {
	slices.SortStableFunc(p.list, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if p.more {
		last := p.list[len(p.list)-1]
		last.Message = "there are more problems; correct these first"
		p.list = append(p.list, last)
	}
	return p.list
}

func errorAt(file string, at *token.Token, format string, args ...any) Error {
	e := Error{File: file, Line: 1, Column: 1, Message: fmt.Sprintf(format, args...)}
	if at != nil && at.Position != nil {
		// The library counts backwards from the end of text that spans lines,
		// and may pass the start of the line.
		e.Line, e.Column = max(1, at.Position.Line), max(1, at.Position.Column)
	}
	return e
}

// where names a place to a reader of a message about another place.
func where(at *token.Token) string {
	e := errorAt("", at, "")
	return fmt.Sprintf("line %d, column %d", e.Line, e.Column)
}

// quote shows a piece of the file, shortened to what fits in a message.
func quote(text string) string { return fmt.Sprintf("%q", clip(text, 60)) }

// clip cuts a text off after so many characters.
func clip(text string, longest int) string {
	if runes := []rune(text); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return text
}

// maxError bounds what the errors about an order say, in bytes: they become
// part of its events.
const maxError = 1 << 10

// bound cuts a message off where it is too long for an event.
func bound(message string) string {
	const mark = "…"
	message = strings.ToValidUTF8(message, "�")
	if len(message) <= maxError {
		return message
	}
	return strings.ToValidUTF8(message[:maxError-len(mark)], "") + mark
}

// guarded calls a library, and makes an error of a panic: what it makes of a
// file or an order must not end the process.
func guarded(call func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("internal error: %v", r)
		}
	}()
	return call()
}

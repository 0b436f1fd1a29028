package workflow

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/yamlfile"
)

// MaxSource is the size of the largest file, and of the largest canonical
// form, in bytes. It keeps a definition well within a Kafka message.
const MaxSource = 512 << 10

// maxRun bounds runs of '<' and of line ends, and the tabs in a line. The
// library's scanner looks ahead over what follows each of them: the time that
// it takes would grow with the square of their number, or the cube.
const maxRun = 200

const howToStart = `start it with "workflow: NAME"`

// read returns the file's one document, or the first thing in it that is not
// of the language's syntax.
func read(file string, source []byte) (ast.Node, *Error) {
	if err := checkSource(file, source); err != nil {
		return nil, err
	}
	source = bytes.TrimPrefix(source, []byte("\uFEFF"))
	tokens := scan(source)
	if len(tokens) == 0 {
		err := yamlfile.ErrorAt(file, nil, "the file is empty; %s", howToStart)
		return nil, &err
	}
	if err := (&guard{file: file, tokens: tokens}).check(); err != nil {
		return nil, err
	}
	body, err := parse(tokens)
	if err != nil {
		e := yamlfile.SyntaxError(file, err)
		return nil, &e
	}
	if body == nil {
		err := yamlfile.ErrorAt(file, nil, "the document is empty; %s", howToStart)
		return nil, &err
	}
	return body, nil
}

// Keys are those of the mapping that a file is, nil if it is none or cannot be read: by them a file
// is told that is for somebody else.
func Keys(source []byte) (keys []string) {
	body, _ := read("", source)
	if m, ok := body.(*ast.MappingNode); ok {
		for _, entry := range m.Values {
			keys = append(keys, entry.Key.GetToken().Value)
		}
	}
	return keys
}

func checkSource(file string, source []byte) *Error {
	fail := func(offset int, format string, args ...any) *Error {
		before := source[:offset]
		line := before[bytes.LastIndexByte(before, '\n')+1:]
		return &Error{
			File: file, Line: bytes.Count(before, []byte("\n")) + 1, Column: utf8.RuneCount(line) + 1,
			Message: fmt.Sprintf(format, args...),
		}
	}
	if len(source) > MaxSource {
		return fail(0, "the file has %d bytes; a workflow may have at most %d", len(source), MaxSource)
	}
	var less, ends, tabs int
	for i, c := range source {
		switch c {
		case '<':
			less, ends = less+1, 0
		case '\n', '\r':
			less, ends, tabs = 0, ends+1, 0
		case '\t':
			less, tabs = 0, tabs+1
		case ' ':
			less = 0
		default:
			less, ends = 0, 0
		}
		if less > maxRun {
			return fail(i, "more than %d < in a row; no name is that long", maxRun)
		}
		if ends > maxRun {
			return fail(i, "more than %d empty lines in a row; remove some", maxRun)
		}
		if tabs > maxRun {
			return fail(i, "more than %d tabs in a line; use spaces", maxRun)
		}
	}
	for i := 0; i < len(source); {
		r, size := utf8.DecodeRune(source[i:])
		if r == utf8.RuneError && size == 1 {
			return fail(i, "the byte 0x%02x is not UTF-8; save the file as UTF-8", source[i])
		}
		i += size
	}
	return nil
}

// scan returns the tokens up to the first invalid one, without comments.
func scan(source []byte) token.Tokens {
	var s scanner.Scanner
	s.Init(string(source))
	// One call reads everything, or ends at an invalid token, which is then
	// the last. Going on behind it, as the library's lexer does, would only
	// report what follows from it.
	scanned, _ := s.Scan()
	var tokens token.Tokens
	for _, tk := range scanned {
		if tk.Type != token.CommentType {
			tokens.Add(tk)
		}
	}
	return tokens
}

// parse returns the document's body, nil when it has none.
func parse(tokens token.Tokens) (ast.Node, error) {
	var file *ast.File
	// Repeated keys are reported with all other problems, not here.
	if err := yamlfile.Guarded(func() (err error) {
		file, err = parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
		return err
	}); err != nil {
		return nil, err
	}
	for _, doc := range file.Docs {
		if doc.Body != nil {
			return doc.Body, nil
		}
	}
	return nil, nil
}

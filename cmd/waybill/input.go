package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// readJSON reads the value of a flag: JSON, @FILE, or - for standard input.
func readJSON(flag, arg string, stdin io.Reader) ([]byte, error) {
	value, name := []byte(arg), flag
	var err error
	switch {
	case arg == "-":
		name = "standard input"
		if value, err = io.ReadAll(stdin); err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
	case strings.HasPrefix(arg, "@"):
		name = arg[1:]
		if value, err = os.ReadFile(name); err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
	}
	if err := checkJSON(value); err != nil {
		err = fmt.Errorf("%s:%w", name, err)
		if file, missing := os.Stat(arg); name == flag && missing == nil && file.Mode().IsRegular() {
			err = fmt.Errorf("%w; for what is in that file, put @ before its name", err)
		}
		return nil, usageError{err}
	}
	return value, nil
}

// checkJSON says where value is not one JSON value: "line:column: message".
func checkJSON(value []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(value), jsontext.AllowDuplicateNames(true))
	err := d.SkipValue()
	at := d.InputOffset()
	if err == nil {
		if _, err = d.ReadToken(); errors.Is(err, io.EOF) {
			return nil
		}
		err = errors.New("there is more behind the JSON value")
	} else if errors.Is(err, io.EOF) {
		err = errors.New("there is no JSON value, or it ends too early")
		at = int64(len(value))
	}
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at, err = syntax.ByteOffset, syntax.Err
	}
	before := value[:min(max(at, 0), int64(len(value)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := 1 + utf8.RuneCount(before[1+bytes.LastIndexByte(before, '\n'):])
	return fmt.Errorf("%d:%d: not JSON: %w", line, column, err)
}

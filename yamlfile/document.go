package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Document returns the one document of a file of at most so many bytes, nil after a problem. First
// is how a file starts; where it is "", one that is empty is no problem, and has none.
func (r *Reader) Document(source []byte, most int, first string) ast.Node {
	switch {
	case len(source) > most:
		r.Add(nil, "the file has %d bytes; at most %d are allowed", len(source), most)
		return nil
	case !utf8.Valid(source):
		r.Add(nil, "the file is not UTF-8; save it as UTF-8")
		return nil
	}
	var file *ast.File
	// Repeated keys are reported with all other problems, not here.
	if err := Guarded(func() (err error) {
		file, err = parser.ParseBytes(bytes.TrimPrefix(source, []byte("\uFEFF")), 0, parser.AllowDuplicateMapKey())
		return err
	}); err != nil {
		r.list = append(r.list, SyntaxError(r.File, err))
		return nil
	}
	var body ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil:
		case body != nil:
			r.Add(doc.Start, "a second document begins here; write one a file")
		default:
			body = doc.Body
		}
	}
	if body == nil && first != "" {
		r.Add(nil, "the file is empty; start it with %q", first)
	}
	return body
}

// Guarded calls the library: files come from anybody, and malformed ones have made it panic
// before. That is a fault of the file to its author, not of this process.
func Guarded(call func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the structure cannot be read (%v)", r)
		}
	}()
	return call()
}

// SyntaxError is what the library says of a file. The Error method of its errors prints the source
// around them.
func SyntaxError(file string, err error) Error {
	if known, ok := errors.AsType[yaml.Error](err); ok {
		return ErrorAt(file, known.GetToken(), "this is not YAML: %s", known.GetMessage())
	}
	return ErrorAt(file, nil, "this is not YAML: %v", err)
}

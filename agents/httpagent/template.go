package httpagent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// template is a text with placeholders: {name} stands for a part of the request,
// ${NAME} for a variable of the environment, {{ and }} for braces.
type template []piece

// piece is a literal text, a variable's value or a placeholder.
type piece struct {
	text string     // what the file says, or the variable's value
	env  string     // the variable's name
	ref  *reference // not nil for a placeholder
}

// reference names a part of the request, or of the response.
type reference struct {
	name     string   // as it is written, without the ?
	root     string   // the first part of name
	path     []string // the others
	optional bool     // {name?}: leave out what is not there
}

// The roots of placeholders. Those of trees may be followed by a path.
var (
	requestRoots = []string{"order", "step", "attempt", "operation", "idempotencyKey", "completeBy", "undo", "outcome", "stepKey", "priority", "input", "output"}
	trees        = []string{"input", "output"}
)

const responseRoots = "response.status, response.headers.NAME or response.body"

// scope says what a template may refer to.
type scope struct {
	lookup   func(string) (string, bool) // the environment
	response bool                        // whether there is a response yet
}

// parse reads a template. What it reports is everything that is wrong with it.
func (s scope) parse(text string) (t template, faults []string) {
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			t = append(t, piece{text: literal.String()})
			literal.Reset()
		}
	}
	for len(text) > 0 {
		switch {
		case strings.HasPrefix(text, "{{"), strings.HasPrefix(text, "}}"):
			literal.WriteByte(text[0])
			text = text[2:]
		case text[0] == '}':
			faults = append(faults, "a } closes nothing; write }} for the character itself")
			text = text[1:]
		case text[0] == '{', strings.HasPrefix(text, "${") && !strings.HasPrefix(text, "${{"):
			opening, rest, _ := strings.Cut(text, "{")
			name, behind, closed := strings.Cut(rest, "}")
			if !closed {
				return nil, append(faults, fmt.Sprintf("the placeholder %s has no }; write {{ for the character itself", quote(text)))
			}
			flush()
			p, fault := s.piece(opening == "$", name)
			if fault != "" {
				faults = append(faults, fault)
			}
			t, text = append(t, p), behind
		default:
			literal.WriteByte(text[0])
			text = text[1:]
		}
	}
	flush()
	return t, faults
}

func (s scope) piece(env bool, name string) (piece, string) {
	if env {
		value, fault := s.variable(name)
		return piece{text: value, env: name}, fault
	}
	ref, fault := s.reference(name)
	return piece{ref: ref}, fault
}

// variable returns the value of a variable of the environment.
func (s scope) variable(name string) (value, fault string) {
	if !isVariable(name) {
		return "", fmt.Sprintf("${%s} is no variable of the environment: names have letters, digits and _; write ${{ for the characters themselves", shorten(name, 60))
	}
	value, _ = s.lookup(name)
	switch {
	case value == "":
		return "", fmt.Sprintf("the environment variable %s is not set; set it to what is to stand here", name)
	case strings.ContainsFunc(value, isControl):
		return "", fmt.Sprintf("the environment variable %s holds a line break or another control character; set it without", name)
	}
	return value, ""
}

func isVariable(name string) bool {
	for i, c := range []byte(name) {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func (s scope) reference(text string) (*reference, string) {
	name, optional := strings.CutSuffix(text, "?")
	parts := strings.Split(name, ".")
	ref := &reference{name: name, root: parts[0], path: parts[1:], optional: optional}
	known := strings.Join(requestRoots, ", ")
	if s.response {
		known += ", " + responseRoots
	}
	switch {
	case ref.root == "response" && s.response:
		if !ref.ofResponse() {
			return ref, fmt.Sprintf("the placeholder {%s} is unknown; of a response there are %s", shorten(text, 60), responseRoots)
		}
	case ref.root == "response":
		return ref, fmt.Sprintf("the placeholder {%s} is only known under output: there is no response before the call", shorten(text, 60))
	case !slices.Contains(requestRoots, ref.root):
		return ref, fmt.Sprintf("the placeholder {%s} is unknown; write one of %s, or {{ for the character itself", shorten(text, 60), known)
	case len(ref.path) > 0 && !slices.Contains(trees, ref.root):
		return ref, fmt.Sprintf("the placeholder {%s} has a path, but %s is a single value; write {%s}", shorten(text, 60), ref.root, ref.root)
	}
	if slices.Contains(ref.path, "") {
		return ref, fmt.Sprintf("the placeholder {%s} has an empty name between its dots; remove a dot", shorten(text, 60))
	}
	return ref, ""
}

func (r *reference) ofResponse() bool {
	switch len(r.path) {
	case 0:
		return false
	case 1:
		return r.path[0] == "status" || r.path[0] == "body"
	case 2:
		return r.path[0] == "headers" || r.path[0] == "body"
	}
	return r.path[0] == "body"
}

// whole returns the placeholder that is all of the template, if there is one.
func (t template) whole() *reference {
	if len(t) == 1 {
		return t[0].ref
	}
	return nil
}

// String returns the template without the values of the environment.
func (t template) String() string {
	var b strings.Builder
	for _, p := range t {
		switch {
		case p.env != "":
			b.WriteString("${" + p.env + "}")
		case p.ref != nil:
			b.WriteString("{" + p.ref.name + "}")
		default:
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// expand returns the text with its placeholders filled in. There is none (false)
// if something optional is missing.
func (t template) expand(v *values, what string) (string, bool, error) {
	var b strings.Builder
	for _, p := range t {
		if p.ref == nil {
			b.WriteString(p.text)
			continue
		}
		text, ok, err := v.text(p.ref, what)
		if err != nil || !ok {
			return "", false, err
		}
		b.WriteString(text)
	}
	return b.String(), true, nil
}

// appendJSON appends the template as a JSON value: a placeholder alone is the
// value that it stands for, anything else a string.
func (t template) appendJSON(dst []byte, v *values, what string) ([]byte, bool, error) {
	if ref := t.whole(); ref != nil {
		value, ok, err := v.json(ref, what)
		return append(dst, value...), ok, err
	}
	text, ok, err := t.expand(v, what)
	if err != nil || !ok {
		return dst, false, err
	}
	dst, err = jsontext.AppendQuote(dst, text)
	return dst, true, err
}

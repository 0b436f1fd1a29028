package yamlfile

import (
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// All that is wrong is said at once, in the order of the file, and what is right is read.
func TestAReaderGoesOn(t *testing.T) {
	r := &Reader{File: "f.yaml"}
	var name string
	var count int
	var every time.Duration
	body := r.Document([]byte("\uFEFFcoutn: 1\nname: [a]\ncount: 3\nevery: 5\ncount: 4\n"), 100, "name: NAME")
	given := r.Mapping(body, "a file", []Field{
		{"name", func(n ast.Node) { name, _, _ = r.Text(n, "name") }},
		{"count", func(n ast.Node) { r.Whole(n, "count", 10, &count) }},
		{"every", func(n ast.Node) { r.Duration(n, "every", 1, time.Hour, "at most an hour is allowed", &every) }},
	})
	r.Require(body, given, "the file", "name", "until")
	want := `f.yaml:1:1: unknown key "coutn" in a file; did you mean "count"?; the keys are name, count, every
f.yaml:1:1: the file has no "until"; add it
f.yaml:2:7: name is a text, this is a list
f.yaml:4:8: every is "5" of what? write a unit, for example 10s
f.yaml:5:1: the key "count" is given twice, first at line 3, column 1; remove one`
	if got := r.Sorted().Error(); got != want {
		t.Errorf("%s", got)
	}
	if name != "" || count != 3 || given["coutn"] != nil {
		t.Errorf("%q, %d, %v", name, count, given)
	}
}

// Nobody reads a hundred thousand problems.
func TestProblemsAreBounded(t *testing.T) {
	r := new(Reader)
	body := r.Document([]byte("{"+strings.Repeat("x: 1, ", 1000)+"}"), 10_000, "a: b")
	r.Mapping(body, "a file", nil)
	if errs := r.Sorted(); len(errs) != maxProblems+1 || !strings.Contains(errs[maxProblems].Message, "there are more problems") {
		t.Errorf("%d problems: %v", len(errs), errs)
	}
}

// Where a file may be empty, nothing is missing in one.
func TestAnEmptyFile(t *testing.T) {
	for _, source := range []string{"", "# nothing\n", "---\n...\n"} {
		r := new(Reader)
		if body := r.Document([]byte(source), 100, ""); body != nil || r.Wrong() != 0 {
			t.Errorf("%q: %v, %v", source, body, r.Sorted())
		}
	}
}

// What is no file that anybody can read says so.
func TestNoDocument(t *testing.T) {
	for source, want := range map[string]string{
		"":                         `1:1: the file is empty; start it with "a: b"`,
		"a: b\n---\nc: d\n":        "2:1: a second document begins here",
		"a: \xff":                  "1:1: the file is not UTF-8",
		strings.Repeat("#", 101):   "1:1: the file has 101 bytes; at most 100 are allowed",
		"a: [b":                    "1:4: this is not YAML: ",
		"a: b\nc: [d, e: {f: *g}]": "",
	} {
		r := new(Reader)
		r.Document([]byte(source), 100, "a: b")
		if got := r.Sorted().Error(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%q: %s", source, got)
		}
	}
}

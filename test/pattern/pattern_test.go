// Package pattern holds docs/pattern.md against the tree: every requirement has
// a row, and whatever a row links to is there, and says that it is about it.
package pattern

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// requirements are the ids of the pattern's rows.
var requirements = []string{
	"S1", "S2", "S3", "S4", "S5", "S6",
	"A1", "A2", "A3", "A4", "A5", "A6", "A7",
	"V1", "V2", "V3", "V4", "V5", "V6", "V7", "V8",
	"T1", "T2", "T3", "T4", "T5",
	"C1", "C2", "C3",
	"P1", "P2", "P3", "P4", "P5",
}

var (
	row  = regexp.MustCompile(`(?m)^\| ([A-Z][0-9]) \|.*$`)
	link = regexp.MustCompile(`\[([^\]]+)\]\(([^)#]+)[^)]*\)`)
)

func TestEveryRequirementHasItsTests(t *testing.T) {
	const docs = "../../docs"
	page, err := os.ReadFile(filepath.Join(docs, "pattern.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]string)
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		if rows[m[1]] != "" {
			t.Errorf("%s has two rows", m[1])
		}
		rows[m[1]] = m[0]
	}
	if have, want := slices.Sorted(maps.Keys(rows)), slices.Sorted(slices.Values(requirements)); !slices.Equal(have, want) {
		t.Errorf("the page has the rows %v, not %v", have, want)
	}
	for id, text := range rows {
		tests := 0
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			name, path := m[1], filepath.Join(docs, m[2])
			if info, err := os.Stat(path); err != nil || info.IsDir() {
				if err != nil {
					t.Errorf("%s: %v", id, err)
				}
				continue
			}
			var says string
			switch {
			case strings.HasSuffix(path, "_test.go"):
				says = about(t, path, name)
			case strings.Contains(path, "testdata/plays"):
				says = play(t, path)
			default:
				continue
			}
			tests++
			if !names(says, id) {
				t.Errorf("%s: %s in %s does not name it, but says %q", id, name, m[2], says)
			}
		}
		if tests == 0 {
			t.Errorf("%s has no test", id)
		}
	}
}

// about returns the name of a test, and what its comment says.
func about(t *testing.T, path, name string) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == name {
			if len(f.Body.List) == 0 {
				t.Errorf("%s in %s is empty", name, path)
			}
			return name + ": " + f.Doc.Text()
		}
	}
	t.Errorf("there is no %s in %s", name, path)
	return ""
}

// play returns the comments of a play.
func play(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var says []string
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, "#") {
			says = append(says, line)
		}
	}
	return strings.Join(says, "")
}

var ids = regexp.MustCompile(`[SAVTCP][0-9]( to [SAVTCP][0-9])?`)

// names says whether a text names a requirement, alone or in a range.
func names(text, id string) bool {
	for _, m := range ids.FindAllString(text, -1) {
		from, to, _ := strings.Cut(m, " to ")
		if from == id || to == id || to != "" && from < id && id < to {
			return true
		}
	}
	return false
}

// V8: the supervisor restarts no process: the orchestrator has nothing with which
// it could.
func TestTheOrchestratorStartsNoProcess(t *testing.T) {
	files, err := filepath.Glob("../../orchestrator/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			switch i.Path.Value {
			case `"os/exec"`, `"syscall"`, `"golang.org/x/sys/unix"`:
				t.Errorf("%s imports %s", path, i.Path.Value)
			}
		}
	}
}

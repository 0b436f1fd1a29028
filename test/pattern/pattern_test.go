// Package pattern holds docs/pattern.md against the tree: every requirement has
// a row, and whatever a row links to is there, and says that it is about it.
package pattern

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
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
			if len(f.Body.List) == 0 || slices.ContainsFunc(f.Body.List, skips) {
				t.Errorf("%s in %s is empty, or never run", name, path)
			}
			return name + ": " + f.Doc.Text()
		}
	}
	t.Errorf("there is no %s in %s", name, path)
	return ""
}

// skips says whether a statement leaves out the test that it is of, whatever there is.
func skips(statement ast.Stmt) bool {
	s, _ := statement.(*ast.ExprStmt)
	if s == nil {
		return false
	}
	call, _ := s.X.(*ast.CallExpr)
	return call != nil && slices.Contains([]string{"t.Skip", "t.Skipf", "t.SkipNow"}, types.ExprString(call.Fun))
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
	const root = "../../orchestrator"
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	dirs := []string{root}
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, filepath.Join(root, e.Name()))
		}
	}
	if len(dirs) < 9 {
		t.Errorf("only %v were looked at", dirs)
	}
	for _, dir := range dirs {
		for path, file := range parse(t, filepath.Join(dir, "*.go")) {
			for _, what := range startsProcesses(file) {
				t.Errorf("%s %s", path, what)
			}
		}
	}
	for _, source := range []string{`import "os/exec"`, `import "syscall"`, `import "os"; var _ = os.StartProcess`, `import at "os"; var _ = at.StartProcess`} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package lane\n"+source, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(startsProcesses(file)) != 1 {
			t.Errorf("%s: %v", source, startsProcesses(file))
		}
	}
}

// startsProcesses says what of a file may start a process.
func startsProcesses(file *ast.File) (found []string) {
	for _, i := range file.Imports {
		if slices.Contains([]string{`"os/exec"`, `"syscall"`, `"golang.org/x/sys/unix"`}, i.Path.Value) {
			found = append(found, "imports "+i.Path.Value)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "StartProcess" {
			found = append(found, "uses "+types.ExprString(s))
		}
		return true
	})
	return found
}

// Decisions depend on what they are given: they import no Kafka client, make no records of
// it and open no store, read no clock and draw nothing at random.
func TestDecisionsArePure(t *testing.T) {
	for path, file := range parse(t, "../../orchestrator/decide/*.go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, what := range impure(file) {
			t.Errorf("%s %s", path, what)
		}
	}
}

// What is not pure is noticed, each alone.
func TestWhatIsNotPure(t *testing.T) {
	for _, source := range []string{
		`import "crypto/rand"`, `import "math/rand/v2"`, `import "github.com/google/uuid"`, `import "github.com/twmb/franz-go/pkg/kgo"`,
		`import "github.com/cockroachdb/pebble"`, `import "os"`, `import "net/http"`,
		`var _ = time.Now`, `func f() { go f() }`, `var _ = e.Record("topic", nil)`, `var _ *projections.Store`,
		`import at "time"`, `import . "time"`, `import p "github.com/waybill-dev/waybill/projections"`,
		`func f() { projections.Open("", id, nil) }`, `func f() { projections.Temporary() }`,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package decide\n"+source, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(impure(file)) != 1 {
			t.Errorf("%s: %v", source, impure(file))
		}
	}
}

// impure says what a file does that no decision may.
func impure(file *ast.File) (found []string) {
	for _, i := range file.Imports {
		name := strings.Trim(i.Path.Value, `"`)
		if i.Name != nil && (name == "time" || strings.HasSuffix(name, "/projections")) { // it would not be found below
			found = append(found, "renames "+name)
		}
		for _, impure := range []string{
			"github.com/twmb", "github.com/cockroachdb", "github.com/google/uuid",
			"net", "os", "io", "context", "sync", "math/rand", "crypto",
		} {
			if name == impure || strings.HasPrefix(name, impure+"/") {
				found = append(found, "imports "+name)
			}
		}
	}
	uses := map[string][]string{
		"time":        {"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"},
		"projections": {"Open", "Store", "Temporary"},
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if of := types.ExprString(n.X); slices.Contains(uses[of], n.Sel.Name) {
				found = append(found, "uses "+of+"."+n.Sel.Name)
			}
		case *ast.CallExpr: // of [events.Envelope], which gives a record of the client
			if call, ok := n.Fun.(*ast.SelectorExpr); ok && call.Sel.Name == "Record" {
				found = append(found, "calls "+types.ExprString(call))
			}
		case *ast.GoStmt:
			found = append(found, "starts a goroutine")
		}
		return true
	})
	return found
}

// parse reads Go files.
func parse(t *testing.T, pattern string) map[string]*ast.File {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatal(pattern, paths, err)
	}
	files := make(map[string]*ast.File)
	for _, path := range paths {
		if files[path], err = parser.ParseFile(token.NewFileSet(), path, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

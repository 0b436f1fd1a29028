package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/waybill-dev/waybill/test/reliability"
)

// A list that no longer fits the tree is seen before anybody runs it.
func TestTheListFitsTheTree(t *testing.T) {
	all, err := readList(os.DirFS("list"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all.mutants {
		text, err := os.ReadFile(filepath.Join("../..", m.file))
		if err == nil {
			_, err = m.apply(string(text))
		}
		if err != nil {
			t.Errorf("%s: %v", m.id, err)
		}
	}
}

const (
	named = "suite plays ./core -test.run=Plays\nsuite long N=9 M=1 ./core\n"
	whole = "# comment\n\nmutant lost\nfile core/lane.go\nbreaks S3: it is lost\nfound plays long\n<<<\n\ta\n\tb\n===\n>>>\n"
)

func TestReadList(t *testing.T) {
	all, err := readList(fstest.MapFS{"suites.txt": {Data: []byte(named)}, "lane.txt": {Data: []byte(whole)}})
	if err != nil || len(all.mutants) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	m := all.mutants[0]
	if m.id != "lane/lost" || m.file != "core/lane.go" || m.breaks != "S3: it is lost" || m.old != "\ta\n\tb" || m.new != "" || m.survives != "" {
		t.Errorf("%+v", m)
	}
	if s := m.suites[1]; s.name != "long" || s.pkg != "./core" || strings.Join(s.environment, " ") != "N=9 M=1" || m.suites[0].arguments[0] != "-test.run=Plays" {
		t.Errorf("%+v", s)
	}
}

func TestReadListRefuses(t *testing.T) {
	change := func(from, to string) string { return strings.Replace(whole, from, to, 1) }
	for text, want := range map[string]string{
		change("plays", "nobody"):               `lane.txt:6: there is no suite "nobody"`,
		change("found plays long\n", ""):        "has no file, or no suite",
		change("S3: ", ""):                      "must say whose requirement",
		change("===\n", ""):                     "=== is missing",
		change(">>>\n", ""):                     ">>> is missing",
		change("breaks", "brakes"):              `unknown word "brakes"`,
		change("mutant lost\n", ""):             "belongs to no mutant",
		change("<<<\n\ta\n\tb\n===\n>>>\n", ""): "changes nothing",
		whole + whole:                           "there are two mutants lane/lost",
		"suite plays ./other\n":                 "there are two suites",
		"suite ./other\n":                       "a suite has a name and a package",
	} {
		_, err := readList(fstest.MapFS{"suites.txt": {Data: []byte(named)}, "lane.txt": {Data: []byte(text)}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q instead of %q, of\n%s", err, want, text)
		}
	}
}

func TestApply(t *testing.T) {
	m := mutant{file: "lane.go", old: "b\nc", new: "d"}
	if text, err := m.apply("a\nb\nc\n"); err != nil || text != "a\nd\n" {
		t.Errorf("%q, %v", text, err)
	}
	for text, want := range map[string]string{"a\n": "stands 0 times in lane.go", "b\nc\nb\nc": "stands 2 times in lane.go"} {
		if _, err := m.apply(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q instead of %q", err, want)
		}
	}
	if _, err := (&mutant{}).apply(""); err == nil {
		t.Error("nothing was replaced")
	}
}

func TestFirstFailure(t *testing.T) {
	for said, want := range map[string]string{
		"--- PASS: TestA (0s)\n": "",
		"--- FAIL: TestA (0s)\n    --- PASS: TestA/x (0s)\n    --- FAIL: TestA/y (0s)\n--- FAIL: TestB (0s)\n": "TestA/y",
		"--- FAIL: TestA (0s)\n--- FAIL: TestAB/x (0s)\n":                                                      "TestA",
		"=== RUN   TestA\n=== RUN   TestB\npanic: test timed out after 1s\n":                                   "TestB (panic: test timed out)",
		"=== RUN   TestA\nfatal error: all goroutines are asleep\n":                                            "TestA (fatal error)",
		"=== RUN   TestA\n--- PASS: TestA\nPASS\nthe tests left goroutines behind: some\n":                     "TestA (the tests left goroutines behind)",
	} {
		if got := firstFailure(said); got != want {
			t.Errorf("%q instead of %q, of\n%s", got, want, said)
		}
	}
}

// The exit code says whether the list is true, in both directions.
func TestVerdict(t *testing.T) {
	known := mutant{id: "lane/known", survives: "nobody can know"}
	lost := mutant{id: "lane/lost"}
	for _, c := range []struct {
		result
		want string
	}{
		{result{mutant: &lost, suite: "plays", test: "TestPlays"}, ""},
		{result{mutant: &known}, ""},
		{result{mutant: &lost}, "lane/lost: SURVIVES"},
		{result{mutant: &known, suite: "plays", test: "TestPlays"}, "lane/known: found, and is listed as a survivor"},
		{result{mutant: &lost, err: errors.New("it does not compile")}, "lane/lost: ERROR"},
		{result{mutant: &known, err: errors.New("it does not compile")}, "lane/known: ERROR"},
	} {
		got := ""
		if err := verdict([]result{c.result}); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q instead of %q", got, c.want)
		}
	}
}

// What is known of the others stays.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(reliability.Directory, dir)
	list := []mutant{{id: "lane/known", survives: "nobody can know"}, {id: "lane/lost"}, {id: "lane/new"}}
	try := func(commit string, results ...result) reliability.Figures {
		r, err := newRecord(list)
		if err != nil {
			t.Fatal(err)
		}
		for i := range results {
			if err := r.add(t.Context(), &results[i], commit); err != nil {
				t.Fatal(err)
			}
		}
		all, err := reliability.Load("mutants")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	found := func(m *mutant) result { return result{mutant: m, suite: "plays", test: "TestPlays"} }
	try("one", result{mutant: &list[0]}, found(&list[1]), found(&mutant{id: "lane/old"}))
	all := try("two", result{mutant: &list[1]}, found(&list[2]))
	for name, want := range map[string]string{"mutants": "3", "tried": "3", "found": "1", "not found": "2"} {
		if got := fmt.Sprint(all.Get(name)); got != want {
			t.Errorf("%s: %s instead of %s", name, got, want)
		}
	}
	for _, c := range []struct{ fate, id, name, want string }{
		{survivors, "lane/known", "why", "nobody can know"},
		{survivors, "lane/known", "at", "one"},
		{survivors, "lane/lost", "why", "no suite finds it yet"},
		{survivors, "lane/lost", "at", "two"},
		{finds, "lane/new", "found by", "plays: TestPlays"},
	} {
		row, _ := all.Get(c.fate).(reliability.Figures).Get(c.id).(reliability.Figures)
		if got := row.Get(c.name); got != c.want {
			t.Errorf("%s, %s: %v instead of %s", c.id, c.name, got, c.want)
		}
	}
}

// The tree stays as it is, and what does not compile or does not fit finds nothing.
func TestLaboratory(t *testing.T) {
	root := t.TempDir()
	const code = "package core\n\nfunc Double(n int) int { return 2 * n }\n"
	for name, text := range map[string]string{
		"go.mod": "module core\n\ngo 1.21\n", "core.go": code,
		"core_test.go": "package core\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\n" +
			"func TestDouble(t *testing.T) {\n\tif Double(3) != 6 {\n\t\tt.Fatal(os.Getenv(\"N\"))\n\t}\n}\n\nfunc TestNothing(t *testing.T) { Double(0) }\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lab := &laboratory{root: root, temporary: t.TempDir(), out: t.Output()}
	weak := &suite{name: "weak", pkg: "./", arguments: []string{"-test.run=TestNothing"}}
	strong := &suite{name: "strong", pkg: "./", environment: []string{"N=9"}}
	try := func(instead string, suites ...*suite) result {
		m := mutant{id: "core/double", file: "core.go", old: "2 * n", new: instead, suites: suites}
		return lab.try(t.Context(), &m)
	}
	if r := try("3 * n", weak, strong); r.by() != "strong: TestDouble" || r.err != nil {
		t.Errorf("%q, %v", r.by(), r.err)
	}
	if r := try("3 * n", weak); r.fate() != "SURVIVES" {
		t.Error(r.line())
	}
	if r := try("2 * x", strong); r.err == nil || !strings.Contains(r.err.Error(), "undefined: x") {
		t.Error(r.line())
	}
	if text, err := os.ReadFile(filepath.Join(root, "core.go")); err != nil || string(text) != code {
		t.Errorf("the tree has changed: %s, %v", text, err)
	}

	needs := func(s *suite) error { return lab.unbroken(t.Context(), []mutant{{suites: []*suite{s}}}) }
	if err := needs(strong); err != nil {
		t.Error(err)
	}
	if err := needs(&suite{name: "none", pkg: "./", arguments: []string{"-test.run=Gone"}}); err == nil || !strings.Contains(err.Error(), "no tests to run") {
		t.Error(err)
	}
}

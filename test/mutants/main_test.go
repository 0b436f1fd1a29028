package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
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

// A test that has another name now does not leave its suite without a word.
func TestTheSuitesNameTests(t *testing.T) {
	all, err := readList(os.DirFS("list"))
	if err != nil {
		t.Fatal(err)
	}
	known := make(testsOf)
	for _, s := range all.suites {
		tests := known.of(t, s.pkg)
		for _, argument := range s.arguments {
			for _, named := range namesIn(argument) {
				if !strings.Contains(tests, named) {
					t.Errorf("suite %s: no test of %s is named %q", s.name, s.pkg, named)
				}
			}
		}
	}
}

// testsOf are the names of the tests of packages: \nTestOne\n\nTestTwo\n.
type testsOf map[string]string

func (known testsOf) of(t *testing.T, pkg string) string {
	t.Helper()
	if all, is := known[pkg]; is {
		return all
	}
	all := ""
	files, err := filepath.Glob(filepath.Join("../..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			all += "\n" + m[1] + "\n"
		}
	}
	known[pkg] = all
	return all
}

// Who found a mutant is there, and is one of those that must: else it is to be tried again.
func TestWhoFoundAMutantIsThere(t *testing.T) {
	all, err := readList(os.DirFS("list"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("WAYBILL_RESULTS", "../../docs/reliability")
	known, err := newRecord(all.mutants)
	if err != nil {
		t.Fatal(err)
	}
	tests := make(testsOf)
	for _, m := range all.mutants {
		by, _ := known.rows[m.id].Get("found by").(string)
		if by == "" {
			continue
		}
		name, test, _ := strings.Cut(by, ": ")
		i := slices.IndexFunc(m.suites, func(s *suite) bool { return s.name == name })
		if i < 0 {
			t.Errorf("%s was found by suite %s, and is to be found by another: try it again", m.id, name)
			continue
		}
		named := regexp.MustCompile(`^Test\w*`).FindString(test)
		if named != "" && !strings.Contains(tests.of(t, m.suites[i].pkg), "\n"+named+"\n") {
			t.Errorf("%s was found by %s, which %s has no more: try it again", m.id, named, m.suites[i].pkg)
		}
	}
}

// namesIn are the names that a pattern of tests has, each behind a line's end: before one, too, if the whole is meant.
func namesIn(argument string) (all []string) {
	whole := regexp.MustCompile(`\)\$([|/]|$)`).MatchString(argument)
	for pattern := range strings.SplitSeq(argument, "|") {
		pattern, _, _ = strings.Cut(pattern, "/") // that of their parts
		for _, at := range regexp.MustCompile(`Test\w*`).FindAllStringIndex(pattern, -1) {
			named, behind := "\n"+pattern[at[0]:at[1]], pattern[at[1]:]
			if strings.HasPrefix(behind, "$") || whole && (behind == "" || behind[0] == ')') {
				named += "\n"
			}
			all = append(all, named)
		}
	}
	return all
}

func TestNamesIn(t *testing.T) {
	for argument, want := range map[string][]string{
		"-test.run=^(TestA|TestB)$":              {"\nTestA\n", "\nTestB\n"},
		"-test.run=^(TestA$|TestB)":              {"\nTestA\n", "\nTestB"},
		"-test.run=^TestA|^TestB":                {"\nTestA", "\nTestB"},
		"-test.skip=^(TestA)$|/part|//part":      {"\nTestA\n"},
		"-test.run=^(TestA(Live|Views)?|TestB)$": {"\nTestA", "\nTestB\n"},
		"-test.run=^TestA$/embedded":             {"\nTestA\n"},
		"-test.skip=/part|^TestA":                {"\nTestA"},
		"-test.timeout=1m":                       nil,
	} {
		if got := namesIn(argument); !slices.Equal(got, want) {
			t.Errorf("%s names %q, not %q", argument, got, want)
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

// What ran out of time beside others is tried again alone, once; nothing else is.
func TestWhatWasLateIsTriedAlone(t *testing.T) {
	late := result{test: firstFailure("=== RUN   TestA\npanic: test timed out after 1s\n")}
	if failed := (&result{test: "TestA"}); !late.late() || failed.late() {
		t.Error("what ran out of time is not told from what failed")
	}
	for _, jobs := range []int{0, 1, 3} {
		var mu sync.Mutex
		tries := make([][]bool, 10) // whether alone
		sideBySide(len(tries), jobs, func(i int, alone bool) (again bool) {
			mu.Lock()
			defer mu.Unlock()
			tries[i] = append(tries[i], alone)
			return !alone && i%4 == 0
		})
		for i, got := range tries {
			want := []bool{jobs <= 1}
			if jobs > 1 && i%4 == 0 {
				want = append(want, true)
			}
			if !slices.Equal(got, want) {
				t.Errorf("of %d at a time %d was tried alone %v, not %v", jobs, i, got, want)
			}
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

// What does not compile any more is said, whatever else the package has, and nothing of the others.
func TestCompiles(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module core\n\ngo 1.21\n", "core.go": "package core\n\nfunc Double(n int) int {\n\tm := two()\n\treturn m * n\n}\n",
		"other.go": "package core\n\nimport \"errors\"\n\nfunc two() int { return len(errors.New(\"to\").Error()) }\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	of := func(id, old, instead string) mutant { return mutant{id: id, file: "core.go", old: old, new: instead} }
	err := compiles(t.Context(), root, []mutant{
		of("fine", "m * n", "m + n"), of("unused", "m * n", "n"), of("broken", "m * n", "m *"), of("unknown", "two()", "three()"), of("gone", "nothing", "something"),
		{id: "no code", file: "core.html"},
	})
	want := []string{"unused: ", "declared and not used: m", "broken: ", "expected operand", "unknown: ", "undefined: three", "gone: ", "stands 0 times"}
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in %q", w, err)
		}
	}
	if err != nil && strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("four do not compile: %v", err)
	}
}

// Each part of a condition is left out in turn, also where it has several itself; what a suite takes notice of is not said.
func TestConditions(t *testing.T) {
	root := t.TempDir()
	const code = "package core\n\nconst never = true && false\n\nfunc All(a, b, c bool) bool { return a && b && (c || never) }\n"
	for name, text := range map[string]string{
		"go.mod": "module core\n\ngo 1.21\n", "core.go": code,
		"core_test.go": "package core\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestExits(*testing.T) {\n\tif All(true, false, true) {\n\t\tos.Exit(3)\n\t}\n}\n\nfunc TestAll(t *testing.T) {\n\tif !All(true, true, true) || All(true, false, true) || All(true, true, false) {\n\t\tt.Fatal()\n\t}\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var said strings.Builder
	lab := &laboratory{root: root, temporary: t.TempDir(), out: t.Output()}
	all, one := regexp.MustCompile(""), []*suite{{name: "one", pkg: "./", arguments: []string{"-test.run=^TestAll$"}}}
	if err := conditions(t.Context(), &said, lab, "./", all, one, 2); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	slices.Sort(lines)
	want := []string{"", "5 parts of conditions of ./; nobody misses 2", "core.go:5: nobody misses  a  of  a && b", "core.go:5: nobody misses  never  of  c || never"}
	if !slices.Equal(lines, want) {
		t.Errorf("it says %q, not %q", lines, want)
	}
	if text, err := os.ReadFile(filepath.Join(root, "core.go")); err != nil || string(text) != code {
		t.Errorf("the tree has changed: %s, %v", text, err)
	}
	said.Reset()
	if err := conditions(t.Context(), &said, lab, "./", regexp.MustCompile(`^core\.go:5$`), one, 1); err != nil || !strings.Contains(said.String(), "5 parts") {
		t.Errorf("at a place it says %q, %v", said.String(), err)
	}
	if err := conditions(t.Context(), &said, lab, "./", regexp.MustCompile(`^core\.go:6$`), one, 1); err == nil || !strings.Contains(err.Error(), `core\.go:6`) {
		t.Error(err)
	}
	said.Reset()
	exits := []*suite{{name: "exits", pkg: "./", arguments: []string{"-test.run=^TestExits$"}}}
	if err := conditions(t.Context(), &said, lab, "./", all, exits, 1); err == nil || !strings.Contains(err.Error(), "1 could not be tried") || !strings.Contains(said.String(), "left out  b  of  a && b, and cannot tell: ") {
		t.Errorf("of a suite that ends before it says what failed it says %q, %v", said.String(), err)
	}
	if err := conditions(t.Context(), &said, lab, "./", all, []*suite{{name: "none", pkg: "./", arguments: []string{"-test.run=Gone"}}}, 1); err == nil || !strings.Contains(err.Error(), "no tests to run") {
		t.Error(err)
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

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// kinds are the runs that somebody may ask for.
var kinds = []struct{ race, long bool }{{}, {long: true}, {race: true}}

// Whatever the detector is good for, all packages are run, each once.
func TestEveryPackageIsInAPart(t *testing.T) {
	all, err := list(t.Context(), []string{"../../..."})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		whole := make(map[string]int)
		for _, p := range partsOf(all, kind.race, kind.long) {
			for _, one := range p.packages {
				if !strings.Contains(strings.Join(p.flags, " "), "-run") {
					whole[one.path]++
				}
			}
		}
		for _, one := range all {
			if whole[one.path] != 1 {
				t.Errorf("%+v: %s is in %d parts", kind, one.path, whole[one.path])
			}
		}
	}
	for _, name := range sequential {
		if len(within(all, name)) != 1 {
			t.Errorf("there is no package %s", name)
		}
	}
}

// At a desk tests that take long are left out, and nowhere else.
func TestLong(t *testing.T) {
	all, err := list(t.Context(), []string{"../../..."})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		short := !kind.race && !kind.long
		for _, p := range partsOf(all, kind.race, kind.long) {
			flags := strings.Join(p.flags, " ")
			alone := flags == "-run "+simulation || flags == "-run "+asOpenAPISays
			if slices.Contains(p.flags, "-short") != (short && !alone) {
				t.Errorf("%+v: %s", kind, p)
			}
			if short && strings.Contains(flags, undisturbed) {
				t.Errorf("what takes long does not say itself that it is left out: %s", p)
			}
			if !short && len(within(p.packages, "test/process")) > 0 && !strings.Contains(flags, undisturbed) && !strings.Contains(flags, programsRaced) {
				t.Errorf("what nothing may disturb is run beside others: %s", p)
			}
		}
	}
}

// What one part passes over, another one runs, by a name that is right: with the detector
// what goes without it elsewhere, and the other way round.
func TestWhatIsPassedOverIsRun(t *testing.T) {
	all, err := list(t.Context(), []string{"../../..."})
	if err != nil {
		t.Fatal(err)
	}
	type named struct {
		of    string // the package
		test  string
		raced bool
	}
	names, subtests := regexp.MustCompile(`Test\w+`), regexp.MustCompile(`(Test\w+)\$/\^(\w+)\$`)
	for _, kind := range kinds {
		race := kind.race
		passedOver, run := make(map[named]bool), make(map[named]bool)
		container := map[string]string{} // by what is done with it there
		for _, p := range partsOf(all, race, kind.long) {
			for i, flag := range p.flags {
				for _, name := range names.FindAllString(flag, -1) {
					if !slices.ContainsFunc(all, func(of pkg) bool { return has(t, of, "func "+name+"(") }) {
						t.Errorf("there is no test %s", name)
					}
					for _, of := range p.packages {
						switch at := (named{of.path, name, p.race}); {
						case !has(t, of, "func "+name+"("):
						case p.flags[i-1] == "-skip":
							passedOver[at] = true
						case p.flags[i-1] == "-run":
							run[at] = true
						}
					}
				}
				for _, of := range subtests.FindAllStringSubmatch(flag, -1) {
					if sub := strings.ReplaceAll(of[2], "_", " "); !slices.ContainsFunc(all, func(p pkg) bool { return has(t, p, "func "+of[1]+"(") && has(t, p, fmt.Sprintf("t.Run(%q", sub)) }) {
						t.Errorf("%s has no %q", of[1], sub)
					}
				}
				if strings.HasPrefix(flag, onContainer) {
					container[p.flags[i-1]] = p.packages[0].path
				}
			}
		}
		if len(passedOver) == 0 {
			t.Error("nothing is passed over")
		}
		if container["-skip"] != container["-run"] || (container["-skip"] != "") != race {
			t.Errorf("race=%t: on a container some are passed over, and others run: %v", race, container)
		}
		for at := range passedOver {
			with := race && !at.raced
			if strings.Contains(undisturbed, at.test) {
				with = at.raced
			}
			if !run[named{at.of, at.test, with}] {
				t.Errorf("race=%t: %s of %s is passed over, and not run", race, at.test, at.of)
			}
		}
	}
}

// has says whether the tests of a package have a text.
func has(t *testing.T, p pkg, what string) bool {
	t.Helper()
	for _, text := range texts(t, p.name()) {
		if strings.Contains(text, what) {
			return true
		}
	}
	return false
}

// known are the files of tests of packages.
var known = make(map[string][]string)

func texts(t *testing.T, name string) []string {
	t.Helper()
	if all, there := known[name]; there {
		return all
	}
	files, err := filepath.Glob(filepath.Join("../..", name, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	known[name] = all
	return all
}

// What must be alone waits for what runs beside others, and holds up those that follow. For what is idle it does neither.
func TestWhatRunsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, running := time.Now(), 0
		at := make(map[string]time.Duration)
		var mu sync.Mutex
		if err := runParts([]part{{idle: true, flags: []string{"idle"}}, {flags: []string{"before"}}, {alone: true, flags: []string{"alone"}}, {flags: []string{"after"}}}, 2, func(p part) error {
			mu.Lock()
			at[p.flags[0]] = time.Since(began)
			if running++; p.alone && running != 2 {
				t.Errorf("%d run", running)
			}
			mu.Unlock()
			if time.Sleep(time.Hour); p.idle {
				time.Sleep(9 * time.Hour)
			}
			mu.Lock()
			running--
			mu.Unlock()
			return nil
		}); err != nil {
			t.Error(err)
		}
		if want := map[string]time.Duration{"idle": 0, "before": 0, "alone": time.Hour, "after": 2 * time.Hour}; !maps.Equal(at, want) {
			t.Errorf("they began after %v, want %v", at, want)
		}
		if took := time.Since(began); took != 10*time.Hour {
			t.Errorf("it took %v", took)
		}
	})
}

// What runs beside others holds up none of them as long as there is a place, is waited for, and counts.
func TestWhatRunsBesideOthers(t *testing.T) {
	for _, fails := range []string{"", "idle", "first", "last"} {
		synctest.Test(t, func(t *testing.T) {
			var running, ran, most int
			var mu sync.Mutex
			err := runParts([]part{{idle: true, flags: []string{"idle"}}, {flags: []string{"first"}}, {}, {}, {}, {flags: []string{"last"}}}, 2, func(p part) error {
				mu.Lock()
				ran++
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(time.Hour)
				mu.Lock()
				running--
				mu.Unlock()
				if len(p.flags) > 0 && p.flags[0] == fails {
					return errors.New("it fails")
				}
				return nil
			})
			if ran != 6 || most != 3 || (err != nil) != (fails != "") {
				t.Errorf("where %q fails: %d ran, %d at a time, %v", fails, ran, most, err)
			}
		})
	}
}

// What is idle is said to be so to the system, where that has a word for it.
func TestIdle(t *testing.T) {
	var said bytes.Buffer
	for _, idle := range []bool{false, true} {
		p := part{packages: []pkg{{path: "github.com/waybill-dev/waybill/test/run"}}, idle: idle && nice != "", flags: []string{"-v", "-run", "^TestHowNiceThisIs$"}}
		if err := p.test(t.Context(), newReport(io.Discard, &said)); err != nil {
			t.Fatalf("%v: %s", err, &said)
		}
	}
	so := regexp.MustCompile(`so nice: +(-?\d+)`).FindAllStringSubmatch(said.String(), -1)
	switch {
	case nice == "", len(so) == 0, so[0][1] == "19":
		t.Skip("there is no nice, no ps, or this is as nice as may be")
	case len(so) != 2 || so[0][1] == so[1][1]:
		t.Errorf("it was said: %v of %s", so, &said)
	}
}

// TestHowNiceThisIs is what TestIdle runs.
func TestHowNiceThisIs(t *testing.T) {
	is, err := exec.CommandContext(t.Context(), "ps", "-o", "nice=", "-p", strconv.Itoa(os.Getpid())).Output()
	t.Logf("so nice: %s, %v", is, err)
}

func partsOf(all []pkg, race, long bool) []part {
	parts, _ := inParts(all, race, long, 1)
	return parts
}

// A line of the report has what tells a part from the others, and no more of what it passes over than is read.
func TestPartsAreToldInShort(t *testing.T) {
	all, err := list(t.Context(), []string{"../../..."})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		said, cut := make(map[string]bool), 0
		for _, p := range partsOf(all, kind.race, kind.long) {
			line := fmt.Sprintf(partLine, 1234.5, 12345.6, p.String())
			if said[line] || utf8.RuneCountInString(line) > 160 {
				t.Errorf("%+v: the line is too long, or of two parts: %s", kind, line)
			}
			said[line] = true
			if strings.Contains(line, "…") {
				cut++
			} else if !strings.HasSuffix(line, strings.Join(p.flags, " ")+"\n") {
				t.Errorf("something was cut from %q, and not said: %q", line, p.flags)
			}
		}
		if cut == 0 || cut == len(said) {
			t.Errorf("%+v: %d of %d lines are cut", kind, cut, len(said))
		}
	}
	whole, longer := strings.Repeat("ü", longFlag), strings.Repeat("ü", longFlag+1)
	if got := (part{packages: []pkg{{path: "p"}}, flags: []string{whole, longer, "-x"}}).String(); got != "p "+whole+" "+whole+"… -x" {
		t.Errorf("it is told as %s", got)
	}
}

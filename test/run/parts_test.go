package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
		for _, p := range inParts(all, kind.race, kind.long, 1) {
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

// Who has what only computes run elsewhere leaves out nothing else.
func TestWhatComputesElsewhere(t *testing.T) {
	all, err := list(t.Context(), []string{"../../..."})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		share := func(computing string) (parts []part, said []string) {
			parts, err := inShare(inParts(all, kind.race, kind.long, 1), computing)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range parts {
				said = append(said, p.String())
			}
			return parts, said
		}
		parts, only := share(computingOnly)
		_, none := share(computingNone)
		_, whole := share("")
		both := slices.Concat(only, none)
		slices.Sort(both)
		slices.Sort(whole)
		if len(only) != 2 || !slices.Equal(both, whole) {
			t.Errorf("%+v: %q and %q of %q", kind, only, none, whole)
		}
		for _, p := range parts {
			if onKafka, _ := split(p.packages, usesKafka); len(onKafka) > 0 && !slices.Contains(p.flags, simulation) {
				t.Errorf("%+v: %s asks for Kafka, which that share has none of", kind, p)
			}
		}
	}
	if _, err := inShare(nil, "some"); err == nil {
		t.Error("anything may be asked for")
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
		for _, p := range inParts(all, kind.race, kind.long, 1) {
			flags := strings.Join(p.flags, " ")
			alone := flags == "-run "+asOpenAPISays
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
		for _, p := range inParts(all, race, kind.long, 1) {
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

// What must be alone waits for what runs beside others.
func TestWhatRunsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		if err := runParts([]part{{beside: true}, {apart: true}}, func(p part) error {
			if p.beside {
				time.Sleep(time.Hour)
				ended = true
			} else if !ended {
				t.Error("it does not wait")
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

// What runs beside others holds up none of them, is waited for, and counts.
func TestWhatRunsBesideOthers(t *testing.T) {
	for _, fails := range []string{"", "beside", "next"} {
		synctest.Test(t, func(t *testing.T) {
			next, ended := make(chan struct{}), false
			err := runParts([]part{{beside: true, flags: []string{"beside"}}, {flags: []string{"next"}}}, func(p part) error {
				if p.beside {
					<-next
					time.Sleep(time.Hour)
					ended = true
				} else {
					close(next)
				}
				if p.flags[0] == fails {
					return errors.New("it fails")
				}
				return nil
			})
			if !ended || (err != nil) != (fails != "") {
				t.Errorf("where %q fails: ended %t, %v", fails, ended, err)
			}
		})
	}
}

// A line of the report has what tells a part from the others, and no more of what it passes over than is read.
func TestPartsAreToldInShort(t *testing.T) {
	all, err := list(t.Context(), []string{"../../..."})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		said, cut := make(map[string]bool), 0
		for _, p := range inParts(all, kind.race, kind.long, 1) {
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

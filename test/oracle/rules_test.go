package oracle

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sites finds every rule, by its place in the source, with the id of its
// requirement.
func sites(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`\bl\.rule\((?:"([A-Z][0-9])")?`)
	found := make(map[string]string)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(source), "\n") {
			if m := call.FindStringSubmatch(line); m != nil {
				found[fmt.Sprint(file, ":", n+1)] = m[1]
			}
		}
	}
	return found
}

// TestRulesNameTheirRequirements: every rule says for which requirement of
// docs/pattern.md it is there.
func TestRulesNameTheirRequirements(t *testing.T) {
	page, err := os.ReadFile("../../docs/pattern.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := make(map[string]int)
	for site, id := range sites(t) {
		if !strings.Contains(string(page), "\n| "+id+" |") {
			t.Errorf("%s: docs/pattern.md has no requirement %q", site, id)
		}
		rules[id]++
	}
	// Who removes a rule says so here. That each that is left is needed is known to
	// TestEveryRuleIsNeeded, in package orchestrator.
	want := map[string]int{
		"S1": 9, "S2": 5, "S3": 8, "S4": 3,
		"A3": 1, "A4": 1, "A5": 4,
		"V2": 3, "V3": 5, "V4": 2, "V5": 15, "V6": 1,
		"T3": 2, "T4": 2, "T5": 3,
		"C1": 14, "C2": 5, "C3": 5,
		"P1": 4, "P2": 12, "P3": 21, "P4": 6,
	}
	if !maps.Equal(rules, want) {
		t.Errorf("there are the rules %v, and must be %v", rules, want)
	}
}

package oracle

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
)

// A new input is refused for what keeps the key under which its agent was asked, and for
// nothing else.
func TestAnInputIsRefusedWhereTheKeyStays(t *testing.T) {
	for code, earned := range map[string]bool{"output-refused": true, "gone": false} {
		fault := events.Error{Code: code, Permanent: true, Step: "a", Attempt: 1}
		h := slices.Concat(history()[:2], []events.Event{
			{Type: events.StepFailed, At: after(5), Step: "a", Attempt: 1, Error: &events.Error{Code: code, Permanent: true}},
			{Type: events.OrderErrored, At: after(5), Step: "a", Reason: "why", Error: &events.Error{Code: code, Permanent: true}},
			{Type: events.AlertRaised, At: after(5), Step: "a", Reason: "why", Action: "this", Errors: []events.Error{fault}},
			{Type: events.CommandRefused, At: after(6), Operation: events.CommandResubmit, Step: "a", Reason: "step a keeps its idempotency key, and more"},
		})
		if err := follow(h); (err == nil) != earned {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// TestRulesNameTheirRequirements: every rule says for which requirement of
// docs/pattern.md it is there, and none goes unseen.
func TestRulesNameTheirRequirements(t *testing.T) {
	page, err := os.ReadFile("../../docs/pattern.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	rules := make(map[string]int)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range FamilyRules.FindAllStringSubmatch(string(source), -1) {
			if rules["families "+m[1]]++; !strings.Contains(string(page), "\n| "+m[1]+" |") {
				t.Errorf("%s: docs/pattern.md has no requirement %q", file, m[1])
			}
		}
		for _, m := range Rules.FindAllStringSubmatch(string(source), -1) {
			if m[1] != "rule" {
				rules[m[1]]++
				continue
			}
			if rules[m[2]]++; !strings.Contains(string(page), "\n| "+m[2]+" |") {
				t.Errorf("%s: docs/pattern.md has no requirement %q", file, m[2])
			}
		}
	}
	// Who removes one says so here. That each that is left is needed is known to
	// TestEveryRuleIsNeeded, in package orchestrator.
	want := map[string]int{
		"S1": 46, "S2": 37, "S3": 19, "S4": 43,
		"A3": 11, "A4": 1, "A5": 10,
		"V2": 29, "V3": 8, "V4": 5, "V5": 34, "V6": 1,
		"T1": 3, "T3": 4, "T4": 38, "T5": 12,
		"C1": 20, "C2": 6, "C3": 11,
		"P1": 13, "P2": 13, "P3": 39, "P4": 33, "P5": 1,

		"again": 1, "asked": 3, "begins": 7, "causes": 1, "count": 4, "ends": 7, "free": 2, "goesOn": 19, "keys": 1, "locks": 5, "mayUndo": 6,
		"overdue": 2, "passes": 1, "prevented": 2, "queue": 1, "refused": 1, "undosFailed": 1,

		"families S4": 2, "families A5": 2, "families V2": 4, "families S2": 2, "families T4": 2, "families C1": 4, "families C2": 1, "families C3": 3,
	}
	if !maps.Equal(rules, want) {
		t.Errorf("there are the rules %v, and must be %v", rules, want)
	}
}

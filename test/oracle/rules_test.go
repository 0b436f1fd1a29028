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
		"S1": 17, "S2": 18, "S3": 11, "S4": 13,
		"A3": 3, "A4": 1, "A5": 5,
		"V2": 14, "V3": 8, "V4": 5, "V5": 27, "V6": 1,
		"T3": 2, "T4": 8, "T5": 7,
		"C1": 16, "C2": 5, "C3": 7,
		"P1": 7, "P2": 13, "P3": 26, "P4": 15, "P5": 1,

		"again": 1, "asked": 1, "begins": 2, "causes": 1, "count": 4, "ends": 7, "free": 2, "goesOn": 13, "keys": 1, "locks": 5, "mayUndo": 3,
		"overdue": 2, "passes": 1, "prevented": 2, "queue": 1, "refused": 1, "undosFailed": 1,
	}
	if !maps.Equal(rules, want) {
		t.Errorf("there are the rules %v, and must be %v", rules, want)
	}
}

// Package pattern holds docs/pattern.md against the tree: every requirement has
// a row, and whatever a row links to is there.
package pattern

import (
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
			content, err := os.ReadFile(path)
			if info, _ := os.Stat(path); info != nil && info.IsDir() {
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", id, err)
				continue
			}
			switch {
			case strings.HasSuffix(path, "_test.go"):
				tests++
				if !strings.Contains(string(content), "func "+name+"(") {
					t.Errorf("%s: there is no %s in %s", id, name, m[2])
				}
			case strings.Contains(path, "testdata/plays"):
				tests++
			default:
				continue
			}
			if !strings.Contains(string(content), id) {
				t.Errorf("%s: %s does not name it", id, m[2])
			}
		}
		if tests == 0 {
			t.Errorf("%s has no test", id)
		}
	}
}

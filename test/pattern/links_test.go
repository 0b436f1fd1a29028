package pattern

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var (
	fenced    = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inline    = regexp.MustCompile("`[^`\n]*`")
	heading   = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
	target    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	elsewhere = regexp.MustCompile(`^[a-z]+:`)
)

// Whatever a page links to is there: the file, and in a page the heading.
func TestLinksLeadSomewhere(t *testing.T) {
	const root = "../.."
	pages, _ := filepath.Glob(root + "/*.md")
	for _, dir := range []string{"docs", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".md") {
				pages = append(pages, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	links := 0
	for _, page := range pages {
		text := fenced.ReplaceAllString(read(t, page), "")
		for _, m := range target.FindAllStringSubmatch(inline.ReplaceAllString(text, ""), -1) {
			if elsewhere.MatchString(m[1]) {
				continue
			}
			links++
			name, anchor, _ := strings.Cut(m[1], "#")
			path := page
			if name != "" {
				path = filepath.Join(filepath.Dir(page), name)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %s: %v", page, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(read(t, path)), anchor) {
				t.Errorf("%s: %s is no heading of %s", page, m[1], path)
			}
		}
	}
	if links < 100 {
		t.Errorf("there are %d links", links)
	}
}

// anchors are those that GitHub gives the headings of a page.
func anchors(page string) (all []string) {
	seen := make(map[string]int)
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		n := seen[anchor]
		if seen[anchor]++; n > 0 {
			anchor = fmt.Sprintf("%s-%d", anchor, n)
		}
		all = append(all, anchor)
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

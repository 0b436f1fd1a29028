package decide

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	givenCode    = regexp.MustCompile(`events\.Error\{\s*Code: ([^,}]+)[,}]|\.Code(?:, [\w.]+)* = ("[a-z-]+"|[\w.]+)[,\n]|inVain\(\w+, ([\w.]+),`)
	constantCode = regexp.MustCompile(`(?m)^(?:const |\t)(\w+) += "([a-z-]+)"`)
	endedCodes   = regexp.MustCompile(`ends = map\[State\]string\{(.*)\}`)
	quotedCode   = regexp.MustCompile("[\"`]([a-z-]+)[\"`]")
)

// docs/messages.md has the codes of errors that Waybill itself gives, and no others.
func TestCodesAreDocumented(t *testing.T) {
	constants, given := make(map[string]string), make(map[string]bool)
	said := make(map[string]string) // where each is given
	for _, pattern := range []string{"*.go", "../../events/*.go", "../../projections/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range constantCode.FindAllStringSubmatch(string(source), -1) {
				constants[m[1]] = m[2]
			}
			for _, m := range givenCode.FindAllStringSubmatch(string(source), -1) {
				said[m[1]+m[2]+m[3]] = file
			}
			if m := endedCodes.FindStringSubmatch(string(source)); m != nil {
				for _, code := range quotedCode.FindAllStringSubmatch(m[1], -1) {
					given[code[1]] = true
				}
			}
		}
	}
	for _, others := range []string{"code", "ends[o.State]", "first.Code", "f.Code", "t.def.Raise.Code", "o.Failure.Code"} {
		if said[others] == "" {
			t.Errorf("nothing gives %s", others)
		}
		delete(said, others)
	}
	for what, file := range said {
		code, err := strconv.Unquote(what)
		if err != nil {
			code = constants[strings.TrimPrefix(what, "events.")]
		}
		if given[code] = true; code == "" {
			t.Errorf("%s: nobody knows which code %s is", file, what)
		}
	}

	page, err := os.ReadFile("../../docs/messages.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "\nCodes that Waybill itself puts into an `error`: ")
	list, _, _ = strings.Cut(list, "\n\n")
	listed := make(map[string]bool)
	for _, m := range quotedCode.FindAllStringSubmatch(list, -1) {
		listed[m[1]] = true
	}
	if want, got := slices.Sorted(maps.Keys(given)), slices.Sorted(maps.Keys(listed)); !slices.Equal(got, want) {
		t.Errorf("docs/messages.md has the codes\n%q\nand they are\n%q", got, want)
	}
}

package rehearsal

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func (p Place) compare(other Place) int {
	return cmp.Or(cmp.Compare(p.Line, other.Line), cmp.Compare(p.Column, other.Column))
}

// compareJSON says where two values are different, each place by its path. Nothing is null, as it
// is to expressions.
func compareJSON(at Place, what string, want, got jsontext.Value) (all []Difference) {
	if len(want) == 0 {
		want = jsontext.Value("null")
	}
	if len(got) == 0 {
		got = jsontext.Value("null")
	}
	compareValues(what, want, got, func(path string, want, got jsontext.Value) {
		all = append(all, Difference{Place: at, What: path, Expected: shown(want), Found: shown(got)})
	})
	return all
}

// shown is a value for people; nil is a member that is not there.
func shown(value jsontext.Value) string {
	if value == nil {
		return "nothing"
	}
	return string(value)
}

func compareValues(path string, want, got jsontext.Value, differ func(path string, want, got jsontext.Value)) {
	if want == nil || got == nil || want.Kind() != got.Kind() {
		differ(path, want, got)
		return
	}
	switch want.Kind() {
	case jsontext.KindBeginObject:
		wants, gots := decode[map[string]jsontext.Value](want), decode[map[string]jsontext.Value](got)
		both := maps.Clone(wants)
		maps.Copy(both, gots)
		for _, name := range slices.Sorted(maps.Keys(both)) {
			compareValues(path+"."+name, wants[name], gots[name], differ)
		}
	case jsontext.KindBeginArray:
		wants, gots := decode[[]jsontext.Value](want), decode[[]jsontext.Value](got)
		for i := range max(len(wants), len(gots)) {
			compareValues(fmt.Sprintf("%s[%d]", path, i), at(wants, i), at(gots, i), differ)
		}
	case jsontext.KindNumber:
		if !sameNumber(string(want), string(got)) {
			differ(path, want, got)
		}
	default:
		if decode[any](want) != decode[any](got) {
			differ(path, want, got)
		}
	}
}

func at(list []jsontext.Value, i int) jsontext.Value {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// decode reads a value as payloads are read everywhere: of members of one name the last one counts.
func decode[M any](value jsontext.Value) M {
	var m M
	err := json.Unmarshal(value, &m, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return must(m, err) // it was in an event, or in a file
}

// sameNumber compares by all digits: 1, 1.0 and 10e-1 are the same. Numbers whose digits would
// fill a page are the same if they are written alike.
func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	if !short(a) || !short(b) {
		return false
	}
	x, y := new(big.Rat), new(big.Rat)
	_, good := x.SetString(a)
	_, also := y.SetString(b)
	return good && also && x.Cmp(y) == 0
}

func short(number string) bool {
	i := strings.IndexAny(number, "eE")
	return len(number) <= 100 && (i < 0 || len(strings.TrimLeft(number[i+1:], "+-0")) <= 3)
}

// most is how many pairs of lines are compared to align two lists.
const most = 4_000_000

// compareLists aligns what is expected with what was found, so that as much as possible is alike.
func compareLists(at Place, what string, want, got []string, alike func(i, j int) bool) []Difference {
	first := 0
	for first < min(len(want), len(got)) && alike(first, first) {
		first++
	}
	if first == len(want) && first == len(got) {
		return nil
	}
	d := Difference{Place: at, What: what, Expected: fmt.Sprintf("a list of %d", len(want)), Found: fmt.Sprintf("a list of %d, different from number %d on", len(got), first+1)}
	line := func(mark, text string) { d.Lines = append(d.Lines, mark+" "+text) }
	for i := range first {
		line(" ", got[i])
	}
	left, right := len(want)-first, len(got)-first
	// longest[i][j] is how many of what is left from i and j on can be aligned.
	longest := make([][]int32, left+1)
	if (left+1)*(right+1) <= most {
		for i := range longest {
			longest[i] = make([]int32, right+1)
		}
		for i := left - 1; i >= 0; i-- {
			for j := right - 1; j >= 0; j-- {
				longest[i][j] = max(longest[i+1][j], longest[i][j+1])
				if alike(first+i, first+j) {
					longest[i][j] = max(longest[i][j], longest[i+1][j+1]+1)
				}
			}
		}
	}
	i, j := 0, 0
	for i < left || j < right {
		switch {
		case longest[0] != nil && i < left && j < right && alike(first+i, first+j) && longest[i][j] == longest[i+1][j+1]+1:
			line(" ", got[first+j])
			i, j = i+1, j+1
		case i < left && (longest[0] == nil || j == right || longest[i+1][j] >= longest[i][j+1]):
			line("-", want[first+i])
			i++
		default:
			line("+", got[first+j])
			j++
		}
	}
	d.Lines = abridged(d.Lines)
	return []Difference{d}
}

// How much is shown of lines that are alike, at each end, and of all of them.
const (
	aroundThem = 3
	mostLines  = 60
)

// abridged leaves out what is far from any difference, and what nobody reads.
func abridged(lines []string) (kept []string) {
	for i := 0; i < len(lines); {
		run := i
		for run < len(lines) && lines[run][0] == ' ' {
			run++
		}
		if run-i > 2*aroundThem+1 {
			kept = append(kept, lines[i:i+aroundThem]...)
			kept = append(kept, fmt.Sprintf("  ... %d more", run-i-2*aroundThem))
			i = run - aroundThem
		}
		kept = append(kept, lines[i:run]...)
		for i = run; i < len(lines) && lines[i][0] != ' '; i++ {
			kept = append(kept, lines[i])
		}
	}
	if len(kept) > mostLines {
		kept = append(kept[:mostLines], fmt.Sprintf("  ... %d more", len(kept)-mostLines))
	}
	return kept
}

package yamlfile

import (
	"fmt"
	"strings"
)

// maxWord is the size of the longest word that is compared, in bytes: what is longer costs much.
const maxWord = 100

// DidYouMean returns `; did you mean "x"?` for the candidate that word is most
// likely a misspelling of, "" when there is none.
func DidYouMean(word string, candidates []string) string {
	best, distance := "", 3
	if len(word) < 5 {
		distance = 2
	}
	for _, candidate := range candidates {
		if len(candidate) > maxWord || len(word) > maxWord {
			continue
		}
		if d := edits(strings.ToLower(word), strings.ToLower(candidate)); d < distance && d < len(candidate) {
			best, distance = candidate, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// edits is the number of bytes to insert, remove, replace or swap with their
// neighbour that turns a into b, or a larger number than any misspelling has
// where the lengths rule one out.
func edits(a, b string) int {
	if max(len(a), len(b))-min(len(a), len(b)) > 2 {
		return maxWord
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

package events_test

import (
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

// act is what an idempotency key stands for: all attempts of one step, or to undo
// what they did, between two resubmissions that gave it another.
type act struct {
	order, step   string
	resubmissions int
	undo          bool
	ofUndo        int // resubmissions
}

func (a act) key() string {
	key := events.IdempotencyKey(a.order, a.step, a.resubmissions)
	if a.undo {
		return events.UndoKey(key, a.ofUndo)
	}
	return key
}

func TestIdempotencyKey(t *testing.T) {
	for want, a := range map[string]act{
		"o-1/charge":          {"o-1", "charge", 0, false, 0},
		"o-1/charge:2":        {"o-1", "charge", 1, false, 0},
		"o-1/charge:10":       {"o-1", "charge", 9, false, 0},
		"o-1/charge:undo":     {"o-1", "charge", 0, true, 0},
		"o-1/charge:undo:2":   {"o-1", "charge", 0, true, 1},
		"o-1/charge:2:undo":   {"o-1", "charge", 1, true, 0},
		"o-1/charge:3:undo:2": {"o-1", "charge", 2, true, 1},
		"a/b:undo/charge":     {"a/b:undo", "charge", 0, false, 0},
	} {
		if got := a.key(); got != want {
			t.Errorf("%+v has the key %s, want %s", a, got, want)
		}
	}
}

// A remote service that saw one key for two acts would take the second for a
// repeat of the first, and do nothing (A3). That no two share one is shown by
// taking keys apart: whatever text the order id is, the key says which act.
func TestIdempotencyKeysAreUnique(t *testing.T) {
	parts := rapid.SampledFrom([]string{"o", "/", ":", "-", "undo", ":undo", "2", ":2", "a/a:undo:2"})
	order := rapid.OneOf(
		rapid.StringN(1, -1, events.MaxOrderID),
		rapid.Map(rapid.SliceOfN(parts, 1, 6), func(parts []string) string { return strings.Join(parts, "") }),
	)
	step := rapid.OneOf(rapid.StringMatching(`[a-z0-9-]+`), rapid.SampledFrom([]string{"undo", "2", "a-undo", "undo-2"}))
	rapid.Check(t, func(t *rapid.T) {
		a := act{
			order: order.Draw(t, "order"), step: step.Draw(t, "step"),
			undo: rapid.Bool().Draw(t, "undo"), resubmissions: rapid.IntRange(0, 1000).Draw(t, "resubmissions"),
		}
		if a.undo {
			a.ofUndo = rapid.IntRange(0, 1000).Draw(t, "of the undo")
		}
		if got := apart(a.key()); got != a {
			t.Fatalf("%+v has the key %q, which says %+v", a, a.key(), got)
		}
	})
}

// The same without taking apart: all acts on orders and steps whose names are
// made of what keys are made of.
func TestIdempotencyKeysOfLookalikesAreUnique(t *testing.T) {
	seen := map[string]act{}
	for _, order := range sequences("o", "/", ":", "-", "undo", "2") {
		for _, step := range sequences("o", "-", "undo", "2") {
			for _, resubmissions := range []int{0, 1, 21} {
				for _, ofUndo := range []int{-1, 0, 1, 21} {
					a := act{order, step, resubmissions, ofUndo >= 0, max(ofUndo, 0)}
					if other, found := seen[a.key()]; found {
						t.Fatalf("%+v and %+v share the key %q", a, other, a.key())
					}
					seen[a.key()] = a
				}
			}
		}
	}
}

func apart(key string) act {
	slash := strings.LastIndexByte(key, '/')
	var a act
	a.order, key = key[:slash], key[slash+1:]
	a.step, key, _ = strings.Cut(key, ":")
	of := &a.resubmissions
	for part := range strings.SplitSeq(key, ":") {
		if n, err := strconv.Atoi(part); err == nil {
			*of = n - 1
		} else if part == "undo" {
			a.undo, of = true, &a.ofUndo
		}
	}
	return a
}

// sequences returns every text of one to three of parts.
func sequences(parts ...string) []string {
	all, longest := parts, parts
	for range 2 {
		var longer []string
		for _, start := range longest {
			for _, part := range parts {
				longer = append(longer, start+part)
			}
		}
		all, longest = append(all[:len(all):len(all)], longer...), longer
	}
	return all
}

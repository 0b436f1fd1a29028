package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// What an instance tells of how far it is: a digit for each partition, 0 where it is close
// enough, or serves.
func TestHowFarAnInstanceIs(t *testing.T) {
	g := newProgress(7, 100)
	if got := g.tells(); got != "zzzzzzz" {
		t.Errorf("before it has looked it tells %s", got)
	}
	ends, silent := map[int32]int64{0: 0, 1: 1100, 2: 1101, 3: 5000, 4: 5000, 5: 1 << 40}, error(nil)
	folded := map[int32]int64{1: 1000, 2: 1000, 4: 5001}
	g.ends = func(context.Context) (map[int32]int64, error) { return ends, silent }
	g.folded = func() (map[int32]int64, error) { return folded, nil }
	g.serves = func(p int32) bool { return p == 5 }
	must(t, g.look(t.Context()))
	if got := g.tells(); got != "007d00z" {
		t.Errorf("it tells %s", got)
	}
	silent = errors.New("Kafka is away")
	ends = map[int32]int64{2: 1102, 6: 1 << 62}
	g.serves = func(int32) bool { return false }
	if err := g.look(t.Context()); !errors.Is(err, silent) {
		t.Errorf("that Kafka was silent is told as %v", err)
	}
	if got := g.tells(); got != "007d0zz" {
		t.Errorf("of what Kafka did not say it tells %s", got)
	}
}

// An instance tells the group that it is ready only for what it is to get, and not again
// and again.
func TestWhenTheGroupIsTold(t *testing.T) {
	g, clock := newProgress(4, 100), time.Now()
	g.now = func() time.Time { return clock }
	asks := func(behind string, next ...int32) string {
		g.behind = behind
		g.hears(next)
		return fmt.Sprint(g.asks())
	}
	for _, c := range []struct {
		name   string
		behind string
		next   []int32
		later  time.Duration
		want   string
	}{
		{"it is to get nothing", "0000", nil, 0, "[]"},
		{"it is not ready for that", "009z", []int32{2, 3, 9}, 0, "[]"},
		{"it is ready for some", "0000", []int32{1, 3}, 0, "[1 3]"},
		{"it was just told", "0000", []int32{1, 3}, askEvery - 1, "[]"},
		{"it was told a while ago", "0009", []int32{1, 3}, 1, "[1]"},
	} {
		clock = clock.Add(c.later)
		if got := asks(c.behind, c.next...); got != c.want {
			t.Errorf("%s: it tells that it is ready for %s, and must for %s", c.name, got, c.want)
		}
	}
}

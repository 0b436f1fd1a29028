package agents

import (
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestWatermarkMovesWithoutGaps(t *testing.T) {
	var w watermark
	begin := func(offset int64) ticket { return w.begin(&kgo.Record{Offset: offset, LeaderEpoch: 3}) }
	want := func(next int64, ahead int) {
		t.Helper()
		if w.next.Offset != next || w.ahead() != ahead {
			t.Errorf("the mark is at %d with %d ahead, want %d with %d", w.next.Offset, w.ahead(), next, ahead)
		}
	}
	// The offsets skip 12 and 13, as after a transaction's marker.
	a, b, c := begin(10), begin(11), begin(14)
	want(0, 3)
	w.finish(c)
	want(0, 3)
	w.finish(a)
	want(11, 2)
	d := begin(15)
	w.finish(b)
	want(15, 1)
	w.finish(d)
	want(16, 0)
	if w.next.Epoch != 3 {
		t.Errorf("the epoch is %d", w.next.Epoch)
	}
}

// Against a model that remembers everything: whatever the order, the mark is one
// after the last of the finished requests that have only finished ones before.
func TestWatermarkAgainstModel(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		var (
			w       watermark
			offsets []int64
			open    = make(map[ticket]int) // to the index in offsets
			done    = make(map[int]bool)
		)
		for offset := int64(0); len(offsets) < 500 || len(open) > 0; {
			if len(offsets) < 500 && (len(open) == 0 || random.IntN(100) < 52) {
				offset += 1 + int64(random.IntN(3))
				open[w.begin(&kgo.Record{Offset: offset})] = len(offsets)
				offsets = append(offsets, offset)
			} else {
				for ticket, index := range open { // in random order
					w.finish(ticket)
					delete(open, ticket)
					done[index] = true
					break
				}
			}
			var next int64
			gapless := 0
			for gapless < len(offsets) && done[gapless] {
				next = offsets[gapless] + 1
				gapless++
			}
			if w.next.Offset != next || w.ahead() != len(offsets)-gapless {
				t.Fatalf("seed %d: the mark is at %d with %d ahead, want %d with %d", seed, w.next.Offset, w.ahead(), next, len(offsets)-gapless)
			}
		}
	}
}

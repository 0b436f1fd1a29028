package projections

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// Whoever watches an order is told once readers see what was written of it, and of no other. What is written before
// anybody looks is told once.
func TestWatch(t *testing.T) {
	j := newJournal()
	s, p := temporary(t)
	j.claim("i-1", 1, events.JournalFormat)
	first, second, other := s.Watch(0, "o-1"), s.Watch(0, "o-1"), s.Watch(1, "o-1")
	told := func(w *Watch) bool {
		select {
		case <-w.Written:
			return true
		default:
			return false
		}
	}
	j.add(accepted("o-1", "flow"), started("o-1", "s0", 1, start.Add(time.Minute)))
	j.add(accepted("o-2", "flow"))
	must(t, fold(p, j.records))
	if told(first) {
		t.Error("it is told before readers see it")
	}
	must(t, p.Flush())
	j.add(done("o-1", "s0"))
	must(t, fold(p, j.records))
	must(t, p.Flush())
	if !told(first) || told(first) || !told(second) || told(other) {
		t.Error("it is not told once to all who watch the order")
	}
	second.Close()
	j.add(accepted("o-3", "flow"))
	must(t, fold(p, j.records))
	must(t, p.Flush())
	if told(first) {
		t.Error("it is told of another order")
	}
	j.add(started("o-1", "s1", 1, start.Add(time.Minute)))
	must(t, fold(p, j.records))
	must(t, p.Flush())
	if !told(first) || told(second) {
		t.Error("it is not told to who watches still, alone")
	}
	first.Close()
	other.Close()
	if n := s.watches.some.Load(); n != 0 || len(s.watches.of) != 0 {
		t.Errorf("%d watches are left: %v", n, s.watches.of)
	}
}

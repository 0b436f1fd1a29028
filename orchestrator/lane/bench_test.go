package lane

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// BenchmarkBatch has a lane decide on whole orders of three steps, and fold them: 250 are
// submitted in one batch, and answered in three others. What Kafka does is left out. An op is
// one order.
func BenchmarkBatch(b *testing.B) {
	l, w := newLane(b)
	w.flows.Add(parseFlow(b, "workflow: three\nsteps:\n  - {name: reserve, agent: inventory, undo: release}\n  - {name: charge, agent: payment, undo: refund}\n  - {name: ship, agent: shipping}\n"))
	steps := []string{"reserve", "charge", "ship"}
	offset, named, last := int64(0), 0, ""
	record := func(topic, kind, key, value string) *kgo.Record {
		r := typed(topic, kind, key, value)
		offset++
		r.Offset, r.Timestamp = offset, time.Now()
		return r
	}
	commits := func(records []*kgo.Record) {
		must(b, l.decide(records))
		l.begin()
		for _, r := range l.inflight.records {
			offset++
			r.Offset = offset
		}
		l.inflight.ended = l.time.Wall()
		must(b, l.conclude(nil))
	}
	b.ReportAllocs()
	for left := b.N; left > 0; {
		b.StopTimer()
		var keys []string
		for len(keys) < min(PollRecords, left) {
			named++
			if key := fmt.Sprint("o-", named); l.byKey.Of([]byte(key)) == l.partition {
				keys = append(keys, key)
			}
		}
		var batches [4][]*kgo.Record
		for _, key := range keys {
			batches[0] = append(batches[0], record(l.topics.Orders, "", key, `{"workflow":"three","input":{"customer":"c-7"}}`))
			for i, name := range steps {
				batches[i+1] = append(batches[i+1], record(l.topics.Replies, "", key, fmt.Sprintf(`{"order":%q,"step":%q,"attempt":1,"status":"completed","output":{"id":"x-1"}}`, key, name)))
			}
		}
		left, last = left-len(keys), keys[len(keys)-1]
		b.StartTimer()
		for _, records := range batches {
			commits(records)
		}
	}
	b.StopTimer()
	if o, err := l.order(last); err != nil || o == nil || o.State != projections.Processed {
		b.Fatalf("the last order is not done: %+v, %v", o, err)
	}
}

// BenchmarkDue is the supervisor's look while 100,000 orders wait: for the reply of an agent within
// a year, or for one that is away. An op is a look, of which a lane has one a tick; the clock has moved
// by a tick at each, since a second look within a millisecond has nothing to look at.
func BenchmarkDue(b *testing.B) {
	const waiting, tick = 100_000, 250 * time.Millisecond
	for _, agent := range []string{"", "gone"} {
		l, w := newLane(b)
		w.flows.Add(parseFlow(b, "workflow: call\nsteps: [{name: call, agent: phone, timeout: 8760h}]"))
		w.away[l.topics.Requests("phone")] = agent
		now := events.Time(time.Now())
		l.time.Wall = func() time.Time { return now }
		l.time.Timer = l.time.Wall
		l.waitFor(b, waiting)
		found := func(b *testing.B, before func()) {
			b.Helper()
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(tick)
				before()
				if must(b, l.supervise()); len(l.due.found) > 0 {
					b.Fatalf("%d are due", len(l.due.found))
				}
			}
		}
		if agent != "" {
			for l.look = true; l.look; { // each is found once, and kept in mind
				l.looks(b)
				l.commits(b)
			}
			b.Run("of an agent that is away", func(b *testing.B) { found(b, func() {}) })
			continue
		}
		b.Run("of a reply", func(b *testing.B) { found(b, func() {}) })
		b.Run("from the first on", func(b *testing.B) { found(b, l.state.Rescan) })
		b.Run("all are due", func(b *testing.B) {
			b.ReportAllocs()
			later := now.Add(2 * 8760 * time.Hour)
			for b.Loop() {
				l.state.Rescan()
				n := 0
				for {
					due, err := l.state.Due(later, DueAtOnce)
					must(b, err)
					if n += len(due); len(due) < DueAtOnce {
						break
					}
				}
				if n != waiting {
					b.Fatalf("%d are due", n)
				}
			}
		})
	}
}

// BenchmarkAFullLine says what a line takes in memory that is full: the places of one operation
// of an agent, and of one priority, whose workflow bounds the wait.
func BenchmarkAFullLine(b *testing.B) {
	for b.Loop() {
		l, _ := newLane(b)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for n := range awaySteps {
			id := fmt.Sprintf("%036d", n) // as long as a UUID
			l.waits(step{id, strings.Clone("charge")}, decide.Ask{Topic: l.topics.Requests("payment"), Operation: "charge", Timeout: time.Minute, Attempts: 3, Until: l.time.Wall().Add(time.Hour)})
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if len(l.away.steps) != awaySteps {
			b.Fatalf("%d wait", len(l.away.steps))
		}
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB")
		runtime.KeepAlive(l)
	}
}

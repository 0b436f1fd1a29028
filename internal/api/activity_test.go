package api

import (
	"testing"
	"time"

	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// What is measured is of the time between two samples, and of those workflows that the caller sees; what is older than an
// hour is thrown away.
func TestActivity(t *testing.T) {
	var a activity
	start := time.Date(2030, 1, 2, 3, 0, 0, 0, time.UTC)
	at := func(n int) *measured {
		accepted := float64(100 + n)
		return &measured{
			at:     start.Add(time.Duration(n) * sampleEvery),
			totals: lane.Totals{Accepted: map[string]float64{"a": accepted, "b": 7, lane.OtherNames: 2 * accepted}, Ended: map[string]float64{"b": accepted}, Waited: lane.Sum{Count: uint64(n), Seconds: float64(n) / 2}},
			open:   map[string]Open{"a": {Error: 1}, "b": {Error: 2, Pending: 3}, lane.OtherNames: {Processing: 4}},
			oldest: 5, overdue: 7,
		}
	}
	a.note(nil)
	a.note(at(0))
	if all := a.of(start, nil); len(all) != 0 {
		t.Fatalf("what was before the first is not known: %+v", all)
	}
	a.note(at(1))
	a.note(at(2))
	a.note(nil) // it serves nothing
	a.note(at(4))
	a.note(at(5))
	all := a.of(at(5).at, nil)
	if len(all) != 3 || !all[2].At.Equal(at(5).at) || all[1].Seconds != 30 {
		t.Fatalf("%+v", all)
	}
	if s := all[0]; s.Begun != 3 || s.Ended != 1 || *s.Open != (Open{Error: 3, Pending: 3, Processing: 4}) || *s.Waited != .5 || s.Late != nil || *s.Oldest != 5 || *s.Overdue != 7 {
		t.Errorf("of all: %+v, %+v", s, s.Open)
	}
	limited := a.of(at(5).at, func(workflow string) bool { return workflow != "b" })
	if s := limited[0]; s.Begun != 1 || s.Ended != 0 || *s.Open != (Open{Error: 1}) || s.Waited != nil || s.Oldest != nil || s.Overdue != nil {
		t.Errorf("of some: %+v, %+v", s, s.Open)
	}
	again := at(6)
	again.totals = lane.Totals{Accepted: map[string]float64{"a": 2}} // they began anew
	again.open = nil
	a.note(again)
	if s := a.of(again.at, nil)[3]; s.Begun != 0 || s.Open != nil || s.Waited != nil {
		t.Errorf("after a restart: %+v", s)
	}
	for n := 7; n < 1000; n++ {
		a.note(at(n))
	}
	if n := len(a.samples); n != int(sampleKept/sampleEvery) {
		t.Errorf("%d are kept", n)
	}
	if n := len(a.of(at(999).at.Add(sampleKept-sampleEvery), nil)); n != 1 {
		t.Errorf("%d are said to be of the last hour, where nothing is measured any more", n)
	}
}

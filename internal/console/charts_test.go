package console

import (
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/internal/api"
)

// What was measured is drawn: a line stops where nothing is known, its top is the most of all lines of the drawing, and what is not
// known at all is not drawn.
func TestCharts(t *testing.T) {
	start := time.Date(2030, 1, 2, 3, 0, 0, 0, time.UTC)
	sample := func(n, begun int, open *api.Open) api.Sample {
		return api.Sample{At: api.Time{Time: start.Add(time.Duration(n) * 30 * time.Second)}, Seconds: 30, Begun: begun, Open: open}
	}
	a := &api.Activity{Instance: "i", Partitions: 1, Samples: []api.Sample{
		sample(1, 10, &api.Open{Error: 1}), sample(2, 20, nil), sample(20, 5, &api.Open{Pending: 2}), sample(21, 0, &api.Open{Pending: 4}),
	}}
	a.Samples[2].Overdue, a.Samples[3].Overdue = new(120.0), new(60.0)
	c := chartsOf(a)
	titles := make(map[string]chart)
	for _, one := range c.Charts {
		titles[one.Title] = one
	}
	if overdue := titles["For how long it was due what is not decided"]; overdue.Most != lasting(120) || overdue.Lines[0].Now != lasting(60) || !strings.HasSuffix(overdue.Lines[0].Runs[0], "300.0,35.0") || !strings.Contains(overdue.Says(), "longest: "+lasting(60)) {
		t.Errorf("%+v", overdue)
	}
	if len(titles) != 4 { // how late it is decided, and agents, are not known
		t.Fatalf("%+v", titles)
	}
	begun := titles["Orders a minute"].Lines[0]
	if titles["Orders a minute"].Most != "40 a minute" || begun.Now != "0 a minute" || len(begun.Runs) != 2 || strings.Count(begun.Runs[0], " ") != 2 || !strings.HasPrefix(begun.Runs[0], "247.5,35.0 250.0,35.0 252.5,1.0") || !strings.HasSuffix(begun.Runs[1], "300.0,69.0") {
		t.Errorf("%+v", begun)
	}
	if pending := titles["Orders under way"].Lines[1]; pending.Now != "4" || len(pending.Runs) != 2 || !strings.HasSuffix(pending.Runs[1], "300.0,1.0") {
		t.Errorf("%+v", pending)
	}
	if says := titles["Orders a minute"]; !strings.Contains(says.Says(), "begun: 0 a minute, ended: 0 a minute") {
		t.Errorf("%s", says.Says())
	}
	if len(c.Rows) != 2 || c.Rows[1].Begun != 30 || c.Rows[1].Open != nil || c.Rows[0].Begun != 5 || c.Rows[0].Open.Pending != 4 || !c.Rows[1].From.Equal(start) {
		t.Errorf("%+v", c.Rows)
	}
	if a.Partitions = 0; chartsOf(a) != nil || chartsOf(&api.Activity{Partitions: 1}) != nil {
		t.Error("something is drawn of nothing")
	}
}

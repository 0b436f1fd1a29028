package console

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/internal/api"
)

// charts are what an instance measured over the last hour.
type charts struct {
	*api.Activity
	Charts []chart
	Rows   []chartRow // the same as a table, the newest first
}

// chart is some lines over one hour, of one scale.
type chart struct {
	Title, Most string
	Lines       []chartLine
}

// Says is what a chart shows, for those who do not see it.
func (c *chart) Says() string {
	var all []string
	for _, l := range c.Lines {
		all = append(all, l.Name+": "+l.Now)
	}
	return fmt.Sprintf("%s over the last hour, up to %s; the last: %s. The table says the same", c.Title, c.Most, strings.Join(all, ", "))
}

// chartLine is what one thing was over time.
type chartLine struct {
	Name, Kind, Now string
	Runs            []string // points, between times of which nothing is known
}

// chartRow is what was measured in some minutes.
type chartRow struct {
	From, To              *api.Time
	Begun, Ended, Errored int
	Open                  *api.Open // at their end
}

// How large a chart is drawn, in pixels of a drawing that is scaled to its page, what time it is of, and what a row of the
// table.
const (
	chartW, chartH = 300, 70
	chartSpan      = time.Hour
	rowSpan        = 5 * time.Minute
)

// series reads something off a sample; false where that is not known.
type series struct {
	name, kind string
	of         func(*api.Sample) (float64, bool)
}

func aMinute(of func(*api.Sample) int) func(*api.Sample) (float64, bool) {
	return func(s *api.Sample) (float64, bool) { return float64(of(s)) * 60 / max(s.Seconds, 1), true }
}

func open(of func(*api.Open) int) func(*api.Sample) (float64, bool) {
	return func(s *api.Sample) (float64, bool) {
		if s.Open == nil {
			return 0, false
		}
		return float64(of(s.Open)), true
	}
}

func seconds(of func(*api.Sample) *float64) func(*api.Sample) (float64, bool) {
	return func(s *api.Sample) (float64, bool) {
		if n := of(s); n != nil {
			return *n, true
		}
		return 0, false
	}
}

func count(n float64) string { return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 1, 64), ".0") }

func aMinuteText(n float64) string { return count(n) + " a minute" }

func lasting(n float64) string { return about(time.Duration(n * float64(time.Second))) }

// measures are the charts that there are.
var measures = []struct {
	title  string
	text   func(float64) string
	series []series
}{
	{"Orders a minute", aMinuteText, []series{
		{"begun", "busy", aMinute(func(s *api.Sample) int { return s.Begun })},
		{"ended", "good", aMinute(func(s *api.Sample) int { return s.Ended })},
	}},
	{"Orders in Error", count, []series{{"then in Error", "bad", open(func(o *api.Open) int { return o.Error })}}},
	{"Orders under way", count, []series{
		{"Processing", "busy", open(func(o *api.Open) int { return o.Processing })},
		{"Pending", "idle", open(func(o *api.Open) int { return o.Pending })},
		{"Compensating", "odd", open(func(o *api.Open) int { return o.Compensating })},
	}},
	{"How late it is decided", lasting, []series{
		{"on input", "busy", seconds(func(s *api.Sample) *float64 { return s.Waited })},
		{"on what is due", "odd", seconds(func(s *api.Sample) *float64 { return s.Late })},
	}},
	{"For how long it was due what is not decided", lasting, []series{{"longest", "odd", seconds(func(s *api.Sample) *float64 { return s.Overdue })}}},
	{"For how long an agent is waited for", lasting, []series{{"longest", "waits", seconds(func(s *api.Sample) *float64 { return s.Oldest })}}},
}

// chartsOf draws what was measured, nil where nothing was, and where the instance serves nothing.
func chartsOf(a *api.Activity) *charts {
	if a.Partitions == 0 || len(a.Samples) == 0 {
		return nil
	}
	c := &charts{Activity: a, Rows: rowsOf(a.Samples)}
	for _, m := range measures {
		most, known := 0.0, false
		for i := range a.Samples {
			for _, s := range m.series {
				n, is := s.of(&a.Samples[i])
				most, known = max(most, n), known || is
			}
		}
		if !known {
			continue
		}
		one := chart{Title: m.title, Most: m.text(most)}
		for _, s := range m.series {
			one.Lines = append(one.Lines, lineOf(a.Samples, s, most, m.text))
		}
		c.Charts = append(c.Charts, one)
	}
	return c
}

// lineOf draws what was up to most. The last sample is at the right, whenever that was.
func lineOf(samples []api.Sample, s series, most float64, text func(float64) string) chartLine {
	l := chartLine{Name: s.name, Kind: s.kind, Now: "not known"}
	end, on := samples[len(samples)-1].At, false
	x := func(before time.Duration) float64 { return chartW * (1 - float64(before)/float64(chartSpan)) }
	for i := range samples {
		n, known := s.of(&samples[i])
		if !known {
			on = false
			continue
		}
		span, before := time.Duration(samples[i].Seconds*float64(time.Second)), end.Sub(samples[i].At.Time)
		y := chartH - 1 - (chartH-2)*n/max(most, 1e-9)
		point := fmt.Sprintf("%.1f,%.1f", x(before), y)
		if on = on && end.Sub(samples[i-1].At.Time)-before < 2*span; on {
			l.Runs[len(l.Runs)-1] += " " + point
		} else {
			l.Runs = append(l.Runs, fmt.Sprintf("%.1f,%.1f %s", x(before+span), y, point)) // it is of the time up to it
		}
		on = true
		if i == len(samples)-1 {
			l.Now = text(n)
		}
	}
	return l
}

// rowsOf are the samples, some minutes at a time.
func rowsOf(samples []api.Sample) (rows []chartRow) {
	var of time.Time
	for i := range samples {
		s := &samples[i]
		if at := s.At.Truncate(rowSpan); rows == nil || !at.Equal(of) {
			of = at
			rows = append(rows, chartRow{From: &api.Time{Time: s.At.Add(-time.Duration(s.Seconds * float64(time.Second)))}})
		}
		r := &rows[len(rows)-1]
		r.To, r.Begun, r.Ended, r.Errored, r.Open = &s.At, r.Begun+s.Begun, r.Ended+s.Ended, r.Errored+s.Errored, s.Open
	}
	slices.Reverse(rows)
	return rows
}

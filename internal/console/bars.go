package console

import (
	"fmt"
	"slices"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// bars are the attempts of steps and undos, and what they waited for, over time.
type bars struct {
	Lanes         []lane
	Marks         []mark
	Width, Height int
	Span          string
	from, to      time.Time
}

// lane is a step's, or its undo's.
type lane struct {
	Name string
	Y    int
	Bars []bar
}

// bar is from when to when something went on.
type bar struct {
	X, W       float64
	Kind, Says string
	from, to   time.Time
	open       bool
}

// mark is a time on the axis.
type mark struct {
	X      float64
	Text   string
	Anchor string // middle or end
}

// How large bars are drawn, in pixels of a drawing that is scaled to its page.
const (
	laneHeight = 24
	labelWidth = 170
	chartWidth = 900
	topHeight  = 22
	maxLanes   = 60
)

// begins are the events with which something begins that takes time, and what it is.
var begins = map[events.Type]string{
	events.StepStarted: "attempt", events.UndoStarted: "attempt", events.StepEmitting: "attempt",
	events.StepSleeping: "sleeps", events.StepListening: "listens", events.StepApproving: "asks people",
	events.StepOrdered: "another order", events.UndoOrdered: "another order", events.StepItemized: "items",
}

// ends are those with which it ends, and how that looks.
var ends = map[events.Type]string{
	events.StepCompleted: "good", events.UndoCompleted: "odd", events.StepWoke: "good", events.StepRepeated: "good",
	events.StepFailed: "bad", events.UndoFailed: "bad", events.StepExpired: "bad", events.UndoExpired: "bad",
	events.StepTimedOut: "odd", events.StepSkipped: "idle", events.UndoSkipped: "idle", events.StepRaised: "odd", events.StepPassed: "bad",
}

// over are the events of an order after which nothing of it goes on.
var over = []events.Type{
	events.OrderCompleted, events.OrderCompensated, events.OrderCancelled, events.OrderRaised, events.OrderTerminated, events.OrderRejected,
}

// barsOf are those of a history, nil if nothing in it takes time. What goes on at its end goes on until now,
// if it is one of those that do so; else it ended with the last event about it.
func barsOf(rows []eventRow, now time.Time, goesOn map[string]bool) *bars {
	if len(rows) == 0 {
		return nil
	}
	b := &bars{Width: labelWidth + chartWidth, from: rows[0].At, to: rows[len(rows)-1].At}
	if len(goesOn) > 0 && now.After(b.to) {
		b.to = now
	}
	at, last := make(map[string]int), make(map[string]time.Time)
	for _, e := range rows {
		name := doing(e.Event)
		last[name] = e.At
		if what, is := begins[e.Type]; is {
			n, there := at[name]
			if !there {
				if len(b.Lanes) == maxLanes {
					continue
				}
				n = len(b.Lanes)
				at[name] = n
				b.Lanes = append(b.Lanes, lane{Name: name, Y: topHeight + n*laneHeight})
			}
			if what == "attempt" && e.Attempt > 0 {
				what = fmt.Sprintf("attempt %d", e.Attempt)
			}
			b.Lanes[n].close(e.At, "good", "")
			b.Lanes[n].Bars = append(b.Lanes[n].Bars, bar{Says: what, from: e.At, open: true})
			continue
		}
		looks, is := ends[e.Type]
		if n, there := at[name]; is && there {
			b.Lanes[n].close(e.At, looks, e.Name)
		}
		if slices.Contains(over, e.Type) || e.Type == events.OrderCompensating {
			for n := range b.Lanes {
				b.Lanes[n].close(e.At, "idle", e.Name)
			}
		}
	}
	if len(b.Lanes) == 0 {
		return nil
	}
	for n := range b.Lanes {
		if l := &b.Lanes[n]; !goesOn[l.Name] {
			l.close(last[l.Name], "good", "")
		}
	}
	span := max(b.to.Sub(b.from), time.Millisecond)
	x := func(t time.Time) float64 {
		return labelWidth + chartWidth*min(1, max(0, float64(t.Sub(b.from))/float64(span)))
	}
	for n := range b.Lanes {
		for i := range b.Lanes[n].Bars {
			it := &b.Lanes[n].Bars[i]
			if it.open {
				it.to, it.Kind = b.to, "busy"
				it.Says += ", goes on"
			}
			it.X = x(it.from)
			it.W = max(2, x(it.to)-it.X)
			it.Says = fmt.Sprintf("%s: %s, %s", b.Lanes[n].Name, it.Says, it.to.Sub(it.from))
		}
	}
	for part := range 5 {
		after := span * time.Duration(part) / 4
		anchor := "middle"
		if part == 4 {
			anchor = "end"
		}
		b.Marks = append(b.Marks, mark{x(b.from.Add(after)), "+" + after.Round(rounding(span)).String(), anchor})
	}
	b.Height = topHeight + len(b.Lanes)*laneHeight + 4
	b.Span = about(span)
	return b
}

// doing is what an event is about: a step, or its undo.
func doing(e *events.Event) string {
	if e.Step == "" {
		return ""
	}
	switch e.Type {
	case events.UndoStarted, events.UndoOrdered, events.UndoCompleted, events.UndoFailed, events.UndoExpired, events.UndoSkipped:
		return "undo " + e.Step
	}
	if e.ToUndo {
		return "undo " + e.Step
	}
	return e.Step
}

// rounding is how exact the times on an axis are.
func rounding(span time.Duration) time.Duration {
	switch {
	case span > 10*time.Minute:
		return time.Second
	case span > time.Second:
		return 10 * time.Millisecond
	}
	return time.Millisecond / 10
}

// close ends what goes on.
func (l *lane) close(at time.Time, kind, how string) {
	if n := len(l.Bars); n > 0 && l.Bars[n-1].open {
		it := &l.Bars[n-1]
		it.open, it.to, it.Kind = false, at, kind
		if how != "" {
			it.Says += ", " + how
		}
	}
}

// TextY is where a lane's name stands.
func (l *lane) TextY() int { return l.Y + 13 }

// Short is a lane's name, as far as there is room for it.
func (l *lane) Short() string {
	if name := []rune(l.Name); len(name) > 26 {
		return string(name[:25]) + "…"
	}
	return l.Name
}

package oracle

import (
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// family are the histories of an order, "p", of which another does step h.
type family map[string][]events.Event

// booked is a family whose child is Processed, and undone with its parent: it goes up to the child's
// turning back.
func booked() family {
	f := family{
		"p": {
			{Type: events.OrderAccepted, At: after(0), Workflow: "trip", Version: 1, Steps: []string{"h"}, By: "ann"},
			{Type: events.StepOrdered, At: after(0), Step: "h", Attempt: 1, Workflow: "book", Version: 2, Child: "@p/h", LockedBy: "i-1"},
			{Type: events.StepCompleted, At: after(3), Step: "h", Attempt: 1, Output: []byte(`{"paid":1}`), Source: "waybill.internal/0/1"},
			{Type: events.OrderCompensating, At: after(4), End: "Cancelled", Reason: "why"},
			{Type: events.UndoOrdered, At: after(4), Step: "h", Attempt: 1, Child: "@p/h", LockedBy: "i-1"},
			{Type: events.UndoCompleted, At: after(6), Step: "h", Attempt: 1, Source: "waybill.internal/0/3", Left: true},
			{Type: events.OrderCancelled, At: after(6), NotUndone: []string{"h"}},
		},
		"@p/h": {
			{Type: events.OrderAccepted, At: after(1), Workflow: "book", Version: 2, Steps: []string{"x"}, Parent: "p", ParentStep: "h", Depth: 1, By: "ann"},
			{Type: events.StepStarted, At: after(1), Step: "x", Attempt: 1, Agent: "a", Operation: "x", IdempotencyKey: "@p/h/x", CompleteBy: after(9), LockedBy: "i-2"},
			{Type: events.StepCompleted, At: after(2), Step: "x", Attempt: 1, Output: []byte(`{"paid":1}`)},
			{Type: events.OrderCompleted, At: after(2)},
			{Type: events.OrderCompensating, At: after(5), End: "Compensated", Reason: "order p is being undone"},
			{Type: events.OrderCompensated, At: after(5), NotUndone: []string{"x"}},
		},
	}
	return f.number()
}

// recalledOnes are a family whose child was recalled.
func recalledOnes() family {
	f := booked()
	why := "order p is being undone"
	f["p"] = slices.Concat(f["p"][:2], []events.Event{
		{Type: events.OrderCompensating, At: after(4), End: "Cancelled", Reason: "why", LockedBy: "i-1"},
		{Type: events.StepRecalled, At: after(4), Step: "h", Attempt: 1, Child: "@p/h", Reason: why},
		{Type: events.StepFailed, At: after(5), Step: "h", Attempt: 1, Source: "waybill.internal/0/3", Left: true, Error: &events.Error{Code: "cancelled", Message: "order @p/h: " + why, Permanent: true}},
		{Type: events.OrderCancelled, At: after(6), NotUndone: []string{"h"}},
	})
	f["@p/h"] = slices.Concat(f["@p/h"][:3], []events.Event{
		{Type: events.OrderCompensating, At: after(5), End: "Cancelled", Reason: why},
		{Type: events.OrderCancelled, At: after(5), NotUndone: []string{"x"}},
	})
	return f.number()
}

// overdueOnes are a family whose child took too long.
func overdueOnes() family {
	f := recalledOnes()
	why := "step h of order p has taken until then"
	p, c := f["p"], f["@p/h"]
	p[3].Reason, c[3].Reason = why, why
	p[4].Error = &events.Error{Code: "timed-out", Message: "order @p/h: " + why, Permanent: true}
	f["p"] = slices.Concat(p[:2], p[3:5])
	return f.number()
}

// stuckOnes are a family whose child cannot be undone: an operator terminated it.
func stuckOnes() family {
	f := booked()
	f["p"][5] = events.Event{Type: events.UndoFailed, At: after(6), Step: "h", Attempt: 1, Left: true, Source: "waybill.internal/0/3", Error: &events.Error{Code: "terminated", Message: "order @p/h: gone", Permanent: true}}
	f["p"] = f["p"][:6]
	f["@p/h"][5] = events.Event{Type: events.OrderTerminated, At: after(6), Reason: "gone", NotUndone: []string{"x"}}
	return f.number()
}

// detachedOnes are a family whose parent waits for no end.
func detachedOnes() family {
	f := booked()
	f["p"], f["@p/h"] = f["p"][:3], f["@p/h"][:2]
	f["p"][1].Detached, f["@p/h"][0].Detached = true, true
	f["p"][2].Output = []byte(`{"order":"@p/h"}`)
	return f
}

// forgottenOnes are a family of which nothing is known any more.
func forgottenOnes() family {
	f := booked()
	f["p"] = append(f["p"], events.Event{Type: events.OrderForgotten, At: after(9), Children: []string{"@p/h"}})
	f["@p/h"] = append(f["@p/h"], events.Event{Type: events.OrderForgotten, At: after(9)})
	return f.number()
}

func (f family) number() family {
	for id, history := range f {
		for i := range history {
			history[i].Order, history[i].Seq = id, uint64(i+1)
		}
	}
	return f
}

// broken says by which line of the source a family is refused first, and why.
func (f family) broken(quiet bool, pardoned int) (line int, why error) {
	all := Families{
		Order: func(id string) []events.Event { return f[id] },
		Quiet: func(string) bool { return quiet },
		Find:  func(string, int) *Flow { return &Flow{Search: map[string]string{"item": "input.item"}, Deadline: 60e9} },
		pardon: func() bool {
			_, _, at, _ := runtime.Caller(2)
			if at == pardoned {
				return true
			}
			line = at
			return false
		},
	}
	for _, id := range slices.Sorted(maps.Keys(f)) {
		if why = all.Check(id); why != nil {
			return line, why
		}
	}
	return 0, nil
}

func withDeadline(f family) family {
	for _, history := range f {
		if history[0].Parent != "" {
			history[0].Deadline = history[0].At.Add(time.Minute)
		}
	}
	return f
}

// scheduledOnes are a schedule and the order of its tick.
func scheduledOnes() family {
	tick := after(0)
	text := tick.UTC().Format(time.RFC3339)
	child := "@a/1/" + text
	return family{
		"@a": {
			{Type: events.ScheduleApplied, At: after(0), Incarnation: 1, Schedule: &events.Schedule{Every: "1h", Workflow: "book"}, Next: tick, By: "ann"},
			{Type: events.ScheduleStarted, At: after(1), Tick: tick, Child: child, Workflow: "book", Next: tick.Add(time.Hour)},
			{Type: events.ScheduleEnded, At: after(4), Tick: tick, Child: child, End: "Processed", Source: "waybill.internal/0/1"},
		},
		child: {
			{
				Type: events.OrderAccepted, At: after(1), Workflow: "book", Version: 2, Steps: []string{"x"}, Parent: "@a", ParentStep: text, By: "ann",
				Labels: map[string]string{"schedule": "a", "tick": text},
			},
			{Type: events.StepStarted, At: after(1), Step: "x", Attempt: 1, Agent: "a", Operation: "x", IdempotencyKey: child + "/x", CompleteBy: after(9), LockedBy: "i-2"},
			{Type: events.StepCompleted, At: after(2), Step: "x", Attempt: 1},
			{Type: events.OrderCompleted, At: after(2)},
		},
	}.number()
}

// startedOnes are the home of a key and the order that a signal started.
func startedOnes() family {
	home := "@k/signal.go"
	child := home + "/order.1"
	return family{
		home: {
			{Type: events.SignalOrdered, At: after(0), Signal: "go", SignalID: "s", Key: "k", Source: "waybill.signals/0/1", Due: after(99), Child: child, Workflow: "book", Version: 2},
			{Type: events.SignalStarted, At: after(2), Signal: "go", SignalID: "s", Source: "waybill.signals/0/1", Child: child},
		},
		child: {
			{Type: events.OrderAccepted, At: after(1), Workflow: "book", Version: 2, Steps: []string{"x"}, Parent: home, ParentStep: "1", Detached: true},
			{Type: events.StepStarted, At: after(1), Step: "x", Attempt: 1, Agent: "a", Operation: "x", IdempotencyKey: child + "/x", CompleteBy: after(9), LockedBy: "i-2"},
			{Type: events.StepCompleted, At: after(2), Step: "x", Attempt: 1},
			{Type: events.OrderCompleted, At: after(2)},
		},
	}.number()
}

// listedOnes are a family of which a child asks for a page of the items that an agent lists.
func listedOnes() family {
	return family{
		"p": {
			{Type: events.OrderAccepted, At: after(0), Workflow: "trip", Version: 1, Steps: []string{"h"}, By: "ann"},
			{Type: events.StepItemized, At: after(0), Step: "h", Attempt: 1, Workflow: "book", Version: 2, Agent: "a", Operation: "list", LockedBy: "i-1"},
			{Type: events.PageOrdered, At: after(0), Step: "h", Attempt: 1, Page: 1, Workflow: "trip/h:pages", Version: 1, LockedBy: "i-1"},
			{Type: events.PageCompleted, At: after(3), Step: "h", Attempt: 1, Page: 1, Input: []byte("[]"), Source: "waybill.internal/0/1"},
			{Type: events.StepCompleted, At: after(3), Step: "h", Attempt: 1, Output: []byte(`{"items":0}`)},
			{Type: events.OrderCompensating, At: after(4), End: "Cancelled", Reason: "why"},
			{Type: events.OrderCancelled, At: after(6)},
		},
		"@p/h:p1": {
			{Type: events.OrderAccepted, At: after(1), Workflow: "trip/h:pages", Version: 1, Steps: []string{"page"}, Input: []byte("{}"), Parent: "p", ParentStep: "h:p1", Depth: 1, By: "ann"},
			{Type: events.StepStarted, At: after(1), Step: "page", Attempt: 1, Agent: "a", Operation: "list", IdempotencyKey: "@p/h:p1/page", CompleteBy: after(9), LockedBy: "i-2"},
			{Type: events.StepCompleted, At: after(2), Step: "page", Attempt: 1, Output: []byte(`{"items":[],"cursor":null}`)},
			{Type: events.OrderCompleted, At: after(2)},
		},
	}.number()
}

// TestFamilies: orders that do steps of others and these are held against each other. For every rule
// there is a family that breaks it, and no other.
func TestFamilies(t *testing.T) {
	whole := map[string]func() family{"booked": booked, "recalled": recalledOnes, "overdue": overdueOnes, "stuck": stuckOnes, "detached": detachedOnes, "forgotten": forgottenOnes, "scheduled": scheduledOnes, "started": startedOnes, "listed": listedOnes}
	for name, begin := range whole {
		if _, err := withDeadline(begin()).broken(true, 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	missed := make(map[int]string)
	source, err := os.ReadFile("families.go")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(source), "\n") {
		if FamilyRules.MatchString(line) {
			missed[i+1] = strings.TrimSpace(line)
		}
	}
	for _, c := range []struct {
		what  string
		of    func() family
		quiet bool
		does  func(f family, p, child []events.Event)
	}{
		{"a child of nobody", booked, false, func(f family, _, _ []events.Event) { delete(f, "p") }},
		{"a child that was not asked for", booked, false, func(f family, p, c []events.Event) { f["p"], f["@p/h"] = p[:1], c[:1] }},
		{"a rejection that was not asked for", booked, false, func(f family, p, c []events.Event) {
			f["p"], f["@p/h"] = p[:1], []events.Event{{Type: events.OrderRejected, Parent: "p", ParentStep: "h", Reason: "why"}}
		}},
		{"a rejection of another workflow", booked, false, func(f family, p, c []events.Event) {
			f["p"], f["@p/h"] = p[:2], []events.Event{{Type: events.OrderRejected, Parent: "p", ParentStep: "h", Reason: "why", Workflow: "bus", Version: 2}}
		}},
		{"another version", booked, false, func(_ family, _, c []events.Event) { c[0].Version = 1 }},
		{"another depth", booked, false, func(_ family, _, c []events.Event) { c[0].Depth = 2 }},
		{"another input", booked, false, func(_ family, _, c []events.Event) { c[0].Input = []byte("7") }},
		{"another priority", booked, false, func(_ family, _, c []events.Event) { c[0].Priority = events.High }},
		{"another submitter", booked, false, func(_ family, _, c []events.Event) { c[0].By = "bob" }},
		{"other submitters", booked, false, func(_ family, _, c []events.Event) { c[0].Submitters = []string{"bob"} }},
		{"another trace", booked, false, func(_ family, _, c []events.Event) { c[0].Traceparent = "00" }},
		{"another tracestate", booked, false, func(_ family, _, c []events.Event) { c[0].Tracestate = "a=1" }},
		{"no baggage", booked, false, func(_ family, p, _ []events.Event) { p[0].Baggage = "a=1" }},
		{"another topic", booked, false, func(_ family, _, c []events.Event) { c[0].ReplyTo = "shop" }},
		{"waited for or not", booked, false, func(f family, p, c []events.Event) { f["p"], f["@p/h"], c[0].Detached = p[:2], c[:4], true }},
		{"another label", booked, false, func(_ family, _, c []events.Event) { c[0].Labels = map[string]string{"a": "b"} }},
		{"no label", booked, false, func(_ family, p, _ []events.Event) { p[0].Labels = map[string]string{"a": "b"} }},
		{"a later deadline", booked, false, func(_ family, p, _ []events.Event) { p[0].Deadline = after(9) }},
		{"undone of its own", booked, false, func(f family, p, _ []events.Event) { f["p"] = p[:3] }},
		{"recalled by nobody", recalledOnes, false, func(f family, p, _ []events.Event) { f["p"] = p[:2] }},
		{"another output", booked, false, func(_ family, p, _ []events.Event) { p[2].Output = []byte("7") }},
		{"completed too early", booked, false, func(f family, _, c []events.Event) { f["@p/h"] = c[:2]; f["p"] = f["p"][:3] }},
		{"another code", recalledOnes, false, func(_ family, p, _ []events.Event) { p[4].Error.Code = "timed-out" }},
		{"another code of what took too long", overdueOnes, false, func(_ family, p, _ []events.Event) { p[3].Error.Code = "cancelled" }},
		{"another message", recalledOnes, false, func(_ family, p, _ []events.Event) { p[4].Error.Message = "why" }},
		{"undone too early", booked, false, func(f family, _, c []events.Event) { f["@p/h"] = c[:5] }},
		{"left, and nobody says so", booked, false, func(_ family, p, _ []events.Event) { p[5].Left = false }},
		{"left by one that was recalled, and nobody says so", recalledOnes, false, func(_ family, p, _ []events.Event) { p[4].Left = false }},
		{"left by one that was not undone, and nobody says so", stuckOnes, false, func(_ family, p, _ []events.Event) { p[5].Left = false }},
		{"left by what left nothing", recalledOnes, false, func(_ family, _, c []events.Event) {
			c[2].Type, c[2].Error = events.StepFailed, &events.Error{Code: "no"}
		}},
		{"stuck for another reason", stuckOnes, false, func(_ family, p, _ []events.Event) { p[5].Error.Code = "compensated" }},
		{"forgotten of its own", forgottenOnes, false, func(f family, p, _ []events.Event) { f["p"] = p[:7] }},
		{"left waiting", booked, true, func(f family, p, c []events.Event) { f["p"], f["@p/h"] = p[:2], c[:4] }},
		{"waiting for what is not there", booked, true, func(f family, p, _ []events.Event) { f["p"] = p[:2]; delete(f, "@p/h") }},
		{"waiting for what it does not wait for", detachedOnes, true, func(f family, p, _ []events.Event) { f["p"] = p[:2] }},
		{"deaf to its recall", recalledOnes, true, func(f family, p, c []events.Event) { f["p"], f["@p/h"] = p[:4], c[:3] }},
		{"ended as nobody told", scheduledOnes, false, func(f family, _, _ []events.Event) { f["@a"][2].End = "Rejected" }},
		{"waiting for the order of a tick that has ended", scheduledOnes, true, func(f family, _, _ []events.Event) { f["@a"] = f["@a"][:2] }},
		{"begun as nobody told", startedOnes, false, func(f family, _, _ []events.Event) {
			f["@k/signal.go"][1].Type, f["@k/signal.go"][1].Reason = events.SignalDiscarded, events.SignalRejected
		}},
		{"waiting for an order to begin that did", startedOnes, true, func(f family, _, _ []events.Event) { f["@k/signal.go"] = f["@k/signal.go"][:1] }},
		{"another page", listedOnes, false, func(_ family, p, _ []events.Event) { p[3].Input = []byte("[1]") }},
		{"another cursor", listedOnes, false, func(_ family, p, _ []events.Event) { p[3].Cursor = "c" }},
		{"a page that is there", listedOnes, false, func(f family, p, _ []events.Event) {
			p[3] = events.Event{Type: events.PageFailed, At: after(3), Step: "h", Attempt: 1, Page: 1, Source: "waybill.internal/0/1", Error: &events.Error{Code: "page-failed", Message: "page 1: order @p/h:p1: gone", Permanent: true}}
			f["p"] = p[:4]
		}},
		{"not undone", booked, true, func(f family, p, c []events.Event) {
			f["p"], f["@p/h"] = append(p[:4:4], events.Event{Type: events.OrderCancelled, NotUndone: []string{"h"}}), c[:4]
		}},
	} {
		f := withDeadline(c.of())
		c.does(f, f["p"], f["@p/h"])
		f.number()
		line, why := f.broken(c.quiet, 0)
		if why == nil {
			t.Errorf("%s: nobody notices", c.what)
			continue
		}
		if _, also := f.broken(c.quiet, line); also != nil {
			t.Errorf("%s: %v, and also: %v", c.what, why, also)
		}
		delete(missed, line)
		if !c.quiet {
			continue
		}
		if _, why := f.broken(false, 0); why != nil {
			t.Errorf("%s, and something is still to be read: %v", c.what, why)
		}
	}
	for _, rule := range missed {
		t.Errorf("nobody misses the rule: %s", rule)
	}
}

// An older release does not say that something was left, nor does one that was told so by it.
func TestFamiliesOfBefore(t *testing.T) {
	for id, says := range map[string]bool{"p": true, "@p/h": true, "other": false} {
		f := withDeadline(booked())
		f["p"][5].Left = false
		all := Families{Order: func(id string) []events.Event { return f[id] }, Older: func(of string) uint64 {
			if of == id {
				return 6
			}
			return 0
		}}
		if err := all.Check("p"); (err == nil) != says {
			t.Errorf("%s is of before: %v", id, err)
		}
	}
}

// Of what was given up by an operator nobody knows what it would have led to.
func TestFamiliesAfterALoss(t *testing.T) {
	f := withDeadline(booked())
	f["p"] = append(f["p"][:2], events.Event{Type: events.InputDiscarded, Source: "waybill.internal/0/1", Reason: "given up"})
	f["@p/h"] = f["@p/h"][:4]
	if _, err := f.number().broken(true, 0); err != nil {
		t.Error(err)
	}
}

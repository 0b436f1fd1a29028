package projections

import (
	"slices"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

func ordered(child string, by time.Time) events.Event {
	e := of(events.StepOrdered, "s0", 1)
	e.Child, e.Workflow, e.CompleteBy, e.LockedBy = child, "book", by, "i-1"
	return e
}

// childOf is an order that does the step hotel of o-0.
func childOf(replyTo string, detached bool) events.Event {
	e := accepted("o-1", "book")
	e.Parent, e.ParentStep, e.Depth, e.Detached, e.ReplyTo = "o-0", "hotel", 2, detached, replyTo
	return e
}

// A step that another order does runs until that has ended, also past its time, once it was
// recalled; and is undone as any other.
func TestAStepThatAnotherOrderDoes(t *testing.T) {
	first := accepted("o-1", "flow")
	first.Pinned = map[string]int64{"book": 3}
	o := record(t, first, ordered("@o-1/s0", at(60)))
	step := &o.Steps[0]
	expect(t, "pinned", o.Pinned, map[string]int64{"book": 3})
	expect(t, "state", o.State, Processing)
	expect(t, "child", *step.Child, Child{ID: "@o-1/s0"})
	expect(t, "deadline", step.Deadline(), at(60))

	before := o.Clone()
	recalled := of(events.StepRecalled, "s0", 1)
	recalled.Child, recalled.Reason = "@o-1/s0", "it takes too long"
	apply(t, o, recalled)
	expect(t, "child", *step.Child, Child{ID: "@o-1/s0", Recalled: true})
	expect(t, "child of before", *before.Steps[0].Child, Child{ID: "@o-1/s0"})
	expect(t, "deadline", step.Deadline(), time.Time{})
	expect(t, "step", step.State, Running)

	o = record(t, first, ordered("@o-1/s0", time.Time{}), done("o-1", "s0"),
		events.Event{Type: events.OrderCompensating, End: "Cancelled", Reason: "why"})
	undo := of(events.UndoOrdered, "s0", 1)
	undo.Child, undo.LockedBy = "@o-1/s0", "i-1"
	apply(t, o, undo)
	expect(t, "undo", o.Steps[0].Undo.State, Running)
	expect(t, "its deadline", o.Steps[0].Deadline(), time.Time{})
	apply(t, o, of(events.UndoCompleted, "s0", 1))
	expect(t, "step", o.Steps[0].State, Undone)
}

// Of several children of a step those are known which left something, also once another did the step.
func TestWhichChildrenLeftSomething(t *testing.T) {
	ended := func(kind events.Type, left bool) events.Event {
		e := of(kind, "s0", 1)
		e.Error, e.Left = &events.Error{Code: "gone"}, left
		return e
	}
	again := events.Event{Type: events.OrderResubmitted, Step: "s0"}
	errored := events.Event{Type: events.OrderErrored, Reason: "no"}
	first := []events.Event{accepted("o-1", "flow"), ordered("@o-1/s0", at(60)), ended(events.StepFailed, true), errored, again}
	o := &Order{}
	for _, e := range first {
		o.In(events.LeftByFormat)
		apply(t, o, e)
	}
	before := o.Clone()
	for _, e := range []events.Event{
		ordered("@o-1/s0:2", at(60)), ended(events.StepFailed, false), errored, again,
		ordered("@o-1/s0:3", at(60)), ended(events.StepFailed, true), errored, again,
		ordered("@o-1/s0:4", at(60)), done("o-1", "s0"),
		{Type: events.OrderCompensating, End: "Cancelled", Reason: "why"},
		of(events.UndoOrdered, "s0", 1), ended(events.UndoFailed, true),
		of(events.UndoOrdered, "s0", 2), ended(events.UndoCompleted, true), // the same once more
	} {
		apply(t, o, e)
	}
	expect(t, "which", o.LeftBy(&o.Steps[0]), []string{"@o-1/s0", "@o-1/s0:3", "@o-1/s0:4"})
	expect(t, "which it was before", before.LeftBy(&before.Steps[0]), []string{"@o-1/s0"})
	expect(t, "of another step", o.LeftBy(&o.Steps[1]), []string{})

	// A record that a release made of events of an older format has none, and so has one that is made anew.
	old := &Order{}
	for _, e := range first {
		old.In(events.LeftByFormat - 1)
		apply(t, old, e)
	}
	expect(t, "in an older format", old.LeftBy(&old.Steps[0]), []string{})
	expect(t, "that it left something", old.Steps[0].Leaves, true)
}

// An order knows whose step it does, and has no status messages unless it was asked for some, or
// they cannot be where it was asked to send them.
func TestAnOrderThatDoesAStep(t *testing.T) {
	o := record(t, childOf("", false))
	expect(t, "parent", *o.Parent, Parent{"o-0", "hotel", 2, false})
	expect(t, "quiet", o.Quiet, true)
	expect(t, "quiet with a topic", record(t, childOf("shop.status", false)).Quiet, false)
	expect(t, "quiet without a parent", record(t, accepted("o-1", "flow")).Quiet, false)
	expect(t, "quiet whose topic was refused", record(t, childOf("", false), events.Event{Type: events.StatusRefused, ReplyTo: "shop.status", Reason: "gone"}).Quiet, false)

	o = record(t, events.Event{Type: events.OrderRejected, Workflow: "book", Reason: "no", Parent: "o-0", ParentStep: "hotel"})
	expect(t, "parent of one that was rejected", *o.Parent, Parent{Order: "o-0", Step: "hotel"})
	expect(t, "quiet", o.Quiet, true)
}

// A quiet order says nothing of itself, and answers others.
func TestAQuietOrderHasNoStatusMessages(t *testing.T) {
	o := record(t, childOf("", false))
	for _, e := range []events.Event{childOf("", false), finished("o-1"), {Type: events.OrderErrored, Reason: "no"}} {
		if to, _, m := o.Status(&e); m != nil || to != "" {
			t.Errorf("%s tells %q %+v", e.Type, to, m)
		}
	}
	if _, _, m := o.Status(&events.Event{Type: events.SubmissionConflicted, Reason: "no"}); m == nil || m.Status != events.StatusConflict {
		t.Errorf("another submission under its id is answered %+v", m)
	}
}

// What an order tells the one whose step it does, and when.
func TestWhatAnOrderReports(t *testing.T) {
	report := func(state State, output string, fault *events.Error) *events.Report {
		r := &events.Report{Parent: "o-0", Step: "hotel", Child: "o-1", State: string(state), Error: fault}
		if output != "" {
			r.Output = []byte(output)
		}
		return r
	}
	left := func(r *events.Report) *events.Report {
		r.Left = true
		return r
	}
	undone := func(step string, more ...events.Event) []events.Event {
		return append([]events.Event{{Type: events.UndoStarted, Step: step, Attempt: 1}}, more...)
	}
	told := func(kind events.Type) events.Event {
		return events.Event{Type: kind, Step: "s0", Attempt: 1, Left: true, Error: &events.Error{Code: "no"}}
	}
	back := events.Event{Type: events.OrderCompensating, End: "Compensated", Reason: "o-0 is being undone"}
	again := events.Event{Type: events.OrderReported, Parent: "o-0", ParentStep: "hotel", Reason: "asked"}
	foreign := events.Event{Type: events.OrderReported, Parent: "o-7", ParentStep: "s", Reason: "not mine", Error: &events.Error{Code: events.IDTaken}}
	ran := func(first events.Event, more ...events.Event) []events.Event {
		return append([]events.Event{first, started("o-1", "s0", 1, at(60)), done("o-1", "s0")}, more...)
	}
	for name, c := range map[string]struct {
		history []events.Event
		want    *events.Report // of the last event
	}{
		"accepted":                           {[]events.Event{childOf("", false)}, nil},
		"a step is done":                     {ran(childOf("", false)), nil},
		"completed":                          {ran(childOf("", false), finished("o-1")), report(Processed, `{"by":"s0"}`, nil)},
		"completed, and asked":               {ran(childOf("", false), finished("o-1"), again), report(Processed, `{"by":"s0"}`, nil)},
		"labelled after the end":             {ran(childOf("", false), finished("o-1"), events.Event{Type: events.OrderLabelled, Labels: map[string]string{"a": "b"}}), nil},
		"in error":                           {ran(childOf("", false), events.Event{Type: events.OrderErrored, Reason: "no"}), nil},
		"turned back":                        {ran(childOf("", false), finished("o-1"), back), nil},
		"compensated":                        {ran(childOf("", false), finished("o-1"), back, events.Event{Type: events.OrderCompensated}), left(report(Compensated, "", &events.Error{Code: "compensated", Message: "o-0 is being undone"}))},
		"cancelled":                          {ran(childOf("", false), events.Event{Type: events.OrderCompensating, End: "Cancelled", Reason: "why"}, events.Event{Type: events.OrderCancelled}), left(report(Cancelled, "", &events.Error{Code: "cancelled", Message: "why"}))},
		"terminated":                         {ran(childOf("", false), events.Event{Type: events.OrderTerminated, Reason: "why"}), left(report(Terminated, "", &events.Error{Code: "terminated", Message: "why"}))},
		"raised":                             {ran(childOf("", false), events.Event{Type: events.StepRaised, Step: "s1", Error: &events.Error{Code: "full"}}, events.Event{Type: events.OrderRaised, Step: "s1", Reason: "why", Error: &events.Error{Code: "full"}}), left(report(Raised, "", &events.Error{Code: "full"}))},
		"undone":                             {ran(childOf("", false), slices.Concat([]events.Event{finished("o-1"), back}, undone("s0", events.Event{Type: events.UndoCompleted, Step: "s0", Attempt: 1}, events.Event{Type: events.OrderCompensated}))...), report(Compensated, "", &events.Error{Code: "compensated", Message: "o-0 is being undone"})},
		"undone, and another left something": {ran(childOf("", false), slices.Concat([]events.Event{finished("o-1"), back}, undone("s0", told(events.UndoCompleted), events.Event{Type: events.OrderCompensated}))...), left(report(Compensated, "", &events.Error{Code: "compensated", Message: "o-0 is being undone"}))},
		"compensated, and asked":             {ran(childOf("", false), finished("o-1"), back, events.Event{Type: events.OrderCompensated}, again), left(report(Compensated, "", &events.Error{Code: "compensated", Message: "o-0 is being undone"}))},
		"terminated, and nothing ran":        {[]events.Event{childOf("", false), {Type: events.OrderTerminated, Reason: "why"}}, report(Terminated, "", &events.Error{Code: "terminated", Message: "why"})},
		"terminated while a step runs":       {[]events.Event{childOf("", false), started("o-1", "s0", 1, at(60)), {Type: events.OrderTerminated, Reason: "why"}}, left(report(Terminated, "", &events.Error{Code: "terminated", Message: "why"}))},
		"terminated while items run":         {[]events.Event{childOf("", false), {Type: events.StepItemized, Step: "s0", Attempt: 1, Count: 1, Input: []byte("[1]")}, {Type: events.ItemsOrdered, Step: "s0", Attempt: 1, Item: 1, Count: 1}, {Type: events.OrderTerminated, Reason: "why"}}, left(report(Terminated, "", &events.Error{Code: "terminated", Message: "why"}))},
		"terminated while items are undone":  {[]events.Event{childOf("", false), {Type: events.StepItemized, Step: "s0", Attempt: 1, Count: 1, Input: []byte("[1]")}, {Type: events.ItemsOrdered, Step: "s0", Attempt: 1, Item: 1, Count: 1}, {Type: events.ItemCompleted, Step: "s0", Attempt: 1, Item: 1}, {Type: events.StepCompleted, Step: "s0", Attempt: 1}, {Type: events.OrderCompensating, End: "Cancelled", Reason: "no"}, {Type: events.ItemsOrdered, Step: "s0", Attempt: 1, Item: 1, Count: 1, ToUndo: true}, {Type: events.OrderTerminated, Reason: "why"}}, left(report(Terminated, "", &events.Error{Code: "terminated", Message: "why"}))},
		"rejected":                           {[]events.Event{{Type: events.OrderRejected, Reason: "why", Parent: "o-0", ParentStep: "hotel"}}, report(Rejected, "", &events.Error{Code: "rejected", Message: "why"})},
		"nobody waits, accepted":             {[]events.Event{childOf("", true)}, report(Pending, "", nil)},
		"nobody waits, completed":            {ran(childOf("", true), finished("o-1")), nil},
		"nobody waits, asked":                {ran(childOf("", true), finished("o-1"), again), report(Pending, "", nil)},
		"it does no step":                    {ran(accepted("o-1", "flow"), finished("o-1")), nil},
		"it does no step, and is asked":      {[]events.Event{accepted("o-1", "flow"), foreign}, &events.Report{Parent: "o-7", Step: "s", Child: "o-1", Error: &events.Error{Code: events.IDTaken}}},
		"it does another step":               {ran(childOf("", false), finished("o-1"), foreign), &events.Report{Parent: "o-7", Step: "s", Child: "o-1", Error: &events.Error{Code: events.IDTaken}}},
	} {
		o := record(t, c.history...)
		last := c.history[len(c.history)-1]
		expect(t, name, o.Reports(&last), c.want)
	}
}

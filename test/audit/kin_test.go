package audit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// word is what one order tells another, by the lane of the one: it stands in that one's partition, and
// is forwarded if the other lives elsewhere.
func (d *desk) word(from, to string, kind events.Type, value string) *kgo.Record {
	r := d.inputAt(d.topics.Internal, partition(from), to, value, header(events.HeaderType, string(kind)))
	if partition(from) != partition(to) {
		d.forward(r, to)
		r = d.last(d.topics.Internal, partition(to))
	}
	return r
}

func (d *desk) wish(child, does, step, reason string) {
	const parent = "o"
	d.word(parent, child, events.ChildWanted, fmt.Sprintf(`{"child":%q,"wish":%q,"parent":%q,"step":%q,"reason":%q}`, child, does, parent, step, reason))
}

func (d *desk) told(step, child, rest string) *kgo.Record {
	const parent = "o"
	return d.word(child, parent, events.ChildReported, fmt.Sprintf(`{"parent":%q,"step":%q,"child":%q,%s}`, parent, step, child, rest))
}

// kindredDesk is a namespace in which "o" has orders do its steps: one lives with it, "@o/a", and one
// in another partition, "p@o/b".
func kindredDesk() *desk {
	d := emptyDesk()
	from := func(r *kgo.Record) string { return placeOf(r).String() }
	ordered := func(step, child string) events.Event {
		return events.Event{Type: events.StepOrdered, Step: step, Attempt: 1, Child: child}
	}
	born := func(step string) events.Event {
		return events.Event{Type: events.OrderAccepted, Workflow: "picky", Version: 1, Parent: "o", ParentStep: step, Depth: 1}
	}
	d.submit("o", `{"workflow":"trip","version":2}`)
	d.log("o", events.Event{Type: events.OrderAccepted, Workflow: "trip", Version: 2}, ordered("a", "@o/a"), ordered("b", "p@o/b"))
	d.wish("@o/a", "begin", "a", "")
	d.wish("p@o/b", "begin", "b", "")
	d.log("@o/a", born("a"))
	d.log("p@o/b", born("b"), events.Event{Type: events.OrderCompleted})
	// Both ended: one raised, on its own, and the other is done, and told so twice.
	d.log("@o/a", events.Event{Type: events.OrderRaised, Step: "x", Error: &events.Error{Code: "no"}})
	failed := d.told("a", "@o/a", `"state":"Raised","error":{"code":"no"},"left":true`)
	done := d.told("b", "p@o/b", `"state":"Processed","output":7`)
	d.told("b", "p@o/b", `"state":"Processed","output":7`)
	raised := events.Event{Type: events.PartitionRaised, At: noon, Format: events.LeavesFormat}
	d.add(d.topics.Journal, partition("o"), "", string(raised.Append(nil)), header(events.HeaderType, string(raised.Type)))
	d.log("o", events.Event{Type: events.StepFailed, Step: "a", Attempt: 1, Left: true, Error: &events.Error{Code: "no", Permanent: true}, Source: from(failed)},
		events.Event{Type: events.StepCompleted, Step: "b", Attempt: 1, Output: []byte("7"), Source: from(done)},
		events.Event{Type: events.OrderCompensating, End: "Compensated", Reason: "why"},
		events.Event{Type: events.UndoOrdered, Step: "b", Attempt: 1, Child: "p@o/b"})
	d.wish("p@o/b", "undo", "b", "o is being undone")
	d.log("p@o/b", events.Event{Type: events.OrderCompensating, End: "Compensated", Reason: "o is being undone"}, events.Event{Type: events.OrderCompensated})
	undone := d.told("b", "p@o/b", `"state":"Compensated","error":{"code":"compensated"},"left":true`)
	d.log("o", events.Event{Type: events.OrderErrored, Held: true, Reason: "deciding on it panicked"},
		events.Event{Type: events.InputHeld, Source: from(undone), Raw: &events.Raw{Key: undone.Key, Value: undone.Value}},
		events.Event{Type: events.AlertRaised})
	d.command("o", `"command":"release","id":"c-1"`)
	d.log("o", events.Event{Type: events.OrderReleased, Command: "c-1"}, events.Event{Type: events.InputReleased, Source: from(undone)},
		events.Event{Type: events.UndoCompleted, Step: "b", Attempt: 1, Left: true, Source: from(undone)}, events.Event{Type: events.OrderCompensated})
	d.wish("p@o/b", "tell", "b", "o was released")
	d.log("p@o/b", events.Event{Type: events.OrderReported, Parent: "o", ParentStep: "b", Reason: "its parent asks once more"})
	d.told("b", "p@o/b", `"state":"Compensated","error":{"code":"compensated"}`)
	d.wish("@o/a:2", "forget", "", "") // a resubmission came to nothing
	d.seal(0)
	d.seal(1)

	// Nobody may submit what has such an id.
	d.putAside(d.submit("@x/y", tripOfP), ownID+"are those of others")
	d.seal(0)
	return d
}

func TestSettleOfChildren(t *testing.T) {
	a, said := kindredDesk().settle(true)
	for _, wrong := range said {
		t.Error(wrong)
	}
	want := Accounts{Inputs: 20, Accepted: 1, Acted: 1, Told: 7, Moot: 2, PutAside: 1, Forwarded: 7, Panicked: 1}
	if *a != want {
		t.Errorf("%+v, want %+v", *a, want)
	}
}

// What one order tells another says by its type what it is.
func TestSettleOfWhatIsOfNoType(t *testing.T) {
	for _, kind := range []string{"", string(events.OrderSubmitted)} {
		for _, aside := range []bool{true, false} {
			d := kindredDesk()
			var headers []kgo.RecordHeader
			if kind != "" {
				headers = append(headers, header(events.HeaderType, kind))
			}
			r := d.inputAt(d.topics.Internal, 0, "@o/a", `{"child":"@o/a","wish":"tell","parent":"o","step":"a","reason":"why"}`, headers...)
			if aside {
				d.putAside(r, "type does not belong on internal")
			}
			d.seal(0)
			if _, said := d.settle(true); aside != (len(said) == 0) || !aside && !strings.Contains(said[0], "was taken: it is of type") {
				t.Errorf("type %q, put aside: %t; it says %q", kind, aside, said)
			}
		}
	}
}

func TestSettleOfChildrenRefuses(t *testing.T) {
	event := func(order string, n int, change func(*events.Event)) func(*desk) {
		return func(d *desk) { d.change(order, n, change) }
	}
	lost := func(order string, n int) func(*desk) { return func(d *desk) { d.drop(order, n) } }
	for _, test := range []struct {
		name  string
		wrong func(*desk)
		says  string
	}{
		{"a child that was not asked for", event("@o/a", 1, func(e *events.Event) { e.ParentStep = "b" }), "is what no other order asked for"},
		{"a child that never began", lost("@o/a", 1), "begins an order, and came to nothing"},
		{"a child twice", func(d *desk) {
			d.log("@o/a", events.Event{Type: events.OrderAccepted, Parent: "o", ParentStep: "a"})
		}, "it was decided before"},
		{"a report that came to nothing", lost("o", 5), "is what the order waits for, and came to nothing"},
		{"an output of its own", event("o", 5, func(e *events.Event) { e.Output = []byte("8") }), "a report, Processed"},
		{"an error of its own", event("o", 4, func(e *events.Event) { e.Error.Code = "yes" }), "a report, Raised"},
		{"left, and it does not say so", event("o", 4, func(e *events.Event) { e.Left = false }), "a report, Raised"},
		{"undone with something left, and it does not say so", event("o", 13, func(e *events.Event) { e.Left = false }), "a report, Compensated"},
		{"not undone with something left, and it does not say so", func(d *desk) {
			d.change("o", 13, func(e *events.Event) {
				e.Type, e.Left, e.Error = events.UndoFailed, false, &events.Error{Code: "terminated", Permanent: true}
			})
			for _, r := range d.records[d.topics.Internal] {
				r.Value = []byte(strings.NewReplacer("Compensated", "Terminated", "compensated", "terminated").Replace(string(r.Value)))
			}
		}, "a report, Terminated"},
		{"left, before any partition says so", func(d *desk) {
			for _, r := range d.records[d.topics.Journal] {
				if events.Header(r, events.HeaderType) == string(events.PartitionRaised) {
					r.Value = fmt.Appendf(nil, `{"type":"waybill.partition.raised","format":%d}`, events.LeavesFormat-1)
				}
			}
		}, "a report, Raised"},
		{"of another child", event("o", 3, func(e *events.Event) { e.Child = "p@o/c" }), "a report, Processed"},
		{"of another attempt", event("o", 5, func(e *events.Event) { e.Attempt = 2 }), "a report, Processed"},
		{"undone, by what failed", event("o", 13, func(e *events.Event) { e.Type = events.UndoFailed }), "a report, Compensated"},
		{"of what is no record", event("o", 5, func(e *events.Event) { e.Source = "ns.internal/0/99" }), "where nothing is that another order told it"},
		{"undone of its own", event("p@o/b", 3, func(e *events.Event) { e.Reason = "why" }), "is what no other order asked for"},
		{"not undone", lost("p@o/b", 3), "has the order undone, and came to nothing"},
		{"reported to another", event("p@o/b", 5, func(e *events.Event) { e.Parent = "q" }), "is what no other order asked for"},
		{"still held", event("o", 12, func(e *events.Event) { e.Type, e.Source = events.StepStarted, "" }), "a report, Compensated"},
		{"discarded without a letter", event("o", 12, func(e *events.Event) { e.Type, e.Reason = events.InputDiscarded, "why" }), "and no dead letter says so"},
		{"put aside for nothing", func(d *desk) {
			d.putAside(d.records[d.topics.Internal][0], "why")
		}, "was put aside, and led to event 1"},
		{"put aside quietly", func(d *desk) {
			for _, r := range slices.Backward(d.records[d.topics.Internal]) {
				if strings.Contains(string(r.Value), "Processed") && r.Partition == 0 {
					d.putAside(r, "why")
					return
				}
			}
		}, "was put aside, and the journal does not say so"},
		{"of a key that is not its order's", func(d *desk) {
			d.records[d.topics.Internal][0].Key = []byte("@o/z")
		}, "@o/z"},
		{"submitted with such an id", func(d *desk) {
			d.records[d.topics.DeadLetters][0].Headers[0].Value = []byte("why")
		}, "came to nothing"},
	} {
		d := kindredDesk()
		test.wrong(d)
		if _, said := d.settle(true); len(said) == 0 || !strings.Contains(strings.Join(said, "\n"), test.says) {
			t.Errorf("%s: %q, and it must say %q", test.name, said, test.says)
		}
	}
}

// What a schedule began and is forgotten is gone, so that a command for it finds nothing; any other order is there.
func TestSettleOfWhatIsGone(t *testing.T) {
	for parent, says := range map[string]string{"@nightly": "", "o": "the submission of order \"@nightly/1/t\" came before it"} {
		const child = "@nightly/1/t"
		d := emptyDesk()
		d.word(parent, child, events.ChildWanted, fmt.Sprintf(`{"child":%q,"wish":"begin","parent":%q,"step":"t"}`, child, parent))
		d.log(child, events.Event{Type: events.OrderAccepted, Workflow: "picky", Version: 1, Parent: parent, ParentStep: "t"}, events.Event{Type: events.OrderCompleted})
		d.log(child, events.Event{Type: events.OrderForgotten})
		d.putAside(d.command(child, `"command":"pause","id":"c-1"`), noOrder)
		d.seal(0)
		if _, said := d.settle(true); says == "" && len(said) > 0 || !strings.Contains(strings.Join(said, "\n"), says) {
			t.Errorf("begun by %s: %q", parent, said)
		}
	}
}

// A child is rejected since nothing can be decided on what asks for it, and for nothing else that was put aside.
func TestSettleOfARejectedChild(t *testing.T) {
	for why, wrong := range map[string]bool{
		"deciding on it panicked: poisoned": false, "Kafka refuses what follows from it, and takes other batches: too large": false, "no reason": true,
	} {
		d := emptyDesk()
		d.submit("o", tripOfP)
		d.log("o", events.Event{Type: events.OrderAccepted, Workflow: "trip", Version: 2}, events.Event{Type: events.StepOrdered, Step: "a", Attempt: 1, Child: "@o/a"})
		d.wish("@o/a", "begin", "a", "")
		d.putAside(d.records[d.topics.Internal][0], why)
		d.log("@o/a", events.Event{Type: events.OrderRejected, Workflow: "picky", Parent: "o", ParentStep: "a", Reason: why})
		if _, said := d.settle(false); (len(said) > 0) != wrong {
			t.Errorf("%s: %q", why, said)
		}
	}
}

// homeOfO is where order "o" waits for a signal.
const homeOfO = "@k/signal.pay"

// want is what order "o" tells the home of its key about its wait.
func (d *desk) want(what, id, rest string) *kgo.Record {
	return d.word("o", homeOfO, events.SignalWanted, fmt.Sprintf(`{"correlation":%q,"want":%q,"order":"o","wait":2,"step":"a","signal":"pay","key":"k","signalId":%q%s}`, homeOfO, what, id, rest))
}

// The home of a key is forgotten, and begins anew: a command may find none in between, and only then.
func TestSettleOfAHomeThatIsGone(t *testing.T) {
	for forgotten, says := range map[bool]string{true: "", false: noOrder + ", and the journal has it"} {
		d := emptyDesk()
		wait := events.Event{Waiter: "o", Step: "a", Wait: 2}
		for _, turn := range []struct {
			want string
			led  events.Type
		}{{events.WantAwait, events.WaitBegan}, {events.WantWithdraw, events.WaitEnded}} {
			wait.Type, wait.Source = turn.led, placeOf(d.want(turn.want, "", "")).String()
			d.log(homeOfO, wait)
		}
		if forgotten {
			d.log(homeOfO, events.Event{Type: events.OrderForgotten})
		}
		d.putAside(d.command(homeOfO, `"command":"release","id":"c-1"`), noOrder)
		d.seal(0)
		if _, said := d.settle(true); says == "" && len(said) > 0 || !strings.Contains(strings.Join(said, "\n"), says) {
			t.Errorf("forgotten: %t: %q", forgotten, said)
		}
	}
}

// Who hears a signal that went back, since it was given up and put back, may have been given another meanwhile; what is
// put back itself may come too late for anything.
func TestSettleOfWhatIsHeardAgain(t *testing.T) {
	const nothing = `heard of signal pay, "s", of wait 2 of order "o", came to nothing`
	for _, test := range []struct {
		name, back string // which signal went back
		other      bool   // the wait was given another
		again      bool   // what was heard is put back
		says       string
	}{
		{"it went back", "s", true, false, ""},
		{"it went back, and the wait has no other", "s", false, false, nothing},
		{"another went back", "u", true, false, nothing},
		{"it was put back", "u", true, true, ""},
	} {
		d := emptyDesk()
		given := func(id string) {
			r := d.input(d.topics.Signals, "k", fmt.Sprintf(`{"signal":"pay","key":"k","id":%q}`, id))
			d.log(homeOfO, events.Event{Type: events.SignalGiven, Key: "k", Signal: "pay", SignalID: id, Source: placeOf(r).String(), Waiter: "o", Step: "a", Wait: 2})
		}
		d.log(homeOfO, events.Event{Type: events.WaitBegan, Waiter: "o", Step: "a", Wait: 2, Source: placeOf(d.want(events.WantAwait, "", "")).String()})
		given("s")
		d.want(events.WantUnheard, test.back, `,"given":2,"reason":"given-up"`)
		d.log(homeOfO, events.Event{Type: events.SignalDiscarded, Reason: events.SignalGivenUp, Key: "k", Signal: "pay", SignalID: "s", Source: "ns.signals/0/0"})
		if test.other {
			given("t")
		}
		if heard := d.want(events.WantHeard, "s", `,"over":true`); test.again {
			heard.Headers = append(heard.Headers, header("waybill_replayed_from", "ns.dead-letters/0/0"))
			d.add(d.topics.DeadLetters, 0, homeOfO, string(heard.Value), heard.Headers[0], header("waybill_reason", noOrder), header("waybill_source", "ns.internal/0/9"))
		}
		d.log(homeOfO, events.Event{Type: events.WaitEnded, Waiter: "o", Wait: 2, Source: placeOf(d.want(events.WantUnheard, "t", `,"given":4`)).String()})
		_, said := d.settle(false)
		said = slices.DeleteFunc(said, func(s string) bool { return strings.HasPrefix(s, "a dead letter is from ns.internal/0/9") })
		if test.says == "" && len(said) > 0 || !strings.Contains(strings.Join(said, "\n"), test.says) {
			t.Errorf("%s: %q", test.name, said)
		}
	}
}

package audit

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/proof"
)

// flooded is a namespace of format 2 with an order that gets other submissions, and more
// replies and commands in vain than it may record.
func flooded() *desk {
	d := emptyDesk()
	d.claim(2)
	first := accepted()
	first.Digest = digestOf(d.submit("o", wholeTrip))
	d.log("o", first, events.Event{Type: events.StepStarted, Step: "a", Attempt: 1})

	d.submit("o", wholeTrip)
	other := d.submit("o", `{"workflow":"trip","replyTo":"mall"}`)
	d.submit("o", tripOfP)
	d.submit("o", wholeTrip)
	d.dropped = 1
	d.log("o", events.Event{Type: events.SubmissionConflicted, Source: placeOf(other).String(), Digest: digestOf(other), ReplyTo: "mall", Reason: "another made the order"})

	const inVain = `"step":"b","attempt":1,"status":"completed"`
	var all []events.Event
	for n := range maxVoid {
		d.reply("o", inVain)
		all = append(all, events.Event{Type: events.ReplyDiscarded, Step: "b", Attempt: 1, Reason: events.DiscardUnknownStep, Count: n + 1})
	}
	d.log("o", all...)
	d.reply("o", inVain)
	d.reply("o", `"step":"a","attempt":1,"status":"completed","output":7`)
	d.reply("o", `"step":"a","attempt":1,"status":"completed","output":8`)
	d.dropped = 2
	d.log("o", events.Event{Type: events.StepCompleted, Step: "a", Attempt: 1, Output: []byte("7")})
	d.reply("o", inVain)
	d.dropped = 1
	d.seal(0)

	all = nil
	for n := range maxVoid {
		d.command("o", `"command":"resume"`)
		all = append(all, events.Event{Type: events.CommandRefused, Operation: "resume", Reason: "it is not paused", Count: n + 1})
	}
	d.log("o", all...)
	d.command("o", `"command":"resume","id":"c-1"`)
	d.command("o", `"command":"pause","id":"c-2"`)
	d.command("o", `"command":"pause","id":"c-2"`)
	d.command("o", `"command":"pause","id":"c-3"`)
	d.command("o", `"command":"pause","id":"c-2"`)
	d.dropped = 2
	d.log("o", events.Event{Type: events.OrderPaused, Command: "c-2"})

	// What waits comes behind what was dropped in the same transaction.
	d.reply("o", inVain)
	waits := d.reply("o", inVain)
	d.dropped = 1
	d.log("o", events.Event{Type: events.OrderErrored, Held: true, Reason: "deciding on it panicked"},
		events.Event{Type: events.InputHeld, Source: placeOf(waits).String(), Raw: &events.Raw{Written: waits.Timestamp, Key: waits.Key, Value: waits.Value}})
	d.command("o", `"command":"release","id":"c-4"`)
	d.log("o", events.Event{Type: events.OrderReleased, Command: "c-4"}, events.Event{Type: events.InputReleased, Source: placeOf(waits).String()},
		events.Event{Type: events.ReplyDiscarded, Step: "b", Attempt: 1, Reason: events.DiscardUnknownStep, Count: maxVoid + 1})
	return d
}

// What is forged is dropped before the reply that says the same, and repeats its token.
func TestWhatIsForgedIsDroppedBeforeWhatCounts(t *testing.T) {
	const done = `"step":"a","attempt":1,"status":"completed","output":7`
	d := emptyDesk()
	d.keys = proof.New([]proof.Key{{ID: "k", Secret: []byte("s")}}, proof.Require, nil)
	d.claim(events.JournalFormat)
	first := accepted()
	first.Digest = digestOf(d.submit("o", wholeTrip))
	d.log("o", first, events.Event{Type: events.StepStarted, Step: "a", Attempt: 1, Agent: "x", Proof: events.ProofRequire})
	var all []events.Event
	for n := range maxVoid {
		forged := d.reply("o", done)
		all = append(all, events.Event{Type: events.ReplyDiscarded, Step: "a", Attempt: 1, Reason: events.DiscardForged, Count: n + 1, Source: placeOf(forged).String()})
	}
	d.log("o", all...)
	d.reply("o", done)
	d.reply("o", done)
	d.dropped = 2
	counts := d.reply("o", done+`,"token":"`+d.keys.Token(&proof.Attempt{Namespace: "ns", Order: "o", Step: "a", Number: 1, Agent: "x"})+`"`)
	d.log("o", events.Event{Type: events.StepCompleted, Step: "a", Attempt: 1, Output: []byte("7"), Source: placeOf(counts).String()})
	d.seal(0)
	if _, said := d.settle(false); len(said) > 0 {
		t.Error(said)
	}
}

// Of what cannot wait while an order is held the dead letters are all there, and 100 events.
func TestSettleOfDeadLettersWithoutEvents(t *testing.T) {
	const why = "the order is held, and this cannot wait for its release: 100 inputs wait, and no more may"
	for _, letters := range []int{maxVoid + 1, maxVoid} {
		d := emptyDesk()
		d.submit("o", tripOfP)
		all := []events.Event{
			{Type: events.OrderAccepted, Workflow: "trip", Version: 2},
			{Type: events.OrderErrored, Held: true, Reason: "deciding on it panicked"},
		}
		for n := range maxVoid + 1 {
			r := d.reply("o", `"step":"a","attempt":1,"status":"completed"`)
			if n < letters {
				d.putAside(r, why)
			}
			if n < maxVoid {
				all = append(all, events.Event{Type: events.InputDiscarded, Source: placeOf(r).String(), Reason: why, Count: n + 1})
			}
		}
		d.dropped = 1
		d.log("o", all...)
		a, said := d.settle(true)
		if whole := letters > maxVoid; whole != (len(said) == 0) || whole && a.Dropped != 1 {
			t.Errorf("%d dead letters: %d dropped, %q", letters, a.Dropped, said)
		}
	}
}

// A refusal counts where deciding on the command panicked, and it is among the dead letters.
func TestSettleOfRefusalsThatPanicked(t *testing.T) {
	const why = "deciding on it panicked: poisoned"
	d := emptyDesk()
	d.submit("o", tripOfP)
	all := []events.Event{{Type: events.OrderAccepted, Workflow: "trip", Version: 2}}
	for n := range maxVoid {
		r := d.command("o", `"command":"resume"`)
		reason := "it is not paused"
		if n+1 == maxVoid {
			reason = why
			d.putAside(r, why)
		}
		all = append(all, events.Event{Type: events.CommandRefused, Operation: "resume", Reason: reason, Count: n + 1})
	}
	d.log("o", all...)
	d.command("o", `"command":"resume"`)
	d.dropped = 1
	d.seal(0)
	a, said := d.settle(true)
	if len(said) > 0 || a.Dropped != 1 || a.Panicked != 1 || a.Refused != maxVoid-1 {
		t.Errorf("%d dropped, %d panicked, %d refused: %q", a.Dropped, a.Panicked, a.Refused, said)
	}
}

// A command on which deciding panics is refused also where its like are dropped, before it and
// behind it.
func TestSettleOfARefusalThatPanickedAmongTheDropped(t *testing.T) {
	const why = "deciding on it panicked: poisoned"
	d := emptyDesk()
	d.submit("o", tripOfP)
	all := []events.Event{{Type: events.OrderAccepted, Workflow: "trip", Version: 2}}
	for n := range maxVoid {
		d.command("o", `"command":"resume"`)
		all = append(all, events.Event{Type: events.CommandRefused, Operation: "resume", Reason: "it is not paused", Count: n + 1})
	}
	for range 2 {
		d.command("o", `"command":"resume"`)
	}
	d.putAside(d.command("o", `"command":"resume"`), why)
	d.dropped = 2
	d.log("o", append(all, events.Event{Type: events.CommandRefused, Operation: "resume", Reason: why, Count: maxVoid + 1})...)
	d.command("o", `"command":"resume"`)
	d.dropped = 1
	d.seal(0)
	a, said := d.settle(true)
	if len(said) > 0 || a.Dropped != 3 || a.Panicked != 1 || a.Refused != maxVoid {
		t.Errorf("%d dropped, %d panicked, %d refused: %q", a.Dropped, a.Panicked, a.Refused, said)
	}
}

func digestOf(r *kgo.Record) string {
	s, err := events.Decode[events.Submission](r.Value)
	if err != nil {
		panic(err)
	}
	return s.Digest()
}

func TestSettleOfAFlood(t *testing.T) {
	a, said := flooded().settle(true)
	for _, wrong := range said {
		t.Error(wrong)
	}
	want := Accounts{
		Inputs: 217, Accepted: 1, Known: 2, Conflicts: 1, Replied: 1, Discarded: 101,
		Acted: 2, Refused: 100, Repeated: 2, Dropped: 7, Panicked: 1,
	}
	if *a != want {
		t.Errorf("%+v, want %+v", *a, want)
	}
}

func TestSettleRefusesWhatIsDropped(t *testing.T) {
	event := func(n int, change func(*events.Event)) func(*desk) {
		return func(d *desk) { d.change("o", n, change) }
	}
	for _, test := range []struct {
		name  string
		wrong func(*desk)
		says  string
	}{
		{"more is dropped than it says", func(d *desk) {
			d.reply("o", `"step":"b","attempt":1,"status":"completed"`)
			d.seal(0)
		}, "says that it dropped 0 inputs, and it dropped 1"},
		{"less is dropped than it says", func(d *desk) {
			d.dropped = 3
			d.seal(0)
		}, "says that it dropped 3 inputs, and it dropped 0"},
		{"a reply is dropped that nobody need drop", func(d *desk) { d.drop("o", 103) }, "is a reply: step b, attempt 1, completed, and led to waybill.step.completed a"},
		{"a command is dropped that nobody need drop", func(d *desk) { d.drop("o", 204) }, "came to nothing: command"},
		{"a conflict that nobody was told of", func(d *desk) { d.drop("o", 3) }, "says something else than the submission of order"},
		{"a conflict with what says the same", event(3, func(e *events.Event) { e.Source = "ns.orders/0/1" }), "has the digest"},
		{"a conflict with what comes later", event(3, func(e *events.Event) { e.Source = "ns.orders/0/3" }), "says something else than the submission of order"},
		{"a conflict with nothing", event(3, func(e *events.Event) { e.Source = "ns.orders/0/9" }), "whose turn it is not"},
		{"a conflict from nowhere", event(3, func(e *events.Event) { e.Source = "x" }), "is no place"},
		{"a conflict of another digest", event(3, func(e *events.Event) { e.Digest = "x" }), `event 3 says "x"`},
		{"a conflict that others are told of", event(3, func(e *events.Event) { e.ReplyTo = "shop" }), `is to be told on "mall"`},
		{"a conflict that its sender is not told of", event(3, func(e *events.Event) { e.ReplyTo = "" }), `is to be told on "mall"`},
		{"an order of another digest", event(1, func(e *events.Event) { e.Digest = "x" }), `and its order "x"`},
		{"an order without a digest", event(1, func(e *events.Event) { e.Digest = "" }), `and its order ""`},
	} {
		d := flooded()
		test.wrong(d)
		_, said := d.settle(true)
		if !strings.Contains(strings.Join(said, "\n"), test.says) {
			t.Errorf("%s: %q", test.name, said)
		}
	}
	d := flooded()
	d.change("o", 3, func(e *events.Event) {
		e.ReplyTo, e.Reason = "", "it changes nothing, and its own topic is not told: it is gone"
	})
	if _, said := d.settle(true); len(said) > 0 {
		t.Errorf("a topic that is gone: %q", said)
	}
}

// A submission that waited, and says something else than the first, is dropped if another was recorded meanwhile.
func TestWhatWaitedIsDropped(t *testing.T) {
	for dropped, wrong := range []bool{true, false, true} {
		d := emptyDesk()
		d.claim(2)
		first := accepted()
		first.Digest = digestOf(d.submit("o", wholeTrip))
		d.log("o", first)
		waits := d.submit("o", tripOfP)
		d.log("o", events.Event{Type: events.OrderErrored, Held: true, Reason: "deciding on it panicked"},
			events.Event{Type: events.InputHeld, Source: placeOf(waits).String(), Raw: &events.Raw{Written: waits.Timestamp, Key: waits.Key, Value: waits.Value}})
		other := d.submit("o", `{"workflow":"trip","replyTo":"mall"}`)
		d.log("o", events.Event{Type: events.SubmissionConflicted, Source: placeOf(other).String(), Digest: digestOf(other), ReplyTo: "mall", Reason: "another made the order"})
		d.command("o", `"command":"release","id":"c-1"`)
		d.dropped = dropped
		d.log("o", events.Event{Type: events.OrderReleased, Command: "c-1"}, events.Event{Type: events.InputReleased, Source: placeOf(waits).String()})
		a, said := d.settle(true)
		if (len(said) > 0) != wrong || !wrong && (a.Dropped != 1 || a.Known != 0) {
			t.Errorf("%d dropped: %q, %v", dropped, said, a)
		}
	}
}

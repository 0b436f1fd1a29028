package audit

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/proof"
)

var (
	deskKeys   = proof.New([]proof.Key{{ID: "k", Secret: []byte("s")}}, proof.Off, nil)
	othersKeys = proof.New([]proof.Key{{ID: "k", Secret: []byte("t")}}, proof.Off, nil)
)

// author is somebody who is known, by a signature of a time before noon.
func author(role string, before time.Duration) *events.Actor {
	return &events.Actor{Method: "key", Roles: []string{role}, At: noon.Add(-before)}
}

// signedBy puts an input of order o on a topic, signed if by is somebody.
func (d *desk) signedBy(keys *proof.Keys, by *events.Actor, topic, value string) {
	r := d.input(topic, "o", value)
	if by != nil {
		r.Headers = append(r.Headers, header(events.HeaderActor, string(keys.Sign("ns", "o", r.Value, by))))
	}
}

// keyedDesk is one whose keys are known, with order o accepted.
func keyedDesk() *desk {
	d := emptyDesk()
	d.keys = deskKeys
	d.claim(events.JournalFormat)
	d.submit("o", `{"workflow":"trip"}`)
	d.accepted(events.Event{})
	return d
}

// accepted has order o be accepted, by what was submitted.
func (d *desk) accepted(e events.Event) {
	submission, err := events.Decode[events.Submission](d.records[d.topics.Orders][0].Value)
	if err != nil {
		panic(err)
	}
	e.Type, e.Workflow, e.Version, e.Digest = events.OrderAccepted, "trip", 2, submission.Digest()
	d.log("o", e)
}

// says wants that the accounts report what has these words, and nothing where there are none.
func (d *desk) says(t *testing.T, words string) *Accounts {
	t.Helper()
	a, said := d.settle(true)
	if words == "" && len(said) > 0 || words != "" && !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, words) }) {
		t.Errorf("want %q, and it says %q", words, said)
	}
	return a
}

// An event names who has signed the command, or the submission, behind it, and nobody else.
func TestSettleOfAuthors(t *testing.T) {
	ana, bob := author("operator", 0), author("approver/clerk", 0)
	for name, test := range map[string]struct {
		by, names *events.Actor
		keys      *proof.Keys // by which it was signed
		blind     bool        // nobody told the accounts what keys there are
		format    int
		says      string
	}{
		"signed":                                   {by: ana, names: ana},
		"unsigned":                                 {},
		"signed, and of nobody":                    {by: ana, says: "of nobody who is known"},
		"unsigned, and of somebody":                {names: ana, says: "by nobody who has a key"},
		"signed by another":                        {by: ana, names: bob, says: `"approver/clerk"`},
		"forged":                                   {by: ana, keys: othersKeys},
		"forged, and believed":                     {by: ana, names: ana, keys: othersKeys, says: "by nobody who has a key"},
		"signed yesterday":                         {by: author("operator", 30*time.Hour)},
		"signed before formats have them":          {by: ana, format: events.ProofFormat - 1},
		"no keys are known":                        {by: ana, names: ana, blind: true},
		"of nobody, and no keys are known":         {by: ana, blind: true},
		"unsigned, and no keys are known":          {names: ana, blind: true, says: "by nobody who has a key"},
		"signed by another, and no keys are known": {by: ana, names: bob, blind: true, says: `"approver/clerk"`},
	} {
		t.Run(name, func(t *testing.T) {
			for of, put := range map[string]func(d *desk, keys *proof.Keys){
				"a command": func(d *desk, keys *proof.Keys) {
					d.submit("o", `{"workflow":"trip"}`)
					d.accepted(events.Event{})
					d.signedBy(keys, test.by, d.topics.Commands, `{"command":"pause","id":"c-1","by":"ana"}`)
					d.log("o", events.Event{Type: events.OrderPaused, Command: "c-1", By: "ana", Actor: test.names})
				},
				"a submission": func(d *desk, keys *proof.Keys) {
					d.signedBy(keys, test.by, d.topics.Orders, `{"workflow":"trip","by":"ana"}`)
					e := events.Event{By: "ana", Actor: test.names}
					if test.format > 0 {
						e.By = ""
					}
					d.accepted(e)
				},
			} {
				d, keys := emptyDesk(), deskKeys
				if !test.blind {
					d.keys = deskKeys
				}
				if test.keys != nil {
					keys = test.keys
				}
				d.claim(cmp.Or(test.format, events.JournalFormat))
				put(d, keys)
				t.Log(of)
				d.says(t, test.says)
			}
		})
	}
}

// A command whose author is known acts once, whatever came between. One of nobody does so only right behind itself.
func TestSettleOfWhatActsOnce(t *testing.T) {
	const pause, resume = `{"command":"pause","id":"c-1"}`, `{"command":"resume","id":"c-2"}`
	ana := author("operator", 0)
	paused, resumed := events.Event{Type: events.OrderPaused, Command: "c-1", Actor: ana}, events.Event{Type: events.OrderResumed, Command: "c-2", Actor: ana}
	for name, test := range map[string]struct {
		again    *events.Actor // who signs it once more
		value    string        // if it is another under the same id
		straight bool          // nothing came between
		led      *events.Event
		repeated int
		says     string
	}{
		"again":                                {again: ana, value: pause, repeated: 1},
		"unsigned":                             {value: pause, says: "came to nothing"},
		"unsigned, and done":                   {value: pause, led: &events.Event{Type: events.OrderPaused, Command: "c-1"}},
		"another":                              {again: ana, value: `{"command":"cancel","id":"c-1"}`, says: "came to nothing"},
		"another, and refused":                 {again: ana, value: `{"command":"cancel","id":"c-1"}`, led: &events.Event{Type: events.CommandRefused, Operation: "cancel", Command: "c-1", Actor: ana, Reason: "it is another", Count: 1}},
		"another straight behind, and refused": {straight: true, again: ana, value: `{"command":"cancel","id":"c-1"}`, led: &events.Event{Type: events.CommandRefused, Operation: "cancel", Command: "c-1", Actor: ana, Reason: "it is another", Count: 1}},
		"unsigned straight behind":             {straight: true, value: pause, repeated: 1},
		"signed yesterday, and done":           {again: author("operator", 30*time.Hour), value: pause, led: &events.Event{Type: events.OrderPaused, Command: "c-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := keyedDesk()
			d.signedBy(deskKeys, ana, d.topics.Commands, pause)
			all := []events.Event{paused}
			if !test.straight {
				d.signedBy(deskKeys, ana, d.topics.Commands, resume)
				all = append(all, resumed)
			}
			d.signedBy(deskKeys, test.again, d.topics.Commands, test.value)
			if test.led != nil {
				all = append(all, *test.led)
			}
			d.log("o", all...)
			if a := d.says(t, test.says); a.Repeated != test.repeated {
				t.Errorf("%d were repeated", a.Repeated)
			}
		})
	}
}

// What came again, and led to nothing then, is not what an event is of days later, when its signature would not count any more.
func TestSettleOfWhatCameAgainLongAgo(t *testing.T) {
	const pause, resume = `{"command":"pause","id":"c-1"}`, `{"command":"resume","id":"c-2"}`
	ana := author("operator", 0)
	d := keyedDesk()
	d.signedBy(deskKeys, ana, d.topics.Commands, pause)
	d.signedBy(deskKeys, nil, d.topics.Commands, resume)
	d.signedBy(deskKeys, ana, d.topics.Commands, pause)
	d.log("o", events.Event{Type: events.OrderPaused, Command: "c-1", Actor: ana}, events.Event{Type: events.OrderResumed, Command: "c-2"})
	d.signedBy(deskKeys, nil, d.topics.Commands, resume)
	d.signedBy(deskKeys, nil, d.topics.Commands, pause)
	d.signedBy(deskKeys, nil, d.topics.Commands, `{"command":"resume","id":"c-3"}`)
	later := noon.Add(7 * 24 * time.Hour)
	d.log("o", events.Event{Type: events.OrderPaused, Command: "c-1", At: later}, events.Event{Type: events.OrderResumed, Command: "c-3", At: later})
	if a := d.says(t, ""); a.Repeated != 2 || a.Acted != 4 {
		t.Errorf("%d were repeated, and %d acted", a.Repeated, a.Acted)
	}
}

// An event names who sent the reply, or the signal, behind it.
func TestSettleOfSenders(t *testing.T) {
	for _, test := range []struct{ sender, named, says string }{
		{"tool", "tool", ""},
		{"", "", ""},
		{"tool", "", `is by "tool"`},
		{"tool", "else", `by "else"`},
		{"", "else", `by "else"`},
		{strings.Repeat("é", nameLength), cut(strings.Repeat("é", nameLength), nameLength), ""},
	} {
		d := emptyDesk()
		d.claim(events.JournalFormat)
		d.submit("o", `{"workflow":"trip"}`)
		d.accepted(events.Event{})
		d.log("o", events.Event{Type: events.StepStarted, Step: "a", Attempt: 1})
		r := d.reply("o", `"step":"a","attempt":1,"status":"completed"`)
		r.Headers = append(r.Headers, header(events.HeaderSource, test.sender))
		d.log("o", events.Event{Type: events.StepCompleted, Step: "a", Attempt: 1, Source: placeOf(r).String(), AnsweredBy: test.named})
		d.says(t, test.says)

		d = emptyDesk()
		d.claim(events.JournalFormat)
		d.submit("o", `{"workflow":"trip"}`)
		d.accepted(events.Event{})
		r = d.input(d.topics.Signals, "o", `{"signal":"go","id":"s-1","data":1}`)
		r.Headers = append(r.Headers, header(events.HeaderSource, test.sender))
		kept := events.Event{Type: events.SignalKept, Signal: "go", SignalID: "s-1", Data: []byte("1"), Source: placeOf(r).String(), AnsweredBy: test.named}
		heard := events.Event{Type: events.StepHeard, Step: "a", Attempt: 1, Signal: "go", SignalID: "s-1", Source: kept.Source}
		d.log("o", kept, heard)
		d.says(t, test.says)
	}
}

// What follows from nothing that anybody can sign names nobody who signed.
func TestSettleOfWhatNobodySigns(t *testing.T) {
	d := emptyDesk()
	d.claim(events.JournalFormat)
	d.submit("o", `{"workflow":"none"}`)
	d.log("o", events.Event{Type: events.OrderRejected, Workflow: "none", Reason: "workflow none is not registered", Actor: author("operator", 0)})
	d.says(t, "follows from nothing that is signed")
}

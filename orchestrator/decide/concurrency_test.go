package decide

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/inspect"
	"github.com/waybill-dev/waybill/test/oracle"
)

// turnsWrong are histories of a home of turns, and of an order that waits for one, each of which breaks a rule.
func turnsWrong() (home, order recording, ofHome, ofOrder [][]events.Event, find func(string, int) *oracle.Flow) {
	const internal = "waybill.internal/0/1"
	of := func(id string, all []events.Event) []events.Event {
		for i := range all {
			all[i].Order, all[i].Seq, all[i].At = id, uint64(i+1), inspect.Curtain
		}
		return all
	}
	seat := func(kind events.Type, waiter string, rank uint64, does events.OnConflict) events.Event {
		return events.Event{Type: kind, Waiter: waiter, Wait: 2, Key: "k", Rank: rank, Source: internal, OnConflict: does}
	}
	granted := seat(events.PlaceGranted, "a", 1, "")
	awaited, comes := seat(events.PlaceAwaited, "b", 2, ""), seat(events.PlaceAwaited, "c", 3, events.ConflictCancelOther)
	back, away := events.Event{Type: events.PlaceReturned, Waiter: "a", Wait: 2, Source: internal}, events.Event{Type: events.PlaceReturned, Waiter: "b", Wait: 2, Error: &events.Error{Code: events.Superseded, Message: "order c has come in its place", Permanent: true}}
	then := seat(events.PlaceGranted, "b", 2, "")
	then.Source = ""
	stepped, told, early := granted, back, away
	stepped.Step, told.Source, early.Waiter = "s", "", "a"
	for _, h := range [][]events.Event{
		{awaited},
		{{Type: events.CommandRefused, Operation: events.CommandRelease, Reason: "why", Count: 1}},
		{stepped},
		{granted, told},
		{granted, awaited, away},
		{granted, awaited, comes, early},
		{granted, awaited, comes, back, then},
		{granted, awaited, comes}, // and nobody sends b away
		{granted, {Type: events.OrderForgotten}},
	} {
		ofHome = append(ofHome, of("@k/open.w", h))
	}
	flow := &oracle.Flow{Name: "w", Steps: []oracle.FlowStep{{Name: "a", Agent: "x", Do: "a", Timeout: oracle.Timeout{After: oracle.Duration(time.Second)}, Exhausted: "error"}}}
	flow.Steps[0].Retry.Attempts = 1
	flow.Concurrency = new(oracle.FlowConcurrency{Key: `"k"`, OnConflict: events.ConflictQueue})
	accepted := events.Event{Type: events.OrderAccepted, Workflow: "w", Version: 1, Steps: []string{"a"}}
	queued := events.Event{Type: events.OrderQueued, Home: "@k/open.w", Key: "k", OnConflict: events.ConflictQueue}
	other := queued
	other.Home = "@k/open.v"
	begun := events.Event{Type: events.OrderStarted}
	starts := events.Event{Type: events.StepStarted, Step: "a", Attempt: 1, Agent: "x", Operation: "a", IdempotencyKey: "o/a", CompleteBy: inspect.Curtain.Add(time.Second), LockedBy: "i-1"}
	for _, h := range [][]events.Event{
		{accepted, starts},
		{accepted, begun},
		{accepted, queued, begun, begun},
		{accepted, queued, starts},
		{accepted, queued, queued},
		{accepted, other},
		{accepted, queued, {Type: events.OrderErrored, Reason: "workflow w@1 is gone"}, {Type: events.AlertRaised, Reason: "workflow w@1 is gone", Action: "do"}, {Type: events.OrderResubmitted}, other},
		{accepted, queued, begun, {Type: events.OrderRaised, Reason: "why", Error: &events.Error{Code: events.Conflict, Permanent: true}}},
		{accepted, queued, {Type: events.OrderCompensating, End: "Cancelled", Reason: "why", Error: &events.Error{Code: events.Superseded, Permanent: true}}},
	} {
		ofOrder = append(ofOrder, of("o", h))
	}
	hurried := accepted
	hurried.Deadline = inspect.Curtain.Add(time.Second)
	late := of("o", []events.Event{hurried, queued, begun})
	late[2].At = inspect.Curtain.Add(time.Minute)
	ofOrder = append(ofOrder, late)
	find = func(string, int) *oracle.Flow { return flow }
	home = recording{history: ofHome[0], owners: []string{"i-1"}, find: func(string, int) *oracle.Flow { return nil }}
	order = recording{history: ofOrder[0], owners: []string{"i-1"}, find: find}
	return home, order, ofHome, ofOrder, find
}

// Each of these histories breaks a rule.
func TestTurnsHaveRules(t *testing.T) {
	home, order, ofHome, ofOrder, find := turnsWrong()
	breakRules(t, &home, &order, ofHome, ofOrder, find)
}

// A newcomer sends as many away as wait, a hundred in a decision; the supervisor has the others. None of them gets the
// turn.
func TestAThousandAreSentAway(t *testing.T) {
	const most = 1_000
	s := newStage(t)
	defer s.close()
	h, home := &atHome{t: t, env: s.env("")}, events.TurnID("w", "k")
	ask := func(order string, does events.OnConflict) Decision {
		return h.take(&Input{Order: home, Bid: &events.Bid{Home: home, Bid: events.BidAsk, Order: order, Wait: 2, Key: "k", OnConflict: does}})
	}
	ask("first", events.ConflictQueue)
	for n := range most {
		ask(fmt.Sprint("o-", n), events.ConflictQueue)
	}
	told := make(map[string]string)
	tell := func(d Decision) (n int) {
		for i := range d.Messages {
			if g, err := events.Decode[events.Grant](d.Messages[i].Value); err == nil && d.Messages[i].Envelope.Type == events.PlaceGiven {
				if told[g.Order] != "" {
					t.Fatalf("%s is told twice", g.Order)
				}
				if told[g.Order] = "its turn"; g.Error != nil {
					told[g.Order] = g.Error.Code
				}
				n++
			}
		}
		return n
	}
	if n := tell(ask("last", events.ConflictCancelOther)); n != 1+beginAtOnce {
		t.Errorf("%d are told at once", n)
	}
	for rounds := 0; !h.order.Grants().IsZero(); rounds++ {
		if rounds > most/beginAtOnce {
			t.Fatal("the supervisor has no end")
		}
		d := Supervise(h.env, h.order, "")
		tell(d)
		h.order = d.Order
	}
	if told["first"] != events.Superseded || told["last"] != "" || len(told) != 1+most {
		t.Errorf("the first is told %q, the last %q, and %d in all are told something", told["first"], told["last"], len(told))
	}
	tell(h.take(&Input{Order: home, Bid: &events.Bid{Home: home, Bid: events.BidBack, Order: "first", Wait: 2}}))
	if told["last"] != "its turn" || h.order.Places.Waiting != 0 {
		t.Errorf("the last is told %q, and %d wait", told["last"], h.order.Places.Waiting)
	}
}

// turnOf is an order of a workflow that waits for its turn.
func turnOf(workflow string) []events.Event {
	return []events.Event{
		{Type: events.OrderAccepted, Order: "o", Seq: 1, At: inspect.Curtain, Workflow: workflow, Version: 1, Steps: []string{"a"}},
		{Type: events.OrderQueued, Order: "o", Seq: 2, At: inspect.Curtain, Home: events.TurnID(workflow, "k"), Key: "k", OnConflict: events.ConflictQueue},
	}
}

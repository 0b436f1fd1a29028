package decide

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

const panicked = "deciding on it panicked"

// says tells whether something of this type follows from a decision.
func says(d *Decision, what events.Type) bool {
	return slices.ContainsFunc(d.Messages, func(m Message) bool { return m.Envelope.Type == what })
}

// S6: where there is no order that could be held, what panics is put aside. It begins none: neither a schedule or a limit, nor the home of
// a key or of turns, also not again; a submission is rejected, and the order that wished for it hears so.
func TestWhatPanicsBeginsNothing(t *testing.T) {
	turn := events.TurnID("book", "ann")
	book := events.Submission{Workflow: "book"}
	begin := events.Wish{Child: hotelOf, Wish: events.WishBegin, Parent: "o-1", Step: "hotel", Workflow: "book", Version: 1}
	apply := &events.Command{Command: events.CommandApply}
	bid := func(home string) Input {
		return Input{Order: home, Bid: &events.Bid{Home: home, Bid: events.BidAsk, Order: "o-1", Step: "pay", Wait: 2}}
	}
	for name, c := range map[string]struct {
		in        Input
		forgotten bool // what the home knew
		rejected  bool
	}{
		"a submission":      {in: Input{Order: "o-1", Submission: book}, rejected: true},
		"a wish":            {in: wants(hotelOf, begin), rejected: true},
		"a schedule":        {in: Input{Order: events.ScheduleID("daily"), Command: apply}},
		"a limit":           {in: Input{Order: bank, Command: apply}},
		"what is passed on": {in: Input{Order: "o-1", Pass: &events.Pass{Order: "o-1", Step: "paid", Wait: 2}}},
		"what is granted":   {in: Input{Order: "o-1", Grant: &events.Grant{Order: "o-1", Step: "pay", Wait: 2, Home: bank}}},
		"a place":           {in: bid(bank)},
		"a turn":            {in: bid(turn)},
		"a signal":          {in: keyed("pay-1", "")},
		"a wait":            {in: awaited},
		"a turn, again":     {in: bid(turn), forgotten: true},
		"a signal, again":   {in: keyed("pay-1", ""), forgotten: true},
		"a wait, once more": {in: awaited, forgotten: true},
	} {
		f := newFamily(t)
		if c.in.Record = f.record; c.forgotten {
			f.order = &projections.Order{ID: c.in.Order, Seq: 7, Forgotten: true}
		}
		d := Hold(f.env, f.order, &c.in, panicked)
		if len(d.Aside) != 1 || d.Aside[0].Reason != panicked {
			t.Errorf("%s: put aside is %+v", name, d.Aside)
		}
		if (d.Order != nil) != c.rejected || c.rejected && (d.Order.State != projections.Rejected || d.Order.Reason != panicked) {
			t.Errorf("%s begins %+v", name, d.Order)
		}
		heard := says(&d, events.ChildReported)
		if heard != (c.in.Wish != nil) {
			t.Errorf("%s: who wished for it hears of it: %t", name, heard)
		}
	}
}

// A4: whoever waits for what an order is to undo hears that it does not, as deciding on that panicked; what it was asked besides nobody waits for.
func TestWhoWaitsForAnUndoThatPanics(t *testing.T) {
	for _, wish := range []string{events.WishUndo, events.WishCancel, events.WishTell, events.WishForget} {
		f := newFamily(t)
		w := events.Wish{Child: hotelOf, Wish: events.WishBegin, Parent: "o-1", Step: "hotel", Workflow: "book", Version: 1}
		f.does(wants(hotelOf, w))
		f.does(completes(hotelOf, "reserve"))
		w.Wish = wish
		in := wants(hotelOf, w)
		in.Record = f.record
		d := Hold(f.env, f.order, &in, panicked)
		heard := says(&d, events.ChildReported)
		if heard != (wish == events.WishUndo) || len(d.Aside) != 1 {
			t.Errorf("%s: its parent hears of it: %t; put aside is %+v", wish, heard, d.Aside)
		}
	}
}

// S5, S6: while an order is held, its inputs wait up to a number and a size. What orders tell each other of waits and places is short, and
// whoever told it would not know that it is lost: more of these wait.
func TestHowMuchWaitsForARelease(t *testing.T) {
	trip := Input{Order: "o-1", Submission: events.Submission{Workflow: "trip"}}
	kept := keyed("pay-0", "")
	grant := Input{Grant: &events.Grant{Order: "o-1", Step: "pay", Wait: 2, Home: bank}}
	want := Input{Want: awaited.Want}
	report := Input{Report: &events.Report{Parent: "o-1", Step: "hotel", Child: hotelOf}}
	signal := Input{Signal: keyed("pay-1", "").Signal}
	bid := Input{Bid: &events.Bid{Home: bank, Bid: events.BidAsk, Order: "o-1", Step: "pay", Wait: 2}}
	large := projections.Held{Raw: events.Raw{Value: make([]byte, waitingBytes+1)}}
	many := func(n int) []projections.Held { return make([]projections.Held, n) }
	for name, c := range map[string]struct {
		in      Input
		at      Input // what begins the order, or the home
		waiting []projections.Held
		waits   bool
	}{
		"the last signal":                      {signal, kept, many(maxWaiting - 1), true},
		"a signal too many":                    {signal, kept, many(maxWaiting), false},
		"a signal beside what is large":        {signal, kept, []projections.Held{large}, false},
		"a wait beside many":                   {want, kept, many(maxWaiting), true},
		"a wait too many":                      {want, kept, many(4 * events.MaxWaits), false},
		"a wait beside what is large":          {want, kept, []projections.Held{large}, true},
		"a grant beside many":                  {grant, trip, many(maxWaiting), true},
		"a grant beside what is large":         {grant, trip, []projections.Held{large}, true},
		"what began for a signal, beside many": {report, kept, many(maxWaiting), true},
		"what a child says, beside many":       {report, trip, many(maxWaiting), false},
		"a place beside many":                  {bid, limited, many(events.MaxPlacesAwaited - 1), true},
		"a place too many":                     {bid, limited, many(events.MaxPlacesAwaited), false},
	} {
		f := newFamily(t)
		f.does(c.at)
		c.in.Order, c.in.Record = f.order.ID, f.record
		f.order = Hold(f.env, f.order, nil, panicked).Order
		f.order.Waiting = c.waiting
		d := f.put(c.in)
		if waits := d.Order != nil && len(d.Order.Waiting) > len(c.waiting); waits != c.waits || len(d.Aside) == 1 == waits {
			t.Errorf("%s: it waits: %t; put aside is %+v", name, waits, d.Aside)
		}
	}
}

// V2: while nobody knows whether a deadline has passed, what would have the order go on without one is refused, and nothing else; an
// order is not paused of whose sleep it is not known what is left, and any other is.
func TestWhatIsRefusedByAClockThatIsDoubted(t *testing.T) {
	lost := fails("pay", true)
	for name, c := range map[string]struct {
		command events.Command
		first   []Input
		held    bool
		refused string
	}{
		"what failed begins again":          {command: events.Command{Command: events.CommandResubmit}, first: []Input{lost}, refused: "is not known"},
		"a step is skipped":                 {command: events.Command{Command: events.CommandSkipStep, Step: "pay"}, first: []Input{lost}, refused: "is not known"},
		"it is released":                    {command: events.Command{Command: events.CommandRelease}, held: true, refused: "is not known"},
		"it is released while it is undone": {command: events.Command{Command: events.CommandRelease}, first: []Input{{Order: "o-1", Command: &events.Command{Command: events.CommandCancel}}}, held: true},
		"it is cancelled":                   {command: events.Command{Command: events.CommandCancel}, first: []Input{lost}},
		"it is paused":                      {command: events.Command{Command: events.CommandPause}},
		"it is labelled":                    {command: events.Command{Command: events.CommandLabel, Labels: map[string]*string{"of": new("ann")}}},
	} {
		f := newFamily(t)
		f.does(Input{Order: "o-1", Submission: events.Submission{Workflow: "paying", Deadline: events.Time(f.env.Now.Add(time.Hour))}})
		for _, in := range c.first {
			f.does(in)
		}
		if c.held {
			f.order = Hold(f.env, f.order, nil, panicked).Order
		}
		f.env.Doubted = true
		f.does(Input{Order: "o-1", Command: &c.command})
		if why := f.order.Refusal; c.refused == "" && why != "" || !strings.Contains(why, c.refused) {
			t.Errorf("%s: %q", name, why)
		}
	}
}

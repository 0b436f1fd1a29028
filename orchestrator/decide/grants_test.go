package decide

import (
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

var bank = events.LimitID("bank")

// limited begins the home of a limit.
var limited = Input{Order: bank, Command: &events.Command{Command: events.CommandApply, Limit: &events.Limit{AtATime: 1}}}

// told is the record in which lanes tell each other something.
func (f *family) told(what events.Type, value []byte) *Record {
	r := *f.record
	r.Headers, r.Value = []events.RawHeader{{Key: events.HeaderType, Value: []byte(what)}}, value
	return &r
}

// S5: what is told of a place, and given up by an operator, leaves nobody waiting: who waits for the place hears that there is none, and a
// place that nobody needs goes back. Who has it keeps it.
func TestWhatAGivenUpGrantLeaves(t *testing.T) {
	pay := func(state projections.StepState) projections.Step {
		return projections.Step{Name: "pay", Work: projections.Work{State: state, Turn: 2}}
	}
	turn := []projections.Turn{{Home: bank, Step: "pay", Number: 2}}
	own := []projections.Turn{{Home: bank, Number: 2}}
	why := &events.Error{Code: events.TooManyWaiting}
	for name, c := range map[string]struct {
		order projections.Order
		fault *events.Error
		what  events.Type // that is told it, and by whom
	}{
		"a place that nobody needs":         {order: projections.Order{Started: true}, what: events.PlaceWanted},
		"no place, of which nobody is told": {order: projections.Order{Started: true}, fault: why},
		"a place, and it waits":             {order: projections.Order{Started: true, Turns: turn, Steps: []projections.Step{pay(projections.NotStarted)}}, what: events.PlaceGiven},
		"no place, and it waits":            {order: projections.Order{Started: true, Turns: turn, Steps: []projections.Step{pay(projections.NotStarted)}}, fault: why, what: events.PlaceGiven},
		"a place that it has":               {order: projections.Order{Started: true, Turns: turn, Steps: []projections.Step{pay(projections.Running)}}},
		"its turn, and it waits":            {order: projections.Order{Turns: own}, what: events.PlaceGiven},
		"its turn, which it has":            {order: projections.Order{Started: true, Turns: own}},
	} {
		f := newFamily(t)
		g := events.Grant{Order: "o-1", Step: "pay", Wait: 2, Home: bank, Error: c.fault}
		c.order.ID = "o-1"
		d := &decider{env: f.env, order: &c.order}
		all := d.lostGrant(f.told(events.PlaceGiven, g.Append(nil)), "given up")
		if len(all) != min(1, len(c.what)) || c.what != "" && all[0].Envelope.Type != c.what {
			t.Errorf("%s: %+v", name, all)
		}
		if c.what == events.PlaceGiven {
			if got, err := events.Decode[events.Grant](all[0].Value); err != nil || got.Error == nil {
				t.Errorf("%s: it has a place: %+v, %v", name, got, err)
			}
		}
		r := f.told(events.PlaceGiven, g.Append(nil))
		r.Topic = f.env.Topics.Replies
		if all := append(d.lostGrant(r, "given up"), d.lostGrant(f.told(events.PlaceWanted, g.Append(nil)), "given up")...); len(all) > 0 {
			t.Errorf("%s: what is no grant: %+v", name, all)
		}
	}
}

// S5: with what is put aside at a limit's home a place goes back that somebody has there, and asks for no more.
func TestAPlaceGoesBackWithWhatIsPutAside(t *testing.T) {
	for name, c := range map[string]struct {
		of   func(*events.Bid)
		what events.Type
		back bool
	}{
		"it gives it back":           {back: true},
		"it asks for it":             {of: func(b *events.Bid) { b.Bid = events.BidAsk }},
		"it has none":                {of: func(b *events.Bid) { b.Wait = 3 }},
		"it has that of another":     {of: func(b *events.Bid) { b.Home = events.LimitID("till") }},
		"nothing that can be a bid":  {of: func(b *events.Bid) { b.Bid = "nonsense" }},
		"it says something of a key": {what: events.SignalWanted},
	} {
		f := newFamily(t)
		f.does(limited)
		ask := events.Bid{Home: bank, Bid: events.BidAsk, Order: "o-1", Step: "pay", Wait: 2}
		f.does(Input{Order: bank, Bid: &ask})
		b := ask
		if b.Bid = events.BidUnwanted; c.of != nil {
			c.of(&b)
		}
		if c.what == "" {
			c.what = events.PlaceWanted
		}
		d := &decider{env: f.env, order: f.order.Clone()}
		d.putAside(f.told(c.what, b.Append(nil)), "it panics")
		if has := d.order.Places.Seat("o-1", 2) != nil; has == c.back {
			t.Errorf("%s: it has its place: %t", name, has)
		}
	}
}

// T4: an order that has begun is cancelled by one that takes its turn, and by nothing else that it hears of it; also that only where it is not undone.
func TestWhoHasItsTurnBeginsOnce(t *testing.T) {
	superseded := &events.Error{Code: events.Superseded}
	for name, c := range map[string]struct {
		fault  *events.Error
		toward projections.State
		ends   bool
	}{
		"another has its turn":                   {fault: superseded, ends: true},
		"it has it":                              {},
		"there is none":                          {fault: &events.Error{Code: events.TooManyWaiting}},
		"another has its turn, and it is undone": {fault: superseded, toward: projections.Cancelled},
	} {
		f := newFamily(t)
		f.does(Input{Order: "o-1", Submission: events.Submission{Workflow: "paying"}})
		o := f.order.Clone()
		o.Started, o.Toward = true, c.toward
		d := takeTurn(f.env, o, c.fault)
		if ends := d.Order != nil && d.Order.Toward == projections.Cancelled; ends != c.ends || d.Order != nil && !c.ends {
			t.Errorf("%s: %+v", name, d.Order)
		}
	}
}

// V1: what is neither about a limit nor a place of it is put aside there with its reason, whether there is one or not, and so is a submission under its id.
func TestWhatIsNoneOfALimit(t *testing.T) {
	for name, in := range map[string]Input{
		"a submission":       {Submission: events.Submission{Workflow: "book"}},
		"a reply":            {Reply: completes(bank, "pay").Reply},
		"a signal":           {Signal: keyed("pay-1", "").Signal},
		"a wait":             {Want: awaited.Want},
		"a wish":             {Wish: &events.Wish{Child: bank, Wish: events.WishTell, Parent: "o-1", Step: "pay"}},
		"what a child says":  {Report: &events.Report{Parent: bank, Step: "pay", Child: "o-2"}},
		"what is passed on":  {Pass: &events.Pass{Order: bank, Step: "pay", Wait: 1}},
		"what another gives": {Grant: &events.Grant{Order: bank, Step: "pay", Wait: 1, Home: bank}},
	} {
		for _, there := range []bool{false, true} {
			f := newFamily(t)
			if there {
				f.does(limited)
			}
			why := "is no order"
			if in.Submission.Workflow != "" {
				why = "begin with @"
			}
			in.Order = bank
			d := f.put(in)
			noted := in.Submission.Workflow == "" && there
			if len(d.Aside) != 1 || !strings.Contains(d.Aside[0].Reason, why) || (d.Order != nil) != noted {
				t.Errorf("%s, where there is a limit: %t: put aside is %+v, and noted: %t", name, there, d.Aside, d.Order != nil)
			}
		}
	}
}

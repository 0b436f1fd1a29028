package decide

import (
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/inspect"
)

// family is orders that do each other's steps, by what is put to each.
type family struct {
	*testing.T
	env    *Env
	record *Record
	order  *projections.Order
}

func newFamily(t *testing.T) *family {
	t.Helper()
	topics, err := events.NewTopics(events.DefaultNamespace)
	must(t, err)
	flows := map[string]*workflow.Workflow{
		"trip":   parseFlow(t, "workflow: trip\nsteps:\n- {name: hotel, order: book}\n- {name: pay, agent: bank}\n"),
		"paid":   parseFlow(t, "workflow: paid\nsteps:\n- {name: paid, listen: payment, key: input}\n"),
		"paying": parseFlow(t, "workflow: paying\nsteps:\n- {name: pay, agent: bank}\n"),
		"book":   parseFlow(t, "workflow: book\nsteps:\n- {name: reserve, agent: hotels, undo: release}\n"),
	}
	f := &family{T: t, record: &Record{Topic: topics.Internal}, env: &Env{
		Now: inspect.Curtain, Instance: "i-1", Topics: &topics, Format: events.JournalFormat,
		Workflow: func(name string, _ int) *workflow.Workflow { return flows[name] },
		Refuses:  func(string, int) string { return "" },
		Away:     func(string, string, int) string { return "" },
	}}
	f.record.Written = inspect.Curtain
	return f
}

// put puts an input to the order, which may become another by that.
func (f *family) put(in Input) Decision {
	f.Helper()
	f.record.Offset++
	in.Record = f.record
	d := On(f.env, f.order, &in)
	if d.Order != nil {
		f.order = d.Order
	}
	return d
}

// does puts one that must change something.
func (f *family) does(in Input) {
	f.Helper()
	if d := f.put(in); d.Order == nil || d.Order.State == projections.Rejected {
		f.Fatalf("%+v does nothing: %+v", in, d.Order)
	}
}

func completes(order, step string) Input {
	return Input{Order: order, Reply: &events.Reply{Order: order, Step: step, Attempt: 1, Status: events.ReplyCompleted}}
}

func wants(order string, w events.Wish) Input {
	return Input{Order: order, Wish: &w, Submission: w.Submission()}
}

const hotelOf = "@o-1/hotel"

// A4, S4: an order is forgotten by the order alone whose step it did, and only once it has ended; nobody else, and not for a
// step that it does not do, may have it told of, cancelled or undone.
func TestOnlyItsParentAsksAnOrder(t *testing.T) {
	mine := events.Wish{Child: hotelOf, Parent: "o-1", Step: "hotel"}
	for _, c := range []struct {
		name     string
		detached bool
		alone    bool // nobody's child
		ended    bool
		of       func(*events.Wish)
		forgets  bool
	}{
		{name: "its parent, of one that has ended", ended: true, forgets: true},
		{name: "its parent, of one that goes on"},
		{name: "another", ended: true, of: func(w *events.Wish) { w.Parent = "o-2" }},
		{name: "whoever it tells nothing", ended: true, detached: true},
		{name: "anybody, of one that is nobody's", ended: true, alone: true},
	} {
		f := newFamily(t)
		if c.alone {
			f.does(Input{Order: hotelOf[1:], Submission: events.Submission{Workflow: "book"}})
		} else {
			w := mine
			w.Wish, w.Workflow, w.Version, w.Detached = events.WishBegin, "book", 1, c.detached
			f.does(wants(hotelOf, w))
		}
		if c.ended {
			f.does(completes(f.order.ID, "reserve"))
		}
		w := mine
		if w.Wish = events.WishForget; c.of != nil {
			c.of(&w)
		}
		if d := f.put(wants(f.order.ID, w)); (d.Order != nil) != c.forgets || f.order.Forgotten != c.forgets {
			t.Errorf("%s: it is forgotten: %t", c.name, f.order.Forgotten)
		}
	}
	for name, of := range map[string]func(*events.Wish){
		"another order": func(w *events.Wish) { w.Parent = "o-2" }, "another step": func(w *events.Wish) { w.Step = "pay" },
	} {
		for _, wish := range []string{events.WishBegin, events.WishTell, events.WishCancel, events.WishUndo} {
			for _, ended := range []bool{false, true} {
				f := newFamily(t)
				begin := mine
				begin.Wish, begin.Workflow, begin.Version = events.WishBegin, "book", 1
				f.does(wants(hotelOf, begin))
				if ended {
					f.does(completes(hotelOf, "reserve"))
				}
				was, w := f.order.State, mine
				w.Wish = wish
				of(&w)
				f.does(wants(hotelOf, w))
				if f.order.State != was {
					t.Errorf("%s, for %s: one that was %s is %s", wish, name, was, f.order.State)
				}
			}
		}
	}
}

// A4: what is told of a step by an order that does not do it, or did before, changes nothing; nor does what is told of an
// order that has ended.
func TestOnlyAChildTellsOfItsStep(t *testing.T) {
	report := func(f *family, of func(*events.Report)) Input {
		r := &events.Report{Parent: "o-1", Step: "hotel", Child: hotelOf, State: string(projections.Processed)}
		of(r)
		return Input{Order: f.order.ID, Report: r}
	}
	stranger := func(r *events.Report) { r.Child = hotelOf + ":2" }
	f := newFamily(t)
	f.does(Input{Order: "o-1", Submission: events.Submission{Workflow: "trip"}})
	for name, of := range map[string]func(*events.Report){
		"another order":        stranger,
		"a step that is none":  func(r *events.Report) { r.Step = "flight" },
		"a step without child": func(r *events.Report) { r.Step = "pay" },
	} {
		if d := f.put(report(f, of)); d.Order != nil {
			t.Errorf("%s: %+v", name, d.Order)
		}
	}
	f.does(report(f, func(*events.Report) {}))
	f.does(Input{Order: "o-1", Command: &events.Command{Command: events.CommandCancel}})
	f.does(Input{Order: "o-1", Reply: &events.Reply{Order: "o-1", Step: "pay", Attempt: 1, Status: events.ReplyFailed}})
	if undo := f.order.Step("hotel").Undo; undo == nil || undo.State != projections.Running {
		t.Fatalf("it is not undone: %+v", undo)
	}
	compensated := func(r *events.Report) { r.State = string(projections.Compensated) }
	if d := f.put(report(f, func(r *events.Report) { compensated(r); stranger(r) })); d.Order != nil {
		t.Errorf("another order, of its undo: %+v", d.Order)
	}
	f.does(report(f, compensated))
	if f.order.State != projections.Cancelled {
		t.Fatalf("it is %s", f.order.State)
	}
	if d := f.put(report(f, compensated)); d.Order != nil {
		t.Errorf("of one that has ended: %+v", d.Order)
	}
}

// T4: a signal under a key is heard by the step alone that waits under that key, since when it was given to it. Any other goes back to its
// key's home, so that the next one has it; also where the order has ended, is forgotten, or was never there.
func TestASignalThatNobodyHearsGoesBack(t *testing.T) {
	pass := func(of func(*events.Pass)) Input {
		p := &events.Pass{Order: "o-1", Step: "paid", Wait: 2, Correlation: "home", Signal: "payment", Key: "ref-7", SignalID: "pay-1", Given: 3}
		of(p)
		return Input{Order: "o-1", Pass: p}
	}
	as := func(*events.Pass) {}
	f := newFamily(t)
	goesBack := func(name string, of func(*events.Pass)) {
		t.Helper()
		d := f.put(pass(of))
		if d.Order != nil || len(d.Messages) != 1 {
			t.Fatalf("%s: %d messages, %+v", name, len(d.Messages), d.Order)
		}
		if w, err := events.Decode[events.Want](d.Messages[0].Value); err != nil || w.Want != events.WantUnheard || w.Given != 3 || d.Messages[0].Envelope.Order != "home" {
			t.Errorf("%s: %+v, %v", name, w, err)
		}
	}
	goesBack("there is no order", as)
	f.does(Input{Order: "o-1", Submission: events.Submission{Workflow: "paid", Input: []byte(`"ref-7"`)}})
	for name, of := range map[string]func(*events.Pass){
		"another key":         func(p *events.Pass) { p.Key = "ref-8" },
		"another name":        func(p *events.Pass) { p.Signal = "refund" },
		"a wait of before":    func(p *events.Pass) { p.Wait = 1 },
		"a step that is none": func(p *events.Pass) { p.Step = "shipped" },
	} {
		goesBack(name, of)
	}
	f.does(pass(as))
	if f.order.State != projections.Processed {
		t.Fatalf("it is %s", f.order.State)
	}
	goesBack("it has ended", as)
	f.order = f.order.Clone()
	f.order.Forgotten = true
	goesBack("it is forgotten", as)
}

package decide

import (
	"cmp"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

var home = events.CorrelationID("payment", "ref-7")

// awaited is what an order says whose step waits there.
var awaited = Input{Order: home, Want: &events.Want{Correlation: home, Want: events.WantAwait, Signal: "payment", Key: "ref-7", Order: "o-1", Step: "paid", Wait: 1}}

// refunds is a workflow whose orders such signals begin.
const refunds = "workflow: refund\nstart: {signal: payment, key: input.k}\nsteps:\n- {name: pay, agent: bank}\n"

func keyed(id, replyTo string) Input {
	return Input{Order: home, Signal: &events.Signal{Signal: "payment", Key: "ref-7", ID: id, ReplyTo: replyTo}}
}

// V1: what is neither a signal under the key of a home nor what an order says of its wait is put aside there with its reason,
// whether the home has begun or not; only one that has begun is told what to do, and hears how an order began.
func TestWhatIsNoneOfAHome(t *testing.T) {
	for name, c := range map[string]struct {
		in              Input
		absent, present string // why it is put aside
		says            events.Type
	}{
		"a submission":        {in: Input{Submission: events.Submission{Workflow: "book"}}, absent: "begin with @", present: "begin with @"},
		"a command":           {in: Input{Command: &events.Command{Command: events.CommandCancel}}, absent: "no order", says: events.CommandRefused},
		"a reply":             {in: Input{Reply: completes(home, "pay").Reply}, absent: "no order", present: "is no order", says: events.InputDiscarded},
		"a signal of no key":  {in: Input{Signal: &events.Signal{Signal: "payment"}}, absent: "no order", present: "is no order", says: events.InputDiscarded},
		"a wish":              {in: Input{Wish: &events.Wish{Child: home, Wish: events.WishTell, Parent: "o-1", Step: "hotel"}}, absent: "no order", present: "is no order", says: events.InputDiscarded},
		"what is passed on":   {in: Input{Pass: &events.Pass{Order: home, Step: "paid", Wait: 1}}, absent: "no order", present: "is no order", says: events.InputDiscarded},
		"one that none began": {in: Input{Report: &events.Report{Parent: home, Step: "1", Child: "o-1"}}, absent: "no order"},
	} {
		for _, begun := range []bool{false, true} {
			f, why, says := newFamily(t), c.absent, events.Type("")
			if begun {
				f.does(keyed("pay-1", ""))
				why, says = c.present, c.says
			}
			c.in.Order = home
			d := f.put(c.in)
			if len(d.Aside) != min(1, len(why)) || why != "" && !strings.Contains(d.Aside[0].Reason, why) {
				t.Errorf("%s, where the home has begun: %t: put aside is %+v", name, begun, d.Aside)
			}
			if len(d.Messages) != min(1, len(says)) || says != "" && d.Messages[0].Envelope.Type != says {
				t.Errorf("%s, where the home has begun: %t: it says %+v", name, begun, d.Messages)
			}
		}
	}
}

// ADR 0014: while the partition has a format that knows no orders of signals, a signal is put aside only if it would start one:
// not where no workflow asks for it, nor where a step waits for it.
func TestAHomeOfBeforeStartsNothing(t *testing.T) {
	starts := parseFlow(t, refunds)
	for name, c := range map[string]struct {
		starts *workflow.Workflow
		unsaid bool // which workflows start
		first  []Input
		aside  bool
	}{
		"it would start one":           {starts: starts, aside: true},
		"it would, and a home is kept": {starts: starts, first: []Input{awaited, keyed("pay-0", "")}, aside: true},
		"a step waits for it":          {starts: starts, first: []Input{awaited}},
		"no workflow asks for it":      {},
		"nobody knows of workflows":    {unsaid: true},
	} {
		f := newFamily(t)
		f.env.Format = events.StartFormat - 1
		if !c.unsaid {
			f.env.Starts = func(string) *workflow.Workflow { return c.starts }
		}
		for _, in := range c.first {
			f.does(in)
		}
		if d := f.put(keyed("pay-1", "")); (len(d.Aside) == 1) != c.aside || (d.Order == nil) != c.aside {
			t.Errorf("%s: put aside is %+v", name, d.Aside)
		}
	}
}

// P1: the sender of a signal may be told at its own topic, but at none that cannot be, or is Waybill's: the signal is taken all the same.
func TestWhoHearsOfASignal(t *testing.T) {
	topics := newFamily(t).env.Topics
	for replyTo, heard := range map[string]string{"": "", "shop": "shop", topics.Status: "", topics.Journal: "", "no topic": ""} {
		d := newFamily(t).put(keyed("pay-1", replyTo))
		if len(d.Messages) != 1+min(1, len(heard)) || d.Messages[0].Envelope.Type != events.SignalKept || d.Messages[len(d.Messages)-1].Topic != cmp.Or(heard, topics.Journal) {
			t.Errorf("%q hears of it at %q: %+v", replyTo, heard, d.Messages)
		}
	}
}

// P1: what cannot be told to whom a signal is given, or whom it would begin, since Kafka would not take it, is refused, and keeps nobody waiting.
func TestASignalThatCannotBePassedOn(t *testing.T) {
	starts := parseFlow(t, refunds)
	for name, starts := range map[string]*workflow.Workflow{"to a step": nil, "to begin an order": starts} {
		f := newFamily(t)
		f.env.Starts = func(string) *workflow.Workflow { return starts }
		if starts == nil {
			f.does(awaited)
		}
		f.env.Refuses = func(topic string, size int) string {
			if topic == f.env.Topics.Internal && size > 10_000 {
				return "it is too large"
			}
			return ""
		}
		in := keyed("pay-1", "")
		in.Signal.Data = []byte(`"` + strings.Repeat("x", 10_000) + `"`)
		d := f.put(in)
		if e, err := events.Decode[events.Event](d.Messages[0].Value); err != nil || len(d.Messages) != 1 || e.Type != events.SignalDiscarded || e.Reason != events.SignalTooLarge {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
		f.does(keyed("pay-2", ""))
		if f.order.Given(f.order.Seq) < 0 {
			t.Errorf("%s: the next one is not given: %+v", name, f.order.Signals)
		}
	}
}

// A4: how an order began that a signal starts is told by that order alone.
func TestOnlyWhoWasBegunTellsOfASignal(t *testing.T) {
	f := newFamily(t)
	starts := parseFlow(t, refunds)
	f.env.Starts = func(string) *workflow.Workflow { return starts }
	f.does(keyed("pay-1", ""))
	told := events.Report{Parent: home, Step: "1", Child: events.StartedID(home, 1), State: string(projections.Pending)}
	for name, of := range map[string]func(*events.Report){
		"another order":     func(r *events.Report) { r.Child = "o-1" },
		"of another signal": func(r *events.Report) { r.Step, r.Child = "2", events.StartedID(home, 2) },
	} {
		r := told
		if of(&r); f.put(Input{Order: home, Report: &r}).Order != nil {
			t.Errorf("%s: %+v", name, f.order.Signals)
		}
	}
	f.does(Input{Order: home, Report: &told})
	if f.order.Given(1) >= 0 {
		t.Errorf("it has begun, and: %+v", f.order.Signals)
	}
}

// A4: once a home was released, the orders alone tell it once more that signals are to begin: not what is kept there, or was given to
// a step, nor what is remembered of signals that acted.
func TestWhoTellsAReleasedHomeOnceMore(t *testing.T) {
	signal := func(source string, under *projections.Under) projections.Signal {
		return projections.Signal{Name: "payment", Source: source, Under: under}
	}
	o := &projections.Order{ID: home, Correlation: new(projections.Correlation), Signals: []projections.Signal{
		signal("", nil), signal("s/0/1", new(projections.Under)), signal("s/0/2", &projections.Under{Given: 2}), signal("s/0/3", &projections.Under{Given: 3, Starts: true}),
	}}
	all := wishes(o, &events.Event{Type: events.OrderReleased, Order: home, Seq: 5})
	if len(all) != 1 || all[0].Wish != events.WishTell || all[0].Child != events.StartedID(home, 3) || all[0].Step != "3" {
		t.Errorf("it asks %+v", all)
	}
}

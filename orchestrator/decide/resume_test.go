package decide

import (
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// command puts a command to the order, and returns why it was refused.
func (f *family) command(c events.Command) string {
	f.Helper()
	f.does(Input{Order: f.order.ID, Command: &c})
	return f.order.Refusal
}

func fails(step string, permanent bool) Input {
	return Input{Order: "o-1", Reply: &events.Reply{Order: "o-1", Step: step, Attempt: 1, Status: events.ReplyFailed, Error: &events.Error{Code: "closed", Permanent: permanent}}}
}

// V3, P3: what failed during a pause is dealt with once that is over, and first what is lost: nothing else is armed beside it. Where its workflow
// is gone it goes on all the same.
func TestWhatFailedDuringAPause(t *testing.T) {
	flow := parseFlow(t, "workflow: two\nsteps:\n- {name: a, agent: bank, after: [], retry: {backoff: 10s}}\n- {name: b, agent: bank, after: [], retry: {backoff: 10s}}\n")
	begin := func() *family {
		f := newFamily(t)
		f.env.Workflow = func(string, int) *workflow.Workflow { return flow }
		f.does(Input{Order: "o-1", Submission: events.Submission{Workflow: "two"}})
		return f
	}
	f := begin()
	f.command(events.Command{Command: events.CommandPause})
	f.does(fails("a", false))
	f.does(fails("b", true))
	d := f.put(Input{Order: "o-1", Command: &events.Command{Command: events.CommandResume}})
	armed := says(&d, events.StepRetried)
	if armed || f.order.State != projections.Error {
		t.Errorf("beside what is lost another attempt is armed: %t; it is %s", armed, f.order.State)
	}
	f = begin()
	f.command(events.Command{Command: events.CommandPause})
	f.does(fails("a", false))
	f.env.Workflow = func(string, int) *workflow.Workflow { return nil }
	f.command(events.Command{Command: events.CommandResume})
	if f.order.Hold != nil || f.order.Paused {
		t.Errorf("where its workflow is gone: %+v", f.order)
	}
}

// C2, P3: of an order that is being undone an undo is passed over that is to be done, and no other.
func TestWhichUndosArePassedOver(t *testing.T) {
	flow := parseFlow(t, "workflow: three\nsteps:\n- {name: plain, agent: bank, after: []}\n- {name: undone, agent: bank, undo: refund, after: []}\n- {name: later, agent: bank, undo: refund, after: [slow]}\n- {name: slow, agent: bank, undo: refund, after: []}\n")
	f := newFamily(t)
	f.env.Workflow = func(string, int) *workflow.Workflow { return flow }
	f.does(Input{Order: "o-1", Submission: events.Submission{Workflow: "three"}})
	f.does(completes("o-1", "plain"))
	f.does(completes("o-1", "undone"))
	f.command(events.Command{Command: events.CommandCancel})
	for step, refused := range map[string]string{"plain": "not to be undone", "later": "not to be undone", "undone": "is running"} {
		g := *f
		if why := g.command(events.Command{Command: events.CommandSkipStep, Step: step}); !strings.Contains(why, refused) {
			t.Errorf("%s: %q", step, why)
		}
	}
}

// V2: a look that comes before its time changes nothing: an order is overdue at its deadline.
func TestALookBeforeItsTime(t *testing.T) {
	f := newFamily(t)
	f.does(Input{Order: "o-1", Submission: events.Submission{Workflow: "paying", Deadline: events.Time(f.env.Now.Add(time.Hour))}})
	f.env.Now = f.env.Now.Add(time.Hour - time.Millisecond)
	if d := Supervise(f.env, f.order, ""); d.Order != nil {
		t.Errorf("it is overdue before: %+v", d.Order)
	}
	f.env.Now = f.env.Now.Add(time.Millisecond)
	if d := Supervise(f.env, f.order, ""); d.Order == nil || d.Order.State != projections.Error {
		t.Errorf("it is not overdue: %+v", d.Order)
	}
}

// T4: a home of turns that is held is released, and does nothing else that is commanded.
func TestWhatAHomeOfTurnsIsCommanded(t *testing.T) {
	turn := events.TurnID("book", "ann")
	f := newFamily(t)
	f.does(Input{Order: turn, Bid: &events.Bid{Home: turn, Bid: events.BidAsk, Order: "o-1", Wait: 1, OnConflict: events.ConflictQueue}})
	for _, c := range []string{events.CommandApply, events.CommandDelete, events.CommandCancel, events.CommandPause} {
		if why := f.command(events.Command{Command: c, Limit: &events.Limit{AtATime: 1}}); !strings.Contains(why, "one order be open") {
			t.Errorf("%s: %q", c, why)
		}
	}
	f.order = Hold(f.env, f.order, nil, panicked).Order
	if f.command(events.Command{Command: events.CommandRelease}); f.order.Hold != nil {
		t.Errorf("it is held for ever: %q", f.order.Refusal)
	}
}

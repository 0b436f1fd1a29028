package lane

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// poisonedLane is a lane on which deciding panics while the world is poisoned.
type poisonedLane struct {
	*Lane
	t      *testing.T
	still  *still
	offset int64
	log    bytes.Buffer
}

func newPoisonedLane(t *testing.T) *poisonedLane {
	t.Helper()
	l := &poisonedLane{t: t}
	l.Lane, l.still = newLane(t)
	l.Lane.log = slog.New(slog.NewTextHandler(&l.log, nil))
	return l
}

func (l *poisonedLane) poison() { l.still.poisoned = true }
func (l *poisonedLane) heal()   { l.still.poisoned = false }

// reads has the lane decide on a record, and returns what that made.
func (l *poisonedLane) reads(topic, order, value string) []*kgo.Record {
	l.t.Helper()
	l.offset++
	r := typed(topic, "", order, value)
	r.Offset = l.offset
	n := len(l.current.records)
	in := l.readInputs([]*kgo.Record{r})[0]
	must(l.t, l.takeIn(l.env(), &in))
	return l.current.records[n:]
}

func (l *poisonedLane) answers(order, step string) []*kgo.Record {
	l.t.Helper()
	return l.reads(l.topics.Replies, order, fmt.Sprintf(`{"order":%q,"step":%q,"attempt":1,"status":"completed"} `, order, step))
}

func (l *poisonedLane) the(order string) *projections.Order {
	l.t.Helper()
	o, err := l.order(order)
	must(l.t, err)
	return o
}

// letters are the dead letters among records.
func (l *poisonedLane) letters(records []*kgo.Record) (all []*kgo.Record) {
	for _, r := range records {
		if r.Topic == l.topics.DeadLetters {
			all = append(all, r)
		}
	}
	return all
}

// commit makes a transaction of what was decided, and returns its events.
func (l *poisonedLane) commit() (all []events.Event) {
	l.t.Helper()
	l.seal(l.current)
	l.inflight, l.current = l.current, newBatch()
	for i, r := range l.inflight.records {
		if r.Offset = int64(1000*l.transaction) + int64(i); r.Topic == l.topics.Journal {
			e, err := events.Decode[events.Event](r.Value)
			must(l.t, err)
			all = append(all, e)
		}
	}
	must(l.t, l.conclude(nil))
	return all
}

// A panic while deciding on one order is that order's alone: it is held, and
// what comes for it waits, until an operator releases it.
func TestAPoisonedOrderIsHeld(t *testing.T) {
	l := newPoisonedLane(t)
	here, _ := l.keys()
	l.reads(l.topics.Orders, here, `{"workflow":"order"}`)
	l.poison()
	if made := l.letters(l.answers(here, "ship")); len(made) != 0 {
		t.Errorf("the reply was put aside: %v", made)
	}
	o := l.the(here)
	if o.State != projections.Error || o.Hold == nil || o.Hold.State != projections.Processing || o.Alert == nil ||
		!strings.Contains(o.Reason, "panicked") || !strings.Contains(o.Alert.Action, "waybill order release "+here) || !strings.Contains(o.Alert.Action, "--discard") {
		t.Fatalf("%+v, alert %+v", o, o.Alert)
	}
	l.answers(here, "charge")
	l.reads(l.topics.Orders, here, `{"workflow":"other"}`)
	if o = l.the(here); len(o.Waiting) != 2 || o.Waiting[0].Source != "waybill.replies/5/2" || o.Waiting[1].Source != "waybill.replies/5/3" {
		t.Fatalf("waiting are %+v", o.Waiting)
	}
	if w := o.Waiting[0]; !strings.HasSuffix(string(w.Value), "} ") || string(w.Key) != here || !w.Written.Equal(time.UnixMilli(1)) {
		t.Errorf("waiting is %+v", w)
	}
	l.reads(l.topics.Commands, here, `{"command":"cancel","id":"c-1"}`)
	if o = l.the(here); o.Command != "c-1" || !strings.Contains(o.Refusal, "waybill order release "+here) || len(o.Waiting) != 2 {
		t.Errorf("refused because %q; waiting are %d", o.Refusal, len(o.Waiting))
	}
	l.commit()

	// Nothing is due of it, however late it is.
	late := l.env()
	late.Now = late.Now.Add(time.Hour)
	if d := decide.Supervise(late, l.the(here), "ship"); d.Order != nil || d.Panic != "" {
		t.Errorf("the supervisor decided %+v", d)
	}
	if due, err := l.state.Due(late.Now, 100); err != nil || len(due) != 0 {
		t.Errorf("due is %v, %v", due, err)
	}

	// It is not better yet: it is held again, and all goes on waiting.
	l.reads(l.topics.Commands, here, `{"command":"release","id":"c-2"}`)
	if o = l.the(here); o.Hold == nil || o.Hold.State != projections.Processing || len(o.Waiting) != 2 || o.Command != "c-2" || o.Refusal != "" {
		t.Errorf("%+v", o)
	}
	l.heal()
	l.reads(l.topics.Commands, here, `{"command":"release","id":"c-3","by":"ana"}`)
	if o = l.the(here); o.Hold != nil || len(o.Waiting) != 0 || o.State != projections.Processing || o.Alert != nil || o.Reason != "" {
		t.Errorf("%+v", o)
	}
	for name, want := range map[string]projections.StepState{"ship": projections.Completed, "charge": projections.Completed, "mail": projections.Running} {
		if state := o.Step(name).State; state != want {
			t.Errorf("step %s is %s", name, state)
		}
	}
	var kinds []string
	for _, e := range l.commit() {
		kinds = append(kinds, strings.TrimPrefix(string(e.Type), "waybill."))
	}
	if got, want := strings.Join(kinds, " "), "order.released order.errored alert.raised order.released input.released step.completed input.released step.completed"; got != want {
		t.Errorf("decided was\n%s, and not\n%s", got, want)
	}
	l.reads(l.topics.Commands, here, `{"command":"release"}`)
	if o = l.the(here); o.Refusal != "the order is not held" {
		t.Errorf("%+v", o)
	}
	if n := strings.Count(l.log.String(), "deciding panicked"); n != 2 || !strings.Contains(l.log.String(), "goroutine") {
		t.Errorf("the log tells of %d panics:\n%s", n, &l.log)
	}
}

// What an operator gives up is put aside byte for byte, and the log says so once
// it is committed.
func TestDiscardingWhatWaits(t *testing.T) {
	l := newPoisonedLane(t)
	here, _ := l.keys()
	l.reads(l.topics.Orders, here, `{"workflow":"order"}`)
	l.poison()
	l.answers(here, "ship")
	l.answers(here, "charge")
	l.heal()
	letters := l.letters(l.reads(l.topics.Commands, here, `{"command":"release","discard":true,"note":"it was wrong"}`))
	if len(letters) != 1 {
		t.Fatalf("%d dead letters", len(letters))
	}
	r := letters[0]
	if !strings.Contains(string(r.Value), `"ship"`) || !strings.HasSuffix(string(r.Value), "} ") || headerText(r, "waybill_source") != "waybill.replies/5/2" || !strings.Contains(headerText(r, "waybill_reason"), "it was wrong") || !r.Timestamp.Equal(time.UnixMilli(1)) {
		t.Errorf("%+v", r)
	}
	if o := l.the(here); o.Step("ship").State != projections.Running || o.Step("charge").State != projections.Completed {
		t.Errorf("%+v", o)
	}
	if strings.Contains(l.log.String(), "put aside") {
		t.Errorf("it was said before the commit:\n%s", &l.log)
	}
	l.commit()
	if !strings.Contains(l.log.String(), "put aside") {
		t.Errorf("it is not said:\n%s", &l.log)
	}

	l.poison()
	late := l.env()
	late.Now = late.Now.Add(time.Hour)
	l.take(decide.Supervise(late, l.the(here), "ship"))
	if l.the(here).Hold == nil {
		t.Error("an order on which the supervisor panics is not held")
	}
	if o := l.the(here); strings.Contains(o.Alert.Action, "--discard") {
		t.Error(o.Alert.Action)
	}
	l.reads(l.topics.Commands, here, `{"command":"release","discard":true}`)
	if o := l.the(here); o.Hold == nil || !strings.Contains(o.Refusal, "no input waits") {
		t.Errorf("%+v", o)
	}
}

// What cannot wait is put aside, and the journal says so.
func TestWhatCannotWait(t *testing.T) {
	l := newPoisonedLane(t)
	here, _ := l.keys()
	aside := func(what string, made []*kgo.Record, kind events.Type, reason string) {
		t.Helper()
		letters := l.letters(made)
		if len(letters) != 1 || !strings.Contains(headerText(letters[0], "waybill_reason"), reason) {
			t.Fatalf("%s: the dead letters are %v", what, letters)
		}
		for _, r := range made {
			if headerText(r, events.HeaderType) == string(kind) && strings.Contains(string(r.Value), reason) {
				return
			}
		}
		t.Errorf("%s: the journal does not say %s", what, kind)
	}

	l.poison()
	aside("a submission", l.reads(l.topics.Orders, here, `{"workflow":"order"}`), events.OrderRejected, "panicked")
	l.heal()
	here += "+"
	for l.byKey.Of([]byte(here)) != l.partition {
		here += "+"
	}
	l.reads(l.topics.Orders, here, `{"workflow":"order"}`)
	l.poison()
	aside("a command", l.reads(l.topics.Commands, here, `{"command":"cancel","id":"c-1"}`), events.CommandRefused, "panicked")
	if o := l.the(here); o.Hold == nil || len(o.Waiting) != 0 || o.Command != "c-1" {
		t.Fatalf("%+v", o)
	}
	large := fmt.Sprintf(`{"order":%q,"step":"ship","attempt":1,"status":"completed","output":"%s"}`, here, strings.Repeat("x", events.MaxValue-200))
	for range 2 * events.MaxBatch / len(large) {
		if made := l.reads(l.topics.Replies, here, large); len(l.letters(made)) != 0 || recordSize(made[0]) > events.MaxBatch {
			t.Fatalf("%d records, one of them of %d bytes", len(made), recordSize(made[0]))
		}
	}
	aside("many bytes", l.reads(l.topics.Replies, here, large), events.InputDiscarded, "bytes would wait")
	l.heal()
	l.reads(l.topics.Commands, here, `{"command":"release"}`)
	l.poison()
	for range 100 {
		l.answers(here, "ship")
	}
	aside("many inputs", l.answers(here, "ship"), events.InputDiscarded, "100 inputs wait")
	l.heal()
	l.reads(l.topics.Commands, here, `{"command":"release"}`)
	if o := l.the(here); o.Hold != nil || len(o.Waiting) != 0 || o.Step("ship").State != projections.Completed {
		t.Errorf("%+v", o)
	}

	// Not even one fits a batch that is full.
	l.poison()
	l.answers(here, "mail")
	l.heal()
	l.current.bytes = batchBytes
	l.reads(l.topics.Commands, here, `{"command":"release"}`)
	if o := l.the(here); o.Hold == nil || !strings.Contains(o.Refusal, "again") {
		t.Errorf("%+v", o)
	}
	l.current.bytes = 0
	l.answers(here, "charge")
	l.reads(l.topics.Commands, here, `{"command":"release"}`)
	if o := l.the(here); o.State != projections.Processed {
		t.Fatalf("%+v", o)
	}
	// An order that has ended stays so.
	l.poison()
	aside("a late reply", l.answers(here, "mail"), events.InputDiscarded, "panicked")
	if o := l.the(here); o.State != projections.Processed || o.Hold != nil {
		t.Errorf("%+v", o)
	}
}

// A release may end the order. What panics then, and what the release cannot read
// any more, is put aside.
func TestAReleaseThatEndsTheOrder(t *testing.T) {
	l := newPoisonedLane(t)
	here, _ := l.keys()
	flow := parseFlow(t, "workflow: short\nsteps:\n  - {name: charge, agent: payment}\n")
	l.still.flows.Add(flow)
	l.reads(l.topics.Orders, here, `{"workflow":"short"}`)
	l.poison()
	for range 3 {
		l.answers(here, "charge")
	}
	l.heal()
	o := l.the(here).Clone()
	o.Waiting[2].Value = []byte("no JSON")
	env, lookups := l.env(), 0
	env.Workflow = func(string, int) *workflow.Workflow {
		if lookups++; lookups > 1 {
			panic("boom")
		}
		return flow
	}
	d := decide.Operate(env, o, &decide.Input{Command: &events.Command{Command: events.CommandRelease}})
	if d.Order.State != projections.Processed || d.Order.Hold != nil || len(d.Order.Waiting) != 0 || d.Panic == "" {
		t.Errorf("%+v", d.Order)
	}
	var reasons []string
	for _, aside := range d.Aside {
		reasons = append(reasons, aside.Reason)
	}
	if len(reasons) != 2 || !strings.Contains(reasons[0], "boom") || !strings.Contains(reasons[1], "not a JSON object") {
		t.Errorf("put aside because %q", reasons)
	}
}

// A reply that cannot wait is a dead letter, however many of these the order's history
// tells of; the seal counts those of which it does not.
func TestDeadLettersWithoutEvents(t *testing.T) {
	l := newPoisonedLane(t)
	l.format = events.JournalFormat
	here, _ := l.keys()
	l.reads(l.topics.Orders, here, `{"workflow":"order"}`)
	l.poison()
	letters := 0
	for range 3 * decide.MaxVoid {
		letters += len(l.letters(l.answers(here, "charge")))
	}
	if o := l.the(here); o.PutAside != decide.MaxVoid || letters != 2*decide.MaxVoid || l.current.dropped != decide.MaxVoid {
		t.Errorf("%d dead letters; %d are in the history, %d are counted", letters, o.PutAside, l.current.dropped)
	}
	l.seal(l.current)
	if l.current.sealed.Dropped != decide.MaxVoid {
		t.Errorf("the seal says %+v", l.current.sealed)
	}
}

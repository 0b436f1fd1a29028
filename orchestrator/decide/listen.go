package decide

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// listener is the [kind] of a step that waits for signals, those for its order or those under a key. Like one that sleeps it has no attempts,
// and nothing to undo. Its time-out is an end like others: what comes after it sees which it was.
type listener struct{}

func (listener) hasUndo(*workflow.Step) bool { return false }

// begin begins to wait, and takes what was kept for the step. What is kept under a key its home has.
func (listener) begin(d *decider, t task) bool {
	l := t.def.Listen
	e := events.Event{Type: events.StepListening, Step: t.step.Name, Attempt: t.step.Attempt + 1, Listen: l.How, Signals: l.Names}
	if l.Count > 1 {
		e.Count = l.Count
	}
	if t.def.Timeout > 0 {
		e.Due = events.Time(d.env.Now.Add(t.def.Timeout))
	}
	if l.Key != nil {
		key, err := l.KeyOf(t.scope())
		if err != nil {
			return d.refuse(t, &events.Error{Code: badExpression, Message: err.Error()})
		}
		e.Key = key
		d.record(&e)
		return true
	}
	d.record(&e)
	d.giveUpKept()
	for _, s := range d.order.Signals { // hearing one takes it off a list that does not change
		if s.Kept() && t.step.Wants(s.Name) && fits(t.step, s.Data) {
			d.record(&events.Event{Type: events.StepHeard, Step: t.step.Name, Attempt: t.step.Attempt, Signal: s.Name, SignalID: s.ID, Source: s.Source})
		}
	}
	return true
}

func (listener) timeOver(d *decider, t task) {
	e := events.Event{Type: events.StepTimedOut, Step: t.step.Name, Attempt: t.step.Attempt}
	if t.step.Output == nil && d.env.Format >= events.LeavesFormat {
		e.Output = silence(t.step.Listens)
	}
	d.record(&e)
	d.advance()
}

// silence is the output of a step that waited for several signals, and has heard none.
func silence(l *projections.Listen) jsontext.Value {
	switch {
	case l.How == events.ListenAll:
		return jsontext.Value("{}")
	case l.Left > 0:
		return jsontext.Value("[]")
	}
	return nil
}

// remedy is about the key, which no command gives.
func (listener) remedy(t task) string {
	return fmt.Sprintf("have it go on with a version of its workflow that says another key: waybill order migrate %s --to VERSION", quote(t.order.ID))
}

// What an order keeps of signals that no step waits for yet.
const (
	maxKept   = 100
	keptBytes = events.MaxValue
	// maxGivenUp is how many it may have given up before it keeps no more: its history must not
	// grow with what somebody has it keep for a moment.
	maxGivenUp = 100
)

// TakeSignal decides on a signal (what the world tells an order): the step that has waited for it
// longest hears it, or it is kept for one that will wait for it, or it changes nothing, and that is
// recorded. The order must exist.
func TakeSignal(env *Env, order *projections.Order, in *Input) Decision {
	d := newDecider(env, order)
	s := in.Signal
	e := events.Event{Signal: s.Signal, SignalID: s.ID, ReplyTo: s.ReplyTo, Source: in.Record.Source(), AnsweredBy: in.Record.header(events.HeaderSource)}
	if e.ReplyTo != "" && (e.ReplyTo == env.Topics.Status || env.refusesStatus(e.ReplyTo) != "") {
		e.ReplyTo = ""
	}
	if why := d.hear(s, e); why != "" {
		e.Type, e.Reason, e.Count = events.SignalDiscarded, why, order.Unheard+1
		d.record(&e)
	}
	return d.made()
}

// hear has a step hear the signal that e names, or keeps it, or says why it changes nothing.
func (d *decider) hear(s *events.Signal, e events.Event) (discarded string) {
	o := d.order
	if !o.State.Final() {
		d.giveUpKept()
	}
	if o.KnowsSignal(s.Signal, "", s.ID) {
		return events.SignalRepeated
	}
	if o.State.Final() {
		return events.SignalLate
	}
	e.Data = s.Data
	if step := d.waiting(s.Signal); step != nil {
		if !fits(step, s.Data) {
			return events.SignalTooLarge
		}
		e.Type, e.Step, e.Attempt = events.StepHeard, step.Name, step.Attempt
		if d.try(&e) != "" {
			return events.SignalTooLarge
		}
		if step := o.Step(step.Name); step.Over() {
			d.advance()
		}
		return ""
	}
	if !d.willWait(s.Signal) {
		if d.flow != nil && !d.flow.Listens(s.Signal) {
			return events.SignalUnheard
		}
		return events.SignalLate
	}
	if !fits(new(projections.Step), s.Data) { // which no step would ever hear
		return events.SignalTooLarge
	}
	kept, bytes := 0, len(s.Data)
	for i := range d.order.Signals {
		if k := &d.order.Signals[i]; k.Kept() {
			kept, bytes = kept+1, bytes+len(k.Data)
		}
	}
	if kept >= maxKept || bytes > keptBytes || o.GivenUp >= maxGivenUp {
		return events.SignalTooMany
	}
	until := s.KeepUntil
	if d.env.over(until) {
		return events.SignalLate
	}
	if until.IsZero() {
		until = d.env.keepUntil()
	}
	e.Type, e.Due = events.SignalKept, events.Time(until)
	if d.try(&e) != "" {
		return events.SignalTooLarge
	}
	return ""
}

// waiting is the step that has waited longest for a signal of this name, nil if none does.
func (d *decider) waiting(signal string) (first *projections.Step) {
	for i := range d.order.Steps {
		if s := &d.order.Steps[i]; s.Wants(signal) && (first == nil || s.Listens.Since < first.Listens.Since) {
			first = s
		}
	}
	return first
}

// willWait says that a step which has not begun may wait for a signal of this name. Where the
// workflow is gone nobody can tell.
func (d *decider) willWait(signal string) bool {
	if unwanted(d.order) {
		return false
	}
	for i := range d.order.Steps {
		if d.order.Steps[i].State != projections.NotStarted {
			continue
		}
		if d.flow == nil || d.flow.Steps[i].Listen != nil && d.flow.Steps[i].Listen.Key == nil && slices.Contains(d.flow.Steps[i].Listen.Names, signal) {
			return true
		}
	}
	return false
}

// giveUpKept gives up what was kept for as long as it was to be.
func (d *decider) giveUpKept() {
	for _, s := range d.order.Signals {
		if s.Kept() && d.env.over(s.Until) {
			d.record(&events.Event{Type: events.SignalExpired, Signal: s.Name, SignalID: s.ID, Source: s.Source})
		}
	}
}

// fits says that what a step has heard, with this, is not too large to be an output.
func fits(s *projections.Step, data jsontext.Value) bool {
	return len(s.Output)+len(data)+events.MaxOrderID <= events.MaxValue
}

package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// A key of the business under which steps of orders wait for signals has a home, a correlation: a record
// beside the orders. It has who waits, and what is kept, and gives each signal to one wait at a time: that of
// the longest waiting, which hears it, or has it come back.

// correlate decides on an input to a correlation, which need not be there.
func correlate(env *Env, order *projections.Order, in *Input) Decision {
	there := order != nil && order.Correlation != nil
	switch {
	case in.Command != nil && there:
		return Operate(env, order, in)
	case in.Signal != nil && in.Signal.Key != "", in.Want != nil:
	case in.Report != nil && there:
		d := &decider{env: env, order: order.Clone(), load: env.load}
		d.began(in.Report)
		return d.made()
	case in.Command == nil && in.Reply == nil && in.Signal == nil && in.Wish == nil && in.Report == nil && in.Pass == nil:
		return submittedOwn(in)
	case !there:
		return Decision{Aside: []Aside{{in.Record, "there is no order of this id"}}}
	default:
		d := &decider{env: env, order: order.Clone(), load: env.load}
		d.putAside(in.Record, in.Order+" has the signals of a key, and is no order")
		return d.made()
	}
	// An older release could not read what follows. But what an order asks for that waits in a partition
	// which has the format is taken: this one gets to it by itself, and the order would wait for nothing.
	if env.Format < events.SignalKeysFormat && in.Want == nil {
		return Decision{Aside: []Aside{{in.Record, fmt.Sprintf("signals under keys are of format %d, and the partition is of format %d: finish the upgrade (waybill upgrade finish)", events.SignalKeysFormat, env.Format)}}}
	}
	if in.Signal != nil && env.Format < events.StartFormat && env.Starts != nil && env.Starts(in.Signal.Signal) != nil && (!there || order.Correlation.Free() < 0) {
		return Decision{Aside: []Aside{{in.Record, fmt.Sprintf("signals that start orders are of format %d, and the partition is of format %d: finish the upgrade (waybill upgrade finish)", events.StartFormat, env.Format)}}}
	}
	if order == nil {
		order = &projections.Order{ID: in.Order}
	}
	d := &decider{env: env, order: order.Clone(), load: env.load}
	if in.Signal != nil {
		d.signalled(in)
	} else {
		d.told(in)
	}
	return d.made()
}

// operateCorrelation does to a correlation what a command asks for, or says why that is not possible.
func (d *decider) operateCorrelation(c *events.Command, act events.Event) (refusal string) {
	if c.Command != events.CommandRelease {
		return fmt.Sprintf("it has the signals of a key, and is no order: it can be released once it is held, and not %s", Cut(c.Command, MaxName))
	}
	return d.release(c, act)
}

// signalled takes a signal: it is given to the wait that has waited longest, or kept, or changes nothing.
func (d *decider) signalled(in *Input) {
	s := in.Signal
	e := events.Event{
		Signal: s.Signal, SignalID: cmp.Or(s.ID, in.Record.Source()), Key: s.Key, Data: s.Data, ReplyTo: s.ReplyTo,
		Source: in.Record.Source(), AnsweredBy: in.Record.header(events.HeaderSource),
	}
	if d.env.Format >= events.StartFormat {
		e.By = Cut(s.By, MaxName)
	}
	if e.ReplyTo != "" && (e.ReplyTo == d.env.Topics.Status || d.env.refusesStatus(e.ReplyTo) != "") {
		e.ReplyTo = ""
	}
	if d.order.Correlation != nil {
		d.expire()
	}
	if e.Due = events.Time(s.KeepUntil); e.Due.IsZero() {
		e.Due = events.Time(d.env.keepUntil())
	}
	var why string
	switch was := d.acted(e.SignalID); {
	case was >= 0:
		if why = events.SignalRepeated; d.order.Signals[was].Kept() && d.order.Signals[was].Under.Starts {
			e.Child = events.StartedID(d.order.ID, d.order.Signals[was].Under.Given)
		}
	case d.env.over(e.Due):
		why = events.SignalLate
	case !fits(new(projections.Step), s.Data):
		why = events.SignalTooLarge
	case d.crowded(&e):
		why = events.SignalTooMany
	case d.place(e):
		return
	default:
		why = events.SignalTooLarge
	}
	d.discardSignal(e, why)
}

// crowded says that there is no room for a signal that is new: among those that are kept, or, where it would be under
// way at once, among these.
func (d *decider) crowded(e *events.Event) bool {
	waits := d.order.Correlation != nil && d.order.Correlation.Free() >= 0
	starts := !waits && d.starts(e.Signal) != nil
	kept, starting, bytes := 1, 0, len(e.Data)
	for i := range d.order.Signals {
		k := &d.order.Signals[i]
		if !k.Kept() {
			continue
		}
		if k.Under.Starts {
			starting++
		}
		if given := k.Under.Given > 0; given == (waits || starts) {
			kept++
			bytes += len(k.Data)
		}
	}
	switch {
	case bytes > keptBytes:
		return true
	case waits:
		return false
	case starts:
		return starting >= maxStarting
	}
	return kept > maxKept
}

// acted is the place of a signal of an id that is kept, or else acted and is remembered; -1 if there is none. Both may
// be there, one of before its time was over, and one of after: what is kept is what becomes of the id now.
func (d *decider) acted(id string) int {
	kept := slices.IndexFunc(d.order.Signals, func(s projections.Signal) bool { return s.ID == id && s.Kept() })
	if kept >= 0 {
		return kept
	}
	return slices.IndexFunc(d.order.Signals, func(s projections.Signal) bool { return s.ID == id && !d.env.over(s.Until) })
}

func (d *decider) discardSignal(e events.Event, why string) {
	e.Type, e.Reason, e.Count, e.Data, e.Due, e.By = events.SignalDiscarded, why, d.order.Unheard+1, nil, time.Time{}, ""
	d.record(&e)
}

// maxStarting is how many signals of a name under a key may be about to start orders.
const maxStarting = 1000

// place gives a signal to the wait that has waited longest, but for those that have one. While there is none it
// starts an order with it, if it is of a name that does, and was not kept before; else it keeps it, unless it
// did. It says whether it could.
func (d *decider) place(e events.Event) bool {
	c, kept := d.order.Correlation, d.keptAt(e.Source)
	free := -1
	if c != nil {
		free = c.Free()
	}
	switch {
	case free >= 0:
	case kept >= 0 && d.order.Signals[kept].Under.Told:
		return true
	case d.starts(e.Signal) != nil:
		return d.startWith(e, kept)
	default:
		e.Type, e.By = events.SignalKept, ""
		return d.try(&e) == ""
	}
	w := c.Waits[free]
	e.Type, e.Waiter, e.Step, e.Wait = events.SignalGiven, w.Order, w.Step, w.Number
	size := estimate(&e)
	if kept >= 0 {
		size += len(d.order.Signals[kept].Data)
	}
	return d.env.Refuses(d.env.Topics.Internal, size) == "" && d.try(&e) == ""
}

func (d *decider) starts(signal string) *workflow.Workflow {
	if d.env.Starts == nil || d.env.Format < events.StartFormat {
		return nil
	}
	return d.env.Starts(signal)
}

// startWith begins an order whose input is what a signal says, which was given before if it has a place. It says whether it could.
func (d *decider) startWith(e events.Event, kept int) bool {
	flow := d.starts(e.Signal)
	e.Type, e.Workflow, e.Version, e.Child = events.SignalOrdered, flow.Name, flow.Version, events.StartedID(d.order.ID, d.order.Seq+1)
	size := estimate(&e)
	if kept >= 0 {
		size += len(d.order.Signals[kept].Data)
	}
	return d.env.Refuses(d.env.Topics.Internal, size) == "" && d.try(&e) == ""
}

// began takes what an order tells that a signal was to start: that it has begun, or cannot. What is told once
// more changes nothing.
func (d *decider) began(r *events.Report) {
	number, _ := strconv.ParseUint(r.Step, 10, 64) // else it is 0, which no event has
	i := d.order.Given(number)
	if i < 0 || !d.order.Signals[i].Under.Starts || r.Child != events.StartedID(d.order.ID, number) {
		return
	}
	s := d.order.Signals[i]
	e := events.Event{Signal: s.Name, SignalID: s.ID, Source: s.Source, Child: r.Child, ReplyTo: s.Under.ReplyTo}
	if r.State == string(projections.Pending) {
		e.Type = events.SignalStarted
		d.record(&e)
		return
	}
	e.Key, e.AnsweredBy, e.Error = d.order.Correlation.Key, s.Under.AnsweredBy, r.Error
	d.discardSignal(e, events.SignalRejected)
}

// startWishes are what orders are asked for that signals start: to begin, and once the home was released, to tell
// once more whether they did: what they told may be given up.
func startWishes(o *projections.Order, e *events.Event) (all []*events.Wish) {
	wish := func(s *projections.Signal) *events.Wish {
		n := s.Under.Given
		w := &events.Wish{Child: events.StartedID(o.ID, n), Parent: o.ID, Step: strconv.FormatUint(n, 10)}
		all = append(all, w)
		return w
	}
	switch e.Type {
	case events.SignalOrdered:
		if i := o.Given(e.Seq); i >= 0 {
			w := wish(&o.Signals[i])
			w.Wish, w.Detached, w.Workflow, w.Version, w.Input, w.Key, w.By = events.WishBegin, true, e.Workflow, e.Version, o.Signals[i].Data, e.Key, e.By
		}
	case events.OrderReleased:
		for i := range o.Signals {
			if s := &o.Signals[i]; s.Kept() && s.Under.Starts {
				w := wish(s)
				w.Wish, w.Reason = events.WishTell, "the home of the key was released"
			}
		}
	}
	return all
}

func (d *decider) keptAt(source string) int {
	for i := range d.order.Signals {
		if s := &d.order.Signals[i]; s.Kept() && s.Source == source {
			return i
		}
	}
	return -1
}

// hand gives what is given to nobody to those who wait, the oldest first. What came back, and nobody waits
// for, is kept.
func (d *decider) hand() {
	d.expire()
	for _, s := range d.order.Signals { // the list changes, and not in place
		if !s.Kept() || s.Under.Given > 0 {
			continue
		}
		e := events.Event{Signal: s.Name, SignalID: s.ID, Key: d.order.Correlation.Key, Source: s.Source, Due: s.Until, AnsweredBy: s.Under.AnsweredBy, ReplyTo: s.Under.ReplyTo, By: s.Under.By}
		if !d.place(e) {
			d.discardSignal(e, events.SignalTooLarge)
		}
	}
}

// expire gives up what was kept for as long as it was to be. Whoever was not told yet hears that it is late.
func (d *decider) expire() {
	for _, s := range d.order.Signals {
		switch {
		case !s.Kept() || s.Under.Given > 0 || !d.env.over(s.Until):
		case s.Under.Told:
			d.record(&events.Event{Type: events.SignalExpired, Signal: s.Name, SignalID: s.ID, Source: s.Source})
		default:
			d.discardSignal(events.Event{Signal: s.Name, SignalID: s.ID, Key: d.order.Correlation.Key, Source: s.Source, AnsweredBy: s.Under.AnsweredBy, ReplyTo: s.Under.ReplyTo}, events.SignalLate)
		}
	}
}

// told takes what an order says of a wait. What it says twice, or of none, changes nothing.
func (d *decider) told(in *Input) {
	w, c := in.Want, d.order.Correlation
	wait, signal := -1, -1
	if c != nil {
		if wait = c.Wait(w.Order, w.Wait); wait >= 0 {
			signal = d.order.Given(c.Waits[wait].Given)
		}
	}
	e := events.Event{Waiter: w.Order, Step: w.Step, Wait: w.Wait, Signal: w.Signal, Key: w.Key, Source: in.Record.Source()}
	switch {
	case w.Want == events.WantAwait:
		switch {
		case wait >= 0:
			return
		case c != nil && len(c.Waits) >= events.MaxWaits:
			e.Type, e.Reason = events.WaitRefused, fmt.Sprintf("%d steps wait for signal %s under this key, and no more may", events.MaxWaits, w.Signal)
			d.record(&e)
			return
		}
		e.Type = events.WaitBegan
		d.record(&e)
	case wait < 0:
		return
	case w.Want == events.WantWithdraw, signal < 0 && w.Want == events.WantHeard && w.Over: // what was given up, and put back
		d.endWait(e)
	case signal < 0 || d.order.Signals[signal].ID != w.SignalID:
		return
	case w.Want == events.WantHeard:
		s := d.order.Signals[signal]
		d.record(&events.Event{Type: events.SignalMatched, Signal: s.Name, SignalID: s.ID, Source: s.Source, Waiter: w.Order, Step: w.Step, Wait: w.Wait})
		if w.Over {
			d.endWait(e)
		}
	case w.Given != c.Waits[wait].Given:
		return
	case w.Reason == "":
		d.endWait(e)
	default:
		s := d.order.Signals[signal]
		d.discardSignal(events.Event{Signal: s.Name, SignalID: s.ID, Key: w.Key, Source: s.Source, AnsweredBy: s.Under.AnsweredBy, ReplyTo: s.Under.ReplyTo}, w.Reason)
	}
	d.hand()
}

func (d *decider) endWait(e events.Event) {
	d.record(&events.Event{Type: events.WaitEnded, Waiter: e.Waiter, Wait: e.Wait, Source: e.Source})
}

// lapse gives up what was kept for as long as it was to be, and forgets a correlation of which nothing need be
// known any more.
func lapse(env *Env, order *projections.Order) Decision {
	if at := order.Lapses(); at.IsZero() || env.Now.Before(at) {
		return Decision{}
	}
	d := &decider{env: env, order: order.Clone(), load: env.load}
	d.expire()
	if idle, _ := order.Idle(); idle {
		d.record(&events.Event{Type: events.OrderForgotten})
	}
	return d.made()
}

// takePass takes a signal under a key for a step that waits for it, or that its wait is refused. What no
// step hears goes back, and leaves no event: the order need not be there.
func takePass(env *Env, order *projections.Order, in *Input) Decision {
	p := in.Pass
	back := func(why string) Decision {
		if p.Refused != "" {
			return Decision{}
		}
		return Decision{Messages: []Message{returned(env, p, in.Record, why)}}
	}
	if order == nil || order.Forgotten || order.State.Final() {
		return back("")
	}
	i := place(order, p.Step)
	if i < 0 || !order.Steps[i].Awaits(p.Signal, p.Wait) || order.Steps[i].Listens.Key != p.Key {
		return back("")
	}
	if order.KnowsSignal(p.Signal, p.Key, p.SignalID) {
		return back(events.SignalRepeated)
	}
	step := &order.Steps[i]
	d := newDecider(env, order)
	if p.Refused != "" {
		d.record(&events.Event{Type: events.StepFailed, Step: step.Name, Attempt: step.Attempt, Error: &events.Error{Code: events.TooManyWaits, Message: p.Refused, Permanent: true}, Source: in.Record.Source()})
		d.repair(d.task(i, doing))
		return d.made()
	}
	e := events.Event{
		Type: events.StepHeard, Step: step.Name, Attempt: step.Attempt, Signal: p.Signal, SignalID: p.SignalID, Data: p.Data,
		Source: p.Source, AnsweredBy: p.AnsweredBy, ReplyTo: p.ReplyTo,
	}
	if !fits(step, p.Data) || d.try(&e) != "" {
		return back(events.SignalTooLarge)
	}
	if d.order.Steps[i].Over() {
		d.advance()
	}
	return d.made()
}

// passOf is the signal under a key that a record is, nil if it is none.
func passOf(r *Record, topics *events.Topics) *events.Pass {
	if r.Topic != topics.Internal || events.Type(r.header(events.HeaderType)) != events.SignalPassed {
		return nil
	}
	p, err := events.Decode[events.Pass](r.Value)
	if err != nil {
		return nil
	}
	return &p
}

// returned is the message with which a signal under a key goes back that r is. It follows from that alone.
func returned(env *Env, p *events.Pass, r *Record, why string) Message {
	w := events.Want{
		Correlation: p.Correlation, Want: events.WantUnheard, Signal: p.Signal, Key: p.Key, Order: p.Order, Step: p.Step, Wait: p.Wait,
		SignalID: p.SignalID, Given: p.Given, Reason: why,
	}
	return answered(env, r, events.SignalWanted, p.Correlation, w.Append(nil))
}

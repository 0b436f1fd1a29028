package decide

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// orderer is the [kind] of a step that another order does: its child. The step runs until the child
// tells how it ended, and is undone by having the child undo what it did. A child that has not ended
// is recalled instead: it ends then as undone, and the step as failed.
type orderer struct{}

func (orderer) hasUndo(def *workflow.Step) bool { return !def.Order.Detached }

func (orderer) remedy(t task) string {
	return fmt.Sprintf("give the step its input: waybill order resubmit %s --step %s --input JSON", quote(t.order.ID), t.step.Name)
}

// begin begins the child, or has it undo what it did.
func (orderer) begin(d *decider, t task) bool {
	if t.undo {
		d.record(&events.Event{Type: events.UndoOrdered, Step: t.step.Name, Attempt: t.work().Attempt + 1, Child: t.child(), LockedBy: d.env.Instance})
		d.begun++
		return true
	}
	def := t.def.Order
	e := events.Event{
		Type: events.StepOrdered, Step: t.step.Name, Attempt: t.step.Attempt + 1, LockedBy: d.env.Instance,
		Child: events.ChildID(t.key(d.env.Format)), Workflow: def.Workflow, Version: def.Version, Detached: def.Detached, ReplyTo: def.ReplyTo,
	}
	if e.Version == 0 {
		e.Version = int(d.order.Pinned[def.Workflow])
	}
	if t.def.Timeout > 0 {
		e.CompleteBy = events.Time(d.env.Now.Add(t.def.Timeout))
	}
	if above(d.order) >= events.MaxDepth {
		return d.refuse(t, &events.Error{Code: tooDeep, Message: fmt.Sprintf("%d orders are above this one, each of which does a step of another; no more may be", events.MaxDepth)})
	}
	if with := t.def.With; with != nil && t.step.Input == nil {
		value, err := with.Value(t.scope())
		if err != nil {
			return d.refuse(t, &events.Error{Code: badExpression, Message: err.Error()})
		}
		e.Input = value
	}
	size := estimate(&e) + passedSize(d.order)
	if e.Input == nil {
		size += len(inputOf(d.order, t.step))
	}
	for name, value := range d.order.Labels {
		size += 2 * (len(name) + len(value))
	}
	if why := cmp.Or(d.env.Refuses(d.env.Topics.Internal, size), d.env.Refuses(d.env.Topics.Journal, size)); why != "" {
		return d.refuse(t, &events.Error{Code: requestRefused, Message: fmt.Sprintf("order %s cannot be asked for: %s", e.Child, why)})
	}
	d.record(&e)
	d.begun++
	return true
}

// child is the order that does the task's step, or did: the one of the key that is undone.
func (t task) child() string {
	if t.undo {
		return events.ChildID(stepKey(t.order.ID, t.step))
	}
	return t.step.Child.ID
}

// tooDeep is the code of a step whose child would be too deep.
const tooDeep = "too-deep"

// above is how many orders there are above this one.
func above(o *projections.Order) int {
	if o.Parent == nil {
		return 0
	}
	return o.Parent.Depth
}

// timeOver recalls a child that takes too long. The step ends once the child has.
func (orderer) timeOver(d *decider, t task) {
	d.recall(t, fmt.Sprintf("%v of order %s has taken until %s, and may not take longer", t, t.order.ID, events.AppendTime(nil, t.work().CompleteBy)))
}

// recall has the child undo what it did, and end.
func (d *decider) recall(t task, why string) {
	if each := t.step.Each; each != nil {
		if !each.Recalled {
			d.record(&events.Event{Type: events.StepRecalled, Step: t.step.Name, Attempt: t.step.Attempt, Reason: why})
		}
		return
	}
	if c := t.step.Child; !c.Recalled {
		d.record(&events.Event{Type: events.StepRecalled, Step: t.step.Name, Attempt: t.step.Attempt, Child: c.ID, Reason: why})
	}
}

// recallAll recalls the children of an order that is undone, but for those that are not undone with it.
func (d *decider) recallAll() {
	for i := range d.order.Steps {
		t := d.task(i, doing)
		_, items := t.kind.(itemizer)
		if _, is := t.kind.(orderer); t.step.State == projections.Running && (items || is && !t.def.Order.Detached) {
			d.recall(t, fmt.Sprintf("order %s is being undone", d.order.ID))
		}
	}
}

// TakeReport decides on what an order that does a step of this one tells: how it ended. What is
// told of no step, or once more, changes nothing, and leaves no event. The order must exist.
func TakeReport(env *Env, order *projections.Order, in *Input) Decision {
	if step, n, is := events.ItemOf(in.Report.Step); is && !order.State.Final() {
		return takeItem(env, order, in, step, n)
	}
	if step, n, is := events.PageOf(in.Report.Step); is && !order.State.Final() {
		return takePage(env, order, in, step, n)
	}
	d, r := newDecider(env, order), in.Report
	i := place(order, r.Step)
	if i < 0 || order.State.Final() {
		return Decision{}
	}
	s := &d.order.Steps[i]
	if s.Child == nil {
		return Decision{}
	}
	if undo := d.task(i, undoing); undo.work().State == projections.Running && undo.child() == r.Child {
		e := events.Event{Type: events.UndoCompleted, Source: in.Record.Source(), Left: d.left(r)}
		switch projections.State(r.State) {
		case projections.Processed:
			return undoAgain(env, order, in)
		case projections.Compensated, projections.Cancelled:
		default:
			e.Type, e.Error = events.UndoFailed, told(r)
		}
		d.end(undo, e)
		return d.made()
	}
	if s.State != projections.Running || s.Child.ID != r.Child {
		return Decision{}
	}
	e := events.Event{Type: events.StepCompleted, Output: r.Output, Source: in.Record.Source()}
	switch projections.State(r.State) {
	case projections.Processed:
	case projections.Pending: // nobody waits for its end
		e.Output = began(r.Child)
	default:
		e.Type, e.Output, e.Error, e.Left = events.StepFailed, nil, told(r), d.left(r)
		if s.Child.Recalled && d.order.Toward == "" && r.State == string(projections.Cancelled) {
			e.Error.Code = timedOut
		}
	}
	d.end(d.task(i, doing), e)
	return d.made()
}

// undoAgain asks an order for its undo that says it is Processed. That may be from before, and it is being undone: then this
// changes nothing. Or it could not be undone, as deciding on it panicked, and an operator gave up what it told of that.
func undoAgain(env *Env, order *projections.Order, in *Input) Decision {
	r := in.Report
	w := events.Wish{Child: r.Child, Wish: events.WishUndo, Parent: order.ID, Step: r.Step, Reason: undoReason(order)}
	return Decision{Messages: []Message{answered(env, in.Record, events.ChildWanted, w.Child, w.Append(nil))}}
}

// left says that something which ran in the order that tells it, or may have run, was not undone.
func (d *decider) left(r *events.Report) bool { return r.Left && d.env.Format >= events.LeavesFormat }

// began is the output of a step whose child is not waited for.
func began(child string) jsontext.Value {
	id, _ := jsontext.AppendQuote(nil, child) // it is UTF-8, as all ids are
	return slices.Concat(jsontext.Value(`{"order":`), id, jsontext.Value("}"))
}

// timedOut is the code of a step whose child took too long.
const timedOut = "timed-out"

// told is why a child has no output. Nothing but another child can.
func told(r *events.Report) *events.Error {
	fault := events.Error{Code: "error", Message: "the order gave no reason"}
	if r.Error != nil {
		fault = *r.Error
	}
	says := "order " + r.Child
	if fault.Message != "" {
		says += ": " + fault.Message
	}
	fault.Message = Cut(says, MaxText)
	if fault.Permanent = true; r.State != "" && slices.Contains(ownCodes, fault.Code) {
		fault.Code = "raised-" + fault.Code
	}
	return &fault
}

// ownCodes are those of attempts by which it is decided what follows: what a child raised under such a name is
// not one of them.
var ownCodes = append([]string{events.UntilNotMet, events.BadUntil, events.UnknownOperation, timedOut, tooDeep, events.IDTaken, events.ItemsFailed, events.NoPage, events.BadPage, events.CursorRepeated, events.EmptyPages, events.TooManyItems, events.TooManyPages}, unanswered...)

// TakeWish decides on what the order asks of this one whose step it does, or is to do.
func TakeWish(env *Env, order *projections.Order, in *Input) Decision {
	w := in.Wish
	switch {
	case order == nil && w.Wish == events.WishForget: // it never began
		return Decision{}
	case order == nil:
		return Submit(env, nil, in)
	case w.Wish == events.WishForget:
		if p := order.Parent; p == nil || p.Order != w.Parent || p.Detached || !order.State.Final() {
			return Decision{}
		}
		return forget(env, order)
	case !doesStep(order, w):
		d := &decider{env: env, order: order.Clone()} // its workflow does not matter
		reason := fmt.Sprintf("the id %s is taken: it was to do step %s of order %s, and does not", w.Child, w.Step, w.Parent)
		d.record(&events.Event{Type: events.OrderReported, Parent: w.Parent, ParentStep: w.Step, Reason: reason, Error: &events.Error{Code: events.IDTaken, Message: reason}})
		return d.made()
	case w.Wish == events.WishBegin, w.Wish == events.WishTell:
		if !order.State.Final() && !order.Parent.Detached {
			return Decision{} // it tells when it has ended
		}
		return report(env, order, "its parent asks once more")
	case w.Wish == events.WishUndo && order.State == projections.Processed:
		d := newDecider(env, order)
		d.turnBack(projections.Compensated, events.Event{Reason: w.Reason})
		return d.made()
	case w.Wish == events.WishUndo && order.State.Final():
		return report(env, order, "its parent would have it undone")
	case order.State.Final(), order.Toward != "": // it tells when it has ended, or did
		return Decision{}
	}
	d := newDecider(env, order)
	d.turnBack(projections.Cancelled, events.Event{Reason: w.Reason})
	return d.made()
}

// doesStep says that an order does the step of which it is asked something.
func doesStep(order *projections.Order, w *events.Wish) bool {
	p := order.Parent
	return p != nil && p.Order == w.Parent && p.Step == w.Step
}

// report tells the parent how the order stands.
func report(env *Env, order *projections.Order, why string) Decision {
	d := &decider{env: env, order: order.Clone()}
	d.record(&events.Event{Type: events.OrderReported, Parent: order.Parent.Order, ParentStep: order.Parent.Step, Reason: why})
	return d.made()
}

// wishes are what children are asked for by an event. An order that was held may have given up what
// they told it, and so may its operator.
func wishes(o *projections.Order, e *events.Event) (all []*events.Wish) {
	if o.Schedule != nil {
		return scheduleWishes(o, e)
	}
	if o.Correlation != nil {
		return startWishes(o, e)
	}
	for _, child := range e.Children {
		all = append(all, &events.Wish{Child: child, Wish: events.WishForget, Parent: o.ID})
	}
	if e.Type != events.OrderReleased {
		if e.Child == "" {
			return append(all, itemWishes(o, e)...)
		}
		if w := wished(o, e); w != nil {
			all = append(all, w)
		}
		return all
	}
	for i := range o.Steps {
		s := &o.Steps[i]
		w := &events.Wish{Wish: events.WishTell, Parent: o.ID, Step: s.Known(), Reason: fmt.Sprintf("order %s was released", o.ID)}
		switch {
		case s.Each != nil:
			for _, n := range s.Each.Running {
				all = append(all, itemWish(o, s, n, events.WishTell, w.Reason))
			}
			if p := s.Each.Pages; p != nil && p.Running > 0 {
				all = append(all, pageWish(o, s, p.Running, events.WishTell, w.Reason))
			}
			continue
		case s.Child == nil:
			continue
		case s.State == projections.Running:
			w.Child = s.Child.ID
		case s.Undo != nil && s.Undo.State == projections.Running:
			w.Child = events.ChildID(stepKey(o.ID, s))
		default:
			continue
		}
		all = append(all, w)
	}
	return all
}

// wished is what a child is asked for by an event, nil if that is nothing, as of nearly all.
func wished(o *projections.Order, e *events.Event) *events.Wish {
	if e.Child == "" {
		return nil
	}
	w := &events.Wish{Child: e.Child, Parent: o.ID, Step: o.Step(e.Step).Known(), Reason: e.Reason}
	switch e.Type {
	case events.StepOrdered:
		w.Wish, w.Detached = events.WishBegin, e.Detached
		w.Workflow, w.Version, w.ReplyTo = e.Workflow, e.Version, e.ReplyTo
		w.Input = inputOf(o, o.Step(e.Step))
		inherit(w, o)
	case events.StepRecalled:
		w.Wish = events.WishCancel
	case events.UndoOrdered:
		w.Wish, w.Reason = events.WishUndo, undoReason(o)
	default:
		return nil
	}
	return w
}

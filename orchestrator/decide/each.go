package decide

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// itemizer is the [kind] of a step that is done for each item of a list, each by an order of its own, so
// many at a time. The step runs until all have ended, or none is begun any more and those under way have. It
// is undone by having the orders undo what they did, those that ended last first.
type itemizer struct{}

func (itemizer) hasUndo(*workflow.Step) bool { return true }

func (itemizer) remedy(t task) string {
	if t.def.Each.Pages != nil {
		return fmt.Sprintf("give the step what its agent gets: waybill order resubmit %s --step %s --input JSON", quote(t.order.ID), t.step.Name)
	}
	return fmt.Sprintf("give the step its items: waybill order resubmit %s --step %s --input '[...]'", quote(t.order.ID), t.step.Name)
}

// itemsAtOnce is how many items one event orders at most: each is a message to another order.
const itemsAtOnce = 100

// begin begins with the items, or with those that failed, or has what was done be undone.
func (itemizer) begin(d *decider, t task) bool {
	if t.undo {
		d.undoItems(t)
		return true
	}
	def, again := t.def.Each, t.step.Each != nil
	e := events.Event{
		Type: events.StepItemized, Step: t.step.Name, Attempt: t.step.Attempt + 1, LockedBy: d.env.Instance,
		Workflow: def.Order.Workflow, Version: cmp.Or(def.Order.Version, int(d.order.Pinned[def.Order.Workflow])),
	}
	if t.def.Timeout > 0 {
		e.CompleteBy = events.Time(d.env.Now.Add(t.def.Timeout))
	}
	if above(d.order) >= events.MaxDepth {
		return d.refuse(t, &events.Error{Code: tooDeep, Message: fmt.Sprintf("%d orders are above this one, each of which does a step of another; no more may be", events.MaxDepth)})
	}
	switch {
	case again:
		e.Count = t.step.Each.Count
	case def.Pages != nil:
		if def.With != nil && t.step.Input == nil {
			input, err := def.With.Value(t.scope())
			if err != nil {
				return d.refuse(t, &events.Error{Code: badExpression, Message: err.Error()})
			}
			e.Input = input
		}
	default:
		list := t.step.Input // of an operator
		if list == nil {
			var err error
			if list, err = def.List(t.scope()); err != nil {
				return d.refuse(t, &events.Error{Code: badExpression, Message: err.Error()})
			}
			e.Input = list
		}
		n, ok := projections.Elements(list)
		switch {
		case !ok:
			return d.refuse(t, &events.Error{Code: badExpression, Message: fmt.Sprintf("items %s: it is a list, this is %s", strconv.Quote(def.Items.String()), Cut(string(list), 100))})
		case n > events.MaxItems:
			return d.refuse(t, &events.Error{Code: badExpression, Message: fmt.Sprintf("items %s: there are %d; at most %d are allowed", strconv.Quote(def.Items.String()), n, events.MaxItems)})
		}
		e.Count = n
	}
	size := estimate(&e) + len(t.step.Input)
	if pages := def.Pages; pages != nil {
		e.Agent, e.Operation = pages.Steps[0].Agent, pages.Steps[0].Do
		if size += cursorSize; e.Input == nil && t.step.Input == nil {
			size += len(t.order.Input)
		}
	}
	if why := d.refusesItems(size); why != "" {
		return d.refuse(t, &events.Error{Code: requestRefused, Message: "its items cannot be asked for: " + why})
	}
	d.record(&e)
	d.begun++
	if d.endItems(t) {
		return false // what follows has begun
	}
	d.orderItems(t)
	return true
}

// atOnce is how many items of the step may be under way.
func (t task) atOnce() int { return cmp.Or(t.step.Each.AtOnce, t.def.Each.AtOnce) }

// orderItems has the next items be done, as many as may be, and once all are under way that are known the next page be
// asked for.
func (d *decider) orderItems(t task) {
	for more := true; more && !d.stops(t); {
		each := t.step.Each
		if page, again := each.NextPage(); page > 0 {
			d.orderPage(t, page, again)
			return
		}
		e := events.Event{Type: events.ItemsOrdered, Step: t.step.Name, Attempt: t.step.Attempt, Item: each.Next(), LockedBy: d.env.Instance}
		more = d.orderSome(t, &e, each.Ready(t.atOnce()))
	}
}

// undoItems has what was done last be undone, as much as may be.
func (d *decider) undoItems(t task) {
	for more := true; more; {
		each, attempt := t.step.Each, t.work().Attempt
		if t.work().State != projections.Running {
			attempt++
		}
		e := events.Event{Type: events.ItemsOrdered, Step: t.step.Name, Attempt: attempt, ToUndo: true, Item: each.NextUndo(), LockedBy: d.env.Instance}
		more = d.orderSome(t, &e, each.Done)
	}
}

// orderSome has the next items be done, or undone, of so many that are left, and says whether others follow in
// this decision. Where it has begun enough they are due at once, in one of their own.
func (d *decider) orderSome(t task, e *events.Event, left int) (more bool) {
	room := min(t.atOnce()-len(t.step.Each.Running), left)
	e.Count = min(room, itemsAtOnce)
	spent := d.spent()
	if spent {
		e.Count = min(room, 1)
	}
	if room <= 0 || spent && !t.work().Due.IsZero() {
		return false
	}
	if room > e.Count {
		e.Due = events.Time(d.env.Now)
	}
	d.record(e)
	d.begun += e.Count
	return !spent && !d.spent()
}

// stops says that no further item is begun.
func (d *decider) stops(t task) bool {
	each := t.step.Each
	return each.Recalled || unwanted(d.order) || !t.def.Each.Finish && (each.Failed > t.tolerates() || each.Pages != nil && each.Pages.Error != nil)
}

// idle ends steps of which no item is under way, and none will be: while nothing could begin those ended
// that were.
func (d *decider) idle() {
	for i := range d.order.Steps {
		t := d.task(i, doing)
		if _, is := t.kind.(itemizer); is && t.step.State == projections.Running && !t.step.Each.Busy() {
			e := d.itemsEnd(t)
			e.Step, e.Attempt = t.step.Name, t.step.Attempt
			d.record(&e)
		}
	}
}

// endItems ends the step if all of its items have ended that will.
func (d *decider) endItems(t task) (ended bool) {
	each := t.step.Each
	if each.Busy() || t.def == nil || each.Open() && !d.stops(t) {
		return false
	}
	d.end(t, d.itemsEnd(t))
	return true
}

// itemsEnd is how the step ends of which no item is under way.
func (d *decider) itemsEnd(t task) events.Event {
	each := t.step.Each
	all := each.Left() == 0 && (each.Pages == nil || each.Pages.Last && each.Pages.Error == nil)
	if all && (each.Failed == 0 || !each.Recalled && !unwanted(d.order) && t.def != nil && each.Failed <= t.tolerates()) {
		return events.Event{Type: events.StepCompleted, Output: itemsOutput(each)}
	}
	fault, known := events.Error{Code: events.ItemsFailed, Permanent: true}, strconv.Itoa(each.Count)
	if each.Pages != nil && !each.Pages.Last {
		known = "the first " + known
	}
	switch {
	case unwanted(d.order):
		fault.Code, fault.Message = "cancelled", fmt.Sprintf("%d of %s items were done", each.Done, known)
	case each.Recalled:
		fault.Code, fault.Message = timedOut, fmt.Sprintf("%d of %s items were done in time", each.Done, known)
	case each.Pages != nil && each.Pages.Error != nil && each.Failed <= t.tolerates():
		return events.Event{Type: events.StepFailed, Error: each.Pages.Error}
	default:
		fault.Message = fmt.Sprintf("%d of %s items failed, and %d may", each.Failed, known, t.tolerates())
		if each.Pages != nil && each.Pages.Error != nil {
			fault.Message += "; " + each.Pages.Error.Message
		}
	}
	if len(each.Failures) > 0 {
		first := &each.Failures[0]
		fault.Message += fmt.Sprintf("; the first was item %d: %s", first.Item, (&events.Error{Code: first.Code, Message: first.Message}).Text())
	}
	fault.Message = Cut(fault.Message, MaxText)
	return events.Event{Type: events.StepFailed, Error: &fault}
}

// itemsOutput is the output of a step whose items have ended: how many there are, and what came of them, the
// first failures, and what the items made of it, where all of that fits.
func itemsOutput(each *projections.Each) jsontext.Value {
	b := fmt.Appendf(nil, `{"items":%d,"completed":%d,"failed":%d,"failures":[`, each.Count, each.Done, each.Failed)
	for i := range each.Failures {
		f := &each.Failures[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendInt(append(b, `{"item":`...), int64(f.Item), 10), `,"error":`...)
		b = append((&events.Error{Code: f.Code, Message: f.Message}).Append(b), '}')
	}
	b = append(b, ']')
	if outputs := each.Outputs(); outputs != nil {
		b = append(b, `,"outputs":[`...)
		for i, output := range outputs {
			if i > 0 {
				b = append(b, ',')
			}
			if output == nil {
				output = jsontext.Value("null")
			}
			b = append(b, output...)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// timeOver has the next items be done, or undone, if the step has not taken too long. Else it recalls the
// orders that do items, and begins no further one. The step ends once they have.
func (itemizer) timeOver(d *decider, t task) {
	if at := t.work().Ends(); at.IsZero() || d.env.Now.Before(at) {
		d.advance()
		return
	}
	d.recall(t, fmt.Sprintf("%v of order %s has taken until %s, and may not take longer", t, t.order.ID, events.AppendTime(nil, t.work().CompleteBy)))
	d.endItems(t)
}

// takeItem decides on what an order tells that does an item, or was to undo it.
func takeItem(env *Env, order *projections.Order, in *Input, step string, n int) Decision {
	r := in.Report
	i := place(order, step)
	if i < 0 || order.Steps[i].Each == nil || n > order.Steps[i].Each.Count || r.Child != order.ItemOrder(&order.Steps[i], n) {
		return Decision{}
	}
	d := newDecider(env, order)
	t := d.task(i, doing)
	e := events.Event{Type: events.ItemCompleted, Step: t.step.Name, Item: n, Source: in.Record.Source()}
	switch state := projections.State(r.State); t.step.Each.State(n) {
	case projections.ItemUndoing:
		t = d.task(i, undoing)
		e.ToUndo, e.Left = true, d.left(r)
		switch state {
		case projections.Processed:
			return undoAgain(env, order, in)
		case projections.Compensated, projections.Cancelled:
		default:
			e.Type, e.Error = events.ItemFailed, told(r)
		}
	case projections.ItemRunning:
		if e.Output = r.Output; state != projections.Processed {
			e.Type, e.Output, e.Error, e.Left = events.ItemFailed, nil, told(r), d.left(r)
		}
		if t.step.Each.Recalled && d.order.Toward == "" && state == projections.Cancelled {
			e.Error.Code = timedOut
		}
	default:
		return Decision{}
	}
	if t.work().State != projections.Running {
		return Decision{}
	}
	e.Attempt = t.work().Attempt
	if why := d.try(&e); why != "" {
		e.Type, e.Output, e.Error = events.ItemFailed, nil, refusedOutput(why)
		d.record(&e)
	}
	switch {
	case !t.undo:
		if !d.endItems(t) {
			d.advance()
		}
	case len(t.step.Each.Running) > 0 || t.step.Each.Done > 0:
		d.advance()
	case t.step.Each.NotUndone > 0:
		d.end(t, events.Event{Type: events.UndoFailed, Error: &events.Error{
			Code: events.ItemsFailed, Message: fmt.Sprintf("%d of %d items were not undone", t.step.Each.NotUndone, t.step.Each.NotUndone+t.step.Each.Undone), Permanent: true,
		}})
	default:
		d.end(t, events.Event{Type: events.UndoCompleted})
	}
	return d.made()
}

// itemWish is what the order is asked for that does an item.
func itemWish(o *projections.Order, s *projections.Step, n int, wish, reason string) *events.Wish {
	return &events.Wish{Child: o.ItemOrder(s, n), Wish: wish, Parent: o.ID, Step: events.ItemStep(s.Known(), n), Reason: reason}
}

// itemWishes are what the orders that do items are asked for by an event.
func itemWishes(o *projections.Order, e *events.Event) (all []*events.Wish) {
	s := o.Step(e.Step)
	if s == nil || s.Each == nil {
		return nil
	}
	running := s.Each.Running
	switch {
	case e.Type == events.StepRecalled:
		for _, n := range running {
			all = append(all, itemWish(o, s, n, events.WishCancel, e.Reason))
		}
		all = append(all, pageWishes(o, s, e)...)
	case e.Page > 0:
		all = pageWishes(o, s, e)
	case e.Type == events.ItemsForgotten:
		for n := e.Item; n < e.Item+e.Count && n <= s.Each.Count; n++ {
			for round := range s.Each.Rounds(n) {
				all = append(all, &events.Wish{Child: events.ChildID(events.IdempotencyKey(o.ID, events.ItemStep(s.Known(), n), round)), Wish: events.WishForget, Parent: o.ID})
			}
		}
	case e.Type == events.ItemsOrdered && e.ToUndo:
		for _, n := range running[max(0, len(running)-e.Count):] {
			all = append(all, itemWish(o, s, n, events.WishUndo, undoReason(o)))
		}
	case e.Type == events.ItemsOrdered:
		s.Begun(func(n int, value jsontext.Value) {
			w := itemWish(o, s, n, events.WishBegin, "")
			w.Workflow, w.Version, w.Input = s.Each.Workflow, s.Each.Version, value
			inherit(w, o)
			all = append(all, w)
		})
	}
	return all
}

// inherit has an order that is to begin have what it has of the one whose step it does.
func inherit(w *events.Wish, o *projections.Order) {
	w.Depth, w.Priority, w.Labels = above(o)+1, o.Priority, o.Labels
	w.By, w.Submitters = o.SubmittedBy, o.Submitters
	w.Deadline = o.Deadline
}

func undoReason(o *projections.Order) string { return fmt.Sprintf("order %s is being undone", o.ID) }

// forgottenAtOnce is how many orders that did items are forgotten in one decision.
const forgottenAtOnce = 1000

// forgetsItems has the next orders be forgotten that did items of an order which is to be, or asked for them. It says whether
// there were any.
func (d *decider) forgetsItems() bool {
	for i := range d.order.Steps {
		s := &d.order.Steps[i]
		if s.Each == nil {
			continue
		}
		if p := s.Each.Pages; p != nil && p.Forgotten < p.Asked {
			d.record(&events.Event{Type: events.PagesForgotten, Step: s.Name, Page: p.Forgotten + 1, Count: min(forgottenAtOnce, p.Asked-p.Forgotten)})
			return true
		}
		if s.Each.Forgotten == s.Each.Count {
			continue
		}
		e := events.Event{Type: events.ItemsForgotten, Step: s.Name, Item: s.Each.Forgotten + 1}
		for orders := 0; orders < forgottenAtOnce && s.Each.Forgotten+e.Count < s.Each.Count; e.Count++ {
			orders += s.Each.Rounds(e.Item + e.Count)
		}
		d.record(&e)
		return true
	}
	return false
}

// pace changes how many items of a step are under way at a time.
func (d *decider) pace(c *events.Command, act events.Event) (refusal string) {
	s := d.order.Step(c.Step)
	switch {
	case d.env.Format < events.EachFormat:
		return fmt.Sprintf("steps have items from format %d on, and the partition is of format %d: finish the upgrade (waybill upgrade finish), and send the command again", events.EachFormat, d.env.Format)
	case c.Priority != "" || !c.Deadline.IsZero() || c.NoDeadline:
		return "a step is to be changed, and the order as a whole; send two commands"
	case c.Step == "":
		return "no step is named; name the one whose items are meant (step)"
	case c.AtOnce < 1 || c.AtOnce > events.MaxAtOnce:
		return fmt.Sprintf("%d items at a time; use 1 to %d", c.AtOnce, events.MaxAtOnce)
	case s == nil:
		return fmt.Sprintf("the order has no step %q; its steps are %s", Cut(c.Step, MaxName), d.stepNames())
	case s.Each == nil:
		return fmt.Sprintf("step %s has no items, or has not begun with them", c.Step)
	case d.flow == nil:
		return "its workflow is not registered any more; register it again first"
	}
	act.Type, act.Step, act.AtOnce = events.StepPaced, c.Step, c.AtOnce
	d.record(&act)
	d.advance()
	return ""
}

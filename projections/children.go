package projections

import (
	"slices"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// Orders that do a step of another: its children.

// Parent is the order of which this one does a step, or the schedule that began it for a tick, or the
// correlation whose signal did.
type Parent struct {
	Order, Step string
	// Depth is how many orders there are above this one.
	Depth int
	// Detached says that the parent does not wait for the end.
	Detached bool
}

// Child is the order that does a step.
type Child struct {
	ID string
	// Recalled says that it was asked to undo what it did, before it had ended.
	Recalled bool
}

// IsSchedule says that the order is one that a schedule began, which waits for nothing but its end.
func (p *Parent) IsSchedule() bool { return events.ScheduleOf(p.Order) != "" }

// quiet says that status messages are the affair of the one whose step the order does.
func (o *Order) quiet() bool {
	return o.Parent != nil && o.ReplyTo == "" && !o.Parent.IsSchedule() && !o.Parent.IsCorrelation()
}

// IsCorrelation says that a signal under a key started the order, which is nobody's child otherwise.
func (p *Parent) IsCorrelation() bool { return events.IsCorrelation(p.Order) }

func parentOf(e *events.Event) *Parent {
	if e.Parent == "" {
		return nil
	}
	return &Parent{e.Parent, e.ParentStep, e.Depth, e.Detached}
}

// order has another order do the step. Its complete-by is none of an agent's: past it the other one is
// recalled, and the step runs until that has ended.
func order(_ *Order, s *Step, e *events.Event) {
	s.start(e)
	s.Child = &Child{ID: e.Child}
}

func recall(_ *Order, s *Step, _ *events.Event) {
	if s.Child != nil { // which every journal has
		s.Child = &Child{s.Child.ID, true}
	}
	if s.Each != nil {
		x := s.edit()
		x.Recalled = true
	}
	s.CompleteBy = time.Time{}
}

func orderUndo(_ *Order, s *Step, e *events.Event) { s.undoing().start(e) }

// report changes nothing.
func report(*Order, *Step, *events.Event) {}

// Reports is what the order tells its parent once it has folded an event, nil if that is nothing.
func (o *Order) Reports(e *events.Event) *events.Report {
	parent := o.Parent
	if e.Type == events.OrderReported && e.Error != nil { // it is no child of the one that asks, or could not decide on it
		return &events.Report{Parent: e.Parent, Step: e.ParentStep, Child: o.ID, Error: e.Error}
	}
	if parent == nil {
		return nil
	}
	r := &events.Report{Parent: parent.Order, Step: parent.Step, Child: o.ID, State: string(o.State)}
	switch {
	case parent.Detached:
		if e.Type != events.OrderAccepted && e.Type != events.OrderRejected && e.Type != events.OrderReported {
			return nil
		}
		if e.Type == events.OrderReported && o.State != Rejected {
			r.State = string(Pending)
		}
	case !o.State.Final():
		return nil
	default:
		switch e.Type {
		case events.OrderRejected, events.OrderCompleted, events.OrderCompensated, events.OrderCancelled, events.OrderRaised, events.OrderTerminated, events.OrderReported:
		default:
			return nil
		}
	}
	switch r.State {
	case string(Processed):
		if !parent.IsSchedule() {
			r.Output = o.Output()
		}
	case string(Pending):
	default:
		r.Error, r.Left = o.failed(), o.leaves()
	}
	return r
}

// leaves says that something of the order, which has ended, ran, or may have run, and was not undone.
func (o *Order) leaves() bool { return len(o.Leavings()) > 0 }

// Leavings names the steps of the order, which has ended, that ran, or may have run, and were not undone.
func (o *Order) Leavings() []string {
	names := []string{}
	for i := range o.Steps {
		s := &o.Steps[i]
		open := s.State != Undone && s.Unknown || s.Undo != nil && s.Undo.Doubtful
		if s.Leaves || s.Ran() || open && o.State == Terminated {
			names = append(names, s.Name)
		}
	}
	return names
}

// noteLeft notes that an order which did the step, or an item of it, told that something of that was not undone.
func (o *Order) noteLeft(s *Step, e *events.Event) {
	s.Leaves = true
	n := s.Resubmissions
	if e.Type != events.StepFailed {
		n = s.Under()
	}
	switch {
	case !o.names:
	case e.Item > 0:
		s.leaveItem(e)
	case !slices.Contains(s.LeftBy, n):
		s.LeftBy = append(slices.Clip(s.LeftBy), n)
	}
}

// LeftBy are the ids of those orders which did the step that left something, oldest first: see [Step.LeftBy].
func (o *Order) LeftBy(s *Step) []string {
	ids := make([]string, len(s.LeftBy))
	for i, n := range s.LeftBy {
		ids[i] = events.ChildID(events.IdempotencyKey(o.ID, s.Known(), n))
	}
	return ids
}

// failed is why the order, which has ended, is not Processed.
func (o *Order) failed() *events.Error {
	if o.Failure != nil { // what its business says
		return &events.Error{Code: o.Failure.Code, Message: o.Failure.Message}
	}
	return &events.Error{Code: ends[o.State], Message: o.StandingReason()}
}

// ends are the codes with which a step fails whose order has ended so.
var ends = map[State]string{Rejected: "rejected", Compensated: "compensated", Cancelled: "cancelled", Terminated: "terminated"}

// since13 writes what records have since layout 13: which order it does a step of, which orders do its
// own, and for how long it is kept.
func (w *writer) since13(o *Order) {
	w.truth(o.Parent != nil)
	if p := o.Parent; p != nil {
		w.text(p.Order)
		w.text(p.Step)
		w.int(int64(p.Depth))
		w.truth(p.Detached)
	}
	w.truth(o.Quiet)
	w.int(int64(o.Keep / time.Second))
	w.time(o.EndedAt)
	w.uint(uint64(len(o.Pinned)))
	for _, name := range names(o.Pinned) {
		w.text(name)
		w.int(o.Pinned[name])
	}
	for i := range o.Steps {
		c := o.Steps[i].Child
		if w.truth(c != nil); c != nil {
			w.text(c.ID)
			w.truth(c.Recalled)
		}
	}
}

// since13 reads what the writer's since13 wrote.
func (r *reader) since13(o *Order) {
	if r.truth() {
		o.Parent = &Parent{r.text(), r.text(), int(r.int()), r.truth()}
	}
	o.Quiet, o.Keep, o.EndedAt = r.truth(), time.Duration(r.int())*time.Second, r.time()
	if n := r.count(); n > 0 {
		o.Pinned = make(map[string]int64, n)
		for range n {
			name := r.text()
			o.Pinned[name] = r.int()
		}
	}
	for i := range o.Steps {
		if r.truth() {
			o.Steps[i].Child = &Child{r.text(), r.truth()}
		}
	}
}

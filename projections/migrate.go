package projections

import (
	"slices"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// migrateOrder has the order go on as one of another version of its workflow. What began goes on as it was
// asked: with its input, and known outside as before. What nobody was asked for begins anew.
func migrateOrder(o *Order, _ *Step, e *events.Event) {
	was := o.Steps
	o.Version, o.Deadline, o.Labels, o.Pinned, o.Keep = e.Version, e.Deadline, e.Labels, e.Pinned, time.Duration(e.Keep)*time.Second
	o.Steps = make([]Step, len(e.Steps))
	for i, name := range e.Steps {
		before := Before(was, e.Renamed, name)
		switch {
		case before == nil:
			o.Steps[i] = Step{Name: name, Work: Work{State: NotStarted}}
		case before.Fresh():
			o.Steps[i] = Step{Name: name, Work: Work{
				State: NotStarted, Attempt: before.Attempt, FailureCount: before.FailureCount, Uncounted: before.Uncounted, Input: before.Input,
			}}
		default:
			o.Steps[i] = *before
			o.Steps[i].migrate(o, name, slices.Contains(e.Renewed, name), e.At)
		}
		if o.Alert != nil && before != nil && o.Alert.Step == before.Name && before.Name != name {
			alert := *o.Alert
			alert.Step = name
			o.Alert = &alert
		}
	}
}

// Before is the step that has a name in the version to which the order migrates, nil if it is new there.
func Before(steps []Step, renamed map[string]string, name string) *Step {
	old, is := renamed[name]
	if !is {
		for _, other := range renamed {
			if other == name { // which is called something else
				return nil
			}
		}
		old = name
	}
	if i := slices.IndexFunc(steps, func(s Step) bool { return s.Name == old }); i >= 0 {
		return &steps[i]
	}
	return nil
}

// migrate gives a step that has begun its name in another version. One that is renewed begins anew.
func (s *Step) migrate(o *Order, name string, renew bool, at time.Time) {
	if s.Alias = s.Known(); s.Alias == name {
		s.Alias = ""
	}
	s.Name = name
	switch {
	case renew:
		s.end(NotStarted, nil)
		s.Resubmissions++
		s.Tried, s.NotKnown, s.Round, s.Input = 0, 0, 0, nil
	case !s.Over() && !s.State.Idle() && s.Input == nil: // what the other version says is for what begins
		s.Input = o.Input
	}
	s.turnAway(at)
	if undo := s.Undo; undo != nil {
		undo.turnAway(at)
	}
}

// turnAway has what waits for a place ask anew: the other version may name another limit, or none.
func (w *Work) turnAway(at time.Time) {
	if w.Turn == 0 || w.State == Running {
		return
	}
	if w.Turn = 0; w.Due.IsZero() {
		w.Due = events.Time(at)
	}
}

// since14 writes what records have since layout 14: what steps emitted last, by which names they are
// known, that they are of a schedule or of a correlation, and under which keys steps listen.
func (w *writer) since14(o *Order) {
	w.emissions(o)
	for i := range o.Steps {
		w.text(o.Steps[i].Alias)
	}
	w.schedule(o)
	w.items(o)
	w.correlation(o)
}

// since14 reads what the writer's since14 wrote.
func (r *reader) since14(o *Order) {
	r.emissions(o)
	for i := range o.Steps {
		o.Steps[i].Alias = r.text()
	}
	r.schedule(o)
	r.items(o)
	r.correlation(o)
}

// since15 writes what records have since layout 15: which signals begin orders, and who sent them, which places were asked
// for, and that they are of a home of such.
func (w *writer) since15(o *Order) {
	for i := range o.Signals {
		if u := o.Signals[i].Under; u != nil {
			w.truth(u.Starts)
			w.text(u.By)
		}
	}
	w.places(o)
}

// since15 reads what the writer's since15 wrote.
func (r *reader) since15(o *Order) {
	for i := range o.Signals {
		if u := o.Signals[i].Under; u != nil {
			u.Starts, u.By = r.truth(), r.text()
		}
	}
	r.places(o)
}

// since16 writes what records have since layout 16: of which steps something was not undone that other orders did.
func (w *writer) since16(o *Order) {
	for i := range o.Steps {
		w.truth(o.Steps[i].Leaves)
	}
}

// since16 reads what the writer's since16 wrote.
func (r *reader) since16(o *Order) {
	for i := range o.Steps {
		o.Steps[i].Leaves = r.truth()
	}
}

// since17 writes what records have since layout 17: what else of the submission goes along with the order's messages, and
// which children left something.
func (w *writer) since17(o *Order) {
	w.text(o.Tracestate)
	w.text(o.Baggage)
	for i := range o.Steps {
		w.uint(uint64(len(o.Steps[i].LeftBy)))
		for _, n := range o.Steps[i].LeftBy {
			w.uint(uint64(n))
		}
	}
}

// since17 reads what the writer's since17 wrote.
func (r *reader) since17(o *Order) {
	o.Tracestate = r.text()
	o.Baggage = r.text()
	for i := range o.Steps {
		for range r.count() {
			o.Steps[i].LeftBy = append(o.Steps[i].LeftBy, int(r.uint()))
		}
	}
}

// since19 writes what records of schedules have since layout 19: the pauses before the last of which ticks may wait.
func (w *writer) since19(o *Order) {
	if o.Schedule == nil {
		return
	}
	w.uint(uint64(len(o.Schedule.Pauses)))
	for _, p := range o.Schedule.Pauses {
		w.time(p.From)
		w.time(p.Until)
	}
}

// since19 reads what the writer's since19 wrote.
func (r *reader) since19(o *Order) {
	if o.Schedule == nil {
		return
	}
	for range r.count() {
		o.Schedule.Pauses = append(o.Schedule.Pauses, Pause{r.time(), r.time()})
	}
}

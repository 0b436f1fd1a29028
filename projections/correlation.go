package projections

import (
	"slices"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// Correlations: of a name and a key of the business, who waits for a signal under it, and which are kept. Each
// has a record as orders do, and a history. Its signals are [Order.Signals].

// Correlation is a key under which steps wait for signals of one name.
type Correlation struct {
	Signal, Key string
	// First is the number of the first event since nothing was known of the key: those before it are in
	// the journal alone.
	First uint64
	// Waits are those who wait, the longest first. It is not changed in place.
	Waits []Wait
}

// Wait is a step of an order that waits.
type Wait struct {
	Order, Step string
	Number      uint64 // of the order's event with which it began
	// Given is the number of the event that gave it the signal of which it has not said what became of it,
	// 0 if there is none.
	Given uint64
}

// Under is how a signal stands that a correlation keeps.
type Under struct {
	// Given is the number of the event that gave it to a wait, or has it begin an order, 0 while it is given to
	// none. Starts says that it begins an order.
	Given  uint64
	Starts bool
	// Told says that its sender was told that it is kept.
	Told                bool
	AnsweredBy, ReplyTo string
	By                  string // who sent it, as far as it said so
}

// Free is the place of the wait that has waited longest, but for those that have a signal; -1 if there is none.
func (c *Correlation) Free() int {
	return slices.IndexFunc(c.Waits, func(w Wait) bool { return w.Given == 0 })
}

// Wait is the place of a wait, -1 if it is not there.
func (c *Correlation) Wait(order string, number uint64) int {
	return slices.IndexFunc(c.Waits, func(w Wait) bool { return w.Order == order && w.Number == number })
}

// Given is the place of the signal that the event of a number gave to a wait, or had begin an order, -1 if there is none.
func (o *Order) Given(number uint64) int {
	return slices.IndexFunc(o.Signals, func(s Signal) bool { return number > 0 && s.Under != nil && s.Under.Given == number })
}

// Idle says that nothing is left of a correlation but ids that are remembered, and until when the last of
// these is.
func (o *Order) Idle() (idle bool, until time.Time) {
	for i := range o.Signals {
		s := &o.Signals[i]
		if s.Kept() {
			return false, time.Time{}
		}
		if s.Until.After(until) {
			until = s.Until
		}
	}
	return len(o.Correlation.Waits) == 0, until
}

// Lapses is when the supervisor must look at a correlation: once the first of the signals that wait for
// somebody to wait has been kept as long as it was to be, and once nothing of it need be known any more.
func (o *Order) Lapses() (at time.Time) {
	if o.Hold != nil {
		return time.Time{}
	}
	if idle, until := o.Idle(); idle {
		if at = events.Time(o.UpdatedAt.Add(events.CorrelationKeep)); until.After(at) {
			at = until
		}
		return at
	}
	for i := range o.Signals {
		if s := &o.Signals[i]; s.Kept() && s.Under.Given == 0 && (at.IsZero() || s.Until.Before(at)) {
			at = s.Until
		}
	}
	return at
}

// correlates has the record be that of a correlation, which an event is of.
func (o *Order) correlates(e *events.Event) *Correlation {
	if o.Correlation == nil {
		*o = Order{ID: o.ID, Seq: o.Seq, UpdatedAt: o.UpdatedAt, AcceptedAt: e.At, State: Pending, Quiet: true, Unheard: o.Unheard, vocabulary: o.vocabulary}
		o.Correlation = &Correlation{First: e.Seq}
	}
	c := o.Correlation
	if e.Key != "" {
		c.Signal, c.Key = e.Signal, e.Key
	}
	return c
}

func beginWait(o *Order, _ *Step, e *events.Event) {
	c := o.correlates(e)
	c.Waits = append(slices.Clip(c.Waits), Wait{Order: e.Waiter, Step: e.Step, Number: e.Wait})
}

// endWait has what was given to it be for others again.
func endWait(o *Order, _ *Step, e *events.Event) {
	c := o.correlates(e)
	i := c.Wait(e.Waiter, e.Wait)
	if i < 0 {
		return // which no journal has
	}
	if n := o.Given(c.Waits[i].Given); n >= 0 {
		o.change(n, func(u *Under) { u.Given = 0 })
	}
	c.Waits = slices.Delete(slices.Clone(c.Waits), i, i+1)
	if len(c.Waits) == 0 {
		c.Waits = nil
	}
}

// refuseWait changes nothing: whoever would wait is told.
func refuseWait(o *Order, _ *Step, e *events.Event) { o.correlates(e) }

// change changes how a signal stands.
func (o *Order) change(n int, how func(*Under)) {
	o.Signals = slices.Clone(o.Signals)
	u := *o.Signals[n].Under
	how(&u)
	o.Signals[n].Under = &u
}

// free has the wait that a signal was given to have none.
func (o *Order) free(number uint64) {
	c := o.Correlation
	if i := slices.IndexFunc(c.Waits, func(w Wait) bool { return number > 0 && w.Given == number }); i >= 0 {
		c.Waits = slices.Clone(c.Waits)
		c.Waits[i].Given = 0
	}
}

// under is the place of the signal from an event's source, with which it begins to be kept if it is new.
func (o *Order) under(e *events.Event) int {
	if i := o.kept(e.Source); i >= 0 {
		return i
	}
	o.Signals = append(slices.Clip(o.Signals), Signal{
		Name: e.Signal, ID: e.SignalID, Source: e.Source, Until: e.Due, Data: e.Data,
		Under: &Under{AnsweredBy: e.AnsweredBy, ReplyTo: e.ReplyTo, By: e.By},
	})
	return len(o.Signals) - 1
}

// keepUnder is for a signal that is new, and for one that comes back: its sender is told now.
func (o *Order) keepUnder(e *events.Event) {
	o.correlates(e)
	o.Unheard = 0
	o.change(o.under(e), func(u *Under) { u.Told, u.ReplyTo = true, "" })
}

func giveSignal(o *Order, _ *Step, e *events.Event) {
	c := o.correlates(e)
	o.change(o.under(e), func(u *Under) { u.Given = e.Seq })
	if i := c.Wait(e.Waiter, e.Wait); i >= 0 {
		c.Waits = slices.Clone(c.Waits)
		c.Waits[i].Given = e.Seq
	}
}

// orderSignal has the signal begin an order.
func orderSignal(o *Order, _ *Step, e *events.Event) {
	o.correlates(e)
	o.change(o.under(e), func(u *Under) { u.Given, u.Starts = e.Seq, true })
}

// matchSignal remembers the id. So it is with one that started an order.
func matchSignal(o *Order, _ *Step, e *events.Event) {
	o.correlates(e)
	o.Unheard = 0
	i := o.kept(e.Source)
	if i < 0 {
		return // which no journal has
	}
	s := o.Signals[i]
	o.drop(i)
	o.Signals = slices.DeleteFunc(o.Signals, func(s Signal) bool { return !s.Kept() && !s.Until.After(events.Time(e.At)) })
	once := 0
	for i := range o.Signals {
		if !o.Signals[i].Kept() {
			once++
		}
	}
	if once >= events.MaxOnce {
		i := slices.IndexFunc(o.Signals, func(s Signal) bool { return !s.Kept() })
		o.Signals = slices.Delete(o.Signals, i, i+1)
	}
	o.Signals = append(o.Signals, Signal{Name: s.Name, ID: s.ID, Until: s.Until})
}

// drop takes a signal that was kept, or given, from the list.
func (o *Order) drop(i int) {
	if u := o.Signals[i].Under; u != nil {
		o.free(u.Given)
	}
	o.Signals = slices.Delete(slices.Clone(o.Signals), i, i+1)
	if len(o.Signals) == 0 {
		o.Signals = nil
	}
}

// discardUnder takes it from the list, if it is there.
func (o *Order) discardUnder(e *events.Event) {
	o.correlates(e)
	if i := o.kept(e.Source); i >= 0 {
		o.drop(i)
	}
}

// Passes is what a correlation tells an order once it has folded an event, nil if that is nothing.
func (o *Order) Passes(e *events.Event) *events.Pass {
	if o.Correlation == nil {
		return nil
	}
	p := &events.Pass{Order: e.Waiter, Step: e.Step, Wait: e.Wait, Correlation: o.ID, Signal: e.Signal, Key: e.Key}
	switch e.Type {
	case events.WaitRefused:
		p.Refused = e.Reason
	case events.SignalGiven:
		p.SignalID, p.Source, p.AnsweredBy, p.ReplyTo, p.Given = e.SignalID, e.Source, e.AnsweredBy, e.ReplyTo, e.Seq
		if i := o.kept(e.Source); i >= 0 {
			p.Data = o.Signals[i].Data
		}
	default:
		return nil
	}
	return p
}

// correlation writes that a record is of a correlation, and how that stands.
func (w *writer) correlation(o *Order) {
	for i := range o.Steps {
		if l := o.Steps[i].Listens; l != nil {
			w.text(l.Key)
			w.uint(l.Ended)
		}
	}
	c := o.Correlation
	if w.truth(c != nil); c == nil {
		return
	}
	w.text(c.Signal)
	w.text(c.Key)
	w.uint(c.First)
	w.uint(uint64(len(c.Waits)))
	for i := range c.Waits {
		wait := &c.Waits[i]
		w.text(wait.Order)
		w.text(wait.Step)
		w.uint(wait.Number)
		w.uint(wait.Given)
	}
	for i := range o.Signals {
		u := o.Signals[i].Under
		if w.truth(u != nil); u == nil {
			continue
		}
		w.uint(u.Given)
		w.truth(u.Told)
		w.text(u.AnsweredBy)
		w.text(u.ReplyTo)
	}
}

// correlation reads what the writer's correlation wrote.
func (r *reader) correlation(o *Order) {
	for i := range o.Steps {
		if l := o.Steps[i].Listens; l != nil {
			l.Key, l.Ended = r.text(), r.uint()
		}
	}
	if !r.truth() {
		return
	}
	c := &Correlation{Signal: r.text(), Key: r.text(), First: r.uint()}
	if n := r.count(); n > 0 {
		c.Waits = make([]Wait, n)
		for i := range c.Waits {
			c.Waits[i] = Wait{r.text(), r.text(), r.uint(), r.uint()}
		}
	}
	for i := range o.Signals {
		if r.truth() {
			o.Signals[i].Under = &Under{Given: r.uint(), Told: r.truth(), AnsweredBy: r.text(), ReplyTo: r.text()}
		}
	}
	o.Correlation = c
}

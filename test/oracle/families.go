package oracle

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// Families are orders that do steps of others, and these: what no history of one order alone says.
// They may stand in different partitions, of which nobody knows which came first.
type Families struct {
	// Order returns the history of an order, nil if there is none of that id.
	Order func(id string) []events.Event
	// Quiet, where it is set, says that all that an order was told was read, and that nothing it was
	// told waits. Without it none is, and whatever a history may still come to it may come to.
	Quiet func(id string) bool
	// Older, where it is set, says how many events of an order are of before [events.LeavesFormat].
	Older func(id string) uint64
	// Bare, where it is set, says whether an order began before [events.BaggageFormat].
	Bare func(id string) bool
	// Find, where it is set, finds workflows.
	Find func(name string, version int) *Flow

	pardon func() bool // as [Ledger.Pardon]
	known  map[string]*member
	fault  error
}

// member is what the histories of others depend on in that of an order.
type member struct {
	first   *events.Event
	all     []events.Event  // with those of items as events of steps, under the names by which these are known
	wishes  []events.Wish   // what it asked of others
	reports []events.Report // what it told the one whose step it does, or others that asked
	work    map[string]*doneBy
	asked   []string // its children, in order
	passed  []string // the steps of which an operator passed over the undo
	State   string
	toward  string
	lost    bool     // something that it was told waits, or was given up since its release
	asks    bool     // it asked again, and was not held since
	deaf    bool     // something that it was asked for was given up
	open    []Tick   // of a schedule: its orders that have not ended, for all that it knows
	starts  []string // of the home of a key: the orders that signals begin, and that have not told so
}

// doneBy is which order does a step, or undoes it.
type doneBy struct {
	child        string
	runs, undoes bool
	recalled     bool
	detached     bool
}

// Check says which rule is broken by an order and those that do its steps, or whose step it does.
func (f *Families) Check(id string) error {
	f.fault = nil
	if f.known == nil {
		f.known = make(map[string]*member)
	}
	m := f.member(id)
	if m == nil {
		return nil
	}
	if m.first.Parent != "" {
		f.belongs(id, m)
	}
	f.follow(id, m)
	f.rests(id, m)
	if f.fault != nil {
		return fmt.Errorf("order %q: %w", id, f.fault)
	}
	return nil
}

// Grown says that an order's history is longer than it was, or another: what was checked before is known otherwise.
func (f *Families) Grown(id string) { delete(f.known, id) }

// rule notes the first rule that is broken, as that of a ledger does.
func (f *Families) rule(id string, holds bool, format string, args ...any) {
	if holds || f.fault != nil || f.pardon != nil && f.pardon() {
		return
	}
	f.fault = fmt.Errorf(id+": "+format, args...)
}

// FamilyRules finds these rules in the source.
var FamilyRules = regexp.MustCompile(`\bf\.rule\("([A-Z][0-9])"`)

func (f *Families) member(id string) *member {
	if m, ok := f.known[id]; ok {
		return m
	}
	history := f.Order(id)
	if len(history) == 0 {
		f.known[id] = nil
		return nil
	}
	m := &member{first: &history[0], work: make(map[string]*doneBy)}
	var l *Ledger
	var names Names
	said := expected(history, new(Messages), func(as *Ledger, e *events.Event) {
		l = as
		for _, one := range l.single(names.Of(e)) {
			m.all = append(m.all, one)
			m.note(&one)
		}
	})
	m.wishes, m.reports = said.Wishes, said.Reports
	if m.first.Type == events.OrderRejected && m.first.Detached && slices.ContainsFunc(history, func(e events.Event) bool { return e.Type == events.OrderForgotten }) { // it tells so, and leaves no event
		m.reports = append(m.reports, events.Report{Parent: m.first.Parent, Step: m.first.ParentStep, Child: id, State: "Rejected", Error: &events.Error{Code: "rejected", Message: "it is forgotten why"}})
	}
	m.State, m.toward = l.State, l.Toward
	if l.Schedule != nil {
		m.open = l.Schedule.unended()
	}
	if l.Correlation != nil {
		for i := range l.Signals {
			if child := l.Correlation.Under[l.Signals[i].Source].Starts; child != "" {
				m.starts = append(m.starts, child)
			}
		}
	}
	m.lost = m.lost || len(l.Waiting) > 0
	f.known[id] = m
	return m
}

func (m *member) note(e *events.Event) {
	w := m.work[e.Step]
	switch e.Type {
	case events.StepOrdered:
		m.work[e.Step] = &doneBy{child: e.Child, runs: true, detached: e.Detached}
		m.asked = append(m.asked, e.Child)
	case events.ScheduleStarted, events.SignalOrdered:
		m.asked = append(m.asked, e.Child)
	case events.StepRecalled:
		if w != nil {
			w.recalled = true
		}
	case events.UndoOrdered:
		if w != nil {
			w.child, w.undoes = e.Child, true
		}
	case events.StepCompleted, events.StepFailed, events.PageCompleted, events.PageFailed:
		if w != nil {
			w.runs = false
		}
	case events.UndoCompleted, events.UndoFailed:
		if w != nil {
			w.undoes = false
		}
	case events.UndoSkipped:
		m.passed = append(m.passed, e.Step)
	case events.OrderTerminated:
		clear(m.work)
	case events.InputDiscarded:
		if strings.Contains(e.Source, ".internal/") {
			m.deaf, m.lost = true, m.lost || !m.asks
		}
	case events.OrderReleased: // it asks again
		m.lost, m.asks = false, true
	case events.OrderErrored:
		m.asks = m.asks && !e.Held
	}
}

// is says that an order does a step of another.
func (m *member) is(parent, step string) bool {
	return m != nil && m.first.Parent == parent && m.first.ParentStep == step
}

// belongs: an order does a step of another only if that one asked for it, and is what it asked for.
// It is undone after its end only if that one is.
func (f *Families) belongs(id string, m *member) {
	e, parent := m.first, f.member(m.first.Parent)
	f.rule("T4", parent != nil && (e.Type == events.OrderAccepted || slices.Contains(parent.asked, id)), "order %q has none of this id do its step %s", e.Parent, e.ParentStep)
	if parent == nil {
		return
	}
	asked := func(wish string, fits func(w *events.Wish) bool) bool {
		return slices.ContainsFunc(parent.wishes, func(w events.Wish) bool {
			return w.Child == id && w.Wish == wish && w.Step == e.ParentStep && fits(&w)
		})
	}
	if e.Type == events.OrderAccepted || e.Workflow != "" { // or what was asked for may be what panics
		f.rule("T4", asked("begin", func(w *events.Wish) bool { return f.fits(m, parent, w) }), "it is not what order %q asked for: %+v", e.Parent, e)
	}
	history := f.Order(id)
	for i := range history {
		switch e := &history[i]; {
		case e.Type == events.OrderForgotten && !m.first.Detached && !isSchedule(m.first.Parent):
			f.rule("C3", slices.ContainsFunc(parent.wishes, func(w events.Wish) bool { return w.Child == id && w.Wish == "forget" }), "it is forgotten, and order %q is not", m.first.Parent)
		case e.Type != events.OrderCompensating:
		case slices.ContainsFunc(history[:i], func(e events.Event) bool { return e.Type == events.OrderCompleted }):
			f.rule("C1", asked("undo", func(w *events.Wish) bool { return w.Reason == e.Reason }), "it was Processed, and order %q does not have it undone: %s", m.first.Parent, e.Reason)
		case e.End == "Cancelled" && e.By == "" && e.Command == "" && e.Actor == nil && recallSays(e.Reason, m.first.Parent):
			f.rule("C1", asked("cancel", func(w *events.Wish) bool { return w.Reason == e.Reason }), "order %q has not recalled it: %s", m.first.Parent, e.Reason)
		}
	}
}

// recallSays says that a reason is one of those with which an order recalls those that do its steps:
// an operator's own is another.
func recallSays(reason, parent string) bool {
	return strings.Contains(reason, "order "+parent+" ")
}

// fits says that an order is what another asked for.
func (f *Families) fits(m, parent *member, w *events.Wish) bool {
	e := m.first
	own := e.ReplyTo == w.ReplyTo
	if history := f.Order(e.Order); !own && e.ReplyTo == "" && len(history) > 1 { // it cannot be told
		own = history[1].Type == events.StatusRefused && history[1].ReplyTo == w.ReplyTo
	}
	var flow *Flow
	if f.Find != nil {
		flow = f.Find(e.Workflow, e.Version)
	}
	if e.Type == events.OrderRejected {
		return strings.HasPrefix(w.Workflow, e.Workflow) && e.Version == w.Version && own
	}
	return e.Workflow == w.Workflow && (w.Version == 0 || e.Version == w.Version) && e.Detached == w.Detached && e.Depth == w.Depth &&
		string(e.Input) == string(w.Input) && e.Priority == w.Priority && own && inherits(e, w, flow) &&
		e.By == w.By && slices.Equal(e.Submitters, w.Submitters) && e.Traceparent == parent.first.Traceparent &&
		(e.Tracestate == parent.first.Tracestate && e.Baggage == parent.first.Baggage || e.Tracestate == "" && e.Baggage == "" && f.Bare != nil && f.Bare(e.Order))
}

// inherits says that an order has the deadline of the other, unless its workflow's own is nearer, and
// is found by what finds the other, as far as its workflow makes that of no input, and there is room.
func inherits(e *events.Event, w *events.Wish, flow *Flow) bool {
	if flow == nil {
		return true
	}
	deadline := w.Deadline
	if own := events.Time(e.At.Add(time.Duration(flow.Deadline))); flow.Deadline > 0 && (deadline.IsZero() || own.Before(deadline)) {
		deadline = own
	}
	room := maxLabels
	want := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(w.Labels)) {
		if flow.Search[name] == "" && room > 0 {
			want[name] = w.Labels[name]
			room--
		}
	}
	has := maps.Clone(e.Labels)
	maps.DeleteFunc(has, func(name, _ string) bool { return flow.Search[name] != "" })
	return e.Deadline.Equal(deadline) && maps.Equal(has, want)
}

// follow: what another order did for a step is what that one told, and told of no other step.
func (f *Families) follow(id string, m *member) {
	work := make(map[string]*doneBy)
	toward := false
	for _, e := range m.all {
		w := work[e.Step]
		switch e.Type {
		case events.ScheduleEnded:
			child := f.member(e.Child)
			f.rule("S2", child != nil && slices.ContainsFunc(child.reports, func(r events.Report) bool {
				return r.Parent == id && r.Step == e.Tick.UTC().Format(time.RFC3339) && r.State == e.End
			}), "order %q did not tell that it is %q", e.Child, e.End)
			continue
		case events.SignalStarted, events.SignalDiscarded:
			if e.Type == events.SignalDiscarded && e.Reason != events.SignalRejected {
				continue
			}
			child := f.member(e.Child)
			f.rule("S2", child != nil && slices.ContainsFunc(child.reports, func(r events.Report) bool {
				return r.Parent == id && e.Child == id+"/order."+r.Step && (r.State == "Pending") == (e.Type == events.SignalStarted)
			}), "order %q did not tell so: %s", e.Child, e.Type)
			continue
		case events.StepOrdered:
			work[e.Step] = &doneBy{child: e.Child, runs: true}
			continue
		case events.UndoOrdered:
			work[e.Step] = &doneBy{child: e.Child, undoes: true}
			continue
		case events.StepRecalled:
			if w != nil {
				w.recalled = true
			}
			continue
		case events.OrderCompensating:
			toward = true
			continue
		}
		if w == nil || !w.runs && !w.undoes {
			continue
		}
		told := func(fits func(r *events.Report) bool) bool {
			child := f.member(w.child)
			return child != nil && slices.ContainsFunc(child.reports, func(r events.Report) bool {
				return r.Parent == id && r.Step == e.Step && fits(&r)
			})
		}
		switch e.Type {
		case events.StepCompleted:
			f.rule("S4", told(func(r *events.Report) bool {
				return r.State == "Processed" && string(r.Output) == string(e.Output) || r.State == "Pending"
			}), "step %s completed, and order %q did not tell so: %s", e.Step, w.child, e.Output)
		case events.PageCompleted:
			f.rule("S4", told(func(r *events.Report) bool { return r.State == "Processed" && lists(&e, r.Output) }), "%s is there, and order %q did not tell so: %s", e.Step, w.child, e.Input)
		case events.PageFailed:
			f.rule("A5", e.Error != nil && told(func(r *events.Report) bool {
				return (r.State == "Processed") != (e.Error.Code == "page-failed") && (r.Error == nil || strings.Contains(e.Error.Message, "order "+w.child))
			}), "%s failed, and order %q did not tell so: %+v", e.Step, w.child, e.Error)
		case events.StepFailed:
			fits := func(r *events.Report) bool { return w.fails(e.Error, r, toward) }
			f.rule("A5", told(fits), "step %s failed, and order %q did not tell so: %+v", e.Step, w.child, e.Error)
			f.leaves(id, w.child, &e, told, fits)
		case events.UndoCompleted:
			fits := func(r *events.Report) bool { return r.State == "Compensated" || r.State == "Cancelled" }
			f.rule("C1", told(fits), "step %s is undone, and order %q did not tell so", e.Step, w.child)
			f.leaves(id, w.child, &e, told, fits)
		case events.UndoFailed:
			fits := func(r *events.Report) bool {
				return r.State != "Compensated" && r.State != "Cancelled" && w.fails(e.Error, r, toward)
			}
			f.rule("C2", told(fits), "step %s is not undone, and order %q did not tell so: %+v", e.Step, w.child, e.Error)
			f.leaves(id, w.child, &e, told, fits)
		default:
			continue
		}
		delete(work, e.Step)
	}
}

// leaves: an order says that another left something which was not undone where that one told so, and nowhere else. An older
// release says nothing of the kind.
func (f *Families) leaves(id, child string, e *events.Event, told func(func(*events.Report) bool) bool, fits func(*events.Report) bool) {
	older := func(id string) uint64 {
		if f.Older == nil {
			return 0
		}
		return f.Older(id)
	}
	unsaid := !e.Left && (e.Seq <= older(id) || older(child) > 0)
	f.rule("C3", unsaid || !told(fits) || told(func(r *events.Report) bool { return fits(r) && r.Left == e.Left }),
		"step %s says that something was left: %t, and order %q did not tell so", e.Step, e.Left, child)
}

// reservedCodes are those by which it is decided what follows from an attempt: a child may raise what it likes.
var reservedCodes = []string{
	"until-not-met", "bad-until", "unknown-operation", "timed-out", "too-deep", "id-taken",
	"page-failed", "bad-page", "cursor-repeated", "empty-pages", "too-many-items", "too-many-pages",
	"request-refused", "queue-expired", "bad-expression", "output-refused", "reply-too-large",
}

// fails says that a step failed with what the order told that did it.
func (w *doneBy) fails(fault *events.Error, r *events.Report, toward bool) bool {
	if fault == nil {
		return false
	}
	if r.Error == nil {
		return r.State == "Processed" && fault.Code == "output-refused" // which is the other's own journal
	}
	code := r.Error.Code
	if r.State != "" && slices.Contains(reservedCodes, code) {
		code = "raised-" + code
	}
	if w.recalled && !toward && r.State == "Cancelled" {
		code = "timed-out"
	}
	says := "order " + w.child
	if r.Error.Message != "" {
		says += ": " + r.Error.Message
	}
	return fault.Code == code && (fault.Message == says || len(fault.Message) >= 1000 && strings.HasPrefix(says, fault.Message[:1000]))
}

// rests: once all is quiet, whoever waits for another does so for one that has not ended, and is
// undoing what it did where it is to. An order that was undone leaves none Processed behind.
func (f *Families) rests(id string, m *member) {
	quiet := func(id string, m *member) bool { return f.Quiet != nil && f.Quiet(id) && (m == nil || !m.lost) }
	if !quiet(id, m) {
		return
	}
	ended := func(m *member) bool {
		return slices.Contains([]string{"Rejected", "Processed", "Compensated", "Cancelled", "Raised", "Terminated"}, m.State)
	}
	for _, step := range slices.Sorted(maps.Keys(m.work)) {
		w := m.work[step]
		child := f.member(w.child)
		if !w.runs && !w.undoes || !quiet(w.child, child) {
			continue
		}
		f.rule("V2", child.is(id, step) && !ended(child), "step %s waits for order %q, which has ended, or is not there", step, w.child)
		if child == nil {
			continue
		}
		f.rule("V2", !w.detached, "step %s waits for order %q, whose end it does not wait for", step, w.child)
		f.rule("C1", !w.recalled && !w.undoes || child.deaf || child.toward != "", "order %q was asked to undo what it did, and is %s", w.child, child.State)
	}
	for _, t := range m.open {
		if child := f.member(t.Order); quiet(t.Order, child) {
			f.rule("V2", child.is(id, t.At.UTC().Format(time.RFC3339)) && !ended(child), "it waits for order %q, which has ended, or is not there", t.Order)
		}
	}
	for _, order := range m.starts {
		f.rule("V2", !quiet(order, f.member(order)), "it waits for order %q to begin", order)
	}
	if m.State != "Compensated" && m.State != "Cancelled" {
		return
	}
	for _, name := range m.asked {
		child := f.member(name)
		if child == nil || child.first.Parent != id || child.first.Detached || isPage(child.first.ParentStep) || slices.Contains(m.passed, child.first.ParentStep) || !quiet(name, child) {
			continue
		}
		f.rule("C3", ended(child) && child.State != "Processed", "it is %s, and order %q, which did its step %s, is %s", m.State, name, child.first.ParentStep, child.State)
	}
}

package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// migrates: an operator has the order go on as one of another version of its workflow. Nothing that has
// begun vanishes, is undone in another way, or comes after what is not done; what nobody was asked for
// begins anew.
func (l *Ledger) migrates(e *events.Event) {
	l.rule("P3", l.Format >= events.MigrateFormat && e.From == l.accepted.Version && e.Version != e.From, "it is of version %d, and goes from %d to %d, in format %d", l.accepted.Version, e.From, e.Version, l.Format)
	var wrong []string // what forbids it
	if l.Held || l.Toward != "" || l.failure != nil {
		wrong = append(wrong, "the order is held, is being undone, or has failed")
	}
	before, was := l.flow, l.Steps
	if l.find != nil {
		l.flow = l.find(l.accepted.Workflow, e.Version)
		if l.flow == nil || !slices.EqualFunc(e.Steps, l.flow.Steps, func(name string, s FlowStep) bool { return s.Name == name }) {
			l.rule("S4", false, "it has the steps %s, and not those of version %d", names(e.Steps), e.Version)
			l.flow = nil
		}
	}
	l.Steps = nil
	var kept []*Step
	for _, name := range e.Steps {
		s, def := called(was, e, name), l.flow.step(name)
		switch {
		case s == nil:
			s = &Step{Name: name, Known: name, Work: Work{State: notStarted}}
		case s.unasked():
			kept = append(kept, s)
			s = &Step{Name: name, Known: name, Work: Work{State: notStarted, Attempt: s.Attempt, Failures: s.Failures, Uncounted: s.Uncounted, Input: s.Input}}
		default:
			kept = append(kept, s)
			if why := l.takesOver(s, def, slices.Contains(e.Renewed, name)); why != "" {
				wrong = append(wrong, fmt.Sprintf("step %s is %s, and %s", s.Name, s.State, why))
			}
			for _, w := range []*Work{&s.Work, s.Undo} {
				if w == nil || w.Turn == 0 || w.State == running {
					continue
				}
				if w.Turn = 0; w.Due.IsZero() {
					w.Due = events.Time(e.At)
				}
			}
		}
		s.def = def
		l.Steps = append(l.Steps, s)
	}
	for i, name := range e.Steps { // once all were found by the names of before
		l.Steps[i].Name = name
	}
	for _, s := range was {
		if !slices.Contains(kept, s) && !s.unasked() && (s.State != skipped || s.Key != "" || s.Child != nil || s.Items != nil || s.Attempt > 0) {
			wrong = append(wrong, fmt.Sprintf("step %s is %s, and vanishes", s.Name, s.State))
		}
	}
	for i, s := range l.Steps {
		if slices.ContainsFunc(l.Steps[:i], func(other *Step) bool { return other.Known == s.Known }) {
			wrong = append(wrong, "two steps are known as "+s.Known)
		}
		if s.def != nil && slices.Contains(kept, s) && (s.State != skipped || s.Attempt > 0) && !l.ready(s) {
			wrong = append(wrong, "step "+s.Name+" has begun, and comes after what is not done")
		}
	}
	if before != nil && l.flow != nil {
		own := func(labels map[string]string) map[string]string {
			labels = maps.Clone(labels)
			maps.DeleteFunc(labels, func(name, _ string) bool { return before.Search[name] != "" || l.flow.Search[name] != "" })
			return labels
		}
		if !maps.Equal(own(e.Labels), own(l.Labels)) {
			wrong = append(wrong, fmt.Sprintf("its labels were %q, and are %q", l.Labels, e.Labels))
		}
	}
	l.rule("P3", len(wrong) == 0, "%s", strings.Join(wrong, "; "))
	l.migratesWhole(e, before)
}

// called is the step that has a name in the other version, nil if that is new.
func called(was []*Step, e *events.Event, name string) *Step {
	for now, old := range e.Renamed {
		switch {
		case now == name:
			name = old
		case old == name && e.Renamed[name] == "": // it is called something else
			return nil
		default:
			continue
		}
		break
	}
	if i := slices.IndexFunc(was, func(s *Step) bool { return s.Name == name }); i >= 0 {
		return was[i]
	}
	return nil
}

// known is the step that its agent knows by a name, nil if there is none.
func (l *Ledger) known(name string) *Step {
	if i := slices.IndexFunc(l.Steps, func(s *Step) bool { return s.Known == name }); i >= 0 {
		return l.Steps[i]
	}
	return nil
}

// rename has what is kept by the names of steps be kept by those of another version.
func rename[V any](kept map[string]V, renamed map[string]string) {
	before := maps.Clone(kept)
	for _, old := range renamed {
		delete(kept, old)
	}
	for now, old := range renamed {
		if v, is := before[old]; is {
			kept[now] = v
		}
	}
}

// Names are those under which steps of an order are known to whoever was asked for them, and to the homes of the keys under which
// they wait, by the names that they have. The zero value is that of an order that has not begun.
type Names struct{ known map[string]string }

// Of takes the next event of the order, and returns it with the name under which its step is known, if it
// tells of an attempt.
func (n *Names) Of(e *events.Event) *events.Event {
	switch e.Type {
	case events.OrderMigrated:
		rename(n.known, e.Renamed)
		return e
	case events.StepStarted, events.StepOrdered, events.StepEmitting, events.StepItemized, events.StepListening:
		if e.Type == events.StepListening && e.Key == "" { // nobody is told
			return e
		}
		if n.known == nil {
			n.known = make(map[string]string)
		}
		if n.known[e.Step] == "" {
			n.known[e.Step] = e.Step
		}
	case events.StepHeard, events.StepCompleted, events.StepRepeated, events.StepFailed, events.StepExpired, events.StepExtended, events.StepRecalled,
		events.UndoStarted, events.UndoOrdered, events.UndoCompleted, events.UndoFailed, events.UndoExpired, events.UndoExtended,
		events.ItemsOrdered, events.ItemCompleted, events.ItemFailed, events.ItemsForgotten,
		events.PageOrdered, events.PageCompleted, events.PageFailed, events.PagesForgotten:
	default:
		return e
	}
	if known := n.known[e.Step]; known != "" && known != e.Step {
		as := *e
		as.Step = known
		return &as
	}
	return e
}

// AsKnown is a history that has the steps of attempts by the names under which they are known.
func AsKnown(history []events.Event) []events.Event {
	var n Names
	as := make([]events.Event, len(history))
	for i := range history {
		as[i] = *n.Of(&history[i])
	}
	return as
}

// unasked says that nobody was asked for the step.
func (s *Step) unasked() bool {
	return s.Key == "" && s.Child == nil && s.Items == nil && (s.State == notStarted || s.State == failed) && !s.Passed
}

// takesOver says what is wrong with a step that has begun: what it does and its undo stay. One that is
// renewed failed, and begins anew under a new key.
func (l *Ledger) takesOver(s *Step, def *FlowStep, renewed bool) (wrong string) {
	open := !s.passed() && !s.idle()
	if before := s.def; before != nil && def != nil && (s.State != skipped || s.Attempt > 0) {
		undo := before.Undo == def.Undo && (def.Undo == "" || before.Agent == def.Agent && (before.UndoWith == "") == (def.UndoWith == "")) && before.undoes() == def.undoes()
		switch {
		case before.kind() != def.kind():
			wrong = "does something else"
		case !undo && (!s.passed() || s.Ran()):
			wrong = "is to be undone otherwise"
		case open && !renewed && !before.asksAs(def):
			wrong = "is asked for something else under the same key"
		}
	}
	switch {
	case renewed:
		if !open || s.State == running || s.State == repeating || s.Ran() {
			wrong = "begins anew"
		}
		s.end(notStarted)
		s.Resubmissions++
		s.Tried, s.NotKnown, s.Round, s.Input, s.Last, s.renewed = 0, 0, 0, nil, nil, true
	case open && s.Input == nil:
		s.Input = l.accepted.Input
	}
	s.armed = s.broken()
	return wrong
}

// asksAs says that two definitions of a step ask for the same.
func (s *FlowStep) asksAs(other *FlowStep) bool {
	switch {
	case s.Order != nil && other.Order != nil:
		return s.Order.Workflow == other.Order.Workflow && s.Order.Version == other.Order.Version
	case s.Emit != nil && other.Emit != nil:
		return s.Emit.Topic == other.Emit.Topic && s.Emit.Type == other.Emit.Type
	}
	return s.Agent == other.Agent && s.Do == other.Do
}

// kind is what a step does.
func (s *FlowStep) kind() string {
	switch {
	case s.Sleep != nil:
		return "sleeps"
	case s.Listen != nil:
		return "listens"
	case s.Approve != nil:
		return "asks people"
	case s.Order != nil:
		return "is done by an order"
	case s.Emit != nil:
		return "emits"
	case s.Raise != nil:
		return "raises"
	}
	return "asks an agent"
}

// migratesWhole: the deadline that its workflow gave the order is that of the other version, and so is
// what the order is found by, and for how long it is kept. Versions that were pinned stay so.
func (l *Ledger) migratesWhole(e *events.Event, before *Flow) {
	if before != nil && l.flow != nil {
		of := func(f *Flow) (at time.Time) {
			if f.Deadline > 0 {
				at = events.Time(l.accepted.At.Add(time.Duration(f.Deadline)))
			}
			return at
		}
		want := l.Deadline
		if own := of(before); l.Deadline.Equal(own) {
			if want = of(l.flow); l.accepted.Parent != "" && !own.IsZero() && (want.IsZero() || own.Before(want)) {
				want = own
			}
		}
		l.rule("V5", e.Deadline.Equal(want), "its deadline is %v, and must be %v", e.Deadline, want)
		l.rule("V5", l.errored || e.Deadline.Equal(l.Deadline) || e.Deadline.IsZero() || e.Deadline.After(e.At), "its deadline %v has passed", e.Deadline)
	}
	for name, version := range l.accepted.Pinned {
		l.rule("S4", e.Pinned[name] == version, "version %d of %s was pinned, and is %d", version, name, e.Pinned[name])
	}
	l.accepted.Version, l.accepted.Pinned = e.Version, e.Pinned
	l.Deadline, l.keep = e.Deadline, e.Keep
	l.labels(e)
	l.kept(e)
}

package oracle

import (
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// Rules finds in the source what holds histories against rules: each of them, and
// the places that ask for several at once.
var Rules = regexp.MustCompile(`\bl\.(rule|again|asked|begins|causes|count|ends|free|goesOn|keys|locks|mayUndo|overdue|passes|prevented|queue|refused|undosFailed)\((?:"([A-Z][0-9])")?`)

// Mutant is a history in which one thing is not as it was. Its events are
// numbered anew, so that no gap tells.
type Mutant struct {
	Kind    string // what was done to which type of event
	At      int    // the place of the event
	History []events.Event
}

// Mutants does to each event of a history whatever can be done to it: what holds
// histories against rules must refuse the result. The next has the place of the one
// before.
func Mutants(history []events.Event) iter.Seq[Mutant] {
	return func(yield func(Mutant) bool) {
		place := make([]events.Event, 0, len(history)+1)
		for i := range history {
			for kind, mutated := range mutate(history, i, place) {
				for n := range mutated {
					mutated[n].Seq = uint64(n + 1)
				}
				if !yield(Mutant{kind + " " + short(history[i].Type), i, mutated}) {
					return
				}
			}
		}
	}
}

func mutate(history []events.Event, i int, place []events.Event) iter.Seq2[string, []events.Event] {
	// with is the history with these events instead of those from i to j.
	with := func(j int, instead ...events.Event) []events.Event {
		return append(append(append(place[:0], history[:i]...), instead...), history[j:]...)
	}
	return func(yield func(string, []events.Event) bool) {
		e := history[i]
		if !yield("lost", with(i+1)) || !yield("twice", with(i+1, e, e)) {
			return
		}
		if i+1 < len(history) && !yield("too late", with(i+2, history[i+1], e)) {
			return
		}
		for kind, more := range sequels(&e) {
			if !yield(kind, with(i+1, e, more)) {
				return
			}
		}
		for j := range history {
			foreign, first := moved(history[j], e.At), true
			for k := range j {
				first = first && (history[k].Type != foreign.Type || history[k].Step != foreign.Step)
			}
			if first && j != i && !yield("another "+short(foreign.Type)+" before", with(i, foreign)) {
				return
			}
		}
		for _, name := range history[0].Steps {
			if e.Step != "" && e.Step != name {
				changed := e
				changed.Step = name
				if !yield("the step "+name+" in", with(i+1, changed)) {
					return
				}
			}
		}
		for _, c := range changes {
			if changed := e; c.make(&changed) && !yield(c.kind, with(i+1, changed)) {
				return
			}
		}
	}
}

// sequels are what could be thought to follow an attempt that failed.
func sequels(e *events.Event) map[string]events.Event {
	next := events.Event{Order: e.Order, At: e.At, Step: e.Step, Attempt: e.Attempt + 1, Due: e.At.Add(time.Second)}
	switch e.Type {
	case events.StepFailed, events.StepExpired:
		next.Type = events.StepRetried
	case events.UndoFailed, events.UndoExpired:
		next.Type = events.UndoRetried
	default:
		return nil
	}
	return map[string]events.Event{
		"a retry after": next,
		"a skip after":  {Type: events.StepSkipped, Order: e.Order, At: e.At, Step: e.Step, Reason: "when: false"},
	}
}

// moved is an event as it would be at another time.
func moved(e events.Event, at time.Time) events.Event {
	by := at.Sub(e.At)
	for _, t := range []*time.Time{&e.CompleteBy, &e.Expires, &e.ExtendTo, &e.Due} {
		if !t.IsZero() {
			*t = t.Add(by)
		}
	}
	e.At = at
	return e
}

func short(kind events.Type) string { return strings.TrimPrefix(string(kind), "waybill.") }

// changes are what can be done to an event; each says whether it could.
var changes = []struct {
	kind string
	make func(e *events.Event) bool
}{
	{"attempt after the next of", func(e *events.Event) bool { e.Attempt++; return e.Step != "" && e.Attempt > 1 }},
	{"other step of", func(e *events.Event) bool { return other(&e.Step) }},
	{"no step of", func(e *events.Event) bool { return empty(&e.Step) }},
	{"unknown", func(e *events.Event) bool { e.Type += ".mutant"; return true }},
	{"an hour later", func(e *events.Event) bool { return later(&e.At) }},
	{"other key of", func(e *events.Event) bool { return other(&e.IdempotencyKey) }},
	{"other agent of", func(e *events.Event) bool { return other(&e.Agent) }},
	{"no agent of", func(e *events.Event) bool { return empty(&e.Agent) }},
	{"other operation of", func(e *events.Event) bool { return other(&e.Operation) }},
	{"other instance of", func(e *events.Event) bool { return other(&e.LockedBy) }},
	{"no lock of", func(e *events.Event) bool { return empty(&e.LockedBy) }},
	{"other reason of", func(e *events.Event) bool { return other(&e.Reason) }},
	{"no reason of", func(e *events.Event) bool { return empty(&e.Reason) }},
	{"other action of", func(e *events.Event) bool { return other(&e.Action) }},
	{"no action of", func(e *events.Event) bool { return empty(&e.Action) }},
	{"other digest of", func(e *events.Event) bool { return other(&e.Digest) }},
	{"no digest of", func(e *events.Event) bool { return empty(&e.Digest) }},
	{"other label of", func(e *events.Event) bool { return relabel(e, func(value string) string { return value + "x" }) }},
	{"bad label of", func(e *events.Event) bool { return relabel(e, func(value string) string { return value + "\n" }) }},
	{"no labels of", func(e *events.Event) bool { was := e.Labels; e.Labels = nil; return was != nil }},
	{"label added to", func(e *events.Event) bool {
		e.Labels = maps.Clone(e.Labels)
		if e.Labels == nil {
			e.Labels = make(map[string]string)
		}
		e.Labels["mutant"] = "x"
		return e.Type == events.OrderAccepted
	}},
	{"other rerun of", func(e *events.Event) bool { return other(&e.RerunOf) }},
	{"no rerun of", func(e *events.Event) bool { return empty(&e.RerunOf) }},
	{"rerun added to", func(e *events.Event) bool {
		was := e.RerunOf
		e.RerunOf = "o-mutant"
		return e.Type == events.OrderAccepted && was == ""
	}},
	{"next count of", func(e *events.Event) bool { e.Count++; return e.Count > 1 }},
	{"no count of", func(e *events.Event) bool { was := e.Count; e.Count = 0; return was > 0 }},
	{"other source of", func(e *events.Event) bool { return other(&e.Source) }},
	{"no source of", func(e *events.Event) bool { return empty(&e.Source) }},
	{"no record of", func(e *events.Event) bool { was := e.Raw; e.Raw = nil; return was != nil }},
	{"unknown end of", func(e *events.Event) bool { return other(&e.End) }},
	{"other topic of", func(e *events.Event) bool { return other(&e.ReplyTo) }},
	{"other workflow of", func(e *events.Event) bool { return other(&e.Workflow) }},
	{"later due of", func(e *events.Event) bool { return later(&e.Due) }},
	{"later complete-by of", func(e *events.Event) bool { return later(&e.CompleteBy) }},
	{"complete-by a moment later of", func(e *events.Event) bool {
		e.CompleteBy = e.CompleteBy.Add(time.Millisecond)
		return e.Type == events.StepExtended || e.Type == events.UndoExtended
	}},
	{"complete-by at once of", func(e *events.Event) bool { return atOnce(&e.CompleteBy, e.At) }},
	{"later expiry of", func(e *events.Event) bool { return later(&e.Expires) }},
	{"expiry at once of", func(e *events.Event) bool { return atOnce(&e.Expires, e.CompleteBy) }},
	{"later end of all extensions of", func(e *events.Event) bool { return later(&e.ExtendTo) }},
	{"no extensions of", func(e *events.Event) bool { return atOnce(&e.ExtendTo, time.Time{}) }},
	{"later deadline of", func(e *events.Event) bool { return later(&e.Deadline) }},
	{"deadline at once of", func(e *events.Event) bool { return atOnce(&e.Deadline, e.At) }},
	{"deadline soon of", func(e *events.Event) bool { return atOnce(&e.Deadline, e.At.Add(time.Millisecond)) }},
	{"unknown priority of", func(e *events.Event) bool {
		e.Priority += "x"
		return e.Type == events.OrderChanged
	}},
	{"no new names of", func(e *events.Event) bool {
		renamed := len(e.Renamed) > 0
		e.Renamed = nil
		return renamed
	}},
	{"next round of", func(e *events.Event) bool {
		e.Round++
		return e.Type == events.StepRetried || e.Type == events.UndoRetried
	}},
	{"no round of", func(e *events.Event) bool { was := e.Round; e.Round = 0; return was > 0 }},
	{"other output of", func(e *events.Event) bool { return replace(&e.Output) }},
	{"output added to", func(e *events.Event) bool {
		was := e.Output
		e.Output = jsontext.Value(`{"mutant":1}`)
		return was == nil && (e.Type == events.StepCompleted || e.Type == events.StepSkipped)
	}},
	{"other input of", func(e *events.Event) bool { return replace(&e.Input) }},
	{"input added to", func(e *events.Event) bool {
		was := e.Input
		e.Input = jsontext.Value(`{"mutant":1}`)
		return was == nil && slices.Contains([]events.Type{events.OrderAccepted, events.StepStarted, events.UndoStarted, events.StepOrdered}, e.Type)
	}},
	{"other outcome of", func(e *events.Event) bool {
		was := e.Outcome
		if e.Outcome = events.OutcomeUnknown; was == events.OutcomeUnknown {
			e.Outcome = events.OutcomeCompleted
		}
		return was != ""
	}},
	{"other end of", func(e *events.Event) bool {
		was := e.End
		if e.End = "Cancelled"; was == "Cancelled" {
			e.End = "Compensated"
		}
		return was != ""
	}},
	{"count changed of", func(e *events.Event) bool { e.Uncounted = !e.Uncounted; return e.Error != nil && e.Step != "" }},
	{"left or not of", func(e *events.Event) bool {
		e.Left = !e.Left
		return e.Error != nil && e.Step != "" || e.Type == events.ItemCompleted || e.Type == events.UndoCompleted
	}},
	{"same key for", func(e *events.Event) bool { e.SameKey = !e.SameKey; return e.Type == events.OrderResubmitted }},
	{"new key for", func(e *events.Event) bool { e.NewKey = !e.NewKey; return e.Type == events.OrderResubmitted }},
	{"fewer kept by", func(e *events.Event) bool { return fewer(&e.Kept) }},
	{"fewer that may have run of", func(e *events.Event) bool { return fewer(&e.MayHaveRun) }},
	{"fewer undone of", func(e *events.Event) bool { return fewer(&e.Undone) }},
	{"fewer failed of", func(e *events.Event) bool { return fewer(&e.FailedSteps) }},
	{"to another topic", func(e *events.Event) bool { e.Topic += "x"; return e.Type == events.StepEmitting }},
	{"of another type", func(e *events.Event) bool { e.EventType += "x"; return e.Type == events.StepEmitting }},
	{"under another key of the record", func(e *events.Event) bool { e.Key += "x"; return e.Type == events.StepEmitting }},
	{"as what a topic refuses", func(e *events.Event) bool {
		if e.Type != events.StepFailed || e.Error == nil || e.Error.Code != requestRefused {
			return false
		}
		fault := *e.Error
		fault.Code = eventRefused
		e.Error = &fault
		return true
	}},
	{"fixed or not", func(e *events.Event) bool { e.Fixed = !e.Fixed; return e.Type == events.StepSleeping }},
	{"other signal of", func(e *events.Event) bool { return other(&e.Signal) }},
	{"other id of", func(e *events.Event) bool {
		was := e.SignalID
		if e.SignalID = "s-1"; was == e.SignalID {
			e.SignalID = "s-2"
		}
		return e.Signal != ""
	}},
	{"other data of", func(e *events.Event) bool { return replace(&e.Data) }},
	{"data added to", func(e *events.Event) bool {
		was := e.Data
		e.Data = jsontext.Value(`{"mutant":1}`)
		return was == nil && (e.Type == events.StepHeard || e.Type == events.SignalKept)
	}},
	{"fewer signals of", func(e *events.Event) bool { return fewer(&e.Signals) }},
	{"other way of", func(e *events.Event) bool { return other(&e.Listen) }},
	{"fewer not undone of", func(e *events.Event) bool { return fewer(&e.NotUndone) }},
	{"fewer steps of", func(e *events.Event) bool { return fewer(&e.Steps) }},
	{"no steps of", func(e *events.Event) bool { was := e.Steps; e.Steps = nil; return was != nil }},
	{"more errors of", func(e *events.Event) bool {
		was := e.Errors
		e.Errors = append(slices.Clone(was), events.Error{Code: "mutant"}, events.Error{Code: "mutant"})
		return was != nil
	}},
	{"fewer errors of", func(e *events.Event) bool { return fewer(&e.Errors) }},
	{"other code of", func(e *events.Event) bool { return fault(e, func(f *events.Error) { f.Code += "-mutant" }) }},
	{"other permanence of", func(e *events.Event) bool { return fault(e, func(f *events.Error) { f.Permanent = !f.Permanent }) }},
	{"no error of", func(e *events.Event) bool { was := e.Error; e.Error = nil; return was != nil }},
	{"other child of", func(e *events.Event) bool { return other(&e.Child) }},
	{"other tick of", func(e *events.Event) bool { return later(&e.Tick) }},
	{"no tick of", func(e *events.Event) bool { return nothing(&e.Tick) }},
	{"other last of", func(e *events.Event) bool { return later(&e.Last) }},
	{"other next of", func(e *events.Event) bool { return later(&e.Next) }},
	{"long ago next of", func(e *events.Event) bool {
		is := !e.Next.IsZero()
		e.Next = time.Unix(1, 0).UTC()
		return is
	}},
	{"no next of", func(e *events.Event) bool { return nothing(&e.Next) }},
	{"begins before", func(e *events.Event) bool {
		e.Due = e.Next.Add(-time.Second)
		return !e.Next.IsZero()
	}},
	{"next after the end of", func(e *events.Event) bool {
		if e.Schedule == nil {
			return false
		}
		says := *e.Schedule
		says.End = e.Next.Add(-time.Second)
		e.Schedule = &says
		return true
	}},
	{"other incarnation of", func(e *events.Event) bool { e.Incarnation++; return e.Incarnation > 1 }},
	{"other overlap of", func(e *events.Event) bool {
		if e.Schedule == nil {
			return false
		}
		says := *e.Schedule
		says.Overlap = map[string]string{"allow": "skip"}[says.Overlap]
		e.Schedule = &says
		return true
	}},
	{"other kind of overlap of", func(e *events.Event) bool {
		if e.Schedule == nil {
			return false
		}
		says := *e.Schedule
		says.Overlap = map[string]string{"cancel-other": "allow", "": "cancel-other"}[says.Overlap]
		e.Schedule = &says
		return true
	}},
	{"one more of", func(e *events.Event) bool { e.Count++; return e.Type == events.ScheduleSkipped }},
	{"too many at once of", func(e *events.Event) bool { e.AtOnce = events.MaxOpen + 1; return e.Type == events.ScheduleBackfilled }},
	{"one at once of", func(e *events.Event) bool {
		was := e.AtOnce
		e.AtOnce = 1
		return e.Type == events.ScheduleBackfilled && was > 1
	}},
	{"other workflow in", func(e *events.Event) bool { return e.Type == events.ScheduleStarted && other(&e.Workflow) }},
	{"other reason why skipped of", func(e *events.Event) bool {
		e.Reason = map[string]string{"overlap": "missed", "missed": "overlap", "paused": "too-many", "too-many": "paused", "replaced": "paused", "rejected": "paused"}[e.Reason]
		return e.Type == events.ScheduleSkipped
	}},
	{"other parent of", func(e *events.Event) bool { return other(&e.Parent) }},
	{"no parent of", func(e *events.Event) bool {
		was := e.Parent
		e.Parent, e.ParentStep, e.Depth, e.Detached = "", "", 0, false
		return was != ""
	}},
	{"only no parent of", func(e *events.Event) bool { return empty(&e.Parent) }},
	{"other step of the parent of", func(e *events.Event) bool { return other(&e.ParentStep) }},
	{"no step of the parent of", func(e *events.Event) bool { return empty(&e.ParentStep) }},
	{"deeper", func(e *events.Event) bool { e.Depth += 8; return e.Parent != "" && e.Type == events.OrderAccepted }},
	{"no depth of", func(e *events.Event) bool { was := e.Depth; e.Depth = 0; return was > 0 }},
	{"waited for or not", func(e *events.Event) bool {
		e.Detached = !e.Detached
		return e.Type == events.StepOrdered || e.Type == events.OrderAccepted && e.Parent != ""
	}},
	{"other version pinned by", func(e *events.Event) bool {
		e.Pinned = maps.Clone(e.Pinned)
		for name := range e.Pinned {
			e.Pinned[name]++
		}
		return e.Pinned != nil
	}},
	{"kept for longer than", func(e *events.Event) bool { e.Keep++; return e.Type == events.OrderAccepted }},
	{"another forgotten with", func(e *events.Event) bool {
		e.Children = append(slices.Clone(e.Children), "@mutant")
		return e.Type == events.OrderForgotten
	}},
	{"more pinned by", func(e *events.Event) bool {
		e.Pinned = map[string]int64{"mutant": 1}
		return e.Type == events.OrderAccepted
	}},
	{"hold changed of", func(e *events.Event) bool { e.Held = !e.Held; return e.Type == events.OrderErrored }},
	{"success instead of", func(e *events.Event) bool {
		return become(e, events.StepCompleted, events.StepFailed, events.StepExpired) ||
			become(e, events.UndoCompleted, events.UndoFailed, events.UndoExpired)
	}},
	{"failure instead of", func(e *events.Event) bool {
		if e.Error == nil {
			e.Error = &events.Error{Code: "mutant"}
		}
		return become(e, events.StepFailed, events.StepCompleted, events.StepExpired) ||
			become(e, events.UndoFailed, events.UndoCompleted, events.UndoExpired)
	}},
	{"expiry instead of", func(e *events.Event) bool {
		e.Error = &events.Error{Code: "expired"}
		return become(e, events.StepExpired, events.StepCompleted, events.StepFailed) ||
			become(e, events.UndoExpired, events.UndoCompleted, events.UndoFailed)
	}},
	{"skip instead of", func(e *events.Event) bool {
		return become(e, events.StepSkipped, events.StepStarted) || become(e, events.UndoSkipped, events.UndoStarted)
	}},
	{"completion instead of", func(e *events.Event) bool {
		return become(e, events.OrderCompleted, events.OrderCompensated, events.OrderCancelled)
	}},
	{"other end of the order than", func(e *events.Event) bool {
		return become(e, events.OrderCancelled, events.OrderCompensated) || become(e, events.OrderCompensated, events.OrderCancelled, events.OrderCompleted)
	}},
	{"Error instead of", func(e *events.Event) bool { return become(e, events.OrderErrored, events.OrderCompensating) }},
	{"resumed instead of", func(e *events.Event) bool { return become(e, events.OrderResumed, events.OrderPaused) }},
	{"paused instead of", func(e *events.Event) bool { return become(e, events.OrderPaused, events.OrderResumed) }},
	{"discarded instead of", func(e *events.Event) bool { return become(e, events.InputDiscarded, events.InputReleased) }},
	{"released instead of", func(e *events.Event) bool { return become(e, events.InputReleased, events.InputDiscarded) }},
}

func other(text *string) bool {
	was := *text
	*text += "x"
	return was != ""
}

func empty(text *string) bool {
	was := *text
	*text = ""
	return was != ""
}

func nothing(at *time.Time) bool {
	was := *at
	*at = time.Time{}
	return !was.IsZero()
}

func later(at *time.Time) bool {
	was := *at
	*at = at.Add(time.Hour)
	return !was.IsZero()
}

func atOnce(at *time.Time, to time.Time) bool {
	was := *at
	*at = to
	return !was.IsZero() && !was.Equal(to)
}

func replace(value *jsontext.Value) bool {
	was := *value
	*value = jsontext.Value(`{"mutant":1}`)
	return was != nil
}

// relabel changes the first label, by name.
func relabel(e *events.Event, change func(value string) string) bool {
	e.Labels = maps.Clone(e.Labels)
	for _, name := range slices.Sorted(maps.Keys(e.Labels)) {
		e.Labels[name] = change(e.Labels[name])
		return true
	}
	return false
}

func fewer[T any](list *[]T) bool {
	n := len(*list)
	*list = (*list)[:max(n-1, 0)]
	return n > 0
}

func fault(e *events.Event, change func(*events.Error)) bool {
	if e.Error == nil {
		return false
	}
	e.Error = new(*e.Error)
	change(e.Error)
	return true
}

func become(e *events.Event, kind events.Type, from ...events.Type) bool {
	if !slices.Contains(from, e.Type) {
		return false
	}
	e.Type = kind
	return true
}

// Mutants changes whatever a workflow says: a history that depends on it breaks
// the rules of the result.
func (f *Flow) Mutants() iter.Seq2[string, *Flow] {
	return func(yield func(string, *Flow) bool) {
		other := *f
		if other.Overdue = "error"; f.Overdue == "error" {
			other.Overdue = "compensate"
		}
		if !yield("another overdue", &other) {
			return
		}
		for name := range f.Search {
			other := *f
			other.Search = maps.Clone(f.Search)
			if other.Search[name] = "'mutant'"; !yield("found by another "+name, &other) {
				return
			}
		}
		for i := range f.Steps {
			for what, change := range flowChanges {
				changed := *f
				changed.Steps = slices.Clone(f.Steps)
				change(&changed.Steps[i])
				if !yield(what+" of step "+f.Steps[i].Name, &changed) {
					return
				}
			}
			for j := range f.Steps {
				if i != j && !slices.Contains(f.Steps[i].After, f.Steps[j].Name) {
					changed := *f
					changed.Steps = slices.Clone(f.Steps)
					changed.Steps[i].After = append(slices.Clone(f.Steps[i].After), f.Steps[j].Name)
					if !yield("step "+f.Steps[i].Name+" after step "+f.Steps[j].Name, &changed) {
						return
					}
				}
			}
		}
	}
}

var flowChanges = map[string]func(s *FlowStep){
	"fewer attempts":                        func(s *FlowStep) { s.Retry.Attempts-- },
	"more attempts":                         func(s *FlowStep) { s.Retry.Attempts++ },
	"fewer rounds":                          func(s *FlowStep) { s.Wait.Rounds-- },
	"more rounds":                           func(s *FlowStep) { s.Wait.Rounds++ },
	"a longer back-off":                     func(s *FlowStep) { s.Retry.Backoff, s.Retry.Max = 2*s.Retry.Backoff+1e9, 2*s.Retry.Max+1e9 },
	"a longer wait":                         func(s *FlowStep) { s.Wait.For = 2*s.Wait.For + 1e9 },
	"a longer queue":                        func(s *FlowStep) { s.Queue *= 2 },
	"a longer timeout":                      func(s *FlowStep) { s.Timeout.After *= 2 },
	"a longer time in all":                  func(s *FlowStep) { s.Timeout.Max *= 2 },
	"exhausted: compensate":                 func(s *FlowStep) { s.Exhausted = "compensate" },
	"exhausted: error":                      func(s *FlowStep) { s.Exhausted = "error" },
	"another agent":                         func(s *FlowStep) { s.Agent += "x" },
	"no undo":                               func(s *FlowStep) { s.Undo = "" },
	"an undo":                               func(s *FlowStep) { s.Undo = "another" },
	"a condition that is false":             func(s *FlowStep) { s.When = "false" },
	"no condition":                          func(s *FlowStep) { s.When = "" },
	"the condition negated":                 func(s *FlowStep) { s.When = "!(" + s.When + ")" },
	"another input":                         func(s *FlowStep) { s.With = `{"mutant": 1}` },
	"an input that fails":                   func(s *FlowStep) { s.With = "input.no_such_member" },
	"no input of its own":                   func(s *FlowStep) { s.With = "" },
	"another input of the undo":             func(s *FlowStep) { s.UndoWith = `{"mutant": 1}` },
	"an undo's input that fails":            func(s *FlowStep) { s.UndoWith = "input.no_such_member" },
	"an order instead of an agent":          func(s *FlowStep) { s.Agent, s.Order = "", &FlowOrder{Workflow: "mutant", Await: true} },
	"no order":                              func(s *FlowStep) { s.Order = nil },
	"no input of the undo's own":            func(s *FlowStep) { s.UndoWith = "" },
	"done once":                             ofRepeat(func(r *FlowRepeat) { r.Max = 1 }),
	"done again later":                      ofRepeat(func(r *FlowRepeat) { r.Every *= 2 }),
	"done until something else":             ofRepeat(func(r *FlowRepeat) { r.Until = "!(" + r.Until + ")" }),
	"an undo after what is raised, or none": ofRaise(func(r *FlowRaise) { r.Compensate = !r.Compensate }),
	"another code":                          ofRaise(func(r *FlowRaise) { r.Code += "x" }),
	"an order of another workflow":          ofOrder(func(o *FlowOrder) { o.Workflow += "x" }),
	"an order that is waited for, or not":   ofOrder(func(o *FlowOrder) { o.Await = !o.Await }),
	"exhausted: continue":                   func(s *FlowStep) { s.Exhausted = "continue" },
	"no codes of errors":                    func(s *FlowStep) { s.Retry.Never, s.Retry.AtOnce = nil, nil },
}

// ofRaise changes what a step raises.
func ofRaise(change func(*FlowRaise)) func(*FlowStep) {
	return func(s *FlowStep) {
		if s.Raise != nil {
			s.Raise = new(*s.Raise)
			change(s.Raise)
		}
	}
}

// ofRepeat changes how often a step is done, and until when.
func ofRepeat(change func(*FlowRepeat)) func(*FlowStep) {
	return func(s *FlowStep) {
		if s.Repeat != nil {
			s.Repeat = new(*s.Repeat)
			change(s.Repeat)
		}
	}
}

// ofOrder changes which order does a step.
func ofOrder(change func(*FlowOrder)) func(*FlowStep) {
	return func(s *FlowStep) {
		if s.Order != nil {
			s.Order = new(*s.Order)
			change(s.Order)
		}
	}
}

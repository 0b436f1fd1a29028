package oracle

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// Listens is what a step waits for.
type Listens struct {
	How   string
	Names []string // of the signals that are still to come
	Left  int      // how many of one name are
	Since uint64   // its event
	many  bool     // of one name
	Key   string   // that under which it hears them, empty if it hears those for its order
	heard []heard
}

type heard struct {
	name string
	data json.RawMessage
}

// Signal is one that an order keeps.
type Signal struct {
	Name, ID, Source string
	Until            time.Time
	Data             []byte
}

// listens: the turn of a step that waits for signals has come.
func (l *Ledger) listens(e *events.Event, s *Step) {
	l.goesOn()
	l.mayDo(e, s)
	l.rule("T5", s.State == notStarted, "it is %s", s.State)
	l.rule("V4", e.Attempt == s.Attempt+1, "attempt %d follows %d", e.Attempt, s.Attempt)
	if s.def != nil {
		runs, err := l.runsNow(s)
		l.rule("S1", err == nil && runs || errors.Is(err, errUnjudged), "its condition %q holds: %t, %v", s.def.When, runs, err)
		var due time.Time
		if s.def.Timeout.After > 0 {
			due = events.Time(e.At.Add(time.Duration(s.def.Timeout.After)))
		}
		how, names, count := s.def.Listen.says()
		l.rule("S4", e.Listen == how && slices.Equal(e.Signals, names) && max(e.Count, 1) == count, "it waits for %s of %s, %d times", e.Listen, e.Signals, e.Count)
		l.rule("V2", e.Due.Equal(due), "it waits until %v, and must until %v", e.Due, due)
		key := ""
		if s.def.Key != "" {
			key, err = l.waitKey(s)
		}
		l.rule("S4", err == nil && e.Key == key || errors.Is(err, errUnjudged), "its key is %q, and must be %q: %v", e.Key, key, err)
	}
	s.State, s.Attempt, s.Due, s.Output = listening, e.Attempt, e.Due, nil
	s.Listens = &Listens{How: e.Listen, Names: e.Signals, Left: max(e.Count, 1), Since: e.Seq, many: e.Count > 1, Key: e.Key}
}

// says is what a step of a workflow waits for, nothing if it does not listen.
func (f *FlowListen) says() (how string, names []string, count int) {
	switch {
	case f == nil:
		return "", nil, 0
	case f.Any != nil:
		return "any", f.Any, 1
	case f.All != nil:
		return "all", f.All, 1
	}
	return "one", []string{f.One}, f.Count
}

// hears: a step gets a signal for which it waits, once, and the one that has waited longest.
func (l *Ledger) hears(e *events.Event, s *Step) {
	l.rule("S2", s.State == listening && e.Attempt == s.Attempt && slices.Contains(s.Listens.Names, e.Signal), "it is %s, and hears %s", s.State, e.Signal)
	if s.Listens == nil {
		return
	}
	data := e.Data
	if i := l.keeps(e.Source); i >= 0 {
		kept := l.Signals[i]
		l.rule("T4", e.Data == nil && kept.Name == e.Signal && kept.ID == e.SignalID, "signal %q, %q was kept, and not %q, %q", kept.Name, kept.ID, e.Signal, e.SignalID)
		l.rule("V2", l.Doubted || e.At.Before(kept.Until), "it was kept until %v", kept.Until)
		data = kept.Data
		l.Signals = slices.Delete(slices.Clone(l.Signals), i, i+1)
	} else {
		l.rule("A3", s.Listens.Key == "" || e.SignalID != "", "it has no id")
		l.rule("T4", !l.knows(e.Signal, under(s.Listens.Key, e.SignalID)), "signal %s is kept, with the id %q", e.Signal, e.SignalID)
	}
	for _, other := range l.Steps {
		l.rule("S1", s.Listens.Key != "" || other.State != listening || other.Listens.Key != "" || other == s || !slices.Contains(other.Listens.Names, e.Signal) || other.Listens.Since > s.Listens.Since, "step %s has waited longer for %s", other.Name, e.Signal)
	}
	if e.SignalID != "" {
		l.once = append(l.once, [2]string{e.Signal, under(s.Listens.Key, e.SignalID)})
	}
	w := s.Listens
	w.heard = append(w.heard, heard{e.Signal, json.RawMessage(data)})
	s.Output = w.output()
	switch w.How {
	case "all":
		w.Names = slices.DeleteFunc(slices.Clone(w.Names), func(name string) bool { return name == e.Signal })
		if len(w.Names) > 0 {
			return
		}
	case "one":
		if w.Left--; w.Left > 0 {
			return
		}
	}
	s.end(completed)
}

// output is what a step has heard.
func (w *Listens) output() []byte {
	text := func(h heard) string {
		if h.data == nil {
			return "null"
		}
		return string(h.data)
	}
	switch {
	case w.How == "any":
		return []byte(`{"signal":"` + w.heard[0].name + `","data":` + text(w.heard[0]) + `}`)
	case w.How == "all":
		var all []string
		for _, h := range w.heard {
			all = append(all, `"`+h.name+`":`+text(h))
		}
		return []byte("{" + strings.Join(all, ",") + "}")
	case w.many:
		var all []string
		for _, h := range w.heard {
			all = append(all, text(h))
		}
		return []byte("[" + strings.Join(all, ",") + "]")
	}
	return []byte(text(w.heard[0]))
}

// timesOut: a wait ends when its time has come.
func (l *Ledger) timesOut(e *events.Event, s *Step) {
	l.rule("S2", e.Attempt == s.Attempt, "attempt %d ends, and attempt %d listens", e.Attempt, s.Attempt)
	l.rule("V2", s.State == listening && !s.Due.IsZero() && !e.At.Before(s.Due) || s.State == approving && s.Approves.ended(e.At), "it is %s until %v", s.State, s.Due)
	if l.heardNone(e, s); e.Output != nil {
		s.Output = e.Output
	}
	s.end(timedOut)
}

// heardNone: what was to hear several signals, and has heard none, has an output as what has heard some: an empty list, or
// an object without members.
func (l *Ledger) heardNone(e *events.Event, s *Step) {
	want := ""
	if w := s.Listens; w != nil && len(w.heard) == 0 && l.Format >= events.LeavesFormat {
		switch {
		case w.How == "all":
			want = "{}"
		case w.many:
			want = "[]"
		}
	}
	l.rule("S4", string(e.Output) == want, "its output is %s, and must be %s", e.Output, want)
}

// signal takes what becomes of signals that no step hears at once.
func (l *Ledger) signal(e *events.Event) {
	l.rule("P4", strings.Count(e.Source, "/") == 2, "it is from %q", e.Source)
	switch e.Type {
	case events.SignalKept:
		// That one will wait for it is on trust where the workflow may have been gone for a moment.
		l.rule("S1", l.Toward == "" && l.failure == nil && slices.ContainsFunc(l.Steps, func(s *Step) bool { return s.State == notStarted }), "no step will wait for %s", e.Signal)
		l.rule("S1", !l.attends(e.Signal, listening), "a step waits for %s", e.Signal)
		l.rule("T4", !l.knows(e.Signal, e.SignalID), "signal %s came before, with the id %q", e.Signal, e.SignalID)
		l.rule("T4", !slices.Contains(l.keptOnce, e.Source), "%s was kept before", e.Source)
		l.rule("V2", l.Doubted || e.Due.After(e.At), "it is kept until %v", e.Due)
		l.Signals, l.keptOnce = append(slices.Clip(l.Signals), Signal{e.Signal, e.SignalID, e.Source, e.Due, e.Data}), append(slices.Clip(l.keptOnce), e.Source)
	case events.SignalExpired:
		i := l.keeps(e.Source)
		if l.rule("V2", i >= 0, "%s is not kept", e.Source); i >= 0 {
			kept := l.Signals[i]
			l.rule("V2", !e.At.Before(kept.Until) && kept.Name == e.Signal && kept.ID == e.SignalID, "signal %q, %q is kept until %v", kept.Name, kept.ID, kept.Until)
			l.Signals = slices.Delete(slices.Clone(l.Signals), i, i+1)
		}
		l.GivenUp++
	default:
		l.count(e, &l.Unheard, l.last.Type == events.InputReleased || l.last.Type == events.SignalExpired)
		l.rule("P4", l.earned(e), "the order is %s, and signal %s is %s", l.State, e.Signal, e.Reason)
	}
}

// earned says whether a signal changes nothing for the reason that its event has. How many bytes
// it has stands in no history, nor until when it was to be kept.
func (l *Ledger) earned(e *events.Event) bool {
	known := l.knows(e.Signal, e.SignalID)
	over := l.ended || l.Toward != "" || l.failure != nil
	switch e.Reason {
	case events.SignalRepeated:
		return known
	case events.SignalTooLarge:
		return !known && !over && (l.attends(e.Signal, listening) || l.attends(e.Signal, notStarted))
	case events.SignalTooMany:
		return !known && !over && l.attends(e.Signal, notStarted) && (len(l.Signals) > 0 || l.GivenUp >= 100)
	case events.SignalUnheard:
		return !known && !l.ended && (l.flow == nil || !slices.ContainsFunc(l.flow.Steps, func(s FlowStep) bool {
			_, names, _ := s.Listen.says()
			return s.Key == "" && slices.Contains(names, e.Signal)
		}))
	case events.SignalLate:
		return !known && (l.ended || !l.attends(e.Signal, listening))
	}
	return false
}

// attends says that a step in a state waits, or will wait, for a signal. Without the workflow
// nobody knows what one will wait for.
func (l *Ledger) attends(signal, state string) bool {
	if (l.Toward != "" || l.failure != nil) && state == notStarted {
		return false
	}
	return slices.ContainsFunc(l.Steps, func(s *Step) bool {
		switch {
		case s.State != state:
			return false
		case state == listening:
			return s.Listens.Key == "" && slices.Contains(s.Listens.Names, signal)
		case s.def == nil:
			return true
		}
		_, names, _ := s.def.Listen.says()
		return s.def.Key == "" && slices.Contains(names, signal)
	})
}

// keeps is the place of a signal that is kept, -1 if none is from there.
func (l *Ledger) keeps(source string) int {
	return slices.IndexFunc(l.Signals, func(s Signal) bool { return s.Source == source })
}

// under is the id of a signal that is one of those under a key, if there is one.
func under(key, id string) string {
	if key == "" || id == "" {
		return id
	}
	return fmt.Sprintf("%q under %q", id, key)
}

// knows says that a signal of this name and id acted, or is kept.
func (l *Ledger) knows(signal, id string) bool {
	return id != "" && (slices.Contains(l.once, [2]string{signal, id}) ||
		slices.ContainsFunc(l.Signals, func(s Signal) bool { return s.Name == signal && s.ID == id }))
}

package projections

import (
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// Steps that wait for signals, and the signals that came for them.

// Listen is what a step waits for. It is a value that does not change: whoever changes it
// puts another in its place.
type Listen struct {
	How   string   // [events.ListenOne] and the like
	Names []string // of the signals that are still waited for
	Left  int      // how many of one name are; 0 unless several were
	Since uint64   // the number of the event with which it began
	// Key is that of the business under which it hears signals, empty if it hears those for its order.
	// Ended is then the number of the event with which it ended, 0 before that.
	Key   string
	Ended uint64
}

// Signal is one that an order keeps for a step that will wait for it, or whose id it remembers.
type Signal struct {
	Name, ID string // the id is empty if it has none
	// Source is where it was, as long as it is kept, and Until is how long that is. A correlation
	// remembers the id until then, too.
	Source string
	Until  time.Time
	Data   jsontext.Value // nil once it is not kept any more
	// Under is of one that a correlation keeps, or has given to a wait; else nil. It is not changed in place.
	Under *Under
}

// Kept says that no step has heard the signal so far.
func (s *Signal) Kept() bool { return s.Source != "" }

// KnowsSignal says that a signal of this name is kept, or acted, under an id, among those for the order, or under a
// key. None is known without an id.
func (o *Order) KnowsSignal(name, key, id string) bool {
	if id == "" {
		return false
	}
	id = idUnder(key, id)
	return slices.ContainsFunc(o.Signals, func(s Signal) bool { return s.ID == id && s.Name == name })
}

// idUnder is how the id of a signal is remembered that was under a key, if that is not empty: under another key it
// is another signal.
func idUnder(key, id string) string {
	if key == "" {
		return id
	}
	return strconv.Quote(key) + " " + id
}

// Wants says that the step waits for a signal of this name that is for its order.
func (s *Step) Wants(signal string) bool {
	return s.State == Listening && s.Listens.Key == "" && slices.Contains(s.Listens.Names, signal)
}

// Awaits says that the step waits for a signal of this name under a key, since the event of that number.
func (s *Step) Awaits(signal string, since uint64) bool {
	return s.State == Listening && s.Listens.Key != "" && s.Listens.Since == since && slices.Contains(s.Listens.Names, signal)
}

// listensAt is where an order stands in the index of those that wait for signals: by when it changed last, which
// is when the wait began unless something else has happened since; zero if no step waits. Records do not say
// since when a step does, and a store that was migrated must be like one that was folded.
func (o *Order) listensAt() time.Time {
	if o.State.Final() {
		return time.Time{}
	}
	for i := range o.Steps {
		if o.Steps[i].State == Listening {
			return o.UpdatedAt
		}
	}
	return time.Time{}
}

// ListeningSince is since when a step waits for signals; zero if it does not, or the order has changed since it began to.
func (o *Order) ListeningSince(s *Step) time.Time {
	if s.State != Listening || s.Listens.Since != o.Seq {
		return time.Time{}
	}
	return o.UpdatedAt
}

func listen(_ *Order, s *Step, e *events.Event) {
	s.State, s.Attempt, s.Due, s.Output = Listening, e.Attempt, e.Due, nil
	s.Listens = &Listen{How: e.Listen, Names: e.Signals, Left: e.Count, Since: e.Seq, Key: e.Key}
}

// unlisten notes with which event steps ended to wait under a key, whatever it was that ended them.
func (o *Order) unlisten() {
	for i := range o.Steps {
		s := &o.Steps[i]
		if l := s.Listens; l != nil && l.Key != "" && l.Ended == 0 && s.State != Listening {
			ended := *l
			ended.Ended = o.Seq
			s.Listens = &ended
		}
	}
}

// Wants is what the order tells the homes of keys once it has folded an event: where a step began to
// wait, has heard, or waits no more.
func (o *Order) Wants(e *events.Event) (all []*events.Want) {
	for i := range o.Steps {
		s := &o.Steps[i]
		l := s.Listens
		if l == nil || l.Key == "" {
			continue
		}
		say := func(want, signal string) *events.Want {
			w := &events.Want{Correlation: events.CorrelationID(signal, l.Key), Want: want, Signal: signal, Key: l.Key, Order: o.ID, Step: s.Known(), Wait: l.Since}
			all = append(all, w)
			return w
		}
		its := e.Step == s.Name
		if e.Type == events.StepListening && its {
			for _, name := range l.Names {
				say(events.WantAwait, name)
			}
		}
		heard := e.Type == events.StepHeard && its
		if heard {
			w := say(events.WantHeard, e.Signal)
			w.SignalID, w.Over = e.SignalID, !s.Awaits(e.Signal, l.Since)
		}
		if l.Ended != e.Seq {
			continue
		}
		for _, name := range l.Names {
			if !heard || name != e.Signal {
				say(events.WantWithdraw, name)
			}
		}
	}
	return all
}

// hear gives a step the signal, which the event has, unless it was kept. What the step has
// heard is its output.
func hear(o *Order, s *Step, e *events.Event) {
	data := e.Data
	if i := o.kept(e.Source); i >= 0 {
		data = o.Signals[i].Data
		o.Signals = slices.Delete(slices.Clone(o.Signals), i, i+1)
	}
	if s.Listens == nil {
		return // which no journal has
	}
	if e.SignalID != "" {
		o.Signals = append(slices.Clip(o.Signals), Signal{Name: e.Signal, ID: idUnder(s.Listens.Key, e.SignalID)})
	}
	l := *s.Listens
	done := true
	switch {
	case l.How == events.ListenAny:
		s.Output = put(put(nil, "signal", jsontext.Value(`"`+e.Signal+`"`)), "data", data)
	case l.How == events.ListenAll:
		s.Output = put(s.Output, e.Signal, data)
		l.Names = slices.DeleteFunc(slices.Clone(l.Names), func(name string) bool { return name == e.Signal })
		done = len(l.Names) == 0
	case l.Left > 0:
		s.Output = join(s.Output, '[', null(data), ']')
		l.Left--
		done = l.Left == 0
	default:
		s.Output = null(data)
	}
	if s.Listens = &l; done {
		s.end(Completed, nil)
	}
}

// timeOut leaves what the step has heard as its output.
func timeOut(_ *Order, s *Step, e *events.Event) {
	s.end(TimedOut, nil)
	if e.Output != nil {
		s.Output = e.Output
	}
}

func keepSignal(o *Order, _ *Step, e *events.Event) {
	if o.Correlation != nil || e.Key != "" {
		o.keepUnder(e)
		return
	}
	o.Signals = append(slices.Clip(o.Signals), Signal{Name: e.Signal, ID: e.SignalID, Source: e.Source, Until: e.Due, Data: e.Data})
}

func expireSignal(o *Order, _ *Step, e *events.Event) {
	if o.Correlation == nil {
		o.GivenUp++
	}
	if i := o.kept(e.Source); i >= 0 {
		o.Signals = slices.Delete(slices.Clone(o.Signals), i, i+1)
	}
}

func discardSignal(o *Order, _ *Step, e *events.Event) {
	o.Unheard = max(o.Unheard, e.Count)
	if o.Correlation != nil || e.Key != "" {
		o.discardUnder(e)
	}
}

// kept is the place of the signal that is kept from source, -1 if none is.
func (o *Order) kept(source string) int {
	return slices.IndexFunc(o.Signals, func(s Signal) bool { return s.Kept() && s.Source == source })
}

// forget drops the signals that an order which has ended kept. Those that acted it remembers.
func (o *Order) forget() {
	if slices.ContainsFunc(o.Signals, func(s Signal) bool { return s.Kept() }) {
		o.Signals = slices.DeleteFunc(slices.Clone(o.Signals), func(s Signal) bool { return s.Kept() })
	}
}

// put adds a member to a JSON object, or begins it. Its name is one of a signal's form.
func put(object jsontext.Value, name string, value jsontext.Value) jsontext.Value {
	return join(object, '{', append(jsontext.Value(`"`+name+`":`), null(value)...), '}')
}

// join adds a part to what opens and closes so, in bytes of its own.
func join(whole jsontext.Value, opens byte, part jsontext.Value, closes byte) jsontext.Value {
	to := make(jsontext.Value, 0, len(whole)+len(part)+2)
	if len(whole) == 0 {
		to = append(to, opens)
	} else {
		to = append(append(to, whole[:len(whole)-1]...), ',')
	}
	return append(append(to, part...), closes)
}

func null(value jsontext.Value) jsontext.Value {
	if value == nil {
		return jsontext.Value("null")
	}
	return value
}

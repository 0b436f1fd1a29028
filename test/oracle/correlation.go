package oracle

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/common/types"

	"github.com/waybill-dev/waybill/events"
)

// Correlation is what has the signals of a name and a key. Those that are kept, or given, are the ledger's Signals.
type Correlation struct {
	Signal, Key string
	Waits       []Wait           // the longest first
	Under       map[string]Under // by the source of a signal
	Once        []Once           // ids that acted
}

// Wait is a step that waits.
type Wait struct {
	Order, Step string
	Number      uint64
	Source      string // of the signal that was given to it, and nothing was told of
}

// Under is how a signal stands.
type Under struct {
	Given, Told bool
	Starts      string // the order that it begins
}

// Once is an id that acts once until a time.
type Once struct {
	ID    string
	Until time.Time
}

var correlation = regexp.MustCompile(`(?s)^@.*/signal[.+][a-zA-Z0-9._-]+$`)

// tooMany is how many wait at most, and how many ids are remembered.
const tooMany = 1000

// correlated takes the events of a correlation that are none of orders in general.
func (l *Ledger) correlated(e *events.Event) {
	c := l.Correlation
	if e.Key != "" {
		l.rule("S4", c.Key == "" || c.Signal == e.Signal && c.Key == e.Key, "it is of %s %q, and was of %s %q", e.Signal, e.Key, c.Signal, c.Key)
		c.Signal, c.Key = e.Signal, e.Key
	}
	switch e.Type {
	case events.WaitBegan, events.WaitEnded, events.WaitRefused:
		l.rule("P4", strings.Contains(e.Source, ".internal/"), "it is from %q", e.Source)
		i := c.wait(e)
		switch e.Type {
		case events.WaitBegan:
			l.rule("T4", i < 0, "order %s waits since event %d already", e.Waiter, e.Wait)
			l.rule("S1", len(c.Waits) < tooMany, "%d wait", len(c.Waits))
			c.Waits = append(c.Waits, Wait{Order: e.Waiter, Step: e.Step, Number: e.Wait})
		case events.WaitRefused:
			l.rule("S1", i < 0 && len(c.Waits) >= tooMany, "%d wait", len(c.Waits))
		case events.WaitEnded:
			if l.rule("T4", i >= 0, "order %s does not wait since event %d", e.Waiter, e.Wait); i >= 0 {
				l.comesBack(c.Waits[i].Source)
				c.Waits = slices.Delete(c.Waits, i, i+1)
			}
		}
	case events.SignalGiven:
		l.gives(e)
	case events.SignalMatched:
		l.matches(e)
	case events.SignalOrdered:
		l.startsOrder(e)
	case events.SignalStarted:
		l.started(e)
	case events.SignalKept:
		l.keepsUnder(e)
	case events.SignalExpired:
		i := l.keeps(e.Source)
		if l.rule("V2", i >= 0 && !c.Under[e.Source].Given, "%s is not kept", e.Source); i >= 0 {
			l.rule("V2", !e.At.Before(l.Signals[i].Until) && c.Under[e.Source].Told, "it is kept until %v", l.Signals[i].Until)
			l.leaves(i)
		}
	case events.SignalDiscarded:
		l.discardsUnder(e)
	case events.OrderForgotten:
		last := l.last.At.Add(time.Hour)
		for _, o := range c.Once {
			if o.Until.After(last) {
				last = o.Until
			}
		}
		l.rule("V2", len(c.Waits)+len(l.Signals) == 0 && !e.At.Before(events.Time(last)), "%d wait, %d are kept, and what acted is remembered until %v", len(c.Waits), len(l.Signals), last)
		l.Forgotten, l.Correlation = true, nil
		l.Unheard, l.PutAside, l.Refused = 0, 0, 0
	default:
		l.rule("P4", false, "nobody knows this event")
	}
}

func (c *Correlation) wait(e *events.Event) int {
	return slices.IndexFunc(c.Waits, func(w Wait) bool { return w.Order == e.Waiter && w.Number == e.Wait })
}

func (c *Correlation) free() int {
	return slices.IndexFunc(c.Waits, func(w Wait) bool { return w.Source == "" })
}

func (c *Correlation) set(source string, u Under) {
	if c.Under == nil {
		c.Under = make(map[string]Under)
	}
	c.Under[source] = u
}

// comesBack has a signal be given to nobody, and what it was given to have none.
func (l *Ledger) comesBack(source string) {
	c := l.Correlation
	if source == "" {
		return
	}
	for i := range c.Waits {
		if c.Waits[i].Source == source {
			c.Waits[i].Source = ""
		}
	}
	u := c.Under[source]
	u.Given = false
	c.set(source, u)
}

func (l *Ledger) leaves(i int) {
	l.comesBack(l.Signals[i].Source)
	delete(l.Correlation.Under, l.Signals[i].Source)
	l.Signals = slices.Delete(slices.Clone(l.Signals), i, i+1)
}

// knowsID says that a signal of an id is kept, or has acted.
func (l *Ledger) knowsID(id string, at time.Time) bool {
	return slices.ContainsFunc(l.Signals, func(s Signal) bool { return s.ID == id }) ||
		slices.ContainsFunc(l.Correlation.Once, func(o Once) bool { return o.ID == id && o.Until.After(at) })
}

// enters takes a signal that is new, or says what is wrong with one that is not.
func (l *Ledger) enters(e *events.Event) int {
	i := l.keeps(e.Source)
	if i < 0 {
		l.rule("T4", !l.knowsID(e.SignalID, e.At) || l.Doubted, "signal %s came before, with the id %q", e.Signal, e.SignalID)
		l.rule("A3", e.SignalID != "", "it has no id")
		l.Signals = append(slices.Clip(l.Signals), Signal{e.Signal, e.SignalID, e.Source, e.Due, e.Data})
		return len(l.Signals) - 1
	}
	s := l.Signals[i]
	l.rule("T4", e.Data == nil && s.Name == e.Signal && s.ID == e.SignalID && s.Until.Equal(e.Due), "%+v was kept", s)
	return i
}

// gives: who has waited longest gets it, and of those that nobody has the oldest is given.
func (l *Ledger) gives(e *events.Event) {
	c, w := l.Correlation, l.Correlation.wait(e)
	l.rule("S1", w >= 0 && w == c.free(), "wait %d gets it, and %d has waited longest", w, c.free())
	i := l.enters(e)
	l.rule("T4", !c.Under[e.Source].Given, "it is given to another")
	l.rule("V2", l.Doubted || e.Due.After(e.At), "it is kept until %v", e.Due)
	for _, s := range l.Signals[:i] {
		l.rule("S1", c.Under[s.Source].Given, "%s has waited longer", s.Source)
	}
	u := c.Under[e.Source]
	u.Given = true
	if c.set(e.Source, u); w >= 0 {
		c.Waits[w].Source = e.Source
	}
}

// startsOrder: a signal for which nobody waits begins an order, of the workflow that says so. One that was kept, and
// whose sender knows, does not.
func (l *Ledger) startsOrder(e *events.Event) {
	c := l.Correlation
	l.rule("S1", c.free() < 0, "order %+v waits", c.Waits)
	l.enters(e)
	u := c.Under[e.Source]
	l.rule("T4", !u.Given && !u.Told, "it is given to another, or was kept: %+v", u)
	l.rule("V2", l.Doubted || e.Due.After(e.At), "it is kept until %v", e.Due)
	want := fmt.Sprintf("%s/order.%d", l.Order, e.Seq)
	l.rule("A3", e.Child == want && l.Format >= events.StartFormat, "it begins order %q, and must begin %q, in format %d", e.Child, want, l.Format)
	if l.find != nil {
		flow := l.find(e.Workflow, e.Version)
		l.rule("S4", e.Version > 0 && flow != nil && flow.Start != nil && flow.Start.Signal == e.Signal, "workflow %s@%d does not say so", e.Workflow, e.Version)
	}
	c.set(e.Source, Under{Given: true, Starts: e.Child})
}

// started: the order has begun.
func (l *Ledger) started(e *events.Event) {
	i := l.keeps(e.Source)
	if l.rule("S2", i >= 0 && e.Child != "" && l.Correlation.Under[e.Source].Starts == e.Child, "it was to begin %q", l.Correlation.Under[e.Source].Starts); i >= 0 {
		l.rule("T4", l.Signals[i].Name == e.Signal && l.Signals[i].ID == e.SignalID, "%+v began it", l.Signals[i])
		l.remembers(i, e)
	}
}

// startWishes are what the orders are asked for by an event that signals begin.
func (l *Ledger) startWishes(e *events.Event) (all []events.Wish) {
	wish := func(s *Signal) events.Wish {
		child := l.Correlation.Under[s.Source].Starts
		return events.Wish{Child: child, Parent: e.Order, Step: child[strings.LastIndexByte(child, '.')+1:]}
	}
	switch e.Type {
	case events.SignalOrdered:
		if i := l.keeps(e.Source); i >= 0 {
			w := wish(&l.Signals[i])
			w.Wish, w.Detached, w.Workflow, w.Version, w.Input, w.Key, w.By = "begin", true, e.Workflow, e.Version, l.Signals[i].Data, e.Key, e.By
			all = append(all, w)
		}
	case events.OrderReleased:
		for i := range l.Signals {
			if s := &l.Signals[i]; l.Correlation.Under[s.Source].Starts != "" {
				w := wish(s)
				w.Wish, w.Reason = "tell", "the home of the key was released"
				all = append(all, w)
			}
		}
	}
	return all
}

// matches: the order has heard what was given to it.
func (l *Ledger) matches(e *events.Event) {
	c, w, i := l.Correlation, l.Correlation.wait(e), l.keeps(e.Source)
	if l.rule("S2", w >= 0 && i >= 0 && c.Waits[w].Source == e.Source && c.Waits[w].Step == e.Step, "it was not given to wait %d of order %s", e.Wait, e.Waiter); w < 0 || i < 0 {
		return
	}
	s := l.Signals[i]
	l.rule("T4", s.Name == e.Signal && s.ID == e.SignalID, "%+v was given", s)
	l.remembers(i, e)
}

// remembers has the id of a signal that acted act no more.
func (l *Ledger) remembers(i int, e *events.Event) {
	c, s := l.Correlation, l.Signals[i]
	l.leaves(i)
	c.Once = append(slices.DeleteFunc(c.Once, func(o Once) bool { return !o.Until.After(events.Time(e.At)) }), Once{s.ID, s.Until})
	c.Once = c.Once[max(0, len(c.Once)-tooMany):]
	l.Unheard = 0
}

// keepsUnder: a signal is kept while nobody waits who has none.
func (l *Ledger) keepsUnder(e *events.Event) {
	c := l.Correlation
	l.rule("S1", c.free() < 0, "order %+v waits", c.Waits)
	l.enters(e)
	u := c.Under[e.Source]
	l.rule("P1", !u.Given && !u.Told, "it was told before: %+v", u)
	l.rule("V2", l.Doubted || e.Due.After(e.At), "it is kept until %v", e.Due)
	c.set(e.Source, Under{Told: true})
	l.Unheard = 0
}

// discardsUnder: a signal changes nothing for a reason that holds.
func (l *Ledger) discardsUnder(e *events.Event) {
	c, i := l.Correlation, l.keeps(e.Source)
	l.rule("P4", strings.Count(e.Source, "/") == 2, "it is from %q", e.Source)
	l.rule("P4", e.Count == l.Unheard+1, "it is number %d, and follows number %d", e.Count, l.Unheard)
	l.Unheard = e.Count
	given, starts := i >= 0 && c.Under[e.Source].Given, ""
	if given {
		starts = c.Under[e.Source].Starts
	}
	given = given && starts == ""
	holds := false
	switch e.Reason {
	case events.SignalRepeated:
		holds = given || i < 0 && (l.Doubted || l.knowsID(e.SignalID, e.At)) // by a clock in doubt no time is over
		if at := slices.IndexFunc(l.Signals, func(s Signal) bool { return s.ID == e.SignalID }); i < 0 {
			l.rule("P1", at < 0 && e.Child == "" || at >= 0 && e.Child == c.Under[l.Signals[at].Source].Starts, "it names order %q", e.Child)
		}
	case events.SignalLate:
		holds = i < 0 || !c.Under[e.Source].Given && !c.Under[e.Source].Told && !e.At.Before(l.Signals[i].Until)
	case events.SignalTooLarge:
		holds = i < 0 || given || c.free() >= 0 || !c.Under[e.Source].Told && starts == ""
	case events.SignalGivenUp:
		holds = given
	case events.SignalRejected:
		holds = starts != "" && e.Child == starts && e.Error != nil
	case events.SignalTooMany:
		holds = i < 0 && len(l.Signals) > 0
	}
	l.rule("P4", holds, "signal %s is %s, kept: %t, given: %t", e.Signal, e.Reason, i >= 0, given)
	if i >= 0 {
		l.leaves(i)
	}
}

// wants are what the homes of keys are told by an event, given who waited before it.
func (l *Ledger) wants(e *events.Event, before []events.Want) (all []events.Want) {
	now := l.waits()
	for _, s := range l.Steps {
		if s.Listens == nil || s.Listens.Key == "" {
			continue
		}
		of := func(w events.Want) bool { return w.Step == s.Known }
		is := func(others []events.Want, w events.Want) bool {
			return slices.ContainsFunc(others, func(o events.Want) bool { return o == w })
		}
		for _, w := range now {
			if of(w) && !is(before, w) {
				all = append(all, w)
			}
		}
		heard := e.Type == events.StepHeard && e.Step == s.Name
		for _, w := range before {
			still := is(now, w)
			switch {
			case !of(w):
			case heard && w.Signal == e.Signal:
				w.Want, w.SignalID, w.Over = "heard", e.SignalID, !still
				all = append(all, w)
			}
		}
		for _, w := range before {
			if of(w) && !is(now, w) && (!heard || w.Signal != e.Signal) {
				w.Want = "withdraw"
				all = append(all, w)
			}
		}
	}
	return all
}

// waits are those under keys.
func (l *Ledger) waits() (all []events.Want) {
	for _, s := range l.Steps {
		if s.State != listening || s.Listens.Key == "" {
			continue
		}
		for _, name := range s.Listens.Names {
			all = append(all, events.Want{Correlation: events.CorrelationID(name, s.Listens.Key), Want: "await", Signal: name, Key: s.Listens.Key, Order: l.Order, Step: s.Known, Wait: s.Listens.Since})
		}
	}
	return all
}

// pass is what an order is told by an event, nil if that is nothing.
func (l *Ledger) pass(e *events.Event) *events.Pass {
	p := events.Pass{Order: e.Waiter, Step: e.Step, Wait: e.Wait, Correlation: e.Order, Signal: e.Signal, Key: e.Key}
	switch e.Type {
	case events.WaitRefused:
		p.Refused = e.Reason
	case events.SignalGiven:
		p.SignalID, p.Source, p.AnsweredBy, p.ReplyTo, p.Given = e.SignalID, e.Source, e.AnsweredBy, e.ReplyTo, e.Seq
		if i := l.keeps(e.Source); i >= 0 {
			p.Data = l.Signals[i].Data
		}
	default:
		return nil
	}
	return &p
}

// waitKey evaluates the key under which a step is to wait.
func (l *Ledger) waitKey(s *Step) (string, error) { return l.keyOf(s.def.Key) }

// keyOf evaluates an expression that is a key.
func (l *Ledger) keyOf(expression string) (string, error) {
	v, err := l.evaluate(expression)
	if err != nil {
		return "", err
	}
	key := ""
	switch v := v.(type) {
	case types.String:
		key = string(v)
	case types.Int, types.Uint:
		key = fmt.Sprint(v.Value())
	case types.Double:
		if float64(v) == math.Trunc(float64(v)) && math.Abs(float64(v)) < 1<<53 {
			key = fmt.Sprint(int64(v))
		}
	}
	return key, events.CheckSignalKey(key) //nolint:wrapcheck // it is nobody's to read
}

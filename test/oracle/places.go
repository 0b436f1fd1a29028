package oracle

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// Turn is a place that an order asked for, and needs.
type Turn struct {
	Home, Key, Step string // the step as it is known outside, empty for the order itself
	OnConflict      events.OnConflict
	Undo            bool
	Number          uint64
}

// Places is a home of places.
type Places struct {
	Says  *events.Limit // nil while there is none of the name
	By    string
	Seats []Seat
	one   bool // it is no limit, and lets one order be open at a time
	// since is the number of the event with which an order came last in the place of all before it, which is comer.
	since uint64
	comer string
	told  bool // whoever has the place heard that it loses it
	rank  uint64
	last  map[string]uint64 // by key, the rank that it was given last
	// credit is what has come together since places were given, in microseconds, at most a second; and since when.
	credit int64
	at     time.Time
}

// Seat is somebody who has a place, or waits.
type Seat struct {
	Order, Step string
	Wait        uint64
	Key         string
	Rank        uint64
	Number      uint64
	Taken       bool
}

func isLimit(id, name string) bool { return id == "@/limit."+name }

func isLimitHome(id string) bool { return strings.HasPrefix(id, "@/limit.") && !isTurn(id) }

func isTurn(id string) bool { return turnHome.MatchString(id) }

var turnHome = regexp.MustCompile(`^@(?s:.+)/open[.+][a-z0-9-]+$`)

// isTurnOf says that an id is of the home of a key of a workflow, of a long key with a hash of it.
func isTurnOf(id, workflow, key string) bool {
	if whole := "@" + key + "/open." + workflow; len(whole) <= 200 {
		return id == whole
	}
	return isTurn(id) && strings.HasSuffix(id, "/open+"+workflow) && len(id) <= 200
}

// Keyed says whether an input has a key under which one order of the workflow is open at a time, as far as that can be
// judged.
func (f *Flow) Keyed(input jsontext.Value) (is, judged bool) {
	if f.Concurrency == nil {
		return true, true
	}
	_, err := (&Ledger{accepted: events.Event{Input: input}}).keyOf(f.Concurrency.Key)
	return err == nil, !errors.Is(err, errUnjudged)
}

// queued says that the order waits for its turn.
func (l *Ledger) queued() bool { return l.turn != 0 && !l.begun && !l.ended }

// queues: an order asks for its turn before anything else.
func (l *Ledger) queues(e *events.Event) {
	first := l.turn == 0 && (l.last.Type == events.OrderAccepted || l.last.Type == events.StatusRefused)
	again := l.turn != 0 && l.queued() && len(l.Turns) == 0 && !l.errored // it was in Error, and gave its turn up
	l.rule("S1", l.Format >= events.LimitsFormat && (first || again), "it asked with event %d, and comes after %s", l.turn, l.last.Type)
	if again {
		l.rule("S1", e.Home == l.at && e.Key == l.under && e.OnConflict == events.ConflictQueue, "it asks %s anew under the key %q, %s, and asked %s under %q", e.Home, e.Key, e.OnConflict, l.at, l.under)
	} else if l.flow != nil {
		c := l.flow.Concurrency
		if l.rule("S4", c != nil, "its workflow lets many be open"); c == nil {
			c = &FlowConcurrency{Key: strconv.Quote(e.Key), OnConflict: e.OnConflict}
		}
		key, err := l.keyOf(c.Key)
		l.rule("S4", (err == nil && e.Key == key || errors.Is(err, errUnjudged)) && isTurnOf(e.Home, l.flow.Name, e.Key) && e.OnConflict == c.OnConflict, "it asks %s under the key %q, which must be %q, %q: %v", e.Home, e.Key, key, c.OnConflict, err)
	}
	l.turn, l.asks, l.at, l.under = e.Seq, false, e.Home, e.Key
	l.Turns = append(l.Turns, Turn{Home: e.Home, Key: e.Key, OnConflict: e.OnConflict, Number: e.Seq})
}

// grant is what an order is told by an event of a home of places.
func (l *Ledger) grant(e *events.Event) *events.Grant {
	g := &events.Grant{Order: e.Waiter, Step: e.Step, Wait: e.Wait, Home: e.Order, Error: e.Error}
	switch {
	case e.Type == events.PlaceGranted:
	case e.Type == events.PlaceReturned && e.Error != nil:
	case e.Type == events.PlaceAwaited && e.OnConflict == events.ConflictCancelOther && l.Places != nil:
		i := slices.IndexFunc(l.Places.Seats, func(s Seat) bool { return s.Taken })
		if i < 0 || l.Places.told {
			return nil
		}
		l.Places.told = true
		g.Order, g.Wait, g.Error = l.Places.Seats[i].Order, l.Places.Seats[i].Wait, l.Places.superseded()
	default:
		return nil
	}
	return g
}

// ofHome says that an event of the home is behind a grant, and not the record alone that asked for it.
func ofHome(g *events.Grant) bool { return g.Error == nil || g.Error.Code == "superseded" }

// superseded is what those are told in whose place another order has come.
func (p *Places) superseded() *events.Error {
	return &events.Error{Code: "superseded", Message: "order " + p.comer + " has come in its place", Permanent: true}
}

// placed takes the events of a home of places that are none of orders in general.
func (l *Ledger) placed(e *events.Event) {
	p := l.Places
	i := slices.IndexFunc(p.Seats, func(s Seat) bool { return s.Order == e.Waiter && s.Wait == e.Wait })
	if e.Source != "" {
		l.rule("P4", strings.Contains(e.Source, ".internal/"), "it is from %q", e.Source)
	}
	switch e.Type {
	case events.LimitApplied:
		l.rule("S4", e.Limit != nil && events.CheckLimit(e.Limit) == nil && l.Format >= events.LimitsFormat, "it says %+v, in format %d", e.Limit, l.Format)
		p.Says, p.By, l.Refused = e.Limit, e.By, 0
		return
	case events.LimitDeleted:
		l.rule("P3", p.Says != nil && len(p.Seats) == 0, "it is there: %t, and %d have a place or wait", p.Says != nil, len(p.Seats))
		p.Says = nil
		return
	case events.PlaceReturned:
		if l.rule("T4", i >= 0, "order %s has no place since event %d, and waits for none", e.Waiter, e.Wait); i >= 0 {
			if e.Error != nil {
				l.rule("V5", !p.Seats[i].Taken && p.Seats[i].Number < p.since && *e.Error == *p.superseded() && e.Source == "", "%+v is told %+v, and %s came with event %d", p.Seats[i], e.Error, p.comer, p.since)
			}
			p.Seats = slices.Delete(p.Seats, i, i+1)
		}
		l.rule("P4", e.Error != nil || e.Source != "", "nobody told it")
		return
	}
	s := Seat{e.Waiter, e.Step, e.Wait, e.Key, e.Rank, e.Seq, e.Type == events.PlaceGranted}
	if l.rule("S4", p.Says != nil || p.one, "there is no limit of the name"); p.Says == nil && !p.one {
		return
	}
	l.rule("S4", (e.Step == "") == p.one && (e.OnConflict == "" || p.one && e.OnConflict == events.ConflictCancelOther), "it is for step %q, %q", e.Step, e.OnConflict)
	if e.Type == events.PlaceAwaited || i < 0 {
		l.rule("T4", i < 0, "order %s waits, or has a place, since event %d", e.Waiter, e.Wait)
		// Of what waited and went its key may still know the rank.
		l.rule("S1", e.Rank >= p.next(e.Key) && e.Rank <= max(p.rank, p.last[e.Key])+1, "its rank is %d, and must be %d at least", e.Rank, p.next(e.Key))
		if p.last == nil {
			p.last = make(map[string]uint64)
		}
		p.last[e.Key] = e.Rank
		l.rule("P4", e.Source != "", "nobody asked for it")
	}
	if e.Type == events.PlaceAwaited {
		l.rule("S1", !p.one && p.Says.ASecond > 0 || p.count(false) > 0 || p.count(true) >= p.atATime(), "%d have places, of %d, and nobody else waits", p.count(true), p.atATime())
		if p.Seats = append(p.Seats, s); e.OnConflict != "" {
			p.since, p.comer = e.Seq, e.Waiter
		}
		return
	}
	l.rule("S1", p.count(true) < p.atATime(), "%d have a place, and %d may", p.count(true), p.atATime())
	first := -1
	for j := range p.Seats {
		if !p.Seats[j].Taken && (first < 0 || p.Seats[j].before(&p.Seats[first])) {
			first = j
		}
	}
	l.rule("S1", i == first, "it is the turn of seat %d, and not of %d: %+v", first, i, p.Seats)
	if i >= 0 {
		was := p.Seats[i]
		was.Taken, was.Number = true, e.Seq
		l.rule("T4", e.Source == "" && was == s, "it waits as %+v", was)
		l.rule("V5", p.Seats[i].Number >= p.since, "%s has come in its place", p.comer)
		p.Seats[i] = s
	} else {
		p.Seats = append(p.Seats, s)
	}
	p.rank, p.told = max(p.rank, e.Rank), false
	if p.one || p.Says.ASecond == 0 {
		return
	}
	interval := int64(1_000_000 / p.Says.ASecond)
	if p.credit = min(p.credit+events.Time(e.At).Sub(p.at).Microseconds(), 1_000_000); p.at.IsZero() {
		p.credit = 1_000_000
	}
	if p.at = events.Time(e.At); p.credit < 0 { // the clock was set back
		p.credit = interval
	}
	l.rule("S1", p.credit >= interval, "it comes %dus too early", interval-p.credit)
	p.credit -= interval
}

func (s *Seat) before(other *Seat) bool {
	return cmp.Or(cmp.Compare(s.Rank, other.Rank), cmp.Compare(s.Number, other.Number)) < 0
}

// next is the rank of what is asked for next under a key.
func (p *Places) next(key string) uint64 {
	last := p.rank
	for _, s := range p.Seats {
		if !s.Taken && s.Key == key {
			last = max(last, s.Rank)
		}
	}
	return last + 1
}

func (p *Places) atATime() int {
	if p.one {
		return 1
	}
	if p.Says == nil {
		return 0
	}
	return cmp.Or(p.Says.AtATime, events.MaxPlaces)
}

func (p *Places) count(taken bool) (n int) {
	for _, s := range p.Seats {
		if s.Taken == taken {
			n++
		}
	}
	return n
}

// atRest: nobody waits while there is room.
func (p *Places) atRest(l *Ledger) {
	for _, s := range p.Seats {
		l.rule("V5", s.Taken || s.Number >= p.since, "%+v waits, and %s came in its place", s, p.comer)
	}
	l.rule("S1", p.count(false) == 0 || !p.one && p.Says.ASecond > 0 || p.count(true) >= p.atATime(), "%d wait, and %d of %d places are taken", p.count(false), p.count(true), p.atATime())
}

// asksPlace: the turn of an attempt has come, and its step is under a limit.
func (l *Ledger) asksPlace(e *events.Event) {
	s := l.Step(e.Step)
	if l.rule("T3", s != nil, "the order has no such step"); s == nil {
		return
	}
	w := &s.Work
	l.goesOn()
	if e.ToUndo {
		if s.Undo == nil {
			s.Undo = &Work{State: notStarted}
		}
		w = s.Undo
		l.mayUndo(s)
	} else {
		l.mayDo(e, s)
	}
	l.rule("T4", w.Turn == 0, "it asked with event %d", w.Turn)
	l.begins(e, w)
	if s.def != nil {
		if !e.ToUndo {
			runs, err := l.runsNow(s)
			l.rule("S1", err == nil && runs || errors.Is(err, errUnjudged), "its condition %q holds: %t, %v", s.def.When, runs, err)
		}
		key, err := l.turnKey(s)
		l.rule("S4", s.def.Limit != nil && e.Home == "@/limit."+s.def.Limit.Name && (err == nil && e.Key == key || errors.Is(err, errUnjudged)), "it asks %s under the key %q, which must be %q: %v", e.Home, e.Key, key, err)
	}
	w.Turn, w.Due = e.Seq, time.Time{}
	l.Turns = append(l.Turns, Turn{Home: e.Home, Key: e.Key, Step: s.Known, Undo: e.ToUndo, Number: e.Seq})
}

// turnKey evaluates the key under which a step asks for places.
func (l *Ledger) turnKey(s *Step) (string, error) {
	if s.def.Limit == nil || s.def.Limit.Key == "" {
		return "", nil
	}
	return l.keyOf(s.def.Limit.Key)
}

// yields takes from the list what the order needs no more.
func (l *Ledger) yields() {
	l.Turns = slices.DeleteFunc(slices.Clone(l.Turns), func(t Turn) bool {
		if t.Step == "" {
			return l.ended || l.errored && !l.Held && !l.begun
		}
		return l.ended || !slices.ContainsFunc(l.Steps, func(s *Step) bool {
			w := &s.Work
			if t.Undo {
				w = s.undoing()
			}
			return s.Known == t.Step && w.Turn == t.Number
		})
	})
	if len(l.Turns) == 0 {
		l.Turns = nil
	}
}

// bids are what homes of places are told by an event, given what the order needed before it.
func (l *Ledger) bids(e *events.Event, before []Turn) (all []events.Bid) {
	for _, t := range before {
		if !slices.Contains(l.Turns, t) {
			all = append(all, events.Bid{Home: t.Home, Bid: "back", Order: l.Order, Step: t.Step, Wait: t.Number})
		}
	}
	if n := len(l.Turns); (e.Type == events.PlaceAsked || e.Type == events.OrderQueued) && n > 0 {
		t := l.Turns[n-1]
		all = append(all, events.Bid{Home: t.Home, Bid: "ask", Order: l.Order, Step: t.Step, Wait: t.Number, Key: t.Key, OnConflict: t.OnConflict, Undo: t.Undo})
	}
	return all
}

// waitsForPlace says that the next attempt waits for a place.
func (w *Work) waitsForPlace() bool { return w.Turn != 0 && w.State != running && w.Due.IsZero() }

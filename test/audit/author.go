package audit

import (
	"bytes"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// senderOf is who sent an input, as it says, and as it must be recorded.
func senderOf(r *kgo.Record) string {
	return unique.Make(cut(events.Header(r, events.HeaderSource), nameLength)).Value()
}

// signature is how the author of an input is known, by its header. Whether that holds is for who has the keys.
type signature struct {
	header string // "" for none
	value  []byte // what is signed; nil if nobody says that it was
}

func signatureOf(r *kgo.Record) signature {
	header := events.Header(r, events.HeaderActor)
	if header == "" {
		return signature{}
	}
	return signature{header, r.Value}
}

// actor is who has signed, as he says: the same text as an event has it.
func (g signature) actor() []byte {
	parts := bytes.SplitN([]byte(g.header), []byte("."), 3)
	return parts[len(parts)-1]
}

// signed wants that an event names who signed the input from which it follows, and nobody whom that does not name. Where the keys are
// known nobody is named whose signature is not under them, and each is whose signature counts, which it does for a day.
func (s *settlement) signed(a *account, at place, g signature, e *events.Event) {
	if e.Actor != nil && !bytes.Equal(e.Actor.Append(nil), g.actor()) {
		s.report("%s is signed %q, and led to event %d of order %q, %s, of %s", at, g.header, e.Seq, a.id, e.Type, e.Actor.Append(nil))
	}
	switch {
	case e.Actor != nil && !s.holds(a, g):
		s.report("%s is signed %q, by nobody who has a key, and led to event %d of order %q, %s, of %s", at, g.header, e.Seq, a.id, e.Type, e.Actor.Append(nil))
	case e.Actor == nil && s.counts(a, g, e):
		s.report("%s is signed, and led to event %d of order %q, %s, of nobody who is known", at, e.Seq, a.id, e.Type)
	}
}

// by is who has signed an input under one of the keys, nil if nobody has, or they are not known.
func (s *settlement) by(a *account, g signature) *events.Actor {
	return s.Keys.Actor(s.Topics.Namespace, a.id, g.value, []byte(g.header))
}

// holds says that a signature may be under a key.
func (s *settlement) holds(a *account, g signature) bool {
	return g.header != "" && (s.Keys == nil || s.by(a, g) != nil)
}

// counts says that an event must name who has signed, since the keys are known, and the time by which it was decided.
func (s *settlement) counts(a *account, g signature, e *events.Event) bool {
	if s.format[a.partition] < events.ProofFormat || s.doubted {
		return false
	}
	by := s.by(a, g)
	return by != nil && !e.At.Before(by.At) && e.At.Before(by.At.Add(aDay))
}

// act is a command whose author is known: it acts once.
type act struct{ id, asks string }

// keptActs is how many of them are known.
const keptActs = 16

// asks is what others under the same id are told apart by.
func (c *told) asks() string {
	switch c.do {
	case events.CommandSkipStep:
		return c.do + " " + c.step
	case events.CommandDecide:
		return strings.Join([]string{c.do, c.step, c.outcome, c.by}, " ")
	}
	return c.do
}

func (a *account) act(c *told) {
	if !slices.ContainsFunc(a.acts, func(before act) bool { return before.id == c.id }) {
		a.acts = append(a.acts[max(0, len(a.acts)-keptActs+1):], act{c.id, c.asks()})
	}
}

// knows says that a command is one of those that acted, or another under the id of one, if its author is known.
func (s *settlement) knows(a *account, c *told) (known, another bool) {
	before := slices.IndexFunc(a.acts, func(before act) bool { return before.id == c.id })
	if before < 0 || !s.holds(a, c.signature) {
		return false, false
	}
	known = a.acts[before].asks == c.asks()
	return known, !known
}

// ledTo says that an event may be what a command led to.
func (s *settlement) ledTo(a *account, c *told, e *events.Event) bool {
	return c.other(e) == "" && (e.Actor != nil || !s.counts(a, c.signature, e))
}

// aDay is for how long a signature counts, but for what clocks may differ.
const aDay = 23 * time.Hour

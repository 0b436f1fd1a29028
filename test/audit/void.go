package audit

import (
	"slices"
	"strings"

	"github.com/waybill-dev/waybill/events"
)

// maxVoid is how many events of a kind an order has at most that say no more than that
// something changed nothing. What would be the next leaves none, and is counted in the
// seal of the transaction that passes it.
const maxVoid = 100

// watch has the seals of the order's partition looked at for what its order drops.
func (s *settlement) watch(a *account) {
	if a.discarded == maxVoid || a.refused == maxVoid || a.putAside == maxVoid || a.unheard == maxVoid || a.conflicted {
		s.full[a.partition][a] = true
	}
}

// came says whether an event may be what a reply led to.
func (r *reply) came(e *events.Event) bool {
	undo := e.ToUndo || strings.HasPrefix(string(e.Type), "waybill.undo.")
	return r.aside == 0 && e.Step == r.said.step && e.Attempt == r.said.attempt && undo == r.said.undo && r.said.other(e) == ""
}

// full says whether a reply need leave no event, if it changes nothing.
func (a *account) full(r *reply) bool {
	return r.aside == 0 && a.discarded >= maxVoid || r.aside != 0 && a.putAside >= maxVoid
}

// refusedAside says whether an event refuses a command that is among the dead letters: those
// that ask the same before it were dropped.
func (a *account) refusedAside(e *events.Event) bool {
	why := hash([]byte(e.Reason))
	return e.Type == events.CommandRefused && slices.ContainsFunc(a.commands, func(c command) bool { return c.aside == why })
}

// passReplies passes over the first replies that left no event, as long as more says that one is
// of them. Those that say that an agent is still at it are not counted.
func (s *settlement) passReplies(a *account, more func(*reply) bool) {
	for len(a.replies) > 0 && (a.full(&a.replies[0]) || a.replies[0].said.progress) && more(&a.replies[0]) {
		if !a.replies[0].said.progress {
			s.dropped[a.partition]++
		}
		a.replies = a.replies[1:]
	}
}

// dropCommand drops the first command, and passes over those that came again behind it.
func (s *settlement) dropCommand(a *account, to int64, e *events.Event) {
	a.commands = a.commands[1:]
	s.dropped[a.partition]++
	s.again(a, to, e)
}

// pass passes over the submissions up to an offset. They changed nothing; one that says
// something else than the first is dropped once another was recorded.
func (s *settlement) pass(a *account, to int64) {
	for len(a.submissions) > 0 && a.submissions[0].offset < to {
		in := a.submissions[0]
		a.submissions = a.submissions[1:]
		switch other := a.digest != "" && a.digest != in.digest; {
		case in.aside != 0:
			s.report("%s was put aside, and the journal does not say so", s.at(a, s.Topics.Orders, in.entry))
		case !other:
			s.Known++
		case a.conflicted:
			s.dropped[a.partition]++
		default:
			s.report("%s says something else than the submission of order %q, and nobody was told", s.at(a, s.Topics.Orders, in.entry), a.id)
		}
	}
}

// conflict holds against its submission that one says something else than the first.
func (s *settlement) conflict(a *account, e *events.Event) {
	at, err := parsePlace(e.Source)
	if err != nil {
		s.report("order %q: event %d: %v", a.id, e.Seq, err)
		return
	}
	var in waiting
	if a.freed != nil && a.freed.place == at {
		in = *a.freed
		s.Known--
	} else {
		var ok bool
		if in, ok = s.take(a, at); !ok || in.reply != nil {
			s.report("order %q: event %d, %s, is about %s, whose turn it is not", a.id, e.Seq, e.Type, at)
			return
		}
	}
	switch {
	case in.again.digest != e.Digest || e.Digest == a.digest:
		s.report("%s has the digest %q, that of order %q is %q, and event %d says %q", at, in.again.digest, a.id, a.digest, e.Seq, e.Digest)
	case e.ReplyTo != in.again.replyTo && in.again.replyTo != s.Topics.Status && (e.ReplyTo != "" || !strings.Contains(e.Reason, "its own topic is not told: ")):
		s.report("%s is to be told on %q, and is on %q: %s", at, in.again.replyTo, e.ReplyTo, e.Reason)
	}
	s.Conflicts++
	a.conflicted = true
	s.watch(a)
}

// passed looks at what a transaction passed of orders that drop inputs: it must say
// how many it dropped. An order that it forgot may have done so before or after a command came again.
func (s *settlement) passed(partition int32, seal *events.Seal) {
	for a := range s.full[partition] {
		if a.conflicted {
			s.pass(a, s.next(s.Topics.Orders, seal.Next))
		}
		s.passReplies(a, func(r *reply) bool { return r.offset < s.next(s.Topics.Replies, seal.Next) })
		s.dropSignals(a, s.next(s.Topics.Signals, seal.Next))
		commands, repeated := s.next(s.Topics.Commands, seal.Next), s.Repeated
		s.again(a, commands, nil)
		if a.forgot {
			s.either[partition] += s.Repeated - repeated
			a.last, a.acts, a.forgot = "", nil, false
			s.Repeated = repeated
		}
		for a.refused >= maxVoid && len(a.commands) > 0 && a.commands[0].aside == 0 && a.commands[0].offset < commands {
			s.dropCommand(a, commands, nil)
		}
	}
	n, either := s.dropped[partition], s.either[partition]
	if seal.Dropped < n || seal.Dropped > n+either {
		s.report("transaction %d of partition %d says that it dropped %d inputs, and it dropped %d", seal.Transaction, partition, seal.Dropped, n)
	}
	s.Repeated += n + either - seal.Dropped
	s.Dropped += seal.Dropped
	s.dropped[partition], s.either[partition] = 0, 0
}

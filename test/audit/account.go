package audit

import (
	"bytes"
	"cmp"
	"math"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/proof"
	"github.com/waybill-dev/waybill/test/oracle"
)

// account is that of one order: the inputs that have led to nothing yet, each
// topic's in order.
type account struct {
	gone        bool // a schedule began it, or it is a home, and it is forgotten: nothing is left of it, or was for a while
	forgot      bool // the transaction that is read forgets it
	id          string
	partition   int32
	first       *submission // nil once it was decided
	came        int64       // see [Kafka.Came]
	born        uint64      // the transaction in which it was decided
	seen        uint64      // that of its first event
	submissions []another
	replies     []reply
	commands    []command
	signals     map[int64]*heard // by offset
	signal      int64            // the last of them that was decided on in its turn

	names   oracle.Names
	last    string    // the id of the last command that was dealt with
	acts    []act     // the last of those whose author is known
	held    bool      // deciding on it panicked, and nobody has released it
	waiting []waiting // the inputs that are held

	// What the next event must be about, if anything.
	released  *said
	at        place  // of what was released
	givesUp   bool   // the first input that waits was given up
	refusedTo string // the topic for which no status message can be

	// digest is that of the submission that made the order, and conflicted says that
	// another was recorded; discarded and refused count what changed nothing.
	digest             string
	conflicted         bool
	discarded, refused int
	putAside, unheard  int
	freed              *waiting // the submission that was released last

	kin kin // what it and others do for each other

	begun map[task]int    // the last attempt of each that began
	emits map[string]bool // steps that asked nobody, but gave a topic an event
	// runs are the attempts that began last; see [Kafka.InTime].
	runs map[task]Expiry
}

// entry is an input.
type entry struct {
	offset int64
	aside  uint64 // the fingerprint of the reason for which it was put aside, 0 if it was not
}

// another is a submission, the first of its order or a later one.
type another struct {
	entry
	digest, replyTo string
}

type reply struct {
	entry
	said    said
	written int64 // the record's time, in ms
	attrs   kgo.RecordAttrs
}

type command struct {
	entry
	told told
}

type waiting struct {
	place
	aside uint64
	reply *said // nil for a submission
	again another
}

// due says that the next event is not what the last one demands.
func (s *settlement) due(a *account, e *events.Event) {
	switch {
	case a.released != nil && a.released.progress && e.Source != a.at.String():
		a.released = nil // it moved nothing
	case a.released != nil && !answers(e):
		s.report("%s was released, and came to nothing: %s", a.at, a.released)
		a.released = nil
	case a.givesUp && e.Type != events.InputDiscarded:
		s.report("order %q: an operator gave up an input that waits, and %q followed", a.id, e.Type)
		a.givesUp = false
	case a.refusedTo != "" && (e.Type != events.StatusRefused || e.ReplyTo != a.refusedTo):
		s.report("order %q: its status messages were to go to %q, and do not", a.id, a.refusedTo)
	}
	a.refusedTo = ""
}

// answers says whether an event is what follows from a reply.
func answers(e *events.Event) bool {
	switch e.Type {
	case events.StepCompleted, events.StepRepeated, events.StepFailed, events.StepExtended, events.UndoCompleted, events.UndoFailed, events.UndoExtended, events.ReplyDiscarded:
		return true
	}
	return false
}

// task is a step, or its undo.
type task struct {
	step string
	undo bool
}

func taskOf(e *events.Event) task {
	return task{e.Step, strings.HasPrefix(string(e.Type), "waybill.undo.")}
}

// follows finds the input from which an event follows.
func (s *settlement) follows(a *account, e *events.Event) {
	if e.Actor != nil && !byOperator(e) && e.Type != events.OrderMigrated && (e.Type != events.OrderAccepted || e.Parent != "") {
		s.report("order %q: event %d, %s, names who signed, and follows from nothing that is signed", a.id, e.Seq, e.Type)
	}
	if s.kindred(a, e) {
		return
	}
	switch e.Type {
	case events.OrderAccepted, events.OrderRejected:
		s.decided(a, e)
	case events.StepStarted, events.UndoStarted:
		if a.begun == nil {
			a.begun = make(map[task]int)
		}
		a.begun[taskOf(e)] = e.Attempt
	case events.StepEmitting:
		if a.emits == nil {
			a.emits = make(map[string]bool)
		}
		a.emits[e.Step] = true
	case events.StepFailed, events.UndoFailed:
		if a.emits[e.Step] || a.kin.rounds[e.Step] > 0 || e.Error != nil && e.Error.Code == "event-refused" {
			break // no reply told of it
		}
		// One that could not even begin needs no reply.
		if a.begun[taskOf(e)] == e.Attempt || e.Error == nil || e.Error.Code != "request-refused" && e.Error.Code != "queue-expired" && e.Error.Code != "too-deep" && (e.Error.Code != "bad-expression" || e.Type == events.StepFailed) {
			s.replied(a, e)
		}
	case events.StepCompleted, events.StepRepeated, events.StepExtended, events.UndoCompleted, events.UndoExtended, events.ReplyDiscarded:
		if e.Type == events.StepCompleted && a.emits[e.Step] || e.Type != events.ReplyDiscarded && a.kin.rounds[e.Step] > 0 {
			break
		}
		s.replied(a, e)
	case events.OrderErrored:
		if e.Held {
			a.held = true
			s.Panicked++
		}
	case events.StepHeard, events.SignalKept, events.SignalExpired, events.SignalDiscarded, events.SignalGiven, events.SignalMatched, events.SignalOrdered, events.SignalStarted:
		if e.Type == events.StepHeard && s.wasPassed(a, e) {
			return
		}
		if e.Type == events.SignalMatched {
			s.wasHeard(a, e)
		}
		if e.Type == events.SignalStarted || e.Type == events.SignalDiscarded && e.Reason == events.SignalRejected {
			s.hasBegun(a, e)
		}
		if !s.signalled(a, e) {
			s.report("order %q: event %d, %s, is of %q, which is no signal", a.id, e.Seq, e.Type, e.Source)
		}
	case events.InputHeld, events.InputReleased, events.InputDiscarded:
		if !s.signalled(a, e) {
			s.kept(a, e)
		}
	case events.SubmissionConflicted:
		s.conflict(a, e)
	case events.OrderForgotten:
		if a.home() { // it may begin anew
			a.unheard, a.putAside, a.refused, a.gone = 0, 0, 0, true
			break
		}
		// Of what comes from here on it says nothing.
		a.discarded, a.refused, a.putAside, a.unheard = maxVoid, maxVoid, maxVoid, maxVoid
		a.gone, a.forgot = events.ScheduleOf(a.kin.parent) != "", true
		s.watch(a)
	default:
		if byOperator(e) {
			s.acted(a, e)
		}
	}
}

// attempted wants that no attempt expires whose reply was there in time. Of one that may
// have been dropped without an event nobody can say that it was not found late first.
func (s *settlement) attempted(a *account, e *events.Event, offset int64) {
	if s.InTime == nil {
		return
	}
	of := task{e.Step, e.Type == events.UndoStarted || e.Type == events.UndoExpired || e.Type == events.UndoExtended || e.Type == events.UndoFailed}
	switch e.Type {
	case events.StepFailed, events.UndoFailed:
		if x, asked := a.runs[of]; asked && e.Attempt > x.attempt { // of this one nobody was asked, and the one before is over
			x.attempt = e.Attempt
			a.runs[of] = x
		}
	case events.StepStarted, events.UndoStarted:
		if a.runs == nil {
			a.runs = make(map[task]Expiry)
		}
		x := Expiry{Partition: a.partition, Started: offset, End: e.Expires, attempt: e.Attempt, agent: e.Agent, proof: e.Proof}
		if x.End.IsZero() {
			x.End = e.CompleteBy
		}
		a.runs[of] = x
		if e.Proof != "" && s.format[a.partition] < events.ProofFormat {
			s.report("order %q: event %d says of a token in format %d", a.id, e.Seq, s.format[a.partition])
		}
	case events.StepExtended, events.UndoExtended:
		x := a.runs[of]
		if x.End = e.Expires; x.End.IsZero() {
			x.End = e.CompleteBy
		}
		a.runs[of] = x
	case events.StepExpired, events.UndoExpired:
		x := a.runs[of]
		x.Expired = offset
		for _, in := range a.replies {
			if in.aside != 0 || in.said.progress || a.full(&in) || in.said.step != e.Step || in.said.attempt != e.Attempt || in.said.undo != of.undo || s.forged(a, &in.said) {
				continue
			}
			at := s.at(a, s.Topics.Replies, in.entry)
			r := &kgo.Record{Topic: at.topic, Partition: at.partition, Offset: at.offset, Timestamp: time.UnixMilli(in.written), Attrs: in.attrs}
			if s.InTime(r, &x) {
				s.report("%s is %s, and was there in time; by event %d of order %q the attempt expired all the same", at, &in.said, e.Seq, a.id)
			}
		}
	}
}

// forged says whether a reply to the last attempt does not repeat the token of its request,
// and must.
func (s *settlement) forged(a *account, r *said) bool {
	x, asked := a.runs[task{r.step, r.undo}]
	return asked && s.Keys != nil && x.proof == events.ProofRequire && x.attempt == r.attempt && !s.Keys.Repeats(&proof.Attempt{
		Namespace: s.Topics.Namespace, Order: a.id, Step: r.step, Number: r.attempt, Undo: r.undo, Agent: x.agent,
	}, r.token)
}

// decided holds the acceptance or the rejection of an order against the first
// submission of it.
func (s *settlement) decided(a *account, e *events.Event) {
	if a.born > 0 {
		s.report("order %q: event %d is %s, and it was decided before", a.id, e.Seq, e.Type)
		return
	}
	in, first := a.submissions[0], a.first
	a.submissions, a.first, a.born = a.submissions[1:], nil, s.transaction[a.partition]
	at := s.at(a, s.Topics.Orders, in.entry)
	if a.digest = e.Digest; a.digest != in.digest && (a.digest != "" || s.format[a.partition] >= 2 && in.aside == 0) {
		s.report("%s has the digest %q, and its order %q", at, in.digest, a.digest)
	}
	switch {
	case in.aside != 0:
		s.Panicked++
		if e.Type != events.OrderRejected || in.aside != hash([]byte(e.Reason)) || !undecidable(e.Reason) {
			s.report("%s was put aside, and led to %s: %s", at, e.Type, e.Reason)
		}
	case e.Type == events.OrderRejected:
		s.Rejected++
		s.rejected(at, first, e)
	default:
		s.Accepted++
		s.accepted(a, at, first, e)
	}
}

// undecidable says that by a reason nothing can be decided on what was put aside for it.
func undecidable(reason string) bool {
	return strings.Contains(reason, "panicked") || strings.HasPrefix(reason, "Kafka refuses what follows from it")
}

// replied holds what followed from a reply against it.
func (s *settlement) replied(a *account, e *events.Event) {
	at, said, aside := a.at, a.released, uint64(0)
	if said == nil {
		s.passReplies(a, func(r *reply) bool {
			if r.said.progress {
				return e.Source != s.at(a, s.Topics.Replies, r.entry).String()
			}
			return !r.came(e) || s.forged(a, &r.said) && e.Reason != events.DiscardForged
		})
		if len(a.replies) == 0 {
			s.report("order %q: event %d, %s %s, came from no reply", a.id, e.Seq, e.Type, e.Step)
			return
		}
		first := a.replies[0]
		a.replies = a.replies[1:]
		at, said, aside = s.at(a, s.Topics.Replies, first.entry), &first.said, first.aside
	}
	a.released = nil
	known := s.format[a.partition] >= events.ProofFormat
	if known && e.Source != at.String() || !known && e.Source != "" {
		s.report("%s led to event %d of order %q, which says %q", at, e.Seq, a.id, e.Source)
	}
	if e.AnsweredBy != said.sender && (known || e.AnsweredBy != "") {
		s.report("%s is by %q, and led to event %d of order %q, %s, by %q", at, said.sender, e.Seq, a.id, e.Type, e.AnsweredBy)
	}
	if forged := s.forged(a, said); s.Keys != nil && forged != (e.Reason == events.DiscardForged) {
		s.report("%s is %s, forged: %t, and led to event %d of order %q, %s (%s)", at, said, forged, e.Seq, a.id, e.Type, e.Reason)
	}
	switch {
	case aside != 0:
		s.report("%s was put aside, and led to event %d of order %q, %s", at, e.Seq, a.id, e.Type)
	case e.Type == events.ReplyDiscarded:
		s.Discarded++
		a.discarded = max(a.discarded, e.Count)
		s.watch(a)
		if e.Step != cut(said.step, nameLength) || e.Attempt != max(said.attempt, 0) || e.ToUndo != said.undo {
			s.report("%s is %s, and what was discarded is step %s, attempt %d, undo: %t", at, said, e.Step, e.Attempt, e.ToUndo)
		}
	default:
		s.Replied++
		undo := strings.HasPrefix(string(e.Type), "waybill.undo.")
		if e.Step != said.step || e.Attempt != said.attempt || undo != said.undo {
			s.report("%s is %s, and led to %s %s, attempt %d", at, said, e.Type, e.Step, e.Attempt)
		} else if other := said.other(e); other != "" {
			s.report("%s is %s, and led to event %d of order %q, %s, with %s", at, said, e.Seq, a.id, e.Type, other)
		}
	}
}

// other says what an event has that its reply has not.
func (a *said) other(e *events.Event) string {
	completed := e.Type == events.StepCompleted || e.Type == events.StepRepeated || e.Type == events.UndoCompleted
	extended := e.Type == events.StepExtended || e.Type == events.UndoExtended
	switch {
	case a.progress || extended:
		if a.progress != extended && e.Type != events.ReplyDiscarded {
			return "another status"
		}
		return ""
	case e.Type == events.StepFailed && a.fault == nil && e.Error != nil && (e.Error.Code == "until-not-met" || e.Error.Code == "bad-until") && e.Error.Permanent:
		if e.Output != nil && hash(e.Output) != a.output {
			return "another output"
		}
		return "" // what the step is done for does not hold
	case e.Type == events.StepFailed && a.large && e.Error != nil && e.Error.Code == "output-refused" && e.Error.Permanent:
		return "" // it is nested too deeply, or does not fit
	case completed != (a.fault == nil):
		return "another status"
	case completed && hash(e.Output) != a.output:
		return "another output"
	case completed:
	case e.Error == nil:
		return "no error"
	case a.fault.Code == "reply-too-large" && a.fault.Message == "" && e.Error.Code == a.fault.Code && e.Error.Permanent:
	case e.Uncounted && a.fault.Code == "unknown-operation" && e.Error.Code == a.fault.Code && e.Error.Message == a.fault.Message && !e.Error.Permanent: // it is asked again
	case *e.Error != *a.fault:
		return "another error: " + e.Error.Text()
	}
	return ""
}

// kept follows an input that is held.
func (s *settlement) kept(a *account, e *events.Event) {
	at, err := parsePlace(e.Source)
	if err != nil {
		s.report("order %q: event %d: %v", a.id, e.Seq, err)
		return
	}
	if e.Type != events.InputHeld && len(a.waiting) > 0 && a.waiting[0].place == at {
		first := a.waiting[0]
		a.waiting = a.waiting[1:]
		s.dealtWith(a, first, e)
		return
	}
	in, ok := s.take(a, at)
	switch {
	case !ok:
		s.report("order %q: event %d, %s, is about %s, whose turn it is not", a.id, e.Seq, e.Type, at)
	case e.Type == events.InputReleased:
		s.report("order %q: event %d releases %s, which was not held", a.id, e.Seq, at)
	case e.Type == events.InputDiscarded:
		s.discarded(a, in, e)
	default:
		m := kept(e.Raw, at, s.Topics)
		if m.order != a.id || (in.reply == nil) != (m.reply == nil) || in.reply != nil && !m.reply.same(in.reply) {
			s.report("%s is held, and not as it is: %s", at, cmp.Or(m.unreadable, "it says something else"))
		}
		if e.Raw != nil && in.reply != nil && in.reply.token != "" && bytes.Contains(e.Raw.Value, []byte(in.reply.token)) {
			s.report("%s is held, and its token is in the journal", at)
		}
		a.waiting = append(a.waiting, in)
	}
}

// same says whether two replies say the same.
func (a *said) same(as *said) bool {
	x, y := *a, *as
	x.fault, y.fault, x.token, y.token = nil, nil, "", "" // that of one which waits is hidden
	return x == y && (a.fault == nil) == (as.fault == nil) && (a.fault == nil || *a.fault == *as.fault)
}

// take takes an input whose turn it is. Submissions before it changed nothing.
func (s *settlement) take(a *account, at place) (waiting, bool) {
	if at.partition != a.partition {
		return waiting{}, false
	}
	switch at.topic {
	case s.Topics.Orders:
		if a.born == 0 {
			return waiting{}, false
		}
		s.pass(a, at.offset)
		if len(a.submissions) > 0 && a.submissions[0].offset == at.offset {
			first := a.submissions[0]
			a.submissions = a.submissions[1:]
			return waiting{at, first.aside, nil, first}, true
		}
	case s.Topics.Replies:
		s.passReplies(a, func(r *reply) bool { return r.offset < at.offset })
		if len(a.replies) > 0 && a.replies[0].offset == at.offset {
			first := a.replies[0]
			a.replies = a.replies[1:]
			return waiting{at, first.aside, &first.said, another{}}, true
		}
	}
	return waiting{}, false
}

// dealtWith follows the input that has waited longest.
func (s *settlement) dealtWith(a *account, first waiting, e *events.Event) {
	if a.held {
		s.report("order %q is held, and event %d is %s of %s", a.id, e.Seq, e.Type, first.place)
	}
	if e.Type == events.InputDiscarded {
		if given := strings.HasPrefix(e.Reason, "given up by an operator: "); given != a.givesUp {
			s.report("%s waited, and was discarded: %s", first.place, e.Reason)
		}
		a.givesUp = false
		s.discarded(a, first, e)
		return
	}
	if first.aside != 0 {
		s.report("%s was put aside, and released", first.place)
	}
	switch a.released, a.at = first.reply, first.place; {
	case first.reply != nil:
	case a.conflicted && a.digest != "" && a.digest != first.again.digest:
		s.dropped[a.partition]++
	default:
		s.Known++ // the order was there before it
		a.freed = &first
	}
}

// discarded wants a dead letter that says the same.
func (s *settlement) discarded(a *account, in waiting, e *events.Event) {
	a.putAside = max(a.putAside, e.Count)
	s.watch(a)
	if in.aside != hash([]byte(e.Reason)) {
		s.report("%s was discarded, and no dead letter says so: %s", in.place, e.Reason)
	}
	if strings.Contains(e.Reason, "panicked") {
		s.Panicked++
	}
}

// byOperator says whether an event is what a command left.
func byOperator(e *events.Event) bool {
	switch e.Type {
	case events.OrderPaused, events.OrderResumed, events.OrderLabelled, events.OrderReleased, events.OrderTerminated, events.OrderChanged, events.StepPaced, events.StepDecided, events.OrderResubmitted, events.UndoSkipped, events.CommandRefused,
		events.ScheduleApplied, events.ScheduleDeleted, events.SchedulePaused, events.ScheduleResumed, events.ScheduleBackfilled, events.LimitApplied, events.LimitDeleted:
		return true
	case events.OrderMigrated:
		return e.Operation == "" // else another act is behind it, which follows
	case events.OrderCompensating:
		return e.End == "Cancelled" && !superseded(e)
	case events.StepSkipped:
		return !strings.HasPrefix(e.Reason, "when: ") || e.By != "" || e.Command != ""
	}
	return false
}

// acted holds what an operator did against the command that asked for it.
func (s *settlement) acted(a *account, e *events.Event) {
	if a.born == 0 { // it is applied
		a.born = s.transaction[a.partition]
		for len(a.commands) > 0 && a.commands[0].aside != 0 { // deciding on it panicked, and there was no schedule to be held
			a.commands = a.commands[1:]
		}
	}
	if e.Type == events.OrderReleased || e.Type == events.OrderTerminated {
		a.held = false
	}
	s.again(a, s.next(s.Topics.Commands, s.behind[a.partition]), nil) // what transactions before have passed led to nothing
	s.again(a, math.MaxInt64, e)
	for a.refused >= maxVoid && len(a.commands) > 0 && a.commands[0].aside == 0 && (a.commands[0].told.other(e) != "" || a.refusedAside(e)) {
		s.dropCommand(a, math.MaxInt64, e)
	}
	if len(a.commands) == 0 {
		s.report("order %q: event %d, %s of command %q, came from no command", a.id, e.Seq, e.Type, e.Command)
		return
	}
	c := a.commands[0]
	a.commands = a.commands[1:]
	at := s.at(a, s.Topics.Commands, c.entry)
	if c.told.id != "" {
		a.last = c.told.id
	}
	a.givesUp = e.Type == events.OrderReleased && c.told.discard
	if other := c.told.other(e); other != "" {
		s.report("%s is %s, and led to event %d of order %q, %s of command %q, with %s", at, &c.told, e.Seq, a.id, e.Type, e.Command, other)
	}
	s.signed(a, at, c.told.signature, e)
	if e.Actor != nil {
		a.act(&c.told)
	}
	if e.Type == events.CommandRefused { // put aside or not: it counts
		a.refused = max(a.refused, e.Count)
		s.watch(a)
	}
	switch {
	case c.aside != 0:
		s.Panicked++
		if e.Type != events.CommandRefused || c.aside != hash([]byte(e.Reason)) {
			s.report("%s was put aside, and led to event %d of order %q, %s: %s", at, e.Seq, a.id, e.Type, e.Reason)
		}
	case e.Type == events.CommandRefused:
		s.Refused++
	default:
		s.Acted++
	}
}

// again passes over commands up to an offset that came again: right after themselves, or as one of the last whose author is
// known, unless they led to the event, if there is one. Of an order that has refused enough one of them may have been dropped: as
// another under the same id, or since its signature is too old.
func (s *settlement) again(a *account, to int64, e *events.Event) {
	for len(a.commands) > 0 && a.commands[0].aside == 0 && a.commands[0].offset < to {
		next := &a.commands[0].told
		known, another := s.knows(a, next)
		switch last := a.last != "" && next.id == a.last; {
		case !last && !known, e != nil && known && !last && s.ledTo(a, next, e), e != nil && another && e.Actor != nil && next.other(e) == "":
			return
		}
		a.commands = a.commands[1:]
		if a.refused >= maxVoid && (known || another) {
			s.either[a.partition]++
		} else {
			s.Repeated++
		}
	}
}

// does is what commands lead to.
var does = map[events.Type]string{
	events.OrderCompensating:  events.CommandCancel,
	events.OrderResubmitted:   events.CommandResubmit,
	events.StepSkipped:        events.CommandSkipStep,
	events.UndoSkipped:        events.CommandSkipStep,
	events.OrderPaused:        events.CommandPause,
	events.OrderResumed:       events.CommandResume,
	events.OrderLabelled:      events.CommandLabel,
	events.OrderReleased:      events.CommandRelease,
	events.OrderChanged:       events.CommandChange,
	events.StepPaced:          events.CommandChange,
	events.OrderMigrated:      events.CommandMigrate,
	events.OrderTerminated:    events.CommandTerminate,
	events.StepDecided:        events.CommandDecide,
	events.ScheduleApplied:    events.CommandApply,
	events.LimitApplied:       events.CommandApply,
	events.LimitDeleted:       events.CommandDelete,
	events.ScheduleDeleted:    events.CommandDelete,
	events.ScheduleBackfilled: events.CommandBackfill,
	events.SchedulePaused:     events.CommandPause,
	events.ScheduleResumed:    events.CommandResume,
}

// other says what an event has that its command has not.
func (c *told) other(e *events.Event) string {
	note := c.note
	if note == "" && e.Type == events.OrderCompensating {
		note = "cancelled by an operator"
	}
	named := e.Type == events.StepSkipped || e.Type == events.StepDecided || e.Type == events.UndoSkipped || e.Type == events.CommandRefused
	switch {
	case e.Command != c.id:
		return "another id"
	case e.By != c.by:
		return "another author"
	case e.Type == events.CommandRefused && e.Operation != c.do, e.Type != events.CommandRefused && does[e.Type] != c.do:
		return "another act"
	case e.Type == events.CommandRefused && e.Reason == "", e.Type != events.CommandRefused && e.Reason != note:
		return "another reason: " + e.Reason
	case named && e.Step != c.step, e.Type == events.OrderResubmitted && c.step != "" && e.Step != c.step:
		return "another step: " + e.Step
	case e.Type == events.OrderResubmitted && e.Step != "" && c.step == "" && c.input == 0:
		return "a step"
	case e.Type == events.OrderResubmitted && hash(e.Input) != c.input:
		return "another input"
	case e.Type == events.OrderResubmitted && (e.SameKey != c.sameKey || e.NewKey && !c.newKey || c.newKey && e.Kept != nil):
		return "another key"
	case e.Type == events.OrderChanged && (c.priority != "" && e.Priority != c.priority || !c.deadline.IsZero() && !e.Deadline.Equal(c.deadline) || c.noDeadline && !e.Deadline.IsZero()):
		return "another change"
	case e.Type == events.OrderMigrated && (e.Version != c.version || !renames(e.Renamed, c.names)):
		return "another version, or other names"
	case (e.Type == events.StepDecided || e.Type == events.CommandRefused) && e.Outcome != c.outcome:
		return "another outcome"
	case e.Type == events.StepSkipped && hash(e.Output) != c.output:
		return "another output"
	case e.Type == events.OrderLabelled && !changed(c.labels, e.Labels):
		return "other labels"
	}
	return ""
}

// renames says whether an order calls its steps as was wanted; that some keep their names need not be said.
func renames(renamed, names map[string]string) bool {
	for old, name := range names {
		if old != name && renamed[name] != old {
			return false
		}
	}
	for name, old := range renamed {
		if names[old] != name {
			return false
		}
	}
	return true
}

// changed says whether an order has labels that were to be set, and none of those to be removed.
func changed(labels map[string]*string, has map[string]string) bool {
	for name, value := range labels {
		if is, there := has[name]; there != (value != nil) || there && is != *value {
			return false
		}
	}
	return true
}

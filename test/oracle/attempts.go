package oracle

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// step takes the events of a step itself.
func (l *Ledger) step(e *events.Event, s *Step) {
	w := &s.Work
	l.remains(e, s)
	switch e.Type {
	case events.StepStarted:
		l.mayDo(e, s)
		l.start(e, s, w, false)
	case events.StepEmitting:
		l.mayDo(e, s)
		l.emits(e, s)
	case events.StepSleeping:
		l.sleeps(e, s)
	case events.StepWoke:
		l.wakesUp(e, s)
	case events.StepListening:
		l.listens(e, s)
	case events.StepHeard:
		l.hears(e, s)
	case events.StepApproving:
		l.approves(e, s)
	case events.StepDecided:
		l.decides(e, s)
	case events.StepReminded:
		l.reminds(e, s)
	case events.StepTimedOut:
		l.timesOut(e, s)
	case events.StepOrdered:
		l.orders(e, s)
	case events.StepItemized:
		l.itemize(e, s)
	case events.StepPaced:
		l.paced(e, s)
	case events.StepRecalled:
		l.recalls(e, s)
	case events.StepPassed:
		l.passesOn(e, s)
	case events.StepRepeated:
		l.repeats(e, s)
	case events.StepRaised:
		l.raises(e, s)
	case events.StepCompleted:
		l.ends(e, w)
		l.told(e, s)
		l.itemsEnded(e, s)
		l.enough(e, s)
		w.end(completed)
		w.Last, s.Output, s.MayHaveRun = nil, e.Output, false
	case events.StepFailed:
		switch w.State {
		case listening:
			l.rule("S2", s.Listens.Key != "" && e.Attempt == s.Attempt && e.Error != nil && e.Error.Code == events.TooManyWaits && e.Error.Permanent && strings.Contains(e.Source, ".internal/"), "it listens under %q, and fails with %+v", s.Listens.Key, e.Error)
		case running:
			l.rule("S3", !s.Emits || e.Error == nil || e.Error.Code == eventRefused, "nobody but its topic can refuse the event, and its error is %+v", e.Error)
			l.ends(e, w)
			l.told(e, s)
			l.itemsEnded(e, s)
			l.inVain(e, s)
		default: // it could not even begin
			l.mayDo(e, s)
			l.cannotBegin(e, s, w, false)
		}
		l.fails(e, w, failed)
		if e.Output != nil {
			s.Output = e.Output
		}
		s.MayHaveRun = s.MayHaveRun || l.untold(e)
	case events.StepExpired:
		l.ends(e, w)
		l.rule("V2", s.Child == nil && s.Items == nil, "other orders do it, and are recalled")
		l.fails(e, w, expired)
		s.MayHaveRun = true
	case events.StepExtended:
		l.extends(e, w)
	case events.StepRetried:
		l.rule("C1", l.Toward == "" && l.failure == nil, "the order is being compensated, or has failed: %+v", l.failure)
		l.retry(e, s, w)
	case events.StepSkipped:
		l.rule("C1", l.Toward == "", "the order is being compensated")
		l.rule("P3", w.State == notStarted || w.State == sleeping || w.State == listening || w.State == repeating || w.broken(), "it is %s", w.State)
		if byWorkflow(e) {
			l.goesOn()
			l.passes(e, s)
		} else {
			l.rule("P3", s.def == nil || s.def.Approve == nil, "people decide it")
			l.locks(e)
		}
		w.end(skipped)
		s.Output = e.Output
		l.relieve(e)
	default:
		l.rule("P4", false, "nobody knows this event")
	}
}

// byWorkflow says that it was a step's condition that passed over it, and no
// operator.
func byWorkflow(e *events.Event) bool {
	return strings.HasPrefix(e.Reason, "when: ") && e.By == "" && e.Command == ""
}

// passes: the workflow passes over a step whose turn has come, and whose
// condition is false.
func (l *Ledger) passes(e *events.Event, s *Step) {
	l.rule("S1", s.State == notStarted, "it is %s", s.State)
	l.rule("S1", e.Output == nil && e.LockedBy == "", "it has the output %s, and is locked by %q", e.Output, e.LockedBy)
	if s.def != nil {
		l.rule("S1", s.def.When != "" && e.Reason == "when: "+s.def.When && s.Input == nil && l.ready(s), "nothing in the workflow asks for it")
		runs, err := l.runsNow(s)
		l.rule("S1", err == nil && !runs || errors.Is(err, errUnjudged), "its condition %q holds: %t, %v", s.def.When, runs, err)
	}
}

// runsNow evaluates the condition of a step that is to begin. Who gives it an
// input wants it to run.
func (l *Ledger) runsNow(s *Step) (bool, error) {
	if s.def == nil || s.def.When == "" || s.State != notStarted || s.Input != nil {
		return true, nil
	}
	return l.holds(s.def.When)
}

// given evaluates what an attempt's agent is to get, nil where the workflow does
// not say.
func (l *Ledger) given(s *Step, w *Work, undo bool) ([]byte, error) {
	if w.Input != nil {
		return nil, nil
	}
	switch {
	case !undo && s.def.Approve != nil && s.def.Approve.Show != "":
		return l.value(s.def.Approve.Show)
	case !undo && s.def.Emit != nil && s.def.Emit.Data != "":
		return l.value(s.def.Emit.Data)
	case !undo && s.def.Each != nil && s.def.Each.Items.Agent == nil:
		return l.list(s.def.Each.Items.List)
	case !undo && s.def.Each != nil && s.def.Each.Items.Agent.With != "":
		return l.value(s.def.Each.Items.Agent.With)
	case !undo && s.def.With != "":
		return l.value(s.def.With)
	case undo && s.def.UndoWith != "":
		if s.undoing().Done == 0 && (s.State == completed || s.MayHaveRun) {
			return l.value(s.def.UndoWith)
		}
		// As the step was under the key of before: nobody answered.
		now := s.Work
		output := s.Output
		s.State, s.Output, s.Input = expired, nil, s.undone().Input
		defer func() { s.Work, s.Output = now, output }()
		return l.value(s.def.UndoWith)
	}
	return nil, nil
}

// inputOf is what the step works on.
func (l *Ledger) inputOf(s *Step) jsontext.Value {
	if s.Input != nil {
		return s.Input
	}
	return l.accepted.Input
}

// undo takes the events of a step's undo.
func (l *Ledger) undo(e *events.Event, s *Step) {
	if s.Undo == nil {
		s.Undo = &Work{State: notStarted}
	}
	w := s.Undo
	l.remains(e, s)
	switch e.Type {
	case events.UndoStarted:
		l.mayUndo(s)
		want := s.undone().Outcome
		l.rule("C1", e.Outcome == want, "its outcome is %q, and must be %q", e.Outcome, want)
		l.start(e, s, w, true)
		w.single = w.single || l.Format < events.KeysFormat
	case events.UndoOrdered:
		l.ordersUndo(e, s, w)
	case events.UndoCompleted:
		l.ends(e, w)
		l.told(e, s)
		l.itemsUndone(e, s)
		w.Last, w.Doubtful = nil, false
		if w.Done++; w.Done < len(s.acts()) { // the next is another matter
			w.end(notStarted)
			w.Tried, w.NotKnown, w.Round, w.Resubmissions, w.Input, w.renewed = 0, 0, 0, 0, nil, true
			return
		}
		w.end(completed)
		w.Done, s.State = 0, undone
	case events.UndoFailed:
		if w.State != running { // it could not even begin
			l.mayUndo(s)
			l.cannotBegin(e, s, w, true)
		} else {
			l.ends(e, w)
			l.told(e, s)
			l.itemsUndone(e, s)
		}
		l.fails(e, w, failed)
		w.Doubtful = w.Doubtful || l.untold(e)
	case events.UndoExpired:
		l.ends(e, w)
		l.rule("V2", s.Child == nil, "order %+v does it, and takes as long as it takes", s.Child)
		l.fails(e, w, expired)
		w.Doubtful = l.keyed
	case events.UndoExtended:
		l.extends(e, w)
	case events.UndoRetried:
		l.retry(e, s, w)
	case events.UndoSkipped:
		l.locks(e)
		l.rule("C1", l.Toward != "", "nothing is being undone")
		l.rule("C3", s.Ran(), "the step did not run")
		l.rule("C3", s.def == nil || s.def.undoes(), "the step has no undo")
		l.rule("P3", w.State == notStarted || w.broken(), "it is %s", w.State)
		w.end(skipped)
		l.relieve(e)
	default:
		l.rule("P4", false, "nobody knows this event")
	}
}

// mayDo holds where a step begins, or would.
func (l *Ledger) mayDo(e *events.Event, s *Step) {
	l.rule("C1", l.Toward == "" && l.failure == nil, "the order is being compensated, or has failed: %+v", l.failure)
	l.rule("S1", !l.queued(), "the order waits for its turn")
	l.rule("S1", l.flow == nil || l.ready(s), "what it comes after is not done")
	l.rule("V5", l.Doubted || l.Deadline.IsZero() || e.At.Before(l.Deadline), "the order's deadline %v has passed", l.Deadline)
}

// cannotBegin holds for an attempt that failed before it began.
func (l *Ledger) cannotBegin(e *events.Event, s *Step, w *Work, undo bool) {
	l.goesOn()
	l.begins(e, w)
	w.prevented = l.prevented(e, s, w, undo)
	w.Attempt = e.Attempt
}

// ready says whether all that the step comes after is done.
func (l *Ledger) ready(s *Step) bool {
	return !slices.ContainsFunc(s.def.After, func(name string) bool { return !l.Step(name).passed() })
}

// begins holds for every attempt: none runs, numbers have no gap, and a
// failure's retry has been armed and is due.
func (l *Ledger) begins(e *events.Event, w *Work) {
	l.free(e, w)
	l.rule("V4", e.Attempt == w.Attempt+1, "attempt %d follows %d", e.Attempt, w.Attempt)
}

func (l *Ledger) free(e *events.Event, w *Work) {
	l.rule("T5", w.State == notStarted || w.State == repeating || w.broken(), "it is %s", w.State)
	l.rule("V3", !w.broken() || w.waitsForPlace() || !w.Due.IsZero() && !e.At.Before(w.Due), "the last attempt %s, and the next is due at %v", w.State, w.Due)
}

func (l *Ledger) start(e *events.Event, s *Step, w *Work, undo bool) {
	l.goesOn()
	l.begins(e, w)
	l.rule("T5", e.LockedBy != "", "nobody has locked the order")
	l.rule("S1", s.def == nil || s.def.Limit == nil || slices.ContainsFunc(l.Turns, func(t Turn) bool { return t.Number == w.Turn && isLimit(t.Home, s.def.Limit.Name) }), "it is under limit %+v, and asked for no place", s.def)
	emits := e.Type == events.StepEmitting
	l.rule("S3", (e.Agent != "" && e.Operation != "") != emits, "agent %q is asked to %q", e.Agent, e.Operation)
	want := w.Key
	if want == "" || w.renewed {
		want = l.key(s, undo, w.Resubmissions)
	}
	l.rule("A3", e.IdempotencyKey == want, "its key is %q, and must be %q", e.IdempotencyKey, want)
	l.rule("S2", l.Doubted || e.CompleteBy.After(e.At), "its complete-by is %v", e.CompleteBy)
	l.rule("S2", e.Expires.IsZero() || e.Expires.After(e.CompleteBy), "it expires at %v", e.Expires)
	if def := s.def; def != nil {
		operation := def.Do
		completeBy := e.At.Add(time.Duration(def.Timeout.After))
		if undo {
			operation = def.Undo
		} else if !l.Deadline.IsZero() && l.Deadline.Before(completeBy) {
			completeBy = l.Deadline
		}
		l.rule("S3", e.Agent == def.Agent && e.Operation == operation, "agent %s is asked to %s", e.Agent, e.Operation)
		l.rule("S3", emits == (def.Emit != nil) && (!emits || e.Topic == def.Emit.Topic && e.EventType == def.Emit.Type), "topic %s is given an event of type %s", e.Topic, e.EventType)
		l.rule("S2", e.CompleteBy.Equal(events.Time(completeBy)), "its complete-by is %v, and must be %v", e.CompleteBy, completeBy)
		l.rule("V5", w.Tried < def.Retry.Attempts || s.armed, "%d attempts of this round failed, of %d", w.Tried, def.Retry.Attempts)
		l.rule("S2", e.ExtendTo.Equal(l.extendTo(e, def, undo)), "its complete-by may be moved to %v", e.ExtendTo)
		l.asked(e, s, w, undo)
	}
	if w.ExtendTo = e.ExtendTo; !e.ExtendTo.IsZero() {
		w.Timeout = e.CompleteBy.Sub(events.Time(e.At)) // the deadline has not cut it
	}
	w.State, w.Attempt, w.Key, w.Unanswered, w.prevented, w.renewed = running, e.Attempt, e.IdempotencyKey, false, "", false
	w.CompleteBy, w.Expires, w.Due = e.CompleteBy, e.Expires, time.Time{}
	w.Proof, w.Agent = e.Proof, ""
	if e.Proof != "" {
		w.Agent = e.Agent
	}
	if e.Input != nil {
		l.rule("S3", w.Input == nil, "its input was recorded before")
		w.Input = e.Input
	}
}

// asked: the attempt's step is to run, and its agent gets what the workflow says.
func (l *Ledger) asked(e *events.Event, s *Step, w *Work, undo bool) {
	if !undo {
		runs, err := l.runsNow(s)
		l.rule("S1", err == nil && runs || errors.Is(err, errUnjudged), "its condition %q holds: %t, %v", s.def.When, runs, err)
	}
	want, err := l.given(s, w, undo)
	if errors.Is(err, errUnjudged) {
		return
	}
	l.rule("S3", err == nil, "what its agent is to get: %v", err)
	l.rule("S3", (want == nil) == (e.Input == nil), "its input is %s, and must be %s", e.Input, want)
	if want != nil {
		got, err := canonical(e.Input)
		l.rule("S3", err == nil && bytes.Equal(got, want), "its input is %s, and must be %s", e.Input, want)
	}
}

// requestRefused is the code of an attempt whose request Kafka would not take: it may
// do so later.
const requestRefused = "request-refused"

// queueExpired is the code of an attempt whose agent could not be asked for as long as
// it may wait.
const queueExpired = "queue-expired"

// prevented: an attempt could not even begin. Kafka would not take its request, or its
// agent could not be asked for too long, which are on trust, or one of its expressions fails.
func (l *Ledger) prevented(e *events.Event, s *Step, w *Work, undo bool) Cause {
	fault := e.Error
	if fault != nil && (fault.Code == events.UnknownLimit || fault.Code == events.TooManyWaiting) {
		l.rule("A5", w.waitsForPlace() && fault.Permanent && strings.Contains(e.Source, ".internal/"), "it waits for no place, and its error is %+v, of %q", fault, e.Source)
		return ByLimit
	}
	l.rule("A5", fault != nil && fault.Permanent == (fault.Code == "bad-expression") && fault.Step == s.Name, "it did not run, and its error is %+v", fault)
	if fault == nil {
		return ""
	}
	var err error
	runs := true
	if s.def != nil {
		if !undo {
			runs, err = l.runsNow(s)
		}
		switch {
		case err != nil || !runs:
		case s.def.Sleep != nil:
			_, _, err = l.wakes(s, e.At)
		case s.def.Raise != nil:
			_, err = l.says(s)
		case s.def.Key != "":
			_, err = l.waitKey(s)
		case s.def.Limit != nil && w.Turn == 0 && s.def.Limit.Key != "":
			_, err = l.turnKey(s)
		case s.def.Emit != nil:
			if _, err = l.emittedKey(s); err == nil || errors.Is(err, errUnjudged) {
				_, err = l.given(s, w, undo)
			}
		default:
			_, err = l.given(s, w, undo)
		}
	}
	switch unjudged := s.def == nil || errors.Is(err, errUnjudged); fault.Code {
	case requestRefused, queueExpired, eventRefused:
		l.rule("S3", err == nil && runs || unjudged, "it was not to be asked for: it is to run: %t, %v", runs, err)
		l.rule("S3", s.def == nil || (fault.Code == eventRefused) == (s.def.Emit != nil), "it emits, or asks an agent, and its error is %+v", fault)
		if fault.Code != queueExpired {
			return ByRefusal
		}
		l.rule("V2", w == &s.Work && (s.def == nil || s.def.Queue > 0 && !w.Due.IsZero() && !e.At.Before(w.Due.Add(time.Duration(s.def.Queue)))), "it waits since %v, and may for longer", w.Due)
		return ByWaiting
	case "too-deep":
		l.rule("S4", w == &s.Work && (s.def == nil || s.def.Order != nil || s.def.Each != nil) && l.accepted.Depth >= 8, "%d orders are above it", l.accepted.Depth)
		return ByDepth
	case "bad-expression":
		// What the journal takes is not known here.
		tooMuch := s.def != nil && s.def.Approve != nil && strings.Contains(fault.Message, "what is shown cannot be recorded")
		l.rule("S4", err != nil || tooMuch || unjudged, "none of its expressions fails")
		return ByExpression
	}
	l.rule("A5", false, "it did not run, and its error is %+v", fault)
	return ""
}

// key is a new key of a step's requests, or of its undo's, as docs/messages.md
// spells them.
func (l *Ledger) key(s *Step, undo bool, resubmissions int) string {
	numbered := func(key string, n int) string {
		if n > 0 {
			key = fmt.Sprintf("%s:%d", key, n+1)
		}
		return key
	}
	key := l.Order + "/" + s.Known
	if s.Repeats > 0 && !undo {
		key += fmt.Sprintf(":r%d", s.Repeats+1)
	}
	if !undo {
		return numbered(key, resubmissions)
	}
	if l.Format >= events.KeysFormat {
		key = numbered(key, s.undone().Resubmissions)
	}
	return numbered(key+":undo", resubmissions)
}

// ends holds for every end of an attempt.
func (l *Ledger) ends(e *events.Event, w *Work) {
	l.rule("S2", w.State == running && e.Attempt == w.Attempt, "attempt %d ends, and attempt %d is %s", e.Attempt, w.Attempt, w.State)
}

func (l *Ledger) fails(e *events.Event, w *Work, state string) {
	l.rule("A5", e.Error != nil, "it has no error")
	l.rule("V2", state != expired || !e.At.Before(w.ends()), "it had time until %v", w.ends())
	if e.Error == nil {
		return
	}
	l.rule("V2", state != expired || e.Error.Code == "expired" && !e.Error.Permanent, "its error is %+v", e.Error)
	w.end(state)
	w.Last, w.Unanswered = e.Error, state == expired
	fault := *e.Error
	fault.Attempt = e.Attempt
	w.Errors = append(w.Errors, fault)
	asksAgain := l.asksAgain(e, w, state)
	l.rule("V5", !e.Uncounted || asksAgain || state == expired && l.Format >= events.UncountedFormat, "it is not counted, in format %d", l.Format)
	l.rule("V5", !asksAgain || e.Uncounted && !e.Error.Permanent, "its agent may be about to be replaced, and it counts: %+v", e.Error)
	if s := l.Step(e.Step); s.def != nil && w == &s.Work {
		l.rule("V5", !e.Uncounted || s.def.Exhausted != "continue", "it is not counted, and the order is to go on without it")
	}
	if e.Uncounted {
		w.Uncounted++
	} else {
		w.Tried++
	}
	if w.NotKnown++; !asksAgain {
		w.NotKnown = 0
	}
	w.Failures++
	l.Failures++
}

// unknownAnswers is how often an agent is asked again that does not know an operation.
const unknownAnswers = 24

// asksAgain says that an agent does not know the operation, which may be because it is being replaced.
func (l *Ledger) asksAgain(e *events.Event, w *Work, state string) bool {
	s := l.Step(e.Step)
	return state == failed && e.Error.Code == "unknown-operation" && !l.Vanished && l.Format >= events.ReplacedFormat && w.NotKnown < unknownAnswers && s.def != nil &&
		(w != &s.Work || s.def.Exhausted != "continue") && !slices.Contains(s.def.Retry.Never, e.Error.Code)
}

// untold: an answer that is no good says nothing of whether it was done, which counts
// since format 3.
func (l *Ledger) untold(e *events.Event) bool {
	return l.keyed && e.Error != nil && (slices.Contains(untoldCodes, e.Error.Code) || slices.Contains(inVainCodes, e.Error.Code))
}

// retry: below the threshold, and after a wait that the workflow allows.
func (l *Ledger) retry(e *events.Event, s *Step, w *Work) {
	l.goesOn()
	l.rule("V4", e.Attempt == w.Attempt+1, "attempt %d follows %d", e.Attempt, w.Attempt)
	if w.State == notStarted || w.State == repeating || w.waitsForPlace() {
		l.awaits(e, s, w)
		return
	}
	l.rule("P4", e.Reason == "", "it does not wait for anybody: %s", e.Reason)
	l.rule("V3", w.broken() && w.Due.IsZero(), "it is %s, and its next attempt is due at %v", w.State, w.Due)
	l.rule("A5", w.Last == nil || !w.permanent(s.def), "its error is permanent")
	l.rule("V5", e.Round == 0 || e.Round == w.Round+1, "round %d follows %d", e.Round, w.Round)
	if def := s.def; def != nil {
		low, high := def.delay(w.Tried)
		if w.Last != nil && slices.Contains(def.Retry.AtOnce, w.Last.Code) {
			low, high = 0, 0
		}
		if w.Last != nil && w.Last.Code == "unknown-operation" && l.Format >= events.ReplacedFormat {
			least := time.Second
			for n := 1; n < w.NotKnown && least < 30*time.Second; n++ {
				least *= 2
			}
			least = min(least, 30*time.Second)
			low, high = max(low, least), max(high, least)
		}
		if e.Round > 0 {
			low, high = def.pause()
			l.rule("V5", w.Tried >= def.Retry.Attempts, "only %d attempts of %d failed in this round", w.Tried, def.Retry.Attempts)
			l.rule("V5", e.Round <= def.Wait.Rounds, "the workflow has %d more rounds", def.Wait.Rounds)
		} else {
			l.rule("V5", w.Tried < def.Retry.Attempts, "%d attempts of %d failed in this round", w.Tried, def.Retry.Attempts)
		}
		wait := e.Due.Sub(e.At)
		l.rule("V3", wait >= low-time.Millisecond && wait <= high+time.Millisecond, // messages have milliseconds
			"it waits for %v, and must for %v to %v", wait, low, high)
	}
	w.Due = e.Due
	if e.Round > 0 {
		w.Round, w.Tried = e.Round, 0
	}
}

// awaits: the turn of a step, or of its undo, has come, and it begins as soon as its
// agent is back. That the agent is away is on trust, and so is who it is: an order begins but so much at a time.
func (l *Ledger) awaits(e *events.Event, s *Step, w *Work) {
	l.rule("V3", w.Due.IsZero() && e.Due.Equal(events.Time(e.At)) && e.Round == 0, "it waits for its agent until %v, and did until %v", e.Due, w.Due)
	l.rule("P4", (e.Reason != "") == (l.Format >= events.WaitsFormat), "it waits for the reason %q, in format %d", e.Reason, l.Format)
	if e.Type == events.UndoRetried {
		l.mayUndo(s)
	} else {
		l.mayDo(e, s)
	}
	w.Due = e.Due
}

// discarded: a reply that counts is not discarded, and the reason is the right
// one.
func (l *Ledger) discarded(e *events.Event) {
	s := l.known(e.Step)
	var w *Work
	if s != nil {
		if w = &s.Work; e.ToUndo {
			w = s.Undo
		}
	}
	var want string
	switch {
	case w == nil, !s.Asks() || s.Child != nil || s.Items != nil, s.def != nil && s.def.Each != nil, s.Emits, s.def != nil && s.def.Emit != nil, e.Attempt > w.Attempt, e.Attempt < 1:
		want = events.DiscardUnknownStep
	case e.Attempt < w.Attempt:
		want = events.DiscardStale
	case s.def != nil && s.def.Order != nil && e.Reason == events.DiscardUnknownStep: // it could not begin, and would have asked no agent
		want = e.Reason
	case e.Reason == events.DiscardForged && w.Proof == events.ProofRequire: // whether it was is known to who has the keys
		want = e.Reason
	case e.Reason == events.DiscardFixed && w.State == running && w.ExtendTo.IsZero(): // that it is no answer is on trust
		want = e.Reason
	case w.State == running && !e.At.After(w.ends()):
		l.rule("S3", false, "attempt %d runs until %v", e.Attempt, w.ends())
		want = e.Reason
	case w.State == running, w.Unanswered:
		want = events.DiscardLate
	default:
		want = events.DiscardRepeated
	}
	l.rule("A4", e.Reason == want, "the reason is %q, and must be %q", e.Reason, want)
	// A forged one on which deciding panicked does not wait, and is all that tells of it.
	l.count(e, &l.Discarded, l.last.Type == events.InputReleased || l.last.Type == events.AlertRaised && e.Reason == events.DiscardForged)
}

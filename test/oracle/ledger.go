package oracle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// Ledger follows one order, event by event, and holds each against the rules
// that no history may break. It knows what events mean, and nothing of how an
// orchestrator comes to them. The rules about the workflow hold only where the
// ledger was given one.
type Ledger struct {
	Order string
	Steps []*Step

	// State and LockedBy are what the order's record must say.
	State, LockedBy string
	Failures        int
	Paused          bool
	Toward          string // what compensation leads to, "" before it began
	Alerted         bool   // an operator was called, and has not acted
	Held            bool   // deciding on it panicked, and nobody has released it
	// Waiting are the sources of the inputs that are held, in order.
	Waiting []string
	// Deadline of the whole order, zero if there is none or it counts no more.
	Deadline time.Time
	// unmet says that a step completed just now that should be done again.
	unmet bool
	// failure is what a step raised, and turning says that what was done is undone next.
	failure *events.Error
	turning bool
	// why is why it is not Processed, as its parent hears; quiet says that nobody else hears of it.
	why   string
	quiet bool
	// keep is for how many seconds it is known after endedAt, 0 for ever, and Forgotten says that it is
	// not any more.
	keep      int
	endedAt   time.Time
	Forgotten bool
	// Schedule is there if this is no order, but a schedule.
	Schedule *Schedule
	// Correlation is there if this is no order, but has the signals of a key.
	Correlation *Correlation
	// Places is there if this is no order, but the home of a limit's places.
	Places *Places
	// Turns are the places that the order asked for, and needs.
	Turns []Turn
	// turn is the number of the event since which it waits for its turn among those of its key, 0 if it need not, and
	// begun says that it has that.
	turn  uint64
	begun bool
	asks  bool   // it is to ask next
	at    string // the home where it asked
	under string // the key
	Seq   uint64
	// Digest is that of the submission that made the order, and Conflicted says that
	// another was recorded. Discarded and Refused count what changed nothing.
	Digest     string
	Conflicted bool
	// Labels are what the order is found by.
	Labels map[string]string
	// RerunOf is the order that this one does again.
	RerunOf                      string
	Discarded, Refused, PutAside int
	// Signals are those that are kept, and Unheard counts those that changed nothing.
	Signals []Signal
	Unheard int
	// keptOnce are the places of those that are kept, or were.
	keptOnce []string
	// GivenUp counts those that were kept for as long as they were to be.
	GivenUp int
	// Newer says that its workflow is in a level of the language that not every owner
	// runs: then replies wait without a hold.
	Newer bool
	// Owner is who claimed the order's partition last, if whoever reads the journal
	// says so.
	Owner string
	// Format is that of the order's partition, if whoever reads the journal says so,
	// else the newest.
	Format int
	// Doubted says that whoever decided the next event may not have believed its clock:
	// then deadlines may have passed by it. See [Doubted].
	Doubted bool
	// Vanished says that whoever decided the next event did not find the order's workflow.
	Vanished bool
	// Old is how many of its events are of before format 3, Older of before [events.LeavesFormat], and Bare of before
	// [events.BaggageFormat].
	Old, Older, Bare uint64
	// Pardon, where it is set, is called by a rule that is broken, and says whether
	// it is not to hold: so a test finds out who misses it.
	Pardon func() bool
	// Blame says what brought the order into Error, each time that it went there.
	Blame []Cause

	accepted, last events.Event
	// What its id says that it is: the home of one that runs at a time, that of a limit, that of a correlation's key.
	ofTurn, ofLimit, ofKey bool

	errored, ended bool
	before         before          // what its release makes of an order that is held
	seen           map[string]bool // the inputs that were held or discarded
	acts           []act           // the commands whose author is known
	once           [][2]string     // names and ids of the signals that acted
	keyed          bool            // since format 3: under which keys its steps may have run
	released       bool            // the last input that waited is decided on
	diverted       bool            // the caller's topic was refused
	find           func(name string, version int) *Flow
	flow           *Flow
	fault          error
}

// NewLedger begins the ledger of an order. Find finds workflows; it may be nil.
func NewLedger(order string, find func(name string, version int) *Flow) *Ledger {
	return &Ledger{
		Order: order, Format: events.JournalFormat, find: find, seen: make(map[string]bool),
		ofTurn: isTurn(order), ofLimit: isLimitHome(order), ofKey: correlation.MatchString(order),
	}
}

// Step returns what is known of a step, nil if the order has none of that name.
func (l *Ledger) Step(name string) *Step {
	if i := slices.IndexFunc(l.Steps, func(s *Step) bool { return s.Name == name }); i >= 0 {
		return l.Steps[i]
	}
	return nil
}

// Add takes the next event, and says which rule it breaks. Which fields it carries
// is looked at last, because a rule that is broken says more, and not at all while
// somebody finds out who misses a rule.
func (l *Ledger) Add(e *events.Event) error {
	l.follow(e)
	if l.fault == nil && l.Pardon == nil {
		l.fault = e.Check()
	}
	if l.fault != nil {
		return fmt.Errorf("order %q: event %d, %s %s: %w", l.Order, e.Seq, e.Type, e.Step, l.fault)
	}
	return nil
}

// follow takes the next event of a history that somebody else holds against the rules.
func (l *Ledger) follow(e *events.Event) {
	l.fault = nil
	l.enter(e)
	l.last = *e
}

// rule notes the first rule that is broken. The id is that of the requirement in
// docs/pattern.md for which the rule is there.
func (l *Ledger) rule(id string, holds bool, format string, args ...any) {
	if holds || l.fault != nil || l.Pardon != nil && l.Pardon() {
		return
	}
	l.fault = fmt.Errorf(id+": "+format, args...)
}

// afterTheEnd lists what may happen to an order that has ended.
var afterTheEnd = []events.Type{events.ReplyDiscarded, events.SignalDiscarded, events.CommandRefused, events.OrderLabelled, events.SubmissionConflicted, events.InputReleased, events.InputDiscarded, events.StatusRefused, events.OrderReported, events.ItemsForgotten, events.PagesForgotten, events.OrderForgotten}

func (l *Ledger) enter(e *events.Event) {
	first := e.Type == events.OrderAccepted || e.Type == events.OrderRejected
	switch {
	case l.Places == nil && l.ofTurn && e.Type != events.OrderForgotten:
		first, l.Places, l.quiet, l.Forgotten = l.Seq == 0, &Places{one: true}, true, false
		l.rule("T4", e.Type == events.PlaceGranted, "nothing begins so")
	case l.Seq == 0 && l.ofLimit:
		first, l.Places, l.quiet = e.Type == events.LimitApplied || e.Type == events.CommandRefused, new(Places), true
	case l.Seq == 0 && (e.Type == events.ScheduleApplied || e.Type == events.CommandRefused):
		first, l.Schedule, l.quiet = true, new(Schedule), true
	}
	if l.Correlation == nil && l.ofKey && e.Type != events.OrderForgotten {
		first, l.Correlation, l.quiet, l.Forgotten = l.Seq == 0, new(Correlation), true, false
		l.rule("T4", e.Type == events.WaitBegan || e.Type == events.SignalKept || e.Type == events.SignalOrdered || e.Type == events.SignalDiscarded, "nothing begins so")
	}
	l.rule("P4", e.Seq == l.Seq+1, "it follows number %d", l.Seq)
	l.rule("T4", first == (l.Seq == 0), "an order begins with its acceptance or its rejection, and has one")
	back := l.turnedBack(e)
	l.rule("S2", !l.ended || back || slices.Contains(afterTheEnd, e.Type), "the order has ended: it is %s", l.State)
	l.rule("S2", !l.Forgotten || e.Type == events.SubmissionConflicted, "the order is forgotten")
	l.ended = l.ended && !back
	// What stops an order calls an operator in the same breath.
	l.rule("P2", (l.last.Type == events.OrderErrored) == (e.Type == events.AlertRaised), "it follows %s", l.last.Type)
	l.rule("S4", !l.unmet || e.Type == events.OrderErrored && e.Error == nil && l.absent(e), "step %s completed, and what it is done for does not hold", l.last.Step)
	l.unmet = false
	l.rule("V5", !l.turning || e.Type == events.OrderCompensating && e.Step == l.last.Step, "step %s raised, and the workflow says to compensate", l.last.Step)
	l.turning = false
	l.rule("S1", !l.asks || e.Type == events.OrderQueued || e.Type == events.StatusRefused, "it has not asked for its turn")
	l.again(e)
	l.queue(e)
	if l.fault != nil {
		return
	}
	l.Seq = e.Seq
	l.rises()
	l.acted(e)

	kind, was := string(e.Type), l.ended
	switch {
	case strings.HasPrefix(kind, "waybill.item"), strings.HasPrefix(kind, "waybill.page"):
		s := l.Step(e.Step)
		if l.rule("T3", s != nil, "the order has no such step"); s == nil {
			return
		}
		l.item(e, s)
	case l.Places != nil && (strings.HasPrefix(kind, "waybill.place.") || strings.HasPrefix(kind, "waybill.limit.")):
		l.placed(e)
	case l.Places != nil && e.Type == events.OrderForgotten:
		l.rule("T1", l.Places.one && len(l.Places.Seats) == 0, "%d have a place, or wait", len(l.Places.Seats))
		l.Forgotten, l.Places = true, nil
	case e.Type == events.PlaceAsked:
		l.asksPlace(e)
	case e.Type == events.OrderQueued:
		l.queues(e)
	case e.Type == events.OrderStarted:
		l.rule("S1", l.turn != 0 && !l.begun && slices.ContainsFunc(l.Turns, func(t Turn) bool { return t.Number == l.turn }), "it waits since event %d, and has begun: %t, of %+v", l.turn, l.begun, l.Turns)
		l.rule("V5", l.Doubted || l.errored || l.Paused || l.Deadline.IsZero() || e.At.Before(l.Deadline), "the order's deadline %v has passed", l.Deadline)
		l.begun = true
	case strings.HasPrefix(kind, "waybill.schedule."):
		l.scheduled(e)
	case l.Correlation != nil && (strings.HasPrefix(kind, "waybill.signal.") || strings.HasPrefix(kind, "waybill.wait.") || e.Type == events.OrderForgotten):
		l.correlated(e)
	case strings.HasPrefix(kind, "waybill.step."), strings.HasPrefix(kind, "waybill.undo."):
		s := l.Step(e.Step)
		if l.rule("T3", s != nil, "the order has no such step"); s == nil {
			return
		}
		if strings.HasPrefix(kind, "waybill.step.") {
			l.step(e, s)
		} else {
			l.undo(e, s)
		}
	default:
		l.order(e)
	}
	l.yields()
	if l.settle(e); l.ended {
		l.Signals = nil
		if !was {
			l.endedAt = events.Time(e.At)
		}
	}
}

// again: what failed with something left to try is armed before anything else
// happens, unless its workflow is gone. After a pause others may come first, if
// they are decided in the same breath.
func (l *Ledger) again(e *events.Event) {
	if l.flow == nil || l.errored || l.Paused || l.ended || l.failure != nil && l.Toward == "" {
		return
	}
	i := slices.IndexFunc(l.Steps, func(s *Step) bool {
		w := l.wanted(s)
		return w.broken() && w.Due.IsZero() && w.Turn == 0 && !w.spent(s.def)
	})
	if i < 0 {
		return
	}
	decided := e.At.Equal(l.last.At)
	switch e.Type {
	case events.StepRetried, events.UndoRetried, events.StatusRefused, events.StepPassed:
	case events.OrderErrored:
		decided = decided && !e.Held && (e.Error == nil || !failure(&l.last))
	case events.StepStarted, events.UndoStarted, events.PlaceAsked, events.StepEmitting, events.StepOrdered, events.UndoOrdered, events.StepItemized, events.ItemsOrdered, events.PageOrdered:
		decided = decided && !failure(&l.last)
	case events.OrderCompensating:
		decided = decided && !failure(&l.last) && e.End == "Compensated"
	case events.StepFailed, events.UndoFailed: // of another that was to begin at once, and could not
		s := l.Step(e.Step)
		decided = decided && s != nil && (e.Type == events.StepFailed && s.State != running || e.Type == events.UndoFailed && s.undoing().State != running)
	default:
		decided = false
	}
	l.rule("V3", decided, "step %s is to be tried again", l.Steps[i].Name)
}

// rises: what was in doubt before format 3 is in doubt under every key that it has had,
// for nobody noted which one it was.
func (l *Ledger) rises() {
	if l.Format < events.BaggageFormat {
		l.Bare = l.Seq
	}
	if l.Format < events.LeavesFormat {
		l.Older = l.Seq
	}
	switch {
	case l.Format < events.KeysFormat:
		l.Old = l.Seq
		return
	case l.keyed:
		return
	}
	l.keyed = true
	for _, s := range l.Steps {
		if s.undoing().Key == "" {
			s.doubtAll()
			continue
		}
		all := s.Undo.Errors
		s.Undo.Doubtful = s.State != undone && slices.ContainsFunc(all[max(0, len(all)-maxErrors):], func(e events.Error) bool { return e.Code == "expired" })
	}
}

// failure says that an attempt ended so.
func failure(e *events.Event) bool {
	switch e.Type {
	case events.StepFailed, events.StepExpired, events.UndoFailed, events.UndoExpired:
		return true
	}
	return false
}

// order takes the events of the order as a whole.
func (l *Ledger) order(e *events.Event) {
	switch e.Type {
	case events.OrderAccepted:
		l.accept(e)
	case events.OrderRejected:
		l.rule("P1", e.Reason != "", "it has no reason")
		l.accepted.ReplyTo, l.accepted.Parent, l.accepted.ParentStep, l.accepted.Detached, l.why = e.ReplyTo, e.Parent, e.ParentStep, e.Detached, e.Reason
		l.parent(e)
		l.keep = e.Keep
		l.ended, l.State, l.Digest = true, "Rejected", e.Digest
	case events.OrderCompleted:
		l.goesOn()
		l.rule("C1", l.Toward == "", "the order is being compensated")
		for _, s := range l.Steps {
			l.rule("S1", s.passed(), "step %s is %s", s.Name, s.State)
		}
		l.rule("P1", slices.Equal(e.FailedSteps, l.passedOver()), "it says that it went on without %s, and must say %s", names(e.FailedSteps), names(l.passedOver()))
		l.ended, l.State = true, "Processed"
	case events.OrderErrored:
		if e.Held {
			l.hold(e)
		} else {
			l.stop(e)
		}
	case events.OrderReleased:
		l.release(e)
	case events.InputHeld, events.InputReleased, events.InputDiscarded:
		l.input(e)
	case events.AlertRaised:
		l.alert(e)
	case events.OrderResubmitted:
		l.rule("P3", l.errored, "the order is not in Error")
		l.locks(e)
		l.resubmit(e)
		l.leave(e)
	case events.OrderCompensating:
		l.compensating(e)
	case events.OrderCompensated, events.OrderCancelled:
		l.compensated(e)
	case events.OrderRaised:
		l.raised(e)
	case events.OrderChanged:
		l.changed(e)
	case events.OrderMigrated:
		l.migrates(e)
	case events.OrderTerminated:
		l.terminated(e)
	case events.OrderPaused:
		l.rule("P3", !l.Paused && !l.errored, "paused: %t, in Error: %t", l.Paused, l.errored)
		l.Paused = true
		l.disarm()
		l.suspend(e.At)
	case events.OrderResumed:
		l.rule("P3", l.Paused, "the order is not paused")
		l.Paused = false
		l.wind(e.At)
	case events.OrderLabelled:
		l.labels(e)
	case events.OrderForgotten:
		l.forgotten(e)
	case events.OrderReported:
		l.reported(e)
	case events.ReplyDiscarded:
		l.discarded(e)
	case events.SignalKept, events.SignalExpired, events.SignalDiscarded:
		l.signal(e)
	case events.StatusRefused:
		l.divert(e)
	case events.CommandRefused:
		l.refused(e)
	case events.SubmissionConflicted:
		l.conflict(e)
	default:
		l.rule("P4", false, "nobody knows this event")
	}
}

func (l *Ledger) accept(e *events.Event) {
	l.accepted, l.Deadline, l.Digest, l.keep = *e, e.Deadline, e.Digest, e.Keep
	if l.find != nil {
		l.flow = l.find(e.Workflow, e.Version)
		l.rule("S4", l.flow != nil, "nobody knows workflow %s@%d", e.Workflow, e.Version)
	}
	if l.flow != nil && !slices.EqualFunc(e.Steps, l.flow.Steps, func(name string, s FlowStep) bool { return s.Name == name }) {
		l.rule("S4", false, "it has the steps %s, and not those of its workflow", names(e.Steps))
		l.flow = nil
	}
	for _, name := range e.Steps {
		l.Steps = append(l.Steps, &Step{Name: name, Known: name, Work: Work{State: notStarted}, def: l.flow.step(name)})
	}
	l.rule("T3", len(l.Steps) > 0, "the order has no steps")
	l.asks = l.flow != nil && l.flow.Concurrency != nil
	l.labels(e)
	l.rerun(e)
	l.parent(e)
	l.pinned(e)
	l.kept(e)
	l.rule("V5", l.Doubted || e.Deadline.IsZero() || e.Deadline.After(e.At), "its deadline %v has passed", e.Deadline)
}

// goesOn holds for what may only happen to an order that neither waits for an
// operator nor is kept back by one.
func (l *Ledger) goesOn() {
	l.rule("P2", !l.errored, "the order is in Error")
	l.rule("P3", !l.Paused, "the order is paused")
}

// disarm has no attempt wait for its time any more. What waits for no agent goes on to.
func (l *Ledger) disarm() {
	for _, s := range l.Steps {
		if !s.idle() {
			s.disarm()
		}
		if s.Undo != nil {
			s.Undo.disarm()
		}
	}
}

func (w *Work) disarm() {
	if w.Due = (time.Time{}); w.State != running {
		w.Turn = 0
	}
}

// leave takes the order out of Error. A deadline that has passed counts no more.
func (l *Ledger) leave(e *events.Event) {
	l.errored, l.Alerted = false, false
	l.lapse(e)
}

func (l *Ledger) lapse(e *events.Event) {
	if !l.Deadline.After(e.At) {
		l.Deadline = time.Time{}
	}
}

// relieve takes the order out of Error if nothing that failed is left.
func (l *Ledger) relieve(e *events.Event) {
	for _, s := range l.Steps {
		if l.wanted(s).broken() {
			return
		}
	}
	if l.errored {
		l.leave(e)
	}
}

// wanted is what is asked of the step's agent: the step, or its undo.
func (l *Ledger) wanted(s *Step) *Work {
	if l.Toward != "" {
		return s.undoing()
	}
	return &s.Work
}

// runs says whether any agent is at work.
func (l *Ledger) runs() bool {
	return slices.ContainsFunc(l.Steps, func(s *Step) bool { return s.State == running || s.undoing().State == running })
}

// locks holds for the acts that say who holds the order, which is so while an
// agent is at work.
func (l *Ledger) locks(e *events.Event) {
	runs := l.runs()
	l.rule("T5", runs == (e.LockedBy != ""), "an agent is at work: %t, and it says locked by %q", runs, e.LockedBy)
}

// settle says what the order's record must say after the event.
func (l *Ledger) settle(e *events.Event) {
	l.rule("V6", l.Owner == "" || e.LockedBy == "" || e.LockedBy == l.Owner, "it is locked by %q, and %q owns the partition", e.LockedBy, l.Owner)
	switch runs := l.runs(); {
	case l.ended, l.errored, !runs:
		l.LockedBy = ""
	case e.LockedBy != "":
		l.LockedBy = e.LockedBy
	}
	switch {
	case l.ended:
	case l.errored:
		l.State = "Error"
	case l.Toward != "":
		l.State = "Compensating"
	case l.LockedBy != "":
		l.State = "Processing"
	default:
		l.State = "Pending"
	}
}

// Rest says what is wrong with an order for which nothing more is decided: it
// must have nothing left that could be done now, and something ahead of it.
func (l *Ledger) Rest() error {
	l.fault = nil
	l.rule("T4", l.Seq > 0, "it has no events")
	l.rule("P2", l.last.Type != events.OrderErrored, "it is in Error, and nobody was called")
	l.rule("P3", l.Held || len(l.Waiting) == 0, "%s waits, and the order was released", strings.Join(l.Waiting, ", "))
	if l.Places != nil && !l.Held {
		l.Places.atRest(l)
	}
	if !l.ended && !l.errored && !l.Paused && l.Seq > 0 && l.Schedule == nil && l.Places == nil && !l.ofKey && !l.ofTurn && !l.queued() {
		l.atRest()
	}
	if l.fault != nil {
		return fmt.Errorf("order %q, %s after event %d: %w", l.Order, l.State, l.Seq, l.fault)
	}
	return nil
}

func (l *Ledger) atRest() {
	ahead := false
	for _, s := range l.Steps {
		for _, w := range []*Work{&s.Work, s.undoing()} {
			ahead = ahead || w.State == running || w.State == listening || w.State == approving || !w.Due.IsZero() || w.Turn != 0
		}
	}
	l.rule("V2", ahead, "it is stuck: nothing runs, and nothing is armed")
	if l.flow == nil {
		return
	}
	for _, s := range l.Steps {
		switch undo := s.undoing(); {
		case l.Toward == "" && l.failure != nil: // nothing starts any more
		case l.Toward == "":
			l.rule("V3", !s.broken() || !s.Due.IsZero() || s.Turn != 0, "step %s is %s, and nobody tries it again", s.Name, s.State)
			l.rule("S1", s.State != notStarted || !l.ready(s) || !s.Due.IsZero() || s.Turn != 0, "the turn of step %s has come, and it has not started", s.Name)
		case undo.broken():
			l.rule("C2", undo.spent(s.def) || !undo.Due.IsZero() || undo.Turn != 0, "the undo of step %s is %s, and nobody tries it again", s.Name, undo.State)
		case undo.State == notStarted && undo.Due.IsZero() && undo.Turn == 0 && s.State != running && s.toUndo():
			l.rule("C1", l.hindrance(s) != "", "the turn of the undo of step %s has come, and it has not started", s.Name)
		}
		l.rule("C1", l.Toward == "" || s.State != running || s.Items == nil || s.Items.Recalled, "the items %+v are not recalled", s.Items)
		if s.Items != nil && (s.State == running || s.undoing().State == running) {
			asks := s.Items.Pages != nil && s.Items.Pages.Running > 0
			l.rule("V2", len(s.Items.Running) > 0 || asks, "none of the items of step %s is under way, nor a page", s.Name)
			w, undo := &s.Work, s.State != running
			if undo {
				w = s.Undo
			}
			l.rule("S1", s.def == nil || !s.room(undo) || !undo && l.stops(s) || !w.Due.IsZero(), "further items of step %s could be under way, and nobody orders them", s.Name)
			l.rule("S1", s.def == nil || undo || asks || s.Items.left() > 0 || l.stops(s) || !s.Items.more(), "nobody asks for the next page of the items of step %s", s.Name)
		}
		l.rule("C1", l.Toward == "" || s.State != running || s.Child == nil || s.Child.Recalled || s.Child.Detached, "order %+v is not recalled", s.Child)
	}
}

package words

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// Course is what an order's history so far says about its next event.
type Course struct {
	armed armed
	times times
	naps  naps
	keys  map[string]string // of before, by what was asked for
}

// NewCourse is that of an order of which nothing has happened yet.
func NewCourse() *Course {
	return &Course{make(armed), make(times), make(naps), make(map[string]string)}
}

// Tell takes the next event, and says what it is about, but for its type, step and attempt.
func (c *Course) Tell(e *events.Event) string { return detail(e, c.next(e)) + underKey(e, c.keys) }

// before is what the events before one say about it.
type before struct {
	waited time.Duration // the attempt, since it could have started
	times  int           // that its step was done, which is done until something holds
	naps   string        // that go on with it
}

// next takes the next event.
func (c *Course) next(e *events.Event) before {
	return before{c.armed.waited(e), c.times.done(e), c.naps.resumed(e)}
}

// armed has when the next attempts of an order could start, in its history.
type armed map[work]time.Time

// work is a step, or its undo.
type work struct {
	step string
	undo bool
}

// waited takes the next event, and returns how long an attempt that it starts could not.
func (a armed) waited(e *events.Event) time.Duration {
	switch of := (work{e.Step, e.Type == events.UndoRetried || e.Type == events.UndoStarted}); e.Type {
	case events.StepRetried, events.UndoRetried:
		a[of] = e.Due
	case events.StepStarted, events.UndoStarted:
		if due, found := a[of]; found {
			delete(a, of)
			return e.At.Sub(due)
		}
	case events.OrderPaused, events.OrderErrored: // nothing starts then, whatever its agent does
		clear(a)
	}
	return 0
}

// times has how many times steps were done that are done until something holds.
type times map[string]int

// done takes the next event, and returns how many times its step was done with that. What was done in
// vain before a resubmission is not in the count of the event, by which the keys go.
func (t times) done(e *events.Event) int {
	if e.Type == events.StepRepeated || e.Error != nil && slices.Contains([]string{events.UntilNotMet, events.BadUntil}, e.Error.Code) && e.Type == events.StepFailed {
		t[e.Step]++
	}
	return t[e.Step]
}

// naps has which steps sleep for a duration, and when they wake.
type naps map[string]*nap

type nap struct {
	wakes time.Time
	left  time.Duration // while the order is paused
}

// resumed takes the next event, and says when steps wake of whose sleep a pause had left something.
func (n naps) resumed(e *events.Event) string {
	var wake []string
	switch e.Type {
	case events.StepSleeping:
		if !e.Fixed {
			n[e.Step] = &nap{wakes: e.Due}
		}
	case events.StepWoke, events.StepSkipped:
		delete(n, e.Step)
	case events.OrderCompensating, events.OrderCancelled:
		clear(n)
	case events.OrderPaused:
		for _, nap := range n {
			nap.left = max(0, nap.wakes.Sub(e.At))
		}
	case events.OrderResumed:
		for step, nap := range n {
			nap.wakes = e.At.Add(nap.left)
			wake = append(wake, fmt.Sprintf("%s until %s", step, at(nap.wakes)))
		}
	}
	slices.Sort(wake)
	if more := len(wake) - 5; more > 0 {
		wake = append(wake[:5], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(wake, ", ")
}

// underKey is the idempotency key of an attempt that begins, where it is not the one that
// the step's name says, or not that of the attempt before. Keys are those before, by what
// was asked for.
func underKey(e *events.Event, keys map[string]string) string {
	plain := events.IdempotencyKey(e.Order, e.Step, 0)
	if e.Type == events.UndoStarted {
		plain = events.UndoKey(plain, 0)
	}
	key := e.IdempotencyKey
	if key == "" {
		return ""
	}
	before := cmp.Or(keys[plain], plain)
	keys[plain] = key
	if key == plain && before == plain {
		return ""
	}
	return "; under key " + key
}

// EventName is the type of an event, in short.
func EventName(e *events.Event) string { return strings.TrimPrefix(string(e.Type), "waybill.") }

// detail is what an event says beyond its columns.
func detail(e *events.Event, b before) string {
	var parts []string
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch e.Type {
	case events.OrderAccepted, events.OrderRejected:
		say("%s", Workflow(e.Workflow, e.Version))
		if len(e.Labels) > 0 {
			say("found by %s", Labels(e.Labels))
		}
		if e.RerunOf != "" {
			say("rerun of %s", e.RerunOf)
		}
		if e.Parent != "" {
			say("%s", Origin(&api.Parent{Order: e.Parent, Step: e.ParentStep, Detached: e.Detached}))
		}
		for _, name := range slices.Sorted(maps.Keys(e.Pinned)) {
			say("%s does steps", Workflow(name, int(e.Pinned[name])))
		}
	case events.ScheduleApplied:
		say("incarnation %d, %s", e.Incarnation, When(e.Schedule))
		nextTick(say, e)
	case events.ScheduleBackfilled:
		say("backfill %d: %d ticks from %s to %s, %d at a time", e.Backfill, e.Count, tick(e.Tick), tick(e.Last), e.AtOnce)
	case events.ScheduleStarted:
		say("tick %s begins order %s", tick(e.Tick), e.Child)
		ofBackfill(say, e)
	case events.ScheduleSkipped:
		if e.Count > 1 {
			say("%d ticks from %s to %s", e.Count, tick(e.Tick), tick(e.Last))
		} else {
			say("tick %s", tick(e.Tick))
		}
		ofBackfill(say, e)
	case events.ScheduleEnded:
		say("order %s of tick %s: %s", e.Child, tick(e.Tick), cmp.Or(e.End, "it is of somebody else"))
	case events.ScheduleRecalled:
		say("order %s of tick %s", e.Child, tick(e.Tick))
	case events.PlaceAsked:
		say("waits for a place of %s", homeText(e.Home))
		if e.Key != "" {
			say("under key %s", e.Key)
		}
		if e.ToUndo {
			say("for its undo")
		}
	case events.OrderQueued:
		say("for its turn under key %s, in %s; in a conflict %s", e.Key, e.Home, Conflict(e.OnConflict))
	case events.PlaceAwaited:
		say("order %s waits, asked with event %d, rank %d", e.Waiter, e.Wait, e.Rank)
		if e.OnConflict != "" {
			say("in the place of all before it")
		}
	case events.PlaceGranted:
		say("order %s has a place, asked with event %d", e.Waiter, e.Wait)
	case events.PlaceReturned:
		if e.Error != nil { // which is said by itself
			say("order %s is sent away, asked with event %d", e.Waiter, e.Wait)
			break
		}
		say("order %s needs no place any more, asked with event %d", e.Waiter, e.Wait)
	case events.LimitApplied:
		say("%s", Limit(e.Limit))
	case events.OrderReported:
		if events.IsCorrelation(e.Parent) {
			say("told %s, whose event %s began it", e.Parent, e.ParentStep)
		} else {
			say("told order %s, for its step %s", e.Parent, e.ParentStep)
		}
	case events.StepOrdered:
		switch text := fmt.Sprintf("order %s of %s does it", e.Child, Workflow(e.Workflow, e.Version)); {
		case e.Detached:
			say("%s, and nobody waits for its end", text)
		case !e.CompleteBy.IsZero():
			say("%s, or is recalled after %s", text, e.CompleteBy.Sub(e.At))
		default:
			say("%s", text)
		}
	case events.OrderForgotten:
		say("nothing is known of the order any more but how it ended")
	case events.StepItemized:
		if e.Agent != "" {
			say("%s, which %s/%s lists page by page, each by an order of %s", Several(e.Count, "item so far", "items so far"), e.Agent, e.Operation, Workflow(e.Workflow, e.Version))
			break
		}
		say("%s, each by an order of %s", Several(e.Count, "item", "items"), Workflow(e.Workflow, e.Version))
	case events.ItemsOrdered:
		switch what := Several(e.Count, "item", "items"); {
		case e.ToUndo:
			say("%s to be undone, item %d first", what, e.Item)
		default:
			say("%s begun, item %d first", what, e.Item)
		}
	case events.ItemCompleted, events.ItemFailed:
		say("item %d", e.Item)
		if e.ToUndo {
			say("of its undo")
		}
	case events.PageOrdered:
		if e.Workflow == "" {
			say("page %d once more, of which items are done anew", e.Page)
			break
		}
		say("page %d", e.Page)
	case events.PageCompleted:
		if say("page %d: %s", e.Page, Several(e.Count, "item", "items")); e.Cursor != "" {
			say("the next begins at %s", e.Cursor)
		}
	case events.PageFailed:
		say("page %d", e.Page)
	case events.PagesForgotten:
		say("nothing is known any more of %s from page %d on", Several(e.Count, "page", "pages"), e.Page)
	case events.ItemsForgotten:
		say("nothing is known any more of %s from item %d on", Several(e.Count, "item", "items"), e.Item)
	case events.StepPaced:
		say("at most %s at a time", Several(e.AtOnce, "item", "items"))
	case events.StepRecalled:
		if e.Child == "" {
			say("no further item begins, and those under way are to undo what they did")
			break
		}
		say("order %s is to undo what it did, and to end", e.Child)
	case events.UndoOrdered:
		say("order %s is to undo what it did", e.Child)
	case events.OrderLabelled:
		say("found by %s", Labels(e.Labels))
	case events.StepStarted, events.UndoStarted:
		if b.waited > time.Second {
			say("%s after it was due", b.waited.Round(time.Second))
		}
		say("agent %s: %s, complete by +%s, on %s", e.Agent, e.Operation, e.CompleteBy.Sub(e.At), e.LockedBy)
		if !e.ExtendTo.IsZero() {
			say("up to +%s as long as it says that it is still at it", e.ExtendTo.Sub(e.At))
		}
		if e.Outcome == events.OutcomeUnknown {
			say("the step may have run, or not")
		}
	case events.StepRetried, events.UndoRetried:
		if e.Round > 0 {
			say("extended wait %d", e.Round)
		}
		if e.Reason == "" {
			say("next attempt after %s", e.Due.Sub(e.At))
		}
	case events.StepExtended, events.UndoExtended:
		say("still at it, complete by +%s", e.CompleteBy.Sub(e.At))
	case events.StepRepeated:
		say("done %s, and again after %s", Several(b.times, "time", "times"), e.Due.Sub(e.At))
	case events.StepSleeping:
		if !e.Fixed {
			say("for %s", e.Due.Sub(e.At))
		}
		say("until %s", at(e.Due))
	case events.StepEmitting:
		say("event %s to topic %s, to be acknowledged by +%s, on %s", e.EventType, e.Topic, e.CompleteBy.Sub(e.At), e.LockedBy)
		if e.Key != "" {
			say("its key is %s", e.Key)
		}
	case events.StepListening:
		say("for %s", Listens(&workflow.Listen{How: e.Listen, Names: e.Signals, Count: max(e.Count, 1)}))
		if e.Key != "" {
			say("under key %s", e.Key)
		}
		if !e.Due.IsZero() {
			say("until %s", at(e.Due))
		}
	case events.StepHeard, events.SignalKept, events.SignalExpired, events.SignalDiscarded:
		say("%s", Signal(e.Signal, e.SignalID))
		if e.Type == events.SignalKept {
			say("until %s", at(e.Due))
		}
		if e.Child != "" {
			say("order %s", e.Child)
		}
	case events.SignalOrdered:
		say("%s begins order %s of workflow %s", Signal(e.Signal, e.SignalID), e.Child, workflow.ID(e.Workflow, e.Version))
	case events.SignalStarted:
		say("%s, order %s", Signal(e.Signal, e.SignalID), e.Child)
	case events.SignalGiven, events.SignalMatched:
		say("%s, order %s, step %s, which waits since its event %d", Signal(e.Signal, e.SignalID), e.Waiter, e.Step, e.Wait)
	case events.WaitBegan, events.WaitRefused:
		say("order %s, step %s, since its event %d, for signal %s under key %s", e.Waiter, e.Step, e.Wait, e.Signal, e.Key)
	case events.WaitEnded:
		say("order %s, since its event %d", e.Waiter, e.Wait)
	case events.StepApproving:
		say("%s", Asks(&workflow.Approve{Roles: e.Roles, Outcomes: e.Outcomes, Count: max(e.Count, 1), Escalate: e.Escalate}))
		if !e.Remind.IsZero() {
			say("due %s", at(e.Remind))
		}
		if !e.Due.IsZero() {
			say("until %s", at(e.Due))
		}
	case events.StepDecided:
		say("%s", e.Outcome)
	case events.StepTimedOut:
		say("nothing came in time")
	case events.StepWoke:
		say("it has slept")
	case events.OrderResumed:
		if b.naps != "" {
			say("it sleeps on: %s", b.naps)
		}
	case events.OrderCompleted:
		if len(e.FailedSteps) > 0 {
			say("without: %s", strings.Join(e.FailedSteps, ", "))
		}
	case events.OrderCompensating:
		say("toward %s", e.End)
	case events.OrderChanged:
		say("priority %s", cmp.Or(e.Priority, events.Normal))
		if e.Deadline.IsZero() {
			say("no deadline")
		} else {
			say("deadline %s", at(e.Deadline))
		}
	case events.OrderMigrated:
		say("from version %d to %d", e.From, e.Version)
		for _, name := range slices.Sorted(maps.Keys(e.Renamed)) {
			say("%s is called %s", e.Renamed[name], name)
		}
		if len(e.Renewed) > 0 {
			say("begins anew: %s", strings.Join(e.Renewed, ", "))
		}
	case events.OrderRaised:
		if len(e.NotUndone) > 0 {
			say("not undone: %s", strings.Join(e.NotUndone, ", "))
		}
	case events.OrderCompensated, events.OrderCancelled, events.OrderTerminated:
		say("undone: %s", Dash(strings.Join(e.Undone, ", ")))
		if len(e.NotUndone) > 0 {
			say("not undone: %s", strings.Join(e.NotUndone, ", "))
		}
		if e.Type == events.OrderTerminated && len(e.MayHaveRun) > 0 {
			say("may have run, or been undone, and nobody knows: %s", strings.Join(e.MayHaveRun, ", "))
		}
	case events.CommandRefused:
		say("%s", e.Operation)
	case events.StatusRefused:
		say("%s", e.ReplyTo)
	case events.InputHeld, events.InputReleased, events.InputDiscarded:
		say("%s", e.Source)
	}
	if e.Held {
		say("held")
	}
	if e.Raw != nil {
		say("%s", Short(string(e.Raw.Value)))
	}
	switch {
	case e.By == "":
	case e.Actor == nil:
		say("by %s, as the sender claims", e.By)
	default:
		say("by %s, known by %s", e.By, knownBy(e.Actor))
	}
	switch e.Proof {
	case events.ProofWatch:
		say("with a token")
	case events.ProofRequire:
		say("with a token, which the reply must repeat")
	case events.ProofRepeated:
		say("it has the token of its request")
	}
	switch {
	case e.Type == events.ReplyDiscarded && e.Reason == events.DiscardFixed:
		say("%s: the agent is still at it, and the complete-by cannot be moved: the workflow gives the step's timeout no max, or the order's deadline comes first", e.Reason)
	case e.Reason != "":
		say("%s", e.Reason)
	}
	if e.Error != nil && (e.Error.Message == "" || !strings.Contains(e.Reason, e.Error.Message)) {
		say("%s", Fault((*api.Fault)(e.Error)))
	}
	switch {
	case e.Uncounted && e.Error != nil && e.Error.Code == events.UnknownOperation:
		say("not counted: another instance of the agent may know it")
	case e.Uncounted:
		say("not counted: the agent gives no sign")
	}
	if e.Left {
		say("something of it was not undone: see its order")
	}
	if e.SameKey {
		say("with the same keys")
	}
	if e.NewKey {
		say("with new keys")
	}
	switch names := strings.Join(e.Kept, ", "); len(e.Kept) {
	case 0:
	case 1:
		say("the same idempotency key for step %s", names)
	default:
		say("the same idempotency keys for steps %s", names)
	}
	switch names := strings.Join(e.MayHaveRun, ", "); {
	case e.Type != events.OrderResubmitted || len(e.MayHaveRun) == 0:
	case len(e.MayHaveRun) == 1:
		say("a new idempotency key for step %s, which may have run", names)
	default:
		say("new idempotency keys for steps %s, which may have run", names)
	}
	if len(e.Input) > 0 && e.Type != events.OrderAccepted {
		say("input %s", Short(string(e.Input)))
	}
	if len(e.Data) > 0 {
		say("%s", Short(string(e.Data)))
	}
	if len(e.Output) > 0 {
		say("%s", Short(string(e.Output)))
	}
	if e.Action != "" {
		say("to do: %s", e.Action)
	}
	switch answer := slices.Contains(answers, e.Type); {
	case answer && e.AnsweredBy != "":
		say("from %s, as it says, at %s", e.AnsweredBy, e.Source)
	case e.Type == events.StepHeard && e.Data == nil && e.Source != "": // who sent it may stand where it was kept
		say("at %s", e.Source)
	case answer && byOrder(e.Source):
		say("its order says so, at %s", e.Source)
	case answer && e.Source != "":
		say("at %s, from nobody who says so", e.Source)
	}
	return strings.Join(parts, "; ")
}

// byOrder says that an input is what an order said that does a step.
func byOrder(source string) bool {
	topic, _, _ := strings.Cut(source, "/")
	return strings.HasSuffix(topic, ".internal")
}

// answers are what follows from replies, from signals, and from what orders say that do a step.
var answers = []events.Type{
	events.StepHeard, events.SignalKept, events.SignalDiscarded, events.SignalGiven, events.SignalOrdered,
	events.StepCompleted, events.StepRepeated, events.StepFailed, events.StepExtended, events.UndoCompleted, events.UndoFailed, events.UndoExtended, events.ReplyDiscarded,
}

// knownBy is how the author of a command is known.
func knownBy(a *events.Actor) string {
	how := a.Method
	if a.Issuer != "" {
		how += " of " + a.Issuer
	}
	if len(a.Roles) > 0 {
		how += " as " + strings.Join(a.Roles, ", ")
	}
	return how
}

// homeText is the home of places for people.
func homeText(home string) string {
	if name := events.LimitOf(home); name != "" {
		return "limit " + name
	}
	return home
}

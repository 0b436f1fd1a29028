package events

import (
	"cmp"
	"slices"
	"strings"
)

// Spec says all there is to know of a type of event, but what it does to an order, which
// package projections has beside it. Whoever adds a type adds its constant, its
// row in [Specs], its effect, and its words in the schema and in docs/messages.md;
// tests hold them all against the row.
type Spec struct {
	Type Type
	// OfPartition says that such events are of a partition's history. All others
	// are of an order's.
	OfPartition bool
	// Since is the vocabulary in which the type came, 0 for the first.
	Since int
	// Needs is what the order's record must have for such an event to follow.
	Needs Need
	// Always and Maybe name the fields that such an event carries besides type,
	// order, seq and at, as they are called in JSON.
	Always, Maybe string
}

// Need is what an order's record must have for an event to follow.
type Need uint8

// What events need. An event that misses it shows that the journal lost another.
const (
	Nothing       Need = iota
	AStep              // the one that Step names
	AHold              // the order is held
	ARecord            // Raw, in the event itself
	TheFirstInput      // Source names the input that has waited longest
	ASchedule          // it is that of a schedule which is there
)

// What an operator's act carries as far as the command had it.
const acted = "by actor reason command"

// What follows from a reply carries from [ProofFormat] on.
const answered = "answeredBy source"

// What follows from a signal carries as far as the signal had it.
const signalled = "signalId answeredBy replyTo"

// Specs has a row for every type of event.
var Specs = []Spec{
	{Type: OrderAccepted, Always: "workflow version steps", Maybe: "input replyTo priority deadline traceparent tracestate baggage digest labels rerunOf by actor submitters pinned parent parentStep depth detached keep"},
	{Type: OrderRejected, Always: "reason", Maybe: "workflow version replyTo digest parent parentStep keep detached"},
	{Type: OrderCompleted, Maybe: "failedSteps"},
	{Type: OrderErrored, Always: "reason", Maybe: "step error held"},
	{Type: OrderResubmitted, Maybe: "step input sameKey newKey kept mayHaveRun lockedBy " + acted},
	{Type: OrderCompensating, Always: "end reason", Maybe: "step error by actor command lockedBy"},
	{Type: OrderCompensated, Maybe: "undone notUndone"},
	{Type: OrderCancelled, Maybe: "undone notUndone"},
	{Type: OrderQueued, Since: 7, Always: "home key onConflict"},
	{Type: OrderStarted, Since: 7},
	{Type: OrderRaised, Since: 4, Always: "reason error", Maybe: "step notUndone"},
	{Type: OrderTerminated, Since: 4, Always: "reason", Maybe: "undone notUndone mayHaveRun by actor command"},
	{Type: OrderChanged, Since: 4, Maybe: "priority deadline " + acted},
	{Type: OrderMigrated, Since: 6, Always: "from version steps", Maybe: "renamed renewed deadline labels pinned keep operation " + acted},
	{Type: OrderPaused, Maybe: acted},
	{Type: OrderResumed, Maybe: acted},
	{Type: OrderLabelled, Since: 4, Maybe: "labels " + acted},
	{Type: OrderReleased, Needs: AHold, Maybe: "lockedBy " + acted},
	{Type: InputHeld, Needs: ARecord, Always: "source raw", Maybe: "proof"},
	{Type: InputReleased, Needs: TheFirstInput, Always: "source"},
	{Type: InputDiscarded, Always: "source reason", Maybe: "count"},
	{Type: OrderForgotten, Since: 5, Maybe: "children"},
	{Type: OrderReported, Since: 5, Always: "parent parentStep reason", Maybe: "error"},
	{Type: StatusRefused, Always: "replyTo reason"},
	{Type: SubmissionConflicted, Since: 2, Always: "source digest reason", Maybe: "replyTo"},
	{Type: CommandRefused, Always: "reason", Maybe: "operation step outcome by actor command count"},

	{Type: StepStarted, Needs: AStep, Always: "step attempt agent operation idempotencyKey completeBy lockedBy", Maybe: "expires extendTo input proof"},
	{Type: StepCompleted, Needs: AStep, Always: "step attempt", Maybe: "output " + answered},
	{Type: StepFailed, Needs: AStep, Always: "step attempt error", Maybe: "output uncounted left " + answered},
	{Type: StepExpired, Needs: AStep, Always: "step attempt", Maybe: "error uncounted"},
	{Type: StepExtended, Since: 4, Needs: AStep, Always: "step attempt completeBy", Maybe: "expires " + answered},
	{Type: StepRetried, Needs: AStep, Always: "step attempt due", Maybe: "round reason"},
	{Type: StepSleeping, Since: 3, Needs: AStep, Always: "step attempt due", Maybe: "fixed"},
	{Type: StepWoke, Since: 3, Needs: AStep, Always: "step attempt"},
	{Type: StepRepeated, Since: 3, Needs: AStep, Always: "step attempt due count", Maybe: "output " + answered},
	{Type: StepListening, Since: 4, Needs: AStep, Always: "step attempt listen signals", Maybe: "count due key"},
	{Type: StepHeard, Since: 4, Needs: AStep, Always: "step attempt signal source", Maybe: "data " + signalled},
	{Type: StepTimedOut, Since: 4, Needs: AStep, Always: "step attempt", Maybe: "output"},
	{Type: StepApproving, Since: 4, Needs: AStep, Always: "step attempt roles outcomes", Maybe: "count input remind escalate due"},
	{Type: StepDecided, Since: 4, Needs: AStep, Always: "step attempt outcome by", Maybe: "actor reason command"},
	{Type: StepReminded, Since: 4, Needs: AStep, Always: "step attempt reason action"},
	{Type: StepOrdered, Since: 5, Needs: AStep, Always: "step attempt child workflow lockedBy", Maybe: "version detached completeBy replyTo input"},
	{Type: StepRecalled, Since: 5, Needs: AStep, Always: "step attempt reason", Maybe: "child"},
	{Type: StepEmitting, Since: 6, Needs: AStep, Always: "step attempt topic eventType idempotencyKey completeBy lockedBy", Maybe: "key expires input"},
	{Type: StepItemized, Since: 6, Needs: AStep, Always: "step attempt workflow lockedBy", Maybe: "version completeBy count input agent operation"},
	{Type: ItemsOrdered, Since: 6, Needs: AStep, Always: "step attempt item count lockedBy", Maybe: "undo due"},
	{Type: ItemCompleted, Since: 6, Needs: AStep, Always: "step attempt item source", Maybe: "output undo left"},
	{Type: ItemFailed, Since: 6, Needs: AStep, Always: "step attempt item error source", Maybe: "undo left"},
	{Type: ItemsForgotten, Since: 6, Needs: AStep, Always: "step item count"},
	{Type: PageOrdered, Since: 6, Needs: AStep, Always: "step attempt page lockedBy", Maybe: "workflow version"},
	{Type: PageCompleted, Since: 6, Needs: AStep, Always: "step attempt page input source", Maybe: "count cursor"},
	{Type: PageFailed, Since: 6, Needs: AStep, Always: "step attempt page error source"},
	{Type: PagesForgotten, Since: 6, Needs: AStep, Always: "step page count"},
	{Type: StepPaced, Since: 6, Needs: AStep, Always: "step atOnce", Maybe: acted},
	{Type: StepPassed, Since: 3, Needs: AStep, Always: "step attempt reason"},
	{Type: StepRaised, Since: 4, Needs: AStep, Always: "step error"},
	{Type: StepSkipped, Needs: AStep, Always: "step", Maybe: "output lockedBy " + acted},

	{Type: UndoStarted, Needs: AStep, Always: "step attempt agent operation idempotencyKey completeBy lockedBy outcome", Maybe: "expires extendTo input proof"},
	{Type: UndoOrdered, Since: 5, Needs: AStep, Always: "step attempt child lockedBy"},
	{Type: UndoCompleted, Needs: AStep, Always: "step attempt", Maybe: "output left " + answered},
	{Type: UndoFailed, Needs: AStep, Always: "step error", Maybe: "attempt uncounted left " + answered},
	{Type: UndoExpired, Needs: AStep, Always: "step attempt", Maybe: "error uncounted"},
	{Type: UndoExtended, Since: 4, Needs: AStep, Always: "step attempt completeBy", Maybe: "expires " + answered},
	{Type: UndoRetried, Needs: AStep, Always: "step attempt due", Maybe: "round reason"},
	{Type: UndoSkipped, Needs: AStep, Always: "step", Maybe: "lockedBy " + acted},

	{Type: ReplyDiscarded, Always: "reason", Maybe: "step attempt undo count " + answered},
	{Type: SignalKept, Since: 4, Always: "signal source due", Maybe: "data key " + signalled},
	{Type: SignalExpired, Since: 4, Always: "signal source", Maybe: "signalId"},
	{Type: SignalDiscarded, Since: 4, Always: "signal source reason count", Maybe: "key child error " + signalled},
	{Type: SignalGiven, Since: 6, Always: "signal signalId key source due waiter step wait", Maybe: "data answeredBy replyTo by"},
	{Type: SignalMatched, Since: 6, Always: "signal signalId source waiter step wait"},
	{Type: SignalOrdered, Since: 7, Always: "signal signalId key source due child workflow version", Maybe: "data answeredBy replyTo by"},
	{Type: SignalStarted, Since: 7, Always: "signal signalId source child", Maybe: "replyTo"},
	{Type: WaitBegan, Since: 6, Always: "waiter step wait signal key source"},
	{Type: WaitEnded, Since: 6, Always: "waiter wait source"},
	{Type: WaitRefused, Since: 6, Always: "waiter step wait signal key reason source"},
	{Type: ScheduleApplied, Since: 6, Always: "schedule incarnation", Maybe: "next due " + acted},
	{Type: SchedulePaused, Since: 6, Needs: ASchedule, Maybe: acted},
	{Type: ScheduleResumed, Since: 6, Needs: ASchedule, Maybe: acted},
	{Type: ScheduleDeleted, Since: 6, Needs: ASchedule, Maybe: acted},
	{Type: ScheduleStarted, Since: 6, Needs: ASchedule, Always: "tick child workflow", Maybe: "next due backfill"},
	{Type: ScheduleSkipped, Since: 6, Needs: ASchedule, Always: "tick last count reason", Maybe: "next due backfill"},
	{Type: ScheduleEnded, Since: 6, Needs: ASchedule, Always: "tick child source", Maybe: "end error backfill"},
	{Type: ScheduleBackfilled, Since: 6, Needs: ASchedule, Always: "backfill tick last count atOnce", Maybe: acted},
	{Type: ScheduleRecalled, Since: 6, Needs: ASchedule, Always: "tick child reason"},
	{Type: PlaceAsked, Since: 7, Needs: AStep, Always: "step attempt home", Maybe: "key undo"},
	{Type: PlaceAwaited, Since: 7, Always: "waiter wait rank source", Maybe: "step key onConflict"},
	{Type: PlaceGranted, Since: 7, Always: "waiter wait rank", Maybe: "step key onConflict source"},
	{Type: PlaceReturned, Since: 7, Always: "waiter wait", Maybe: "source error"},
	{Type: LimitApplied, Since: 7, Always: "limit", Maybe: acted},
	{Type: LimitDeleted, Since: 7, Maybe: acted},
	{Type: AlertRaised, Always: "reason", Maybe: "step errors action"},

	{Type: PartitionClaimed, OfPartition: true, Always: "instance claim partitions format"},
	{Type: PartitionAdvanced, OfPartition: true, Maybe: "source by actor reason agent silent"},
	{Type: PartitionRaised, OfPartition: true, Since: 1, Always: "format"},
	{Type: PartitionDelivered, OfPartition: true, Since: 2, Always: "delivered"},
}

// Vocabulary is the newest that this release knows. A release that adds types puts
// them into a new one: by that an older release sees that a state store was folded
// from what it does not know.
var Vocabulary = slices.MaxFunc(Specs, func(a, b Spec) int { return cmp.Compare(a.Since, b.Since) }).Since

// SpecOf returns the row of a type, nil if this release does not know it.
func SpecOf(typ Type) *Spec {
	if i := slices.IndexFunc(Specs, func(s Spec) bool { return s.Type == typ }); i >= 0 {
		return &Specs[i]
	}
	return nil
}

// Fields lists what Always and Maybe name.
func (s *Spec) Fields() (always, maybe []string) {
	return strings.Fields(s.Always), strings.Fields(s.Maybe)
}

package events

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Type names what a message says. On Kafka it is the ce_type header, and the
// "type" field of a journal event.
type Type string

// The types of messages that are not journal events.
const (
	OrderSubmitted Type = "waybill.order.submitted" // an application's [Submission]
	StepRequested  Type = "waybill.step.requested"  // a [Request] to an agent
	StepReplied    Type = "waybill.step.replied"    // an agent's [Reply]
	OrderCommand   Type = "waybill.order.command"   // an operator's [Command]
	OrderSignal    Type = "waybill.order.signal"    // an application's [Signal]
	// WorkflowRegistered is the canonical form of a definition.
	WorkflowRegistered Type = "waybill.workflow.registered"
	// WorkflowRetired says that nothing new begins with a version, or may again.
	WorkflowRetired Type = "waybill.workflow.retired"

	OrderStatus Type = "waybill.order.status" // a [Status] for the caller
)

// The transitions of an order. Each comment names the fields that the event may
// carry besides Type, Order, Seq and At; which of them are always there stands in
// [Specs].
const (
	// OrderAccepted creates the state record, Pending (T4): Workflow, Version,
	// Steps, and whichever of Input, ReplyTo, Priority, Deadline, Traceparent
	// the submission had, from format 2 on its Digest, and from format 6 on By and Actor. Labels are those of the
	// submission, and what the workflow makes of the input to find the order by. RerunOf is
	// the order that it does again, and Submitters those who submitted such. Since format 6.
	// Pinned are the versions of workflows that orders have which do its steps. Of an order that does
	// a step of another, Parent, ParentStep, Depth, and Detached. Keep is for how long it is
	// known after its end. Since format 7. Tracestate and Baggage are those of the submission. Since format 11.
	OrderAccepted Type = "waybill.order.accepted"
	// OrderRejected says why a submission will never run: Reason, and Workflow,
	// Version, ReplyTo, Digest as far as they could be read, Keep as its workflow says, and
	// Parent, ParentStep and Detached of one that was to do a step of another.
	OrderRejected Type = "waybill.order.rejected"
	// OrderCompleted ends the order as Processed. The order's output is that of
	// the last step in the workflow file that completed and asked somebody. FailedSteps are
	// those that it went on without.
	OrderCompleted Type = "waybill.order.completed"
	// OrderErrored stops the order until an operator acts (P2): Reason, and Step
	// and Error where one step caused it. With Held deciding on the order
	// panicked: until its release nothing is decided on it, and its inputs wait.
	OrderErrored Type = "waybill.order.errored"
	// OrderResubmitted lets an order that was stopped go on (P3): every step, or
	// undo, that failed begins again with a new idempotency key, or with the last
	// one if SameKey, or if Kept names it; NewKey says that the operator wanted new
	// ones. What MayHaveRun names has run under its last key, or not, and is undone
	// under that one, too. These three are there since format 3. With Step, that step
	// gets Input. By, Actor, Reason, Command, and LockedBy while a step still runs.
	OrderResubmitted Type = "waybill.order.resubmitted"
	// OrderCompensating begins to undo what was done (V5): End (the state that
	// it leads to), Reason, Step and Error where a failure caused it, By, Actor and
	// Command where an operator did, and LockedBy while a step still runs.
	OrderCompensating Type = "waybill.order.compensating"
	// OrderCompensated ends the order as Compensated: Undone, NotUndone (C3).
	OrderCompensated Type = "waybill.order.compensated"
	// OrderCancelled ends the order as Cancelled: Undone, NotUndone (C3).
	OrderCancelled Type = "waybill.order.cancelled"
	// OrderQueued has the order wait until no other is open under its key: Home, Key, OnConflict. Its turn ends with
	// the order. Since format 9.
	OrderQueued Type = "waybill.order.queued"
	// OrderStarted says that its turn has come. Since format 9.
	OrderStarted Type = "waybill.order.started"
	// OrderRaised ends the order as Raised, once nothing of it runs: Step, Reason, Error, those of
	// [StepRaised], and NotUndone: what was done stays as it is. Since format 6. Without Step it is the end of one
	// that waited for its turn, and gets none. Since format 9.
	OrderRaised Type = "waybill.order.raised"
	// OrderChanged says which priority and which deadline the order has from here on, none of
	// which is there for the normal and for none: Priority, Deadline, By, Actor, Reason,
	// Command. Since format 6.
	OrderChanged Type = "waybill.order.changed"
	// OrderMigrated has the order go on as one of another version of its workflow: From, Version, Steps
	// (all that it has from here on), Renamed (what some of them were called, by their names), Renewed
	// (those that failed, and are asked for something else, under a new idempotency key), Deadline,
	// Labels, Pinned and Keep, as they are from here on. Steps that are not named have not begun, and are
	// dropped. By, Actor, Reason, Command, and Operation where another act than a migration is behind it.
	// Since format 8.
	OrderMigrated Type = "waybill.order.migrated"
	// OrderTerminated ends the order as Terminated, by an operator's act: what was done stays as
	// it is. Undone, NotUndone, and MayHaveRun: of these steps nobody knows whether they ran, or
	// were undone. By, Actor, Reason, Command. Since format 6.
	OrderTerminated Type = "waybill.order.terminated"
	// OrderPaused lets nothing new start: By, Actor, Reason, Command.
	OrderPaused Type = "waybill.order.paused"
	// OrderResumed ends the pause: By, Actor, Reason, Command.
	OrderResumed Type = "waybill.order.resumed"
	// OrderLabelled changes what the order is found by, also after its end: Labels (all that
	// it has from here on), By, Actor, Reason, Command. Since format 6.
	OrderLabelled Type = "waybill.order.labelled"
	// OrderReleased ends the hold: the order is again what it was before, and the
	// inputs that wait are decided. By, Actor, Reason, Command, and LockedBy while a step
	// still runs.
	OrderReleased Type = "waybill.order.released"
	// InputHeld keeps an input of an order that is held, or whose workflow only a newer
	// release runs: Source and Raw, and Proof of a reply that repeats its token.
	InputHeld Type = "waybill.input.held"
	// InputReleased says that the first input that waits is decided now; what
	// follows from it are the events up to the next input: Source.
	InputReleased Type = "waybill.input.released"
	// InputDiscarded says that an input changes nothing and is among the dead
	// letters: one that waits and an operator gave up, one that could not wait, or
	// one on which deciding panicked after the order had ended. Source, Reason, Count.
	InputDiscarded Type = "waybill.input.discarded"
	// OrderForgotten ends what is known of an order that has ended, but that there was one of its id:
	// Children, those that did its steps, are forgotten with it. Since format 7.
	OrderForgotten Type = "waybill.order.forgotten"
	// OrderReported tells the order whose step this one does, or was to do, how it stands, where
	// nothing of it changes: ParentStep, Parent, Reason, and Error where it is not that step's, or where
	// it cannot do what it was asked for.
	// Since format 7.
	OrderReported Type = "waybill.order.reported"
	// StatusRefused says that the caller's status topic cannot be written, so
	// that status messages go to the namespace's own: ReplyTo, Reason.
	StatusRefused Type = "waybill.status.refused"
	// SubmissionConflicted records the first submission under the order's id that
	// says something else than the one that made the order. It changes nothing:
	// Source, Digest, Reason, and ReplyTo where its caller can be told there.
	SubmissionConflicted Type = "waybill.submission.conflicted"
	// CommandRefused records an operator's act that could not be done:
	// Operation, Step, Outcome, By, Actor, Reason (why not), Command, Count.
	CommandRefused Type = "waybill.command.refused"

	// StepStarted takes the order and starts an attempt (T5): Step, Attempt,
	// Agent, Operation, IdempotencyKey, CompleteBy, Expires, ExtendTo, LockedBy, Proof, and Input
	// where the step's is not the order's and was not recorded before.
	StepStarted Type = "waybill.step.started"
	// StepCompleted records a reply in time: Step, Attempt, Output, AnsweredBy, Source.
	StepCompleted Type = "waybill.step.completed"
	// StepFailed records an agent's error: Step, Attempt, Error, AnsweredBy, Source; Output
	// where it was done, in vain; Uncounted where the agent may be about to be replaced; and Left where
	// another order did it.
	StepFailed Type = "waybill.step.failed"
	// StepExpired records that the complete-by passed unanswered: Step, Attempt,
	// Error, and Uncounted where the retry policy does not count it.
	StepExpired Type = "waybill.step.expired"
	// StepExtended moves the complete-by of an attempt whose agent says that it is still at
	// it: Step, Attempt, CompleteBy, Expires, AnsweredBy, Source. Since format 6.
	StepExtended Type = "waybill.step.extended"
	// StepRetried arms the next attempt (V3): Step, Attempt (the next one), Due
	// (when it starts, jitter included), and Round where a new round of attempts
	// begins after an extended wait. Where it only waits, for its agent, Due is now,
	// and since format 3 Reason says for whom.
	StepRetried Type = "waybill.step.retried"
	// StepSleeping has a step wait until Due, which is an end of its own: Step, Attempt, Due,
	// and Fixed where that is a time of the calendar, which a pause does not put off. Since
	// format 5.
	StepSleeping Type = "waybill.step.sleeping"
	// StepWoke completes a step that slept: Step, Attempt. Since format 5.
	StepWoke Type = "waybill.step.woke"
	// StepRepeated ends one time of a step that is done until something holds, which it does not
	// yet: Step, Attempt, Output, Due (when the next time begins), Count, AnsweredBy, Source.
	// Since format 5.
	StepRepeated Type = "waybill.step.repeated"
	// StepListening has a step wait for signals: Step, Attempt, Listen, Signals, Count where it
	// waits for several of one, Due where it does not wait for ever, and Key where it hears those under
	// a key. Since format 6.
	StepListening Type = "waybill.step.listening"
	// StepHeard gives a step that waits a signal: Step, Attempt, Signal, SignalID, Data unless
	// the signal was kept, Source, AnsweredBy, ReplyTo. Once the step waits for no other it is
	// completed. Since format 6.
	StepHeard Type = "waybill.step.heard"
	// StepTimedOut ends a step that has waited for signals, or for people, as long as it may: Step,
	// Attempt. Since format 6. Output of one that waited for several signals, and has heard none. Since format 10.
	StepTimedOut Type = "waybill.step.timed-out"
	// StepApproving has a step wait for people who decide: Step, Attempt, Roles (who may), Outcomes,
	// Count (how many people the first outcome needs) where that is more than one, Input (what they
	// see), Remind (when they are reminded), Escalate (who may decide, too, from then on), Due where it does not wait for ever. Since format 6.
	StepApproving Type = "waybill.step.approving"
	// StepDecided records what somebody decided: Step, Attempt, Outcome, By, Actor, Reason,
	// Command. Once enough people have, the step is completed. Since format 6.
	StepDecided Type = "waybill.step.decided"
	// StepReminded says that a decision is due: Step, Attempt, Reason, Action (what to do). An alert
	// follows from it. Since format 6.
	StepReminded Type = "waybill.step.reminded"
	// StepOrdered has another order do the step: Step, Attempt, Child (its id), Workflow, Version
	// where it is known, LockedBy, Detached where its end is not waited for, CompleteBy where it may
	// not take for ever, ReplyTo, and Input where the step's is not the order's. Since format 7.
	StepOrdered Type = "waybill.step.ordered"
	// StepRecalled has the order that does the step undo what it did, and end, or those that do its
	// items: Step, Attempt, Child unless it has items, Reason. Since format 7.
	StepRecalled Type = "waybill.step.recalled"
	// StepEmitting begins an attempt to give a topic of the user's an event of theirs: Step, Attempt,
	// Topic, EventType, IdempotencyKey (which is the event's id), CompleteBy, Expires, LockedBy, Key
	// where that is not the order's id, and Input (what the event says) where the step's is not the
	// order's and was not recorded before. The event leaves behind the commit. The attempt completes
	// once Kafka has acknowledged it, fails where Kafka refuses it, and expires. Since format 8.
	StepEmitting Type = "waybill.step.emitting"
	// StepItemized has orders do the step, one for each item of a list: Step, Attempt, Workflow,
	// Version where it is known, LockedBy, CompleteBy where it may not take for ever, Count (how many
	// items there are, none if there is none), and Input (the list) where it was not recorded before. A
	// resubmission has those done anew that failed. Where an agent lists the items page by page: Agent,
	// Operation, Count (how many are known so far), and Input (what the agent gets) where that is not the order's
	// and was not recorded before. Since format 8.
	StepItemized Type = "waybill.step.itemized"
	// ItemsOrdered has orders do the next items that are to be done, or of the undo with ToUndo undo
	// those that were done last: Step, Attempt, Item (the first), Count, LockedBy, and Due where
	// others are ordered at once, in a decision of their own. Since format 8.
	ItemsOrdered Type = "waybill.items.ordered"
	// ItemCompleted says that an item is done, or undone with ToUndo: Step, Attempt, Item, Output,
	// Source, and with ToUndo Left. Since format 8.
	ItemCompleted Type = "waybill.item.completed"
	// ItemFailed says that an item failed, or with ToUndo its undo: Step, Attempt, Item, Error, Source,
	// Left. Since format 8.
	ItemFailed Type = "waybill.item.failed"
	// ItemsForgotten says that the orders are forgotten which did some items: Step, Item (the first),
	// Count. Since format 8.
	ItemsForgotten Type = "waybill.items.forgotten"
	// PageOrdered has an order ask for the next page of a step's items: Step, Attempt, Page (its number), LockedBy,
	// Workflow and Version. Without these that order, which has ended, is to tell once more what the page has: some of
	// its items are done anew. Since format 8.
	PageOrdered Type = "waybill.page.ordered"
	// PageCompleted says what a page has: Step, Attempt, Page, Source, Input (a list of items), Count (how many
	// that are, none if there is none), and Cursor where another page follows. Since format 8.
	PageCompleted Type = "waybill.page.completed"
	// PageFailed says that a page is not there, or not as one must be: Step, Attempt, Page, Error, Source. Since
	// format 8.
	PageFailed Type = "waybill.page.failed"
	// PagesForgotten says that the orders are forgotten which asked for some pages: Step, Page (the first),
	// Count. Since format 8.
	PagesForgotten Type = "waybill.pages.forgotten"
	// StepPaced says how many items of a step may be under way at a time from here on: Step, AtOnce,
	// By, Actor, Reason, Command. Since format 8.
	StepPaced Type = "waybill.step.paced"
	// StepPassed has the order go on without a step that failed for good: Step, Attempt, Reason.
	// Since format 5.
	StepPassed Type = "waybill.step.passed"
	// StepRaised says that the order fails as its workflow says: Step, Error. Nothing starts any
	// more, and what runs is waited for. The compensation follows at once, or the order's end
	// as Raised. Since format 6.
	StepRaised Type = "waybill.step.raised"
	// StepSkipped passes over a step: Step, Reason. Where an operator did it also
	// By, Actor, Command, the Output that later steps see, and LockedBy while a step
	// still runs.
	StepSkipped Type = "waybill.step.skipped"

	// UndoStarted begins an attempt to undo a step (C1): what [StepStarted]
	// carries, and Outcome.
	UndoStarted Type = "waybill.undo.started"
	// UndoOrdered has the order that did the step undo what it did: Step, Attempt, Child, LockedBy.
	// Since format 7.
	UndoOrdered Type = "waybill.undo.ordered"
	// UndoCompleted is to an undo what [StepCompleted] is to a step, and Left where another order did it.
	UndoCompleted Type = "waybill.undo.completed"
	// UndoFailed records an agent's error: Step, Attempt, Error, AnsweredBy, Source, Uncounted, and Left where
	// another order did it. Where the first request could not be made there was no Attempt.
	UndoFailed Type = "waybill.undo.failed"
	// UndoExpired is to an undo what [StepExpired] is to a step.
	UndoExpired Type = "waybill.undo.expired"
	// UndoExtended is to an undo what [StepExtended] is to a step.
	UndoExtended Type = "waybill.undo.extended"
	// UndoRetried is to an undo what [StepRetried] is to a step.
	UndoRetried Type = "waybill.undo.retried"
	// UndoSkipped leaves a step as it is, by an operator's act: Step, By, Actor, Reason,
	// Command, and LockedBy while another undo still runs.
	UndoSkipped Type = "waybill.undo.skipped"

	// WaitBegan has a step of an order wait for signals under a key: Waiter, Step, Wait, Signal, Key, Source.
	// This and the others of waits are of correlations: see [CorrelationID]. Since format 8.
	WaitBegan Type = "waybill.wait.began"
	// WaitEnded says that it waits no more: Waiter, Wait, Source. A signal that was given to it is for
	// others again. Since format 8.
	WaitEnded Type = "waybill.wait.ended"
	// WaitRefused says that a step may not wait, since as many do as may: Waiter, Step, Wait, Signal, Key,
	// Reason, Source. Since format 8.
	WaitRefused Type = "waybill.wait.refused"

	// PlaceAsked has an attempt wait for a place of a limit: Step, Attempt (the one that waits), Home, Key, ToUndo. It has
	// it once it begins, or waits for its agent. The place goes back with whatever ends the attempt, or has it
	// wait no more. Since format 9.
	PlaceAsked Type = "waybill.place.asked"
	// PlaceAwaited has an attempt of an order wait in the home of places: Waiter, Step, Wait, Key, Rank, Source. This
	// and the two below are of homes: see [LimitID] and, where the order itself waits, without Step and perhaps with
	// OnConflict, [TurnID]. Since format 9.
	PlaceAwaited Type = "waybill.place.awaited"
	// PlaceGranted gives an attempt, or an order, a place: Waiter, Step, Wait, Key, Rank, OnConflict, and Source where it
	// did not wait. Since format 9.
	PlaceGranted Type = "waybill.place.granted"
	// PlaceReturned says that it has none any more, and waits for none: Waiter, Wait, and Source, or Error where another
	// order came in its place. Since format 9.
	PlaceReturned Type = "waybill.place.returned"
	// LimitApplied has a limit be as it says from here on: Limit, By, Actor, Reason, Command. Since format 9.
	LimitApplied Type = "waybill.limit.applied"
	// LimitDeleted has there be no limit of the name any more: By, Actor, Reason, Command. Since format 9.
	LimitDeleted Type = "waybill.limit.deleted"

	// ReplyDiscarded records a reply that changed nothing: Step, Attempt, ToUndo,
	// Reason, one of the Discard constants, Count, AnsweredBy, Source.
	ReplyDiscarded Type = "waybill.reply.discarded"
	// SignalKept keeps a signal for a step that has not begun to wait for it: Signal, SignalID,
	// Data unless it was given before, Due (until when it is kept), Source, AnsweredBy, ReplyTo, and Key of
	// one under a key. Since format 6.
	SignalKept Type = "waybill.signal.kept"
	// SignalExpired gives up a signal that was kept for as long as it was to be: Signal, SignalID,
	// Source. Since format 6.
	SignalExpired Type = "waybill.signal.expired"
	// SignalDiscarded records a signal that changed nothing: Signal, SignalID, Reason, one of the
	// Signal constants, Source, AnsweredBy, ReplyTo, Count, and Key of one under a key; Child and Error of one
	// whose order was rejected, and Child of one that is repeated while it is to start that. Since format 6.
	SignalDiscarded Type = "waybill.signal.discarded"
	// SignalGiven gives a signal under a key to a wait: Signal, SignalID, Key, Data unless it was kept or
	// given before, Due (until when it is kept if it comes back), Source, AnsweredBy, ReplyTo, Waiter, Step,
	// Wait, By. Since format 8.
	SignalGiven Type = "waybill.signal.given"
	// SignalMatched says that the wait to which it was given has heard it: Signal, SignalID, Source, Waiter,
	// Step, Wait. Since format 8.
	SignalMatched Type = "waybill.signal.matched"
	// SignalOrdered has a signal under a key for which no step waits begin an order: Signal, SignalID, Key, Data
	// unless it was given before, Due (until when its id is remembered), Source, AnsweredBy, ReplyTo, Child (the
	// order), Workflow, Version, By. Since format 9.
	SignalOrdered Type = "waybill.signal.ordered"
	// SignalStarted says that the order has begun: Signal, SignalID, Source, ReplyTo, Child. Since format 9.
	SignalStarted Type = "waybill.signal.started"

	// ScheduleApplied has a schedule be as it says from here on: Schedule, Incarnation, Next (its first
	// tick) and Due (when that begins an order, where it has a jitter), By, Actor, Reason, Command. This
	// and those below are of schedules: see [ScheduleID]. Since format 8.
	ScheduleApplied Type = "waybill.schedule.applied"
	// SchedulePaused has it take no tick: By, Actor, Reason, Command. Since format 8.
	SchedulePaused Type = "waybill.schedule.paused"
	// ScheduleResumed ends the pause. The ticks until then are skipped. By, Actor, Reason, Command.
	// Since format 8.
	ScheduleResumed Type = "waybill.schedule.resumed"
	// ScheduleDeleted has there be no schedule of the name any more: By, Actor, Reason, Command. The
	// next has another incarnation. Since format 8.
	ScheduleDeleted Type = "waybill.schedule.deleted"
	// ScheduleStarted begins an order: Tick, Child (its id), Workflow, Next and Due of the tick that
	// follows, Backfill. Since format 8.
	ScheduleStarted Type = "waybill.schedule.started"
	// ScheduleSkipped passes over ticks that follow each other and begin no order for one reason: Tick (the first),
	// Last, Count, Reason (one of the Skipped constants), Next and Due, Backfill. Since format 8.
	ScheduleSkipped Type = "waybill.schedule.skipped"
	// ScheduleEnded says that an order has ended that it began: Tick, Child, End (its state) and Error
	// as far as it has told them, Source, Backfill. Since format 8.
	ScheduleEnded Type = "waybill.schedule.ended"
	// ScheduleBackfilled has ticks that have passed begin orders: Backfill (its number), Tick (the first), Last,
	// Count, AtOnce (how many of its orders may be open), By, Actor, Reason, Command. What becomes of each is
	// said as of other ticks, with Backfill. Since format 8.
	ScheduleBackfilled Type = "waybill.schedule.backfilled"
	// ScheduleRecalled has such an order be cancelled: Tick, Child, Reason. Since format 8.
	ScheduleRecalled Type = "waybill.schedule.recalled"

	// AlertRaised calls an operator (P2): Reason, Errors, Action (what to do),
	// and Step where there is one.
	AlertRaised Type = "waybill.alert.raised"
)

// The history of a partition. These events belong to no order: Order and Seq
// are empty, and the record has no key.
const (
	// PartitionClaimed says that Instance owns the partition from here on: Instance,
	// Claim, Partitions, Format.
	PartitionClaimed Type = "waybill.partition.claimed"
	// PartitionAdvanced carries input positions when a transaction changed no
	// order, for example because it only forwarded a record. Where an operator had
	// reading go on behind inputs that were lost: Source (the first of them), By, Actor,
	// Reason. Since format 3 also where an agent fell silent for this partition, or is
	// silent no more: Agent, and Silent where it did.
	PartitionAdvanced Type = "waybill.partition.advanced"
	// PartitionRaised says that what follows may be of the given format, and none
	// before: Format.
	PartitionRaised Type = "waybill.partition.raised"
	// PartitionDelivered says of callers' own topics up to where the journal's status
	// messages were delivered there, or were refused: Delivered.
	PartitionDelivered Type = "waybill.partition.delivered"
)

// Why a reply was discarded.
const (
	DiscardLate        = "late"         // it came after the complete-by
	DiscardStale       = "stale"        // it answers an attempt that is over
	DiscardRepeated    = "repeated"     // the attempt was answered before
	DiscardUnknownStep = "unknown-step" // the order has no such step, or nobody was asked yet
	DiscardForged      = "forged"       // the request had a token, and the reply does not repeat it
	DiscardFixed       = "fixed"        // it says that its agent is still at it, and the complete-by cannot be moved
)

// Why a signal was discarded.
const (
	SignalRepeated = "repeated"  // it came before, under the same name and id
	SignalLate     = "late"      // what waited for it waits no more
	SignalUnheard  = "unheard"   // no step of the order waits for one of this name
	SignalTooMany  = "too-many"  // as many are kept as may be, or as many bytes, or as many were given up
	SignalTooLarge = "too-large" // with it the output of a step that waits, or will, would be too large
	SignalGivenUp  = "given-up"  // of one under a key: the order to which it was given could not decide on it
	SignalRejected = "rejected"  // of one under a key: the order that it would have started was rejected
)

// How a step listens.
const (
	ListenOne = "one" // for one signal, or several of one name
	ListenAny = "any" // for the first of several
	ListenAll = "all" // for all of several
)

// What an undo knows of the step that it undoes.
const (
	OutcomeCompleted = "completed" // the step completed
	OutcomeUnknown   = "unknown"   // nobody said whether it ran: it may have, or not
)

// UnknownOperation is the code with which an agent answers what it does not serve. While it is being
// replaced another instance of it may: see [ReplacedFormat].
const UnknownOperation = "unknown-operation"

// EventRefused is the code of an attempt whose event its topic does not take.
const EventRefused = "event-refused"

// Codes of attempts that ended with an answer that was no good. The agent may have done
// what it was asked for.
const (
	OutputRefused = "output-refused"  // the output cannot be recorded
	ReplyTooLarge = "reply-too-large" // the reply has more than [MaxValue] bytes
	UntilNotMet   = "until-not-met"   // a step was done as often as it may be, in vain
	BadUntil      = "bad-until"       // nobody can tell whether a step is to be done again
)

// Event is one immutable transition, as it stands in the journal. It is one
// flat type for all transitions: its Type says which fields it carries, in [Specs].
type Event struct {
	Type Type `json:"type"`
	// Order is the order's id.
	Order string `json:"order,omitzero"`
	// Seq numbers the order's events from 1 without a gap.
	Seq uint64 `json:"seq,omitzero"`
	// At is when the orchestrator decided, by its own clock.
	At time.Time `json:"at"`

	Workflow    string         `json:"workflow,omitzero"`
	Version     int            `json:"version,omitzero"`
	Steps       []string       `json:"steps,omitzero"`
	Input       jsontext.Value `json:"input,omitzero"`
	ReplyTo     string         `json:"replyTo,omitzero"`
	Priority    Priority       `json:"priority,omitzero"`
	Deadline    time.Time      `json:"deadline,omitzero"`
	Traceparent string         `json:"traceparent,omitzero"`
	// Tracestate and Baggage are those of the submission, as they came. Since format 11.
	Tracestate string `json:"tracestate,omitzero"`
	Baggage    string `json:"baggage,omitzero"`
	// Digest is that of the submission: see [Submission.Digest].
	Digest string `json:"digest,omitzero"`
	// Labels are what the order is found by from here on. Since format 6.
	Labels map[string]string `json:"labels,omitempty"`
	// Submitters are who submitted the orders that this one does again, one after the other. Since
	// format 6.
	Submitters []string `json:"submitters,omitzero"`
	// RerunOf is the order that this one does again. Since format 6.
	RerunOf string `json:"rerunOf,omitzero"`

	// Pinned are versions of workflows, by their names. Parent is the order of which this one does
	// ParentStep, Depth how many of these there are above it, and Child the order that does a step
	// of this one. Since format 7.
	Pinned     map[string]int64 `json:"pinned,omitempty"`
	Parent     string           `json:"parent,omitzero"`
	ParentStep string           `json:"parentStep,omitzero"`
	Depth      int              `json:"depth,omitzero"`
	Child      string           `json:"child,omitzero"`
	// Keep is for how many seconds the order is known after its end; 0 is for ever. Since format 7.
	Keep int `json:"keep,omitzero"`
	// Children are orders that did steps of this one. Since format 7.
	Children []string `json:"children,omitzero"`
	// Detached says that the parent does not wait for the end of the child. Since format 7.
	Detached bool `json:"detached,omitzero"`

	// From is the version that the order had, Renamed what steps were called, by the names that they
	// have, and Renewed names steps: see [OrderMigrated]. Since format 8.
	From    int               `json:"from,omitzero"`
	Renamed map[string]string `json:"renamed,omitempty"`
	Renewed []string          `json:"renewed,omitzero"`

	// Topic is one of the user's, to which an event of theirs goes, of the type EventType, and under
	// Key where that is not the order's id. Of signals Key is that under which they are waited for, and of places
	// that among which their home is fair. Since format 8.
	Topic     string `json:"topic,omitzero"`
	EventType string `json:"eventType,omitzero"`
	Key       string `json:"key,omitzero"`

	// Item is the number of an item of a step, from 1 on, and AtOnce how many of them may be under way
	// at a time, or orders of a backfill. Since format 8.
	Item   int `json:"item,omitzero"`
	AtOnce int `json:"atOnce,omitzero"`
	// Page is the number of a page of a step's items, from 1 on, in the order in which they are asked for, and
	// Cursor where the next one begins: at most [MaxCursor] bytes.
	Page   int    `json:"page,omitzero"`
	Cursor string `json:"cursor,omitzero"`
	// Schedule is what a schedule says, and Incarnation how many there were of its name with this one. Tick
	// is a time at which it begins an order, or the first of several, Last the last of them, and Next the
	// one that comes after. Since format 8.
	Schedule    *Schedule `json:"schedule,omitzero"`
	Incarnation int       `json:"incarnation,omitzero"`
	Tick        time.Time `json:"tick,omitzero"`
	Last        time.Time `json:"last,omitzero"`
	Next        time.Time `json:"next,omitzero"`
	// Backfill is the number of the backfill whose tick it is, from 1 on in each incarnation; 0 is that of
	// the schedule itself. Since format 8.
	Backfill int `json:"backfill,omitzero"`
	// Limit is what a limit says. Home is the id of the home of places that one is asked of, and Rank when in the
	// order of all that wait there somebody has a place: the lowest first. Since format 9.
	Limit *Limit `json:"limit,omitzero"`
	Home  string `json:"home,omitzero"`
	Rank  uint64 `json:"rank,omitzero"`
	// OnConflict is what becomes of an order that comes while another is open under its key. Since format 9.
	OnConflict OnConflict `json:"onConflict,omitzero"`

	Step           string    `json:"step,omitzero"`
	Attempt        int       `json:"attempt,omitzero"`
	Agent          string    `json:"agent,omitzero"`
	Operation      string    `json:"operation,omitzero"`
	IdempotencyKey string    `json:"idempotencyKey,omitzero"`
	CompleteBy     time.Time `json:"completeBy,omitzero"`
	// Expires is CompleteBy and the allowance for clock skew: a reply counts
	// until then. Zero where there is no allowance.
	Expires time.Time `json:"expires,omitzero"`
	// ExtendTo is up to when CompleteBy may be moved, zero if it cannot be. Since format 6.
	ExtendTo time.Time `json:"extendTo,omitzero"`
	LockedBy string    `json:"lockedBy,omitzero"`
	// Proof says that the request had a token, and what becomes of a reply that does not
	// repeat it: [ProofWatch] or [ProofRequire]. Of a reply that waits it is
	// [ProofRepeated], or empty. Since format 4.
	Proof string    `json:"proof,omitzero"`
	Due   time.Time `json:"due,omitzero"`
	Round int       `json:"round,omitzero"`
	// Fixed says that Due is a time of the calendar.
	Fixed   bool           `json:"fixed,omitzero"`
	Outcome string         `json:"outcome,omitzero"`
	Output  jsontext.Value `json:"output,omitzero"`
	Error   *Error         `json:"error,omitzero"`
	Errors  []Error        `json:"errors,omitzero"`
	// Uncounted says that an attempt is not one of those that the retry policy allows: it
	// expired, its agent gave no sign at all, and others waited for it; or its agent did not know the
	// operation.
	Uncounted bool `json:"uncounted,omitzero"`
	// Left says that of what the order did that does the step, or the item, something that ran, or may have run, was
	// not undone when it ended. Since format 10.
	Left bool `json:"left,omitzero"`
	// ToUndo says that a discarded reply was one to an undo, or that an item is undone.
	ToUndo bool   `json:"undo,omitzero"`
	Reason string `json:"reason,omitzero"`
	// Count says how many of its type the order has with this one, since format 2.
	Count  int    `json:"count,omitzero"`
	Action string `json:"action,omitzero"`

	// AnsweredBy is the ce_source of the agent's reply behind the event, and Source where
	// that was read. Since format 4.
	AnsweredBy string `json:"answeredBy,omitzero"`

	// Command is the id of the operator's [Command] behind the event, By its
	// author: the one of Actor, or whom the command claims to be from. So it is with who
	// submitted the order.
	Command string `json:"command,omitzero"`
	By      string `json:"by,omitzero"`
	// Actor says how the instance that took the command knew its author, since format 4; of a
	// submission since format 6.
	Actor   *Actor `json:"actor,omitzero"`
	SameKey bool   `json:"sameKey,omitzero"`
	NewKey  bool   `json:"newKey,omitzero"`
	// Kept and MayHaveRun name steps of a resubmission: see [OrderResubmitted]. In
	// [OrderTerminated] MayHaveRun names those that nobody knows of.
	Kept       []string `json:"kept,omitzero"`
	MayHaveRun []string `json:"mayHaveRun,omitzero"`
	// End is the state that compensation leads to: Compensated or Cancelled.
	End       string   `json:"end,omitzero"`
	Undone    []string `json:"undone,omitzero"`
	NotUndone []string `json:"notUndone,omitzero"`
	// FailedSteps are those that a completed order went on without.
	FailedSteps []string `json:"failedSteps,omitzero"`

	// Listen is [ListenOne], [ListenAny] or [ListenAll], and Signals are the names waited for.
	Listen  string   `json:"listen,omitzero"`
	Signals []string `json:"signals,omitzero"`
	// Roles are of the people who may decide, and Outcomes what they may say, Remind is when they
	// are reminded.
	// Escalate are roles of others who may decide, too, from then on.
	Roles    []string  `json:"roles,omitzero"`
	Escalate []string  `json:"escalate,omitzero"`
	Outcomes []string  `json:"outcomes,omitzero"`
	Remind   time.Time `json:"remind,omitzero"`
	// Signal is the name of a signal, SignalID its id, if it has one, and Data what it says.
	Signal   string         `json:"signal,omitzero"`
	SignalID string         `json:"signalId,omitzero"`
	Data     jsontext.Value `json:"data,omitzero"`
	// Waiter is the order whose step waits for a signal under a key, or for a place, and Wait the number of its event
	// with which that began. Since format 8.
	Waiter string `json:"waiter,omitzero"`
	Wait   uint64 `json:"wait,omitzero"`

	// Held says that the order's inputs wait from here on.
	Held bool `json:"held,omitzero"`
	// Source names an input: topic/partition/offset.
	Source string `json:"source,omitzero"`
	Raw    *Raw   `json:"raw,omitzero"`

	Instance   string `json:"instance,omitzero"`
	Claim      string `json:"claim,omitzero"`
	Partitions int32  `json:"partitions,omitzero"`
	Format     int    `json:"format,omitzero"`
	// Delivered has the offset in the journal behind the last event of whose status
	// message the topic has no more to wait for, by topic.
	Delivered map[string]int64 `json:"delivered,omitzero"`
	// Silent says that what the agent was asked for expires, one after the other, and it
	// answers nothing in time.
	Silent bool `json:"silent,omitzero"`
}

// Actor is how an instance knew the author of a command, or of a submission, that it took over HTTP. It signs that
// with a key of the namespace, so that nobody else can say it.
type Actor struct {
	// Method is key, oidc or certificate.
	Method string `json:"method"`
	// Issuer is that of an oidc token.
	Issuer string `json:"issuer,omitzero"`
	// Roles are those that the author had for the order's workflow.
	Roles []string `json:"roles,omitzero"`
	// At is when the instance signed, by its clock.
	At time.Time `json:"at"`
}

// What becomes of a reply that does not repeat the token of its request.
const (
	ProofWatch   = "watch"   // it counts, and is counted
	ProofRequire = "require" // it is discarded: see [DiscardForged]
)

// ProofRepeated is said of a reply that waits, and repeated its token when it came.
const ProofRepeated = "repeated"

// Raw is a record of an input topic as it came, but for the token of a reply.
type Raw struct {
	// Written is the record's timestamp.
	Written time.Time   `json:"written,omitzero"`
	Key     []byte      `json:"key,omitzero"`
	Value   []byte      `json:"value"`
	Headers []RawHeader `json:"headers,omitzero"`
}

// RawHeader is a header of a [Raw] record.
type RawHeader struct {
	Key   string `json:"key"`
	Value []byte `json:"value,omitzero"`
}

// Error is a fault as an agent or the orchestrator reports it.
type Error struct {
	Code    string `json:"code,omitzero"`
	Message string `json:"message,omitzero"`
	// Permanent says that no retry can heal it (A5).
	Permanent bool `json:"permanent,omitzero"`
	// Step and Attempt say where it happened, when the error stands in a list.
	Step    string `json:"step,omitzero"`
	Attempt int    `json:"attempt,omitzero"`
	// Undo says that it was the step's undo that failed.
	Undo bool `json:"undo,omitzero"`
}

// Text is the error for people: its code and its message, as far as it has them.
func (e *Error) Text() string {
	switch {
	case e.Code == "":
		return e.Message
	case e.Message == "":
		return e.Code
	}
	return e.Code + ": " + e.Message
}

// Time cuts t to what messages carry: milliseconds, UTC, within what RFC 3339
// can say.
func Time(t time.Time) time.Time {
	switch t = t.UTC().Truncate(time.Millisecond); {
	case t.Before(firstTime) && !t.IsZero():
		return firstTime
	case t.After(lastTime):
		return lastTime
	}
	return t
}

package events

import (
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxValue is the largest value, in bytes, of a message that others send.
const MaxValue = 1 << 20

// MaxBatch is the largest batch of records, in bytes, on Waybill's own topics.
// They are created with a larger limit than Kafka's default, because a journal
// event around a message of [MaxValue] must fit.
const MaxBatch = 2 * MaxValue

// MaxDecompressed is the most bytes to which a batch may be decompressed: far more than
// any that Waybill writes, and room for those of applications that compress well.
const MaxDecompressed = 64 << 20

// MaxOrderID is the longest order id, in bytes of UTF-8.
const MaxOrderID = 256

// Priority says which orders go first when agents are short (P5).
type Priority string

// The priorities. A submission without one is Normal.
const (
	High   Priority = "high"
	Normal Priority = "normal"
	Low    Priority = "low"
)

// Submission asks for an order. The record's key is the order id.
type Submission struct {
	Workflow string `json:"workflow"`
	// Version of the workflow; 0 takes the newest that is registered.
	Version  int            `json:"version,omitzero"`
	Input    jsontext.Value `json:"input,omitzero"`
	ReplyTo  string         `json:"replyTo,omitzero"`
	Priority Priority       `json:"priority,omitzero"`
	Deadline time.Time      `json:"deadline,omitzero"`
	// Labels are what the order is found by, besides what its workflow says in search. Since
	// format 6.
	Labels map[string]string `json:"labels,omitempty"`
	// RerunOf is the order that has ended and that this one does again. Since format 6.
	RerunOf string `json:"rerunOf,omitzero"`
	// Submitters are who submitted those before, as far as that is known. They are no part of what
	// the submission asks for, nor of its digest. Since format 6.
	Submitters []string `json:"submitters,omitzero"`
	// By says who submits, which is a claim unless the record has [HeaderActor]. It is no part of
	// what the submission asks for, nor of its digest. Since format 6.
	By string `json:"by,omitzero"`
}

// Request asks an agent to carry out one attempt of a step (S3).
type Request struct {
	Order     string `json:"order"`
	Step      string `json:"step"`
	Attempt   int    `json:"attempt"`
	Operation string `json:"operation"`
	// CompleteBy ends the attempt: past it the agent stays silent (A4).
	CompleteBy time.Time `json:"completeBy"`
	// ExtendTo is up to when replies with [ReplyProgress] may move CompleteBy; zero if they
	// cannot.
	ExtendTo time.Time `json:"extendTo,omitzero"`
	// IdempotencyKey is the same for every automatic retry of the step (A3).
	IdempotencyKey string `json:"idempotencyKey"`
	// Undo says that the operation compensates for the step (C1).
	Undo bool `json:"undo,omitzero"`
	// Outcome says what is known of the step that is to be undone:
	// [OutcomeCompleted], or [OutcomeUnknown] when it may have run, or not.
	// Empty unless Undo.
	Outcome string `json:"outcome,omitzero"`
	// StepKey is the idempotency key under which was done what is to be undone. Empty
	// unless Undo, and where the undo is one for all keys that the step has had, as
	// before [KeysFormat].
	StepKey string         `json:"stepKey,omitzero"`
	Input   jsontext.Value `json:"input,omitzero"`
	// Output is that of the step that is to be undone.
	Output jsontext.Value `json:"output,omitzero"`
	// Priority is the order's; empty means [Normal].
	Priority Priority `json:"priority,omitzero"`
	// ReplyTo is the topic for the [Reply].
	ReplyTo string `json:"replyTo"`
	// Token is for the reply to repeat: by it an orchestrator knows that whoever answers
	// has seen the request. Empty where none is wanted.
	Token string `json:"token,omitzero"`
}

// The statuses of a [Reply].
const (
	ReplyCompleted = "completed"
	ReplyFailed    = "failed"
	// ReplyProgress answers nothing yet: the agent is still at it, and has the attempt's
	// complete-by moved to the reply's time and the timeout.
	ReplyProgress = "progress"
)

// Reply is an agent's answer to a [Request].
type Reply struct {
	Order   string `json:"order"`
	Step    string `json:"step"`
	Attempt int    `json:"attempt"`
	Undo    bool   `json:"undo,omitzero"`
	// Token is that of the request.
	Token  string         `json:"token,omitzero"`
	Status string         `json:"status"`
	Output jsontext.Value `json:"output,omitzero"`
	Error  *Error         `json:"error,omitzero"`
}

// The statuses that a caller hears of (P1).
const (
	StatusReceived     = "received"
	StatusRejected     = "rejected"
	StatusCompleted    = "completed"
	StatusFailed       = "failed" // it waits for an operator
	StatusCompensating = "compensating"
	StatusCompensated  = "compensated"
	StatusCancelled    = "cancelled"
	StatusRaised       = "raised" // it failed as its workflow says
	StatusTerminated   = "terminated"
	// StatusConflict answers a submission that says something else than the one that
	// made the order of its id. It says nothing of that order.
	StatusConflict = "conflict"

	// StatusMatched and those below answer a signal, on the topic that it names. They say nothing of
	// the order.
	StatusMatched  = "matched"  // a step waited for it
	StatusStarted  = "started"  // it started an order
	StatusKept     = "kept"     // a step will wait for it
	StatusRepeated = "repeated" // it came before, and acted then, or is kept
	StatusLate     = "late"     // nothing waits for it, nor will
	StatusDeclined = "declined" // it is too much
)

// Status tells the caller how its order stands.
type Status struct {
	Order  string    `json:"order"`
	Status string    `json:"status"`
	At     time.Time `json:"at"`
	Detail *Detail   `json:"detail,omitzero"`
}

// Answers says that the status answers another submission of the order's id, or a signal: it is
// for whoever sent that, and says nothing of the order.
func (s *Status) Answers() bool {
	switch s.Status {
	case StatusConflict, StatusMatched, StatusKept, StatusRepeated, StatusLate, StatusDeclined, StatusStarted:
		return true
	}
	return false
}

// Detail is what a [Status] says beyond its word.
type Detail struct {
	Step   string         `json:"step,omitzero"`
	Reason string         `json:"reason,omitzero"`
	Error  *Error         `json:"error,omitzero"`
	Output jsontext.Value `json:"output,omitzero"`
	// Undone and NotUndone say what became of the steps that had run (C3).
	Undone    []string `json:"undone,omitzero"`
	NotUndone []string `json:"notUndone,omitzero"`
	// MayHaveRun are those of a terminated order of which nobody knows whether they ran, or
	// were undone.
	MayHaveRun []string `json:"mayHaveRun,omitzero"`
	// FailedSteps are those that a completed order went on without.
	FailedSteps []string `json:"failedSteps,omitzero"`
	// Signal and SignalID say which signal the status answers.
	Signal   string `json:"signal,omitzero"`
	SignalID string `json:"signalId,omitzero"`
	// Child is the order that the signal started, or would have started.
	Child string `json:"child,omitzero"`
}

// Alert calls an operator to an order that cannot go on by itself (P2).
type Alert struct {
	Order  string  `json:"order"`
	Step   string  `json:"step,omitzero"`
	Reason string  `json:"reason"`
	Errors []Error `json:"errors"`
	// Action says what the operator can do.
	Action string `json:"action,omitzero"`
	// Reminder says that the order goes on: somebody is to decide. Nothing tells when that was done.
	Reminder bool      `json:"reminder,omitzero"`
	At       time.Time `json:"at"`
}

// AlertReason is what an alert is about.
type AlertReason string

// What alerts are about.
const (
	AboutError     AlertReason = "error"     // an order stopped in Error
	AboutHeld      AlertReason = "held"      // it is held, since deciding on it failed
	AboutOverdue   AlertReason = "overdue"   // its deadline has passed
	AboutApproval  AlertReason = "approval"  // it goes on once somebody decides, who is reminded
	AboutNamespace AlertReason = "namespace" // it is of no order: a partition, an agent, clocks
)

// About says what an alert is about. An error of no step is of the order itself, and its code is one of Waybill's own.
func (a *Alert) About() AlertReason {
	own := func(code string) bool {
		return slices.ContainsFunc(a.Errors, func(e Error) bool { return e.Step == "" && e.Code == code })
	}
	switch {
	case a.Order == "":
		return AboutNamespace
	case a.Reminder:
		return AboutApproval
	case own("internal"):
		return AboutHeld
	case own("overdue"):
		return AboutOverdue
	}
	return AboutError
}

// Signal tells an order what happened in the world, for a step that waits for it. The record's
// key is the order id, or, of one with a Key, whatever its sender likes.
type Signal struct {
	// Signal is its name.
	Signal string `json:"signal"`
	// Key is that of the business under which steps wait for it, empty if it is for the order that the
	// record's key names.
	Key string `json:"key,omitzero"`
	// ID makes a signal that is sent twice act once, as long as the order exists, or, of one with a Key, for
	// as long as it would be kept. Where it has none, every record is another signal.
	ID   string         `json:"id,omitzero"`
	Data jsontext.Value `json:"data,omitzero"`
	// KeepUntil is how long it is kept for a step that does not wait for it yet; zero means
	// [SignalKeep] from when it is decided on.
	KeepUntil time.Time `json:"keepUntil,omitzero"`
	// ReplyTo is a topic on which its sender is told what became of it, by a [Status].
	ReplyTo string `json:"replyTo,omitzero"`
	// By says who sends it, which is a claim. It is the submitter of an order that the signal starts. Since format 9.
	By string `json:"by,omitzero"`
}

// SignalKeep is how long a signal is kept that does not say how long.
const SignalKeep = 7 * 24 * time.Hour

// What a [Command] may ask for.
const (
	// CommandCancel undoes what was done, and ends the order as Cancelled.
	CommandCancel = "cancel"
	// CommandResubmit takes an order out of Error: what failed begins again (P3).
	CommandResubmit = "resubmit"
	// CommandSkipStep passes over a step, or over its undo while the order is
	// compensated.
	CommandSkipStep = "skip-step"
	// CommandPause lets nothing new start, CommandResume ends that.
	CommandPause  = "pause"
	CommandResume = "resume"
	// CommandLabel changes the labels of an order, also after its end.
	CommandLabel = "label"
	// CommandRelease has an order that is held go on, with the inputs that wait.
	CommandRelease = "release"
	// CommandTerminate ends the order as Terminated at once, and undoes nothing.
	CommandTerminate = "terminate"
	// CommandChange gives the order another priority, or another deadline.
	CommandChange = "change"
	// CommandMigrate has the order go on as one of another version of its workflow.
	CommandMigrate = "migrate"
	// CommandDecide says what somebody decides whom a step asks.
	CommandDecide = "decide"

	// CommandApply has a schedule be as Schedule says, or a limit as Limit says, CommandDelete has there be none. A
	// schedule is paused and resumed as an order is.
	CommandApply  = "apply"
	CommandDelete = "delete"
	// CommandBackfill has ticks of a schedule begin orders that have passed, be it that they did before.
	CommandBackfill = "backfill"
)

// Commands lists what a [Command] may ask for.
var Commands = []string{
	CommandCancel, CommandResubmit, CommandSkipStep, CommandPause, CommandResume, CommandLabel, CommandRelease, CommandTerminate, CommandChange, CommandMigrate, CommandDecide, CommandApply, CommandDelete, CommandBackfill,
}

// Command is an operator's act on an order, on a schedule, or on a limit. The record's key is the order id, the
// [ScheduleID], or the [LimitID].
type Command struct {
	Command string `json:"command"`
	// ID makes a command that is sent twice act once. Optional; an order
	// remembers the last one, and the last 16 whose author is known.
	ID string `json:"id,omitzero"`
	// Step is the step to skip, the one that Input is for, or the one that asks for a decision.
	Step string `json:"step,omitzero"`
	// Outcome is what is decided.
	Outcome string `json:"outcome,omitzero"`
	// Input replaces the input of the step that is resubmitted.
	Input jsontext.Value `json:"input,omitzero"`
	// Output is what later steps see of a step that is skipped.
	Output jsontext.Value `json:"output,omitzero"`
	// SameKey resubmits with the idempotency keys of before, NewKey with new ones. With
	// neither, what was answered with an error gets a new one; both together are refused.
	SameKey bool `json:"sameKey,omitzero"`
	NewKey  bool `json:"newKey,omitzero"`
	// Labels are those to set, and without a value those to remove.
	Labels map[string]*string `json:"labels,omitempty"`
	// Discard releases without the first input that waits.
	Discard bool `json:"discard,omitzero"`
	// Priority and Deadline are those that the order is to have; what is empty stays as it is.
	// NoDeadline takes the deadline away.
	Priority   Priority  `json:"priority,omitzero"`
	Deadline   time.Time `json:"deadline,omitzero"`
	NoDeadline bool      `json:"noDeadline,omitzero"`
	// AtOnce is how many items of Step are to be under way at a time, or how many orders of a backfill; 0 there
	// is one. Since format 8.
	AtOnce int `json:"atOnce,omitzero"`
	// ToVersion is the version of its workflow as one of which the order goes on: it migrates, and so it
	// does before it is resubmitted. Map has the names that steps have there, by those that they have now.
	ToVersion int               `json:"toVersion,omitzero"`
	Map       map[string]string `json:"map,omitempty"`
	// Schedule is what one is to be that is applied.
	Schedule *Schedule `json:"schedule,omitzero"`
	// Limit is what one is to be that is applied. Since format 9.
	Limit *Limit `json:"limit,omitzero"`
	// From and To are the first and the last time that a backfill is about.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// By says who acts, and Note why.
	By   string `json:"by,omitzero"`
	Note string `json:"note,omitzero"`
}

// IdempotencyKey is the key of a step's requests (A3) after the given number of
// resubmissions that gave it another. No two steps of any orders share one: names of
// steps hold neither / nor :.
func IdempotencyKey(order, step string, resubmissions int) string {
	return numbered(order+"/"+step, resubmissions)
}

// RepeatKey is that of a step that was done so many times before, and is done again.
func RepeatKey(order, step string, repeats, resubmissions int) string {
	if repeats == 0 {
		return IdempotencyKey(order, step, resubmissions)
	}
	return numbered(order+"/"+step+":r"+strconv.Itoa(repeats+1), resubmissions)
}

// UndoKey is the key of the requests to undo what was done under a step's key, after
// the given number of resubmissions that gave the undo another. Before [KeysFormat]
// it is made of the step's first key, whatever the step's key is.
func UndoKey(key string, resubmissions int) string { return numbered(key+":undo", resubmissions) }

func numbered(key string, resubmissions int) string {
	if resubmissions > 0 {
		key += ":" + strconv.Itoa(resubmissions+1)
	}
	return key
}

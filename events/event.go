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
	OrderStatus    Type = "waybill.order.status"    // a [Status] for the caller
)

// The transitions of an order. Each comment names the fields that the event
// carries besides Type, Order, Seq and At.
const (
	// OrderAccepted creates the state record, Pending (T4): Workflow, Version,
	// Steps, and whichever of Input, ReplyTo, Priority, Deadline, Traceparent
	// the submission had.
	OrderAccepted Type = "waybill.order.accepted"
	// OrderRejected says why a submission will never run: Reason, and Workflow,
	// Version, ReplyTo as far as they could be read.
	OrderRejected Type = "waybill.order.rejected"
	// OrderCompleted ends the order as Processed. The order's output is that of
	// the last step in the workflow file.
	OrderCompleted Type = "waybill.order.completed"
	// OrderErrored stops the order until an operator acts (P2): Reason, and Step
	// and Error where one step caused it.
	OrderErrored Type = "waybill.order.errored"
	// StatusRefused says that the caller's status topic cannot be written, so
	// that status messages go to the namespace's own: ReplyTo, Reason.
	StatusRefused Type = "waybill.status.refused"

	// StepStarted takes the order and starts an attempt (T5): Step, Attempt,
	// Agent, Operation, IdempotencyKey, CompleteBy, LockedBy.
	StepStarted Type = "waybill.step.started"
	// StepCompleted records a reply in time: Step, Attempt, Output.
	StepCompleted Type = "waybill.step.completed"
	// StepFailed records an agent's error: Step, Attempt, Error.
	StepFailed Type = "waybill.step.failed"
	// StepExpired records that the complete-by passed unanswered: Step, Attempt,
	// Error.
	StepExpired Type = "waybill.step.expired"
	// StepRetried arms the next attempt (V3): Step, Attempt (the next one), Due
	// (when it starts).
	StepRetried Type = "waybill.step.retried"

	// ReplyDiscarded records a reply that changed nothing: Step, Attempt,
	// Reason, one of the Discard constants.
	ReplyDiscarded Type = "waybill.reply.discarded"
	// AlertRaised calls an operator (P2): Reason, Errors, and Step where there
	// is one.
	AlertRaised Type = "waybill.alert.raised"
)

// The history of a partition. These events belong to no order: Order and Seq
// are empty, and the record has no key.
const (
	// PartitionClaimed says that Instance owns the partition from here on:
	// Instance, Claim, Partitions, Format.
	PartitionClaimed Type = "waybill.partition.claimed"
	// PartitionAdvanced carries input positions when a transaction changed no
	// order, for example because it only forwarded a record.
	PartitionAdvanced Type = "waybill.partition.advanced"
)

// Why a reply was discarded.
const (
	DiscardLate        = "late"         // it came after the complete-by
	DiscardStale       = "stale"        // it answers an attempt that is over
	DiscardRepeated    = "repeated"     // the attempt was answered before
	DiscardUnknownStep = "unknown-step" // the order has no such step, or it was not asked yet
)

// Event is one immutable transition, as it stands in the journal. It is one
// flat type for all transitions: its Type says which fields it carries.
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

	Step           string         `json:"step,omitzero"`
	Attempt        int            `json:"attempt,omitzero"`
	Agent          string         `json:"agent,omitzero"`
	Operation      string         `json:"operation,omitzero"`
	IdempotencyKey string         `json:"idempotencyKey,omitzero"`
	CompleteBy     time.Time      `json:"completeBy,omitzero"`
	LockedBy       string         `json:"lockedBy,omitzero"`
	Due            time.Time      `json:"due,omitzero"`
	Output         jsontext.Value `json:"output,omitzero"`
	Error          *Error         `json:"error,omitzero"`
	Errors         []Error        `json:"errors,omitzero"`
	Reason         string         `json:"reason,omitzero"`

	Instance   string `json:"instance,omitzero"`
	Claim      string `json:"claim,omitzero"`
	Partitions int32  `json:"partitions,omitzero"`
	Format     int    `json:"format,omitzero"`
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

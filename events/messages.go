package events

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxValue is the largest value, in bytes, of a message that others send.
const MaxValue = 1 << 20

// MaxBatch is the largest batch of records, in bytes, on Waybill's own topics.
// They are created with a larger limit than Kafka's default, because a journal
// event around a message of [MaxValue] must fit.
const MaxBatch = 2 * MaxValue

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
}

// Request asks an agent to carry out one attempt of a step (S3).
type Request struct {
	Order     string `json:"order"`
	Step      string `json:"step"`
	Attempt   int    `json:"attempt"`
	Operation string `json:"operation"`
	// CompleteBy ends the attempt: past it the agent stays silent (A4).
	CompleteBy time.Time `json:"completeBy"`
	// IdempotencyKey is the same for every automatic retry of the step (A3).
	IdempotencyKey string         `json:"idempotencyKey"`
	Undo           bool           `json:"undo,omitzero"`
	Input          jsontext.Value `json:"input,omitzero"`
	// ReplyTo is the topic for the [Reply].
	ReplyTo string `json:"replyTo"`
}

// The statuses of a [Reply].
const (
	ReplyCompleted = "completed"
	ReplyFailed    = "failed"
)

// Reply is an agent's answer to a [Request].
type Reply struct {
	Order   string         `json:"order"`
	Step    string         `json:"step"`
	Attempt int            `json:"attempt"`
	Undo    bool           `json:"undo,omitzero"`
	Status  string         `json:"status"`
	Output  jsontext.Value `json:"output,omitzero"`
	Error   *Error         `json:"error,omitzero"`
}

// The statuses that a caller hears of (P1).
const (
	StatusReceived  = "received"
	StatusRejected  = "rejected"
	StatusCompleted = "completed"
	StatusFailed    = "failed"
)

// Status tells the caller how its order stands.
type Status struct {
	Order  string    `json:"order"`
	Status string    `json:"status"`
	At     time.Time `json:"at"`
	Detail *Detail   `json:"detail,omitzero"`
}

// Detail is what a [Status] says beyond its word.
type Detail struct {
	Step   string         `json:"step,omitzero"`
	Reason string         `json:"reason,omitzero"`
	Error  *Error         `json:"error,omitzero"`
	Output jsontext.Value `json:"output,omitzero"`
}

// Alert calls an operator to an order that cannot go on by itself (P2).
type Alert struct {
	Order  string    `json:"order"`
	Step   string    `json:"step,omitzero"`
	Reason string    `json:"reason"`
	Errors []Error   `json:"errors"`
	At     time.Time `json:"at"`
}

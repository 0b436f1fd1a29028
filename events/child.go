package events

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// An order that does a step of another is its child. What their lanes tell each other travels on
// [Topics.Internal], which orchestrators alone write: to the child a [Wish], to the parent a
// [Report].

// The types of these messages.
const (
	ChildWanted   Type = "waybill.child.wanted"   // a [Wish]
	ChildReported Type = "waybill.child.reported" // a [Report]
)

// ChildPrefix begins the ids of orders that Waybill itself makes. No submission begins an order
// with such an id.
const ChildPrefix = "@"

// MaxDepth is how deep children may be nested: the child of an order that nobody's step is has
// depth 1.
const MaxDepth = 8

// Of an id of more than maxChildID bytes the end gives way to a hash of the whole.
const (
	maxChildID = 200
	childHash  = 12
)

// ChildID is the id of the order that does what has an idempotency key: see [IdempotencyKey]. No
// two keys share one.
func ChildID(key string) string {
	id := ChildPrefix + key
	if len(id) <= maxChildID {
		return id
	}
	sum := sha256.Sum256([]byte(key))
	hash := "~" + hex.EncodeToString(sum[:childHash])
	n := maxChildID - len(hash)
	for !utf8.RuneStart(id[n]) {
		n--
	}
	return id[:n] + hash
}

// OwnID says that an order of this id is one that Waybill itself makes.
func OwnID(order string) bool { return strings.HasPrefix(order, ChildPrefix) }

// What a [Wish] may ask for.
const (
	// WishBegin begins the child. One that is there already, for the same step, tells how it
	// ended, if it did.
	WishBegin = "begin"
	// WishCancel undoes what a child has done that has not ended, and ends it.
	WishCancel = "cancel"
	// WishForget has what is known of a child that has ended be forgotten.
	WishForget = "forget"
	// WishUndo undoes what a child did that is Processed.
	WishUndo = "undo"
	// WishTell has a child tell once more how it ended, if it did: what it told may be given up, or a page of items
	// be needed again.
	WishTell = "tell"
)

// Wish is what an order asks of one that does a step of it. The record's key is Child.
type Wish struct {
	Child  string `json:"child"`
	Wish   string `json:"wish"`
	Parent string `json:"parent"`
	Step   string `json:"step"`
	// Reason says why, but of [WishBegin] and [WishForget].
	Reason string `json:"reason,omitzero"`

	// What follows is of [WishBegin].

	// Detached says that the parent waits for no more than that the child is accepted.
	Detached bool `json:"detached,omitzero"`
	Depth    int  `json:"depth,omitzero"`

	Workflow string         `json:"workflow,omitzero"`
	Version  int            `json:"version,omitzero"`
	Input    jsontext.Value `json:"input,omitzero"`
	// ReplyTo is the topic for status messages; empty means that there are none.
	ReplyTo    string            `json:"replyTo,omitzero"`
	Priority   Priority          `json:"priority,omitzero"`
	Deadline   time.Time         `json:"deadline,omitzero"`
	Labels     map[string]string `json:"labels,omitempty"`
	Submitters []string          `json:"submitters,omitzero"`
	By         string            `json:"by,omitzero"`
	// Key is that of the signal which starts the child, empty if none does. Since format 9.
	Key string `json:"key,omitzero"`
}

// Submission is what [WishBegin] asks for.
func (w *Wish) Submission() Submission {
	return Submission{
		Workflow: w.Workflow, Version: w.Version, Input: w.Input, ReplyTo: w.ReplyTo, Priority: w.Priority,
		Deadline: w.Deadline, Labels: w.Labels, Submitters: w.Submitters, By: w.By,
	}
}

// Append appends the wish's JSON.
func (w *Wish) Append(dst []byte) []byte {
	o := open(dst)
	o.text("child", w.Child)
	o.text("wish", w.Wish)
	o.text("parent", w.Parent)
	o.text("step", w.Step)
	o.text("reason", w.Reason)
	o.truth("detached", w.Detached)
	o.number("depth", int64(w.Depth))
	o.text("workflow", w.Workflow)
	o.number("version", int64(w.Version))
	o.raw("input", w.Input)
	o.text("replyTo", w.ReplyTo)
	o.text("priority", string(w.Priority))
	o.time("deadline", w.Deadline)
	o.pairs("labels", w.Labels)
	o.texts("submitters", w.Submitters)
	o.text("by", w.By)
	o.text("key", w.Key)
	return o.end()
}

// Report tells an order how one stands that does a step of it. The record's key is Parent.
type Report struct {
	Parent string `json:"parent"`
	Step   string `json:"step"`
	Child  string `json:"child"`
	// State is the child's: one of the ends, or Pending of a child that was accepted and that the
	// parent does not wait for.
	State  string         `json:"state"`
	Output jsontext.Value `json:"output,omitzero"` // of one that is Processed
	Error  *Error         `json:"error,omitzero"`  // why it has no output
	// Left says that something which ran there, or may have run, was not undone. An older release does not say so.
	Left bool `json:"left,omitzero"`
}

// IDTaken is the code of a step whose child cannot begin: an order of its id is there, and does not
// do this step.
const IDTaken = "id-taken"

// Append appends the report's JSON.
func (r *Report) Append(dst []byte) []byte {
	o := open(dst)
	o.text("parent", r.Parent)
	o.text("step", r.Step)
	o.text("child", r.Child)
	o.text("state", r.State)
	o.raw("output", r.Output)
	o.fault(r.Error)
	o.truth("left", r.Left)
	return o.end()
}

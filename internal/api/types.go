package api

import (
	"encoding/json"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

// Order is the state record of an order. What an order does not have is null,
// never left out.
type Order struct {
	Summary
	Seq      uint64          `json:"seq" doc:"How many events the order has: the number of its last"`
	Input    json.RawMessage `json:"input"`
	Output   json.RawMessage `json:"output" doc:"That of the last step, once the order is Processed"`
	Steps    []Step          `json:"steps" nullable:"false"`
	ReplyTo  *string         `json:"replyTo" doc:"The caller's topic for status messages; null means the namespace's"`
	Deadline *Time           `json:"deadline"`
	Digest   *string         `json:"digest" doc:"A fingerprint of the submission that made the order; null if that was before journal format 2"`
	RerunOf  *string         `json:"rerunOf" doc:"The order that this one does again; null if it does none"`
	Parent   *Parent         `json:"parent" doc:"The order of which this one does a step; null if it does none"`
	Failure  *Fault          `json:"failure" doc:"What a step of the workflow raised, or why the order got no turn; null if it is neither"`
	Alert    *Alert          `json:"alert" doc:"The open alert"`
	// SubmittedBy is who submitted the order.
	SubmittedBy *string      `json:"submittedBy" doc:"Who submitted the order, as the submission says; the history says how that is known. Null if nobody is named"`
	Signals     []KeptSignal `json:"signals" nullable:"false" doc:"Those that are kept for steps that will listen, oldest first"`
	Turn        *Turn        `json:"turn" doc:"That of the order among those of its workflow that have the same key, until it has ended; null if its workflow has no concurrency"`
	NotDecoded
}

// Turn is that of an order of whose workflow one is open at a time under a key.
type Turn struct {
	Home       *string `json:"home" doc:"The id of the record that gives the turns: its history says who has, and had, one"`
	Key        *string `json:"key"`
	OnConflict string  `json:"onConflict" enum:"queue,reject,cancel-other"`
	Since      *Time   `json:"since" doc:"When it asked for it; null if it gave it up"`
	Waits      bool    `json:"waits" doc:"It waits for it: another order has it"`
	GivenUp    bool    `json:"givenUp" doc:"It was in Error before its turn came, and asks anew once it is resubmitted, behind those that came since. If it neither waits nor gave its turn up, it is the open one"`
}

// TransformSchema says that an order may need no turn.
func (Turn) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

// Summary is what a listing says of an order.
type Summary struct {
	OrderID      string             `json:"orderId"`
	Workflow     string             `json:"workflow"`
	Version      int                `json:"version"`
	ProcessState projections.State  `json:"processState" enum:"Pending,Processing,Processed,Error,Compensating,Compensated,Cancelled,Raised,Terminated,Rejected"`
	LockedBy     *string            `json:"lockedBy" doc:"The instance that works on the order; null while nobody does"`
	CompleteBy   *Time              `json:"completeBy" doc:"The earliest complete-by of the order's steps and undos that run, or start of a retry, or end of a sleep, that is yet to come; null if there is none: what waits for its agent has no complete-by yet"`
	SleepsUntil  *Time              `json:"sleepsUntil" doc:"When the first of the order's steps wakes that sleep, listens no more, or reminds or asks people no more; null if none does, and during a pause"`
	StandsAt     []StandsAt         `json:"standsAt,omitzero" required:"true" nullable:"false" doc:"The first steps, five at most, at which an order stands that has not ended: what is under way, waits for something, or has failed. Once it is compensated these are undos"`
	StandsAtAll  *int               `json:"standsAtAll,omitzero" required:"true" nullable:"false" doc:"How many there are"`
	FailedSteps  []string           `json:"failedSteps" nullable:"false" doc:"The steps that failed for good, and without which the order went on"`
	WaitsSince   *Time              `json:"waitsSince" doc:"From when on the first of the order's steps and undos could have begun that wait for their agents; null if none waits"`
	FailureCount int                `json:"failureCount"`
	AcceptedAt   *Time              `json:"acceptedAt"`
	UpdatedAt    *Time              `json:"updatedAt"`
	Priority     events.Priority    `json:"priority" enum:"high,normal,low"`
	Reason       *string            `json:"reason" doc:"Why the order was rejected, is in Error, is or was compensated, or was raised or terminated"`
	Labels       map[string]string  `json:"labels" nullable:"false" doc:"What the order is found by: its labels, and what its workflow makes of the input in search"`
	Partition    int32              `json:"partition"`
	Paused       bool               `json:"paused" doc:"An operator lets nothing new start"`
	Held         bool               `json:"held" doc:"Deciding on the order panicked: nothing is decided, and its inputs wait, until an operator releases it; reason says what happened"`
	Waiting      int                `json:"waiting" doc:"How many inputs wait for the release"`
	Masked       bool               `json:"masked,omitzero" doc:"Payloads are left out, as reason and labels are, because the caller does not have the role payload-reader: they are null, or empty, which does not say that there is none"`
	Toward       *projections.State `json:"toward" doc:"Once compensation began: the state that it leads to, Compensated or Cancelled; also while an undo that failed keeps the order in Error"`
}

// StandsAt is a step at which an order stands, or its undo.
type StandsAt struct {
	Step  string                `json:"step"`
	State projections.StepState `json:"state" enum:"not-started,running,completed,failed,expired,skipped,sleeping,repeating,listening,approving,timed-out,undone,raised" doc:"not-started: it waits for its agent, or for a place; another of what is over: the alert is about it"`
	Undo  bool                  `json:"undo" doc:"It is the step's undo"`
}

// maxStandsAt is how many of them a row has.
const maxStandsAt = 5

// Step is the state record of one step of an order.
type Step struct {
	Name           string                `json:"name"`
	KnownAs        *string               `json:"knownAs" doc:"Under which name agents, and orders that do it, know the step, where that is another since the order migrated; null if it is not"`
	State          projections.StepState `json:"state" enum:"not-started,running,completed,failed,expired,skipped,sleeping,repeating,listening,approving,timed-out,undone,raised"`
	Attempt        int                   `json:"attempt" doc:"0 before the first"`
	CompleteBy     *Time                 `json:"completeBy" doc:"The end of the running attempt; of a step that another order does, when that is recalled, null once it is"`
	Due            *Time                 `json:"due" doc:"When the next attempt starts, while a retry is armed; past while that waits for its agent. Of a step that sleeps, when it wakes, of one that listens, when it waits no more, and of one that asks people, when it looks again; null during a pause"`
	FailureCount   int                   `json:"failureCount" doc:"How many attempts failed or expired, in all"`
	Uncounted      int                   `json:"uncounted" doc:"How many of failureCount the retry policy does not count: they expired while the agent gave no sign, or did not know the operation, which another instance of it may"`
	IdempotencyKey *string               `json:"idempotencyKey"`
	Output         json.RawMessage       `json:"output"`
	Error          *Fault                `json:"error" doc:"Of the last attempt that failed"`
	Round          int                   `json:"round" doc:"How many extended waits there were, each with a new round of attempts behind it; a resubmission begins with 0 again"`
	Input          json.RawMessage       `json:"input" doc:"The step's own; null means the order's"`
	Repeats        int                   `json:"repeats" doc:"How many times the step was done before, and is done again, as its workflow says in repeat"`
	Wakes          *Time                 `json:"wakes" doc:"The time of the calendar until which the step sleeps, or slept; null if it is none"`
	Left           *string               `json:"left" doc:"How long the step sleeps, listens or asks people on after the pause that the order is in, such as 6m30s; else null"`
	Listens        *Listens              `json:"listens" doc:"What the step waits for; null unless it does"`
	Approves       *Approves             `json:"approves" doc:"What the step asks people, or did; null unless it does"`
	Child          *Child                `json:"child" doc:"The order that does the step, or did; null if there is none"`
	Items          *Items                `json:"items" doc:"How it stands with the items of a list for each of which the step is done; null if there are none"`
	Passed         bool                  `json:"passed" doc:"The step failed for good, and the order went on without it"`
	Unknown        bool                  `json:"unknown" doc:"An attempt expired without an answer, or its answer was no good, and none completed since: the step may have run, or not"`
	Leaves         bool                  `json:"leaves" doc:"An order that did the step, or an item of it, ended with something that ran there, or may have run, and was not undone"`
	LeftBy         []LeftBy              `json:"leftBy" nullable:"false" doc:"Which orders those were, oldest first. Not those that ended before journal format 11. Those that did items stand with these"`
	EarlierKeys    []string              `json:"earlierKeys" nullable:"false" doc:"Idempotency keys of before under which the step may have run, too, oldest first: it is undone under each"`
	Undo           *Undo                 `json:"undo" doc:"Null before the undo begins"`
	Place          *Place                `json:"place" doc:"The place of a limit for which the step, or its undo, waits; null if it waits for none"`
	Waits          *Waits                `json:"waits" doc:"Null if neither the step nor its undo waits for its agent"`
}

// Place is one that an attempt waits for.
type Place struct {
	Limit string  `json:"limit"`
	Key   *string `json:"key" doc:"Among whose attempts and those of other keys it takes turns; null if its step says none"`
	Since *Time   `json:"since"`
	Undo  bool    `json:"undo" doc:"It is for the step's undo"`
}

// TransformSchema says that a step may not wait for a place.
func (Place) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

// Listens is what a step waits for.
type Listens struct {
	How     string   `json:"how" enum:"one,any,all" doc:"one signal, or several of one name; the first of several; or all of them"`
	Signals []string `json:"signals" nullable:"false" doc:"The names of the signals that it still waits for"`
	Left    int      `json:"left" doc:"How many signals of the name it still waits for"`
	Key     *string  `json:"key" doc:"That of the business under which it hears them; null if it hears those for its order"`
}

// TransformSchema says that a step may not listen.
func (Listens) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

// Approves is what a step asks people.
type Approves struct {
	Roles     []string  `json:"roles" nullable:"false" doc:"Of those who may decide now"`
	Escalate  []string  `json:"escalate" nullable:"false" doc:"Of others who may, too, once the decision is due"`
	Outcomes  []string  `json:"outcomes" nullable:"false" doc:"What may be decided"`
	Count     int       `json:"count" doc:"How many people have to say the first outcome. Any other needs one"`
	Since     *Time     `json:"since"`
	Due       *Time     `json:"due" doc:"When the decision is due; null for never"`
	Overdue   bool      `json:"overdue" doc:"It is due, and those who may decide were reminded"`
	Until     *Time     `json:"until" doc:"When the step waits no more; null for never, and during a pause"`
	Decisions []Verdict `json:"decisions" nullable:"false" doc:"What was decided so far, oldest first"`
}

// TransformSchema says that a step may ask nobody.
func (Approves) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

// Verdict is what somebody decided.
type Verdict struct {
	By      string  `json:"by"`
	Outcome string  `json:"outcome"`
	Note    *string `json:"note"`
	At      *Time   `json:"at"`
}

func approvesOf(a *projections.Approval) *Approves {
	if a == nil {
		return nil
	}
	told := &Approves{
		Roles: a.Roles, Escalate: append([]string{}, a.Escalate...), Outcomes: a.Outcomes, Count: a.Count,
		Since: at(a.Since), Due: at(a.Remind), Overdue: a.Reminded, Until: at(a.Until), Decisions: make([]Verdict, len(a.Decisions)),
	}
	for i, v := range a.Decisions {
		told.Decisions[i] = Verdict{v.By, v.Outcome, text(v.Note), at(v.At)}
	}
	return told
}

// Parent is the order of which another does a step.
type Parent struct {
	Order    string `json:"order"`
	Step     string `json:"step"`
	Detached bool   `json:"detached" doc:"It does not wait for the end of the other, and does not have it undone"`
}

// TransformSchema says that an order may do no step of another.
func (Parent) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

func parentOf(p *projections.Parent) *Parent {
	if p == nil {
		return nil
	}
	return &Parent{p.Order, p.Step, p.Detached}
}

// Child is the order that does a step.
type Child struct {
	Order    string `json:"order"`
	Recalled bool   `json:"recalled" doc:"Before it had ended, it was asked to undo what it did, and to end"`
	// ProcessState and Alerted are of another order, which the caller may not see.
	ProcessState *projections.State `json:"processState" enum:"Pending,Processing,Processed,Error,Compensating,Compensated,Cancelled,Raised,Terminated,Rejected" doc:"As far as the instance that answers knows it; else null, as where the caller may not see that order"`
	Alerted      *bool              `json:"alerted" doc:"Whether an alert of it is open: it waits for an operator. Null where processState is"`
}

// TransformSchema says that a step may be done by no other order.
func (Child) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

func childOf(c *projections.Child) *Child {
	if c == nil {
		return nil
	}
	return &Child{Order: c.ID, Recalled: c.Recalled}
}

// LeftBy is an order that did a step, or an item of it, and ended with something that was not undone.
type LeftBy struct {
	Order string `json:"order"`
	// Steps are those of another order, which the caller may not see.
	Steps []string `json:"steps" nullable:"false" doc:"Its steps that ran, or may have run, and were not undone; empty as far as the instance that answers does not know that order, or the caller may not see it"`
}

func leftBy(ids []string) []LeftBy {
	all := make([]LeftBy, len(ids))
	for i, id := range ids {
		all[i] = LeftBy{id, []string{}}
	}
	return all
}

// look says what an order left, if that is known here, and the caller may see it.
func (l *LeftBy) look(i *orchestrator.Instance, caller *identity.Caller) {
	if o, _, err := i.Order(l.Order); err == nil && caller.May(identity.Viewer, o.Workflow) {
		l.Steps = o.Leavings()
	}
}

// KeptSignal is a signal that an order keeps for a step that will listen for it.
type KeptSignal struct {
	Signal string          `json:"signal"`
	ID     *string         `json:"id"`
	Until  *Time           `json:"until" doc:"How long it is kept"`
	Data   json.RawMessage `json:"data"`
}

// Waits is what a step, or its undo, waits for: its turn has come, and its agent cannot be
// asked. What is null is known only to the instance that owns the order's partition, once
// it has looked at the step.
type Waits struct {
	Since       *Time    `json:"since" doc:"From when on it could have begun"`
	Agent       string   `json:"agent"`
	Before      *int     `json:"before" doc:"How many others leave before it, of its partition. Of every eight that leave one is the oldest, whatever its priority"`
	Window      *float64 `json:"window" doc:"How many requests of its partition may queue at the agent; less than 1 if each is followed by a pause"`
	Probed      *bool    `json:"probed" doc:"The agent gives no sign: one request at a time probes it, and window is 0"`
	UnderWay    *int     `json:"underWay" doc:"How many requests of its partition are with the agent"`
	SilentSince *Time    `json:"silentSince" doc:"Since when the agent has answered nothing in time, as the alert about that says, or the journal where there is none yet"`
}

// TransformSchema says that a step may not wait.
func (Waits) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

// Undo is the state record of a step's undo.
type Undo struct {
	State          projections.StepState `json:"state" enum:"not-started,running,completed,failed,expired,skipped"`
	Attempt        int                   `json:"attempt" doc:"0 before the first"`
	CompleteBy     *Time                 `json:"completeBy" doc:"The end of the running attempt"`
	Due            *Time                 `json:"due" doc:"When the next attempt starts, while a retry is armed; past while that waits for its agent"`
	FailureCount   int                   `json:"failureCount" doc:"As of a step"`
	Uncounted      int                   `json:"uncounted" doc:"As of a step"`
	IdempotencyKey *string               `json:"idempotencyKey"`
	Error          *Fault                `json:"error" doc:"Of the last attempt that failed"`
	Round          int                   `json:"round" doc:"As of a step"`
	Input          json.RawMessage       `json:"input" doc:"That of a resubmission; else null"`
}

// TransformSchema says that a step's undo may be null.
func (Undo) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

// Alert is a call for an operator.
type Alert struct {
	Order    string  `json:"order"`
	Workflow string  `json:"workflow"`
	Version  int     `json:"version"`
	Parent   *Parent `json:"parent" doc:"The order of which this one does a step; null if it does none"`
	Step     *string `json:"step"`
	Reason   string  `json:"reason"`
	Errors   []Fault `json:"errors" nullable:"false"`
	Action   *string `json:"action" doc:"What the operator can do"`
	At       *Time   `json:"at"`
	Masked   bool    `json:"masked,omitzero" doc:"Reason, action, and what the errors say, are left out, because the caller does not have the role payload-reader"`
}

// TransformSchema says that an order's alert may be null.
func (Alert) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

// Fault is an error of an agent or of the orchestrator.
type Fault events.Error

// TransformSchema says that a step's error may be null.
func (Fault) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

// Partition says who writes a partition and how far its journal was folded.
type Partition struct {
	Partition   int32   `json:"partition"`
	Owner       *string `json:"owner" doc:"The instance that claimed the partition last"`
	ClaimedAt   *Time   `json:"claimedAt"`
	Offset      int64   `json:"offset" doc:"The next journal offset to fold"`
	Transaction uint64  `json:"transaction" doc:"The number of the last folded transaction"`
	Known       bool    `json:"known" doc:"The instance read the journal to its end once since it serves or follows the partition: until then, and where it does not hear from Kafka, it does not say that there is no such order"`
	Behind      *int64  `json:"behind" doc:"How many records of the journal the instance has not folded, as of a second ago; null if that is not known"`
	OwnerURL    string  `json:"ownerUrl,omitempty" doc:"Where the instance is asked to which the group gives the partition, if it is another one and advertises an address"`
	SharesURL   bool    `json:"sharesUrl,omitempty" doc:"The instance to which the group gives the partition advertises the address of the one that answers, so that it cannot be named: give each an address of its own"`
	Clock       *Clock  `json:"clock,omitempty" doc:"How the clock of this instance stands to Kafka's, which says when the journal was written. Not there where another instance serves the partition, or that cannot be told"`
	Elsewhere   bool    `json:"elsewhere,omitempty" doc:"The instance runs with --standby owned and does not own the partition: this is how it stood when it last did"`
}

// Clock is how the clock of an instance stands to Kafka's.
type Clock struct {
	Right   bool  `json:"right" doc:"They differ by no more than a minute, or than --clock-skew where that is more. By one that is wrong no attempt expires and none is tried again"`
	AheadMs int64 `json:"aheadMs" doc:"By how much it is ahead, negative if it is behind; 0 if it is right"`
}

// Time is a time as Waybill's messages write it: UTC, to the millisecond.
type Time struct{ time.Time }

// MarshalJSON writes the time as RFC 3339 with three digits of a second.
func (t Time) MarshalJSON() ([]byte, error) {
	return append(events.AppendTime([]byte{'"'}, t.Time), '"'), nil
}

// Schema describes the time for OpenAPI.
func (Time) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time", Nullable: true}
}

// OrderOf is the order as people see it at a time.
func OrderOf(partition int32, o *projections.Order, now time.Time) Order {
	order := Order{
		Summary: summaryOf(partition, o, now), Seq: o.Seq,
		Input: json.RawMessage(o.Input), Output: json.RawMessage(o.Output()),
		Steps:   make([]Step, len(o.Steps)),
		ReplyTo: text(o.ReplyTo), Deadline: at(o.Deadline), Digest: text(o.Digest), RerunOf: text(o.RerunOf),
		Parent: parentOf(o.Parent), Failure: (*Fault)(o.Failure), Alert: alertOf(o), SubmittedBy: text(o.SubmittedBy),
	}
	order.Signals = []KeptSignal{}
	for i := range o.Signals {
		if s := &o.Signals[i]; s.Kept() {
			order.Signals = append(order.Signals, KeptSignal{s.Name, text(s.ID), at(s.Until), json.RawMessage(s.Data)})
		}
	}
	if t := o.OwnTurn(); t != nil {
		order.Turn = &Turn{text(t.Home), text(t.Key), string(t.OnConflict), at(t.Since), o.Queued(), false}
	} else if o.Queued() {
		order.Turn = &Turn{text(o.TurnHome), text(o.TurnKey), string(events.ConflictQueue), nil, false, true}
	}
	for i := range o.Steps {
		s := &o.Steps[i]
		order.Steps[i] = Step{
			Name: s.Name, KnownAs: text(s.Alias), State: s.State, Attempt: s.Attempt,
			CompleteBy: at(s.CompleteBy), Due: at(s.Due), FailureCount: s.FailureCount, Uncounted: s.Uncounted,
			IdempotencyKey: text(s.IdempotencyKey), Output: json.RawMessage(s.Output), Error: (*Fault)(s.Error),
			Round: s.Round, Input: json.RawMessage(s.Input), Repeats: s.Repeats, Wakes: at(s.WakesAt()), Passed: s.Passed, Unknown: s.Unknown, Leaves: s.Leaves, LeftBy: leftBy(o.LeftBy(s)), EarlierKeys: make([]string, len(s.Earlier)), Undo: undoOf(s.Undo),
		}
		if s.State.Idle() && s.Due.IsZero() && s.Wakes == nil && (s.Left > 0 || s.State == projections.Sleeping) {
			order.Steps[i].Left = new(s.Left.String())
		}
		order.Steps[i].Listens = listensOf(s)
		order.Steps[i].Approves, order.Steps[i].Child, order.Steps[i].Items = approvesOf(s.Approves), childOf(s.Child), itemsOf(s)
		for j, key := range s.Earlier {
			order.Steps[i].EarlierKeys[j] = events.IdempotencyKey(o.ID, s.Known(), key.Resubmissions)
		}
		for j := range o.Turns {
			if t := &o.Turns[j]; t.Ended == 0 && t.Step == s.Known() && o.WorkOf(t).Waits() {
				order.Steps[i].Place = &Place{events.LimitOf(t.Home), text(t.Key), at(t.Since), t.Undo}
			}
		}
	}
	return order
}

// waitsOf is what a step waits for, as people see it.
func waitsOf(w *orchestrator.Waits) *Waits {
	if w == nil {
		return nil
	}
	waits := &Waits{Since: at(w.Since), Agent: w.Agent, SilentSince: at(w.SilentSince)}
	if p := w.Place; p != nil {
		waits.Before, waits.Window, waits.Probed = &p.Before, &p.Window, &p.Probed
		waits.UnderWay = &p.UnderWay
		if !p.SilentSince.IsZero() {
			waits.SilentSince = at(p.SilentSince)
		}
	}
	return waits
}

func undoOf(w *projections.Work) *Undo {
	if w == nil {
		return nil
	}
	return &Undo{
		State: w.State, Attempt: w.Attempt, CompleteBy: at(w.CompleteBy), Due: at(w.Due),
		FailureCount: w.FailureCount, Uncounted: w.Uncounted, IdempotencyKey: text(w.IdempotencyKey), Error: (*Fault)(w.Error),
		Round: w.Round, Input: json.RawMessage(w.Input),
	}
}

func summaryOf(partition int32, o *projections.Order, now time.Time) Summary {
	stands, all := o.Stands(maxStandsAt)
	s := Summary{
		StandsAt: make([]StandsAt, len(stands)), StandsAtAll: &all,
		OrderID: o.ID, Workflow: o.Workflow, Version: o.Version, ProcessState: o.State,
		LockedBy: text(o.LockedBy), CompleteBy: at(o.CompleteBy(now)), SleepsUntil: at(o.SleepsUntil()), FailedSteps: append([]string{}, o.FailedSteps()...), WaitsSince: at(o.WaitsSince(now)), FailureCount: o.FailureCount,
		AcceptedAt: at(o.AcceptedAt), UpdatedAt: at(o.UpdatedAt),
		Priority: o.Priority, Reason: text(o.StandingReason()), Labels: o.Labels, Partition: partition,
		Paused: o.Paused, Held: o.Hold != nil, Waiting: len(o.Waiting), Toward: text(o.Toward),
	}
	for i, at := range stands {
		s.StandsAt[i] = StandsAt(at)
	}
	if s.Priority == "" {
		s.Priority = events.Normal
	}
	return s
}

func alertOf(o *projections.Order) *Alert {
	if o.Alert == nil {
		return nil
	}
	a := &Alert{
		Order: o.ID, Workflow: o.Workflow, Version: o.Version, Parent: parentOf(o.Parent),
		Step: text(o.Alert.Step), Reason: o.Alert.Reason, Action: text(o.Alert.Action), At: at(o.Alert.At),
		Errors: make([]Fault, len(o.Alert.Errors)),
	}
	for i, e := range o.Alert.Errors {
		a.Errors[i] = Fault(e)
	}
	return a
}

func partitionOf(i *orchestrator.Instance, p int32, h *projections.Head) Partition {
	told := Partition{
		Partition: p, Owner: text(h.Owner), ClaimedAt: at(h.ClaimedAt),
		Offset: h.Offset, Transaction: h.Transaction, Known: i.Knows(p),
	}
	if records, known := i.Lag(p); known {
		told.Behind = &records
	}
	if ahead, known := i.Clock(p); known {
		told.Clock = &Clock{ahead == 0, ahead.Milliseconds()}
	}
	return told
}

func text[S ~string](s S) *S {
	if s == "" {
		return nil
	}
	return &s
}

func at(t time.Time) *Time {
	if t.IsZero() || t.UnixMilli() == 0 {
		return nil
	}
	return &Time{t}
}

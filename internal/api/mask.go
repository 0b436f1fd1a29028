package api

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
)

// mask takes payloads out of answers for whom they are not: what orders, steps and
// agents said, in the words of the callers and agents. Every answer of an operation
// passes here, and one of a kind that is not known here is not given. What is left are
// ids, names, states, numbers and times.
func (s *Server) mask(c huma.Context, _ string, answer any) (any, error) {
	caller := callerOf(c.Context())
	shown := 0
	hidden := func(workflow string) bool {
		if caller.May(identity.PayloadReader, workflow) {
			shown++
			return false
		}
		return true
	}
	// mayRead says whether all that is said of the orders of a workflow, or, with "", of any, is for the caller.
	mayRead := func(workflow string) bool {
		return caller.Everywhere(identity.PayloadReader) || workflow != "" && caller.May(identity.PayloadReader, workflow)
	}
	switch v := answer.(type) {
	case Order:
		if hidden(v.Workflow) {
			v.mask()
		}
		answer = v
	case OrderPage:
		for n := range v.Orders {
			if o := &v.Orders[n]; hidden(o.Workflow) {
				o.mask()
			}
		}
	case AlertPage:
		for n := range v.Alerts {
			if a := &v.Alerts[n]; hidden(a.Workflow) {
				maskAlert(a)
			}
		}
	case AlertReasons:
		for n := range v.Reasons {
			for m := range v.Reasons[n].Oldest {
				if a := &v.Reasons[n].Oldest[m]; hidden(a.Workflow) {
					maskAlert(a)
				}
			}
		}
	case ApprovalPage: // those who decide see what they are shown
		for n := range v.Approvals {
			if a := &v.Approvals[n]; !a.Mine && hidden(a.Workflow) {
				a.Show, a.Masked = nil, true
				maskVerdicts(a.Decisions)
			}
		}
	case SignalWaitPage:
		for n := range v.Waits {
			if w := &v.Waits[n]; w.Key != nil && hidden(w.Workflow) {
				w.Key, w.Masked = nil, true
			}
		}
	case ItemPage:
		if hidden(v.workflow) {
			v.mask()
		}
		answer = v
	case Schedule:
		if hidden(v.Workflow) {
			v.mask()
		}
		answer = v
	case SchedulePage:
		for n := range v.Schedules {
			if sc := &v.Schedules[n]; hidden(sc.Workflow) {
				sc.mask()
			}
		}
	case History:
		if hidden(v.workflow) {
			for n := range v.Events {
				masked, err := maskedEvent(v.Events[n])
				if err != nil {
					return nil, err
				}
				v.Events[n] = masked
			}
			v.Masked = true
		}
		answer = v
	case Receipt:
		if v.workflow != "" && !caller.May(identity.PayloadReader, v.workflow) {
			v.Digest = ""
		}
		if v.Order != nil && hidden(v.Order.Workflow) {
			v.Order.mask()
		}
		answer = v
	case *huma.ErrorModel:
		own := *v // that of several answers, maybe
		own.Type = cmp.Or(v.Type, typeOf(v.Status))
		own.Errors = s.explained(c.Operation(), v.Errors)
		answer = &own
	case *elsewhere:
		if v.Owner != "" {
			there := c.URL()
			c.SetHeader("Link", "<"+v.Owner+there.RequestURI()+`>; rel="alternate"`)
		}
	case DeadLetterPage, WholeDeadLetter: // for who may read all; see [Server.useLetters]
		s.audit(c.Context(), "payloads were read", "operation", c.Operation().OperationID, "of", askingOf(c.Context()).target)
	case Bulk:
		if !mayRead(v.Filter.Workflow) {
			v.mask()
		}
		answer = v
	case BulkPage:
		for n := range v.Acts {
			if b := &v.Acts[n]; !mayRead(b.Filter.Workflow) {
				b.mask()
			}
		}
	case BulkOrders:
		for n := range v.Orders {
			if o := v.Orders[n].Now; o != nil && hidden(o.Workflow) {
				o.mask()
			}
		}
	case Limit, LimitPage: // which are of no workflow
	case Keyed: // for who may read all of it; see [Server.getKey]
		if len(v.Homes) > 0 { // which key is a payload itself
			s.audit(c.Context(), "payloads were read", "operation", c.Operation().OperationID)
		}
	case Replayed, Heard, Ticks, Agents, Activity, Partitions, Partition, *Upgrade, Workflows, Versions, Migration, Caller, json.RawMessage, huma.StatusError: // a workflow; see [Server.getWorkflow]
	default:
		return nil, fmt.Errorf("nothing says what of a %T is a payload", answer)
	}
	if shown > 0 {
		s.audit(c.Context(), "payloads were read", "operation", c.Operation().OperationID, "of", cmp.Or(c.Param("id"), askingOf(c.Context()).made), "orders", fmt.Sprint(shown))
	}
	return answer, nil
}

func (o *Order) mask() {
	o.Summary.mask()
	o.Failure = maskedFault(o.Failure)
	o.Input, o.Output, o.Digest = nil, nil, nil // a digest tells whether a guess is right
	for i := range o.Signals {
		o.Signals[i].Data = nil
	}
	if o.Turn != nil {
		o.Turn.Home, o.Turn.Key = nil, nil
	}
	for i := range o.Steps {
		st := &o.Steps[i]
		st.Input, st.Output, st.Error = nil, nil, maskedFault(st.Error)
		if st.Listens != nil {
			st.Listens.Key = nil
		}
		if st.Place != nil {
			st.Place.Key = nil
		}
		if st.Approves != nil {
			maskVerdicts(st.Approves.Decisions)
		}
		if st.Undo != nil {
			st.Undo.Input, st.Undo.Error = nil, maskedFault(st.Undo.Error)
		}
	}
	if o.Alert != nil {
		maskAlert(o.Alert)
	}
}

// maskVerdicts leaves who decided what, and not what they say about it.
func maskVerdicts(all []Verdict) {
	for i := range all {
		all[i].Note = nil
	}
}

func (o *Summary) mask() { o.Reason, o.Labels, o.Masked = nil, nil, true }

// maskAlert leaves which step it is about, and of which attempts the errors are.
func maskAlert(a *Alert) {
	a.Reason, a.Action, a.Masked = "", nil, true
	for i := range a.Errors {
		a.Errors[i] = *maskedFault(&a.Errors[i])
	}
}

// maskedFault is another one: that which it is of may be the state store's.
func maskedFault(f *Fault) *Fault {
	if f == nil {
		return nil
	}
	return &Fault{Permanent: f.Permanent, Step: f.Step, Attempt: f.Attempt, Undo: f.Undo}
}

// maskedEvent is a journal event without its payloads. It is made of the fields that
// are known to have none, so that a new one is hidden until somebody says that it has none.
func maskedEvent(text json.RawMessage) (json.RawMessage, error) {
	e, err := events.Decode[events.Event](text)
	if err != nil {
		return nil, fmt.Errorf("mask an event: %w", err)
	}
	m := events.Event{
		Type: e.Type, Order: e.Order, Seq: e.Seq, At: e.At,
		Workflow: e.Workflow, Version: e.Version, Steps: e.Steps, ReplyTo: e.ReplyTo, Priority: e.Priority, Deadline: e.Deadline, Traceparent: e.Traceparent,
		Step: e.Step, Attempt: e.Attempt, Agent: e.Agent, Operation: e.Operation, IdempotencyKey: e.IdempotencyKey,
		CompleteBy: e.CompleteBy, Expires: e.Expires, ExtendTo: e.ExtendTo, LockedBy: e.LockedBy, Proof: e.Proof, Due: e.Due, Round: e.Round, Fixed: e.Fixed, Outcome: e.Outcome,
		Uncounted: e.Uncounted, Left: e.Left, ToUndo: e.ToUndo, Count: e.Count,
		AnsweredBy: e.AnsweredBy, Command: e.Command, By: e.By, Actor: e.Actor, SameKey: e.SameKey, NewKey: e.NewKey, Kept: e.Kept, MayHaveRun: e.MayHaveRun,
		End: e.End, Undone: e.Undone, NotUndone: e.NotUndone, FailedSteps: e.FailedSteps, Held: e.Held, Source: e.Source,
		Roles: e.Roles, Escalate: e.Escalate, Outcomes: e.Outcomes, Remind: e.Remind,
		Listen: e.Listen, Signals: e.Signals, Signal: e.Signal, SignalID: e.SignalID, Waiter: e.Waiter, Wait: e.Wait, RerunOf: e.RerunOf, Submitters: e.Submitters,
		Pinned: e.Pinned, Parent: e.Parent, ParentStep: e.ParentStep, Depth: e.Depth, Child: e.Child, Detached: e.Detached, Keep: e.Keep, Children: e.Children,
		Item: e.Item, AtOnce: e.AtOnce, Page: e.Page,
		From: e.From, Renamed: e.Renamed, Renewed: e.Renewed, Topic: e.Topic, EventType: e.EventType,
		Incarnation: e.Incarnation, Tick: e.Tick, Last: e.Last, Next: e.Next, Backfill: e.Backfill,
		Limit: e.Limit, Rank: e.Rank, OnConflict: e.OnConflict,
	}
	if events.LimitOf(e.Home) != "" { // that of a key is made of it
		m.Home = e.Home
	}
	if says := e.Schedule; says != nil {
		m.Schedule = new(*says)
		m.Schedule.Input, m.Schedule.Labels = nil, nil
	}
	if e.Type == events.ReplyDiscarded || e.Type == events.SignalDiscarded || e.Type == events.ScheduleSkipped { // its reasons are a few words of ours
		m.Reason = e.Reason
	}
	masked := m.Append(nil)
	return append(masked[:len(masked)-1], `,"masked":true}`...), nil
}

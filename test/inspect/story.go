package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// Curtain is when plays and histories begin.
var Curtain = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// Story tells a history as plays do.
func Story(history []events.Event) string {
	var b strings.Builder
	for i := range history {
		e := &history[i]
		fmt.Fprintf(&b, "%s %d %s%s\n", Clock(e.At), e.Seq, strings.TrimPrefix(string(e.Type), "waybill."), Fields(e))
	}
	return b.String()
}

// Clock is the time of day, and the day where it is another than the first.
func Clock(t time.Time) string {
	if t.Sub(Curtain) > 11*time.Hour {
		return t.Format("Jan2-15:04:05.999")
	}
	return t.Format("15:04:05.999")
}

// Fields shows what an event carries.
func Fields(e *events.Event) string {
	var b strings.Builder
	if e.Step != "" {
		fmt.Fprintf(&b, " %s", e.Step)
		if e.Attempt > 0 {
			fmt.Fprintf(&b, " #%d", e.Attempt)
		}
	}
	if e.Workflow != "" {
		fmt.Fprintf(&b, " workflow=%s", workflow.ID(e.Workflow, e.Version))
	}
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, " %s=%s", name, value)
		}
	}
	at := func(name string, value time.Time) {
		if !value.IsZero() {
			field(name, Clock(value))
		}
	}
	if e.From > 0 {
		fmt.Fprintf(&b, " from=%d to=%d", e.From, e.Version)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Renamed)) {
		fmt.Fprintf(&b, " renamed=%s/%s", e.Renamed[name], name)
	}
	field("renewed", strings.Join(e.Renewed, ","))
	field("steps", strings.Join(e.Steps, ","))
	field("input", string(e.Input))
	field("reply-to", e.ReplyTo)
	field("priority", string(e.Priority))
	at("deadline", e.Deadline)
	field("tracestate", e.Tracestate)
	field("baggage", e.Baggage)
	if len(e.Labels) > 0 {
		fmt.Fprintf(&b, " labels=%q", e.Labels)
	}
	field("rerun-of", e.RerunOf)
	for _, name := range slices.Sorted(maps.Keys(e.Pinned)) {
		fmt.Fprintf(&b, " pinned=%s@%d", name, e.Pinned[name])
	}
	field("child", e.Child)
	field("parent", e.Parent)
	field("parent-step", e.ParentStep)
	if e.Keep > 0 {
		fmt.Fprintf(&b, " keep=%v", time.Duration(e.Keep)*time.Second)
	}
	field("children", strings.Join(e.Children, ","))
	if e.Detached {
		b.WriteString(" detached")
	}
	if e.Item > 0 {
		fmt.Fprintf(&b, " item=%d", e.Item)
	}
	if e.AtOnce > 0 {
		fmt.Fprintf(&b, " at-once=%d", e.AtOnce)
	}
	if e.Page > 0 {
		fmt.Fprintf(&b, " page=%d", e.Page)
	}
	field("cursor", e.Cursor)
	if e.Schedule != nil {
		field("schedule", string(e.Schedule.Append(nil)))
	}
	if e.Incarnation > 0 {
		fmt.Fprintf(&b, " incarnation=%d", e.Incarnation)
	}
	if e.Backfill > 0 {
		fmt.Fprintf(&b, " backfill=%d", e.Backfill)
	}
	if e.Limit != nil {
		field("limit", string(e.Limit.Append(nil)))
	}
	field("home", e.Home)
	field("on-conflict", string(e.OnConflict))
	if e.Rank > 0 {
		fmt.Fprintf(&b, " rank=%d", e.Rank)
	}
	at("tick", e.Tick)
	at("last", e.Last)
	at("next", e.Next)
	field("topic", e.Topic)
	field("event-type", e.EventType)
	field("record-key", e.Key)
	field("agent", e.Agent)
	field("do", e.Operation)
	field("key", e.IdempotencyKey)
	field("outcome", e.Outcome)
	at("complete-by", e.CompleteBy)
	at("expires", e.Expires)
	at("extend-to", e.ExtendTo)
	field("locked-by", e.LockedBy)
	field("listen", e.Listen)
	field("signals", strings.Join(e.Signals, ","))
	field("roles", strings.Join(e.Roles, ","))
	field("escalate", strings.Join(e.Escalate, ","))
	field("outcomes", strings.Join(e.Outcomes, ","))
	at("remind", e.Remind)
	field("signal", e.Signal)
	field("id", e.SignalID)
	field("data", string(e.Data))
	field("waiter", e.Waiter)
	if e.Wait > 0 {
		fmt.Fprintf(&b, " wait=%d", e.Wait)
	}
	if (e.Type == events.StepListening || e.Type == events.StepApproving) && e.Count > 0 {
		fmt.Fprintf(&b, " count=%d", e.Count)
	}
	if e.Type == events.StepItemized || e.Type == events.ItemsOrdered || e.Type == events.ItemsForgotten || e.Type == events.PageCompleted || e.Type == events.PagesForgotten {
		fmt.Fprintf(&b, " count=%d", e.Count)
	}
	if e.Type == events.StepRepeated {
		fmt.Fprintf(&b, " times=%d", e.Count)
	}
	at("due", e.Due)
	if e.Fixed {
		b.WriteString(" fixed")
	}
	if e.Round > 0 {
		fmt.Fprintf(&b, " round=%d", e.Round)
	}
	field("output", string(e.Output))
	field("error", Fault(e.Error))
	if e.Held {
		b.WriteString(" held")
	}
	if strings.HasPrefix(string(e.Type), "waybill.input.") || e.Type == events.SubmissionConflicted {
		field("source", e.Source)
	}
	field("proof", e.Proof)
	field("from", e.AnsweredBy)
	if e.Raw != nil {
		field("written", Clock(e.Raw.Written))
		field("value", string(e.Raw.Value))
	}
	field("end", e.End)
	field("undone", strings.Join(e.Undone, ","))
	field("not-undone", strings.Join(e.NotUndone, ","))
	field("failed-steps", strings.Join(e.FailedSteps, ","))
	if e.ToUndo {
		b.WriteString(" undo")
	}
	if e.Left {
		b.WriteString(" left")
	}
	if e.Uncounted {
		b.WriteString(" uncounted")
	}
	if e.SameKey {
		b.WriteString(" same-key")
	}
	if e.NewKey {
		b.WriteString(" new-key")
	}
	field("kept", strings.Join(e.Kept, ","))
	field("may-have-run", strings.Join(e.MayHaveRun, ","))
	field("by", e.By)
	if e.Actor != nil {
		field("known-by", e.Actor.Method)
	}
	if e.Reason != "" {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	field("instance", e.Instance)
	return b.String()
}

// Fault shows an error: its code, with ! if it is permanent, or its message.
func Fault(e *events.Error) string {
	switch {
	case e == nil:
		return ""
	case e.Permanent:
		return e.Code + "!"
	}
	return e.Code
}

// Stumbling is the step that the alert is about, or one that failed.
func Stumbling(o *projections.Order) string {
	if o.Alert != nil && o.Alert.Step != "" {
		return o.Alert.Step
	}
	for i := range o.Steps {
		s := &o.Steps[i]
		w := &s.Work
		if o.Toward != "" {
			w = s.Undo
		}
		if w != nil && w.Broken() {
			return s.Name
		}
	}
	return ""
}

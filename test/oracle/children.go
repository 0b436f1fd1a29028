package oracle

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/waybill-dev/waybill/events"
)

// FlowOrder is the order of another workflow that does a step.
type FlowOrder struct {
	Workflow string `json:"workflow"`
	Version  int    `json:"version"` // 0 is the one that its parent has pinned
	Await    bool   `json:"await"`
	ReplyTo  string `json:"replyTo"`
}

// Child is the order that does a step.
type Child struct {
	ID       string
	Recalled bool // it was asked to undo what it did, and to end
	Detached bool // its end is not waited for
}

// undoes says that what the step did is undone with the rest.
func (s *FlowStep) undoes() bool {
	return s.Undo != "" || s.Order != nil && s.Order.Await || s.Each != nil
}

// longestChild is how long an id may be, in bytes, before its end gives way to a hash of the key.
const longestChild = 200

// childID is the id of the order that does what has an idempotency key, as docs/messages.md spells it.
func childID(key string) string {
	id := "@" + key
	if len(id) <= longestChild {
		return id
	}
	sum := sha256.Sum256([]byte(key))
	hash := "~" + hex.EncodeToString(sum[:12])
	n := longestChild - len(hash)
	for !utf8.RuneStart(id[n]) {
		n--
	}
	return id[:n] + hash
}

// orders: the turn of a step has come that another order does.
func (l *Ledger) orders(e *events.Event, s *Step) {
	l.goesOn()
	l.mayDo(e, s)
	l.begins(e, &s.Work)
	l.rule("T5", e.LockedBy != "", "nobody has locked the order")
	want := childID(l.key(s, false, s.Resubmissions))
	l.rule("A3", e.Child == want && l.Format >= events.ChildrenFormat, "order %q does it, and must be %q, in format %d", e.Child, want, l.Format)
	if s.def != nil {
		l.ordersAsTheWorkflowSays(e, s)
	}
	s.State, s.Attempt, s.prevented, s.renewed, s.Unanswered = running, e.Attempt, "", false, false
	s.CompleteBy, s.Due = e.CompleteBy, time.Time{}
	s.Child = &Child{ID: e.Child, Detached: e.Detached}
	if e.Input != nil {
		l.rule("S3", s.Input == nil, "its input was recorded before")
		s.Input = e.Input
	}
}

func (l *Ledger) ordersAsTheWorkflowSays(e *events.Event, s *Step) {
	def := s.def.Order
	if def == nil {
		l.rule("S4", false, "the workflow has no order do it")
		return
	}
	version := cmp.Or(def.Version, int(l.accepted.Pinned[def.Workflow]))
	l.rule("S4", e.Workflow == def.Workflow && e.Version == version && e.Detached == !def.Await && e.ReplyTo == def.ReplyTo,
		"an order of %s@%d does it, detached: %t, which tells %q, and must be of %s@%d: %+v", e.Workflow, e.Version, e.Detached, e.ReplyTo, def.Workflow, version, def)
	var completeBy time.Time
	if s.def.Timeout.After > 0 {
		completeBy = events.Time(e.At.Add(time.Duration(s.def.Timeout.After)))
	}
	l.rule("S2", e.CompleteBy.Equal(completeBy), "its complete-by is %v, and must be %v", e.CompleteBy, completeBy)
	l.asked(e, s, &s.Work, false)
}

// recalls: a child is asked to end, once, whose time is over, or whose parent is being undone. Who
// waits for no end waits for none then.
func (l *Ledger) recalls(e *events.Event, s *Step) {
	if s.Items != nil {
		l.rule("S2", s.State == running && !s.Items.Recalled && e.Attempt == s.Attempt && e.Child == "", "it is %s, attempt %d, recalled before: %t", s.State, s.Attempt, s.Items.Recalled)
		l.rule("V2", l.Toward != "" || !s.CompleteBy.IsZero() && !e.At.Before(s.CompleteBy), "it has time until %v", s.CompleteBy)
		l.rule("P1", e.Reason != "", "it has no reason")
		s.Items.Recalled, s.CompleteBy, s.Due = true, time.Time{}, time.Time{}
		return
	}
	l.rule("S2", s.State == running && s.Child != nil && e.Attempt == s.Attempt && e.Child == s.Child.ID, "it is %s, attempt %d, by %+v", s.State, s.Attempt, s.Child)
	if s.Child == nil {
		return
	}
	l.rule("S2", !s.Child.Recalled, "order %s was recalled before", e.Child)
	l.rule("C1", l.Toward == "" || !s.Child.Detached, "nobody waits for the end of order %s", e.Child)
	l.rule("V2", l.Toward != "" || !s.CompleteBy.IsZero() && !e.At.Before(s.CompleteBy), "it has time until %v", s.CompleteBy)
	l.rule("P1", e.Reason != "", "it has no reason")
	s.Child = &Child{ID: s.Child.ID, Recalled: true, Detached: s.Child.Detached}
	s.CompleteBy = time.Time{}
}

// ordersUndo: the order that did the step is asked to undo what it did.
func (l *Ledger) ordersUndo(e *events.Event, s *Step, w *Work) {
	l.goesOn()
	l.mayUndo(s)
	l.begins(e, w)
	l.rule("T5", e.LockedBy != "", "nobody has locked the order")
	want := childID(l.key(s, false, s.undone().Resubmissions))
	l.rule("A3", s.Child != nil && e.Child == want, "order %q is to undo it, and must be %q", e.Child, want)
	w.State, w.Attempt, w.prevented, w.renewed, w.Unanswered = running, e.Attempt, "", false, false
	w.CompleteBy, w.Due = time.Time{}, time.Time{}
}

// told holds for the end of what another order does: it told of it, and no agent did. Nothing but
// another order can do it if this one has not.
func (l *Ledger) told(e *events.Event, s *Step) {
	if s.Child == nil {
		return
	}
	l.rule("P4", strings.Contains(e.Source, ".internal/") && e.AnsweredBy == "", "it is from %q, %q, and another order does it", e.Source, e.AnsweredBy)
	l.rule("A5", e.Error == nil || e.Error.Permanent, "its error is %+v", e.Error)
	if s.Child.Detached && e.Type == events.StepCompleted {
		var begun struct {
			Order string `json:"order"`
		}
		err := json.Unmarshal(e.Output, &begun)
		l.rule("S4", err == nil && begun.Order == s.Child.ID, "its output is %s, and nobody waits for order %s", e.Output, s.Child.ID)
	}
}

// remains: another order that did the step, or an item of it, tells that something which ran there, or may have run, was not
// undone. Whatever comes later does not change that.
func (l *Ledger) remains(e *events.Event, s *Step) {
	if !e.Left {
		return
	}
	told := (s.Child != nil || e.Item > 0) && strings.Contains(e.Source, ".internal/") && (e.Type != events.ItemCompleted || e.ToUndo)
	fits := l.Format >= events.LeavesFormat && told
	l.rule("C3", fits, "it says that something of it was not undone, and another order told so: %t, in format %d", told, l.Format)
	s.Leaves = s.Leaves || fits
	switch n := s.undone().Resubmissions; {
	case !fits || l.Format < events.LeftByFormat:
	case e.Item > 0:
		s.Items.All[e.Item-1].Left = true
	default:
		if e.Type == events.StepFailed {
			n = s.Resubmissions
		}
		if by := childID(l.key(s, false, n)); !slices.Contains(s.LeftBy, by) {
			s.LeftBy = append(s.LeftBy, by)
		}
	}
}

// open says that of the order, which has ended, something ran, or may have run, and was not undone.
func (l *Ledger) open() bool {
	return slices.ContainsFunc(l.Steps, func(s *Step) bool {
		return s.stays() || l.State == "Terminated" && (s.undoing().Doubtful || s.State != undone && s.MayHaveRun)
	})
}

// parent: an order that does a step of another says of which, and others say nothing of the kind.
func (l *Ledger) parent(e *events.Event) {
	if l.quiet = e.Parent != "" && e.ReplyTo == "" && !isSchedule(e.Parent) && !correlation.MatchString(e.Parent); e.Parent == "" {
		l.rule("P4", e.ParentStep == "" && e.Depth == 0 && !e.Detached, "it does step %s of none, at depth %d", e.ParentStep, e.Depth)
		return
	}
	l.rule("P4", l.Format >= events.ChildrenFormat && e.ParentStep != "" && strings.HasPrefix(l.Order, "@"), "it does step %q of %s, in format %d", e.ParentStep, e.Parent, l.Format)
	l.rule("S4", e.Type != events.OrderAccepted || (e.Depth >= 1) != (isSchedule(e.Parent) || correlation.MatchString(e.Parent)) && e.Depth <= 8, "it has the depth %d", e.Depth)
}

// Accepted is how the order began.
func (l *Ledger) Accepted() *events.Event { return &l.accepted }

// Quiet says that nobody is told what becomes of it but its parent.
func (l *Ledger) Quiet() bool { return l.quiet }

// pinned: an order says which versions of workflows its steps will have, where its own does not.
func (l *Ledger) pinned(e *events.Event) {
	if l.flow == nil {
		return
	}
	for name := range e.Pinned {
		l.rule("S4", slices.ContainsFunc(l.flow.Steps, func(s FlowStep) bool {
			return s.Order != nil && s.Order.Workflow == name && s.Order.Version == 0 ||
				s.Each != nil && s.Each.Order != nil && s.Each.Order.Workflow == name && s.Each.Order.Version == 0
		}), "it pins %s, which does no step", name)
	}
}

// turnedBack says that an order which was Processed undoes what it did, since its parent is undone.
func (l *Ledger) turnedBack(e *events.Event) bool {
	return e.Type == events.OrderCompensating && l.State == "Processed" && l.accepted.Parent != "" && !l.accepted.Detached && !isSchedule(l.accepted.Parent) &&
		e.End == "Compensated" && e.Step == "" && e.Error == nil
}

// reported: an order tells the one whose step it does once more how it stands, or one whose step it
// does not that this is so.
func (l *Ledger) reported(e *events.Event) {
	own := e.Parent == l.accepted.Parent && e.ParentStep == l.accepted.ParentStep
	l.rule("P4", e.Reason != "" && l.Format >= events.ChildrenFormat, "its reason is %q, in format %d", e.Reason, l.Format)
	if e.Error != nil {
		panicked := l.ended && l.last.Type == events.InputDiscarded && l.last.Reason == e.Reason && e.Error.Code == "internal"
		l.rule("T4", !own && e.Error.Code == "id-taken" || own && panicked, "it does step %s of order %s: %t, and says %+v", e.ParentStep, e.Parent, own, e.Error)
		return
	}
	l.rule("T4", own && e.Parent != "", "it does step %s of order %q, and tells %q", l.accepted.ParentStep, l.accepted.Parent, e.Parent)
	l.rule("S2", l.ended || l.accepted.Detached, "it is %s, and tells when it has ended", l.State)
}

// childCodes are those of a step whose child has ended so.
var childCodes = map[string]string{"Rejected": "rejected", "Compensated": "compensated", "Cancelled": "cancelled", "Terminated": "terminated"}

// wishes are what children are asked for by an event. What they told an order may have been given up
// while it was held.
func (l *Ledger) wishes(e *events.Event) (all []events.Wish) {
	switch {
	case l.Schedule != nil:
		return l.scheduleWishes(e)
	case l.Correlation != nil:
		return l.startWishes(e)
	}
	if e.Type != events.OrderReleased {
		if w := l.wish(e); w != nil {
			all = append(all, *w)
		}
		return append(all, l.itemWishes(e)...)
	}
	for _, s := range l.Steps {
		if s.Items != nil {
			for _, n := range s.Items.Running {
				all = append(all, events.Wish{Wish: "tell", Child: s.Items.All[n-1].Order, Parent: e.Order, Step: fmt.Sprintf("%s:i%d", s.Known, n), Reason: "order " + e.Order + " was released"})
			}
			if p := s.Items.Pages; p != nil && p.Running > 0 {
				all = append(all, l.pageWish(s, p.Running, "tell", "order "+e.Order+" was released"))
			}
			continue
		}
		child := ""
		switch {
		case s.Child == nil:
		case s.State == running:
			child = s.Child.ID
		case s.undoing().State == running:
			child = childID(l.key(s, false, s.undone().Resubmissions))
		}
		if child != "" {
			all = append(all, events.Wish{Wish: "tell", Child: child, Parent: e.Order, Step: s.Known, Reason: "order " + e.Order + " was released"})
		}
	}
	return all
}

// wish is what a child is asked for by an event, nil if that is nothing.
func (l *Ledger) wish(e *events.Event) *events.Wish {
	if e.Child == "" {
		return nil
	}
	w := &events.Wish{Child: e.Child, Parent: e.Order, Reason: e.Reason}
	if s := l.Step(e.Step); s != nil {
		w.Step = s.Known
	}
	switch e.Type {
	case events.StepOrdered:
		w.Wish, w.Detached = "begin", e.Detached
		w.Workflow, w.Version, w.ReplyTo = e.Workflow, e.Version, e.ReplyTo
		l.inherit(w)
		if s := l.Step(e.Step); s != nil {
			w.Input = l.inputOf(s)
		}
	case events.StepRecalled:
		w.Wish = "cancel"
	case events.UndoOrdered:
		w.Wish, w.Reason = "undo", "order "+e.Order+" is being undone"
	default:
		return nil
	}
	return w
}

// report is what the parent is told after an event, nil if that is nothing.
func (l *Ledger) report(e *events.Event) *events.Report {
	parent := &l.accepted
	switch {
	case e.Type == events.OrderReported && e.Error != nil:
		return &events.Report{Parent: e.Parent, Step: e.ParentStep, Child: e.Order, Error: e.Error}
	case parent.Parent == "":
		return nil
	case e.Type == events.OrderReported, e.Type == events.OrderRejected:
	case parent.Detached && e.Type == events.OrderAccepted:
	case !parent.Detached && (e.Type == events.OrderCompleted || e.Type == events.OrderCompensated || e.Type == events.OrderCancelled || e.Type == events.OrderRaised || e.Type == events.OrderTerminated):
	default:
		return nil
	}
	r := &events.Report{Parent: parent.Parent, Step: parent.ParentStep, Child: e.Order, State: l.State}
	if parent.Detached && l.State != "Rejected" {
		r.State = "Pending"
	}
	if r.State == "Processed" && !isSchedule(parent.Parent) {
		r.Output = l.output()
	}
	if r.State != "Processed" && r.State != "Pending" {
		r.Error = &events.Error{Code: childCodes[l.State], Message: l.why}
		if l.failure != nil {
			r.Error = &events.Error{Code: l.failure.Code, Message: l.failure.Message}
		}
		r.Left = l.open()
	}
	return r
}

// output is that of the last completed step in the file.
func (l *Ledger) output() jsontext.Value {
	for _, s := range slices.Backward(l.Steps) {
		if s.State == completed && !s.Sleeps && !s.Emits {
			return s.Output
		}
	}
	return nil
}

package words

import (
	"fmt"
	"strings"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// Due says when a decision is due, and until when the step waits.
func Due(a *api.Approves) string {
	text := "-"
	if a.Due != nil {
		text = Clock(a.Due)
	}
	if a.Overdue {
		text += " (overdue)"
	}
	if a.Until != nil {
		text += ", until " + Clock(a.Until)
	}
	return text
}

// Outcomes is what people may decide, and how many have to say it.
func Outcomes(a *api.Approves) string {
	text := strings.Join(a.Outcomes, ", ")
	if a.Count > 1 {
		text += fmt.Sprintf(" (%s by %d)", a.Outcomes[0], a.Count)
	}
	return text
}

// Approves says of whom a step waits for a decision, and until when.
func Approves(a *api.Approves) string {
	text := "for " + strings.Join(a.Roles, ", ") + ": " + Outcomes(a)
	switch {
	case a.Due != nil:
		text += "; due " + Due(a)
	case a.Until != nil:
		text += "; until " + Clock(a.Until)
	}
	if said := Said(a); said != "" {
		text += "; " + said
	}
	return text
}

// Asks says whom a step of a workflow asks for what.
func Asks(a *workflow.Approve) string {
	text := "asks " + strings.Join(a.Roles, ", ") + ": " + Outcomes(&api.Approves{Outcomes: a.Outcomes, Count: a.Count})
	if a.Due > 0 {
		text += ", due in " + a.Due.String()
	}
	if len(a.Escalate) > 0 {
		text += ", then " + strings.Join(a.Escalate, ", ") + ", too"
	}
	return text
}

// Said is who said what so far.
func Said(a *api.Approves) string {
	said := make([]string, len(a.Decisions))
	for i, v := range a.Decisions {
		said[i] = v.Outcome + " by " + v.By
	}
	return strings.Join(said, ", ")
}

// ChildState is how an order stands that does a step, as far as the server knows.
func ChildState(c *api.Child) string {
	if c.ProcessState == nil {
		return "-"
	}
	return string(*c.ProcessState)
}

// Child says which order does a step.
func Child(c *api.Child) string {
	text := c.Order
	if c.Recalled {
		text += "; it was recalled"
	}
	if c.Alerted != nil && *c.Alerted {
		text += "; it waits for an operator: waybill order get " + c.Order
	}
	return text
}

// Items says how it stands with the items of a step.
func Items(n *api.Items) string {
	var text strings.Builder
	if fmt.Fprintf(&text, "%d of %d completed", n.Completed, n.Count); n.Pages != nil {
		fmt.Fprintf(&text, ", %s asked for", Several(*n.Pages, "page", "pages"))
	}
	if n.More {
		text.WriteString(", more to come")
	}
	for _, of := range []struct {
		count int
		what  string
	}{{n.Failed, "failed"}, {n.Running, "under way"}, {n.Undone, "undone"}, {n.NotUndone, "not undone"}} {
		if of.count > 0 {
			fmt.Fprintf(&text, ", %d %s", of.count, of.what)
		}
	}
	if n.AtOnce != nil {
		fmt.Fprintf(&text, "; at most %d at a time", *n.AtOnce)
	}
	if n.Recalled {
		text.WriteString("; recalled")
	}
	if n.Left > 0 {
		fmt.Fprintf(&text, "; of %d something was not undone", n.Left)
	}
	return text.String()
}

// LeftBy says which order left something, and what, as far as that is known.
func LeftBy(l *api.LeftBy) string {
	if len(l.Steps) == 0 {
		return "order " + l.Order + " left something that was not undone, as its end says"
	}
	return "not undone of order " + l.Order + ": " + strings.Join(l.Steps, ", ")
}

// Failures is how many attempts failed or expired, and how many of them the retry policy
// does not count.
func Failures(all, uncounted int) string {
	if uncounted == 0 {
		return fmt.Sprint(all)
	}
	return fmt.Sprintf("%d, of them %d not counted", all, uncounted)
}

// StepResult is what came of a step so far, and what it waits for.
func StepResult(s *api.Step) string {
	output, due := "", s.Due
	if text := Payload(s.Output); text != "-" {
		output = Short(text)
	}
	switch s.State {
	case projections.Sleeping:
		output, due = sleeps(s), nil
	case projections.Listening:
		output, due = strings.TrimPrefix(output+"; "+listens(s), "; "), nil
	case projections.Approving:
		output, due = Approves(s.Approves), nil
	}
	if s.Repeats > 0 {
		output = strings.TrimPrefix(fmt.Sprintf("%s; done %s before", output, Several(s.Repeats, "time", "times")), "; ")
	}
	text := Result(s.State, output, s.Error, due, s.Waits, s.Round, s.Input)
	if s.Passed {
		text += "; the order went on without it"
	}
	if s.Leaves && len(s.LeftBy) == 0 && (s.Items == nil || s.Items.Left == 0) { // it is not known which
		text = strings.TrimPrefix(text+"; something that an order did for it was not undone: see the history", "-; ")
	}
	if s.Unknown && s.State != projections.Undone {
		text = strings.TrimPrefix(text+"; it may have run, or not", "-; ")
	}
	if s.State != projections.Undone && len(s.EarlierKeys) > 0 {
		text = strings.TrimPrefix(text+"; it may have run before as "+strings.Join(s.EarlierKeys, ", "), "-; ")
	}
	return text
}

// sleeps says until when a step does, or what a pause left of it.
func sleeps(s *api.Step) string {
	switch {
	case s.Due != nil:
		return "until " + Clock(s.Due)
	case s.Wakes != nil:
		return "until " + Clock(s.Wakes) + ", or the end of the pause"
	}
	return Or(s.Left) + " more after the pause"
}

// listens says for what a step does, and until when.
func listens(s *api.Step) string {
	text := "for " + Listens(&workflow.Listen{How: s.Listens.How, Names: s.Listens.Signals, Count: s.Listens.Left})
	if s.Listens.Key != nil {
		text += ", under key " + *s.Listens.Key
	}
	if s.Due != nil || s.Left != nil {
		text += ", " + sleeps(s)
	}
	return text
}

// Result is what came of a step or of its undo, and what it waits for.
func Result(state projections.StepState, output string, fault *api.Fault, due *api.Time, waits *api.Waits, round int, input []byte) string {
	var parts []string
	say := func(text string) { parts = append(parts, text) }
	if output != "" {
		say(output)
	}
	if fault != nil {
		before := "before: "
		if state == projections.Failed || state == projections.Expired || state == projections.DidRaise {
			before = ""
		}
		say(before + Fault(fault))
	}
	switch {
	case due == nil:
	case waits != nil:
		say(waitsFor(waits))
	default:
		say("next attempt at " + Clock(due))
	}
	if round > 0 {
		say(fmt.Sprintf("extended wait %d", round))
	}
	if text := Payload(input); text != "-" {
		say("its own input " + Short(text))
	}
	return Dash(strings.Join(parts, "; "))
}

// waitsFor says for whom a step waits, and what is before it.
func waitsFor(w *api.Waits) string {
	text := fmt.Sprintf("waits for agent %s since %s", w.Agent, Clock(w.Since))
	if w.Before != nil && w.UnderWay != nil && w.Window != nil {
		text += fmt.Sprintf(", behind %s of its partition; %s with the agent, ", Several(*w.Before, "other", "others"), Several(*w.UnderWay, "is", "are"))
		if w.Probed != nil && *w.Probed {
			text += "which gives no sign: one request at a time probes it"
		} else {
			text += fmt.Sprintf("and %.3g may queue there", *w.Window)
		}
	}
	if w.SilentSince != nil {
		text += "; the agent has answered nothing since " + Clock(w.SilentSince)
	}
	return text
}

// Fault is an error as people read it; "" for none.
func Fault(f *api.Fault) string {
	if f == nil {
		return ""
	}
	text := f.Code
	if f.Message != "" {
		text = strings.TrimPrefix(text+": "+f.Message, ": ")
	}
	if f.Permanent {
		text += " (permanent)"
	}
	return strings.TrimSpace(text) // masked, it has nothing before it
}

// PlacedFault is a fault with where it happened.
func PlacedFault(f *api.Fault) string {
	if f.Step == "" {
		return Fault(f)
	}
	at := f.Step
	if f.Undo {
		at = "undo of " + at
	}
	if f.Attempt > 0 {
		at += fmt.Sprintf(", attempt %d", f.Attempt)
	}
	return at + ": " + Fault(f)
}

// Waited says for what a step waits that is listed.
func Waited(w *api.SignalWait) string {
	text := Listens(&workflow.Listen{How: w.How, Names: w.Signals, Count: w.Left})
	switch {
	case w.Key != nil:
		text += ", under key " + *w.Key
	case w.Keyed:
		text += ", under a key that is left out"
	}
	return text
}

// WaitState says how the order stands of which a step waits for signals.
func WaitState(w *api.SignalWait) string {
	text := string(w.ProcessState)
	if w.Paused {
		text += ", paused"
	}
	if w.Held {
		text += ", held"
	}
	return text
}

// Listens says for which signals a step waits.
func Listens(l *workflow.Listen) string {
	switch names := strings.Join(l.Names, ", "); {
	case l.How == events.ListenAny:
		return "any of " + names
	case l.How == events.ListenAll:
		return "all of " + names
	case l.Count > 1:
		return fmt.Sprintf("%d of %s", l.Count, names)
	default:
		return names
	}
}

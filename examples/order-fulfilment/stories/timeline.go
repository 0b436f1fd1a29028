package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/examples/order-fulfilment/services"
	"github.com/waybill-dev/waybill/internal/api"
)

// line is one line of a timeline: when, which rules of the pattern it shows, and
// what happened.
type line struct {
	at          time.Time
	rules, text string
}

// timeline prints what happened to an order: the events of its journal and,
// between them, what the services saw.
func (s *stage) timeline(o *told) {
	fmt.Fprintf(s.out, "\nOrder %s (%s@%d)\n\n", o.id, o.Workflow, o.Version)
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	for _, l := range s.lines(o) {
		fmt.Fprintf(w, "  +%.3fs\t%s\t%s\n", max(0, l.at.Sub(o.events[0].At).Seconds()), l.rules, l.text)
	}
	w.Flush()
}

// lines merges the order's events, which are in order, with the calls of its
// steps. Events carry milliseconds: a call of the same one stands behind the
// request that led to it, and before everything else.
func (s *stage) lines(o *told) []line {
	beside := s.beside(o)
	var lines []line
	asked := make(map[string]bool)
	for i := range o.events {
		e := &o.events[i]
		for len(beside) > 0 {
			at := events.Time(beside[0].at)
			if at.After(e.At) || at.Equal(e.At) && beside[0].key != "" && !asked[beside[0].key] {
				break
			}
			lines = append(lines, beside[0].line)
			beside = beside[1:]
		}
		if e.IdempotencyKey != "" {
			asked[e.IdempotencyKey] = true
		}
		rules, text := explain(e)
		lines = append(lines, line{e.At, rules, text})
	}
	for _, b := range beside {
		lines = append(lines, b.line)
	}
	return lines
}

// besides is a line that is in no journal; key is that of the call, if it is one.
type besides struct {
	line
	key string
}

// beside collects the calls for an order, and what happened to the agents and
// services while it ran, in the order of time.
func (s *stage) beside(o *told) []besides {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := o.events[len(o.events)-1].At
	var all []besides
	for _, c := range s.calls {
		if strings.HasPrefix(c.Key, o.id+"/") {
			all = append(all, besides{line{c.At, rulesOf(&c), fmt.Sprintf("    %s: %s", c.Service, c.Did)}, c.Key})
		}
	}
	for _, n := range s.notes {
		if n.at.After(o.events[0].At) && n.at.Before(last) {
			all = append(all, besides{line: line{n.at, "", "    " + n.text}})
		}
	}
	slices.SortStableFunc(all, func(a, b besides) int { return cmp.Or(a.at.Compare(b.at), strings.Compare(a.key, b.key)) })
	return all
}

// rulesOf names the rules that a call shows.
func rulesOf(c *services.Call) string {
	switch {
	case strings.HasPrefix(c.Did, "knew"):
		return "A3"
	case c.Fate == services.Refused:
		return "A1 A5"
	case c.Fate == services.Answered:
		return "A1"
	}
	return "A1 A2"
}

// explain says in plain words what an event means, and which rules it shows.
func explain(e *events.Event) (rules, text string) {
	what := e.Step
	if strings.HasPrefix(string(e.Type), "waybill.undo.") {
		what = "undo of " + e.Step
	}
	switch e.Type {
	case events.OrderAccepted:
		return "T4 P1", "the order is accepted: " + strings.Join(e.Steps, ", ")
	case events.StepStarted, events.UndoStarted:
		rules, text = "S1 S3 T5", fmt.Sprintf("%s: ask agent %s to %s within %s, key %s", what, e.Agent, e.Operation, e.CompleteBy.Sub(e.At), e.IdempotencyKey)
		if e.Type == events.UndoStarted {
			rules = "C1 S3"
		}
		if e.Attempt > 1 {
			rules, text = strings.Replace(rules, "S1 S3 T5", "V3 A3", 1), text+fmt.Sprintf(", attempt %d", e.Attempt)
		}
		if e.Outcome == events.OutcomeUnknown {
			text += "; it may have run, or not"
		}
		return rules, text
	case events.StepCompleted:
		return "S2 T2", fmt.Sprintf("%s: completed with %s", what, e.Output)
	case events.StepRepeated:
		return "S2", fmt.Sprintf("%s: done with %s, and to be done again", what, e.Output)
	case events.StepSleeping:
		return "V2", fmt.Sprintf("%s: sleeps for %s", what, e.Due.Sub(e.At))
	case events.StepEmitting:
		return "S1 A3", fmt.Sprintf("%s: give topic %s an event %s within %s, id %s", what, e.Topic, e.EventType, e.CompleteBy.Sub(e.At), e.IdempotencyKey)
	case events.StepWoke:
		return "V2", what + ": it has slept"
	case events.StepPassed:
		return "V5", fmt.Sprintf("%s: the order goes on without it: %s", what, e.Reason)
	case events.UndoCompleted:
		return "C1", fmt.Sprintf("%s: completed with %s", what, e.Output)
	case events.StepFailed:
		if e.Error.Permanent {
			return "A5", fmt.Sprintf("%s: failed, and no retry can heal it: %s", what, e.Error.Text())
		}
		return "A2 S2", fmt.Sprintf("%s: the agent gave up: %s", what, e.Error.Text())
	case events.UndoFailed:
		if e.Error.Permanent {
			return "C2 A5", fmt.Sprintf("%s: failed, and no retry can heal it: %s", what, e.Error.Text())
		}
		return "C2", fmt.Sprintf("%s: the agent gave up: %s", what, e.Error.Text())
	case events.StepExpired, events.UndoExpired:
		return "V2 A4", what + ": the complete-by passed without a reply; the supervisor notices"
	case events.StepExtended, events.UndoExtended:
		return "V2", fmt.Sprintf("%s: the agent is still at it, and has another %s", what, e.CompleteBy.Sub(e.At))
	case events.StepRetried, events.UndoRetried:
		rules = "V3 V4"
		if e.Type == events.UndoRetried {
			rules = "C2 V3"
		}
		pause := max(0, e.Due.Sub(e.At))
		if e.Round > 0 {
			return "V5", fmt.Sprintf("%s: all attempts of the round are used up; wait %s, then begin another round", what, pause)
		}
		return rules, fmt.Sprintf("%s: the failure is counted; attempt %d follows in %s", what, e.Attempt, pause)
	case events.StepSkipped, events.UndoSkipped:
		return "", what + ": passed over: " + e.Reason
	case events.OrderCompleted:
		return "P1", "the order is Processed; the caller is told"
	case events.OrderErrored:
		return "P2", "the order is in Error, and waits for an operator: " + e.Reason
	case events.AlertRaised:
		if len(e.Errors) > 1 {
			return "P2 C2", fmt.Sprintf("an operator is called, with all %d errors", len(e.Errors))
		}
		return "P2", "an operator is called"
	case events.OrderResubmitted:
		return "P3", fmt.Sprintf("the operator resubmits the order: %s", e.Reason)
	case events.OrderCompensating:
		return "V5 C1", "what was done is undone, last first: " + e.Reason
	case events.OrderCompensated:
		return "C3 P1", "the order is Compensated; " + outcome(e)
	case events.OrderCancelled:
		return "C3 P1", "the order is Cancelled; " + outcome(e)
	case events.OrderChanged:
		return "P5", "the operator gives the order another priority or deadline: " + e.Reason
	case events.OrderMigrated:
		return "P3", fmt.Sprintf("the operator has the order go on as one of version %d: %s", e.Version, e.Reason)
	case events.OrderRaised:
		return "P1", "the order is Raised: " + e.Reason
	case events.OrderTerminated:
		return "P3", "the operator ends the order as it is: " + e.Reason + "; " + outcome(e)
	case events.ReplyDiscarded:
		return "A4", fmt.Sprintf("%s: a reply changed nothing: it is %s", what, e.Reason)
	}
	return "", strings.TrimPrefix(string(e.Type), "waybill.")
}

func outcome(e *events.Event) string {
	said := "undone: " + cmp.Or(strings.Join(e.Undone, ", "), "nothing")
	if len(e.NotUndone) > 0 {
		said += "; not undone: " + strings.Join(e.NotUndone, ", ")
	}
	return said
}

// faultText is an error of an alert on one line.
func faultText(f *api.Fault) string {
	step := "step " + f.Step
	if f.Undo {
		step = "undo of " + step
	}
	return fmt.Sprintf("%s, attempt %d: %s", step, f.Attempt, (*events.Error)(f).Text())
}

// books prints the ledger of the payment service and the parcels of the carrier.
func (s *stage) books() {
	fmt.Fprint(s.out, "\nThe payment service's ledger:\n\n")
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  PAYMENT\tORDER\tAMOUNT\tCALLS\tCHARGED\tREFUNDED")
	for _, c := range s.payments.Ledger() {
		refunded := "no"
		if c.Refunded {
			refunded = "once"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%d\tonce\t%s\n", c.Payment, c.Order, cmp.Or(string(c.Amount), "-"), c.Calls, refunded)
	}
	w.Flush()
	if len(s.payments.Ledger()) == 0 {
		fmt.Fprintln(s.out, "  nobody was charged")
	}
	fmt.Fprint(s.out, "\nThe carrier's parcels:\n\n")
	w = tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  PARCEL\tORDER\tTO\tCALLS")
	for _, p := range s.carrier.Parcels() {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%d\n", p.Tracking, p.Order, cmp.Or(p.To, "-"), p.Calls)
	}
	w.Flush()
	if len(s.carrier.Parcels()) == 0 {
		fmt.Fprintln(s.out, "  nothing was shipped")
	}
}

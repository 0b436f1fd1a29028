package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

func newOrder() *cobra.Command {
	commands := []*cobra.Command{newOrderGet(), newOrderList(), newOrderItems(), newOrderHistory(), newOrderWait(), newOrderSignal(), newOrderDecide()}
	for _, a := range acts {
		commands = append(commands, newOrderAct(a))
	}
	commands = append(commands, newOrderLabel(), newOrderRerun())
	return group("order", "Look at orders, and act on them", commands...)
}

func newOrderGet() *cobra.Command {
	cmd := &cobra.Command{Use: "get ID", Short: "Print the state record of an order", Args: takes(one)}
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return server.talk(func(client *api.Client) error {
			o, err := known(cmd.Context(), func() (*api.Order, error) { return client.Order(cmd.Context(), args[0]) })
			if err != nil {
				return err
			}
			return printOrder(cmd, out, o)
		})
	}
	return cmd
}

func newOrderList() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List orders",
		Long: "Lists orders partition by partition, in each by state and workflow, newest first;\nwith --where by workflow.",
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	filter := addFilter(flags)
	flags.StringVar(&filter.step, "step", "", "only orders of which this step failed, or its undo, or keeps them in Error, or sleeps")
	flags.IntVar(&limit, "limit", 100, "how many at most; 0 means all")
	onlyByFlag(flags, "step", "limit")
	server := addServer(flags)
	out := addOutput(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.talk(func(client *api.Client) error {
			return printList(cmd, out, "orders", limit, func(n int, after string) ([]api.Summary, api.LeftOut, string, error) {
				page, err := known(cmd.Context(), func() (*api.OrderPage, error) { return client.Orders(cmd.Context(), filter.filter(), n, after) })
				return page.Orders, page.LeftOut, page.Next, err
			}, func(row func(...any), all []api.Summary) { listOrders(row, all, len(filter.where) > 0) })
		})
	}
	return cmd
}

// printList prints what pages have, at most limit of it, and says what they leave out and whether there
// is more. As JSON it stands under the key.
func printList[T any](cmd *cobra.Command, out *output, key string, limit int, page func(n int, after string) ([]T, api.LeftOut, string, error), table func(row func(...any), all []T)) error {
	var left leftOut
	all, more, err := collect(limit, func(n int, after string) ([]T, string, error) {
		items, without, next, err := page(n, after)
		left.note(without)
		return items, next, err
	})
	if err != nil {
		return err
	}
	left.warn(cmd)
	if err := out.print(cmd, map[string]any{key: all}, func(row func(...any)) { table(row, all) }); err != nil {
		return err
	}
	if more {
		fmt.Fprintln(cmd.ErrOrStderr(), "There are more; see --limit.")
	}
	return nil
}

// leftOut is what the pages of a listing do not have.
type leftOut struct{ api.LeftOut }

func (l *leftOut) note(page api.LeftOut) {
	l.Elsewhere = page.Elsewhere
	l.Unknown = slices.Compact(slices.Sorted(slices.Values(slices.Concat(l.Unknown, page.Unknown))))
}

// warn says what the listing does not have.
func (l *leftOut) warn(cmd *cobra.Command) {
	if len(l.Elsewhere) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "Orders of the partitions %v are left out: this instance does not own them, and runs with --standby owned. Ask the others too.\n", l.Elsewhere)
	}
	if len(l.Unknown) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "Orders of the partitions %v are left out: this instance has not read their journals to the end. Try again in a moment, or ask another.\n", l.Unknown)
	}
}

// listOrders prints a table of orders, with what they are found by if that was asked for.
func listOrders(row func(...any), all []api.Summary, labelled bool) {
	columns := []any{"ORDER", "WORKFLOW", "STATE", "ACCEPTED", "COMPLETE BY", "FAILURES", "REASON"}
	if labelled {
		columns = append(columns, "LABELS")
	}
	row(columns...)
	for i := range all {
		o := &all[i]
		columns := []any{o.OrderID, workflowID(o.Workflow, o.Version), stateText(o), clock(o.AcceptedAt), completeBy(o), o.FailureCount, short(or(o.Reason))}
		if labelled {
			columns = append(columns, short(labelsText(o.Labels)))
		}
		row(columns...)
	}
}

// labelsText has labels as they are asked for, by name.
func labelsText(labels map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, name+"="+labels[name])
	}
	return dash(strings.Join(all, ", "))
}

// completeBy is when the order must have got on, if it does not wait for agents alone.
func completeBy(o *api.Summary) string {
	if o.CompleteBy == nil && o.WaitsSince != nil {
		return "waits"
	}
	if o.SleepsUntil != nil && o.CompleteBy != nil && o.CompleteBy.Equal(o.SleepsUntil.Time) {
		return "waits until " + clock(o.SleepsUntil)
	}
	return clock(o.CompleteBy)
}

// stateText is the order's state, and what else decides whether it goes on.
func stateText(o *api.Summary) string {
	text := string(o.ProcessState)
	if o.Toward != nil && !o.ProcessState.Final() {
		text += ", toward " + string(*o.Toward)
	}
	if o.Paused {
		text += ", paused"
	}
	if o.Held {
		text += fmt.Sprintf(", held, %d waiting", o.Waiting)
	}
	return text
}

// filterFlags select orders.
type filterFlags struct {
	state          oneOf
	workflow, step string
	where          []string
}

func addFilter(flags *pflag.FlagSet) *filterFlags {
	f := &filterFlags{}
	for _, s := range projections.States {
		f.state.allowed = append(f.state.allowed, string(s))
	}
	flags.Var(&f.state, "state", "only orders in this state")
	flags.StringVar(&f.workflow, "workflow", "", "only orders of this workflow")
	flags.StringArrayVar(&f.where, "where", nil, "only orders with this label, or value by which their workflow finds them, as NAME=VALUE; several must all hold")
	onlyByFlag(flags, "state", "workflow", "where")
	return f
}

func (f *filterFlags) filter() api.Filter {
	return api.Filter{State: f.state.value, Workflow: f.workflow, Step: f.step, Where: f.where}
}

// collect gathers pages until there are limit items, 0 meaning all.
func collect[T any](limit int, page func(n int, after string) ([]T, string, error)) (all []T, more bool, err error) {
	const most = 1000 // that the server gives at a time
	if limit < 0 {
		return nil, false, usageError{fmt.Errorf("--limit %d: use 0 or more", limit)}
	}
	all = []T{}
	for after := ""; ; {
		n := most
		if limit > 0 {
			n = min(most, limit-len(all))
		}
		items, next, err := page(n, after)
		if err != nil {
			return nil, false, err
		}
		all = append(all, items...)
		if next == "" || limit > 0 && len(all) >= limit {
			return all, next != "", nil
		}
		after = next
	}
}

func workflowID(name string, version int) string {
	switch {
	case name == "":
		return "-"
	case version == 0:
		return name
	}
	return fmt.Sprintf("%s@%d", name, version)
}

func clock(t *api.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// leftOutHere says why something is missing.
const leftOutHere = "payloads, reasons and errors are left out, which take the role payload-reader"

func printOrder(cmd *cobra.Command, out *output, o *api.Order) error {
	return out.print(cmd, o, func(row func(...any)) {
		row("Order", o.OrderID)
		row("Workflow", workflowID(o.Workflow, o.Version))
		row("State", stateText(&o.Summary))
		if o.Reason != nil {
			row("Reason", *o.Reason)
		}
		if o.Alert != nil && o.Alert.Action != nil {
			row("To do", *o.Alert.Action)
		}
		row("Locked by", or(o.LockedBy))
		row("Complete by", completeBy(&o.Summary))
		row("Failures", o.FailureCount)
		row("Accepted", clock(o.AcceptedAt))
		row("Updated", clock(o.UpdatedAt))
		if o.SubmittedBy != nil {
			row("Submitter", *o.SubmittedBy)
		}
		row("Priority", o.Priority)
		if len(o.Labels) > 0 {
			row("Labels", labelsText(o.Labels))
		}
		if o.RerunOf != nil {
			row("Rerun of", *o.RerunOf)
		}
		switch p := o.Parent; {
		case p == nil:
		case events.IsCorrelation(p.Order):
			row("Started by", "event "+p.Step+" of "+p.Order)
		default:
			row("Does", parentText(p))
		}
		if t := o.Turn; t != nil {
			row("Turn", turnText(t))
		}
		if o.ReplyTo != nil {
			row("Reply to", *o.ReplyTo)
		}
		if o.Masked {
			row("Masked", leftOutHere)
		}
		row("Input", short(payload(o.Input)))
		row("Output", short(payload(o.Output)))
		for i := range o.Signals {
			s, id := &o.Signals[i], ""
			if s.ID != nil {
				id = *s.ID
			}
			row("Signal kept", fmt.Sprintf("%s, until %s: %s", signalText(s.Signal, id), clock(s.Until), short(payload(s.Data))))
		}
		if len(o.Steps) == 0 {
			return
		}
		row()
		row("STEP", "STATE", "ATTEMPT", "FAILURES", "COMPLETE BY", "RESULT")
		for i := range o.Steps {
			s := &o.Steps[i]
			row(s.Name, s.State, s.Attempt, failures(s.FailureCount, s.Uncounted), clock(s.CompleteBy), stepResult(s))
			if c := s.Child; c != nil {
				row("  order", childState(c), "", "", "", childText(c))
			}
			if n := s.Items; n != nil {
				row("  items", "", "", "", "", itemsText(n))
			}
			if p := s.Place; p != nil {
				row("  place", "", "", "", "", fmt.Sprintf("waits for one of limit %s since %s", p.Limit, clock(p.Since)))
			}
			if u := s.Undo; u != nil {
				row("  undo", u.State, u.Attempt, failures(u.FailureCount, u.Uncounted), clock(u.CompleteBy), result(u.State, "", u.Error, u.Due, s.Waits, u.Round, u.Input))
			}
		}
	})
}

// turnText says whether an order may be open beside others of its key.
func turnText(t *api.Turn) string {
	what, under := "it is the open one", ""
	switch {
	case t.Waits:
		what = "waits since " + clock(t.Since)
	case t.GivenUp:
		what = "given up; once it is resubmitted it asks anew, behind those that came since,"
	}
	if t.Key != nil && t.Home != nil {
		under = fmt.Sprintf(" under key %s, in %s", *t.Key, *t.Home)
	}
	return what + under
}

// doesText says where an order comes from that nobody submitted.
func doesText(p *api.Parent) string {
	if events.IsCorrelation(p.Order) {
		return fmt.Sprintf("was started by a signal, event %s of %s", p.Step, p.Order)
	}
	return "does " + parentText(p)
}

// parentText says what an order does of another.
func parentText(p *api.Parent) string {
	text := fmt.Sprintf("step %s of order %s", p.Step, p.Order)
	if p.Detached {
		text += ", which does not wait for it"
	}
	return text
}

// childState is how an order stands that does a step, as far as the server knows.
func childState(c *api.Child) string {
	if c.ProcessState == nil {
		return "-"
	}
	return string(*c.ProcessState)
}

// childText says which order does a step.
func childText(c *api.Child) string {
	text := c.Order
	if c.Recalled {
		text += "; it was recalled"
	}
	if c.Alerted != nil && *c.Alerted {
		text += "; it waits for an operator: waybill order get " + c.Order
	}
	return text
}

// itemsText says how it stands with the items of a step.
func itemsText(n *api.Items) string {
	var text strings.Builder
	if fmt.Fprintf(&text, "%d of %d completed", n.Completed, n.Count); n.Pages != nil {
		fmt.Fprintf(&text, ", %s asked for", several(*n.Pages, "page", "pages"))
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
	return text.String()
}

// failures is how many attempts failed or expired, and how many of them the retry policy
// does not count.
func failures(all, uncounted int) string {
	if uncounted == 0 {
		return fmt.Sprint(all)
	}
	return fmt.Sprintf("%d, of them %d not counted", all, uncounted)
}

func stepResult(s *api.Step) string {
	output, due := "", s.Due
	if text := payload(s.Output); text != "-" {
		output = short(text)
	}
	switch s.State {
	case projections.Sleeping:
		output, due = sleeps(s), nil
	case projections.Listening:
		output, due = strings.TrimPrefix(output+"; "+listens(s), "; "), nil
	case projections.Approving:
		output, due = approvesText(s.Approves), nil
	}
	if s.Repeats > 0 {
		output = strings.TrimPrefix(fmt.Sprintf("%s; done %s before", output, several(s.Repeats, "time", "times")), "; ")
	}
	text := result(s.State, output, s.Error, due, s.Waits, s.Round, s.Input)
	if s.Passed {
		text += "; the order went on without it"
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
		return "until " + clock(s.Due)
	case s.Wakes != nil:
		return "until " + clock(s.Wakes) + ", or the end of the pause"
	}
	return or(s.Left) + " more after the pause"
}

// listens says for what a step does, and until when.
func listens(s *api.Step) string {
	text := "for " + listenText(&workflow.Listen{How: s.Listens.How, Names: s.Listens.Signals, Count: s.Listens.Left})
	if s.Listens.Key != nil {
		text += ", under key " + *s.Listens.Key
	}
	if s.Due != nil || s.Left != nil {
		text += ", " + sleeps(s)
	}
	return text
}

// result is what came of a step or of its undo, and what it waits for.
func result(state projections.StepState, output string, fault *api.Fault, due *api.Time, waits *api.Waits, round int, input []byte) string {
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
		say(before + faultText(fault))
	}
	switch {
	case due == nil:
	case waits != nil:
		say(waitsText(waits))
	default:
		say("next attempt at " + clock(due))
	}
	if round > 0 {
		say(fmt.Sprintf("extended wait %d", round))
	}
	if text := payload(input); text != "-" {
		say("its own input " + short(text))
	}
	return dash(strings.Join(parts, "; "))
}

// waitsText says for whom a step waits, and what is before it.
func waitsText(w *api.Waits) string {
	text := fmt.Sprintf("waits for agent %s since %s", w.Agent, clock(w.Since))
	if w.Before != nil && w.UnderWay != nil && w.Window != nil {
		text += fmt.Sprintf(", behind %s of its partition; %s with the agent, ", several(*w.Before, "other", "others"), several(*w.UnderWay, "is", "are"))
		if w.Probed != nil && *w.Probed {
			text += "which gives no sign: one request at a time probes it"
		} else {
			text += fmt.Sprintf("and %.3g may queue there", *w.Window)
		}
	}
	if w.SilentSince != nil {
		text += "; the agent has answered nothing since " + clock(w.SilentSince)
	}
	return text
}

// several is how many there are, and the word that goes with one, or with another number.
func several(n int, one, others string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", others)
}

func payload(value []byte) string {
	if len(value) == 0 || string(value) == "null" {
		return "-"
	}
	return string(value)
}

func faultText(f *api.Fault) string {
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

// placedFault is a fault with where it happened.
func placedFault(f *api.Fault) string {
	if f.Step == "" {
		return faultText(f)
	}
	at := f.Step
	if f.Undo {
		at = "undo of " + at
	}
	if f.Attempt > 0 {
		at += fmt.Sprintf(", attempt %d", f.Attempt)
	}
	return at + ": " + faultText(f)
}

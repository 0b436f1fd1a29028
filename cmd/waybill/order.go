package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
	"github.com/waybill-dev/waybill/projections"
)

func newOrder() *cobra.Command {
	commands := []*cobra.Command{newOrderGet(), newOrderItems(), newOrderHistory(), newOrderWait(), newOrderSignal(), newOrderDecide()}
	for _, a := range acts {
		commands = append(commands, newOrderAct(a))
	}
	commands = append(commands, newOrderLabel(), newOrderRerun())
	return listGroup("order", "orders", "Look at orders, and act on them", newOrderList, commands...)
}

func newOrderGet() *cobra.Command {
	var asOf uint64
	cmd := &cobra.Command{Use: "get ID", Short: "Print the state record of an order", Args: takes(one)}
	on := addWatch(cmd.Flags(), "until the order has ended")
	cmd.Flags().Uint64Var(&asOf, "as-of", 0, "as it was after its event of this number, the SEQ of waybill order history")
	onlyByFlag(cmd.Flags(), "as-of")
	decode := addDecode(cmd.Flags())
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$.orderId")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		past := cmd.Flags().Changed("as-of")
		switch {
		case past && *on:
			return usageError{errors.New("--watch shows what changes, and what --as-of shows does not; use one of the two")}
		case past && asOf == 0:
			return usageError{errors.New("--as-of 0: events are counted from 1")}
		}
		return server.talk(func(client *api.Client) error {
			client = decode.asks(client)
			if *on {
				return watchOrder(cmd, client, out, args[0])
			}
			o, err := known(cmd.Context(), func() (*api.Order, error) {
				if past {
					return client.OrderAsOf(cmd.Context(), args[0], asOf)
				}
				return client.Order(cmd.Context(), args[0])
			})
			if err != nil {
				return err
			}
			if past {
				fmt.Fprintf(cmd.ErrOrStderr(), "This is how the order was after event %d.\n", asOf)
			}
			tellUndecoded(cmd, o.Undecoded)
			return printOrder(cmd, out, o)
		})
	}
	return cmd
}

// watchOrder shows an order whenever it changes, until it has ended.
func watchOrder(cmd *cobra.Command, client *api.Client, out *output, id string) error {
	v, before, told := newView(cmd, out), []byte(nil), ""
	return poll(cmd.Context(), tellAway(cmd), ends, func() (bool, error) {
		o, err := client.Order(cmd.Context(), id)
		if err != nil {
			return false, err
		}
		if o.Undecoded != told {
			told = o.Undecoded
			tellUndecoded(cmd, told)
		}
		text, err := encodeJSON(o)
		if err != nil {
			return false, err
		}
		words.InZone(o, out.zone())
		switch same := bytes.Equal(text, before); {
		case v.inPlace:
			err = v.draw(func(row func(...any)) { orderRows(row, out, o) })
		case same:
		case out.data():
			err = out.printNext(cmd, o)
		default:
			err = v.differ(func(row func(...any)) { orderRows(row, out, o) })
		}
		before = text
		return err == nil && o.ProcessState.Final(), err
	})
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
	flags.Var(chooser{one: &filter.step}, "step", "only orders of which this step failed, or its undo, or keeps them in Error, or sleeps, or waits for signals or people")
	flags.IntVar(&limit, "limit", 100, "how many at most; 0 means all")
	onlyByFlag(flags, "step", "limit")
	var when span
	when.add(flags, "orders that were accepted")
	on := addWatch(flags, "until it is stopped")
	server := addServer(flags)
	out := addOutput(flags, "$.orders[*].orderId")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := when.read(); err != nil {
			return err
		}
		looked := 0
		return server.talk(func(client *api.Client) error {
			return showList(cmd, out, *on, "orders", limit, func(n int, after string) ([]api.Summary, leftOut, string, error) {
				ask := n
				if when.given() {
					ask = pageMost
				}
				page, err := known(cmd.Context(), func() (*api.OrderPage, error) { return client.Orders(cmd.Context(), filter.filter(), ask, after) })
				left := leftOut{LeftOut: page.LeftOut}
				if err != nil || !when.given() {
					return page.Orders, left, page.Next, err
				}
				if after == "" {
					looked = 0
				}
				if looked += len(page.Orders); looked >= spanMost && page.Next != "" {
					page.Next, left.looked = "", looked
				}
				page.Orders = slices.DeleteFunc(page.Orders, func(o api.Summary) bool { return !when.hasTime(o.AcceptedAt) })
				if len(page.Orders) > n {
					page.Orders, page.Next = page.Orders[:n], "more"
				}
				return page.Orders, left, page.Next, nil
			}, func(row func(...any), all []api.Summary) {
				orderTable{len(filter.where) > 0, out}.rows(row, all)
			})
		})
	}
	return cmd
}

// printList prints what pages have, at most limit of it, and says what they leave out and whether there
// is more. As data it stands under the key.
func printList[T any](cmd *cobra.Command, out *output, key string, limit int, page func(n int, after string) ([]T, leftOut, string, error), table func(row func(...any), all []T)) error {
	return showList(cmd, out, false, key, limit, page, table)
}

// showList is printList, and shows what changes where that is watched.
func showList[T any](cmd *cobra.Command, out *output, watched bool, key string, limit int, page func(n int, after string) ([]T, leftOut, string, error), table func(row func(...any), all []T)) error {
	fetch := func() (all []T, lacks []string, err error) {
		var left leftOut
		all, more, err := collect(limit, func(n int, after string) ([]T, string, error) {
			items, without, next, err := page(n, after)
			left.note(without)
			return items, next, err
		})
		lacks = left.says()
		if more {
			lacks = append(lacks, "There are more; see --limit.")
		}
		return all, lacks, err
	}
	if watched {
		return watchList(cmd, out, key, fetch, table)
	}
	all, lacks, err := fetch()
	if err != nil {
		return err
	}
	if err := out.print(cmd, map[string]any{key: all}, func(row func(...any)) { table(row, all) }); err != nil {
		return err
	}
	for _, line := range lacks {
		fmt.Fprintln(cmd.ErrOrStderr(), line)
	}
	return nil
}

// leftOut is what the pages of a listing do not have.
type leftOut struct {
	api.LeftOut
	looked int // among so many orders --since and --until chose, and there are more; 0 if there are not
}

func (l *leftOut) note(page leftOut) {
	l.looked = page.looked
	l.Elsewhere = page.Elsewhere
	l.Unknown = slices.Compact(slices.Sorted(slices.Values(slices.Concat(l.Unknown, page.Unknown))))
}

// says is what the listing does not have, and why.
func (l *leftOut) says() (lines []string) {
	if len(l.Elsewhere) > 0 {
		lines = append(lines, fmt.Sprintf("Orders of the partitions %v are left out: this instance does not own them, and runs with --standby owned. Ask the others too: waybill partition list -o wide has their addresses.", l.Elsewhere))
	}
	if len(l.Unknown) > 0 {
		lines = append(lines, fmt.Sprintf("Orders of the partitions %v are left out: this instance has not read their journals to the end. Try again in a moment, or ask another.", l.Unknown))
	}
	if l.looked > 0 {
		lines = append(lines, fmt.Sprintf("Only the first %d orders were looked at for --since and --until: narrow them with --state, --workflow or --where.", l.looked))
	}
	return lines
}

// warn says so on standard error.
func (l *leftOut) warn(cmd *cobra.Command) {
	for _, line := range l.says() {
		fmt.Fprintln(cmd.ErrOrStderr(), line)
	}
}

// listOrders prints a table of orders, with what they are found by if that was asked for.
func listOrders(row func(...any), all []api.Summary, labelled bool) {
	orderTable{labelled, new(output)}.rows(row, all)
}

// orderTable is a table of orders.
type orderTable struct {
	labelled bool // with what they are found by
	out      *output
}

func (t orderTable) rows(row func(...any), all []api.Summary) {
	wide := t.out.wide()
	columns := []any{"ORDER", "WORKFLOW", "STATE", "ACCEPTED", "COMPLETE BY", "FAILURES", "REASON"}
	if wide {
		columns = append(columns, "UPDATED", "PRIORITY", "PARTITION", "LOCKED BY")
	}
	if t.labelled || wide {
		columns = append(columns, "LABELS")
	}
	if wide {
		columns = append(columns, "STANDS AT")
	}
	row(columns...)
	for i := range all {
		o := &all[i]
		columns := []any{o.OrderID, words.Workflow(o.Workflow, o.Version), words.State(o), t.out.when(o.AcceptedAt), words.CompleteBy(o), o.FailureCount, t.out.short(words.Or(o.Reason))}
		if wide {
			columns = append(columns, words.Clock(o.UpdatedAt), o.Priority, o.Partition, words.Or(o.LockedBy))
		}
		if t.labelled || wide {
			columns = append(columns, t.out.short(words.Labels(o.Labels)))
		}
		if wide {
			columns = append(columns, words.Dash(words.StandsAt(o)))
		}
		row(columns...)
	}
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
	flags.Var(chooser{one: &f.workflow}, "workflow", "only orders of this workflow")
	flags.Var(chooser{several: &f.where}, "where", "only orders with this label, or value by which their workflow finds them, as NAME=VALUE; several must all hold")
	onlyByFlag(flags, "state", "workflow", "where")
	return f
}

func (f *filterFlags) filter() api.Filter {
	return api.Filter{State: f.state.value, Workflow: f.workflow, Step: f.step, Where: f.where}
}

const (
	// pageMost is how much the server gives at a time.
	pageMost = 1000
	// spanMost is how many orders are looked at that --since and --until choose among, which the server cannot.
	spanMost = 10_000
)

// collect gathers pages until there are limit items, 0 meaning all.
func collect[T any](limit int, page func(n int, after string) ([]T, string, error)) (all []T, more bool, err error) {
	if limit < 0 {
		return nil, false, usageError{fmt.Errorf("--limit %d: use 0 or more", limit)}
	}
	all = []T{}
	for after := ""; ; {
		n := pageMost
		if limit > 0 {
			n = min(pageMost, limit-len(all))
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

// leftOutHere says why something is missing.
const leftOutHere = "payloads, reasons and errors are left out, which take the role payload-reader"

// deadlineText is a deadline, or that there is none.
func deadlineText(t *api.Time) string {
	if t == nil {
		return "none"
	}
	return words.Clock(t)
}

func printOrder(cmd *cobra.Command, out *output, o *api.Order) error {
	return out.print(cmd, o, func(row func(...any)) { orderRows(row, out, o) })
}

func orderRows(row func(...any), out *output, o *api.Order) {
	if is, see := words.Record(o.OrderID); is != "" {
		row("Record", o.OrderID)
		row("Is", is+"; it is no order")
		row("See", see)
		if o.Held {
			row("Held", words.Or(o.Reason))
		}
		if o.Alert != nil {
			row("To do", words.Or(o.Alert.Action))
		}
		row("Updated", words.Clock(o.UpdatedAt))
		return
	}
	row("Order", o.OrderID)
	row("Workflow", words.Workflow(o.Workflow, o.Version))
	row("State", words.State(&o.Summary))
	if o.Reason != nil {
		row("Reason", *o.Reason)
	}
	if o.Alert != nil && o.Alert.Action != nil {
		row("To do", *o.Alert.Action)
	}
	row("Locked by", words.Or(o.LockedBy))
	row("Complete by", words.CompleteBy(&o.Summary))
	row("Failures", o.FailureCount)
	row("Accepted", words.Clock(o.AcceptedAt))
	row("Updated", words.Clock(o.UpdatedAt))
	if o.SubmittedBy != nil {
		row("Submitter", *o.SubmittedBy)
	}
	row("Priority", o.Priority)
	row("Deadline", deadlineText(o.Deadline))
	if len(o.Labels) > 0 {
		row("Labels", words.Labels(o.Labels))
	}
	if o.RerunOf != nil {
		row("Rerun of", *o.RerunOf)
	}
	switch p := o.Parent; {
	case p == nil:
	case events.IsCorrelation(p.Order):
		row("Started by", "event "+p.Step+" of "+p.Order)
	default:
		row("Does", words.Parent(p))
	}
	if t := o.Turn; t != nil {
		row("Turn", words.Turn(t))
	}
	if o.ReplyTo != nil {
		row("Reply to", *o.ReplyTo)
	}
	if o.Masked {
		row("Masked", leftOutHere)
	}
	row("Input", out.short(words.Payload(o.Input)))
	row("Output", out.short(words.Payload(o.Output)))
	for i := range o.Signals {
		s, id := &o.Signals[i], ""
		if s.ID != nil {
			id = *s.ID
		}
		row("Signal kept", fmt.Sprintf("%s, until %s: %s", words.Signal(s.Signal, id), words.Clock(s.Until), words.Short(words.Payload(s.Data))))
	}
	if len(o.Steps) == 0 {
		return
	}
	row()
	row("STEP", "STATE", "ATTEMPT", "FAILURES", "COMPLETE BY", "RESULT")
	for i := range o.Steps {
		s := &o.Steps[i]
		row(s.Name, s.State, s.Attempt, words.Failures(s.FailureCount, s.Uncounted), words.Clock(s.CompleteBy), words.StepResult(s))
		if c := s.Child; c != nil {
			row("  order", words.ChildState(c), "", "", "", words.Child(c))
		}
		if n := s.Items; n != nil {
			text := words.Items(n)
			if n.Left > 0 {
				text += fmt.Sprintf(": waybill order items %s %s --left", o.OrderID, s.Name)
			}
			row("  items", "", "", "", "", text)
		}
		for l := range s.LeftBy {
			row("  left", "", "", "", "", words.LeftBy(&s.LeftBy[l]))
		}
		if p := s.Place; p != nil {
			row("  place", "", "", "", "", fmt.Sprintf("waits for one of limit %s since %s", p.Limit, words.Clock(p.Since)))
		}
		if u := s.Undo; u != nil {
			row("  undo", u.State, u.Attempt, words.Failures(u.FailureCount, u.Uncounted), words.Clock(u.CompleteBy), words.Result(u.State, "", u.Error, u.Due, s.Waits, u.Round, u.Input))
		}
	}
}

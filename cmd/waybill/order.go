package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
)

func newOrder() *cobra.Command {
	return group("order", "Look at orders", newOrderGet(), newOrderList(), newOrderHistory())
}

func newOrderGet() *cobra.Command {
	cmd := &cobra.Command{Use: "get ID", Short: "Print the state record of an order", Args: takes(one)}
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return talk(*server, func(client *api.Client) error {
			o, err := client.Order(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return printOrder(cmd, out, o)
		})
	}
	return cmd
}

func newOrderList() *cobra.Command {
	var workflow string
	var limit int
	state := oneOf{}
	for _, s := range projections.States {
		state.allowed = append(state.allowed, string(s))
	}
	cmd := &cobra.Command{
		Use: "list", Short: "List orders",
		Long: "Lists orders partition by partition, in each by state and workflow, newest first.",
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.Var(&state, "state", "only orders in this state")
	flags.StringVar(&workflow, "workflow", "", "only orders of this workflow")
	flags.IntVar(&limit, "limit", 100, "how many at most; 0 means all")
	onlyByFlag(flags, "state", "workflow", "limit")
	server := addServer(flags)
	out := addOutput(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return talk(*server, func(client *api.Client) error {
			all, more, err := collect(limit, func(n int, after string) ([]api.Summary, string, error) {
				page, err := client.Orders(cmd.Context(), state.value, workflow, n, after)
				return page.Orders, page.Next, err
			})
			if err != nil {
				return err
			}
			if err := out.print(cmd, map[string]any{"orders": all}, func(row func(...any)) {
				row("ORDER", "WORKFLOW", "STATE", "ACCEPTED", "COMPLETE BY", "FAILURES", "REASON")
				for _, o := range all {
					row(o.OrderID, workflowID(o.Workflow, o.Version), o.ProcessState, clock(o.AcceptedAt), clock(o.CompleteBy), o.FailureCount, short(or(o.Reason)))
				}
			}); err != nil {
				return err
			}
			if more {
				fmt.Fprintln(cmd.ErrOrStderr(), "There are more; see --limit.")
			}
			return nil
		})
	}
	return cmd
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

func printOrder(cmd *cobra.Command, out *output, o *api.Order) error {
	return out.print(cmd, o, func(row func(...any)) {
		row("Order", o.OrderID)
		row("Workflow", workflowID(o.Workflow, o.Version))
		row("State", o.ProcessState)
		if o.Reason != nil {
			row("Reason", *o.Reason)
		}
		row("Locked by", or(o.LockedBy))
		row("Complete by", clock(o.CompleteBy))
		row("Failures", o.FailureCount)
		row("Accepted", clock(o.AcceptedAt))
		row("Updated", clock(o.UpdatedAt))
		row("Priority", o.Priority)
		if o.ReplyTo != nil {
			row("Reply to", *o.ReplyTo)
		}
		row("Input", short(payload(o.Input)))
		row("Output", short(payload(o.Output)))
		if len(o.Steps) == 0 {
			return
		}
		row()
		row("STEP", "STATE", "ATTEMPT", "FAILURES", "COMPLETE BY", "RESULT")
		for _, s := range o.Steps {
			result := short(payload(s.Output))
			if s.Error != nil {
				result = faultText(s.Error)
			}
			if s.Due != nil {
				result += "; next attempt at " + clock(s.Due)
			}
			row(s.Name, s.State, s.Attempt, s.FailureCount, clock(s.CompleteBy), result)
		}
	})
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
	return text
}

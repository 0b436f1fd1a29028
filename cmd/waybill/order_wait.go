package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/projections"
)

func newOrderWait() *cobra.Command {
	var timeout time.Duration
	state := oneOf{allowed: []string{""}}
	for _, s := range projections.States {
		state.allowed = append(state.allowed, string(s))
	}
	cmd := &cobra.Command{
		Use: "wait ID", Short: "Wait for an order",
		Long: `Waits until an order has ended, or waits for an operator, prints it, and exits with
0 only if it was Processed. With --state it waits until the order is in that state;
the exit code is 1 once it has ended in another; one that waits for an operator is
waited for, too. So is one that is not there yet, and a server that restarts.`,
		Example: `  waybill order wait o-1 --timeout 10m
  waybill order wait o-1 --state Error`,
		Args: takes(one),
	}
	flags := cmd.Flags()
	flags.Var(&state, "state", "wait for this state")
	flags.DurationVar(&timeout, "timeout", 0, "how long (default: without end)")
	onlyByFlag(flags, "state", "timeout")
	server := addServer(flags)
	out := addOutput(flags)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := events.CheckOrderID(args[0]); err != nil {
			return usageError{err}
		}
		ctx, want := cmd.Context(), projections.State(state.value)
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		wanted := stands
		if want != "" {
			wanted = func(o *api.Order) bool { return o.ProcessState == want || o.ProcessState.Final() }
		} else {
			want = projections.Processed
		}
		return server.talk(func(client *api.Client) error {
			if err := there(cmd, client, args[0]); err != nil {
				return err
			}
			o, err := follow(ctx, client, args[0], wanted)
			if err != nil {
				return err
			}
			if err := printOrder(cmd, out, o); err != nil {
				return err
			}
			return isNot(o, want)
		})
	}
	return cmd
}

// isNot says why an order is not in a state, nil if it is.
func isNot(o *api.Order, want projections.State) error {
	if o.ProcessState == want {
		return nil
	}
	why := ""
	if o.Reason != nil {
		why = ": " + clean(*o.Reason)
	}
	return fmt.Errorf("order %s is %s%s", clean(o.OrderID), o.ProcessState, why)
}

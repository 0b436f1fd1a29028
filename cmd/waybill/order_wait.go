package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
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
		Long: `Waits until an order has ended, or waits for an operator, and prints it. So does one of
which another order does a step that waits for an operator. With --state
it waits until the order is in that state, or has ended in another; one that waits for
an operator is waited for, too. So is one that is not there yet, and a server that
restarts. Exits with

  0  when the order was Processed, or came to be in that state
  7  when it ended otherwise, or waits for an operator
  8  when the --timeout has passed

and else as waybill help exit-codes says.`,
		Example: `  waybill order wait o-1 --timeout 10m
  waybill order wait o-1 --state Error`,
		Args: takes(one),
	}
	flags := cmd.Flags()
	flags.Var(&state, "state", "wait for this state")
	flags.DurationVar(&timeout, "timeout", 0, "how long (default: without end)")
	onlyByFlag(flags, "state", "timeout")
	server := addServer(flags)
	out := addOutput(flags, "$.orderId")
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
		var otherwise error // than what was waited for
		err := server.talk(func(client *api.Client) error {
			o, err := follow(ctx, client, args[0], wanted, func(err error) error { return mayCome(cmd, args[0], err) })
			if err != nil {
				return err
			}
			if err := printOrder(cmd, out, o); err != nil {
				return err
			}
			otherwise = isNot(o, want)
			return nil
		})
		return cmp.Or(err, otherwise)
	}
	return cmd
}

// isNot says why an order is not in a state, nil if it is.
func isNot(o *api.Order, want projections.State) error {
	if o.ProcessState == want {
		return nil
	}
	why := ""
	if child := inErrorBelow(o); child != "" {
		why = fmt.Sprintf(", and order %s, which does a step of it, waits for an operator: waybill order get %s", words.Clean(child), words.Clean(child))
	}
	if o.Reason != nil {
		why = ": " + words.Clean(*o.Reason)
	}
	return endedError{fmt.Errorf("order %s is %s%s", words.Clean(o.OrderID), o.ProcessState, why)}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

func newOrderRerun() *cobra.Command {
	var r api.Rerun
	var input, deadline string
	var wait bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "rerun ID", Short: "Run an order that has ended again, as a new one",
		Long: `Submits a new order that does again what one did that has ended, and prints its id. It
has the workflow, the version, the input, the labels, the priority and the topic for
status messages of the other, as they are now, but not its deadline, and says by
rerunOf which order that is. All its steps run, under idempotency keys of its own, also
those that the other has done: what was not undone is done twice. An order in Error has
not ended: resubmit it, and what was done is kept.

Asking again under the same --id runs nothing twice: the error of a call that may have been
taken names it. A call that is to be repeated needs a time as
its --deadline: +2h is another one each time. With --wait it follows the new order as submit
does.`,
		Example: `  waybill order rerun o-1
  waybill order rerun o-1 --id o-1-again --input '{"card":"4711"}' --wait
  waybill order rerun o-1 --version 3`,
		Args: takes(one),
	}
	flags := cmd.Flags()
	flags.StringVar(&r.ID, "id", "", "id of the new order (default: a new one)")
	flags.IntVar(&r.Version, "version", 0, "version of the workflow (default: that of the order)")
	flags.StringVar(&input, "input", "", "what the agents work on: JSON, @FILE, or - for standard input (default: that of the order)")
	flags.StringVar(&deadline, "deadline", "", "when the new order must be done: a time such as 2030-01-02T15:04:05Z, or from now on such as +2h")
	flags.BoolVar(&wait, "wait", false, "follow the order to its end")
	flags.DurationVar(&timeout, "timeout", 0, "how long to --wait (default: without end)")
	onlyByFlag(flags, "id", "version", "input", "deadline", "wait")
	server := addServer(flags)
	out := addOutput(flags, "$.orderId")

	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		of := args[0]
		if err := events.CheckOrderID(of); err != nil {
			return usageError{err}
		}
		if r.Deadline, err = readDeadline(deadline); err != nil {
			return err
		}
		if r.ID, err = newID(r.ID); err != nil {
			return err
		}
		if cmd.Flags().Changed("input") {
			value, err := readJSON("--input", input, cmd.InOrStdin())
			if err != nil {
				return err
			}
			r.Input = json.RawMessage(value)
		}
		return server.talk(func(client *api.Client) error {
			receipt, tried := new(api.Receipt), 0
			send := func(ctx context.Context) (err error) {
				tried++
				receipt, err = client.Rerun(ctx, of, &r)
				return err
			}
			sent := &sending{r.ID, r.Deadline, send, func(o *api.Order) bool { return receipt.Made(o, of) }}
			if wait {
				return explainRerun(of, submitAndWait(cmd, client, sent, timeout, out))
			}
			// Under its id nothing is run twice, so that what is not known yet is asked again.
			if _, err := known(cmd.Context(), func() (struct{}, error) { return struct{}{}, send(cmd.Context()) }); err != nil {
				return explainRerun(of, sent.told(tried, err))
			}
			return out.print(cmd, api.Receipt{OrderID: receipt.OrderID}, func(row func(...any)) { row(receipt.OrderID) })
		})
	}
	return cmd
}

// explainRerun says of an order why it is not run again.
func explainRerun(of string, err error) error {
	var problem *api.Problem
	if errors.As(err, &problem) && problem.Status == http.StatusConflict {
		return fmt.Errorf("order %s was not run again: %w", words.Clean(of), err)
	}
	return err
}

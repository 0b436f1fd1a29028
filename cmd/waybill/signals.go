package main

import (
	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

func newSignals() *cobra.Command {
	var limit int
	var signal, workflow string
	cmd := &cobra.Command{
		Use: "signals", Short: "List what waits for signals",
		Long: `Lists the steps that wait for signals: for which, until when, and since when, the
order first that has not changed for longest. Where something came to the order behind
that, be it with it, it says by when the step waited.

To tell an order what happened: waybill order signal ORDER SIGNAL; those that wait
under a key: waybill signal KEY SIGNAL.`,
		Example: `  waybill signals --signal payment
  waybill signals --workflow order-fulfilment
  waybill order signal o-1 payment --data '{"amount":12}'`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.Var(chooser{one: &signal}, "signal", "only what still waits for a signal of this name")
	flags.Var(chooser{one: &workflow}, "workflow", "only orders of this workflow")
	flags.IntVar(&limit, "limit", 100, "how many at most; 0 means all")
	onlyByFlag(flags, "limit", "signal", "workflow")
	server := addServer(flags)
	out := addOutput(flags, "$.waits[*].order")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.talk(func(client *api.Client) error {
			return printList(cmd, out, "waits", limit, func(n int, after string) ([]api.SignalWait, leftOut, string, error) {
				page, err := known(cmd.Context(), func() (*api.SignalWaitPage, error) {
					return client.SignalWaits(cmd.Context(), signal, workflow, n, after)
				})
				return page.Waits, leftOut{LeftOut: page.LeftOut}, page.Next, err
			}, func(row func(...any), all []api.SignalWait) {
				row("ORDER", "STEP", "WORKFLOW", "STATE", "SINCE", "UNTIL", "WAITS FOR")
				for i := range all {
					w := &all[i]
					since := out.when(w.Since)
					if w.Since == nil {
						since = "by " + out.when(w.UpdatedAt)
					}
					row(w.Order, w.Step, words.Workflow(w.Workflow, w.Version), words.WaitState(w), since, out.when(w.Until), words.Waited(w))
				}
			})
		})
	}
	return cmd
}

package main

import (
	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

func newAlerts() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "alerts", Short: "List the orders that wait for an operator",
		Long: "Lists the open alerts, newest first: why the order stopped, every error, and what\ncan be done.",
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&limit, "limit", 100, "how many at most; 0 means all")
	onlyByFlag(flags, "limit")
	server := addServer(flags)
	out := addOutput(flags, "$.alerts[*].order")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.talk(func(client *api.Client) error {
			return printList(cmd, out, "alerts", limit, func(n int, after string) ([]api.Alert, api.LeftOut, string, error) {
				page, err := known(cmd.Context(), func() (*api.AlertPage, error) { return client.Alerts(cmd.Context(), n, after) })
				return page.Alerts, page.LeftOut, page.Next, err
			}, func(row func(...any), all []api.Alert) {
				row("AT", "ORDER", "WORKFLOW", "STEP", "ALERT")
				for i := range all {
					a := &all[i]
					for n, line := range alertLines(a) {
						if n == 0 {
							row(words.Clock(a.At), a.Order, words.Workflow(a.Workflow, a.Version), words.Or(a.Step), line)
						} else {
							row("", "", "", "", line)
						}
					}
				}
			})
		})
	}
	return cmd
}

// alertLines says why an operator is called, with every error, and what to do.
func alertLines(a *api.Alert) []string {
	lines := []string{a.Reason}
	if a.Masked {
		lines[0] = leftOutHere
	}
	if a.Parent != nil {
		lines = append(lines, "it "+words.Origin(a.Parent))
	}
	for i := range a.Errors {
		lines = append(lines, "error: "+words.PlacedFault(&a.Errors[i]))
	}
	if a.Action != nil {
		lines = append(lines, "to do: "+*a.Action)
	}
	return lines
}

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
)

func newAlerts() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "alerts", Short: "List the orders that wait for an operator",
		Long: "Lists the open alerts, newest first.",
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.IntVar(&limit, "limit", 100, "how many at most; 0 means all")
	onlyByFlag(flags, "limit")
	server := addServer(flags)
	out := addOutput(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return talk(*server, func(client *api.Client) error {
			all, more, err := collect(limit, func(n int, after string) ([]api.Alert, string, error) {
				page, err := client.Alerts(cmd.Context(), n, after)
				return page.Alerts, page.Next, err
			})
			if err != nil {
				return err
			}
			if err := out.print(cmd, map[string]any{"alerts": all}, func(row func(...any)) {
				row("AT", "ORDER", "WORKFLOW", "STEP", "REASON", "ERRORS")
				for _, a := range all {
					var faults []string
					for i := range a.Errors {
						faults = append(faults, faultText(&a.Errors[i]))
					}
					row(clock(a.At), a.Order, workflowID(a.Workflow, a.Version), or(a.Step), short(a.Reason), short(strings.Join(faults, "; ")))
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

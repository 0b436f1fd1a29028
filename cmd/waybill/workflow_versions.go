package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
)

func newWorkflowVersions() *cobra.Command {
	cmd := &cobra.Command{
		Use: "versions NAME", Short: "List the versions of a workflow, and how many open orders have each",
		Long: `Lists the versions of a workflow, newest first, and how many orders of each have not
ended. An order keeps its version: agents must serve what that asks for as long as it
has open orders.`,
		Args: takes(one),
	}
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return server.talk(func(client *api.Client) error {
			v, err := known(cmd.Context(), func() (*api.Versions, error) { return client.Versions(cmd.Context(), args[0]) })
			if err != nil {
				return err
			}
			var left leftOut
			left.note(v.LeftOut)
			left.warn(cmd)
			if v.More {
				fmt.Fprintln(cmd.ErrOrStderr(), "There are more open orders than were counted: take the numbers as at least so many.")
			}
			return out.print(cmd, v, func(row func(...any)) {
				row("VERSION", "OPEN", "IN ERROR", "")
				for _, version := range v.Versions {
					note := ""
					switch {
					case !version.Registered:
						note = "not registered any more"
					case version.Newest:
						note = "newest"
					}
					row(version.Version, version.Open, version.Error, note)
				}
			})
		})
	}
	return cmd
}

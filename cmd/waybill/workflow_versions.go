package main

import (
	"fmt"
	"strconv"

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
			left.note(leftOut{LeftOut: v.LeftOut})
			left.warn(cmd)
			least := ""
			if v.More {
				least = ">="
				fmt.Fprintln(cmd.ErrOrStderr(), "There are more open orders than were counted: take the numbers as at least so many.")
			}
			return out.print(cmd, v, func(row func(...any)) {
				row("VERSION", "OPEN", "IN ERROR", "")
				for _, version := range v.Versions {
					note := ""
					switch {
					case !version.Registered:
						note = "not registered any more"
					case version.Retired:
						note = "retired"
					case version.Newest:
						note = "newest"
					}
					row(version.Version, least+strconv.Itoa(version.Open), least+strconv.Itoa(version.Error), note)
				}
			})
		})
	}
	return cmd
}

func newWorkflowRetire() *cobra.Command {
	var restore bool
	cmd := &cobra.Command{
		Use: "retire NAME@VERSION", Short: "Let no new order have a version of a workflow",
		Long: `Lets no new order have a version of a workflow: a submission that names it is
rejected, and one that names no version takes the newest that is not retired. Orders
that have the version go on; waybill workflow versions counts them. --restore ends it.`,
		Example: `  waybill workflow retire order-fulfilment@1
  waybill workflow retire order-fulfilment@1 --restore`,
		Args: takes(one),
	}
	cmd.Flags().BoolVar(&restore, "restore", false, "let new orders have it again")
	onlyByFlag(cmd.Flags(), "restore")
	server := addServer(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var named api.Submission
		if err := nameWorkflow(&named, args[0]); err != nil {
			return err
		}
		if named.Version == 0 {
			return usageError{fmt.Errorf("%q names no version; write for example %s@1", args[0], args[0])}
		}
		return server.talk(func(client *api.Client) error {
			if err := client.Retire(cmd.Context(), named.Workflow, named.Version, !restore); err != nil {
				return err
			}
			did := "retired"
			if restore {
				did = "restored"
			}
			fmt.Fprintln(cmd.OutOrStdout(), did, args[0])
			return nil
		})
	}
	return cmd
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

func newLimit() *cobra.Command {
	return listGroup("limit", "limits", "Have only so many attempts of steps be made at a time, or in a second",
		newLimitList, newLimitApply(), newLimitShow(), newLimitDelete())
}

func newLimitApply() *cobra.Command {
	var act api.Act
	cmd := &cobra.Command{
		Use: "apply FILE...", Short: "Have limits be as files say",
		Long: `Has limits be as files say, be they new or others than before: docs/limits.md has the
keys. Another number acts at once: more attempts begin, or none until fewer have places.
- is standard input.`,
		Example: `  waybill limit apply crm.yaml --note 'they said two'`,
		Args:    takes(some),
	}
	scheduleAuthor(cmd.Flags(), &act)
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$.name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names, all := make([]string, len(args)), make([]*events.Limit, len(args))
		for i, file := range args { // all or none is wrong
			source, err := readFile(cmd, file)
			if err != nil {
				return fmt.Errorf("read the limit: %w", err)
			}
			if names[i], all[i], err = workflow.ParseLimit(file, source); err != nil {
				return err //nolint:wrapcheck // it says where
			}
		}
		for i, says := range all {
			l, err := actOnObject(cmd.Context(), server, &act, func(client *api.Client, key string) (*api.Limit, error) {
				return client.ApplyLimit(cmd.Context(), names[i], key, &api.LimitApplication{Act: act, LimitSpec: api.LimitSpec{AtATime: says.AtATime, ASecond: says.ASecond}})
			})
			if err != nil {
				return err
			}
			if err := out.print(cmd, l, func(row func(...any)) { row("applied", names[i]+":", words.Limit(says)) }); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

func newLimitList() *cobra.Command {
	var limit int
	cmd := &cobra.Command{Use: "list", Short: "List limits, with how many attempts have places and wait", Args: cobra.NoArgs}
	cmd.Flags().IntVar(&limit, "limit", 100, "how many at most; 0 means all")
	onlyByFlag(cmd.Flags(), "limit")
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$.limits[*].name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.talk(func(client *api.Client) error {
			return printList(cmd, out, "limits", limit, func(n int, after string) ([]api.Limit, leftOut, string, error) {
				page, err := known(cmd.Context(), func() (*api.LimitPage, error) { return client.Limits(cmd.Context(), n, after) })
				return page.Limits, leftOut{LeftOut: page.LeftOut}, page.Next, err
			}, func(row func(...any), all []api.Limit) {
				row("LIMIT", "AT A TIME", "A SECOND", "TAKEN", "WAITING", "LONGEST SINCE", "")
				for i := range all {
					l := &all[i]
					row(l.Name, number(l.AtATime), number(l.ASecond), l.Taken, l.Waiting, words.Clock(l.Oldest), limitState(l))
				}
			})
		})
	}
	return cmd
}

// number is one that may not be said.
func number(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func limitState(l *api.Limit) string {
	if l.Held {
		return "held"
	}
	return ""
}

func newLimitShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Show a limit, and how it stands",
		Long: `Shows a limit, and how it stands. Who got places is its history:
waybill order history @/limit.NAME.`,
		Args: takes(one),
	}
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$.name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return server.talk(func(client *api.Client) error {
			l, err := known(cmd.Context(), func() (*api.Limit, error) { return client.Limit(cmd.Context(), args[0]) })
			if err != nil {
				return err
			}
			return out.print(cmd, l, func(row func(...any)) {
				row("Limit", l.Name)
				if state := limitState(l); state != "" {
					row("State", state)
				}
				row("At a time", number(l.AtATime))
				row("A second", number(l.ASecond))
				row("Applied by", words.Or(l.AppliedBy))
				row("Taken", l.Taken)
				row("Waiting", l.Waiting)
				row("Longest since", words.Clock(l.Oldest))
			})
		})
	}
	return cmd
}

func newLimitDelete() *cobra.Command {
	var act api.Act
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Have there be no limit of a name any more",
		Long: `Deletes a limit, which is refused while an attempt has a place of it, or waits for one.
Steps that name it fail from then on, with unknown-limit.`,
		Args: takes(one),
	}
	scheduleAuthor(cmd.Flags(), &act)
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$.name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l, err := actOnObject(cmd.Context(), server, &act, func(client *api.Client, key string) (*api.Limit, error) {
			return client.DeleteLimit(cmd.Context(), args[0], key, &act)
		})
		if err != nil {
			return err
		}
		return out.print(cmd, l, func(row func(...any)) { row("deleted", args[0]) })
	}
	return cmd
}

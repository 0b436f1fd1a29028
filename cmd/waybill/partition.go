package main

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

func newPartition() *cobra.Command {
	return listGroup("partition", "partitions", "Look at the partitions, and act on one", newPartitionList, newSkipLost())
}

func newPartitionList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the partitions, who owns them, and how far they are read here",
		Long: `Lists the partitions: who claimed each last, and how many records of its journal the
instance that is asked has not read. Others may be ahead of it, or behind.`,
		Args: cobra.NoArgs,
	}
	on := addWatch(cmd.Flags(), "until it is stopped")
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$.partitions[*].partition")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.talk(func(client *api.Client) error {
			fetch := func() ([]api.Partition, error) { return client.Partitions(cmd.Context()) }
			table := func(row func(...any), all []api.Partition) { listPartitions(row, out, all) }
			if *on {
				return watchList(cmd, out, "partitions", func() ([]api.Partition, []string, error) {
					all, err := fetch()
					return all, nil, err
				}, table)
			}
			all, err := known(cmd.Context(), fetch)
			if err != nil {
				return err
			}
			return out.print(cmd, map[string]any{"partitions": all}, func(row func(...any)) { table(row, all) })
		})
	}
	return cmd
}

func listPartitions(row func(...any), out *output, all []api.Partition) {
	columns := []any{"PARTITION", "OWNER", "CLAIMED", "BEHIND", "STATE"}
	if out.wide() {
		columns = append(columns, "OFFSET", "TRANSACTION", "OWNER'S ADDRESS", "CLOCK")
	}
	row(columns...)
	for i := range all {
		p := &all[i]
		state := "read"
		switch {
		case p.Elsewhere:
			state = "elsewhere"
		case !p.Known:
			state = "reading"
		}
		columns := []any{p.Partition, words.Or(p.Owner), out.when(p.ClaimedAt), words.Or(p.Behind), state}
		if out.wide() {
			address := words.Dash(p.OwnerURL)
			if p.SharesURL {
				address = "that of the instance asked"
			}
			columns = append(columns, p.Offset, p.Transaction, address, words.ClockOff(p.Clock))
		}
		row(columns...)
	}
}

func newSkipLost() *cobra.Command {
	var act api.Act
	cmd := &cobra.Command{
		Use: "skip-lost PARTITION", Short: "Go on behind inputs that were lost",
		Long: `Has a partition go on that is stopped because inputs were deleted before they were
read. They are gone: what they would have done is not done, and orders that wait
for a reply among them expire. Ask the instance that owns the partition. Who had
it done, and why, stands in the journal.`,
		Example: `  waybill partition skip-lost 3 --note 'retention was a day, and the outage two'`,
		Args:    takes(one),
	}
	flags := cmd.Flags()
	flags.StringVar(&act.By, "by", "", "who acts (default: whom the server knows by --token-file or --cert, else user@host)")
	flags.StringVar(&act.Note, "note", "", "why; it stands in the journal")
	server := addServer(flags)
	out := addOutput(flags, "$.partition")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		partition, err := strconv.ParseInt(args[0], 10, 32)
		if err != nil || partition < 0 {
			return usageError{fmt.Errorf("%q is not the number of a partition", args[0])}
		}
		if act.By == "" && !server.named() {
			act.By = whoami()
		}
		return server.talk(func(client *api.Client) error {
			p, err := client.SkipLost(cmd.Context(), int32(partition), &act)
			var problem *api.Problem
			if errors.As(err, &problem) && problem.Status == http.StatusConflict {
				return fmt.Errorf("nothing was skipped: %w", err)
			}
			if err != nil {
				return err
			}
			return out.print(cmd, p, func(row func(...any)) {
				row(fmt.Sprintf("Partition %d goes on.", p.Partition))
			})
		})
	}
	return cmd
}

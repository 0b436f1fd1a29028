package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

func newPartition() *cobra.Command {
	return listGroup("partition", "partitions", "Look at the partitions, and act on one", newPartitionList, newSkipLost())
}

func newPartitionList() *cobra.Command {
	var instances bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the partitions, who owns them, and how far they are read here",
		Long: `Lists the partitions: who claimed each last, and how many records of its journal the
instance that is asked has not read. Others may be ahead of it, or behind. With
--instances lists who is there instead, as Kafka says: each instance with the
partitions that the group gives it, and where it is asked.`,
		Example: `  waybill partitions -o wide
  waybill partitions --instances`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.BoolVar(&instances, "instances", false, "list the instances that are there, and not the partitions")
	onlyByFlag(flags, "instances")
	on := addWatch(flags, "until it is stopped")
	server := addServer(flags)
	out := addOutput(flags, "$.partitions[*].partition", "$.instances[*].instance")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.talk(func(client *api.Client) error {
			if instances {
				return showInstances(cmd, client, out, *on)
			}
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

// showInstances lists which instances there are. Where that is not known it fails: an empty list would say that none is there.
func showInstances(cmd *cobra.Command, client *api.Client, out *output, watched bool) error {
	more := 0
	fetch := func() (all []api.Present, lacks []string, err error) {
		all, more, err = present(cmd.Context(), client)
		if more > 0 {
			lacks = []string{fmt.Sprintf("And %d more, which the server does not name.", more)}
		}
		return all, lacks, err
	}
	table := func(row func(...any), all []api.Present) {
		row("INSTANCE", "PARTITIONS", "ADDRESS")
		for i := range all {
			row(all[i].Instance, given(out, all[i].Partitions), words.Dash(all[i].URL))
		}
	}
	if watched {
		return watchList(cmd, out, "instances", fetch, table)
	}
	all, lacks, err := fetch()
	if err != nil {
		return err
	}
	data := map[string]any{"instances": all}
	if more > 0 {
		data["moreInstances"] = more
	}
	if err := out.print(cmd, data, func(row func(...any)) { table(row, all) }); err != nil {
		return err
	}
	for _, line := range lacks {
		fmt.Fprintln(cmd.ErrOrStderr(), line)
	}
	return nil
}

// present asks which instances there are, and how many more than are told.
func present(ctx context.Context, client *api.Client) (all []api.Present, more int, _ error) {
	p, err := known(ctx, func() (*api.Partitions, error) { return client.Instances(ctx) })
	switch {
	case err != nil:
		return nil, 0, err
	case p.NotTold != "": // it may be known in a moment
		return nil, 0, &api.Problem{Status: http.StatusServiceUnavailable, Title: "Service Unavailable", Detail: "which instances there are is not known: " + p.NotTold}
	case p.Instances == nil:
		return nil, 0, errors.New("the server does not say which instances there are: it is of a release before that was told; waybill upgrade status has the members of the group")
	}
	return p.Instances, p.More, nil
}

// fewPartitions is how many partitions of an instance a table names that is not wide.
const fewPartitions = 16

// given are the partitions of an instance.
func given(out *output, partitions []int32) string {
	if len(partitions) == 0 {
		return "none"
	}
	var all []string
	for n, p := range partitions {
		if n == fewPartitions && !out.wide() {
			all = append(all, fmt.Sprintf("and %d more", len(partitions)-n))
			break
		}
		all = append(all, strconv.Itoa(int(p)))
	}
	return strings.Join(all, ", ")
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
	onlyByFlag(flags, "note")
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

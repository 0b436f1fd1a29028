package main

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
)

func newPartition() *cobra.Command {
	return group("partition", "Act on a partition", newSkipLost())
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

package main

import (
	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/revision"
)

func newWorkflowDiff() *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff FROM TO", Short: "Say what changes for orders between two workflow files",
		Long: `Says what is different for orders between two workflow files, however they are
written: defaults count as if they were spelled out. Exits with 0 when both mean
the same, with 1 when they do not, and with 2 when that cannot be told.`,
		Args: takes(two),
	}
	out := addOutput(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		good, err := readDefinitions(cmd, files)
		if err != nil {
			return undecidedError{refused(cmd, err, "nothing was compared; correct the problems above")}
		}
		a, b := good[0].flow, good[1].flow
		r := revision.Of(a, b)
		if err := out.print(cmd, r, func(row func(...any)) {
			for n, c := range r.Rows(a, b) {
				if n == 0 {
					row("STEP", "KEY", "FROM", "TO")
				}
				row(c.Step, c.Key, c.From, c.To)
			}
		}); err != nil {
			return undecidedError{err}
		}
		if len(r.Changes) > 0 {
			return errReported
		}
		return nil
	}
	return cmd
}

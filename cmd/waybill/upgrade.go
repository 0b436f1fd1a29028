package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

func newUpgrade() *cobra.Command {
	return group("upgrade", "See how far an upgrade is, and finish it",
		upgradeCommand("status", "Show which releases are in the group, and the format of the namespace",
			`Shows which releases the instances are of, the format that all of them know, and
the one that stands in the journal. What is new in a format is written only once
every instance knows it: see --upgrade-after of waybill serve.`,
			(*api.Client).Upgrade),
		upgradeCommand("finish", "Write the newest format from now on, which shuts older releases out",
			`Has the newest format written at once, without waiting. An older release cannot
own a partition from then on: there is no way back. Refused while an older one
is in the group.`,
			(*api.Client).FinishUpgrade))
}

func upgradeCommand(use, short, long string, call func(*api.Client, context.Context) (*api.Upgrade, error)) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: cobra.NoArgs}
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$.members[*].instance")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.talk(func(client *api.Client) error {
			u, err := known(cmd.Context(), func() (*api.Upgrade, error) { return call(client, cmd.Context()) })
			if err != nil {
				return err
			}
			if err := out.print(cmd, u, func(row func(...any)) {
				row("INSTANCE", "HOST", "FORMAT", "LANGUAGE", "ADDRESS")
				for _, m := range u.Members {
					row(m.Instance, m.Host, m.Dialect.Format, m.Dialect.Language, words.Dash(m.URL))
				}
			}); err != nil {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), upgradeLine(u))
			return nil
		})
	}
	return cmd
}

// upgradeLine says how far the upgrade is, as the instance that was asked knows it.
func upgradeLine(u *api.Upgrade) string {
	if u.Format == 0 {
		return fmt.Sprintf("The instance that was asked knows of no partition in which format it is; every instance knows format %d.", u.Speaks)
	}
	line := fmt.Sprintf("The journal is in format %d; every instance knows format %d.", u.Format, u.Speaks)
	switch {
	case u.Format >= u.Speaks:
		return line
	case u.Rises == nil:
		return line + " The newer one is being written."
	}
	return line + fmt.Sprintf(" The newer one is written from %s on at the latest, or at once with: waybill upgrade finish", words.Clock(u.Rises))
}

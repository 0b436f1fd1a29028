package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
)

// newHealth is for where nothing else can ask: an image without a shell.
func newHealth() *cobra.Command {
	cmd := &cobra.Command{
		Use: "health", Short: "Say whether an instance is ready",
		Long: `Asks an instance's /readyz: it is ready once it knows the workflows, has joined
the group, and serves every partition that it was given. The exit code is 1 if it
is not, or if nothing answers. For health checks of containers.`,
		Args: cobra.NoArgs,
	}
	server := addServer(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.talk(func(client *api.Client) error {
			if err := client.Ready(cmd.Context()); err != nil {
				return errors.New(err.Error()) // 1 is what those know who ask for the health of a container
			}
			fmt.Fprintln(cmd.OutOrStdout(), "ready")
			return nil
		})
	}
	return cmd
}

package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
)

// newHealth is for where nothing else can ask: an image without a shell.
func newHealth() *cobra.Command {
	var admin, addr string
	cmd := &cobra.Command{
		Use: "health", Short: "Say whether an instance is ready",
		Long: `Asks an instance's /readyz: it is ready once it knows the workflows, has joined
the group, serves every partition that it was given, and hears from Kafka. The exit
code is 1 if it is not, or if nothing answers. For health checks of containers.

Unless --server or a context says where, it asks on this machine, at the address at which
the instance has its probes: WAYBILL_ADMIN_ADDR or else WAYBILL_HTTP_ADDR, which are those
of waybill serve in the same container. There is no TLS at the former; where the latter has
it, and there is no other, say --server https://NAME:PORT, with the name that is in the
certificate, and --ca.`,
		Example: `  waybill health
  waybill health --server http://127.0.0.1:8081`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&admin, "admin-addr", "", "where the instance answers probes, as waybill serve has it")
	flags.StringVar(&addr, "http-addr", "", "where its HTTP server listens, which answers them without --admin-addr")
	server := addServer(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if at := cmp.Or(admin, addr); at != "" && !flags.Changed("server") {
			if strings.HasPrefix(at, ":") {
				at = "0.0.0.0" + at
			}
			server.server = "http://" + reachable(at)
		}
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

package main

import (
	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/docs/schemas"
)

func newWorkflowSchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of workflow files, for editors",
		Long: `Prints the JSON Schema of workflow files, by which editors complete and check them:

  waybill workflow schema > workflow.schema.json

and as the first line of a workflow file beside it:

  # yaml-language-server: $schema=workflow.schema.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(schemas.Workflow)
			return err
		},
	}
}

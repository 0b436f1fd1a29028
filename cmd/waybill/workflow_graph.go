package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/diagram"
)

func newWorkflowGraph() *cobra.Command {
	cmd := &cobra.Command{
		Use: "graph FILE", Short: "Draw the steps of a workflow file, without a server",
		Long: `Prints which steps come after which, as text that others draw: Mermaid, which
GitHub and many editors show, or that of Graphviz:

  waybill workflow graph FILE --format dot | dot -Tpng > workflow.png

--format svg is a drawing that browsers show.`,
		Args: takes(one),
	}
	format := oneOf{"mermaid", []string{"mermaid", "dot", "svg"}}
	cmd.Flags().Var(&format, "format", "whose text to print, or svg, a drawing")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		good, err := readDefinitions(cmd, files)
		if err != nil {
			return refused(cmd, err, "correct the problems above")
		}
		switch format.value {
		case "svg":
			err = diagram.SVG(cmd.OutOrStdout(), good[0].flow)
		case "dot":
			_, err = io.WriteString(cmd.OutOrStdout(), diagram.Dot(good[0].flow))
		default:
			_, err = io.WriteString(cmd.OutOrStdout(), diagram.Mermaid(good[0].flow))
		}
		return err
	}
	return cmd
}

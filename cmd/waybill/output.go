package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/internal/words"
)

// output is how a command prints data.
type output struct{ format oneOf }

func addOutput(flags *pflag.FlagSet) *output {
	o := &output{oneOf{"table", []string{"table", "json"}}}
	flags.VarP(&o.format, "output", "o", "how to print")
	return o
}

// print prints value as JSON, or what table writes. A row is one line with tabs
// between its cells.
func (o *output) print(cmd *cobra.Command, value any, table func(row func(cells ...any))) error {
	if o.format.value == "json" {
		return printJSON(cmd.OutOrStdout(), value)
	}
	return printTable(cmd.OutOrStdout(), table)
}

func printTable(w io.Writer, table func(row func(cells ...any))) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	table(func(cells ...any) {
		line := make([]string, len(cells))
		for i, c := range cells {
			line[i] = words.Clean(fmt.Sprint(c))
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(line, "\t"), "\t"))
	})
	return t.Flush()
}

func printJSON(w io.Writer, value any) error {
	text, err := json.Marshal(value, jsontext.WithIndent("  "), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

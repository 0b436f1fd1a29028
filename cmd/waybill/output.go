package main

import (
	"bytes"
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

// underRow begins what stands under a row in a line of its own, whatever columns there are.
const underRow = "  "

func printTable(w io.Writer, table func(row func(cells ...any))) error {
	var aligned bytes.Buffer
	t := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	under, rows := make(map[int]string), 0
	table(func(cells ...any) {
		line := make([]string, len(cells))
		for i, c := range cells {
			line[i] = words.Clean(fmt.Sprint(c))
		}
		if rows > 0 && len(line) == 1 && strings.HasPrefix(line[0], underRow) { // among the others it would end the columns
			under[rows] += line[0] + "\n"
			return
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(line, "\t"), "\t"))
		rows++
	})
	if err := t.Flush(); err != nil {
		return err
	}
	rows = 0
	for line := range strings.Lines(aligned.String()) {
		rows++
		if _, err := io.WriteString(w, line+under[rows]); err != nil {
			return err
		}
	}
	return nil
}

func printJSON(w io.Writer, value any) error {
	text, err := json.Marshal(value, jsontext.WithIndent("  "), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

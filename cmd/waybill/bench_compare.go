package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/bench"
)

func newBenchCompare() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compare OLD.json NEW.json",
		Short: "Say what changed between runs of two versions",
		Long: `Compares runs that waybill bench -o json wrote, several one behind the other in
each file. Of each figure it prints the medians, from where to where the runs
went, and by how much they differ; or ~ if that may be chance (p is 0.05 or more, in
the exact test of Mann and Whitney). For less it takes four runs of each: of fewer, more
runs are asked for. Of twenty figures that did not change one is expected to be below.
Settings that only one side has, and conditions in which the runs differ, are named.`,
		Args: cobra.ExactArgs(2),
	}
	out := addOutput(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var sides [2][]bench.Report
		for n, name := range args {
			var err error
			if sides[n], err = readReports(name); err != nil {
				return err
			}
		}
		all, err := bench.Compare(sides[0], sides[1])
		if err != nil {
			return err
		}
		return out.print(cmd, all, func(row func(...any)) {
			for n, c := range all {
				if n > 0 {
					row()
				}
				if c.Only != "" {
					row(c.Setting + ": only in " + map[string]string{"old": args[0], "new": args[1]}[c.Only])
					continue
				}
				row(c.Setting)
				for _, u := range c.Unlike {
					row("not under the same conditions: " + u)
				}
				row("FIGURE", "OLD", "FROM TO", "NEW", "FROM TO", "CHANGE")
				for _, f := range c.Changes {
					row(f.Figure, figure(f.Old), spread(f.OldSpread), figure(f.New), spread(f.NewSpread), delta(&f))
				}
			}
		})
	}
	return cmd
}

func readReports(name string) ([]bench.Report, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	all, err := bench.ReadReports(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return all, nil
}

func figure(n float64) string { return fmt.Sprintf("%.4g", n) }

func spread(s [2]float64) string { return figure(s[0]) + " " + figure(s[1]) }

// delta is by how much a figure changed, or ~ if that may be chance.
func delta(c *bench.Change) string {
	sure := fmt.Sprintf("(p=%.3f, %d+%d runs)", c.P, c.OldRuns, c.NewRuns)
	switch {
	case c.TooFew:
		return "take more runs " + sure
	case !c.Differs:
		return "~ " + sure
	case c.Old == 0:
		return figure(c.New) + " more " + sure
	default:
		return fmt.Sprintf("%+.1f%% ", 100*(c.New-c.Old)/c.Old) + sure
	}
}

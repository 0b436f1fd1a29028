package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestWorkflowPlays runs the files of testdata/workflow. The command "graph" draws a file, "check"
// checks one, and "diff" compares two with an empty line between them; all print how they ended
// where that is not well. With an empty line between them "check" checks two.
func TestWorkflowPlays(t *testing.T) {
	clearEnvironment(t)
	datadriven.Walk(t, "testdata/workflow", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			args := []string{"workflow", d.Cmd}
			for _, a := range d.CmdArgs {
				args = append(args, a.String())
			}
			from, to, two := strings.Cut(d.Input, "\n\n")
			if !two {
				return ending(waybill(t, d.Input, append(args, "-")...))
			}
			dir := t.TempDir()
			for name, source := range map[string]string{"from.yaml": from, "to.yaml": to} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c := waybill(t, "", append(args, filepath.Join(dir, "from.yaml"), filepath.Join(dir, "to.yaml"))...)
			return strings.ReplaceAll(ending(c), dir+string(filepath.Separator), "")
		})
	})
}

func ending(c call) string {
	if c.code == exitDone {
		return c.out + c.errs
	}
	return fmt.Sprintf("%s%sexit code %d\n", c.out, c.errs, c.code)
}

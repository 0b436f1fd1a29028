package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/waybill-dev/waybill/internal/rehearsal"
)

// TestTestPlays runs the files of testdata/tests, each in a folder of its own. The command "file"
// writes a file, and "test" runs `waybill workflow test` with its arguments on the file that
// stands below it, as t.yaml, or on those that it names; "show" prints a file.
func TestTestPlays(t *testing.T) {
	clearEnvironment(t)
	datadriven.Walk(t, "testdata/tests", func(t *testing.T, path string) {
		path, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Chdir(t.TempDir())
		put := func(name, text string) {
			if err := os.WriteFile(name, []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "file":
				put(d.CmdArgs[0].Key, d.Input)
				return ""
			case "show":
				text, err := os.ReadFile(d.CmdArgs[0].Key)
				if err != nil {
					return err.Error()
				}
				return string(text)
			}
			args := []string{"workflow", "test"}
			for _, a := range d.CmdArgs {
				args = append(args, a.String())
			}
			if d.Input != "" {
				put("t.yaml", d.Input)
				args = append(args, "t.yaml")
			}
			return ending(waybill(t, "", args...))
		})
	})
}

// The test that docs/workflows.md shows is one, and passes.
func TestTheDocumentedTest(t *testing.T) {
	page, err := os.ReadFile("../../docs/workflows.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Test\n")
	_, block, _ := strings.Cut(section, "```yaml\n")
	source, _, _ := strings.Cut(block, "```")
	f, err := rehearsal.Parse("../../examples/order-fulfilment/shown.yaml", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range f.Tests {
		if d := test.Perform().Differences; len(d) > 0 {
			t.Errorf("%+v", d)
		}
	}
}

package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/theory/jsonpath"
)

// Where a command says that ids stand is JSONPath.
func TestNamesAreWellSaid(t *testing.T) {
	root, _ := newRoot()
	seen := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if flag := cmd.Flags().Lookup("output"); flag != nil {
			if o, is := flag.Value.(*output); is {
				for _, names := range o.names {
					seen++
					path, _, _ := strings.Cut(names, ": ")
					if _, err := jsonpath.Parse(path); err != nil {
						t.Errorf("%s: %v", cmd.CommandPath(), err)
					}
				}
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	if seen < 30 {
		t.Errorf("%d commands have ids", seen)
	}
}

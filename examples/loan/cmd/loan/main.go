// Command loan runs the loan example on this machine: `waybill dev` with the
// workflow, its agents, and people who have keys of their own.
//
//	loan -waybill bin/waybill
package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/waybill-dev/waybill/examples/beside"
	"github.com/waybill-dev/waybill/examples/loan"
)

func main() {
	(&beside.Example{Name: "loan", Agents: loan.Agents, Prepare: people, Then: greet}).Main()
}

func greet(_ context.Context, d *beside.Dev, data string) error {
	fmt.Fprintln(d.Stdout, "\nThe people have keys, by which they are known:")
	fmt.Fprintln(d.Stdout)
	for _, p := range staff {
		fmt.Fprintf(d.Stdout, "  %-4s  %s\n", p.name, strings.Join(p.roles, ", "))
	}
	key := func(name string) string { return filepath.Join(data, name+".key") }
	fmt.Fprintf(d.Stdout, `
Try, in another terminal:

  waybill submit loan --id l-1 --input '{"customer":"c-7","amount":50000,"income":40000}' --token-file %[1]s%[2]s
  waybill approvals --mine --token-file %[3]s%[2]s
  waybill order decide l-1 large approved --token-file %[3]s%[2]s

Ctrl-C stops it. Started again, it goes on where it was.
`, key("sam"), d.Server(), key("ana"))
	return nil
}

// Command payout runs the payout example on this machine: `waybill dev` with the workflow and its agents, a payout of
// 10,000 payments, and the resubmission of those that failed.
//
//	payout -waybill bin/waybill
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/waybill-dev/waybill/examples/beside"
	"github.com/waybill-dev/waybill/examples/payout"
)

func main() {
	var payments int
	bank := new(payout.Bank)
	example := beside.Example{
		Name: "payout", Agents: payout.Agents(bank),
		Flags: func(f *flag.FlagSet) {
			f.IntVar(&payments, "payments", 10_000, "`how many` payments there are, at most 20000")
		},
		Then: func(ctx context.Context, d *beside.Dev, data string) error { return pay(ctx, d, data, bank, payments) },
	}
	example.Main()
}

// pay makes the payments, opens the accounts that were closed, and makes those anew that failed.
func pay(ctx context.Context, d *beside.Dev, data string, bank *payout.Bank, payments int) error {
	run := time.Now().UTC().Format("20060102-150405")
	id, file := "payout-"+run, filepath.Join(data, run+".json")
	input, err := json.Marshal(map[string]any{"run": run, "payments": payout.Payments(payments)})
	if err == nil {
		err = os.WriteFile(file, input, 0o600)
	}
	if err != nil {
		return err
	}
	began := time.Now()
	for _, args := range [][]string{
		{"submit", "payout", "--id", id, "--input", "@" + file},
		{"order", "wait", id, "--state", "Error"},
		{"order", "items", id, "pay", "--failed", "--limit", "3"},
		{"order", "resubmit", id, "--note", "the accounts are open now"},
		{"order", "wait", id, "--state", "Processed"},
	} {
		if args[1] == "resubmit" {
			fmt.Fprintf(d.Stdout, "\nIt took %v so far. The bank opens the accounts.\n", time.Since(began).Round(time.Second/10))
			bank.Open()
		}
		if err := d.Do(ctx, args...); err != nil {
			return err
		}
	}
	fmt.Fprintf(d.Stdout, `
It took %v. Try, in another terminal:

  waybill order items %[2]s pay --limit 200%[3]s
  waybill order history @%[2]s/pay:i98:2%[3]s

Ctrl-C stops it. Started again, it makes another payout.
`, time.Since(began).Round(time.Second/10), id, d.Server())
	return nil
}

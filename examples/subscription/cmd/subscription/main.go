// Command subscription runs the subscription example on this machine: `waybill dev` with the workflows, and their
// agents.
//
//	subscription -waybill bin/waybill
package main

import (
	"context"
	"fmt"

	"github.com/waybill-dev/waybill/examples/beside"
	"github.com/waybill-dev/waybill/examples/subscription"
)

func main() {
	billing := new(subscription.Billing)
	(&beside.Example{Name: "subscription", Agents: subscription.Agents(billing), Then: func(_ context.Context, d *beside.Dev, _ string) error {
		billing.At("http://" + d.HTTP)
		fmt.Fprintf(d.Stdout, `
Try, in another terminal:

  waybill submit subscription --id s-1 --input '{"customer":"c-7","plan":"gold","every":"5s","start":"'$(date -u +%%Y-%%m-%%dT%%H:%%M:%%SZ)'"}'%[1]s
  waybill schedule list%[1]s
  waybill order list --where customer=c-7%[1]s
  waybill order signal s-1 cancel --id c-1%[1]s
  waybill order get s-1%[1]s

Ctrl-C stops it. Started again, it goes on where it was.
`, d.Server())
		return nil
	}}).Main()
}

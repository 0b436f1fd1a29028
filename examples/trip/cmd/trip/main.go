// Command trip runs the trip example on this machine: `waybill dev` with the workflows, and their
// agents.
//
//	trip -waybill bin/waybill
package main

import (
	"context"
	"fmt"

	"github.com/waybill-dev/waybill/examples/beside"
	"github.com/waybill-dev/waybill/examples/trip"
)

func main() { (&beside.Example{Name: "trip", Agents: trip.Agents, Then: greet}).Main() }

func greet(_ context.Context, d *beside.Dev, _ string) error {
	fmt.Fprintf(d.Stdout, `
Try, in another terminal:

  waybill submit trip --id t-1 --input '{"customer":"c-7","to":"LIS","nights":2,"car":"small"}' --wait%[1]s
  waybill order history @t-1/hotel%[1]s
  waybill submit trip --id t-2 --input '{"customer":"c-7","to":"LIS","nights":2,"car":"limousine"}' --wait%[1]s
  waybill order history @t-2/hotel%[1]s

Ctrl-C stops it. Started again, it goes on where it was.
`, d.Server())
	return nil
}

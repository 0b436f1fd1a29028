// Command trip runs the trip example on this machine: `waybill dev` with the workflows, and their
// agents.
//
//	trip -waybill bin/waybill
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/waybill-dev/waybill/examples/beside"
	"github.com/waybill-dev/waybill/examples/trip"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run returns the exit code: 0 stopped, 1 failed, 2 wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	dev := &beside.Dev{Agents: trip.Agents, Stdout: stdout, Stderr: stderr}
	flags := flag.NewFlagSet("trip", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&dev.Waybill, "waybill", "waybill", "the `program` that runs it")
	data := flags.String("data", "trip-data", "a `directory` for its data")
	workflows := flags.String("workflows", "examples/trip", "the `directory` of its workflows, which may be changed meanwhile")
	flags.StringVar(&dev.Kafka, "kafka-addr", "127.0.0.1:9092", "`address` of the broker")
	flags.StringVar(&dev.HTTP, "http-addr", "127.0.0.1:8080", "`address` of the HTTP server")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil || flags.NArg() > 0 {
		return 2
	}
	dev.Args = []string{"--workflows", *workflows, "--data-dir", *data}
	if err := dev.Run(ctx, func() { greet(stdout, dev.Server()) }); err != nil {
		fmt.Fprintln(stderr, "trip:", err)
		return 1
	}
	return 0
}

func greet(w io.Writer, server string) {
	fmt.Fprintf(w, `
Try, in another terminal:

  waybill submit trip --id t-1 --input '{"customer":"c-7","to":"LIS","nights":2,"car":"small"}' --wait%[1]s
  waybill order history @t-1/hotel%[1]s
  waybill submit trip --id t-2 --input '{"customer":"c-7","to":"LIS","nights":2,"car":"limousine"}' --wait%[1]s
  waybill order history @t-2/hotel%[1]s

Ctrl-C stops it. Started again, it goes on where it was.
`, server)
}

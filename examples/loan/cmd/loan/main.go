// Command loan runs the loan example on this machine: `waybill dev` with the
// workflow, its agents, and people who have keys of their own.
//
//	loan -waybill bin/waybill
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/waybill-dev/waybill/examples/beside"
	"github.com/waybill-dev/waybill/examples/loan"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run returns the exit code: 0 stopped, 1 failed, 2 wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	dev := &beside.Dev{Agents: loan.Agents, Stdout: stdout, Stderr: stderr}
	flags := flag.NewFlagSet("loan", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&dev.Waybill, "waybill", "waybill", "the `program` that runs it")
	data := flags.String("data", "loan-data", "a `directory` for its data, and for the keys of its people")
	workflows := flags.String("workflows", "examples/loan", "the `directory` of its workflow, which may be changed meanwhile")
	flags.StringVar(&dev.Kafka, "kafka-addr", "127.0.0.1:9092", "`address` of the broker")
	flags.StringVar(&dev.HTTP, "http-addr", "127.0.0.1:8080", "`address` of the HTTP server")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil || flags.NArg() > 0 {
		return 2
	}
	err := people(*data)
	if err != nil {
		err = fmt.Errorf("make the keys of the people: %w", err)
	} else {
		dev.Args = []string{
			"--workflows", *workflows, "--data-dir", filepath.Join(*data, "waybill"),
			"--access", filepath.Join(*data, accessFile), "--namespace-keys", filepath.Join(*data, namespaceFile),
		}
		err = dev.Run(ctx, func() { greet(stdout, *data, dev.Server()) })
	}
	if err != nil {
		fmt.Fprintln(stderr, "loan:", err)
		return 1
	}
	return 0
}

func greet(w io.Writer, data, server string) {
	fmt.Fprintln(w, "\nThe people have keys, by which they are known:")
	fmt.Fprintln(w)
	for _, p := range staff {
		fmt.Fprintf(w, "  %-4s  %s\n", p.name, strings.Join(p.roles, ", "))
	}
	key := func(name string) string { return filepath.Join(data, name+".key") }
	fmt.Fprintf(w, `
Try, in another terminal:

  waybill submit loan --id l-1 --input '{"customer":"c-7","amount":50000,"income":40000}' --token-file %[1]s%[2]s
  waybill approvals --mine --token-file %[3]s%[2]s
  waybill order decide l-1 large approved --token-file %[3]s%[2]s

Ctrl-C stops it. Started again, it goes on where it was.
`, key("sam"), server, key("ana"))
}

// Command loan runs the loan example on this machine: `waybill dev` with the
// workflow, its agents, and people who have keys of their own.
//
//	loan -waybill bin/waybill
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/examples/loan"
	fulfilment "github.com/waybill-dev/waybill/examples/order-fulfilment"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// example is where it runs.
type example struct {
	waybill, data, workflows, kafka, http string
	stdout, stderr                        io.Writer
}

// run returns the exit code: 0 stopped, 1 failed, 2 wrong usage.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	e := &example{stdout: stdout, stderr: stderr}
	flags := flag.NewFlagSet("loan", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&e.waybill, "waybill", "waybill", "the `program` that runs it")
	flags.StringVar(&e.data, "data", "loan-data", "a `directory` for its data, and for the keys of its people")
	flags.StringVar(&e.workflows, "workflows", "examples/loan", "the `directory` of its workflow, which may be changed meanwhile")
	flags.StringVar(&e.kafka, "kafka-addr", "127.0.0.1:9092", "`address` of the broker")
	flags.StringVar(&e.http, "http-addr", "127.0.0.1:8080", "`address` of the HTTP server")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil || flags.NArg() > 0 {
		return 2
	}
	if err := e.run(ctx); err != nil {
		fmt.Fprintln(stderr, "loan:", err)
		return 1
	}
	return 0
}

// run runs Waybill until ctx ends, and once it is ready the agents.
func (e *example) run(ctx context.Context) error {
	if err := people(e.data); err != nil {
		return fmt.Errorf("make the keys of the people: %w", err)
	}
	said := &watched{to: e.stdout, ready: make(chan struct{})}
	return fulfilment.Together(ctx,
		func(ctx context.Context) error {
			dev := exec.CommandContext(ctx, e.waybill, "dev", "--workflows", e.workflows,
				"--data-dir", filepath.Join(e.data, "waybill"), "--kafka-addr", e.kafka, "--http-addr", e.http,
				"--access", filepath.Join(e.data, accessFile), "--namespace-keys", filepath.Join(e.data, namespaceFile))
			dev.Stdout, dev.Stderr = said, e.stderr
			apart(dev)
			dev.WaitDelay = time.Minute // it stops in good order
			if err := dev.Run(); err != nil && ctx.Err() == nil {
				return fmt.Errorf("run %s: %w", e.waybill, err)
			}
			return nil
		},
		func(ctx context.Context) error {
			select {
			case <-said.ready:
			case <-ctx.Done():
				return nil
			}
			e.greet()
			return e.serve(ctx)
		})
}

// serve runs the agents.
func (e *example) serve(ctx context.Context) error {
	var all []func(context.Context) error
	for name, operations := range loan.Agents {
		config := agents.Config{
			Agent: name, Brokers: []string{e.kafka},
			Logger: slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		}
		all = append(all, func(ctx context.Context) error { return agents.Serve(ctx, config, operations) })
	}
	return fulfilment.Together(ctx, all...)
}

func (e *example) greet() {
	server := ""
	if e.http != "127.0.0.1:8080" {
		server = " --server http://" + e.http
	}
	fmt.Fprintln(e.stdout, "\nThe people have keys, by which they are known:")
	fmt.Fprintln(e.stdout)
	for _, p := range staff {
		fmt.Fprintf(e.stdout, "  %-4s  %s\n", p.name, strings.Join(p.roles, ", "))
	}
	fmt.Fprintf(e.stdout, `
Try, in another terminal:

  waybill submit loan --id l-1 --input '{"customer":"c-7","amount":50000,"income":40000}' --token-file %[1]s%[2]s
  waybill approvals --mine --token-file %[3]s%[2]s
  waybill order decide l-1 large approved --token-file %[3]s%[2]s

Ctrl-C stops it. Started again, it goes on where it was.
`, e.key("sam"), server, e.key("ana"))
}

func (e *example) key(name string) string { return filepath.Join(e.data, name+".key") }

// watched passes on what Waybill says, and tells when it says that it is ready. What it says to try
// then is left out: that is for where nobody is asked for a key.
type watched struct {
	to    io.Writer
	ready chan struct{}
	once  sync.Once
}

func (w *watched) Write(p []byte) (int, error) {
	said, all := p, len(p)
	if bytes.Contains(p, []byte("Waybill is ready.")) {
		said, _, _ = bytes.Cut(p, []byte("\nTry, in another terminal:"))
	}
	_, err := w.to.Write(said)
	if len(said) < all {
		w.once.Do(func() { close(w.ready) })
	}
	return all, err
}

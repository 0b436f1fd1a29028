// Package beside runs `waybill dev` with agents beside it, for examples of which one command runs
// all.
package beside

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/agents"
	fulfilment "github.com/waybill-dev/waybill/examples/order-fulfilment"
)

// Dev is `waybill dev`, and what runs beside it.
type Dev struct {
	Waybill        string   // the program
	Args           []string // what is said to it, but for its addresses
	Kafka, HTTP    string   // its addresses
	Agents         map[string]agents.Operations
	Stdout, Stderr io.Writer
}

// Run runs Waybill until ctx ends, and once it is ready the agents, and beside them what then is to be done.
func (d *Dev) Run(ctx context.Context, then func(context.Context) error) error {
	said := &watched{to: d.Stdout, ready: make(chan struct{})}
	return fulfilment.Together(ctx,
		func(ctx context.Context) error {
			dev := exec.CommandContext(ctx, d.Waybill, append([]string{"dev", "--kafka-addr", d.Kafka, "--http-addr", d.HTTP}, d.Args...)...)
			dev.Stdout, dev.Stderr = said, d.Stderr
			apart(dev)
			dev.WaitDelay = time.Minute // it stops in good order
			if err := dev.Run(); err != nil && ctx.Err() == nil {
				return fmt.Errorf("run %s: %w", d.Waybill, err)
			}
			return nil
		},
		func(ctx context.Context) error {
			select {
			case <-said.ready:
			case <-ctx.Done():
				return nil
			}
			return fulfilment.Together(ctx, d.serve, func(ctx context.Context) error {
				err := then(ctx)
				if err == nil {
					<-ctx.Done()
				}
				return err
			})
		})
}

// serve runs the agents.
func (d *Dev) serve(ctx context.Context) error {
	var all []func(context.Context) error
	for name, operations := range d.Agents {
		config := agents.Config{
			Agent: name, Brokers: []string{d.Kafka},
			Logger: slog.New(slog.NewTextHandler(d.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		}
		all = append(all, func(ctx context.Context) error { return agents.Serve(ctx, config, operations) })
	}
	return fulfilment.Together(ctx, all...)
}

// Do shows a command of Waybill's, and does it.
func (d *Dev) Do(ctx context.Context, args ...string) error {
	if d.HTTP != usualHTTP {
		args = append(args, "--server", "http://"+d.HTTP)
	}
	fmt.Fprintf(d.Stdout, "\n$ waybill %s\n", strings.Join(args, " "))
	command := exec.CommandContext(ctx, d.Waybill, args...)
	command.Stdout, command.Stderr = d.Stdout, d.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("waybill %s: %w", args[0], err)
	}
	return nil
}

// usualHTTP is where commands look for a server.
const usualHTTP = "127.0.0.1:8080"

// Server is what commands must say to reach it.
func (d *Dev) Server() string {
	if d.HTTP == usualHTTP {
		return ""
	}
	return " --server http://" + d.HTTP
}

// watched passes on what Waybill says, and tells when it says that it is ready. What it says to try
// then is left out: examples have their own.
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

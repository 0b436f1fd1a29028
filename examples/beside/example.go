package beside

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/waybill-dev/waybill/agents"
)

// Example is what the command of an example does: it runs `waybill dev` with the workflows of examples/NAME,
// and their agents.
type Example struct {
	Name   string
	Agents map[string]agents.Operations
	// Flags are those that it has besides, and may be nil.
	Flags func(*flag.FlagSet)
	// Prepare makes what the example has in the directory of its data, and says what `waybill dev` is told of it. Nil is nothing.
	Prepare func(data string) (args []string, err error)
	// Then is done once all runs. Its ctx ends when the command does.
	Then func(ctx context.Context, d *Dev, data string) error
}

// Main is the whole command: -h says how it is used. It ends the process, with code 0 when it was stopped, 1 when it failed, and 2
// when its usage is wrong.
func (e *Example) Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := e.run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func (e *Example) run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	dev := &Dev{Agents: e.Agents, Stdout: stdout, Stderr: stderr}
	flags := flag.NewFlagSet(e.Name, flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&dev.Waybill, "waybill", "waybill", "the `program` that runs it")
	data := flags.String("data", e.Name+"-data", "a `directory` for its data")
	workflows := flags.String("workflows", "examples/"+e.Name, "the `directory` of its workflows, which may be changed meanwhile")
	flags.StringVar(&dev.Kafka, "kafka-addr", "127.0.0.1:9092", "`address` of the broker")
	flags.StringVar(&dev.HTTP, "http-addr", usualHTTP, "`address` of the HTTP server")
	if e.Flags != nil {
		e.Flags(flags)
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil || flags.NArg() > 0 {
		return 2
	}
	dev.Args = []string{"--workflows", *workflows, "--data-dir", filepath.Join(*data, "waybill")}
	if err := e.do(ctx, dev, *data); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", e.Name, err)
		return 1
	}
	return 0
}

func (e *Example) do(ctx context.Context, dev *Dev, data string) error {
	if e.Prepare != nil {
		more, err := e.Prepare(data)
		if err != nil {
			return fmt.Errorf("prepare its data: %w", err)
		}
		dev.Args = append(dev.Args, more...)
	}
	return dev.Run(ctx, func(ctx context.Context) error { return e.Then(ctx, dev, data) })
}

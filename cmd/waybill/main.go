// Command waybill is all of Waybill in one program: the orchestrator, a
// development server, and the tools to work with either.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/waybill-dev/waybill/internal/words"
)

func main() {
	// The heap is small beside what passes through it: collecting it at five
	// times its size instead of twice takes the spikes out of the latency.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // by nohup
		signals = append(signals, syscall.SIGHUP) // a terminal that is gone
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// errReported ends a command with exit code 1 after it has said why by its
// output.
var errReported = errors.New("reported")

// run is the program, as far as it can be called more than once.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	root, started := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if !errors.Is(err, errReported) {
		lines := strings.Split("waybill: "+err.Error(), "\n")
		for i := range lines {
			lines[i] = words.Clean(lines[i]) // it may quote what others wrote
		}
		fmt.Fprintln(errs, strings.Join(lines, "\n"))
	}
	// Whatever is wrong before a command starts is the caller's mistake.
	if !*started {
		err = usageError{err}
	}
	code := exitCode(err)
	if code == exitUsage && !errors.As(err, new(undecidedError)) {
		fmt.Fprintln(errs, "See `waybill --help`, or --help behind any command.")
	}
	return code
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
)

// Exit codes.
const (
	exitDone         = 0
	exitFailed       = 1
	exitUsage        = 2
	exitNotFound     = 3
	exitRefused      = 4
	exitNotPermitted = 5
	exitAway         = 6
	exitEnded        = 7
	exitLate         = 8
	exitLeft         = 9
	exitInterrupted  = 130
)

// exitCodes are what each code says.
var exitCodes = []struct {
	code int
	says string
}{
	{exitDone, "done, or stopped while it watched or followed"},
	{exitFailed, "failed otherwise; of many orders some could not be acted on; a signal that changed nothing; a test that failed, files that differ"},
	{exitUsage, "called in a wrong way, or with a file that has problems (`workflow test`, `workflow diff`)"},
	{exitNotFound, "what was asked for is not there, or not any more"},
	{exitRefused, "the server refuses: what was asked for contradicts what is, or is not valid"},
	{exitNotPermitted, "the server does not know who asks, or does not permit it"},
	{exitAway, "the server cannot be reached, is not ready, or takes no more at present: the same may succeed later, with the `--id` that is named if one is"},
	{exitEnded, "the order that was waited for ended otherwise, or waits for an operator (`submit --wait`, `order rerun --wait`, `order wait`)"},
	{exitLate, "the time is up that it was given with --timeout"},
	{exitLeft, "of many orders some were left as they are: they had changed, or their partitions could not be looked at; the same command goes on with those that it matches then, and those of partitions that another instance has alone are acted on by the same command to that one"},
	{exitInterrupted, "interrupted before it was done"},
}

func newExitCodes() *cobra.Command {
	var b strings.Builder
	b.WriteString("What the exit code of a command says. `waybill health` answers with 0 or 1, as those\nwant it who ask for the health of containers, and with 2 if it was called in a wrong way.\n\n")
	for _, c := range exitCodes {
		fmt.Fprintf(&b, "  %3d  %s\n", c.code, c.says)
	}
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes say", Long: b.String()}
}

// usageError is a mistake in how the program was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// undecidedError ends a command with exit code 2 where 1 is an answer.
type undecidedError struct{ error }

func (e undecidedError) Unwrap() error { return e.error }

// lateError says that the time was up that a command was given.
type lateError struct{ error }

func (e lateError) Unwrap() error { return e.error }

// endedError says that an order came to another end than the one that was waited for.
type endedError struct{ error }

func (e endedError) Unwrap() error { return e.error }

// leftError says that nothing was done to some of many orders.
type leftError struct{ error }

// stoppedError says that a command was interrupted.
type stoppedError struct{ error }

func (e stoppedError) Unwrap() error { return e.error }

// exitCode is what the program exits with after an error. Of several reasons that counts which
// the command itself gives.
func exitCode(err error) int {
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, new(usageError)), errors.As(err, new(undecidedError)):
		return exitUsage
	case errors.As(err, new(lateError)):
		return exitLate
	case errors.As(err, new(endedError)):
		return exitEnded
	case errors.As(err, new(leftError)):
		return exitLeft
	case errors.As(err, new(stoppedError)), errors.Is(err, errStopped), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.Is(err, api.ErrAway), errors.As(err, new(api.UnansweredError)):
		return exitAway
	}
	if problem, answered := errors.AsType[*api.Problem](err); answered {
		return statusCode(problem.Status)
	}
	return exitFailed
}

// statusCode is the exit code for what an HTTP server answers.
func statusCode(status int) int {
	switch status {
	case http.StatusNotFound, http.StatusGone:
		return exitNotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return exitNotPermitted
	case http.StatusTooManyRequests, http.StatusMisdirectedRequest, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return exitAway
	}
	if status >= 400 && status < 500 {
		return exitRefused
	}
	return exitFailed
}

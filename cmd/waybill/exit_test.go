package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/internal/api"
)

// What the documents and the help say of exit codes is what the program exits with.
func TestExitCodes(t *testing.T) {
	clearEnvironment(t)
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for _, c := range exitCodes {
		fmt.Fprintf(&table, "| %d | %s |\n", c.code, c.says)
		waybill(t, "", "help", "exit-codes").want(t, exitDone, fmt.Sprintf("  %3d  %s\n", c.code, c.says), "")
	}
	if want := "\n| code | |\n| ---: | --- |\n" + table.String() + "\n"; !strings.Contains(string(text), want) {
		t.Errorf("docs/cli.md has not this table:\n%s", want)
	}

	problem := func(status int) error { return fmt.Errorf("asked: %w", &api.Problem{Status: status}) }
	reached := make(map[int]bool)
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, exitDone},
		{errors.New("other"), exitFailed},
		{errReported, exitFailed},
		{problem(http.StatusInternalServerError), exitFailed},
		{usageError{problem(http.StatusNotFound)}, exitUsage},
		{undecidedError{errors.New("bad file")}, exitUsage},
		{problem(http.StatusNotFound), exitNotFound},
		{problem(http.StatusGone), exitNotFound},
		{problem(http.StatusConflict), exitRefused},
		{problem(http.StatusUnprocessableEntity), exitRefused},
		{problem(http.StatusBadRequest), exitRefused},
		{problem(http.StatusRequestEntityTooLarge), exitRefused},
		{problem(http.StatusUnauthorized), exitNotPermitted},
		{problem(http.StatusForbidden), exitNotPermitted},
		{problem(http.StatusServiceUnavailable), exitAway},
		{problem(http.StatusTooManyRequests), exitAway},
		{problem(http.StatusMisdirectedRequest), exitAway},
		{fmt.Errorf("%w at x", api.ErrAway), exitAway},
		{endedError{errors.New("it is Error")}, exitEnded},
		{lateError{fmt.Errorf("asked: %w", context.DeadlineExceeded)}, exitLate},
		{leftError{errors.New("1 had changed")}, exitLeft},
		{stoppedError{errors.New("gave up")}, exitInterrupted},
		{fmt.Errorf("asked: %w", context.Canceled), exitInterrupted},
		{fmt.Errorf("%w: 1 of 2", errStopped), exitInterrupted},
	} {
		reached[c.code] = true
		if got := exitCode(c.err); got != c.code {
			t.Errorf("%v: %d instead of %d", c.err, got, c.code)
		}
	}
	for _, c := range exitCodes {
		if !reached[c.code] {
			t.Errorf("nothing has the code %d", c.code)
		}
	}
	if len(reached) != len(exitCodes) {
		t.Errorf("%d codes are there, and %d documented", len(reached), len(exitCodes))
	}
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"golang.org/x/time/rate"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

// bulk carries out a command on many orders.
type bulk struct {
	act         *act
	filter      *filterFlags
	dryRun, yes bool
	rate        float64
}

// atOnce is how many orders are acted on at the same time.
const atOnce = 16

func (b *bulk) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&b.dryRun, "dry-run", false, "only print which orders would be acted on")
	flags.BoolVarP(&b.yes, "yes", "y", false, "do not ask; needed where nobody can be asked, because there is no terminal")
	flags.Float64Var(&b.rate, "rate", 200, "how many orders a second at most; 0 means no limit")
	onlyByFlag(flags, "dry-run", "yes")
}

func (b *bulk) check() error {
	if !(b.rate >= 0) || math.IsInf(b.rate, 0) {
		return fmt.Errorf("--rate %g: use 0 or more", b.rate)
	}
	return nil
}

// bulkResult is what became of each order.
type bulkResult struct {
	Matched  int           `json:"matched"`
	Done     []string      `json:"done"`
	Failed   []bulkFailure `json:"failed"`
	NotTried []string      `json:"notTried"`
	Left     []string      `json:"left"`
	Act      string        `json:"act,omitempty"` // its id, where the server does it
	api.LeftOut
}

type bulkFailure struct {
	OrderID string `json:"orderId"`
	Reason  string `json:"reason"`
}

func (b *bulk) run(cmd *cobra.Command, client *api.Client, named []string, command *events.Command, out *output) error {
	switch {
	case len(named) > 0, b.dryRun:
	case b.rate < 1, b.rate > mostRate, b.rate != math.Trunc(b.rate):
		fmt.Fprintf(cmd.ErrOrStderr(), "The server takes a --rate that is a whole number from 1 to %d, and %g is none: the orders are asked one by one.\n", mostRate, b.rate)
	default:
		if err := b.byServer(cmd, client, command, out); !errors.Is(err, errNoBulk) {
			return err
		}
	}
	var matched []api.Summary
	var left leftOut
	var err error
	if len(named) > 0 {
		matched, err = those(cmd.Context(), client, named)
	} else {
		matched, left, err = b.snapshot(cmd.Context(), client)
	}
	if err != nil {
		return err
	}
	left.warn(cmd)
	if b.dryRun && b.act.foresee != nil {
		ids := make([]string, len(matched))
		for i := range matched {
			ids[i] = matched[i].OrderID
		}
		if err := b.act.foresee(cmd, client, ids, command, &left.LeftOut, out); err != nil {
			return err
		}
		return leftOutError("", &left.LeftOut)
	}
	if b.dryRun {
		told := struct {
			Matched int           `json:"matched"`
			Orders  []api.Summary `json:"orders"`
			api.LeftOut
		}{len(matched), matched, left.LeftOut}
		if err := out.print(cmd, told, func(row func(...any)) {
			row(fmt.Sprintf("%d orders would be %s.", len(matched), b.act.did))
			if len(matched) > 0 {
				row()
				listOrders(row, matched, len(b.filter.where) > 0)
			}
		}); err != nil {
			return err
		}
		return leftOutError("", &left.LeftOut)
	}
	if sure, err := b.confirm(cmd, len(matched)); !sure || err != nil {
		return err
	}
	result, why := b.all(cmd, client, command, matched)
	result.LeftOut = left.LeftOut
	return b.tell(cmd, result, why, out)
}

// tell prints what became of the orders. The error says if that is not all that it was to be: why says why some were not
// tried.
func (b *bulk) tell(cmd *cobra.Command, result *bulkResult, why error, out *output) error {
	if err := out.print(cmd, result, func(row func(...any)) {
		row("Matched", result.Matched)
		row("Done", len(result.Done))
		if len(result.Left) > 0 {
			row("Left", fmt.Sprintf("%d, which had changed when their turn came", len(result.Left)))
		}
		row("Failed", len(result.Failed))
		row("Not tried", len(result.NotTried))
		if len(result.Failed) > 0 {
			row()
			row("ORDER", "REASON")
			for _, f := range result.Failed {
				row(f.OrderID, f.Reason)
			}
		}
	}); err != nil {
		return err
	}
	switch {
	case len(result.NotTried) > 0:
		left := ""
		if len(result.Left) > 0 {
			left = fmt.Sprintf(", %d had changed", len(result.Left))
		}
		return fmt.Errorf("%w: %d of %d orders were %s%s, %d could not be, and %d were not tried; the same command goes on with what it matches then",
			why, len(result.Done), result.Matched, b.act.did, left, len(result.Failed), len(result.NotTried))
	case len(result.Failed) > 0:
		return fmt.Errorf("%d of %d orders could not be %s; the reasons are listed", len(result.Failed), result.Matched, b.act.did)
	case len(result.Left)+len(result.Elsewhere)+len(result.Unknown) > 0:
		return leftOutError(fmt.Sprintf("%d of %d orders were %s, and %d had changed when their turn came; ", len(result.Done), result.Matched, b.act.did, len(result.Left)), &result.LeftOut)
	}
	return nil
}

// leftOutError is a [leftError] that says, behind what is said already, of which partitions the orders were not looked at. It is nil if that is
// nothing.
func leftOutError(says string, left *api.LeftOut) error {
	if n := len(left.Unknown); n > 0 {
		says += fmt.Sprintf("the orders of %s were not looked at; ", words.Several(n, "partition", "partitions"))
	}
	if n := len(left.Elsewhere); n > 0 {
		says += fmt.Sprintf("the orders of %s are other instances' to act on (--server); ", words.Several(n, "partition", "partitions"))
	}
	if says == "" {
		return nil
	}
	return leftError{errors.New(strings.TrimSuffix(says, "; "))}
}

// snapshot looks up the orders to act on, all of them before the first is acted
// on: otherwise one that fails again would match again.
func (b *bulk) snapshot(ctx context.Context, client *api.Client) (matched []api.Summary, left leftOut, _ error) {
	filter := b.filter.filter()
	named := filter.State != ""
	if !named {
		filter.State = string(api.StateFor(b.act.command))
	}
	all, _, err := collect(0, func(n int, after string) ([]api.Summary, string, error) {
		page, err := known(ctx, func() (*api.OrderPage, error) { return client.Orders(ctx, filter, n, after) })
		left.note(leftOut{LeftOut: page.LeftOut})
		return page.Orders, page.Next, err
	})
	if err != nil {
		return nil, left, err
	}
	seen := make(map[string]bool, len(all)) // an order that changes meanwhile may stand on two pages
	matched = []api.Summary{}
	for i := range all {
		if o := &all[i]; !seen[o.OrderID] && api.Fits(b.act.command, o, named) {
			seen[o.OrderID] = true
			matched = append(matched, *o)
		}
	}
	return matched, left, nil
}

// confirm asks whether it is meant, if somebody is there to answer.
func (b *bulk) confirm(cmd *cobra.Command, count int) (bool, error) {
	if b.yes || count == 0 {
		return true, nil
	}
	if !isTerminal(cmd.InOrStdin()) || !isTerminal(cmd.ErrOrStderr()) {
		return false, usageError{fmt.Errorf("%d orders would be %s, and without a terminal nobody can be asked: look with --dry-run, and say --yes", count, b.act.did)}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%d orders will be %s. Go on? [y/N] ", count, b.act.did)
	answer := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		if err != nil {
			line = "" // nobody answered
		}
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return true, nil
		}
	case <-cmd.Context().Done(): // the reader ends with the process
		fmt.Fprintln(cmd.ErrOrStderr())
	}
	return false, errors.New("nothing was done")
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

var errStopped = errors.New("stopped")

// all acts on the orders. The error says why some were not tried.
func (b *bulk) all(cmd *cobra.Command, client *api.Client, command *events.Command, orders []api.Summary) (*bulkResult, error) {
	ctx, stop := context.WithCancelCause(cmd.Context())
	defer stop(nil)
	// What has begun is waited for, so that it is known what became of it.
	call := context.WithoutCancel(ctx)
	bar := newProgress(cmd.ErrOrStderr(), len(orders))

	tried := make([]bool, len(orders))
	errs := make([]error, len(orders))
	places := make(chan int)
	var workers sync.WaitGroup
	for range min(atOnce, len(orders)) {
		workers.Go(func() {
			for i := range places {
				_, err := actOn(ctx, call, client, orders[i].OrderID, command)
				tried[i], errs[i] = true, err
				if errors.Is(err, api.ErrAway) {
					stop(err) // no order will fare better
				}
				bar.add(err != nil)
			}
		})
	}
	for i := range b.turns(ctx, len(orders)) {
		select {
		case places <- i:
		case <-ctx.Done():
		}
	}
	close(places)
	workers.Wait()
	bar.end()

	result := &bulkResult{Matched: len(orders), Done: []string{}, Failed: []bulkFailure{}, NotTried: []string{}, Left: []string{}}
	for i := range orders {
		switch id := orders[i].OrderID; {
		case !tried[i]:
			result.NotTried = append(result.NotTried, id)
		case errs[i] != nil:
			result.Failed = append(result.Failed, bulkFailure{id, errs[i].Error()})
		default:
			result.Done = append(result.Done, id)
		}
	}
	if err := context.Cause(ctx); errors.Is(err, api.ErrAway) {
		return result, err
	}
	return result, errStopped
}

// turns counts to n, no faster than the rate says, until ctx ends.
func (b *bulk) turns(ctx context.Context, n int) iter.Seq[int] {
	limit := rate.Limit(b.rate)
	if b.rate == 0 {
		limit = rate.Inf
	}
	pace := rate.NewLimiter(limit, 1)
	return func(yield func(int) bool) {
		for i := range n {
			if pace.Wait(ctx) != nil || ctx.Err() != nil || !yield(i) {
				return
			}
		}
	}
}

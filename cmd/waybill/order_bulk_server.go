package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
	"github.com/waybill-dev/waybill/projections"
)

const (
	// mostRate is the most orders a second that a bulk act takes.
	mostRate = 1000
	// stopPatience is how long a bulk act is waited for that was stopped.
	stopPatience = 30 * time.Second
)

// errNoBulk says that the server does not do it, that nothing was done, and that standard error says why.
var errNoBulk = errors.New("the server does not act on all of these orders")

// byServer has the server act on the orders, as a bulk act, until that has ended or is stopped.
func (b *bulk) byServer(cmd *cobra.Command, client *api.Client, command *events.Command, out *output) error {
	ctx := cmd.Context()
	act, err := b.prepare(ctx, client, command)
	if isStatus(err, http.StatusNotFound) || isStatus(err, http.StatusMethodNotAllowed) {
		fmt.Fprintln(cmd.ErrOrStderr(), "The server is of a release without bulk acts: its orders are asked one by one.")
		return errNoBulk
	}
	if err != nil {
		return err
	}
	// It is stopped whatever ends this first, but for a kill that leaves no time.
	running := true
	defer func() {
		if running {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
			defer cancel()
			_, _ = askAct(ctx, func() (*api.Bulk, error) { return client.StopBulk(ctx, act.ID) }) // nobody is left to tell
		}
	}()
	if act.More {
		fmt.Fprintf(cmd.ErrOrStderr(), "There are more than %d orders, which is the most that one bulk act takes: they are asked one by one.\n", act.Matched)
		return errNoBulk
	}
	left := leftOut{LeftOut: act.LeftOut}
	left.warn(cmd)
	if sure, err := b.confirm(cmd, act.Matched); !sure || err != nil {
		return err
	}
	if act.Matched == 0 {
		return b.tell(cmd, b.became(act, nil), nil, out)
	}
	_, err = askAct(ctx, func() (*api.Bulk, error) { return client.StartBulk(ctx, act.ID) })
	switch {
	case isStatus(err, http.StatusNotFound): // several instances answer in turn, and none is asked for long
		fmt.Fprintln(cmd.ErrOrStderr(), "What was looked up is not known any more: the server has forgotten it, as it does after 15 minutes, or another instance answers. The orders are looked up anew, and asked one by one.")
		return errNoBulk
	case err != nil:
		return fmt.Errorf("start bulk act %s: %w", act.ID, err)
	}
	bar := newProgress(cmd.ErrOrStderr(), act.Matched)
	err = b.follow(ctx, cmd, client, act, bar)
	interrupted := ctx.Err() != nil
	if interrupted {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
		defer cancel()
		if _, err = askAct(ctx, func() (*api.Bulk, error) { return client.StopBulk(ctx, act.ID) }); err == nil {
			err = b.follow(ctx, cmd, client, act, bar)
		}
	}
	bar.end()
	running = act.EndedAt == nil
	if running {
		err = fmt.Errorf("it is not known how bulk act %s stands, which may go on: at last %d of %d orders were %s, and %d could not be; see the console, or /api/v1/bulk/%s of the instance that was asked: %w",
			act.ID, act.Done, act.Matched, b.act.did, act.Failed, act.ID, cmp.Or(err, ctx.Err()))
		if interrupted {
			err = stoppedError{err}
		}
		return err
	}
	if act.Newer != nil && *act.Newer > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d orders came to be under the filter meanwhile, and nothing was done to them.\n", *act.Newer)
	}
	orders, err := b.orders(ctx, client, act.ID)
	if err != nil {
		return fmt.Errorf("bulk act %s is %s (%s): of %d orders %d were %s, %d could not be, and %d had changed; which, nobody knows any more: %v",
			act.ID, act.State, words.Or(act.Reason), act.Matched, act.Done, b.act.did, act.Failed, act.Left, err)
	}
	why := errStopped
	if act.Reason != nil && !interrupted {
		why = fmt.Errorf("%s: %s", act.State, *act.Reason)
	}
	return b.tell(cmd, b.became(act, orders), why, out)
}

// prepare has the server look up the orders.
func (b *bulk) prepare(ctx context.Context, client *api.Client, command *events.Command) (*api.Bulk, error) {
	body, err := command.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode the command: %w", err)
	}
	var with map[string]json.RawMessage
	if err := json.Unmarshal(body, &with); err != nil {
		return nil, fmt.Errorf("encode the command: %w", err)
	}
	for _, beside := range []string{"id", "command", "by", "note"} {
		delete(with, beside)
	}
	if body, err = json.Marshal(with); err != nil {
		return nil, fmt.Errorf("encode the command: %w", err)
	}
	f := b.filter.filter()
	return known(ctx, func() (*api.Bulk, error) {
		return client.PrepareBulk(ctx, &api.BulkRequest{
			Act: api.Act{By: command.By, Note: command.Note}, Command: command.Command, With: body, Rate: int(b.rate),
			Filter: api.BulkFilter{State: projections.State(f.State), Workflow: f.Workflow, Where: f.Where, Step: f.Step},
		})
	})
}

// follow notes how a bulk act stands, until it has ended, ctx ends, or nobody knows.
func (b *bulk) follow(ctx context.Context, cmd *cobra.Command, client *api.Client, act *api.Bulk, bar *progress) (unknown error) {
	err := poll(ctx, tellAway(cmd), nil, func() (bool, error) {
		now, err := askAct(ctx, func() (*api.Bulk, error) { return client.Bulk(ctx, act.ID) })
		if isStatus(err, http.StatusNotFound) {
			unknown = errors.New(err.Error()) // what was asked for is there
			return true, nil
		}
		if err != nil {
			return false, err
		}
		*act = *now
		bar.at(act.Done+act.Left+act.Failed, act.Failed)
		return act.EndedAt != nil, nil
	})
	return errors.Join(unknown, err)
}

// orders are those of a bulk act.
func (b *bulk) orders(ctx context.Context, client *api.Client, id string) (all []api.BulkRow, _ error) {
	for after := 0; ; {
		page, err := askAct(ctx, func() (*api.BulkOrders, error) { return client.BulkOrders(ctx, id, pageMost, after) })
		if err != nil {
			return nil, err
		}
		all = append(all, page.Orders...)
		if after = page.Next; after == 0 {
			return all, nil
		}
	}
}

// became is what became of each order.
func (b *bulk) became(act *api.Bulk, orders []api.BulkRow) *bulkResult {
	result := &bulkResult{Matched: act.Matched, Done: []string{}, Failed: []bulkFailure{}, NotTried: []string{}, Left: []string{}, Act: act.ID, LeftOut: act.LeftOut}
	why := make(map[string]string, len(act.Failures))
	for _, f := range act.Failures {
		why[f.OrderID] = f.Reason
	}
	for i := range orders {
		switch id := orders[i].OrderID; orders[i].Outcome {
		case api.OutcomeDone:
			result.Done = append(result.Done, id)
		case api.OutcomeLeft:
			result.Left = append(result.Left, id)
		case api.OutcomeFailed:
			reason, said := why[id]
			if !said {
				reason = fmt.Sprintf("not said: the server tells the reasons of the first %d", len(act.Failures))
			}
			result.Failed = append(result.Failed, bulkFailure{id, reason})
		default:
			result.NotTried = append(result.NotTried, id)
		}
	}
	return result
}

// askAct asks again where nobody answers, or another instance does, which knows nothing of the act: several may answer
// in turn at one address. Each question may be asked twice.
func askAct[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	const attempts = 5
	n := 0
	return repeat(ctx, ask, func(err error) bool {
		n++
		problem, answered := errors.AsType[*api.Problem](err)
		return n < attempts && (!answered || fromProxy(problem) || problem.Status == http.StatusServiceUnavailable || problem.Status == http.StatusNotFound)
	})
}

// isStatus says whether a server refused with a status.
func isStatus(err error, status int) bool {
	problem, answered := errors.AsType[*api.Problem](err)
	return answered && problem.Status == status
}

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

func newOrderHistory() *cobra.Command {
	var on bool
	var when span
	cmd := &cobra.Command{
		Use: "history ID", Short: "Print everything that happened to an order",
		Long: `Prints everything that happened to an order. With --follow it goes on with what
happens, until the order has ended; as JSON it is then one event a line.`,
		Args: takes(one),
	}
	cmd.Flags().BoolVarP(&on, "follow", "f", false, "go on with what happens, until the order has ended")
	onlyByFlag(cmd.Flags(), "follow")
	when.add(cmd.Flags(), "what happened")
	decode := addDecode(cmd.Flags())
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := when.read(); err != nil {
			return err
		}
		if on && when.given() {
			return usageError{errors.New("--since and --until go with no --follow, which prints all that happened and happens")}
		}
		return server.talk(func(client *api.Client) error {
			client = decode.asks(client)
			if on {
				return followHistory(cmd, client, out, args[0])
			}
			history, decoded, err := historyAfter(cmd, client, args[0], 0)
			if err != nil {
				return err
			}
			tellMasked(cmd, history)
			tellUndecoded(cmd, history.Undecoded)
			if when.given() {
				all := history.Events
				history.Events = all[:0]
				for i := range decoded {
					if when.has(decoded[i].At) {
						history.Events = append(history.Events, all[i])
					}
				}
			}
			return out.print(cmd, history, func(row func(...any)) {
				line := newTimeline(out.zone())
				line.only = when
				line.add(row, decoded)
			})
		})
	}
	return cmd
}

// historyAfter is what happened to an order after an event, by its number.
func historyAfter(cmd *cobra.Command, client *api.Client, id string, seq uint64) (*api.History, []events.Event, error) {
	history, err := known(cmd.Context(), func() (*api.History, error) { return client.HistoryAfter(cmd.Context(), id, seq) })
	if err != nil {
		return nil, nil, err
	}
	decoded := make([]events.Event, len(history.Events))
	for i, e := range history.Events {
		if decoded[i], err = events.Decode[events.Event](e); err != nil {
			return nil, nil, fmt.Errorf("event %d of order %q: %w", seq+uint64(i)+1, id, err)
		}
	}
	return history, decoded, nil
}

func tellMasked(cmd *cobra.Command, history *api.History) {
	if history.Masked {
		fmt.Fprintln(cmd.ErrOrStderr(), "In this history "+leftOutHere+".")
	}
}

// followHistory prints what happened, and goes on with what happens until the order has ended, or
// somebody stops it. A server that restarts is asked again.
func followHistory(cmd *cobra.Command, client *api.Client, out *output, id string) error {
	line, seen, columns, ended, told := newTimeline(out.zone()), uint64(0), new(widths), false, ""
	return poll(cmd.Context(), tellAway(cmd), func(err error) error { return mayCome(cmd, id, err) }, func() (bool, error) {
		history, decoded, err := historyAfter(cmd, client, id, seen)
		if err != nil {
			return false, err
		}
		if seen == 0 {
			tellMasked(cmd, history)
		}
		if history.Undecoded != told {
			told = history.Undecoded
			tellUndecoded(cmd, told)
		}
		if n := len(decoded); n > 0 {
			seen = decoded[n-1].Seq
		}
		if out.data() {
			for _, e := range history.Events {
				if err := out.printNext(cmd, e); err != nil {
					return false, err
				}
			}
		} else if err := printTable(cmd.OutOrStdout(), func(row func(...any)) { line.add(columns.aligned(row), decoded) }); err != nil {
			return false, err
		}
		ended = over(ended, decoded) // another instance may know less of it than the one that was asked before
		return ended, nil
	})
}

// over says whether an order has ended after the next events. One that does a step of another may go on
// then, to undo what it did.
func over(ended bool, next []events.Event) bool {
	for i := range next {
		switch next[i].Type {
		case events.OrderCompleted, events.OrderCompensated, events.OrderCancelled, events.OrderRejected, events.OrderRaised, events.OrderTerminated:
			ended = true
		case events.OrderCompensating:
			ended = false
		}
	}
	return ended
}

// timeline prints events, each with the time since the one before.
type timeline struct {
	course *words.Course
	zone   *time.Location
	only   span
	last   time.Time // of the last event; zero before the first
}

func newTimeline(zone *time.Location) *timeline {
	return &timeline{course: words.NewCourse(), zone: zone}
}

// add adds the next events.
func (l *timeline) add(row func(...any), history []events.Event) {
	if l.last.IsZero() {
		row("TIME", "AFTER", "SEQ", "EVENT", "STEP", "ATTEMPT", "DETAIL")
	}
	for i := range history {
		e := &history[i]
		after := time.Duration(0)
		if !l.last.IsZero() {
			after = e.At.Sub(l.last)
		}
		l.last = e.At
		detail := l.course.Tell(e)
		if !l.only.has(e.At) {
			continue
		}
		row(words.Clock(&api.Time{Time: e.At.In(l.zone)}), "+"+after.String(), e.Seq, words.EventName(e), words.Dash(e.Step), words.Attempt(e.Attempt), detail)
	}
}

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
)

func newOrderHistory() *cobra.Command {
	cmd := &cobra.Command{Use: "history ID", Short: "Print everything that happened to an order", Args: takes(one)}
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return talk(*server, func(client *api.Client) error {
			history, err := known(cmd.Context(), func() (*api.History, error) { return client.History(cmd.Context(), args[0]) })
			if err != nil {
				return err
			}
			decoded := make([]events.Event, len(history.Events))
			for i, e := range history.Events {
				if decoded[i], err = events.Decode[events.Event](e); err != nil {
					return fmt.Errorf("event %d of order %q: %w", i+1, args[0], err)
				}
			}
			return out.print(cmd, history, func(row func(...any)) { timeline(row, decoded) })
		})
	}
	return cmd
}

// timeline prints events, each with the time since the one before.
func timeline(row func(...any), history []events.Event) {
	row("TIME", "AFTER", "SEQ", "EVENT", "STEP", "ATTEMPT", "DETAIL")
	for i := range history {
		e := &history[i]
		after := time.Duration(0)
		if i > 0 {
			after = e.At.Sub(history[i-1].At)
		}
		row(clock(&api.Time{Time: e.At}), "+"+after.String(), e.Seq, eventName(e), dash(e.Step), attempt(e.Attempt), detail(e))
	}
}

func eventName(e *events.Event) string { return strings.TrimPrefix(string(e.Type), "waybill.") }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func attempt(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// detail is what an event says beyond its columns.
func detail(e *events.Event) string {
	var parts []string
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch e.Type {
	case events.OrderAccepted, events.OrderRejected:
		say("%s", workflowID(e.Workflow, e.Version))
	case events.StepStarted, events.UndoStarted:
		say("agent %s: %s, complete by +%s, on %s", e.Agent, e.Operation, e.CompleteBy.Sub(e.At), e.LockedBy)
		if e.Outcome == events.OutcomeUnknown {
			say("the step may have run, or not")
		}
	case events.StepRetried, events.UndoRetried:
		if e.Round > 0 {
			say("extended wait %d", e.Round)
		}
		if e.Reason == "" {
			say("next attempt after %s", e.Due.Sub(e.At))
		}
	case events.OrderCompensating:
		say("toward %s", e.End)
	case events.OrderCompensated, events.OrderCancelled:
		say("undone: %s", dash(strings.Join(e.Undone, ", ")))
		if len(e.NotUndone) > 0 {
			say("not undone: %s", strings.Join(e.NotUndone, ", "))
		}
	case events.CommandRefused:
		say("%s", e.Operation)
	case events.StatusRefused:
		say("%s", e.ReplyTo)
	case events.InputHeld, events.InputReleased, events.InputDiscarded:
		say("%s", e.Source)
	}
	if e.Held {
		say("held")
	}
	if e.Raw != nil {
		say("%s", short(string(e.Raw.Value)))
	}
	if e.By != "" {
		say("by %s", e.By)
	}
	if e.Reason != "" {
		say("%s", e.Reason)
	}
	if e.Error != nil && (e.Error.Message == "" || !strings.Contains(e.Reason, e.Error.Message)) {
		say("%s", faultText((*api.Fault)(e.Error)))
	}
	if e.Uncounted {
		say("not counted: the agent gives no sign")
	}
	if e.SameKey {
		say("with the same keys")
	}
	if e.NewKey {
		say("with new keys")
	}
	if len(e.Kept) > 0 {
		say("with the same key: %s", strings.Join(e.Kept, ", "))
	}
	if len(e.MayHaveRun) > 0 {
		say("with a new key, and may have run under the one before: %s", strings.Join(e.MayHaveRun, ", "))
	}
	if len(e.Input) > 0 && e.Type != events.OrderAccepted {
		say("input %s", short(string(e.Input)))
	}
	if len(e.Output) > 0 {
		say("%s", short(string(e.Output)))
	}
	if e.Action != "" {
		say("to do: %s", e.Action)
	}
	return strings.Join(parts, "; ")
}

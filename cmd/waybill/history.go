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
			history, err := client.History(cmd.Context(), args[0])
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
		row(clock(&api.Time{Time: e.At}), "+"+after.String(), e.Seq, eventName(e), dash(e.Step), attempt(e.Attempt), short(detail(e)))
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
	case events.StepStarted:
		say("agent %s: %s, complete by +%s, on %s", e.Agent, e.Operation, e.CompleteBy.Sub(e.At), e.LockedBy)
	case events.StepRetried:
		say("next attempt after %s", e.Due.Sub(e.At))
	}
	if e.Reason != "" {
		say("%s", e.Reason)
	}
	if e.Error != nil {
		say("%s", faultText((*api.Fault)(e.Error)))
	}
	if len(e.Output) > 0 {
		say("%s", e.Output)
	}
	return strings.Join(parts, "; ")
}

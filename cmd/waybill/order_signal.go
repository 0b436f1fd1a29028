package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

func newOrderSignal() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "signal ORDER SIGNAL",
		Short: "Tell an order what happened",
		Long: `Tells an order what happened in the world, and prints what became of that. A step
that listens for the signal hears it (matched); it is kept for one that will
(kept). What came before under the same --id acts once (repeated). The exit code is
1 where the signal changes nothing: late, declined, unrecorded, dead-letter.

Without an --id the signal gets one of its own, which the error names where it may have
been taken.`,
		Example: `  waybill order signal o-1 paid --data '{"amount":12}'
  waybill order signal o-1 paid --id payment-4711 --data @payment.json --keep 24h`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := takes(two)(cmd, args); err != nil {
				return err
			}
			return events.CheckOrderID(args[0])
		},
	}
	return signals(cmd, func(ctx context.Context, client *api.Client, args []string, s *api.Signal) (*api.Heard, error) {
		s.Signal = args[1]
		return client.Signal(ctx, args[0], s)
	})
}

func newSignal() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "signal KEY SIGNAL",
		Short: "Tell whoever waits under a key what happened, or start an order",
		Long: `Tells what happened in the world, and prints what became of that. Of the steps that
listen for the signal under the key the one hears it that has listened longest
(matched); while none does it starts an order of the workflow whose "start" says so
(started), or is kept (kept). What came before under the same --id
acts once (repeated), for as long as it would be kept. The exit code is 1 where the
signal changes nothing: late, declined, unrecorded, dead-letter. An order that would have
been started and was rejected says why.

KEY is that of the business, such as a payment's reference: an order is told by its
id with "waybill order signal". Without an --id the signal gets one of its own, which the
error names where it may have been taken. The history of a key is that of an order:
waybill order history @KEY/signal.SIGNAL`,
		Example: `  waybill signal ref-7 payment --data '{"amount":12}'
  waybill order history @ref-7/signal.payment`,
		Args: takes(two),
	}
	return signals(cmd, func(ctx context.Context, client *api.Client, args []string, s *api.Signal) (*api.Heard, error) {
		return client.SignalKey(ctx, &api.KeySignal{Signal: args[1], Key: args[0], ID: s.ID, Data: s.Data, KeepUntil: s.KeepUntil, ReplyTo: s.ReplyTo})
	})
}

// signals has a command send a signal, and print what became of it.
func signals(cmd *cobra.Command, send func(context.Context, *api.Client, []string, *api.Signal) (*api.Heard, error)) *cobra.Command {
	var s api.Signal
	var data string
	var keep time.Duration
	flags := cmd.Flags()
	flags.StringVar(&s.ID, "id", "", "of the signal: sent again under the same one it acts once (default: a new one)")
	flags.StringVar(&data, "data", "", "what the signal says: JSON, @FILE, or - for standard input")
	flags.DurationVar(&keep, "keep", 0, "how long it is kept for a step that does not listen yet (default 168h)")
	flags.StringVar(&s.ReplyTo, "reply-to", "", "topic on which somebody else is told the same")
	onlyByFlag(flags, "id", "data", "keep", "reply-to")
	server := addServer(flags)
	out := addOutput(flags)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if keep < 0 {
			return usageError{fmt.Errorf("--keep: %s is negative", keep)}
		}
		if keep > 0 {
			s.KeepUntil = new(time.Now().Add(keep))
		}
		if cmd.Flags().Changed("data") {
			value, err := readJSON("--data", data, cmd.InOrStdin())
			if err != nil {
				return err
			}
			s.Data = json.RawMessage(value)
		}
		if s.ID == "" {
			s.ID = uuid.NewString()
		}
		return server.talk(func(client *api.Client) error {
			h, err := send(cmd.Context(), client, args, &s)
			if err != nil && unsure(1, err) {
				return fmt.Errorf("%w; it can be sent again with --id %s, and acts once", err, words.Clean(s.ID))
			}
			if err != nil {
				return err
			}
			if err := out.print(cmd, h, func(row func(...any)) { row(heardText(h)) }); err != nil {
				return err
			}
			switch h.Outcome {
			case events.StatusMatched, events.StatusStarted, events.StatusKept, events.StatusRepeated, "held":
				return nil
			}
			return fmt.Errorf("the signal changed nothing: %s", whyUnheard(h))
		})
	}
	return cmd
}

func heardText(h *api.Heard) string {
	switch {
	case h.Outcome == events.StatusStarted && h.Order != nil:
		return h.Outcome + ": order " + *h.Order
	case h.Outcome == events.StatusRepeated && h.Order != nil:
		return h.Outcome + ": it is to start order " + *h.Order + ", which may still be rejected"
	case h.Order != nil && h.Step != nil:
		return h.Outcome + ": step " + *h.Step + " of order " + *h.Order + " heard it"
	case h.Step != nil:
		return h.Outcome + ": step " + *h.Step + " heard it"
	}
	return h.Outcome
}

// whyUnheard says why a signal changed nothing.
func whyUnheard(h *api.Heard) string {
	if h.Outcome == "dead-letter" {
		return "it is among the dead letters, and the order's history says why"
	}
	if h.Reason == nil {
		return "the order has recorded a hundred of its like, and says of no other why"
	}
	switch *h.Reason {
	case events.SignalLate:
		return "nothing listens for it any more"
	case events.SignalUnheard:
		return "no step of the order listens for a signal of this name"
	case events.SignalTooMany:
		return "no more signals are kept: 100 are, or 1 MiB of them, or the order gave up 100 before that nothing heard in time; or as many are under way, 1 MiB of them or 1,000 that are to start orders"
	case events.SignalTooLarge:
		return "it is too large for the step that listens, whose output has at most 1 MiB, or for the order that it would start"
	case events.SignalRejected:
		if h.Order != nil && h.Error != nil {
			return fmt.Sprintf("order %s, which it would have started, was rejected: %s", *h.Order, h.Error.Message)
		}
	case events.SignalGivenUp:
		return "the order to which it was given could not decide on it, and an operator gave it up, or it could not wait; it is among the dead letters"
	}
	return *h.Reason
}

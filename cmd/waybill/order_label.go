package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
)

func newOrderLabel() *cobra.Command {
	cmd := &cobra.Command{
		Use: "label ID NAME=VALUE|NAME- ...", Short: "Change the labels of an order",
		Long: `Sets labels, by which orders are found, and removes those that are written with a -
behind their name. The order may have ended. What its workflow makes of the input to
find it by is no label.`,
		Example: `  waybill order label o-1 claim=cl-9 campaign- --note 'the parcel is lost'
  waybill order list --where claim=cl-9`,
		Args: takes(func(n int) bool { return n >= 2 }),
	}
	flags := cmd.Flags()
	c := events.Command{Command: events.CommandLabel}
	flags.StringVar(&c.Note, "note", "", "why; it stands in the order's history")
	flags.StringVar(&c.By, "by", "", "who acts (default: whom the server knows by --token-file or --cert, else user@host)")
	onlyByFlag(flags, "note")
	server := addServer(flags)
	out := addOutput(flags, "$.orderId")
	a := &act{did: "labelled"}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if c.By == "" && !server.named() { // the server goes by the name that it is given
			c.By = whoami()
		}
		if err := events.CheckOrderID(args[0]); err != nil {
			return usageError{err}
		}
		if c.Labels, err = readRelabelling(args[1:]); err != nil {
			return usageError{err}
		}
		return server.talk(func(client *api.Client) error {
			o, err := actOn(cmd.Context(), cmd.Context(), client, args[0], &c)
			if err != nil {
				return a.explain(args[0], err)
			}
			return printOrder(cmd, out, o)
		})
	}
	return cmd
}

// readRelabelling reads NAME=VALUE, which sets a label, and NAME-, which removes it.
func readRelabelling(all []string) (map[string]*string, error) {
	labels, set := make(map[string]*string, len(all)), make(map[string]string)
	for _, text := range all {
		name, value, sets := strings.Cut(text, "=")
		if !sets {
			var removes bool
			if name, removes = strings.CutSuffix(text, "-"); !removes {
				return nil, fmt.Errorf("%q: write NAME=VALUE to set a label, or NAME- to remove it", text)
			}
			if err := events.CheckLabelName(name); err != nil {
				return nil, fmt.Errorf("the name of a label %w", err)
			}
		}
		if _, twice := labels[name]; twice {
			return nil, errors.New(name + " is given twice; leave one out")
		}
		if labels[name] = nil; sets {
			labels[name], set[name] = &value, value
		}
	}
	return labels, events.CheckLabels(set)
}

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
	"github.com/waybill-dev/waybill/projections"
)

func newOrderItems() *cobra.Command {
	cmd := &cobra.Command{
		Use: "items ID STEP", Short: "List the items of a step",
		Long: `Lists the items of a step that is done for each item of a list: how each stands, or
ended, which order does it, and its output or error; of one under way, whether its
order waits for an operator; and which orders did it that ended with something that
was not undone. Items are counted from 1.`,
		Example: `  waybill order items o-1 pay --failed
  waybill order items o-1 pay --left
  waybill order items o-1 pay --limit 0 -o json`,
		Args: takes(two),
	}
	var wanted projections.ItemFilter
	var limit int
	flags := cmd.Flags()
	flags.BoolVar(&wanted.Failed, "failed", false, "only those that failed, or whose undo did")
	flags.BoolVar(&wanted.Left, "left", false, "only those of which an order left something that was not undone")
	flags.IntVar(&limit, "limit", 100, "how many at most; 0 means all")
	onlyByFlag(flags, "failed", "left", "limit")
	server := addServer(flags)
	out := addOutput(flags, "$.items[*].order")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return server.talk(func(client *api.Client) error {
			return printList(cmd, out, "items", limit, func(n int, after string) ([]api.Item, leftOut, string, error) {
				page, err := known(cmd.Context(), func() (*api.ItemPage, error) {
					return client.Items(cmd.Context(), args[0], args[1], wanted, n, after)
				})
				if err != nil {
					return nil, leftOut{}, "", err
				}
				return page.Items, leftOut{}, page.Next, nil
			}, func(row func(...any), all []api.Item) { listItems(row, all, out) })
		})
	}
	return cmd
}

func listItems(row func(...any), all []api.Item, out *output) {
	row("ITEM", "STATE", "ORDER", "RESULT")
	for i := range all {
		item := &all[i]
		text := out.short(words.Payload(item.Output))
		switch {
		case item.Error != nil:
			text = out.short(words.Fault(item.Error))
		case item.Alerted != nil && *item.Alerted:
			text = "it waits for an operator: waybill order get " + words.Or(item.Order)
		}
		for l := range item.LeftBy {
			text = strings.TrimPrefix(text+"; "+words.LeftBy(&item.LeftBy[l]), "-; ")
		}
		row(item.Item, item.State, words.Dash(words.Or(item.Order)), text)
	}
}

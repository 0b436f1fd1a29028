package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

func newApprovals() *cobra.Command {
	var limit int
	var mine, overdue bool
	cmd := &cobra.Command{
		Use: "approvals", Short: "List what waits for people to decide",
		Long: `Lists the steps that wait for people to decide, what has waited longest first: who
may, what they may say, and what was said so far. What they see is with -o json. To
decide: waybill order decide ORDER STEP OUTCOME.`,
		Example: `  waybill approvals --mine
  waybill approvals --overdue
  waybill order decide o-1 credit approved --note 'the customer is known'`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.BoolVar(&mine, "mine", false, "only what you may decide")
	flags.BoolVar(&overdue, "overdue", false, "only what is due")
	flags.IntVar(&limit, "limit", 100, "how many at most; 0 means all")
	onlyByFlag(flags, "limit", "mine", "overdue")
	server := addServer(flags)
	out := addOutput(flags, "$.approvals[*].order")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.talk(func(client *api.Client) error {
			return printList(cmd, out, "approvals", limit, func(n int, after string) ([]api.Approval, leftOut, string, error) {
				page, err := known(cmd.Context(), func() (*api.ApprovalPage, error) { return client.Approvals(cmd.Context(), mine, overdue, n, after) })
				return page.Approvals, leftOut{LeftOut: page.LeftOut}, page.Next, err
			}, func(row func(...any), all []api.Approval) {
				row("ORDER", "STEP", "WORKFLOW", "SINCE", "DUE", "WHO MAY", "OUTCOMES", "SAID")
				for i := range all {
					a := &all[i]
					row(a.Order, a.Step, words.Workflow(a.Workflow, a.Version), out.when(a.Since), words.Due(&a.Approves), strings.Join(a.Roles, ", "), words.Outcomes(&a.Approves), words.Dash(words.Said(&a.Approves)))
				}
			})
		})
	}
	return cmd
}

// deciding is no act on many orders: each is looked at by who decides.
var deciding = &act{
	command: events.CommandDecide, did: "decided",
	short: "Say what you decide, where a step asks people",
	long: `Says what somebody decides whom a step asks: one of the outcomes that its workflow
permits. It counts if the server knows who asks as one who has one of the roles that
may, who has not submitted the order, and has not decided yet.`,
	example: `  waybill order decide o-1 credit approved --note 'the customer is known'
  waybill order decide o-1 credit declined --token-file ~/.waybill-ana`,
}

func newOrderDecide() *cobra.Command {
	c := events.Command{Command: deciding.command}
	cmd := &cobra.Command{
		Use: "decide ORDER STEP OUTCOME", Short: deciding.short, Long: deciding.long, Example: deciding.example,
		Args: takes(func(n int) bool { return n == 3 }),
	}
	flags := cmd.Flags()
	deciding.addWho(flags, &c)
	server := addServer(flags)
	out := addOutput(flags, "$.orderId")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := events.CheckOrderID(args[0]); err != nil {
			return usageError{err}
		}
		if c.By == "" && !server.named() { // the server goes by the name that it is given
			c.By = whoami()
		}
		c.Step, c.Outcome = args[1], args[2]
		return server.talk(func(client *api.Client) error {
			o, err := actOn(cmd.Context(), cmd.Context(), client, args[0], &c)
			if err != nil {
				return deciding.explain(args[0], err)
			}
			return printOrder(cmd, out, o)
		})
	}
	return cmd
}

// addWho adds the flags that say who acts, and why.
func (a *act) addWho(flags *pflag.FlagSet, c *events.Command) {
	note := "why; it stands in the order's history"
	if a.mustSay {
		note += ". It must be given"
	}
	flags.StringVar(&c.Note, "note", "", note)
	flags.StringVar(&c.By, "by", "", "who acts (default: whom the server knows by --token-file or --cert, else user@host)")
	onlyByFlag(flags, "note")
}

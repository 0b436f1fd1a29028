package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
)

func newAgents() *cobra.Command {
	cmd := &cobra.Command{
		Use: "agents", Short: "List the agents, and whether their replies are theirs",
		Long: `Lists the agents that workflows name: what waits for each, what is with it, and
whether its replies repeat the tokens of their requests. An instance tells of the
partitions that it serves, and of the replies that it read since it began: ask each.
MEMBERS is how many its consumer group has, and BEHIND how many records that has not
committed at most, both of all partitions and as Kafka says: 0 members are an agent
that nobody runs.`,
		Args: cobra.NoArgs,
	}
	on := addWatch(cmd.Flags(), "until it is stopped")
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$.agents[*].name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.talk(func(client *api.Client) error {
			if *on {
				return watchList(cmd, out, "agents", func() ([]api.Agent, []string, error) {
					all, err := client.Agents(cmd.Context(), true)
					return all.Agents, nil, err
				}, func(row func(...any), all []api.Agent) { listAgents(row, out, all) })
			}
			all, err := client.Agents(cmd.Context(), true)
			if err != nil {
				return err
			}
			words.InZone(all, out.zone())
			keys := "has no keys of the namespace"
			if len(all.Keys) > 0 {
				keys = "signs with key " + all.Keys[0]
				if len(all.Keys) > 1 {
					keys += ", and believes " + strings.Join(all.Keys[1:], ", ")
				}
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s, which %s, serves %d of %d partitions, and counts replies since %s. Others tell of theirs.\n", all.Instance, keys, all.Partitions, all.Of, words.Clock(&all.Since))
			return out.print(cmd, all, func(row func(...any)) { listAgents(row, out, all.Agents) })
		})
	}
	return cmd
}

func listAgents(row func(...any), out *output, all []api.Agent) {
	columns := []any{"AGENT", "TOKENS", "REPEATED", "MISSING", "WRONG", "UNKNOWN", "LAST WITHOUT", "UNDER WAY", "OLDEST", "MEMBERS", "BEHIND", "WAITING", "SILENT"}
	if out.wide() {
		columns = append(columns, "WAITING SINCE")
	}
	row(columns...)
	for i := range all {
		a := &all[i]
		last := "-"
		if l := a.Replies.Last; l != nil {
			last = fmt.Sprintf("%s at %s", words.Dash(l.Source), words.Clock(&l.At))
		}
		columns := []any{a.Name, a.Tokens, a.Replies.Repeated, a.Replies.Missing, a.Replies.Wrong, a.Replies.Unknown, last, a.UnderWay, ageOf(a.AskedSince), orUnknown(a.Members), orUnknown(a.Behind), a.Waiting, ageOf(a.SilentSince)}
		if out.wide() {
			columns = append(columns, words.Clock(a.WaitingSince))
		}
		row(columns...)
	}
}

// orUnknown is what Kafka says, if it does.
func orUnknown[T any](says *T) string {
	if says == nil {
		return "unknown"
	}
	return fmt.Sprint(*says)
}

func ageOf(since *api.Time) string {
	if since == nil {
		return "-"
	}
	return time.Since(since.Time).Round(time.Second).String()
}

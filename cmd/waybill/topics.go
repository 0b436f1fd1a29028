package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybill-dev/waybill/orchestrator"
)

func newTopics() *cobra.Command {
	return group("topics", "Create and check the topics of a namespace", newTopicsCreate(), newTopicsCheck())
}

func newTopicsCreate() *cobra.Command {
	var kafka kafkaFlags
	var partitions int32
	var replication int16
	cmd := &cobra.Command{
		Use: "create", Short: "Create the topics that are missing",
		Long: `Creates the topics of the namespace that are missing. Topics that are there are
left as they are. The number of partitions can never change: it bounds how many
instances can share the work. A namespace that lacks a topic, because it is older
than the topic, gets it with the number that it has.`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	kafka.add(flags)
	flags.Int32Var(&partitions, "partitions", orchestrator.DefaultPartitions, "partitions of the topics of a new namespace")
	flags.Int16Var(&replication, "replication", -1, "copies of each partition; -1 is the cluster's default")
	out := addOutput(flags, "$.created[*]")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if partitions < 1 || replication == 0 || replication < -1 {
			return usageError{errors.New("--partitions must be 1 or more, --replication 1 or more, or -1")}
		}
		if !cmd.Flags().Changed("partitions") {
			partitions = 0 // as many as the namespace has
		}
		topics, client, err := kafka.connect(cmd.Context())
		if err != nil {
			return err
		}
		defer client.Close()
		created, err := orchestrator.CreateTopics(cmd.Context(), kadm.NewClient(client), &topics, partitions, replication)
		if err != nil {
			return err
		}
		if created == nil {
			created = []string{}
		}
		return out.print(cmd, map[string]any{"created": created}, func(row func(...any)) {
			if len(created) == 0 {
				row("All topics of namespace " + kafka.namespace + " are there; see `waybill topics check`.")
			}
			for _, name := range created {
				row("created", name)
			}
		})
	}
	return cmd
}

func newTopicsCheck() *cobra.Command {
	var kafka kafkaFlags
	var agents []string
	cmd := &cobra.Command{
		Use: "check", Short: "Say which topics are not as they should be",
		Long: "Says how the topics of the namespace differ from how `waybill topics create`\nmakes them. Exits with 1 when no orchestrator would start with them.",
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	kafka.add(flags)
	flags.StringSliceVar(&agents, "agents", nil, "agents whose request topics to check too, with commas")
	onlyByFlag(flags, "agents")
	out := addOutput(flags, "$.differences[*].topic")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		topics, client, err := kafka.connect(cmd.Context())
		if err != nil {
			return err
		}
		defer client.Close()
		differences, err := orchestrator.CheckTopics(cmd.Context(), client, &topics, agents)
		if err != nil {
			return err
		}
		if differences == nil {
			differences = []orchestrator.Difference{}
		}
		harmful := 0
		for _, d := range differences {
			if d.Harmful {
				harmful++
			}
		}
		if err := out.print(cmd, map[string]any{"differences": differences}, func(row func(...any)) {
			if len(differences) == 0 {
				row("The topics of namespace " + kafka.namespace + " are as they should be.")
				return
			}
			row("TOPIC", "WHAT", "HAVE", "WANT", "HARMFUL")
			for _, d := range differences {
				row(cmp.Or(d.Topic, "(the cluster)"), d.What, d.Have, d.Want, map[bool]string{true: "yes", false: "no"}[d.Harmful])
			}
		}); err != nil {
			return err
		}
		for _, d := range differences {
			have, _ := strconv.Atoi(d.Have)
			want, _ := strconv.Atoi(d.Want)
			if d.What == "partitions" && have < want && topics.Agent(d.Topic) != "" {
				cmd.PrintErrf("%s has too few partitions, so its agent is away until it has more: kafka-topics.sh --alter --topic %s --partitions %d\n", d.Topic, d.Topic, want)
			}
		}
		if harmful > 0 {
			return fmt.Errorf("%d differences keep an orchestrator from starting: create what is missing with `waybill topics create`; orders, replies, commands and journal have one number of partitions, which cannot be changed, so one with another must be made anew; raise max.message.bytes with kafka-configs.sh", harmful)
		}
		return nil
	}
	return cmd
}

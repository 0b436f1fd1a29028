package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// newRoot returns the command tree, and whether one of its commands was
// started.
func newRoot() (_ *cobra.Command, started *bool) {
	started = new(bool)
	root := &cobra.Command{
		Use:   "waybill",
		Short: "Durable multi-step orders on Kafka",
		Long: `Waybill runs orders of several steps on Kafka: it asks agents to carry out the
steps, notices those that fail or stay silent, and repairs what can be repaired.

Start with ` + "`waybill dev`" + `: everything in one process.

Every flag can also be set in the environment, as WAYBILL_ and its name in upper
case with _ for -, and in a YAML file named with --config. A flag goes before the
environment, the environment before the file. What belongs to one call only, such
as submit's --id, comes from flags alone.`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := configure(cmd); err != nil {
				return err
			}
			if err := applyContext(cmd); err != nil {
				return err
			}
			*started = true
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().String("config", "", "YAML file with values for flags, by their names")
	root.AddCommand(
		newDev(),
		newServe(),
		newTopics(),
		newWorkflow(),
		newSubmit(),
		newOrder(),
		newSignal(),
		newAlerts(),
		newApprovals(),
		newSignals(),
		newSchedule(),
		newLimit(),
		newDeadLetters(),
		newAgents(),
		newPartition(),
		newUpgrade(),
		newKey(),
		newContext(),
		newHealth(),
		newReplay(),
		newAgent(),
		newWebhooks(),
		newBench(),
		newVersion(),
		newExitCodes(),
	)
	addCompletion(root, "")
	return root, started
}

// group makes a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var names []string
			for _, sub := range commands {
				names = append(names, sub.Name())
			}
			return usageError{errors.New("say what to do: waybill " + use + " " + strings.Join(names, "|"))}
		},
	}
	c.AddCommand(commands...)
	return c
}

// listGroup is a group that lists when it is called bare, and is known by a plural, too, unless that is "".
func listGroup(use, plural, short string, list func() *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c := list()
	c.Long = short + ". Called bare, it does as its list:\n\n" + cmp.Or(c.Long, c.Short+".")
	c.Use, c.Short = use, short
	if plural != "" {
		c.Aliases = []string{plural}
	}
	c.AddCommand(append(commands, list())...)
	return c
}

// takes says which arguments a command takes: those that its usage line names.
func takes(count func(n int) bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if !count(len(args)) {
			return fmt.Errorf("%d arguments were given; usage: %s", len(args), cmd.UseLine())
		}
		return nil
	}
}

func one(n int) bool  { return n == 1 }
func two(n int) bool  { return n == 2 }
func some(n int) bool { return n > 0 }

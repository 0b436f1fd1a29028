package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/user"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
)

// act is an operator's command, as the command line offers it.
type act struct {
	command            string
	short, long        string
	example            string
	did                string // what is said of an order afterwards
	takesStep, mustHas bool   // --step beside an order id; it must be given
	mustSay            bool   // why, with --note
	// several says that more than one order may be named.
	several bool
	// foresee prints what would become of orders, where that can be said before.
	foresee func(*cobra.Command, *api.Client, []string, *events.Command, *api.LeftOut, *output) error
	// flags adds what only this command takes, and returns what reads it.
	flags func(*pflag.FlagSet) func(*cobra.Command, *events.Command) error
}

var acts = []*act{
	{
		command: events.CommandCancel, did: "cancelled",
		short: "Undo what was done, and end orders as Cancelled",
		long: `Cancels an order that has not ended and is not being compensated: what ran is
undone, and the order ends as Cancelled.`,
		example: `  waybill order cancel o-1 --note 'the customer called'
  waybill order cancel --workflow order-fulfilment --state Error --dry-run`,
	},
	{
		command: events.CommandResubmit, did: "resubmitted", takesStep: true,
		short: "Let orders go on after an error",
		long: `Resubmits an order in Error, after its cause was repaired: every step that failed
begins again, with a fresh round of attempts. So does every undo that failed while
the order is compensated. What its agent answered with an error gets a new
idempotency key; what nobody answered, or had retries left, keeps the one that it
has, so that nothing is done twice. --same-key and --new-key decide for all. A new
--input for what keeps its key needs one of them: a service that remembers the key
answers for the input of before. The alert of an order says what keeps its key, and
what may have run and gets another: that may run twice.

With --to-version the order goes on as one of another version of its workflow, as by
"waybill order migrate", and is resubmitted as that: both, or neither. --step is as
that version calls it.`,
		example: `  waybill order resubmit o-1 --note 'the card was exchanged'
  waybill order resubmit o-1 --step charge --input '{"card":"4711"}'
  waybill order resubmit o-1 --to-version 3 --note 'version 2 asks for the wrong amount'
  waybill order resubmit --workflow order-fulfilment --step charge --note 'the bank is back'`,
		flags: resubmitFlags,
	},
	{
		command: events.CommandSkipStep, did: "skipped", takesStep: true, mustHas: true,
		short: "Pass over a step",
		long: `Passes over a step that is neither running nor completed, or over its undo while
the order is compensated. The steps behind it go on; what they see as its output
is --step-output.`,
		example: `  waybill order skip-step o-1 --step ship --step-output '{"tracking":"by hand"}' --note 'sent by taxi'
  waybill order skip-step --state Error --step ship --note 'the carrier went out of business'`,
		flags: skipFlags,
	},
	{
		command: events.CommandPause, did: "paused",
		short: "Let nothing new start",
		long:  `Pauses an order: nothing new starts until it is resumed. What runs ends as it would.`,
		example: `  waybill order pause o-1 --note 'wait for the customer'
  waybill order pause --workflow order-fulfilment --note 'the warehouse moves'`,
	},
	{
		command: events.CommandResume, did: "resumed",
		short: "Let paused orders go on",
		long:  `Ends the pause of an order: it goes on where it was.`,
		example: `  waybill order resume o-1
  waybill order resume --workflow order-fulfilment`,
	},
	{
		command: events.CommandRelease, did: "released",
		short: "Let orders go on that are held",
		long: `Releases an order that is held because deciding on it panicked. It is again what
it was before, and the inputs that came meanwhile are decided in order, the one
that panicked first. If one panics again the order is held again, and that input
and those behind it go on waiting. With --discard the first goes to the dead
letters instead.`,
		example: `  waybill order release o-1 --note 'the new version is installed'
  waybill order release o-1 --discard --note 'the agent sent nonsense'
  waybill order release --workflow order-fulfilment`,
		flags: releaseFlags,
	},
	{
		command: events.CommandChange, did: "changed", takesStep: true,
		short: "Give orders another priority or deadline, or their steps another pace",
		long: `Gives an order that has not ended another priority, or another deadline, or none.
That is for what begins from then on: an attempt that runs keeps its complete-by.
With --step and --at-once it says how many items of a step may be under way at a
time.`,
		example: `  waybill order change o-1 --priority high --deadline +2h --note 'the customer waits'
  waybill order change o-1 --deadline none
  waybill order change o-1 --step pay --at-once 50
  waybill order change --workflow order-fulfilment --priority low`,
		flags: changeFlags,
	},
	{
		command: events.CommandMigrate, did: "migrated", several: true, foresee: foresee,
		short: "Have orders go on as ones of another version of their workflow",
		long: `Has an order go on as one of another version of its workflow. An attempt that runs
goes on as it was asked: under the name and the idempotency key by which its agent
knows it, and with its input. What has not begun, and limits and the deadline of the
workflow, are those of the other version. Orders that do steps of this one keep their
versions. A step that has begun and is called something else there is named with --map.
What failed with nothing in doubt, and is asked for something else there, begins anew.

It is forbidden where a step that has begun vanishes, does something else, is undone
otherwise, or comes after what is not done; of an order that has ended, is held, or is
being undone. --dry-run names every order and step, and all that forbids it, and exits
with 1 if anything does. What has changed since is found out when the order migrates.`,
		example: `  waybill order migrate o-1 o-2 --to 3 --map charge=pay --dry-run
  waybill order migrate o-1 --to 3 --map charge=pay --note 'version 2 checks nothing'
  waybill order migrate --workflow order-fulfilment --to 3 --yes`,
		flags: migrateFlags("to"),
	},
	{
		command: events.CommandTerminate, did: "terminated", mustSay: true,
		short: "End orders at once, and undo nothing",
		long: `Terminates an order in any state that is not final, also one that is held, or
whose workflow is gone: it ends as Terminated at once, and what was done stays as it
is. What agents were asked for cannot be taken back: they may do it all the same,
and what they answer changes nothing. The history says which steps were undone,
which were not, and of which nobody knows whether they ran. To undo what was done,
cancel the order instead. It wants a --note that says why.`,
		example: `  waybill order terminate o-1 --note 'the warehouse burnt down; see ticket 4711'
  waybill order terminate --workflow load-test --note 'it was a test' --dry-run`,
	},
}

const actsOnMany = `

Without an order id it acts on all orders that --state, --workflow, --where and
--step select, %s. They are looked up once, at the
start, so an order that fails again is not done twice. The server does it, as a bulk
act, which its console and API show, too; where it is of a release without these, or
--rate is none that it takes, orders are asked one by one. What could not be done is
listed with the reason, and the exit code is 1 then. Ctrl-C stops it: what has
begun is waited for.`

func (a *act) chosen() string {
	switch a.command {
	case events.CommandResubmit:
		return "in Error unless --state says otherwise"
	case events.CommandCancel:
		return "if they can be cancelled"
	case events.CommandResume:
		return "if they are paused"
	case events.CommandPause:
		return "if they go on"
	case events.CommandRelease:
		return "if they are held"
	}
	return "if they have not ended"
}

func resubmitFlags(flags *pflag.FlagSet) func(*cobra.Command, *events.Command) error {
	var input string
	var sameKey, newKey bool
	flags.StringVar(&input, "input", "", "new input of the step: JSON, @FILE, or - for standard input; with --same-key or --new-key if the step keeps its key")
	flags.BoolVar(&sameKey, "same-key", false, "go on with the idempotency keys of before, also where an error was answered")
	flags.BoolVar(&newKey, "new-key", false, "go on with new idempotency keys, also where nobody answered; what may have run is undone under both")
	onlyByFlag(flags, "input", "same-key", "new-key")
	version := migrateFlags("to-version")(flags)
	return func(cmd *cobra.Command, c *events.Command) (err error) {
		if err := version(cmd, c); err != nil {
			return err
		}
		if c.SameKey, c.NewKey = sameKey, newKey; sameKey && newKey {
			return usageError{errors.New("--same-key and --new-key: use one of the two")}
		}
		if cmd.Flags().Changed("input") {
			c.Input, err = readJSON("--input", input, cmd.InOrStdin())
		}
		return err
	}
}

func changeFlags(flags *pflag.FlagSet) func(*cobra.Command, *events.Command) error {
	priority := oneOf{allowed: []string{"high", "normal", "low"}}
	var deadline string
	var atOnce int
	flags.IntVar(&atOnce, "at-once", 0, "how many items of the step may be under way at a time")
	flags.Var(&priority, "priority", "which orders go first when agents are short")
	flags.StringVar(&deadline, "deadline", "", "when the order must be done: a time such as 2030-01-02T15:04:05Z, from now on such as +2h, or none")
	onlyByFlag(flags, "priority", "deadline", "at-once")
	return func(_ *cobra.Command, c *events.Command) error {
		c.Priority, c.AtOnce = events.Priority(priority.value), atOnce
		if atOnce == 0 {
			c.Step = "" // it chooses orders
		}
		switch {
		case atOnce != 0 && (c.Step == "" || deadline != "" || c.Priority != ""):
			return usageError{errors.New("--at-once needs --step, and goes with no other change")}
		case atOnce != 0:
			return nil
		case deadline == "" && c.Priority == "":
			return usageError{errors.New("say what is to be changed, with --priority, --deadline, or --step and --at-once")}
		case deadline == "":
		case deadline == "none":
			c.NoDeadline = true
		default:
			t, err := readDeadline(deadline)
			if err != nil {
				return err
			}
			c.Deadline = events.Time(*t)
		}
		return nil
	}
}

func releaseFlags(flags *pflag.FlagSet) func(*cobra.Command, *events.Command) error {
	var discard bool
	flags.BoolVar(&discard, "discard", false, "go on without the first input that waits; it becomes a dead letter")
	onlyByFlag(flags, "discard")
	return func(_ *cobra.Command, c *events.Command) error {
		c.Discard = discard
		return nil
	}
}

func skipFlags(flags *pflag.FlagSet) func(*cobra.Command, *events.Command) error {
	var output string
	flags.StringVar(&output, "step-output", "", "what later steps see as the step's output: JSON, @FILE, or - for standard input")
	onlyByFlag(flags, "step-output")
	return func(cmd *cobra.Command, c *events.Command) (err error) {
		if cmd.Flags().Changed("step-output") {
			c.Output, err = readJSON("--step-output", output, cmd.InOrStdin())
		}
		return err
	}
}

func newOrderAct(a *act) *cobra.Command {
	cmd := &cobra.Command{
		Use: a.use(), Short: a.short, Long: a.long + fmt.Sprintf(actsOnMany, a.chosen()), Example: a.example,
		Args: takes(func(n int) bool { return a.several || n <= 1 }),
	}
	flags := cmd.Flags()
	c := events.Command{Command: a.command}
	many := &bulk{act: a, filter: addFilter(flags)}
	step := "only orders of which this step failed, or its undo, or keeps them in Error, or sleeps, or waits for signals or people"
	if a.takesStep {
		step = "the step; without an order id also: " + step
	}
	flags.Var(chooser{one: &many.filter.step}, "step", step)
	a.addWho(flags, &c)
	many.addFlags(flags)
	onlyByFlag(flags, "step")
	read := func(*cobra.Command, *events.Command) error { return nil }
	if a.flags != nil {
		read = a.flags(flags)
	}
	server := addServer(flags)
	out := addOutput(flags, "$.orderId", "$.orders[*].orderId", "$.done[*]")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if c.By == "" && !server.named() { // the server goes by the name that it is given
			c.By = whoami()
		}
		if a.takesStep {
			c.Step = many.filter.step
		}
		if a.mustSay && strings.TrimSpace(c.Note) == "" {
			return usageError{errors.New("say why with --note: what was done stays as it is")}
		}
		if err := a.check(cmd, args, many); err != nil {
			return usageError{err}
		}
		if err := read(cmd, &c); err != nil {
			return err
		}
		return server.talk(func(client *api.Client) error {
			if len(args) != 1 || many.dryRun {
				return many.run(cmd, client, args, &c, out)
			}
			o, err := actOn(cmd.Context(), cmd.Context(), client, args[0], &c)
			if err != nil {
				return a.explain(args[0], err)
			}
			return printOrder(cmd, out, o)
		})
	}
	return cmd
}

func (a *act) use() string {
	if a.several {
		return a.command + " [ID]..."
	}
	return a.command + " [ID]"
}

// check says what is wrong with how the command was called.
func (a *act) check(cmd *cobra.Command, args []string, many *bulk) error {
	given := func(names ...string) string {
		for _, name := range names {
			if cmd.Flags().Changed(name) {
				return "--" + name
			}
		}
		return ""
	}
	if a.mustHas && many.filter.step == "" {
		return errors.New("say which step with --step")
	}
	if len(args) == 0 {
		if given("state", "workflow", "where") == "" {
			return errors.New("name an order, or choose orders with --state, --workflow or --where")
		}
		return many.check()
	}
	for _, id := range args {
		if err := events.CheckOrderID(id); err != nil {
			return err
		}
	}
	chooses := []string{"state", "workflow", "where"}
	if a.foresee == nil {
		chooses = append(chooses, "dry-run")
	}
	if flag := given(chooses...); flag != "" {
		return fmt.Errorf("%s chooses among many orders, and an order was named; leave one of them out", flag)
	}
	if flag := given("step"); flag != "" && !a.takesStep {
		return fmt.Errorf("%s chooses among many orders, and an order was named; leave one of them out", flag)
	}
	return nil
}

// explain says of an order why nothing was done.
func (a *act) explain(id string, err error) error {
	var problem *api.Problem
	switch {
	case errors.As(err, &problem) && problem.Status == http.StatusConflict:
		return fmt.Errorf("order %s was not %s: %w", id, a.did, err)
	case errors.Is(err, context.Canceled):
		return stoppedError{fmt.Errorf("stopped before it was known what became of the command; see `waybill order history %s`", id)}
	}
	return err
}

// actOn has an order's owner carry out a command, and repeats it as [repeatable] says. No new attempt begins after ctx
// ends; call bounds those that have begun.
func actOn(ctx, call context.Context, client *api.Client, id string, command *events.Command) (*api.Order, error) {
	c := *command
	c.ID = uuid.NewString()
	return repeat(ctx, func() (*api.Order, error) { return client.Command(call, id, &c) }, repeatable(ctx != call))
}

// whoami names who runs the program, for an order's history.
func whoami() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/internal/words"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

func newWorkflow() *cobra.Command {
	return listGroup("workflow", "workflows", "Register, list and check workflows",
		newWorkflowList, newWorkflowRegister(), newWorkflowShow(), newWorkflowVersions(), newWorkflowRetire(),
		newWorkflowCheck(), newWorkflowTest(), newWorkflowGraph(), newWorkflowDiff(), newWorkflowSchema())
}

// definition is a workflow file that was read and found good.
type definition struct {
	file   string
	source []byte
	flow   *workflow.Workflow
	// retired says that no new order may have it, though it is registered.
	retired bool
}

// errOther says that a file is one of Waybill's, and not of a workflow.
var errOther = errors.New("no workflow")

// define reads the text of a workflow file. The error has every problem, one a line; for files
// that are for others it is [errOther].
func define(file string, source []byte) (definition, error) {
	flow, err := workflow.Parse(file, source)
	if err != nil {
		if what, command := otherFile(source); what != "" {
			err = fmt.Errorf("%s: this is a file of %s, and %w; it is for waybill %s", file, what, errOther, command)
		}
	}
	return definition{file: file, source: source, flow: flow}, err
}

// otherFile says what a file is of that is no workflow, and which command is for it; "" if it
// may be meant for a workflow.
func otherFile(source []byte) (what, command string) {
	keys := workflow.Keys(source)
	has := func(key string) bool { return slices.Contains(keys, key) }
	switch {
	case has("steps"):
		return "", ""
	case has("tests"):
		return "tests", "workflow test"
	case has("agent") && has("operations"):
		return "an agent", "agent http"
	}
	return "", ""
}

// readDefinitions reads workflow files, - meaning standard input. The error has every problem of
// every file, one a line.
func readDefinitions(cmd *cobra.Command, files []string) ([]definition, error) {
	good, others, err := sortOut(cmd, files)
	return good, errors.Join(err, others)
}

// readWorkflows is readDefinitions for those who give all files of a folder: files for others
// beside workflows are named, and passed over.
func readWorkflows(cmd *cobra.Command, files []string) ([]definition, error) {
	good, others, err := sortOut(cmd, files)
	if len(good) == 0 {
		return nil, errors.Join(err, others)
	}
	printProblems(cmd.ErrOrStderr(), others)
	for _, d := range good {
		printProblems(cmd.ErrOrStderr(), d.doubt())
	}
	return good, err
}

// doubt is what the file says and its author can hardly mean.
func (d definition) doubt() error {
	if doubt := d.flow.Doubt(); doubt != "" {
		return fmt.Errorf("%s: a warning: %s", d.file, doubt)
	}
	return nil
}

// sortOut reads files: those that are workflows, what is said of those for others, and what is
// wrong with the rest.
func sortOut(cmd *cobra.Command, files []string) (good []definition, others, err error) {
	for _, file := range files {
		var source []byte
		var wrong error
		if file == "-" {
			file = "stdin"
			source, wrong = io.ReadAll(cmd.InOrStdin())
		} else {
			source, wrong = os.ReadFile(file)
		}
		var d definition
		if wrong == nil {
			d, wrong = define(file, source)
		}
		switch {
		case errors.Is(wrong, errOther):
			others = errors.Join(others, wrong)
		case wrong != nil:
			err = errors.Join(err, wrong)
		default:
			good = append(good, d)
		}
	}
	return good, others, err
}

// printProblems prints what is wrong, one file:line:column a line, for editors.
func printProblems(w io.Writer, err error) {
	if err == nil {
		return
	}
	for line := range strings.Lines(err.Error() + "\n") {
		fmt.Fprintln(w, words.Clean(strings.TrimSuffix(line, "\n")))
	}
}

// refused prints what is wrong.
func refused(cmd *cobra.Command, err error, consequence string) error {
	printProblems(cmd.ErrOrStderr(), err)
	return errors.New(consequence)
}

func newWorkflowCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use: "check FILE...", Short: "Check workflow files, without a server",
		Args: takes(some),
	}
	out := addOutput(cmd.Flags(), "$.good[*]")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		good, err := readWorkflows(cmd, files)
		if err == nil {
			_, err = inOrder(good)
		}
		if err != nil {
			return refused(cmd, err, "correct the problems above")
		}
		return printDefinitions(cmd, out, "good", good)
	}
	return cmd
}

func newWorkflowRegister() *cobra.Command {
	cmd := &cobra.Command{
		Use: "register FILE...", Short: "Register workflows",
		Long: `Registers workflow files. All are checked first: if one is bad, nothing is
registered. Files of tests or agents beside them are named and passed over. A version that
is registered never changes; registering the same again does nothing. One that is retired
stays so, which is said. What orders others is registered behind them.`,
		Args: takes(some),
	}
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$.registered[*]")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		good, err := readWorkflows(cmd, files)
		if err == nil {
			err = contradiction(good)
		}
		if err == nil {
			good, err = inOrder(good)
		}
		if err != nil {
			return refused(cmd, err, "nothing was registered; correct the problems above")
		}
		return server.talk(func(client *api.Client) error {
			if err := conflict(cmd, client, good); err != nil {
				return err
			}
			for i, d := range good {
				retired, err := known(cmd.Context(), func() (string, error) {
					return client.Register(cmd.Context(), d.file, d.source)
				})
				if err != nil {
					return fmt.Errorf("register %s: %w", d.file, err)
				}
				if retired != "" {
					good[i].retired = true
					fmt.Fprintln(cmd.ErrOrStderr(), words.Clean(d.file+": "+retired))
				}
			}
			return printDefinitions(cmd, out, "registered", good)
		})
	}
	return cmd
}

// inOrder puts definitions in an order in which they can be registered: those that others order
// come first.
func inOrder(all []definition) ([]definition, error) {
	sorted, err := workflow.Sorted(all, func(d definition) *workflow.Workflow { return d.flow })
	if circle := new(workflow.CircleError); errors.As(err, &circle) {
		first := slices.IndexFunc(all, func(d definition) bool { return d.flow.Name == circle.Names[0] })
		return nil, fmt.Errorf("%s: %w", all[first].file, err)
	}
	return sorted, err
}

// contradiction finds files that define the same version differently.
func contradiction(all []definition) error {
	first := make(map[string]definition)
	var problems []error
	for _, d := range all {
		other, found := first[d.flow.ID()]
		if !found {
			first[d.flow.ID()] = d
		} else {
			problems = append(problems, d.contradicts(other))
		}
	}
	return errors.Join(problems...)
}

// contradicts says whether two files define one version differently.
func (d definition) contradicts(other definition) error {
	if canonical(d.flow) == canonical(other.flow) {
		return nil
	}
	return fmt.Errorf("%s: workflow %s stands in %s too, with another content; give one of them the next version", d.file, d.flow.ID(), other.file)
}

// conflict finds files that the server would refuse after it took others.
func conflict(cmd *cobra.Command, client *api.Client, all []definition) error {
	known, err := client.Workflows(cmd.Context())
	if err != nil {
		return err
	}
	registered := make(map[string]string)
	for _, source := range known.Workflows {
		flow, err := workflow.Registered("registered", source)
		if err != nil {
			return fmt.Errorf("the server has a workflow that this program cannot read; is it of another release? %w", err)
		}
		registered[flow.ID()] = canonical(flow)
	}
	var problems []error
	for _, d := range all {
		if have, found := registered[d.flow.ID()]; found && have != canonical(d.flow) {
			problems = append(problems, fmt.Errorf("%s: workflow %s is registered with another content; give the new one the next version", d.file, d.flow.ID()))
		}
	}
	if len(problems) > 0 {
		return refused(cmd, errors.Join(problems...), "nothing was registered; a registered version never changes")
	}
	return nil
}

func canonical(flow *workflow.Workflow) string {
	b, err := flow.MarshalJSON()
	if err != nil {
		panic(err) // it never fails
	}
	return string(b)
}

func printDefinitions(cmd *cobra.Command, out *output, what string, all []definition) error {
	ids, value := make([]string, len(all)), make(map[string]any)
	var retired []string
	for i, d := range all {
		if ids[i] = d.flow.ID(); d.retired {
			retired = append(retired, ids[i])
		}
	}
	if value[what] = ids; len(retired) > 0 {
		value["retired"] = retired
	}
	return out.print(cmd, value, func(row func(...any)) {
		for i, d := range all {
			row(what, ids[i], d.file, retiredNote(d.retired))
		}
	})
}

// retiredNote says that a version is retired.
func retiredNote(retired bool) string {
	if retired {
		return "retired"
	}
	return ""
}

func newWorkflowList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the registered workflows", Args: cobra.NoArgs}
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$.workflows[*]: workflow@version")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.talk(func(client *api.Client) error {
			all, err := client.Workflows(cmd.Context())
			if err != nil {
				return err
			}
			flows := make([]*workflow.Workflow, len(all.Workflows))
			for i, source := range all.Workflows {
				if flows[i], err = workflow.Registered("registered", source); err != nil {
					return fmt.Errorf("the server has a workflow that this program cannot read; is it of another release? %w", err)
				}
			}
			return out.print(cmd, all, func(row func(...any)) {
				row("WORKFLOW", "VERSION", "STEPS", "AGENTS", "")
				for _, flow := range flows {
					var steps []string
					for _, s := range flow.Steps {
						steps = append(steps, s.Name)
					}
					row(flow.Name, flow.Version, out.short(strings.Join(steps, ",")), out.short(strings.Join(flow.Agents(), ",")), retiredNote(slices.Contains(all.Retired, flow.ID())))
				}
			})
		})
	}
	return cmd
}

func newWorkflowShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NAME[@VERSION]", Short: "Print a registered workflow, every default spelled out",
		Long: "Prints a registered workflow, every default spelled out. With -o json it is a\nfile that can be registered again.",
		Args: takes(one),
	}
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags(), "$: workflow@version")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var named api.Submission
		if err := nameWorkflow(&named, args[0]); err != nil {
			return err
		}
		return server.talk(func(client *api.Client) error {
			source, err := client.Workflow(cmd.Context(), named.Workflow, named.Version)
			if err != nil {
				return err
			}
			flow, err := workflow.Registered("registered", source)
			if err != nil {
				return fmt.Errorf("this program cannot read the workflow; is the server of another release? %w", err)
			}
			return out.print(cmd, source, func(row func(...any)) { showWorkflow(row, flow) })
		})
	}
	return cmd
}

func showWorkflow(row func(...any), flow *workflow.Workflow) {
	row("Workflow", flow.Name)
	row("Version", flow.Version)
	row("Deadline", words.Lasts(flow.Deadline, "none"))
	row("Overdue", flow.Overdue)
	row("Keep", words.Lasts(flow.Keep, "for ever"))
	if s := flow.Start; s != nil {
		row("Starts", "on signal "+startText(s))
	}
	if c := flow.Concurrency; c != nil {
		row("Concurrency", fmt.Sprintf("one order at a time under the key %s; in a conflict %s", c.Key, words.Conflict(c.OnConflict)))
	}
	if flow.Input != nil {
		row("Input", "as its JSON Schema says: see -o json")
	} else {
		row("Input", "anything")
	}
	for _, m := range flow.Search {
		row("Search", m.Name+": "+words.Line(m.Value.String()))
	}
	row()
	row("STEP", "AGENT", "DO", "UNDO", "AFTER", "TIMEOUT", "QUEUE", "RETRY", "EXHAUSTED")
	for i := range flow.Steps {
		showStep(row, "", &flow.Steps[i])
	}
}

// showStep prints the row of a step, with what has no column in lines of their own, and the rows of those that do its
// items.
func showStep(row func(...any), of string, s *workflow.Step) {
	agent, does := "-", s.Do
	switch {
	case s.Sleep != nil:
		does = "sleep " + words.Sleeps(s.Sleep)
	case s.Listen != nil:
		does = "listen for " + words.Listens(s.Listen)
	case s.Approve != nil:
		does = words.Asks(s.Approve)
	case s.Order != nil:
		does = words.Ordered(s.Order)
	case s.Each != nil:
		does = "for each item"
	case s.Emit != nil:
		does = "emit " + words.Emits(s.Emit)
	case s.Raise != nil:
		does = words.Raises(s.Raise)
	default:
		agent = s.Agent
	}
	timeout := words.Lasts(s.Timeout, "-") // never
	if s.TimeoutMax > 0 {
		timeout += ", max " + s.TimeoutMax.String()
	}
	queue := words.Lasts(s.Queue, "-") // for ever
	if l := s.Limit; l != nil {
		if queue += "; limit " + l.Name; l.Key != nil {
			queue += " by " + words.Short(words.Line(l.Key.String()))
		}
	}
	retry := "-"
	if s.Asks() || s.Emit != nil {
		retry = words.Retries(s)
	}
	exhausted := words.Dash(string(s.Exhausted))
	if s.Exhausted == workflow.ExhaustedWait {
		exhausted += fmt.Sprintf(" %s, %d times", s.Wait.For, s.Wait.Rounds)
	}
	row(of+s.Name, agent, does, words.Dash(s.Undo), words.Dash(strings.Join(s.After, ",")), timeout, queue, retry, exhausted)
	under := func(key string, e *workflow.Expression) {
		if e != nil {
			row(underRow + key + " " + words.Line(e.String()))
		}
	}
	under("when", s.When)
	under("with", s.With)
	under("undoWith", s.UndoWith)
	switch {
	case s.Listen != nil:
		under("key", s.Listen.Key)
	case s.Approve != nil:
		under("show", s.Approve.Show)
	case s.Order != nil && s.Order.ReplyTo != "":
		row(underRow + "replyTo " + s.Order.ReplyTo)
	case s.Emit != nil:
		under("key", s.Emit.Key)
		under("data", s.Emit.Data)
	case s.Each != nil:
		for _, line := range words.EachSays(s.Each) {
			row(underRow + line)
		}
		showItems(row, of+s.Name, s.Each)
	}
}

// showItems prints the rows of what lists the items of a step, and of what does them, as tests name them.
func showItems(row func(...any), name string, e *workflow.Each) {
	if e.Pages != nil {
		asks := e.Pages.Steps[0]
		asks.Name, asks.With, asks.Exhausted = "items", e.With, ""
		showStep(row, name+".", &asks)
	}
	if e.Steps != nil {
		for i := range e.Steps.Steps {
			showStep(row, name+"/", &e.Steps.Steps[i])
		}
	}
}

// startText says which signal starts an order.
func startText(s *workflow.Start) string {
	if s.Key == nil {
		return s.Signal + ", under any key"
	}
	return s.Signal + ", under the key " + s.Key.String()
}

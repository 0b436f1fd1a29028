package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

func newWorkflow() *cobra.Command {
	return group("workflow", "Register, list and check workflows",
		newWorkflowRegister(), newWorkflowList(), newWorkflowShow(),
		newWorkflowCheck(), newWorkflowTest(), newWorkflowGraph(), newWorkflowDiff(), newWorkflowSchema())
}

// definition is a workflow file that was read and found good.
type definition struct {
	file   string
	source []byte
	flow   *workflow.Workflow
}

// readDefinitions reads workflow files, - meaning standard input. The error
// has every problem of every file, one a line.
func readDefinitions(cmd *cobra.Command, files []string) ([]definition, error) {
	var good []definition
	var problems []error
	for _, file := range files {
		d := definition{file: file}
		var err error
		if file == "-" {
			d.file = "stdin"
			d.source, err = io.ReadAll(cmd.InOrStdin())
		} else {
			d.source, err = os.ReadFile(file)
		}
		if err == nil {
			d.flow, err = workflow.Parse(d.file, d.source)
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		good = append(good, d)
	}
	return good, errors.Join(problems...)
}

// refused prints what is wrong, one file:line:column a line, for editors.
func refused(cmd *cobra.Command, err error, consequence string) error {
	for line := range strings.Lines(err.Error() + "\n") {
		fmt.Fprintln(cmd.ErrOrStderr(), clean(strings.TrimSuffix(line, "\n")))
	}
	return errors.New(consequence)
}

func newWorkflowCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use: "check FILE...", Short: "Check workflow files, without a server",
		Args: takes(some),
	}
	out := addOutput(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		good, err := readDefinitions(cmd, files)
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
registered. A version that is registered never changes; registering the same
again does nothing.`,
		Args: takes(some),
	}
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		good, err := readDefinitions(cmd, files)
		if err == nil {
			err = contradiction(good)
		}
		if err != nil {
			return refused(cmd, err, "nothing was registered; correct the problems above")
		}
		return server.talk(func(client *api.Client) error {
			if err := conflict(cmd, client, good); err != nil {
				return err
			}
			for _, d := range good {
				if _, err := known(cmd.Context(), func() (any, error) {
					return nil, client.Register(cmd.Context(), d.file, d.source)
				}); err != nil {
					return fmt.Errorf("register %s: %w", d.file, err)
				}
			}
			return printDefinitions(cmd, out, "registered", good)
		})
	}
	return cmd
}

// contradiction finds files that define the same version differently.
func contradiction(all []definition) error {
	first := make(map[string]definition)
	var problems []error
	for _, d := range all {
		other, found := first[d.flow.ID()]
		if !found {
			first[d.flow.ID()] = d
		} else if canonical(d.flow) != canonical(other.flow) {
			problems = append(problems, fmt.Errorf("%s: workflow %s stands in %s too, with another content; give one of them the next version", d.file, d.flow.ID(), other.file))
		}
	}
	return errors.Join(problems...)
}

// conflict finds files that the server would refuse after it took others.
func conflict(cmd *cobra.Command, client *api.Client, all []definition) error {
	known, err := client.Workflows(cmd.Context())
	if err != nil {
		return err
	}
	registered := make(map[string]string)
	for _, source := range known {
		flow, err := workflow.Parse("registered", source)
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
	ids := make([]string, len(all))
	for i, d := range all {
		ids[i] = d.flow.ID()
	}
	return out.print(cmd, map[string]any{what: ids}, func(row func(...any)) {
		for i, d := range all {
			row(what, ids[i], d.file)
		}
	})
}

func newWorkflowList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the registered workflows", Args: cobra.NoArgs}
	server := addServer(cmd.Flags())
	out := addOutput(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.talk(func(client *api.Client) error {
			all, err := client.Workflows(cmd.Context())
			if err != nil {
				return err
			}
			flows := make([]*workflow.Workflow, len(all))
			for i, source := range all {
				if flows[i], err = workflow.Parse("registered", source); err != nil {
					return fmt.Errorf("the server has a workflow that this program cannot read; is it of another release? %w", err)
				}
			}
			return out.print(cmd, api.Workflows{Workflows: all}, func(row func(...any)) {
				row("WORKFLOW", "VERSION", "STEPS", "AGENTS")
				for _, flow := range flows {
					var steps []string
					for _, s := range flow.Steps {
						steps = append(steps, s.Name)
					}
					row(flow.Name, flow.Version, short(strings.Join(steps, ",")), short(strings.Join(flow.Agents(), ",")))
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
	out := addOutput(cmd.Flags())
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
			flow, err := workflow.Parse("registered", source)
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
	row()
	row("STEP", "AGENT", "DO", "UNDO", "AFTER", "TIMEOUT", "QUEUE", "RETRY", "EXHAUSTED")
	for _, s := range flow.Steps {
		if s.Sleep != nil {
			row(s.Name, "-", "sleep "+sleepText(s.Sleep), "-", dash(strings.Join(s.After, ",")), "-", "-", "-", "-")
			continue
		}
		retry := fmt.Sprintf("%d, %s x%g to %s", s.Retry.Attempts, s.Retry.Backoff, s.Retry.Multiplier, s.Retry.Max)
		if len(s.Retry.Never) > 0 {
			retry += "; never " + strings.Join(s.Retry.Never, ",")
		}
		if len(s.Retry.AtOnce) > 0 {
			retry += "; at once " + strings.Join(s.Retry.AtOnce, ",")
		}
		if s.Repeat != nil {
			retry += fmt.Sprintf("; %d times every %s until %s", s.Repeat.Max, s.Repeat.Every, short(s.Repeat.Until.String()))
		}
		exhausted := string(s.Exhausted)
		if s.Exhausted == workflow.ExhaustedWait {
			exhausted += fmt.Sprintf(" %s, %d times", s.Wait.For, s.Wait.Rounds)
		}
		queue := "-" // for ever
		if s.Queue > 0 {
			queue = s.Queue.String()
		}
		timeout := s.Timeout.String()
		if s.TimeoutMax > 0 {
			timeout += ", max " + s.TimeoutMax.String()
		}
		row(s.Name, s.Agent, s.Do, dash(s.Undo), dash(strings.Join(s.After, ",")), timeout, queue, retry, exhausted)
	}
}

// sleepText says how long a step sleeps, or until when.
func sleepText(s *workflow.Sleep) string {
	switch {
	case s.Until != nil:
		return "until " + s.Until.String()
	case s.Lasts != nil:
		return "for " + s.Lasts.String()
	}
	return "for " + s.For.String()
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/rehearsal"
	"github.com/waybill-dev/waybill/internal/words"
)

func newWorkflowTest() *cobra.Command {
	var run, junit string
	var verbose bool
	cmd := &cobra.Command{
		Use: "test FILE...", Short: "Test workflow files, without a server",
		Long: `Performs the tests of files that say how agents answer, what operators do, and
what is expected of an order. Nothing but the files is needed, and time jumps: an
order that sleeps for a month is tested at once. Exits with 0 when all tests pass,
with 1 when some do not, and with 2 when a file has problems.`,
		Args: takes(some),
	}
	flags := cmd.Flags()
	flags.StringVar(&run, "run", "", "only tests whose names match this regular expression")
	flags.StringVar(&junit, "junit", "", "also write the results to this file, as JUnit has them")
	flags.BoolVarP(&verbose, "verbose", "v", false, "print the histories of tests that pass, too")
	onlyByFlag(flags, "run", "junit", "verbose")
	out := addOutput(flags)
	// none says why no test was performed, in the report, too.
	none := func(why error) error {
		if junit == "" {
			return nil
		}
		return writeJUnitError(junit, why)
	}
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		chosen, err := regexp.Compile(run)
		if err != nil {
			err = fmt.Errorf("--run: %w", err)
			return usageError{errors.Join(err, none(err))}
		}
		files, err := readTests(cmd, names)
		if err != nil {
			return undecidedError{errors.Join(refused(cmd, err, "no test was performed; correct the problems above"), none(err))}
		}
		var results []*rehearsal.Result
		failed := 0
		for _, f := range files {
			for _, t := range f.Tests {
				if !chosen.MatchString(t.Name) {
					continue
				}
				r := t.Perform()
				if results = append(results, r); len(r.Differences) > 0 {
					failed++
				}
			}
		}
		if len(results) == 0 {
			err := fmt.Errorf("--run %s: no test has a name that matches", run)
			return usageError{errors.Join(err, none(err))}
		}
		if junit != "" {
			if err := writeJUnit(junit, files, results); err != nil {
				return undecidedError{err}
			}
		}
		if err := printResults(cmd, out, results, failed, verbose); err != nil {
			return undecidedError{err}
		}
		if failed > 0 {
			return errReported
		}
		return nil
	}
	return cmd
}

// readTests reads test files, - meaning standard input. The error has every problem of every
// file, one a line.
func readTests(cmd *cobra.Command, names []string) ([]*rehearsal.File, error) {
	var files []*rehearsal.File
	var problems []error
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue // globs may name one twice
		}
		var source []byte
		var err error
		if name == "-" {
			name = "stdin"
			source, err = io.ReadAll(cmd.InOrStdin())
		} else {
			source, err = os.ReadFile(name)
		}
		var f *rehearsal.File
		if err == nil {
			f, err = rehearsal.Parse(name, source)
		}
		if err != nil {
			problems = append(problems, err)
			continue
		}
		files = append(files, f)
	}
	return files, errors.Join(problems...)
}

// testResults is what is printed of all tests as JSON.
type testResults struct {
	Tests  []testResult `json:"tests"`
	Failed int          `json:"failed"`
}

// testResult is what is printed of a test as JSON.
type testResult struct {
	File string `json:"file"`
	rehearsal.Place
	Name        string                 `json:"name"`
	Passed      bool                   `json:"passed"`
	State       string                 `json:"state"`
	Took        string                 `json:"took"`
	Differences []rehearsal.Difference `json:"differences"`
	Events      []replayedEvent        `json:"events"`
	Children    []testChild            `json:"children"`
}

// testChild is what is printed as JSON of an order that did a step.
type testChild struct {
	Order  string          `json:"order"`
	Step   string          `json:"step"`
	State  string          `json:"state"`
	Events []replayedEvent `json:"events"`
}

func printResults(cmd *cobra.Command, out *output, results []*rehearsal.Result, failed int, verbose bool) error {
	if out.data() {
		all := make([]testResult, len(results))
		for i, r := range results {
			all[i] = resultOf(r)
		}
		return out.print(cmd, testResults{all, failed}, nil)
	}
	w := cmd.OutOrStdout()
	for _, r := range results {
		outcome := "ok  "
		if len(r.Differences) > 0 {
			outcome = "FAIL"
		}
		fmt.Fprintf(w, "%s  %s: %s (%s)\n", outcome, placeIn(r.File, r.Place), words.Clean(r.Name), r.Took)
		if len(r.Differences) == 0 && !verbose {
			continue
		}
		printDifferences(w, r)
		if err := printHistories(w, r); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintf(w, "%s, %d failed\n", words.Several(len(results), "test", "tests"), failed)
	return err
}

func placeIn(file string, p rehearsal.Place) string {
	return fmt.Sprintf("%s:%d:%d", words.Clean(file), p.Line, p.Column)
}

func printDifferences(w io.Writer, r *rehearsal.Result) {
	for _, d := range r.Differences {
		fmt.Fprintf(w, "      %s: %s\n", placeIn(r.File, d.Place), words.Clean(d.What))
		fmt.Fprintf(w, "        expected  %s\n        found     %s\n", words.Clean(d.Expected), words.Clean(d.Found))
		for _, line := range d.Lines {
			fmt.Fprintf(w, "          %s\n", words.Clean(line))
		}
	}
}

// Of a history with more than fullHistory events only the first and the last are printed.
const (
	fullHistory = 100
	ofEachEnd   = 20
)

// printHistories prints what happened to the order, and to those that did steps.
func printHistories(w io.Writer, r *rehearsal.Result) error {
	err := printHistory(w, r.Happened)
	for _, child := range r.Children {
		fmt.Fprintf(w, "order %s, which does step %s:\n", words.Clean(child.ID()), child.Step())
		err = errors.Join(err, printHistory(w, child.Happened))
	}
	return err
}

// printHistory prints what `waybill order history` would of an order. A test has no topics, so
// nothing is said of where replies were read.
func printHistory(w io.Writer, happened []rehearsal.Happening) error {
	history := make([]events.Event, len(happened))
	for i := range happened {
		history[i] = happened[i].Event
		history[i].Source, history[i].AnsweredBy = "", ""
	}
	return printTable(w, func(row func(...any)) {
		rows := 0 // the first is the heading
		newTimeline(time.UTC).add(func(cells ...any) {
			rows++
			if left := rows - 1 - ofEachEnd; len(history) > fullHistory && left > 0 && rows <= 1+len(history)-ofEachEnd {
				if left == 1 {
					row(fmt.Sprintf("... %d more", len(history)-2*ofEachEnd), "", "", "", "", "", "")
				}
				return
			}
			if last := len(cells) - 1; cells[last] == "" {
				cells[last] = "-"
			}
			row(cells...)
		}, history)
	})
}

func resultOf(r *rehearsal.Result) testResult {
	t := testResult{
		File: r.File, Place: r.Place, Name: r.Name, Passed: len(r.Differences) == 0,
		State: string(r.Order.State), Took: r.Took.String(), Differences: r.Differences, Events: replayed(r.Happened), Children: []testChild{},
	}
	if t.Differences == nil {
		t.Differences = []rehearsal.Difference{}
	}
	for _, child := range r.Children {
		state := ""
		if child.Order != nil {
			state = string(child.Order.State)
		}
		t.Children = append(t.Children, testChild{child.ID(), child.Step(), state, replayed(child.Happened)})
	}
	return t
}

func replayed(happened []rehearsal.Happening) []replayedEvent {
	all := []replayedEvent{}
	for i := range happened {
		h := &happened[i]
		e := replayedEvent{Event: json.RawMessage(h.Append(nil)), Messages: []replayedMessage{}}
		for _, m := range h.Messages {
			e.Messages = append(e.Messages, replayedMessage{m.Topic, string(m.Envelope.Type), m.Value})
		}
		all = append(all, e)
	}
	return all
}

package rehearsal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/yamlfile"
)

// File is a test file that was read and found good.
type File struct {
	Name  string // as it was given
	Flow  *workflow.Workflow
	Tests []*Test
}

// Test is what happens to one order, and what is expected of it.
type Test struct {
	Place // of its name
	File  string
	Name  string

	flow     *workflow.Workflow
	starts   time.Time // when the order is submitted
	input    jsontext.Value
	deadline time.Duration // of the order, as its submission says; 0 for none
	// submittedBy is who submitted it, empty if that is not said.
	submittedBy string
	scripts     []*script // as the file has them
	acts        []act
	expect      []check
}

// work is what an agent is asked for: a step, or its undo.
type work struct {
	step string
	undo bool
}

// undoOf follows the name of a step where its undo is meant: names of steps hold no dots.
const undoOf = ".undo"

func (w work) String() string {
	if w.undo {
		return w.step + undoOf
	}
	return w.step
}

// script is how an agent answers what it is asked for, attempt by attempt. The last answer
// repeats.
type script struct {
	work
	answers []answer
}

// answer is what becomes of one attempt.
type answer struct {
	Place
	silent bool // nobody answers
	after  time.Duration
	output jsontext.Value
	fails  *events.Error // nil where the attempt completes
}

// act is what an operator does, or what the world tells the order.
type act struct {
	Place
	after   time.Duration // since the submission
	command events.Command
	signal  events.Signal // instead, if it has a name
	roles   []string      // those of whoever decides; nil for any other act
	refused string        // a part of why it is refused, or changes nothing; empty if it must not be
}

// morning is when orders are submitted where a test does not say.
var morning = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Parse reads a test file, and the workflow file that it names. The file is the name that
// problems are reported under, and from which the workflow is looked for.
//
// The error holds everything that is wrong with both, one file:line:column a line.
func Parse(file string, source []byte) (*File, error) {
	r := new(fileReader)
	r.File = file
	f := &File{Name: file}
	body := r.document(source)
	if body == nil {
		return nil, r.Sorted()
	}
	var broken error // the workflow
	var tests ast.Node
	given := r.mapping(body, "a test file", []field{
		{"workflow", func(n ast.Node) { broken = r.workflow(n) }},
		{"tests", func(n ast.Node) { tests = n }},
	})
	r.require(body, given, "the file", "workflow", "tests")
	if tests != nil {
		f.Flow, f.Tests = r.flow, r.tests(tests)
	}
	switch err := r.Sorted(); {
	case broken != nil && err != nil:
		return nil, fmt.Errorf("%w\n%w", broken, err)
	case broken != nil:
		return nil, broken
	case err != nil:
		return nil, err
	}
	return f, nil
}

type fileReader struct {
	reader
	flow *workflow.Workflow // nil while it is not known, so that nothing can be said of its steps
}

// workflow reads the workflow file, and returns what is wrong with that.
func (r *fileReader) workflow(n ast.Node) error {
	path := r.some(n, "workflow")
	if strings.TrimSpace(path) == "" {
		return nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(r.File), path)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		r.add(start(n), "the workflow cannot be read: %v", err)
		return nil
	}
	r.flow, err = workflow.Parse(path, source)
	return err
}

func (r *fileReader) tests(n ast.Node) (all []*Test) {
	entries := r.list(n, "tests")
	if _, list := n.(*ast.SequenceNode); list && len(entries) == 0 {
		r.add(start(n), "a test file has at least one test; write one")
	}
	for _, entry := range entries {
		t := r.test(entry)
		if i := slices.IndexFunc(all, func(other *Test) bool { return other.Name == t.Name }); i >= 0 && t.Name != "" {
			r.addAt(t.Place, "a test is called %s already, at line %d; give this one another name", quote(t.Name), all[i].Line)
		}
		all = append(all, t)
	}
	return all
}

func (r *fileReader) test(n ast.Node) *Test {
	t := &Test{Place: placeOf(start(n)), File: r.File, flow: r.flow, starts: morning}
	given := r.mapping(n, "a test", []field{
		{"name", func(n ast.Node) { t.Name, t.Place = r.some(n, "the test's name"), placeOf(start(n)) }},
		{"starts", func(n ast.Node) { t.starts = r.time(n, "starts") }},
		{"input", func(n ast.Node) { t.input = r.value(n) }},
		{"deadline", func(n ast.Node) { t.deadline = r.duration(n, "deadline", 1) }},
		{"submittedBy", func(n ast.Node) { t.submittedBy = r.some(n, "submittedBy") }},
		{"agents", func(n ast.Node) { t.scripts = r.scripts(n) }},
		{"do", func(n ast.Node) { t.acts = r.acts(n) }},
		{"expect", func(n ast.Node) { t.expect = r.expect(n) }},
	})
	r.require(n, given, "the test", "name", "expect")
	return t
}

func (r *fileReader) time(n ast.Node, what string) time.Time {
	text, ok := r.text(n, what)
	if !ok {
		return morning
	}
	at, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil:
		r.add(start(n), "%s is a time, this is %s; write it as 2026-12-24T18:00:00+01:00", what, quote(text))
	case at.Year() < 1970 || at.Year() > 2999: // so that all that follows has a form in messages
		r.add(start(n), "%s is %s; use a year from 1970 to 2999", what, text)
	default:
		return events.Time(at)
	}
	return morning
}

// works reads a mapping whose keys are steps and undos.
func (r *fileReader) works(n ast.Node, what string, read func(work, ast.Node)) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		r.add(start(n), "%s is a mapping of steps, such as reserve or reserve.undo, this is %s", what, kind(n))
		return
	}
	r.Entries(m, "", "", func(key string, at *token.Token, value ast.Node) {
		var w work
		w.step, w.undo = strings.CutSuffix(key, undoOf)
		r.check(at, w)
		read(w, value)
	})
}

// check reports work that the workflow does not have.
func (r *fileReader) check(at *token.Token, w work) {
	if r.flow == nil {
		return
	}
	var known []string
	for i := range r.flow.Steps {
		s := &r.flow.Steps[i]
		known = append(known, s.Name)
		if s.Undo != "" {
			known = append(known, work{s.Name, true}.String())
		}
	}
	if slices.Contains(known, w.String()) {
		return
	}
	if r.flow.Index(w.step) >= 0 {
		r.add(at, "step %s has no undo", w.step)
		return
	}
	r.add(at, "there is no step %s%s; the workflow has %s", quote(w.step), yamlfile.DidYouMean(w.String(), known), strings.Join(known, ", "))
}

func (r *fileReader) scripts(n ast.Node) (all []*script) {
	r.works(n, "agents", func(w work, n ast.Node) {
		if r.flow != nil {
			if s, found := r.flow.Step(w.step); found && !s.Asks() {
				does := "sleeps"
				switch {
				case s.Listen != nil:
					does = "listens"
				case s.Approve != nil:
					does = "asks people"
				case s.Emit != nil:
					does = "emits"
				case s.Raise != nil:
					does = "raises"
				}
				r.add(start(n), "step %s %s, and asks no agent; remove its answers", w.step, does)
				return
			}
		}
		s := &script{work: w}
		entries := []ast.Node{n}
		if list, ok := n.(*ast.SequenceNode); ok {
			if entries = list.Values; len(entries) == 0 {
				r.add(start(n), "there is no answer; write one, or remove %s", w)
			}
		}
		for _, entry := range entries {
			s.answers = append(s.answers, r.answer(entry))
		}
		all = append(all, s)
	})
	return all
}

func (r *fileReader) answer(n ast.Node) answer {
	a := answer{Place: placeOf(start(n))}
	if scalar(n) {
		a.silent = r.oneOf(n, "an answer in one word", []string{"silent"}) != ""
		return a
	}
	given := r.mapping(n, "an answer", []field{
		{"output", func(n ast.Node) { a.output = r.value(n) }},
		{"fails", func(n ast.Node) { a.fails = r.fault(n) }},
		{"after", func(n ast.Node) { a.after = r.duration(n, "after", 0) }},
	})
	if given["output"] != nil && given["fails"] != nil {
		r.add(given["output"], "what fails has no output; remove this, or \"fails\"")
	}
	return a
}

// fault reads an error: its code, or a mapping.
func (r *fileReader) fault(n ast.Node) *events.Error {
	if scalar(n) {
		return &events.Error{Code: r.some(n, "fails")}
	}
	e := new(events.Error)
	given := r.mapping(n, "an error", []field{
		{"code", func(n ast.Node) { e.Code = r.some(n, "code") }},
		{"message", func(n ast.Node) { e.Message = r.some(n, "message") }},
		{"permanent", func(n ast.Node) { e.Permanent = r.truth(n, "permanent") }},
	})
	r.require(n, given, "the error", "code")
	return e
}

// commands are those that operators can give in a test. What a release is for, a panic, does
// not happen in one.
var commands = []string{events.CommandCancel, events.CommandResubmit, events.CommandSkipStep, events.CommandPause, events.CommandResume, events.CommandTerminate}

func (r *fileReader) acts(n ast.Node) (all []act) {
	for _, entry := range r.list(n, "do") {
		a := act{Place: placeOf(start(entry))}
		c, s := &a.command, &a.signal
		given := r.mapping(entry, "an act", []field{
			{"after", func(n ast.Node) { a.after = r.duration(n, "after", 0) }},
			{"command", func(n ast.Node) { c.Command = r.oneOf(n, "command", commands) }},
			{"decide", func(n ast.Node) { c.Command, c.Outcome = events.CommandDecide, r.some(n, "decide") }},
			{"by", func(n ast.Node) { c.By = r.some(n, "by") }},
			{"roles", func(n ast.Node) { a.roles = r.roles(n) }},
			{"signal", func(n ast.Node) { s.Signal = r.some(n, "signal") }},
			{"id", func(n ast.Node) { s.ID = r.some(n, "id") }},
			{"data", func(n ast.Node) { s.Data = r.value(n) }},
			{"step", func(n ast.Node) {
				c.Step = r.some(n, "step")
				r.check(start(n), work{step: c.Step})
			}},
			{"input", func(n ast.Node) { c.Input = r.value(n) }},
			{"output", func(n ast.Node) { c.Output = r.value(n) }},
			{"sameKey", func(n ast.Node) { c.SameKey = r.truth(n, "sameKey") }},
			{"newKey", func(n ast.Node) { c.NewKey = r.truth(n, "newKey") }},
			{"note", func(n ast.Node) { c.Note = r.some(n, "note") }},
			{"refused", func(n ast.Node) { a.refused = r.some(n, "refused") }},
		})
		switch {
		case given["signal"] != nil:
			r.refuse(given, "signal", "command", "decide", "by", "roles", "step", "input", "output", "sameKey", "newKey", "note")
			if err := decide.CheckSignal(s); err != nil && strings.TrimSpace(s.Signal) != "" {
				r.add(given["signal"], "%v", err)
			}
		case given["decide"] != nil:
			r.refuse(given, "decision", "command", "id", "data", "input", "output", "sameKey", "newKey")
			r.require(entry, given, "the decision", "by", "step")
			if given["roles"] == nil {
				a.roles = r.asked()
			}
		case given["command"] != nil:
			r.refuse(given, "command", "id", "data", "by", "roles")
		case given != nil:
			r.add(start(entry), "the act has no \"command\", no \"decide\" and no \"signal\"; add one")
		}
		all = append(all, a)
	}
	return all
}

// roles reads those in which somebody decides.
func (r *fileReader) roles(n ast.Node) (all []string) {
	all = []string{} // nobody's, where there are none
	for _, entry := range r.list(n, "roles") {
		role := r.some(entry, "a role")
		if err := workflow.CheckRole(role); err != nil && strings.TrimSpace(role) != "" {
			r.add(start(entry), "the role %v", err)
		}
		all = append(all, role)
	}
	return all
}

// asked are the roles that the workflow asks, without those that it asks later.
func (r *fileReader) asked() (all []string) {
	if r.flow == nil {
		return nil
	}
	for i := range r.flow.Steps {
		if a := r.flow.Steps[i].Approve; a != nil {
			all = append(all, a.Roles...)
		}
	}
	return all
}

// refuse reports keys that an act of this kind does not have.
func (r *fileReader) refuse(given map[string]*token.Token, kind string, keys ...string) {
	for _, key := range keys {
		if given[key] != nil {
			r.add(given[key], "a %s has no %q; remove this", kind, key)
		}
	}
}

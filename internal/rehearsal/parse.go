package rehearsal

import (
	"cmp"
	"errors"
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
	others   *workflow.Set // workflows whose orders do steps for real
	starts   time.Time     // when the order is submitted
	input    jsontext.Value
	deadline time.Duration // of the order, as its submission says; 0 for none
	// submittedBy is who submitted it, empty if that is not said.
	submittedBy string
	labels      map[string]string
	startKey    string    // of the signal that starts the order instead of a submission; empty if there is one
	scripts     []*script // as the file has them
	acts        []act
	expect      []check
}

// work is what an agent is asked for, or another order: a step, or its undo. The step of an order
// that does a step has that one's name before its own, and a slash.
type work struct {
	step string
	undo bool
}

// pagesOf follows the name of a step where the pages of its items are meant.
const pagesOf = ".items"

// undoOf follows the name of a step where its undo is meant: names of steps hold no dots.
const undoOf = ".undo"

func (w work) String() string {
	if w.undo {
		return w.step + undoOf
	}
	return w.step
}

// script is how an agent answers what it is asked for, attempt by attempt, or what an order does that
// does a step. The last answer
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
	// progress is how often the agent says meanwhile that it is still at it; 0 is never.
	progress time.Duration
	output   jsontext.Value
	fails    *events.Error // nil where the attempt completes
	// left says that what the order did that does the step was not undone, or not all of it.
	left bool
}

// act is what an operator does, or what the world tells the order.
type act struct {
	Place
	after   time.Duration // since the submission
	child   string        // the step whose order it is about; empty for the test's own
	command events.Command
	signal  events.Signal // instead, if it has a name
	roles   []string      // those of whoever decides; nil for any other act
	refused string        // a part of why it is refused, or changes nothing; empty if it must not be
}

// what names the act.
func (a *act) what() string { return "do: " + cmp.Or(a.signal.Signal, a.command.Command) }

// morning is when orders are submitted where a test does not say.
var morning = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Parse reads a test file, and the workflow file that it names. The file is the name that
// problems are reported under, and from which the workflow is looked for.
//
// The error holds everything that is wrong with both, one file:line:column a line.
func Parse(file string, source []byte) (*File, error) {
	r := &fileReader{others: new(workflow.Set)}
	r.File = file
	f := &File{Name: file}
	body := r.document(source)
	if body == nil {
		return nil, r.Sorted()
	}
	var others, tests ast.Node
	given := r.mapping(body, "a test file", []field{
		{"workflow", func(n ast.Node) { r.flow = r.workflow(n, "workflow") }},
		{"workflows", func(n ast.Node) { others = n }},
		{"tests", func(n ast.Node) { tests = n }},
	})
	r.require(body, given, "the file", "workflow", "tests")
	if others != nil {
		r.workflows(others)
	}
	if tests != nil {
		f.Flow, f.Tests = r.flow, r.tests(tests)
	}
	if err := r.Sorted(); err != nil || len(r.broken) > 0 {
		return nil, errors.Join(append(r.broken, err)...)
	}
	return f, nil
}

type fileReader struct {
	reader
	flow   *workflow.Workflow // nil while it is not known, so that nothing can be said of its steps
	others *workflow.Set      // nil while they are not known
	broken []error            // what is wrong with workflow files
}

// workflows reads the files of others, whose orders do steps.
func (r *fileReader) workflows(n ast.Node) {
	all, entries := []*workflow.Workflow{r.flow}, r.list(n, "workflows")
	for _, entry := range entries {
		all = append(all, r.workflow(entry, "a workflow"))
	}
	if slices.Contains(all, nil) {
		r.others = nil
		return
	}
	if _, err := workflow.Sorted(all, func(w *workflow.Workflow) *workflow.Workflow { return w }); err != nil {
		r.add(start(n), "%v", err)
	}
	for i, flow := range all[1:] {
		if flow.ID() == r.flow.ID() || r.others.Find(flow.Name, flow.Version) != nil {
			r.add(start(entries[i]), "workflow %s stands in another file, too; remove one of them", flow.ID())
		}
		r.others.Add(flow)
	}
}

// workflow reads a workflow file, nil if something is wrong with that.
func (r *fileReader) workflow(n ast.Node, what string) *workflow.Workflow {
	path := r.some(n, what)
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
	flow, err := workflow.Parse(path, source)
	if err != nil {
		r.broken = append(r.broken, err)
	}
	return flow
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
	t := &Test{Place: placeOf(start(n)), File: r.File, flow: r.flow, others: r.others, starts: morning}
	given := r.mapping(n, "a test", []field{
		{"name", func(n ast.Node) { t.Name, t.Place = r.some(n, "the test's name"), placeOf(start(n)) }},
		{"starts", func(n ast.Node) { t.starts = r.time(n, "starts") }},
		{"input", func(n ast.Node) { t.input = r.value(n) }},
		{"startKey", func(n ast.Node) { t.startKey = r.startKey(n) }},
		{"deadline", func(n ast.Node) { t.deadline = r.duration(n, "deadline", 1) }},
		{"submittedBy", func(n ast.Node) { t.submittedBy = r.some(n, "submittedBy") }},
		{"labels", func(n ast.Node) {
			t.labels = r.pairs(n, "labels")
			if err := events.CheckLabels(t.labels); err != nil {
				r.add(start(n), "%v", err)
			}
		}},
		{"agents", func(n ast.Node) { t.scripts = r.scripts(n) }},
		{"do", func(n ast.Node) { t.acts = r.acts(n) }},
		{"expect", func(n ast.Node) { t.expect = r.expect(n) }},
	})
	r.require(n, given, "the test", "name", "expect")
	for _, key := range []string{"deadline", "submittedBy", "labels"} {
		if at := given[key]; at != nil && given["startKey"] != nil {
			r.add(at, "a signal starts the order, which has no %q; remove this, or startKey", key)
		}
	}
	return t
}

// startKey reads the key under which a signal starts the order.
func (r *fileReader) startKey(n ast.Node) string {
	key := r.some(n, "startKey")
	if err := events.CheckSignalKey(key); err != nil && key != "" {
		r.add(start(n), "startKey: %v", err)
	}
	if r.flow != nil && r.flow.Start == nil {
		r.add(start(n), "no signal starts orders of workflow %s, which has no \"start\"; remove this", r.flow.ID())
	}
	return key
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
func (r *fileReader) works(n ast.Node, what string, read func(work, *workflow.Step, ast.Node)) {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		r.add(start(n), "%s is a mapping of steps, such as reserve or reserve.undo, this is %s", what, kind(n))
		return
	}
	r.Entries(m, "", "", func(key string, at *token.Token, value ast.Node) {
		var w work
		w.step, w.undo = strings.CutSuffix(key, undoOf)
		read(w, r.check(at, w), value)
	})
}

// check reports work that the workflow does not have, nor those whose orders do its steps. It returns
// the step, nil where there is none or it is not known.
func (r *fileReader) check(at *token.Token, w work) *workflow.Step {
	flow, of := r.flow, ""
	for flow != nil {
		name, on, nested := strings.Cut(w.step[len(of):], "/")
		if list, is := strings.CutSuffix(name, pagesOf); is && !nested && !w.undo {
			if s, found := r.step(flow, list); found && s.Each != nil && s.Each.Pages != nil {
				return &s.Each.Pages.Steps[0]
			}
		}
		s, found := r.step(flow, itemOf.ReplaceAllString(name, ""))
		if found && s.Each == nil {
			s, found = r.step(flow, name)
		}
		switch {
		case !found || !nested && w.undo && s.Undo == "" && (s.Order == nil || s.Order.Detached) && s.Each == nil:
			r.unknown(at, w, flow, of, found)
			return nil
		case !nested:
			return s
		case s.Each != nil && s.Each.Steps != nil:
			flow = s.Each.Steps
			of += name + "/"
			continue
		case s.Ordered() == nil:
			r.add(at, "no order does step %s%s, so there is no step %s of it", of, name, quote(on))
			return nil
		case r.others == nil:
			return nil
		}
		o := s.Ordered()
		if flow = r.others.Find(o.Workflow, o.Version); flow == nil {
			id := o.Workflow
			if o.Version > 0 {
				id = workflow.ID(id, o.Version)
			}
			r.add(at, "step %s%s is done by an order of workflow %s, of which no file is named; add one to \"workflows\" of the file", of, name, id)
			return nil
		}
		of += name + "/"
	}
	return nil
}

// step is a step of a workflow, or else of another version of it, to which an order may migrate.
func (r *fileReader) step(flow *workflow.Workflow, name string) (*workflow.Step, bool) {
	if s, found := flow.Step(name); found || r.others == nil {
		return s, found
	}
	for _, other := range r.others.All() {
		if s, found := other.Step(name); found && other.Name == flow.Name {
			return s, true
		}
	}
	return nil, false
}

// unknown reports work that a workflow does not have, whose steps have names behind the given one.
func (r *fileReader) unknown(at *token.Token, w work, flow *workflow.Workflow, of string, is bool) {
	var known []string
	for i := range flow.Steps {
		s := &flow.Steps[i]
		known = append(known, of+s.Name)
		if s.Each != nil && s.Each.Pages != nil {
			known = append(known, of+s.Name+pagesOf)
		}
		if s.Undo != "" || s.Order != nil && !s.Order.Detached || s.Each != nil {
			known = append(known, work{of + s.Name, true}.String())
		}
	}
	if is {
		r.add(at, "step %s has no undo", w.step)
		return
	}
	r.add(at, "there is no step %s%s; the workflow has %s", quote(w.step), yamlfile.DidYouMean(w.String(), known), strings.Join(known, ", "))
}

func (r *fileReader) scripts(n ast.Node) (all []*script) {
	r.works(n, "agents", func(w work, of *workflow.Step, n ast.Node) {
		if of != nil && !of.Asks() && of.Order == nil && of.Each == nil && of.Emit == nil {
			does := "sleeps"
			switch {
			case of.Listen != nil:
				does = "listens"
			case of.Approve != nil:
				does = "asks people"
			case of.Raise != nil:
				does = "raises"
			}
			r.add(start(n), "step %s %s, and asks no agent; remove its answers", w.step, does)
			return
		}
		s := &script{work: w}
		entries := []ast.Node{n}
		if list, ok := n.(*ast.SequenceNode); ok {
			if entries = list.Values; len(entries) == 0 {
				r.add(start(n), "there is no answer; write one, or remove %s", w)
			}
		}
		for _, entry := range entries {
			a := r.answer(entry)
			if of != nil && of.Order != nil && of.Order.Detached && a.output != nil {
				r.add(start(entry), "the end of the order that does step %s is not awaited, so it has no output here; remove it", w.step)
			}
			switch {
			case !a.left || of == nil:
			case of.Each == nil && (of.Order == nil || of.Order.Detached):
				r.add(start(entry), "step %s is done by no order whose end is awaited, so that nobody is told what one left; remove \"left\"", w.step)
			case a.fails == nil && !w.undo:
				r.add(start(entry), "an order that is Processed was to do what it did; remove \"left\", or say with \"fails\" how it ends")
			}
			switch {
			case of == nil || of.Emit == nil:
			case a.output != nil || a.after > 0 || a.progress > 0 || a.fails != nil && (a.fails.Code != events.EventRefused || a.fails.Permanent):
				r.add(start(entry), "step %s emits: its topic takes the event ({}), refuses it (fails: %s), or does not answer (silent)", w.step, events.EventRefused)
			}
			if a.progress > 0 && of != nil && !of.Asks() {
				r.add(start(entry), "no agent does step %s, and nobody says that he is still at it; remove \"progress\"", w.step)
			}
			s.answers = append(s.answers, a)
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
		{"progress", func(n ast.Node) { a.progress = r.duration(n, "progress", 1) }},
		{"left", func(n ast.Node) { a.left = r.truth(n, "left") }},
	})
	if at := given["progress"]; at != nil && a.progress >= a.after {
		r.add(at, "the agent answers after %v, and has no time to say that it is still at it; set \"after\" to more than \"progress\"", a.after)
	} else if at != nil && a.after/a.progress > mostTurns {
		r.add(at, "the agent says more than %d times that it is still at it; set \"progress\" to more", mostTurns)
	}
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
var commands = []string{events.CommandCancel, events.CommandResubmit, events.CommandSkipStep, events.CommandPause, events.CommandResume, events.CommandTerminate, events.CommandMigrate}

func (r *fileReader) acts(n ast.Node) (all []act) {
	for _, entry := range r.list(n, "do") {
		a := act{Place: placeOf(start(entry))}
		c, s := &a.command, &a.signal
		var doer *workflow.Step // that does the act's order
		var orderAt, stepAt *token.Token
		given := r.mapping(entry, "an act", []field{
			{"after", func(n ast.Node) { a.after = r.duration(n, "after", 0) }},
			{"command", func(n ast.Node) { c.Command = r.oneOf(n, "command", commands) }},
			{"decide", func(n ast.Node) { c.Command, c.Outcome = events.CommandDecide, r.some(n, "decide") }},
			{"by", func(n ast.Node) { c.By = r.some(n, "by") }},
			{"roles", func(n ast.Node) { a.roles = r.roles(n) }},
			{"signal", func(n ast.Node) { s.Signal = r.some(n, "signal") }},
			{"key", func(n ast.Node) { s.Key = r.some(n, "key") }},
			{"id", func(n ast.Node) { s.ID = r.some(n, "id") }},
			{"data", func(n ast.Node) { s.Data = r.value(n) }},
			{"order", func(n ast.Node) {
				a.child = r.some(n, "order")
				doer, orderAt = r.check(start(n), work{step: a.child}), start(n)
			}},
			{"step", func(n ast.Node) {
				c.Step, stepAt = r.some(n, "step"), start(n)
			}},
			{"input", func(n ast.Node) { c.Input = r.value(n) }},
			{"output", func(n ast.Node) { c.Output = r.value(n) }},
			{"toVersion", func(n ast.Node) { c.ToVersion = r.count(n, "toVersion") }},
			{"map", func(n ast.Node) { c.Map = r.pairs(n, "map") }},
			{"sameKey", func(n ast.Node) { c.SameKey = r.truth(n, "sameKey") }},
			{"newKey", func(n ast.Node) { c.NewKey = r.truth(n, "newKey") }},
			{"note", func(n ast.Node) { c.Note = r.some(n, "note") }},
			{"refused", func(n ast.Node) { a.refused = r.some(n, "refused") }},
		})
		flow := r.flow
		if orderAt != nil && doer != nil {
			if flow = r.flowOf(doer); flow == nil {
				r.add(orderAt, "step %s is done by no order of a workflow whose file is named in \"workflows\"", a.child)
			}
		}
		if stepAt != nil && (orderAt == nil || flow != nil && doer != nil) {
			r.check(stepAt, work{step: strings.TrimPrefix(a.child+"/"+c.Step, "/")})
		}
		switch {
		case given["signal"] != nil:
			r.refuse(given, "signal", "command", "decide", "by", "roles", "step", "input", "output", "toVersion", "map", "sameKey", "newKey", "note")
			if given["key"] != nil {
				r.refuse(given, "signal with a key", "order")
			}
			if err := decide.CheckSignal(s); err != nil && strings.TrimSpace(s.Signal) != "" {
				r.add(given["signal"], "%v", err)
			}
		case given["decide"] != nil:
			r.refuse(given, "decision", "command", "key", "id", "data", "input", "output", "toVersion", "map", "sameKey", "newKey")
			r.require(entry, given, "the decision", "by", "step")
			if given["roles"] == nil {
				a.roles = asked(flow)
			}
		case given["command"] != nil:
			r.refuse(given, "command", "key", "id", "data", "by", "roles")
			r.version(given["toVersion"], flow, c.ToVersion)
		case given != nil:
			r.add(start(entry), "the act has no \"command\", no \"decide\" and no \"signal\"; add one")
		}
		all = append(all, a)
	}
	return all
}

// version reports a version to which an order cannot migrate here, since no file has it.
func (r *fileReader) version(at *token.Token, flow *workflow.Workflow, version int) {
	if at != nil && flow != nil && r.others != nil && version > 0 && version != flow.Version && r.others.Find(flow.Name, version) == nil {
		r.add(at, "no file is named of %s; add one to \"workflows\" of the file", workflow.ID(flow.Name, version))
	}
}

// pairs reads a mapping of texts.
func (r *fileReader) pairs(n ast.Node, what string) map[string]string {
	m, ok := n.(*ast.MappingNode)
	if !ok {
		r.add(start(n), "%s is a mapping of texts, this is %s", what, kind(n))
		return nil
	}
	all := make(map[string]string)
	r.Entries(m, "", "", func(key string, _ *token.Token, value ast.Node) {
		if text, ok := r.text(value, key); ok {
			all[key] = text
		}
	})
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

// flowOf is the workflow of the order that does a step for real; nil if none does.
func (r *fileReader) flowOf(s *workflow.Step) *workflow.Workflow {
	if s.Order == nil || r.others == nil {
		return nil
	}
	return r.others.Find(s.Order.Workflow, s.Order.Version)
}

// asked are the roles that a workflow asks, without those that it asks later.
func asked(flow *workflow.Workflow) (all []string) {
	if flow == nil {
		return nil
	}
	for i := range flow.Steps {
		if a := flow.Steps[i].Approve; a != nil {
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

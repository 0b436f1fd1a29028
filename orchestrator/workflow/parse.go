package workflow

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/events"
)

// maxSteps is how many steps a workflow may have.
const maxSteps = 1000

// longest is the longest duration that a file may ask for, a year.
const longest = 8760 * time.Hour

// Parse reads a definition in YAML or JSON. The file is the name that problems
// are reported under; nothing is opened.
//
// The error is [Errors], and holds everything that is wrong with the file (at
// most 100 problems). A file that is not even YAML, or uses what the language
// leaves out, is refused at the first such place.
func Parse(file string, source []byte) (*Workflow, error) {
	return parseFile(file, source, false)
}

// Registered is [Parse] for a definition that is registered: what is refused of files since then
// counts there as it did.
func Registered(file string, source []byte) (*Workflow, error) {
	return parseFile(file, source, true)
}

func parseFile(file string, source []byte, registered bool) (*Workflow, error) {
	body, broken := read(file, source)
	if broken != nil {
		return nil, Errors{*broken}
	}
	r := &reader{registered: registered}
	r.File = file
	w := r.workflow(body)
	if errs := r.sorted(); errs != nil {
		return nil, errs
	}
	if canonical, err := w.MarshalJSON(); err != nil || len(canonical) > MaxSource {
		r.add(nil, "the workflow has %d bytes with its defaults spelled out; at most %d are allowed: use fewer steps or shorter names", len(canonical), MaxSource)
		return nil, r.sorted()
	}
	return w, nil
}

// reader turns the document into a workflow. A value that is wrong is reported
// and its default used in its place, so that the rest can be checked.
type reader struct {
	problems
	registered bool
	inside     bool   // whether the steps do an item of another
	constants  Shared // what expressions that are the same for all orders cost
}

// draft is a step before its predecessors are resolved.
type draft struct {
	Step
	at    *token.Token // its name, or where it starts when it has none
	after []reference
	chain bool // whether it has no `after`, and so follows the step above

	when, with, undoWith, lasts, until, enough, message, show, key, data, items, listed, turns *scalar // expressions that are not compiled yet
}

// reference is a name in an `after`.
type reference struct {
	name string
	at   *token.Token
}

func (r *reader) workflow(body ast.Node) *Workflow {
	w := &Workflow{Version: 1, Overdue: ExhaustedError}
	var drafts []draft
	var search []marked
	var startKey, openKey *scalar
	given := r.mapping(body, "a workflow", []field{
		{"workflow", func(n ast.Node) { w.Name, _ = r.checked(n, "the workflow's name", checkName) }},
		{"version", func(n ast.Node) { r.whole(n, "version", math.MaxInt32, &w.Version) }},
		{"deadline", func(n ast.Node) { r.duration(n, "deadline", 1, &w.Deadline) }},
		{"keep", func(n ast.Node) { r.keep(n, w) }},
		{"overdue", func(n ast.Node) { w.Overdue = r.oneOf(n, "overdue", overdueValues) }},
		{"start", func(n ast.Node) { w.Start, startKey = r.start(n) }},
		{"concurrency", func(n ast.Node) { w.Concurrency, openKey = r.concurrency(n) }},
		{"input", func(n ast.Node) { w.Input = r.schema(n) }},
		{"search", func(n ast.Node) { search = r.search(n) }},
		{"steps", func(n ast.Node) { drafts = r.steps(n) }},
	})
	r.require(body, given, "the file", "workflow", "steps")
	graph := r.resolve(drafts)
	r.expressions(drafts, graph)
	w.Search = r.compiled(search)
	ofInput := &sight{r: r, drafts: make([]draft, 1), searches: true}
	if startKey != nil {
		w.Start.Key = ofInput.expression(startKey)
	}
	if openKey != nil {
		w.Concurrency.Key = ofInput.expression(openKey)
	}
	for i := range drafts {
		w.Steps = append(w.Steps, drafts[i].Step)
	}
	w.nameInner()
	return w
}

func (r *reader) steps(n ast.Node) []draft {
	entries, ok := r.list(n, "steps")
	if !ok {
		return nil
	}
	if len(entries) == 0 {
		r.add(start(n), "a workflow has at least one step; write one")
	}
	if len(entries) > maxSteps {
		// Reading only the first ones would find names missing that are there.
		r.add(start(entries[maxSteps]), "a workflow has at most %d steps, this one has %d; split it", maxSteps, len(entries))
		return nil
	}
	drafts := make([]draft, len(entries))
	for i, entry := range entries {
		drafts[i] = r.step(entry)
	}
	return drafts
}

// initial is a step of which the file says nothing.
func initial() Step {
	return Step{
		Timeout:   30 * time.Second,
		Retry:     Retry{Attempts: 3, Backoff: time.Second, Multiplier: 2, Max: 30 * time.Second},
		Exhausted: ExhaustedError,
	}
}

func (r *reader) step(n ast.Node) draft {
	d := draft{at: start(n), chain: true, Step: initial()}
	if r.inside { // what failed is done anew as a whole
		d.Exhausted = ExhaustedCompensate
	}
	var wait ast.Node
	given := r.mapping(n, "a step", []field{
		{"name", func(n ast.Node) { d.Name, d.at = r.checked(n, "the step's name", checkName) }},
		{"sleep", func(n ast.Node) { r.sleep(n, &d) }},
		{"listen", func(n ast.Node) { r.listen(n, &d) }},
		{"key", func(n ast.Node) { d.key = r.scalar(n, "key", "key: 'input.reference'") }},
		{"approve", func(n ast.Node) { r.approve(n, &d) }},
		{"order", func(n ast.Node) { r.order(n, &d) }},
		{"each", func(n ast.Node) { r.each(n, &d) }},
		{"emit", func(n ast.Node) { r.emit(n, &d) }},
		{"raise", func(n ast.Node) { r.raise(n, &d) }},
		{"agent", func(n ast.Node) { d.Agent, _ = r.checked(n, "the agent's name", CheckAgent) }},
		{"do", func(n ast.Node) { d.Do, _ = r.checked(n, "do", checkOperation) }},
		{"undo", func(n ast.Node) { d.Undo, _ = r.checked(n, "undo", checkOperation) }},
		{"after", func(n ast.Node) { d.after, d.chain = r.after(n), false }},
		{"when", func(n ast.Node) { d.when = r.scalar(n, "when", "when: 'input.total > 100'") }},
		{"with", func(n ast.Node) { d.with = r.scalar(n, "with", "with: '{\"amount\": input.total}'") }},
		{"undoWith", func(n ast.Node) { d.undoWith = r.scalar(n, "undoWith", "undoWith: 'steps.charge.output'") }},
		{"timeout", func(n ast.Node) { r.timeout(n, &d.Step) }},
		{"queue", func(n ast.Node) { r.duration(n, "queue", 1, &d.Queue) }},
		{"limit", func(n ast.Node) { r.limit(n, &d) }},
		{"retry", func(n ast.Node) { r.retry(n, &d.Retry) }},
		{"repeat", func(n ast.Node) { r.repeat(n, &d) }},
		{"exhausted", func(n ast.Node) { d.Exhausted = r.oneOf(n, "exhausted", exhaustedValues) }},
		{"wait", func(n ast.Node) { wait = n }},
	})
	r.require(n, given, "the step", "name")
	if at := given["key"]; at != nil && d.Listen == nil {
		r.add(at, "a key is that under which a step hears signals; write it beside \"listen\", or remove it")
		d.key = nil
	}
	switch {
	case d.Raise != nil:
		return r.raises(given, d)
	case d.Sleep != nil:
		return r.asleep(given, d)
	case d.Listen != nil:
		return r.listening(given, d)
	case d.Approve != nil:
		return r.approving(given, d)
	case d.Order != nil:
		return r.ordering(given, d)
	case d.Each != nil:
		return r.itemized(given, d)
	case d.Emit != nil:
		return r.emitting(given, d, wait)
	case given != nil && given["agent"] == nil:
		r.add(start(n), "the step has no \"agent\", no \"sleep\", no \"listen\", no \"approve\", no \"order\", no \"each\", no \"emit\" and no \"raise\"; add one")
	}
	if given["do"] == nil {
		d.Do = d.Name
	}
	if given["undoWith"] != nil && given["undo"] == nil {
		r.add(given["undoWith"], "undoWith has no effect here; write \"undo\" beside it, or remove it")
	}
	if given["repeat"] != nil && given["undo"] != nil {
		r.add(given["undo"], "a step that is repeated cannot be undone; remove \"undo\", or leave what is to be undone to another step")
	}
	if d.Exhausted == ExhaustedContinue && given["queue"] == nil {
		d.Queue = time.Minute // what the order can do without does not hold it up
	}
	r.pauses(given, &d, wait)
	return d
}

// pauses reads how a step goes on whose attempts begin again after a pause.
func (r *reader) pauses(given map[string]*token.Token, d *draft, wait ast.Node) {
	if d.Exhausted == ExhaustedWait {
		d.Wait = Wait{For: 10 * time.Minute, Rounds: 3}
	}
	if wait == nil {
		return
	}
	r.wait(wait, &d.Wait)
	if d.Exhausted != ExhaustedWait && d.Exhausted != "" {
		r.add(given["wait"], "wait has no effect here; write \"exhausted: wait\" beside it, or remove it")
	}
}

// kinds are the keys of which a step has one at most; without one it asks an agent.
var kinds = []string{"raise", "sleep", "listen", "approve", "order", "each", "emit"}

// ofAgents are the keys of steps that ask an agent.
var ofAgents = []string{"agent", "do", "undo", "with", "undoWith", "timeout", "queue", "limit", "retry", "repeat", "exhausted", "wait"}

// asleep is a step that sleeps: what is said of an operation has no effect there.
func (r *reader) asleep(given map[string]*token.Token, d draft) draft {
	r.only(given, "sleep", "a step that sleeps asks nobody")
	d.Step = Step{Name: d.Name, Sleep: d.Sleep}
	d.with, d.undoWith, d.enough = nil, nil, nil
	return d
}

// only reports what a step of a kind cannot have beside it.
func (r *reader) only(given map[string]*token.Token, kind, what string, but ...string) {
	for _, key := range slices.Concat(kinds, ofAgents) {
		if at := given[key]; at != nil && key != kind && !slices.Contains(but, key) {
			r.add(at, "%s, so it has no %q; remove it, or the %q", what, key, kind)
		}
	}
}

func (r *reader) after(n ast.Node) []reference {
	entries, ok := r.list(n, "after")
	if !ok {
		return nil
	}
	var names []reference
	for _, entry := range entries {
		name, at, ok := r.text(entry, "a step's name")
		if !ok {
			continue
		}
		names = append(names, reference{name, at})
	}
	return names
}

func (r *reader) retry(n ast.Node, retry *Retry) {
	backoff, most := true, true
	given := r.mapping(n, "retry", []field{
		{"attempts", func(n ast.Node) { r.whole(n, "attempts", 1000, &retry.Attempts) }},
		{"backoff", func(n ast.Node) { backoff = r.duration(n, "backoff", 0, &retry.Backoff) }},
		{"multiplier", func(n ast.Node) { r.number(n, "multiplier", 1, 100, &retry.Multiplier) }},
		{"max", func(n ast.Node) { most = r.duration(n, "max", 0, &retry.Max) }},
		{"jitter", func(n ast.Node) { r.number(n, "jitter", 0, 1, &retry.Jitter) }},
		{"never", func(n ast.Node) { retry.Never = r.codes(n, "never", &retry.AtOnce) }},
		{"atOnce", func(n ast.Node) { retry.AtOnce = r.codes(n, "atOnce", &retry.Never) }},
	})
	// A value that could not be read has been reported already.
	if backoff && most && retry.Max < retry.Backoff {
		at := given["max"]
		if at == nil {
			at = given["backoff"]
		}
		r.add(at, "max is %v, less than backoff, which is %v; no back-off exceeds max, so raise it", retry.Max, retry.Backoff)
	}
}

// maxCodes is how many codes of errors a list may have.
const maxCodes = 100

// codes reads a list of codes of errors, none of which is in the other list.
func (r *reader) codes(n ast.Node, what string, other *[]string) (codes []string) {
	entries, ok := r.list(n, what)
	if !ok {
		return nil
	}
	if len(entries) > maxCodes {
		r.add(start(entries[maxCodes]), "%s has %d codes; at most %d are allowed", what, len(entries), maxCodes)
		return nil
	}
	for _, entry := range entries {
		code, at := r.checked(entry, "the code of an error", checkCode)
		switch {
		case code == "": // which has been reported
		case slices.Contains(codes, code):
			r.add(at, "the code %s is named twice in this list; remove one", quote(code))
		case slices.Contains(*other, code):
			r.add(at, "the code %s is in never and in atOnce; remove one", quote(code))
		default:
			codes = append(codes, code)
		}
	}
	slices.Sort(codes) // so that files that mean the same have the same canonical form
	return codes
}

var (
	exhaustedValues = []string{string(ExhaustedError), string(ExhaustedCompensate), string(ExhaustedWait), string(ExhaustedContinue)}
	overdueValues   = exhaustedValues[:2]
	conflictValues  = []string{string(events.ConflictQueue), string(events.ConflictReject), string(events.ConflictCancelOther)}
)

// oneOf returns "" when the value is not one of those allowed.
func (r *reader) oneOf(n ast.Node, what string, allowed []string) Exhausted {
	value, at, ok := r.text(n, what)
	if !ok {
		return ""
	}
	if !slices.Contains(allowed, value) {
		last := len(allowed) - 1
		r.add(at, "%s is %s; write %s or %s%s", what, quote(value), strings.Join(allowed[:last], ", "), allowed[last], didYouMean(value, allowed))
		return ""
	}
	return Exhausted(value)
}

// keep reads for how long an order is known after its end.
func (r *reader) keep(n ast.Node, w *Workflow) {
	if r.duration(n, "keep", 1, &w.Keep) && w.Keep%time.Second != 0 {
		r.add(start(n), "keep is %v; write whole seconds", w.Keep)
	}
}

// timeout reads how long an attempt may take: a duration, or a mapping that says how long after
// each sign of its agent, too.
func (r *reader) timeout(n ast.Node, s *Step) {
	if _, ok := n.(*ast.MappingNode); !ok {
		r.duration(n, "timeout", 1, &s.Timeout)
		return
	}
	after, most := true, true
	given := r.mapping(n, "timeout", []field{
		{"after", func(n ast.Node) { after = r.duration(n, "after", 1, &s.Timeout) }},
		{"max", func(n ast.Node) { most = r.duration(n, "max", 1, &s.TimeoutMax) }},
	})
	r.require(n, given, "timeout", "max")
	if at := given["max"]; at != nil && after && most && s.TimeoutMax-s.Timeout < s.Timeout/4 {
		r.add(at, "max is %v, and after is %v; a complete-by is moved by a quarter of after at least, so raise max, or write timeout: %v", s.TimeoutMax, s.Timeout, s.Timeout)
	}
}

func (r *reader) wait(n ast.Node, wait *Wait) {
	r.mapping(n, "wait", []field{
		{"for", func(n ast.Node) { r.duration(n, "for", 1, &wait.For) }},
		{"rounds", func(n ast.Node) { r.whole(n, "rounds", 1000, &wait.Rounds) }},
	})
}

func (r *reader) repeat(n ast.Node, d *draft) {
	d.Repeat = &Repeat{Every: 10 * time.Second, Max: 100}
	given := r.mapping(n, "repeat", []field{
		{"until", func(n ast.Node) { d.enough = r.scalar(n, "until", "until: 'steps.poll.output.ready'") }},
		{"every", func(n ast.Node) { r.duration(n, "every", 1, &d.Repeat.Every) }},
		{"max", func(n ast.Node) { r.whole(n, "max", 1000, &d.Repeat.Max) }},
	})
	r.require(n, given, "repeat", "until")
}

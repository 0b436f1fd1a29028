package workflow

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/events"
)

// Each has a step be done for each item of a list, by an order for each, whose input the item is.
type Each struct {
	Items *Expression // a list of at most 100,000; nil if an agent lists the items
	// Pages is nil unless an agent lists the items, page by page. It has one step, which asks for a page, and the
	// name of this workflow and of the step. With is what the agent gets beside the cursor, nil for the input of
	// the order.
	Pages *Workflow
	With  *Expression
	// Order is of the workflow that does an item: one that is registered, or Steps, which have the name of
	// this workflow and of the step.
	Order Order
	Steps *Workflow // nil unless the file has them
	// AtOnce is how many items are under way at a time, at most; 1 to 1000.
	AtOnce int
	// Tolerate is how many items may fail, and TolerateShare how many of a hundred; one of them is 0.
	Tolerate, TolerateShare int
	Finish                  bool // the others are done, too, once more failed than may
}

// Tolerates is how many of so many items may fail.
func (e *Each) Tolerates(items int) int { return e.Tolerate + e.TolerateShare*items/100 }

// List evaluates what the step is done for: JSON, a list of at most [events.MaxItems].
//
// The error says why the expression failed, in at most 1 KiB.
func (e *Each) List(s Scope) (jsontext.Value, error) { return e.Items.Value(s) }

// pages follows the name of a step in that of the workflow whose orders ask for the pages of its items.
const pages = ":pages"

// Inner separates the name of a workflow from that of its step whose items the inner one does. No
// workflow that is registered has it in its name.
const Inner = "/"

// What a step is to do once more of its items failed than may.
const (
	onFailureStop   = "stop"
	onFailureFinish = "finish"
)

// each reads what a step is done for, and how.
func (r *reader) each(n ast.Node, d *draft) {
	e := &Each{AtOnce: 10}
	d.Each = e
	given := r.mapping(n, "each", []field{
		{"items", func(n ast.Node) { r.items(n, d) }},
		{"order", func(n ast.Node) { r.itemOrder(n, e) }},
		{"steps", func(n ast.Node) { e.Steps = r.inner(n) }},
		{"atOnce", func(n ast.Node) { r.whole(n, "atOnce", events.MaxAtOnce, &e.AtOnce) }},
		{"tolerate", func(n ast.Node) { r.tolerate(n, e) }},
		{"onFailure", func(n ast.Node) {
			e.Finish = r.oneOf(n, "onFailure", []string{onFailureStop, onFailureFinish}) == onFailureFinish
		}},
	})
	r.require(n, given, "each", "items")
	switch order, steps := given["order"], given["steps"]; {
	case given == nil:
	case order == nil && steps == nil:
		r.add(start(n), "each has no \"order\" and no \"steps\"; add one: a workflow whose order does an item, or the steps that do")
	case order != nil && steps != nil:
		r.add(steps, "the order of another workflow does an item, or steps do; remove \"order\" or \"steps\"")
	}
}

// items reads for what a step is done: an expression that is a list, or a mapping that says which agent lists the
// items, page by page.
func (r *reader) items(n ast.Node, d *draft) {
	if _, ok := n.(*ast.MappingNode); !ok {
		d.items = r.scalar(n, "items", "items: 'input.rows'")
		return
	}
	s := initial()
	s.Name, s.Exhausted = "page", ExhaustedCompensate
	given := r.mapping(n, "items", []field{
		{"agent", func(n ast.Node) { s.Agent, _ = r.checked(n, "the agent's name", CheckAgent) }},
		{"do", func(n ast.Node) { s.Do, _ = r.checked(n, "do", checkWord) }},
		{"with", func(n ast.Node) { d.listed = r.scalar(n, "with", "with: '{\"since\": input.since}'") }},
		{"timeout", func(n ast.Node) { r.timeout(n, &s) }},
		{"queue", func(n ast.Node) { r.duration(n, "queue", 1, &s.Queue) }},
		{"limit", func(n ast.Node) { s.Limit = &Limit{Name: r.limitName(n)} }},
		{"retry", func(n ast.Node) { r.retry(n, &s.Retry) }},
	})
	r.require(n, given, "items", "agent", "do")
	d.Each.Pages = &Workflow{Overdue: ExhaustedCompensate, Steps: []Step{s}}
}

// itemOrder reads of which workflow the orders are that do the items: its name, or a mapping.
func (r *reader) itemOrder(n ast.Node, e *Each) {
	if _, ok := n.(*ast.MappingNode); !ok {
		e.Order.Workflow, _ = r.checked(n, "the workflow's name", checkName)
		return
	}
	given := r.mapping(n, "order", []field{
		{"workflow", func(n ast.Node) { e.Order.Workflow, _ = r.checked(n, "the workflow's name", checkName) }},
		{"version", func(n ast.Node) { r.whole(n, "version", math.MaxInt32, &e.Order.Version) }},
	})
	r.require(n, given, "order", "workflow")
}

// inner reads steps that do an item. They see the item as their input, and nothing else of the order. One of
// them that has nothing left to try fails the item, of which all is undone, where the file says nothing else; so does the
// deadline of the order: it is done anew as a whole.
func (r *reader) inner(n ast.Node) *Workflow {
	defer func(was bool) { r.inside = was }(r.inside)
	r.inside = true
	drafts := r.steps(n)
	r.expressions(drafts, r.resolve(drafts))
	w := &Workflow{Overdue: ExhaustedCompensate}
	for i := range drafts {
		w.Steps = append(w.Steps, drafts[i].Step)
	}
	return w
}

// tolerate reads how many items may fail: a number, or a share of all.
func (r *reader) tolerate(n ast.Node, e *Each) {
	const want = "a whole number from 0 to 100000, or a share from 0%% to 100%%"
	at := start(n)
	text := ""
	if _, ok := n.(ast.ScalarNode); ok {
		text = strings.TrimSpace(at.Value)
	}
	number, share := strings.CutSuffix(text, "%")
	count, err := strconv.Atoi(number)
	switch {
	case err != nil || strconv.Itoa(count) != number || count < 0 || share && count > 100 || count > events.MaxItems:
		r.add(at, "tolerate is "+want+", this is %s", quote(clip(at.Value, 100)))
	case share:
		e.TolerateShare = count
	default:
		e.Tolerate = count
	}
}

// itemized is a step that is done for each item. It has what one has that another order does, but for
// its input, which are the items.
func (r *reader) itemized(given map[string]*token.Token, d draft) draft {
	r.only(given, "each", "a step that orders do, one for each item, asks no agent itself", "timeout", "exhausted")
	timeout := r.patience(given, &d, "orders say nothing from time to time")
	if d.Exhausted == ExhaustedWait {
		r.add(given["exhausted"], "exhausted is wait, and items that failed are not tried again by themselves; write error, compensate or continue")
	}
	d.Step = Step{Name: d.Name, Each: d.Each, Timeout: timeout, Retry: Retry{Attempts: 1}, Exhausted: d.Exhausted}
	d.with, d.undoWith, d.enough = nil, nil, nil
	return d
}

// nameInner gives the steps that do items, and those that ask for them, the name and the version under which they
// are found.
func (w *Workflow) nameInner() {
	for i := range w.Steps {
		if e := w.Steps[i].Each; e != nil && e.Pages != nil {
			e.Pages.Name, e.Pages.Version = w.Name+Inner+w.Steps[i].Name+pages, w.Version
		}
		if e := w.Steps[i].Each; e != nil && e.Steps != nil {
			e.Steps.Name, e.Steps.Version = w.Name+Inner+w.Steps[i].Name, w.Version
			e.Order = Order{Workflow: e.Steps.Name, Version: w.Version}
			e.Steps.nameInner()
		}
	}
}

// inners calls tell with the workflow, and with all that ask for the items of its steps, or do them.
func (w *Workflow) inners(tell func(*Workflow)) {
	tell(w)
	for i := range w.Steps {
		if e := w.Steps[i].Each; e != nil && e.Pages != nil {
			tell(e.Pages)
		}
		if e := w.Steps[i].Each; e != nil && e.Steps != nil {
			e.Steps.inners(tell)
		}
	}
}

// Names are the workflow's name, and those under which what it does with items is known.
func (w *Workflow) Names() (names []string) {
	w.inners(func(w *Workflow) { names = append(names, w.Name) })
	return names
}

// limited says that steps that do an item, or ask for a page, are under a limit.
func (e *Each) limited() bool {
	for _, w := range []*Workflow{e.Pages, e.Steps} {
		if w != nil && w.Level() >= 7 {
			return true
		}
	}
	return false
}

// inner finds steps of a workflow in the set that do items, or that ask for them, nil if there are none of this name.
func (s *Set) inner(name string, version int) *Workflow {
	name, asks := strings.CutSuffix(name, pages)
	i := strings.LastIndex(name, Inner)
	if i < 0 || version == 0 {
		return nil
	}
	outer := s.Find(name[:i], version)
	if outer == nil {
		return nil
	}
	step, ok := outer.Step(name[i+1:])
	switch {
	case !ok || step.Each == nil:
		return nil
	case asks:
		return step.Each.Pages
	}
	return step.Each.Steps
}

type canonicalEach struct {
	Items     any             `json:"items"` // an expression, or canonicalPages
	Order     *canonicalItems `json:"order,omitempty"`
	Steps     []canonicalStep `json:"steps,omitempty"`
	AtOnce    int             `json:"atOnce"`
	Tolerate  any             `json:"tolerate"`
	OnFailure string          `json:"onFailure"`
}

type canonicalPages struct {
	Agent   string          `json:"agent"`
	Do      string          `json:"do"`
	With    *Expression     `json:"with,omitempty"`
	Timeout any             `json:"timeout"`
	Queue   *duration       `json:"queue,omitempty"`
	Limit   string          `json:"limit,omitempty"`
	Retry   *canonicalRetry `json:"retry"`
}

type canonicalItems struct {
	Workflow string `json:"workflow"`
	Version  int    `json:"version,omitempty"`
}

func (e *Each) canonical() *canonicalEach {
	c := &canonicalEach{Items: e.Items, AtOnce: e.AtOnce, Tolerate: e.Tolerate, OnFailure: onFailureStop}
	if e.Pages != nil {
		asks := canonicalSteps(e.Pages.Steps)[0]
		limit := ""
		if asks.Limit != nil {
			limit = asks.Limit.Name
		}
		c.Items = canonicalPages{asks.Agent, asks.Do, e.With, asks.Timeout, asks.Queue, limit, asks.Retry}
	}
	if e.TolerateShare > 0 {
		c.Tolerate = fmt.Sprintf("%d%%", e.TolerateShare)
	}
	if e.Finish {
		c.OnFailure = onFailureFinish
	}
	if e.Steps != nil {
		c.Steps = canonicalSteps(e.Steps.Steps)
	} else {
		c.Order = &canonicalItems{e.Order.Workflow, e.Order.Version}
	}
	return c
}

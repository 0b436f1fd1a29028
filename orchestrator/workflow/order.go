package workflow

import (
	"fmt"
	"math"
	"slices"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/waybill-dev/waybill/events"
)

// Order is the order of another workflow that does a step.
type Order struct {
	Workflow string
	Version  int    // 0 takes the newest that there was when the order began whose step it does
	Detached bool   // its end is not waited for, and it is not undone with the rest
	ReplyTo  string // topic for its status messages; "" for none
}

// order reads which order does a step: the name of its workflow, or a mapping.
func (r *reader) order(n ast.Node, d *draft) {
	d.Order = new(Order)
	o, await := d.Order, true
	if _, ok := n.(*ast.MappingNode); !ok {
		o.Workflow, _ = r.checked(n, "the workflow's name", checkName)
		return
	}
	given := r.mapping(n, "order", []field{
		{"workflow", func(n ast.Node) { o.Workflow, _ = r.checked(n, "the workflow's name", checkName) }},
		{"version", func(n ast.Node) { r.whole(n, "version", math.MaxInt32, &o.Version) }},
		{"await", func(n ast.Node) { r.truth(n, "await", &await) }},
		{"replyTo", func(n ast.Node) { o.ReplyTo, _ = r.checked(n, "replyTo", checkReplyTo) }},
	})
	o.Detached = !await
	r.require(n, given, "order", "workflow")
}

func checkReplyTo(topic string) error {
	if !events.ValidTopic(topic) {
		return fmt.Errorf("%s cannot be the name of a topic", quote(topic))
	}
	return nil
}

// ordering is a step that another order does. It has what a step has that asks an agent, but for what
// is about attempts: the other order has its own.
func (r *reader) ordering(given map[string]*token.Token, d draft) draft {
	r.only(given, "order", "a step that another order does asks no agent", "with", "timeout", "exhausted")
	timeout := r.patience(given, &d, "an order says nothing from time to time")
	if d.Exhausted == ExhaustedWait {
		r.add(given["exhausted"], "exhausted is wait, and a step that another order does is not tried again; write error, compensate or continue")
	}
	if d.Order.Detached && given["timeout"] != nil {
		r.add(given["timeout"], "timeout has no effect here: the end of the order is not waited for; remove it, or \"await\"")
	}
	d.Step = Step{Name: d.Name, Order: d.Order, Timeout: timeout, Retry: Retry{Attempts: 1}, Exhausted: d.Exhausted}
	d.undoWith, d.enough = nil, nil
	return d
}

// ReplyTopics are those to which orders that do steps of the workflow, or of items of them, tell their status,
// where the file names one.
func (w *Workflow) ReplyTopics() (topics []string) {
	w.inners(func(w *Workflow) {
		for i := range w.Steps {
			if o := w.Steps[i].Order; o != nil && o.ReplyTo != "" {
				topics = append(topics, o.ReplyTo)
			}
		}
	})
	return topics
}

// Children are the workflows whose orders do steps of this one, or items of them, each once, by name and
// version. Of steps that do items they are those of the steps.
func (w *Workflow) Children() (all []Order) {
	w.inners(func(w *Workflow) {
		for _, child := range w.Ordered() {
			if !slices.Contains(all, child) {
				all = append(all, child)
			}
		}
	})
	return all
}

// Ordered are of Children those that steps of the workflow itself order, in the order of the file.
func (w *Workflow) Ordered() (all []Order) {
	for i := range w.Steps {
		if o := w.Steps[i].Ordered(); o != nil {
			all = append(all, Order{Workflow: o.Workflow, Version: o.Version})
		}
	}
	return all
}

// Ordered is of which workflow the orders are that do the step, or its items, nil if none does, or the
// file has the steps that do.
func (s *Step) Ordered() *Order {
	switch {
	case s.Each != nil && s.Each.Steps == nil:
		return &s.Each.Order
	case s.Each != nil:
		return nil
	}
	return s.Order
}

package workflow

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
)

// Start is the signal under a key that starts an order: its data are the order's input.
type Start struct {
	Signal string // the signal's name
	// Key is what the key must be, a text or a number that follows from the input alone; nil if it may be
	// any.
	Key *Expression
}

// Fits says why a signal under a key cannot start an order with an input, nil if it can.
func (s *Start) Fits(key string, input Scope) error {
	if s == nil || s.Key == nil {
		return nil
	}
	switch want, err := s.Key.keyOf(input); {
	case err != nil:
		return err
	case want != key:
		return fmt.Errorf("the signal came under the key %s, and by start.key, %s, its data are of the key %s; send it under that", quote(key), s.Key, quote(want))
	}
	return nil
}

// start reads which signal starts an order: its name, or a mapping that says under which key, too.
func (r *reader) start(n ast.Node) (*Start, *scalar) {
	s := new(Start)
	m, ok := n.(*ast.MappingNode)
	if !ok {
		s.Signal, _ = r.checked(n, "the signal's name", CheckSignal)
		return s, nil
	}
	var key *scalar
	given := r.mapping(m, "start", []field{
		{"signal", func(n ast.Node) { s.Signal, _ = r.checked(n, "the signal's name", CheckSignal) }},
		{"key", func(n ast.Node) { key = r.scalar(n, "start.key", "key: input.reference") }},
	})
	r.require(m, given, "start", "signal")
	return s, key
}

// Starts is the workflow whose orders a signal of a name starts, in its newest version that is not retired; nil
// if there is none. Of several, which registration keeps from being, it is the first by name.
func (s *Set) Starts(signal string) *Workflow {
	if s.starts == nil {
		s.starts = make(map[string]*Workflow)
		for _, flow := range s.newest {
			if flow.Start == nil {
				continue
			}
			if other := s.starts[flow.Start.Signal]; other == nil || flow.Name < other.Name {
				s.starts[flow.Start.Signal] = flow
			}
		}
	}
	return s.starts[signal]
}

// shares says why a definition cannot have its signal start orders: one of another name has.
func (s *Set) shares(flow *Workflow) error {
	if flow.Start == nil {
		return nil
	}
	for _, other := range s.newest {
		if other.Name != flow.Name && other.Start != nil && other.Start.Signal == flow.Start.Signal {
			return against(fmt.Sprintf("signal %s starts orders of workflow %s already, and a signal starts one; retire that, or name another signal", flow.Start.Signal, other.ID()))
		}
	}
	return nil
}

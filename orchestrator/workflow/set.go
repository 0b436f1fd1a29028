package workflow

import (
	"cmp"
	"maps"
	"slices"
)

// Set holds definitions that never change once they are in it. The zero value is
// empty. It is not safe for concurrent use.
type Set struct {
	flows  map[string]*Workflow // by ID
	newest map[string]*Workflow // by name
	agents []string
}

// Add adds a definition, unless the set has that version.
func (s *Set) Add(flow *Workflow) {
	if s.flows == nil {
		s.flows, s.newest = make(map[string]*Workflow), make(map[string]*Workflow)
	}
	if s.flows[flow.ID()] != nil {
		return
	}
	s.flows[flow.ID()] = flow
	if n := s.newest[flow.Name]; n == nil || n.Version < flow.Version {
		s.newest[flow.Name] = flow
	}
	for _, agent := range flow.Agents() {
		if !slices.Contains(s.agents, agent) {
			s.agents = append(s.agents, agent)
		}
	}
}

// Find returns a definition, version 0 meaning the newest; nil if there is none.
func (s *Set) Find(name string, version int) *Workflow {
	if n := s.newest[name]; version == 0 || n != nil && n.Version == version {
		return n
	}
	return s.flows[ID(name, version)]
}

// All returns the definitions, by name and version.
func (s *Set) All() []*Workflow {
	return slices.SortedFunc(maps.Values(s.flows), func(a, b *Workflow) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
}

// Agents returns the agents that some definition names, each once.
func (s *Set) Agents() []string { return slices.Clone(s.agents) }

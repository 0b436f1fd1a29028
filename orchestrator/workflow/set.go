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
	newest map[string]*Workflow // by name, of those that are not retired
	// retired are the ids of versions with which nothing begins any more.
	retired map[string]bool
	agents  []string
	starts  map[string]*Workflow // whose orders a signal starts, by its name; nil while that is not known
}

// Add adds a definition, unless the set has that version.
func (s *Set) Add(flow *Workflow) {
	if s.flows == nil {
		s.flows, s.newest = make(map[string]*Workflow), make(map[string]*Workflow)
	}
	if s.flows[flow.ID()] != nil {
		return
	}
	s.flows[flow.ID()], s.starts = flow, nil
	if n := s.newest[flow.Name]; !s.retired[flow.ID()] && (n == nil || n.Version < flow.Version) {
		s.newest[flow.Name] = flow
	}
	for _, agent := range flow.Agents() {
		if !slices.Contains(s.agents, agent) {
			s.agents = append(s.agents, agent)
		}
	}
}

// Find returns a definition, version 0 meaning the newest that is not retired; nil if there is none. By
// the name of a step behind that of a workflow, as in payout/pay, it finds the steps that do an item.
func (s *Set) Find(name string, version int) *Workflow {
	if n := s.newest[name]; version == 0 || n != nil && n.Version == version {
		return n
	}
	if flow := s.flows[ID(name, version)]; flow != nil {
		return flow
	}
	return s.inner(name, version)
}

// Retire has nothing new begin with a version, or ends that.
func (s *Set) Retire(name string, version int, retired bool) {
	if s.retired == nil {
		s.retired = make(map[string]bool)
	}
	if s.retired[ID(name, version)] = retired; s.newest == nil {
		return
	}
	s.starts = nil
	delete(s.newest, name)
	for _, flow := range s.flows {
		if n := s.newest[name]; flow.Name == name && !s.retired[flow.ID()] && (n == nil || n.Version < flow.Version) {
			s.newest[name] = flow
		}
	}
}

// Retired says that nothing new begins with a version; with version 0, that all of that name are
// retired.
func (s *Set) Retired(name string, version int) bool {
	if version > 0 {
		return s.retired[ID(name, version)]
	}
	if s.newest[name] != nil {
		return false
	}
	for _, flow := range s.flows {
		if flow.Name == name {
			return true
		}
	}
	return false
}

// All returns the definitions, by name and version.
func (s *Set) All() []*Workflow {
	return slices.SortedFunc(maps.Values(s.flows), func(a, b *Workflow) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
}

// Agents returns the agents that some definition names, each once.
func (s *Set) Agents() []string { return slices.Clone(s.agents) }

package workflow

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/waybill-dev/waybill/events"
)

// ErrChild says that a definition cannot be registered because of others whose orders do its steps.
var ErrChild = errors.New("others that it orders stand against it")

// against is an [ErrChild] that says why.
type against string

func (why against) Error() string    { return string(why) }
func (against) Is(target error) bool { return target == ErrChild }

// CircleError says that workflows order each other: no order of theirs would end.
type CircleError struct {
	Names []string // each orders the next, and the last is the first
}

func (e *CircleError) Error() string {
	if len(e.Names) <= 2 {
		return fmt.Sprintf("workflow %s orders itself; no workflow may, in any of its versions", e.Names[0])
	}
	return fmt.Sprintf("these workflows order each other: %s; none may order itself by way of others, whichever versions are named", strings.Join(e.Names, " -> "))
}

// Is has it be an [ErrChild].
func (*CircleError) Is(target error) bool { return target == ErrChild }

// Admits says why a definition that is not in the set cannot be added: it names others that are not
// there, or are retired, or they order each other, or are nested too deeply, or another's orders are started
// by the signal that would start its own. The error is [ErrChild].
func (s *Set) Admits(flow *Workflow) error {
	if newest := s.newest[flow.Name]; newest == nil || newest.Version <= flow.Version {
		if err := s.shares(flow); err != nil {
			return err
		}
	}
	if len(flow.Children()) == 0 {
		return nil // nothing is nested that was not
	}
	below := s.nested(flow)
	if round := wayRound(below, flow.Name); round != nil {
		return &CircleError{round}
	}
	var lacking error
	flow.inners(func(w *Workflow) {
		for i := range w.Steps {
			if o := w.Steps[i].Ordered(); o != nil && lacking == nil {
				if why := s.lacks(o); why != "" {
					lacking = against(fmt.Sprintf("step %s orders %s", w.Steps[i].Name, why))
				}
			}
		}
	})
	if lacking != nil {
		return lacking
	}
	above := make(map[string][]string)
	for _, name := range slices.Sorted(maps.Keys(below)) {
		for _, child := range below[name] {
			above[child] = append(above[child], name)
		}
	}
	way := longWay(above, flow.Name, make(map[string][]string))
	slices.Reverse(way)
	way = append(way, longWay(below, flow.Name, make(map[string][]string))[1:]...)
	if deep := len(way) - 1; deep > events.MaxDepth {
		return against(fmt.Sprintf("orders would be nested %d deep, and at most %d are allowed: %s", deep, events.MaxDepth, strings.Join(way, " -> ")))
	}
	return nil
}

// Spares says why a version in the set cannot be retired: a step of another that is not retired orders it,
// and could not any more. The error is [ErrChild].
func (s *Set) Spares(flow *Workflow) error {
	var next *Workflow // the newest, then
	for _, w := range s.All() {
		if w.Name == flow.Name && w.Version != flow.Version && !s.retired[w.ID()] && (next == nil || w.Version > next.Version) {
			next = w
		}
	}
	last := next == nil
	for _, by := range s.All() {
		for _, o := range by.Children() {
			if o.Workflow == flow.Name && (o.Version == flow.Version || o.Version == 0 && last) && !s.retired[by.ID()] {
				return against(fmt.Sprintf("workflow %s orders it; retire that first", by.ID()))
			}
		}
	}
	if next != nil && next.Version < flow.Version {
		if err := s.shares(next); err != nil {
			return fmt.Errorf("version %d would be the newest then: %w; retire it first", next.Version, err)
		}
	}
	return nil
}

// lacks says what is not there of what a step orders.
func (s *Set) lacks(o *Order) string {
	switch id := ID(o.Workflow, o.Version); {
	case o.Version == 0 && s.Retired(o.Workflow, 0):
		return fmt.Sprintf("workflow %s, of which every version is retired; register another first, or restore one", o.Workflow)
	case o.Version > 0 && s.Retired(o.Workflow, o.Version):
		return fmt.Sprintf("workflow %s, which is retired; restore it first, or name another version", id)
	case s.Find(o.Workflow, o.Version) != nil:
		return ""
	case o.Version > 0:
		return fmt.Sprintf("workflow %s, which is not registered; register that first", id)
	}
	return fmt.Sprintf("workflow %s, which is not registered; register that first", o.Workflow)
}

// nested returns which workflows each orders, by name, once a definition is added, or restored: what the versions of
// each order that are not retired, any of which may come to be the newest, and what those versions do
// that steps of these name.
func (s *Set) nested(add *Workflow) map[string][]string {
	children := make(map[string][]string)
	seen := make(map[string]bool)
	var note func(flow *Workflow)
	note = func(flow *Workflow) {
		if flow == nil || seen[flow.ID()] {
			return
		}
		seen[flow.ID()] = true
		for _, o := range flow.Children() {
			if !slices.Contains(children[flow.Name], o.Workflow) {
				children[flow.Name] = append(children[flow.Name], o.Workflow)
			}
			if o.Version > 0 {
				note(s.flows[ID(o.Workflow, o.Version)])
			}
		}
	}
	note(add)
	for _, flow := range s.All() {
		if !s.retired[flow.ID()] {
			note(flow)
		}
	}
	return children
}

// wayRound is a shortest way from a name back to it, nil if there is none.
func wayRound(next map[string][]string, name string) []string {
	from := make(map[string]string)
	for queue := []string{name}; len(queue) > 0; queue = queue[1:] {
		for _, to := range next[queue[0]] {
			if to == name {
				way := []string{name}
				for at := queue[0]; at != name; at = from[at] {
					way = append(way, at)
				}
				way = append(way, name)
				slices.Reverse(way)
				return way
			}
			if _, seen := from[to]; !seen {
				from[to] = queue[0]
				queue = append(queue, to)
			}
		}
	}
	return nil
}

// longWay is a longest way that begins at a name. Those that are known are kept.
func longWay(next map[string][]string, name string, known map[string][]string) []string {
	if way := known[name]; way != nil {
		return way
	}
	way := []string{name}
	known[name] = way // in a circle, which was there before, it goes no further
	for _, to := range next[name] {
		if on := longWay(next, to, known); len(on) >= len(way) {
			way = append([]string{name}, on...)
		}
	}
	known[name] = way
	return way
}

// Sorted puts definitions in an order in which they can be registered, each behind those that it
// orders; otherwise they stay as they are. The error is a [CircleError].
func Sorted[D any](all []D, flow func(D) *Workflow) ([]D, error) {
	var sorted []D
	var way []string // the names from where it began
	done := make([]bool, len(all))
	var visit func(i int) error
	visit = func(i int) error {
		w := flow(all[i])
		if at := slices.Index(way, w.Name); at >= 0 {
			return &CircleError{append(slices.Clone(way[at:]), w.Name)}
		}
		if done[i] {
			return nil
		}
		way = append(way, w.Name)
		for _, o := range w.Children() {
			for j := range all {
				if flow(all[j]).Name == o.Workflow {
					if err := visit(j); err != nil {
						return err
					}
				}
			}
		}
		way = way[:len(way)-1]
		done[i], sorted = true, append(sorted, all[i])
		return nil
	}
	for i := range all {
		if err := visit(i); err != nil {
			return nil, err
		}
	}
	return sorted, nil
}

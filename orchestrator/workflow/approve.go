package workflow

import (
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Approve is what a step waits for that asks people.
type Approve struct {
	Roles    []string // of those who may decide, 1 to 16
	Outcomes []string // what they may decide, 1 to 16
	// Count is how many different people have to say the first outcome, 1 to 10. Any other needs
	// one.
	Count int
	Due   time.Duration // after which they are reminded; 0 for never
	// Escalate are roles of others who may decide, too, from then on.
	Escalate []string
	Show     *Expression // what they see; nil for nothing
}

// What a step that asks people may name.
const (
	maxRoles  = 16
	maxPeople = 10
)

// CheckRole says what is wrong with the name of a role of those who may decide.
func CheckRole(name string) error { return checkName(name) }

// approve reads what a step asks people.
func (r *reader) approve(n ast.Node, d *draft) {
	d.Approve = &Approve{Outcomes: []string{"approved", "declined"}, Count: 1}
	a := d.Approve
	given := r.mapping(n, "approve", []field{
		{"roles", func(n ast.Node) { a.Roles = r.names(n, "roles", "role") }},
		{"outcomes", func(n ast.Node) { a.Outcomes = r.names(n, "outcomes", "outcome") }},
		{"count", func(n ast.Node) { r.whole(n, "count", maxPeople, &a.Count) }},
		{"due", func(n ast.Node) { r.duration(n, "due", 1, &a.Due) }},
		{"escalate", func(n ast.Node) { a.Escalate = r.names(n, "escalate", "role") }},
		{"show", func(n ast.Node) { d.show = r.scalar(n, "show", "show: '{\"total\": input.total}'") }},
	})
	r.require(n, given, "approve", "roles")
	if at := given["escalate"]; at != nil && given["due"] == nil {
		r.add(at, "escalate has no effect here; write \"due\" beside it, from when on these roles may decide, too")
	}
	slices.Sort(a.Roles) // so that files that mean the same have the same canonical form
	slices.Sort(a.Escalate)
	for _, role := range a.Escalate {
		if slices.Contains(a.Roles, role) {
			r.add(given["escalate"], "the role %s may decide from the beginning; remove it here", quote(role))
		}
	}
}

// names reads a list of names of one kind.
func (r *reader) names(n ast.Node, what, one string) (names []string) {
	entries, ok := r.list(n, what)
	switch {
	case !ok:
		return nil
	case len(entries) == 0:
		r.add(start(n), "%s is empty; write one %s", what, one)
	case len(entries) > maxRoles:
		r.add(start(entries[maxRoles]), "%s has %d entries; at most %d are allowed", what, len(entries), maxRoles)
		return nil
	}
	for _, entry := range entries {
		name, at := r.checked(entry, "the "+one, CheckRole)
		switch {
		case name == "": // which has been reported
		case slices.Contains(names, name):
			r.add(at, "the %s %s is named twice in this list; remove one", one, quote(name))
		default:
			names = append(names, name)
		}
	}
	return names
}

// approving is a step that asks people: what is said of an operation has no effect there, but for
// the timeout, without which it waits for ever.
func (r *reader) approving(given map[string]*token.Token, d draft) draft {
	r.only(given, "approve", "a step that asks people asks no agent", "timeout")
	timeout := r.patience(given, &d, "nobody is still at it while people decide")
	if a := d.Approve; timeout > 0 && a.Due >= timeout {
		r.add(given["timeout"], "due is %v, and nobody is asked any more after %v; lower due, or raise timeout", a.Due, timeout)
	}
	d.Step = Step{Name: d.Name, Approve: d.Approve, Timeout: timeout}
	d.with, d.undoWith, d.enough = nil, nil, nil
	return d
}

// patience is how long a step waits that asks no agent; 0 is for ever.
func (r *reader) patience(given map[string]*token.Token, d *draft, why string) time.Duration {
	if d.TimeoutMax > 0 {
		r.add(given["timeout"], "%s, so its timeout has no max; write timeout: %v", why, d.Timeout)
	}
	if given["timeout"] == nil {
		return 0
	}
	return d.Timeout
}

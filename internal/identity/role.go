package identity

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
)

// Role is a kind of thing that a caller may do.
type Role string

// The roles. Each but the submitter's has what a viewer has.
const (
	// Viewer sees orders without their payloads, and how the namespace is.
	Viewer Role = "viewer"
	// PayloadReader sees what orders are about, too.
	PayloadReader Role = "payload-reader"
	// Submitter submits orders, and sees none.
	Submitter Role = "submitter"
	// Operator acts on orders.
	Operator Role = "operator"
	// Approver decides what workflows ask people. In a grant it has a name behind it, which is that of
	// a role that a workflow asks: see [events.ApproverRole].
	Approver Role = "approver"
	// Deployer registers workflows.
	Deployer Role = "deployer"
	// Admin may all, and is not limited to workflows.
	Admin Role = "admin"
)

// Roles are all there are, in the order of the documents.
var Roles = []Role{Viewer, PayloadReader, Submitter, Operator, Approver, Deployer, Admin}

// has says whether who has the role r has what is asked for.
func (r Role) has(asked Role) bool {
	return r == asked || r == Admin || asked == Viewer && r != Submitter || asked == Approver && events.Approver(string(r)) != ""
}

// CheckRole says what is wrong with a role of a grant.
func CheckRole(name string) error {
	switch {
	case name == string(Approver):
		return fmt.Errorf("an approver is one of a role that workflows ask, such as %s; name it", events.ApproverRole("finance"))
	case events.Approver(name) != "":
		if err := workflow.CheckRole(events.Approver(name)); err != nil {
			return fmt.Errorf("the role of an approver %w", err)
		}
	case !slices.Contains(Roles, Role(name)):
		return fmt.Errorf("there is no role %s; the roles are %s", quote(name), RoleNames())
	}
	return nil
}

// RoleNames lists the roles, as grants have them.
func RoleNames() string {
	names := make([]string, len(Roles))
	for i, role := range Roles {
		if names[i] = string(role); role == Approver {
			names[i] = events.ApproverRole("NAME")
		}
	}
	return strings.Join(names, ", ")
}

// Grant is some roles, for all workflows or for some.
type Grant struct {
	Roles []Role
	// Workflows are patterns of names, as [path.Match] has them; none means all.
	Workflows []string
}

// Has says whether a role is among them.
func (g *Grant) Has(role Role) bool {
	return slices.ContainsFunc(g.Roles, func(r Role) bool { return r.has(role) })
}

// Covers says whether the grant is for a workflow.
func (g *Grant) Covers(workflow string) bool {
	workflow, _, _ = strings.Cut(workflow, "/") // steps that do items are of their workflow
	return len(g.Workflows) == 0 || slices.ContainsFunc(g.Workflows, func(pattern string) bool {
		ok, err := path.Match(pattern, workflow)
		return ok && err == nil // the file has no other patterns
	})
}

// Caller is who asks. Its zero value is nobody, who may nothing.
type Caller struct {
	// Subject is the name under which it acts. It is empty where nobody is asked
	// for a name.
	Subject string
	// Method is how it was named: key, oidc or certificate.
	Method string
	// Issuer is who gave out its token; empty without one.
	Issuer string

	grants []Grant
}

// Anybody is the caller where nobody is asked for a name: it may all.
var Anybody = &Caller{grants: []Grant{{Roles: []Role{Admin}}}}

// Grants are what the caller may do.
func (c *Caller) Grants() []Grant { return c.grants }

// Somewhere says whether the caller has the role for any workflow.
func (c *Caller) Somewhere(role Role) bool {
	return slices.ContainsFunc(c.grants, func(g Grant) bool { return g.Has(role) })
}

// May says whether the caller has the role for a workflow.
func (c *Caller) May(role Role, workflow string) bool {
	return slices.ContainsFunc(c.grants, func(g Grant) bool { return g.Has(role) && g.Covers(workflow) })
}

// Roles are those that the caller has for a workflow, in the order of [Roles], and after them those in
// which it approves.
func (c *Caller) Roles(workflow string) (all []string) {
	for _, role := range Roles {
		if slices.ContainsFunc(c.grants, func(g Grant) bool { return slices.Contains(g.Roles, role) && g.Covers(workflow) }) {
			all = append(all, string(role))
		}
	}
	var approves []string
	for _, g := range c.grants {
		for _, r := range g.Roles {
			if events.Approver(string(r)) != "" && g.Covers(workflow) && !slices.Contains(approves, string(r)) {
				approves = append(approves, string(r))
			}
		}
	}
	slices.Sort(approves)
	return append(all, approves...)
}

// Everywhere says whether the caller has the role for all workflows.
func (c *Caller) Everywhere(role Role) bool {
	return slices.ContainsFunc(c.grants, func(g Grant) bool { return g.Has(role) && len(g.Workflows) == 0 })
}

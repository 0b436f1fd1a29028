package identity

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
)

// What each role has, besides itself.
func TestWhatARoleHas(t *testing.T) {
	for role, want := range map[Role]string{
		Viewer: "viewer", PayloadReader: "viewer payload-reader", Submitter: "submitter", Operator: "viewer operator", Role(events.ApproverRole("finance")): "viewer approver",
		Deployer: "viewer deployer", Admin: "viewer payload-reader submitter operator approver deployer admin",
	} {
		c := &Caller{grants: []Grant{{Roles: []Role{role}}}}
		var has []string
		for _, asked := range Roles {
			if c.Somewhere(asked) != c.May(asked, "w") || c.Somewhere(asked) != c.Everywhere(asked) {
				t.Errorf("%s has %s for some workflows", role, asked)
			}
			if c.Somewhere(asked) {
				has = append(has, string(asked))
			}
		}
		if got := strings.Join(has, " "); got != want {
			t.Errorf("%s has %s, not %s", role, got, want)
		}
	}
}

// Those who decide have roles of their own, each for the workflows of its grant.
func TestRolesOfThoseWhoDecide(t *testing.T) {
	c := &Caller{grants: []Grant{
		{Roles: []Role{"approver/finance", "approver/clerk", Viewer}, Workflows: []string{"loan"}},
		{Roles: []Role{"approver/board", "approver/finance", Operator}},
	}}
	for workflow, want := range map[string]string{"loan": "viewer operator approver/board approver/clerk approver/finance", "other": "operator approver/board approver/finance"} {
		if got := strings.Join(c.Roles(workflow), " "); got != want {
			t.Errorf("for %s: %s", workflow, got)
		}
	}
	if c := (&Caller{grants: []Grant{{Roles: []Role{Admin}}}}); strings.Join(c.Roles("loan"), " ") != "admin" {
		t.Errorf("an admin decides as %s", c.Roles("loan"))
	}
}

// Each grant is for its own workflows: one does not widen another.
func TestGrantsAreLimited(t *testing.T) {
	c := &Caller{grants: []Grant{
		{Roles: []Role{Operator}, Workflows: []string{"order-*", "exact"}},
		{Roles: []Role{PayloadReader}, Workflows: []string{"exact"}},
		{Roles: []Role{Submitter}},
	}}
	for _, want := range []string{
		"operator order-1 true", "operator order- true", "operator order true-not", "operator exact true", "operator exactly true-not", "operator  true-not",
		"viewer order-1 true", "payload-reader order-1 true-not", "payload-reader exact true", "submitter anything true", "submitter  true", "viewer anything true-not",
	} {
		var role, workflow, may string
		parts := strings.Split(want, " ")
		role, workflow, may = parts[0], parts[1], parts[2]
		if got := fmt.Sprint(c.May(Role(role), workflow)); got != map[string]string{"true": "true", "true-not": "false"}[may] {
			t.Errorf("%q: %s", want, got)
		}
	}
	if c.Everywhere(Operator) || c.Everywhere(Viewer) || !c.Everywhere(Submitter) || c.Somewhere(Deployer) || !c.Somewhere(PayloadReader) {
		t.Error("a limited role counts as unlimited, or the other way round")
	}
	if nobody := new(Caller); nobody.Somewhere(Viewer) || nobody.May(Viewer, "w") || nobody.Everywhere(Viewer) {
		t.Error("nobody may something")
	}
}

package identity

import (
	"fmt"
	"strings"
	"testing"
)

// What each role has, besides itself.
func TestWhatARoleHas(t *testing.T) {
	for role, want := range map[Role]string{
		Viewer: "viewer", PayloadReader: "viewer payload-reader", Submitter: "submitter", Operator: "viewer operator",
		Deployer: "viewer deployer", Admin: "viewer payload-reader submitter operator deployer admin",
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

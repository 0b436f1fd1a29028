package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/identity"
)

// Caller is who asks, as the access file has it.
type Caller struct {
	Subject *string `json:"subject" doc:"The name under which the caller acts; null where nobody is asked for a name"`
	Method  *string `json:"method" doc:"How it is known: key, oidc or certificate; null where nobody is asked"`
	Grants  []Grant `json:"grants" nullable:"false" doc:"What it may do"`
}

// Grant is some roles, for all workflows or for some.
type Grant struct {
	Roles     []identity.Role `json:"roles" nullable:"false"`
	Workflows []string        `json:"workflows" nullable:"false" doc:"Patterns of their names; none means all"`
}

// May says whether the caller has a role for a workflow; "" asks for any.
func (c *Caller) May(role identity.Role, workflow string) bool {
	return slices.ContainsFunc(c.Grants, func(g Grant) bool {
		grant := identity.Grant(g)
		return grant.Has(role) && (workflow == "" || grant.Covers(workflow))
	})
}

// Everywhere says whether the caller has a role for all workflows.
func (c *Caller) Everywhere(role identity.Role) bool {
	return slices.ContainsFunc(c.Grants, func(g Grant) bool { return (*identity.Grant)(&g).Has(role) && len(g.Workflows) == 0 })
}

// openTo marks an operation, in its metadata, that is for whoever is known.
const openTo = "everybody"

func (s *Server) caller(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "get-caller", Method: http.MethodGet, Path: "/api/v1/caller",
		Summary: "Say who asks, and what it may do", Tags: []string{"instance"},
		Description: "It takes no role.",
		Security:    []map[string][]string{{"bearer": {}}, {"certificate": {}}},
		Errors:      []int{http.StatusUnauthorized},
		Metadata:    map[string]any{openTo: true},
	}, func(ctx context.Context, _ *struct{}) (*struct{ Body Caller }, error) {
		c := callerOf(ctx)
		told := Caller{Subject: text(c.Subject), Method: text(c.Method), Grants: []Grant{}}
		for _, g := range c.Grants() {
			told.Grants = append(told.Grants, Grant{g.Roles, append([]string{}, g.Workflows...)})
		}
		return &struct{ Body Caller }{told}, nil
	})
}

package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/projections"
)

// Approval is a step that waits for people to decide.
type Approval struct {
	Order    string `json:"order"`
	Workflow string `json:"workflow"`
	Version  int    `json:"version"`
	Step     string `json:"step"`
	Approves
	Show   json.RawMessage `json:"show" doc:"What the workflow shows those who decide"`
	Mine   bool            `json:"mine" doc:"The caller may decide: it has one of the roles for the workflow, and has neither submitted the order nor decided yet"`
	Masked bool            `json:"masked,omitzero" doc:"What is shown, and the notes, are left out, because the caller may not decide and does not have the role payload-reader"`
}

// TransformSchema says that an approval is never null, unlike what it has of a step.
func (Approval) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema { return s }

// ApprovalPage is a part of the approvals that wait.
type ApprovalPage struct {
	Approvals []Approval `json:"approvals" nullable:"false"`
	LeftOut
	Next string `json:"next,omitempty" doc:"Give it as after to get the next page; left out on the last"`
}

func (s *Server) approvals(api huma.API) {
	register(api, identity.Viewer, huma.Operation{
		OperationID: "list-approvals", Method: http.MethodGet, Path: "/api/v1/approvals",
		Summary: "List what waits for people to decide", Tags: []string{"orders"},
		Description: "The order first whose last step began to wait last. Limit counts orders: a page has more where several steps of an order wait, and fewer where what they show is large, or mine leaves some out; next says that more follow.",
		Errors:      []int{http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.listApprovals)
}

type approvalsInput struct {
	Mine  bool   `query:"mine" doc:"Only what the caller may decide"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	After string `query:"after" doc:"The next of the page before"`
}

// maxShown is how many bytes are shown on one page, roughly.
const maxShown = 4 << 20

func (s *Server) listApprovals(ctx context.Context, in *approvalsInput) (*struct{ Body ApprovalPage }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var after *projections.OpenPlace
	if in.After != "" {
		if after, err = readPlace(in.After); err != nil {
			return nil, errCursor
		}
	}
	page, left, err := i.Approvals(ctx, after, in.Limit, visible(callerOf(ctx), identity.Viewer))
	if err != nil {
		return nil, s.listError("list approvals", err)
	}
	out := &struct{ Body ApprovalPage }{ApprovalPage{Approvals: []Approval{}, LeftOut: LeftOut(left)}}
	shown := 0
	for _, listed := range page.Orders {
		o, _, err := i.Order(listed.ID) // with what is shown
		switch {
		case errors.Is(err, projections.ErrDamaged):
			return nil, s.listError("list approvals", err)
		case err != nil: // it has just gone
			continue
		}
		for n := range o.Steps {
			st := &o.Steps[n]
			if st.State != projections.Approving {
				continue
			}
			a := Approval{
				Order: o.ID, Workflow: o.Workflow, Version: o.Version, Step: st.Name, Approves: *approvesOf(st.Approves),
				Show: json.RawMessage(st.Input), Mine: mayDecide(callerOf(ctx), o, st.Approves),
			}
			if a.Mine || !in.Mine {
				out.Body.Approvals, shown = append(out.Body.Approvals, a), shown+len(a.Show)
			}
		}
		if shown > maxShown {
			page.Next = &projections.OpenPlace{At: listed.ApprovingAt(), Order: listed.ID}
			break
		}
	}
	if page.Next != nil {
		out.Body.Next = cursor(page.Next)
	}
	return out, nil
}

// mayDecide says whether a caller may, as far as this instance knows. Where nobody is asked for a name
// everybody may.
func mayDecide(c *identity.Caller, o *projections.Order, a *projections.Approval) bool {
	if c.Method == "" {
		return true
	}
	roles := c.Roles(o.Workflow)
	return c.Subject != o.SubmittedBy && a.Said(c.Subject) == "" &&
		slices.ContainsFunc(a.Roles, func(role string) bool { return slices.Contains(roles, events.ApproverRole(role)) })
}

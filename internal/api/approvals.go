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
	"github.com/waybill-dev/waybill/orchestrator"
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
	Mine   bool            `json:"mine" doc:"The caller may decide, and this instance can tell others who it is: it has one of the roles for the workflow, and has neither submitted the order, or one that it does again, nor decided yet"`
	Masked bool            `json:"masked,omitzero" doc:"What is shown, and the notes, are left out, because the caller may not decide and does not have the role payload-reader"`
}

// TransformSchema says that an approval is never null, unlike what it has of a step.
func (Approval) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema { return s }

// ApprovalPage is a part of the approvals that wait.
type ApprovalPage struct {
	Approvals []Approval `json:"approvals" nullable:"false"`
	LeftOut
	Next string `json:"next,omitempty" doc:"Give it as after to get the next page; left out on the last"`
	NotDecoded
}

func (s *Server) approvals(api huma.API) {
	register(api, identity.Viewer, huma.Operation{
		OperationID: "list-approvals", Method: http.MethodGet, Path: "/api/v1/approvals",
		Summary: "List what waits for people to decide", Tags: []string{"orders"},
		Description: "The order first that has waited longest. A page ends with the order that fills it, and before that once it has cost enough: it may have fewer than limit, or none, though more follow: next says so.",
		Errors:      []int{http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.listApprovals)
}

type approvalsInput struct {
	Mine    bool   `query:"mine" doc:"Only what the caller may decide"`
	Overdue bool   `query:"overdue" doc:"Only what is due"`
	Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	After   string `query:"after" doc:"The next of the page before"`
	DecodeInput
}

// How many bytes are shown on one page, and how many orders are looked at for it, roughly.
const (
	maxShown  = 4 << 20
	maxLooked = 10_000
)

func (s *Server) listApprovals(ctx context.Context, in *approvalsInput) (*struct{ Body ApprovalPage }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	after, err := readPlace(in.After)
	if err != nil {
		return nil, errCursor
	}
	out := &struct{ Body ApprovalPage }{ApprovalPage{Approvals: []Approval{}}}
	next, err := gather(after, in.Limit, func(after *projections.OpenPlace) (projections.OpenPage, error) {
		page, left, err := i.Approvals(ctx, after, in.Limit, visible(callerOf(ctx), identity.Viewer))
		out.Body.LeftOut = LeftOut(left)
		return page, err
	}, func(o *projections.Order) (n, bytes int, _ error) {
		found, bytes, err := approvalsOf(ctx, i, o.ID, in)
		out.Body.Approvals = append(out.Body.Approvals, found...)
		return len(found), bytes, err
	})
	if err != nil {
		return nil, s.listError("list approvals", err)
	}
	if next != nil {
		out.Body.Next = cursor(next)
	}
	return out, nil
}

// gather takes what orders have, page after page of them, until that is enough, or enough was looked at for it. It returns
// where it goes on, nil at the end.
func gather(after *projections.OpenPlace, limit int, read func(after *projections.OpenPlace) (projections.OpenPage, error), take func(*projections.Order) (n, bytes int, err error)) (*projections.OpenPlace, error) {
	for found, shown, looked := 0, 0, 0; ; {
		page, err := read(after)
		if err != nil {
			return nil, err
		}
		for at, o := range page.Orders {
			n, bytes, err := take(o)
			if err != nil {
				return nil, err
			}
			found, shown = found+n, shown+bytes
			full := found >= limit || shown > maxShown
			if last := at == len(page.Orders)-1 && page.Next == nil; full && !last {
				return &projections.OpenPlace{At: o.ApprovingSince(), Order: o.ID}, nil
			}
		}
		looked += page.Looked
		if page.Next == nil || looked >= maxLooked || len(page.Orders) < limit { // it has cost enough
			return page.Next, nil
		}
		after = page.Next
	}
}

// approvalsOf is what waits in an order, of what was asked for, and how much it shows.
func approvalsOf(ctx context.Context, i *orchestrator.Instance, id string, in *approvalsInput) (found []Approval, bytes int, _ error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	o, err := i.Showing(id)
	switch {
	case errors.Is(err, projections.ErrNotFound), errors.Is(err, projections.ErrForgotten), errors.Is(err, orchestrator.ErrElsewhere): // it has just gone
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	}
	for n := range o.Steps {
		st := &o.Steps[n]
		if st.State != projections.Approving {
			continue
		}
		a := Approval{
			Order: o.ID, Workflow: o.Workflow, Version: o.Version, Step: st.Name, Approves: *approvesOf(st.Approves),
			Show: json.RawMessage(st.Input), Mine: mayDecide(callerOf(ctx), i, o, st.Approves),
		}
		if (a.Mine || !in.Mine) && (a.Overdue || !in.Overdue) {
			found, bytes = append(found, a), bytes+len(a.Show)
		}
	}
	return found, bytes, nil
}

// mayDecide says whether a caller may, as far as this instance knows. Where nobody is asked for a name
// everybody may, if that counts.
func mayDecide(c *identity.Caller, i *orchestrator.Instance, o *projections.Order, a *projections.Approval) bool {
	if c.Method == "" || !i.Decides(true) {
		return c.Method == "" && i.Decides(false)
	}
	roles := c.Roles(o.Workflow)
	return !o.Submitted(c.Subject) && a.Said(c.Subject) == "" &&
		slices.ContainsFunc(a.Roles, func(role string) bool { return slices.Contains(roles, events.ApproverRole(role)) })
}

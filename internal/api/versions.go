package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

// Version is one version of a workflow, and who still has it.
type Version struct {
	Version    int  `json:"version"`
	Registered bool `json:"registered" doc:"False where orders have it and it is not on the workflows topic any more: register it again"`
	Newest     bool `json:"newest" doc:"A submission that names no version takes it"`
	Retired    bool `json:"retired" doc:"No new order may have it"`
	Open       int  `json:"open" doc:"How many orders of it have not ended"`
	Error      int  `json:"error" doc:"How many of these are in Error, and wait for an operator"`
}

// Versions are those of a workflow.
type Versions struct {
	Workflow string    `json:"workflow"`
	Versions []Version `json:"versions" nullable:"false" doc:"The newest first"`
	More     bool      `json:"more,omitzero" doc:"There are more open orders than were counted, 10000"`
	LeftOut
}

// maxCounted is how many orders are looked at for one answer.
const maxCounted = 10_000

func (s *Server) versions(api huma.API) {
	register(api, identity.Viewer, huma.Operation{
		OperationID: "list-versions", Method: http.MethodGet, Path: "/api/v1/workflows/{name}/versions",
		Summary: "List the versions of a workflow, and how many open orders have each", Tags: []string{"workflows"},
		Description: "An order keeps its version. Of more than 10000 open orders the first are counted, and more says so.",
		Errors:      []int{http.StatusNotFound, http.StatusServiceUnavailable},
	}, s.listVersions)
}

type versionsInput struct {
	Name string `path:"name"`
}

func (s *Server) listVersions(ctx context.Context, in *versionsInput) (*struct{ Body Versions }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	out := &struct{ Body Versions }{Versions{Workflow: in.Name, Versions: []Version{}}}
	visible := callerOf(ctx).May(identity.Viewer, in.Name)
	if visible {
		for _, flow := range i.Workflows() {
			if flow.Name == in.Name {
				newest := i.Workflow(in.Name, 0)
				out.Body.Versions = append(out.Body.Versions, Version{Version: flow.Version, Registered: true, Newest: newest != nil && newest.Version == flow.Version, Retired: i.Retired(in.Name, flow.Version)})
			}
		}
		if err := out.Body.count(ctx, i); err != nil {
			return nil, s.listError("list the versions of workflow "+in.Name, err)
		}
	}
	if len(out.Body.Versions) == 0 {
		return nil, huma.Error404NotFound(fmt.Sprintf("workflow %s is not registered", in.Name))
	}
	slices.SortFunc(out.Body.Versions, func(a, b Version) int { return cmp.Compare(b.Version, a.Version) })
	return out, nil
}

// count counts the open orders of each version. An order may change while it is at it, and come on two
// pages: it is counted once.
func (v *Versions) count(ctx context.Context, i *orchestrator.Instance) error {
	open := make(map[string]*projections.Order)
	for filter := (projections.Filter{Workflow: v.Workflow, Open: true, Limit: 1000}); ; {
		page, left, err := i.List(ctx, filter)
		if err != nil {
			return err //nolint:wrapcheck // whoever asks says for what
		}
		if len(left.Elsewhere)+len(left.Unknown) > 0 { // also if they are known by the next page
			v.LeftOut = LeftOut(left)
		}
		v.add(open, page.Orders)
		if filter.After = page.Next; page.Next == nil {
			return nil
		}
		if len(open) >= maxCounted {
			v.More = true
			return nil
		}
	}
}

// add counts orders beside those that were counted, by id: each as it was last.
func (v *Versions) add(counted map[string]*projections.Order, orders []*projections.Order) {
	for _, o := range orders {
		if before := counted[o.ID]; before != nil {
			v.change(before, -1)
		}
		v.change(o, 1)
		counted[o.ID] = o
	}
}

// change counts an order, or, by -1, does so no more.
func (v *Versions) change(o *projections.Order, by int) {
	n := slices.IndexFunc(v.Versions, func(known Version) bool { return known.Version == o.Version })
	if n < 0 {
		n, v.Versions = len(v.Versions), append(v.Versions, Version{Version: o.Version})
	}
	v.Versions[n].Open += by
	if o.State == projections.Error {
		v.Versions[n].Error += by
	}
}

package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/projections"
)

// SignalWait is a step that waits for signals.
type SignalWait struct {
	Order        string            `json:"order"`
	Workflow     string            `json:"workflow"`
	Version      int               `json:"version"`
	ProcessState projections.State `json:"processState" enum:"Pending,Processing,Error,Compensating" doc:"That of the order: while it is in Error or paused, nothing starts after what a step hears"`
	Paused       bool              `json:"paused"`
	Held         bool              `json:"held" doc:"Signals for it wait, too, until an operator releases it"`
	Step         string            `json:"step"`
	Listens
	Keyed     bool  `json:"keyed" doc:"It hears them under a key, and none that is sent to its order"`
	Since     *Time `json:"since" doc:"Since when it waits; null where something came to the order behind that, be it with it: it began at updatedAt then, or before"`
	UpdatedAt *Time `json:"updatedAt" doc:"When the order changed last"`
	Until     *Time `json:"until" doc:"When it waits no more; null for never, and during a pause"`
	Masked    bool  `json:"masked,omitzero" doc:"The key is left out, because the caller does not have the role payload-reader"`
}

// TransformSchema says that a wait is never null, unlike what it has of a step.
func (SignalWait) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema { return s }

// SignalWaitPage is a part of what waits for signals.
type SignalWaitPage struct {
	Waits []SignalWait `json:"waits" nullable:"false"`
	LeftOut
	Next string `json:"next,omitempty" doc:"Give it as after to get the next page; left out on the last"`
}

func (s *Server) signalWaits(api huma.API) {
	register(api, identity.Viewer, huma.Operation{
		OperationID: "list-signal-waits", Method: http.MethodGet, Path: "/api/v1/signals/waiting",
		Summary: "List what waits for signals", Tags: []string{"orders"},
		Description: "The order first that has not changed for longest, which is what has waited longest unless something else happened to it. A page ends with the order that fills it, and before that once it has cost enough: it may have fewer than limit, or none, though more follow: next says so. An order that changes meanwhile may come again. Who waits under a key, and whose turn it is, says GET /api/v1/keys.",
		Errors:      []int{http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.listSignalWaits)
}

type signalWaitsInput struct {
	Signal   string `query:"signal" pattern:"^[a-zA-Z0-9._-]{1,100}$" example:"payment" doc:"Only what still waits for a signal of this name"`
	Workflow string `query:"workflow" minLength:"1" doc:"Only orders of this workflow"`
	Limit    int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	After    string `query:"after" doc:"The next of the page before"`
}

func (s *Server) listSignalWaits(ctx context.Context, in *signalWaitsInput) (*struct{ Body SignalWaitPage }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	after, err := readPlace(in.After)
	if err != nil {
		return nil, errCursor
	}
	which := projections.Listeners{Signal: in.Signal, Workflow: in.Workflow}
	page, left, err := i.Listening(ctx, which, after, in.Limit, visible(callerOf(ctx), identity.Viewer))
	if err != nil {
		return nil, s.listError("list what waits for signals", err)
	}
	out := &struct{ Body SignalWaitPage }{SignalWaitPage{Waits: []SignalWait{}, LeftOut: LeftOut(left)}}
	for n, o := range page.Orders {
		out.Body.Waits = append(out.Body.Waits, signalWaitsOf(o, &which)...)
		if last := n == len(page.Orders)-1; !last && len(out.Body.Waits) >= in.Limit {
			page.Next = &projections.OpenPlace{At: o.UpdatedAt, Order: o.ID}
			break
		}
	}
	if page.Next != nil {
		out.Body.Next = cursor(page.Next)
	}
	return out, nil
}

// signalWaitsOf are those of an order that are selected.
func signalWaitsOf(o *projections.Order, which *projections.Listeners) (all []SignalWait) {
	for n := range o.Steps {
		st := &o.Steps[n]
		if !which.Selects(o, st) {
			continue
		}
		all = append(all, SignalWait{
			Order: o.ID, Workflow: o.Workflow, Version: o.Version, ProcessState: o.State, Paused: o.Paused, Held: o.Hold != nil,
			Step: st.Name, Listens: *listensOf(st), Keyed: st.Listens.Key != "",
			Since: at(o.ListeningSince(st)), UpdatedAt: at(o.UpdatedAt), Until: at(st.Due),
		})
	}
	return all
}

// listensOf is what a step waits for, nil unless it does.
func listensOf(st *projections.Step) *Listens {
	if st.State != projections.Listening {
		return nil
	}
	l := st.Listens
	return &Listens{l.How, l.Names, max(l.Left, 1), text(l.Key)}
}

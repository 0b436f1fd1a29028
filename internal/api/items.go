package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/projections"
)

// Items says how a step stands that is done for each item of a list.
type Items struct {
	Workflow  string `json:"workflow" doc:"Whose orders do the items"`
	Version   int    `json:"version"`
	Count     int    `json:"count" doc:"How many there are"`
	Completed int    `json:"completed" doc:"How many are done, and not undone"`
	Failed    int    `json:"failed"`
	Running   int    `json:"running" doc:"How many are under way, or are being undone"`
	Undone    int    `json:"undone"`
	NotUndone int    `json:"notUndone" doc:"Of how many the undo failed"`
	Left      int    `json:"left" doc:"Of how many an order ended with something that ran there, or may have run, and was not undone: leftBy of the items says which. Not those that ended before journal format 11"`
	AtOnce    *int   `json:"atOnce" doc:"How many may be under way at a time as an operator said; null for as many as the workflow says"`
	Pages     *int   `json:"pages" doc:"How many pages of them the agent was asked for that lists them; null if none does"`
	More      bool   `json:"more" doc:"The step goes on, and the last page is not known yet: count and the others are of those known so far"`
	Recalled  bool   `json:"recalled" doc:"No further one begins, and those under way were asked to undo what they did"`
}

// TransformSchema says that a step may have no items.
func (Items) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Nullable = true
	return s
}

func itemsOf(s *projections.Step) *Items {
	e := s.Each
	if e == nil {
		return nil
	}
	items := &Items{
		Workflow: e.Workflow, Version: e.Version, Count: e.Count, Completed: e.Done, Failed: e.Failed, Running: len(e.Running),
		Undone: e.Undone, NotUndone: e.NotUndone, Left: e.Leaving(), Recalled: e.Recalled,
	}
	if e.AtOnce > 0 {
		items.AtOnce = &e.AtOnce
	}
	if p := e.Pages; p != nil {
		items.Pages, items.More = &p.Asked, !p.Last && s.State == projections.Running
	}
	return items
}

// Item is one item of a step.
type Item struct {
	Item  int     `json:"item" doc:"Its number, from 1 on"`
	State string  `json:"state" enum:"not-started,running,completed,failed,undoing,undone,undo-failed"`
	Order *string `json:"order" doc:"The order that does it, or did last; null if none was asked to"`
	// ProcessState and Alerted are of another order, which the caller may not see.
	ProcessState *projections.State `json:"processState" enum:"Pending,Processing,Processed,Error,Compensating,Compensated,Cancelled,Raised,Terminated,Rejected" doc:"Of the order of one under way, as far as the instance that answers knows it; else null, as where the caller may not see that order"`
	Alerted      *bool              `json:"alerted" doc:"Whether an alert of it is open: it waits for an operator. Null where processState is"`
	Output       json.RawMessage    `json:"output" doc:"Of one that completed"`
	Error        *Fault             `json:"error" doc:"Of one that failed, or whose undo did"`
	LeftBy       []LeftBy           `json:"leftBy" nullable:"false" doc:"The orders that did it, or were to undo it, and ended with something that ran there, or may have run, and was not undone; oldest first. Not those that ended before journal format 11"`
}

// ItemPage is a page of the items of a step.
type ItemPage struct {
	Items  []Item `json:"items" nullable:"false"`
	Next   string `json:"next,omitempty" doc:"Give it as after to get the next page; left out on the last"`
	Masked bool   `json:"masked,omitzero" doc:"Outputs, and what the errors say, are left out, because the caller does not have the role payload-reader"`
	NotDecoded

	workflow string // the order's, where its caller is limited to some
}

func (p *ItemPage) mask() {
	p.Masked = true
	for i := range p.Items {
		p.Items[i].Output, p.Items[i].Error = nil, maskedFault(p.Items[i].Error)
	}
}

func (s *Server) items(api huma.API) {
	register(api, identity.Viewer, huma.Operation{
		OperationID: "list-items", Method: http.MethodGet, Path: "/api/v1/orders/{id}/steps/{step}/items",
		Summary: "List the items of a step", Tags: []string{"orders"},
		Description: "Of a step that is done for each item of a list: how each stands, or ended, in the order of the list. A page has fewer than the limit where that is large: next says whether others follow.",
		Errors:      []int{http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusMisdirectedRequest, http.StatusServiceUnavailable},
	}, s.listItems)
}

type itemsInput struct {
	ID     string `path:"id" doc:"The order id, escaped for a path: a/b is a%2Fb"`
	Step   string `path:"step" doc:"The name of the step"`
	Failed bool   `query:"failed" doc:"Only those that failed, or whose undo did"`
	Left   bool   `query:"left" doc:"Only those of which something was left: see leftBy"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	After  int    `query:"after" minimum:"0" maximum:"100000" doc:"The next of the page before: the number of an item"`
	DecodeInput
}

func (s *Server) listItems(ctx context.Context, in *itemsInput) (*struct{ Body ItemPage }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	workflow, err := s.reach(ctx, i, in.ID, identity.Viewer)
	if err != nil {
		return nil, err
	}
	all, next, err := i.Items(in.ID, in.Step, in.After, in.Limit, projections.ItemFilter{Failed: in.Failed, Left: in.Left})
	if none := (*projections.NoItemsError)(nil); errors.As(err, &none) {
		return nil, huma.Error404NotFound(none.Error())
	} else if err != nil {
		return nil, s.orderError(in.ID, "read the items of order", err)
	}
	out := &struct{ Body ItemPage }{ItemPage{Items: make([]Item, len(all)), workflow: workflow}}
	for n, item := range all {
		out.Body.Items[n] = Item{Item: item.Number, State: item.State.String(), Order: text(item.Order), Output: json.RawMessage(item.Output), Error: (*Fault)(item.Error), LeftBy: leftBy(item.LeftBy)}
		for l := range out.Body.Items[n].LeftBy {
			out.Body.Items[n].LeftBy[l].look(i, callerOf(ctx))
		}
		if item.State == projections.ItemRunning || item.State == projections.ItemUndoing {
			c := Child{Order: item.Order}
			look(&c, i, callerOf(ctx))
			out.Body.Items[n].ProcessState, out.Body.Items[n].Alerted = c.ProcessState, c.Alerted
		}
	}
	if next > 0 {
		out.Body.Next = strconv.Itoa(next)
	}
	return out, nil
}

// Items returns a page of the items of a step that are wanted, at most so many behind a place, "" for the first, and the
// place to go on from, "" behind the last.
func (c *Client) Items(ctx context.Context, id, step string, wanted projections.ItemFilter, limit int, after string) (*ItemPage, error) {
	path, err := orderPath(id)
	if err != nil {
		return nil, err
	}
	query := map[string]string{"limit": strconv.Itoa(limit), "after": after}
	if wanted.Failed {
		query["failed"] = "true"
	}
	if wanted.Left {
		query["left"] = "true"
	}
	var page ItemPage
	return &page, c.call(ctx, http.MethodGet, path+"/steps/"+PathEscape(step)+"/items", c.decoded(query), nil, &page)
}

package api

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/projections"
)

// LimitSpec is what a limit says.
type LimitSpec struct {
	AtATime int `json:"atATime,omitzero" minimum:"1" maximum:"1000" doc:"How many places there are; left out, 1000. This, or aSecond, or both"`
	ASecond int `json:"aSecond,omitzero" minimum:"1" maximum:"1000" doc:"How many places are given in a second, and at once after a rest; left out, there is no such bound"`
}

// LimitApplication is the body with which a limit is applied.
type LimitApplication struct {
	Act
	LimitSpec
}

// Limit is one as it stands.
type Limit struct {
	Name string `json:"name"`
	LimitSpec
	AppliedBy *string `json:"appliedBy" doc:"Who applied it last, if that was said"`
	AppliedAt *Time   `json:"appliedAt" doc:"When it was applied first"`
	Held      bool    `json:"held" doc:"Deciding on it panicked: release it as an order, under its id, @/limit. and its name"`
	Taken     int     `json:"taken" doc:"How many attempts have a place"`
	Waiting   int     `json:"waiting" doc:"How many attempts wait for one"`
	Oldest    *Time   `json:"oldest" doc:"Since when the one waits that has waited longest; null if none does"`
}

// LimitPage is a part of the limits.
type LimitPage struct {
	Limits []Limit `json:"limits" nullable:"false"`
	LeftOut
	Next string `json:"next" doc:"Pass it as after to get the next page; empty when there is none"`
}

func limitOf(o *projections.Order) Limit {
	p := o.Places
	return Limit{
		Name: events.LimitOf(o.ID), LimitSpec: LimitSpec{p.Says.AtATime, p.Says.ASecond}, AppliedBy: text(p.AppliedBy), AppliedAt: at(o.AcceptedAt),
		Held: o.Hold != nil, Taken: p.Taken, Waiting: p.Waiting, Oldest: at(p.Oldest),
	}
}

func (s *Server) limits(api huma.API) {
	reads := []int{http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusMisdirectedRequest, http.StatusServiceUnavailable}
	register(api, identity.Viewer, huma.Operation{
		OperationID: "list-limits", Method: http.MethodGet, Path: "/api/v1/limits",
		Summary: "List limits", Description: "Partition by partition, in each by name.", Tags: []string{"limits"}, Errors: reads,
	}, s.listLimits)
	register(api, identity.Viewer, huma.Operation{
		OperationID: "get-limit", Method: http.MethodGet, Path: "/api/v1/limits/{name}",
		Summary: "Get a limit, and how it stands", Tags: []string{"limits"}, Errors: reads,
		Description: "Who got places is its history: that of the order whose id is @/limit. and its name.",
	}, s.getLimit)
	acts := append([]int{http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge}, reads...)
	const answers = " It takes the role for all workflows: steps of any may name the limit. Answers with the limit once its owner did it, and with 409 and the reason if it could not be done. Without an outcome in ten seconds it answers with 503; the command is acted on all the same, once it is on Kafka."
	register(api, identity.Operator, huma.Operation{
		OperationID: "apply-limit", Method: http.MethodPut, Path: "/api/v1/limits/{name}",
		Summary: "Have a limit be as it is given", Tags: []string{"limits"}, Errors: acts,
		Description:  "Another number acts at once: more attempts begin, or none until fewer have places." + answers,
		MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
	}, func(ctx context.Context, in *struct {
		ScheduleCommand
		Body LimitApplication
	},
	) (*struct{ Body Limit }, error) {
		says := &events.Limit{AtATime: in.Body.AtATime, ASecond: in.Body.ASecond}
		if err := events.CheckLimit(says); err != nil {
			return nil, huma.Error422UnprocessableEntity(err.Error(), &huma.ErrorDetail{Message: err.Error(), Location: "body"})
		}
		c := in.Body.command()
		c.Command, c.Limit = events.CommandApply, says
		return s.commandLimit(ctx, &in.ScheduleCommand, &c)
	})
	register(api, identity.Operator, huma.Operation{
		OperationID: "delete-limit", Method: http.MethodDelete, Path: "/api/v1/limits/{name}",
		Summary: "Have there be no limit of a name any more", Tags: []string{"limits"}, Errors: acts,
		Description:  "It is refused while somebody has a place, or waits." + answers,
		MaxBodyBytes: maxBody, BodyReadTimeout: bodyTimeout,
	}, func(ctx context.Context, in *struct {
		ScheduleCommand
		Body *Act
	},
	) (*struct{ Body Limit }, error) {
		var c events.Command
		if in.Body != nil {
			c = in.Body.command()
		}
		c.Command = events.CommandDelete
		return s.commandLimit(ctx, &in.ScheduleCommand, &c)
	})
}

// limit is one that is there, nil if there is none of the name.
func (s *Server) limit(name string, order func(id string) (*projections.Order, []int64, error)) (*projections.Order, error) {
	o, _, err := order(events.LimitID(name))
	switch {
	case errors.Is(err, projections.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, s.orderError(events.LimitID(name), "read limit", err)
	case o.Places == nil || o.Places.Says == nil:
		return nil, nil
	}
	return o, nil
}

func noLimit(name string) error {
	return huma.Error404NotFound(fmt.Sprintf("there is no limit %q", name))
}

// commandLimit has a command done to a limit, which takes the role of an operator for all workflows.
func (s *Server) commandLimit(ctx context.Context, in *ScheduleCommand, c *events.Command) (*struct{ Body Limit }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	askingOf(ctx).target = in.Name
	if caller := callerOf(ctx); !caller.Everywhere(identity.Operator) {
		return nil, huma.Error403Forbidden(forbidden(caller, identity.Operator) + ", for all workflows")
	}
	before, err := s.limit(in.Name, i.Order)
	switch {
	case err != nil:
		return nil, err
	case before == nil && c.Command != events.CommandApply:
		return nil, noLimit(in.Name)
	}
	if c.By, err = author(ctx, c.By, in.from); err != nil {
		return nil, err
	}
	c.ID = in.Key
	if err := s.act(ctx, i, events.LimitID(in.Name), c, func() string { return "" }); err != nil {
		return nil, err
	}
	if c.Command == events.CommandDelete {
		return &struct{ Body Limit }{limitOf(before)}, nil
	}
	after, err := s.limit(in.Name, i.Order)
	if err == nil && after == nil {
		err = noLimit(in.Name)
	}
	if err != nil {
		return nil, err
	}
	return &struct{ Body Limit }{limitOf(after)}, nil
}

func (s *Server) listLimits(ctx context.Context, in *struct {
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	After string `query:"after" doc:"The next of the page before"`
},
) (*struct{ Body LimitPage }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	after, err := base64.RawURLEncoding.DecodeString(in.After)
	if err != nil {
		return nil, errCursor
	}
	page, left, err := i.Limits(ctx, after, in.Limit)
	if err != nil {
		return nil, s.listError("list limits", err)
	}
	out := &struct{ Body LimitPage }{LimitPage{Limits: make([]Limit, len(page.Limits)), LeftOut: LeftOut(left), Next: base64.RawURLEncoding.EncodeToString(page.Next)}}
	for n, o := range page.Limits {
		out.Body.Limits[n] = limitOf(o)
	}
	return out, nil
}

func (s *Server) getLimit(ctx context.Context, in *ScheduleName) (*struct{ Body Limit }, error) {
	i, _, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	o, err := s.limit(in.Name, i.Order)
	if err == nil && o == nil {
		err = noLimit(in.Name)
	}
	if err != nil {
		return nil, err
	}
	return &struct{ Body Limit }{limitOf(o)}, nil
}

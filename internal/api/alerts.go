package api

import (
	"context"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/projections"
)

// AlertPage is a part of the open alerts.
type AlertPage struct {
	Alerts []Alert `json:"alerts" nullable:"false"`
	LeftOut
	Next string `json:"next,omitempty" doc:"Give it as after to get the next page; left out on the last"`
	NotDecoded
}

func (s *Server) alerts(api huma.API) {
	register(api, identity.Viewer, huma.Operation{
		OperationID: "list-alerts", Method: http.MethodGet, Path: "/api/v1/alerts",
		Summary: "List the open alerts", Tags: []string{"orders"},
		Description: "Orders in state Error that wait for an operator, newest alert first. A page may have fewer than limit though more follow: next says so. With Accept: text/event-stream it is followed what changes.",
		Responses:   streamed[AlertPage](api),
		Errors:      []int{http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable},
	}, s.listAlerts)
}

type alertsInput struct {
	FollowInput
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	After string `query:"after" doc:"The next of the page before"`
	DecodeInput
}

func (s *Server) listAlerts(ctx context.Context, in *alertsInput) (*struct{ Body AlertPage }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	after, err := readPlace(in.After)
	if err != nil {
		return nil, errCursor
	}
	page, left, err := i.Alerts(ctx, after, in.Limit, visible(callerOf(ctx), identity.Viewer))
	if err != nil {
		return nil, s.listError("list alerts", err)
	}
	out := &struct{ Body AlertPage }{AlertPage{Alerts: make([]Alert, len(page.Orders)), LeftOut: LeftOut(left)}}
	for n, o := range page.Orders {
		out.Body.Alerts[n] = *alertOf(o)
	}
	if page.Next != nil {
		out.Body.Next = cursor(page.Next)
	}
	return out, nil
}

// cursor names a place in the listing of alerts.
func cursor(p *projections.OpenPlace) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.At.UnixMilli(), 10) + "/" + p.Order))
}

// readPlace reads it, nil for none.
func readPlace(cursor string) (*projections.OpenPlace, error) {
	if cursor == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return nil, err
	}
	millis, order, whole := strings.Cut(string(b), "/")
	if !whole || order == "" {
		return nil, projections.ErrPlace
	}
	n, err := strconv.ParseInt(millis, 10, 64)
	return &projections.OpenPlace{At: time.UnixMilli(n), Order: order}, err
}

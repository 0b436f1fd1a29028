package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/identity"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

// AlertPage is a part of the open alerts.
type AlertPage struct {
	Alerts []Alert `json:"alerts" nullable:"false"`
	LeftOut
	Next string `json:"next,omitempty" doc:"Give it as after to get the next page; left out on the last"`
	NotDecoded
}

// AlertReasons are the open alerts by what they are about.
type AlertReasons struct {
	Reasons []AlertsOf `json:"reasons" nullable:"false" doc:"Those of which there are alerts"`
	More    bool       `json:"more" doc:"There are more alerts, newer ones, than were looked at, of whichever reason: each number is of those that were"`
	LeftOut
}

// AlertsOf are the open alerts of a reason.
type AlertsOf struct {
	Reason events.AlertReason `json:"reason" enum:"error,held,overdue" doc:"As webhooks name it"`
	Number int                `json:"number"`
	At     []AlertsAt         `json:"at" nullable:"false" doc:"How many of them are about which step: those of which there are most, as many as limit"`
	Oldest []Alert            `json:"oldest" nullable:"false" doc:"The first of them, the oldest first"`
}

// Others is how many of them are about steps that At leaves out.
func (a AlertsOf) Others() int {
	if len(a.At) == 0 {
		return 0
	}
	n := a.Number
	for _, at := range a.At {
		n -= at.Number
	}
	return n
}

// AlertsAt is how many alerts are about a step.
type AlertsAt struct {
	Workflow string  `json:"workflow"`
	Step     *string `json:"step" doc:"Null if they are about the orders as a whole"`
	Undo     bool    `json:"undo" doc:"They are about the step's undo"`
	Number   int     `json:"number"`
}

func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

// alertsAt are the steps about which there are most.
func alertsAt(all map[projections.AlertedAt]int, limit int) []AlertsAt {
	most := slices.SortedFunc(maps.Keys(all), func(a, b projections.AlertedAt) int {
		return cmp.Or(all[b]-all[a], strings.Compare(a.Workflow, b.Workflow), strings.Compare(a.Step, b.Step), rank(a.Undo)-rank(b.Undo))
	})
	at := make([]AlertsAt, min(len(most), limit))
	for n := range at {
		at[n] = AlertsAt{most[n].Workflow, text(most[n].Step), most[n].Undo, all[most[n]]}
	}
	return at
}

// openReasons are those of alerts that stay open, in the order in which they are listed.
var openReasons = []events.AlertReason{events.AboutError, events.AboutHeld, events.AboutOverdue}

func (s *Server) alerts(api huma.API) {
	register(api, identity.Viewer, huma.Operation{
		OperationID: "list-alerts", Method: http.MethodGet, Path: "/api/v1/alerts",
		Summary: "List the open alerts", Tags: []string{"orders"},
		Description: "Orders in state Error that wait for an operator, newest alert first, or, of one reason, the oldest first. A page may have fewer than limit, or none, though more follow: next says so. With Accept: text/event-stream it is followed what changes.",
		Responses:   streamed[AlertPage](api),
		Errors:      []int{http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusServiceUnavailable},
	}, s.listAlerts)
	register(api, identity.Viewer, huma.Operation{
		OperationID: "list-alert-reasons", Method: http.MethodGet, Path: "/api/v1/alerts/reasons",
		Summary: "Count the open alerts by their reason", Tags: []string{"orders"},
		Description: "With the oldest of each reason. The oldest 10,000 alerts are looked at, or 4 MiB of them: more says that there are others.",
		Errors:      []int{http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.listAlertReasons)
}

type alertsInput struct {
	FollowInput
	Reason events.AlertReason `query:"reason" enum:"error,held,overdue" doc:"Only those about this, as webhooks name it, the oldest first; not of a stream"`
	Limit  int                `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	After  string             `query:"after" doc:"The next of the page before"`
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
	var page projections.OpenPage
	var left orchestrator.LeftOut
	if seen := visible(callerOf(ctx), identity.Viewer); in.Reason == "" {
		page, left, err = i.Alerts(ctx, after, in.Limit, seen)
	} else {
		page, left, err = i.AlertsAbout(ctx, in.Reason, after, in.Limit, seen)
	}
	if err != nil {
		return nil, s.listError("list alerts", err)
	}
	out := &struct{ Body AlertPage }{AlertPage{Alerts: alertsOf(page.Orders), LeftOut: LeftOut(left)}}
	if page.Next != nil {
		out.Body.Next = cursor(page.Next)
	}
	return out, nil
}

func alertsOf(orders []*projections.Order) []Alert {
	all := make([]Alert, len(orders))
	for n, o := range orders {
		all[n] = *alertOf(o)
	}
	return all
}

type alertReasonsInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"100" default:"10" doc:"How many alerts to return of each reason, at most"`
}

func (s *Server) listAlertReasons(ctx context.Context, in *alertReasonsInput) (*struct{ Body AlertReasons }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	found, left, err := i.AlertReasons(ctx, in.Limit, visible(callerOf(ctx), identity.Viewer))
	if err != nil {
		return nil, s.listError("list alerts", err)
	}
	out := &struct{ Body AlertReasons }{AlertReasons{Reasons: []AlertsOf{}, More: found.More, LeftOut: LeftOut(left)}}
	for _, reason := range openReasons {
		if of := found.Of[reason]; of != nil {
			out.Body.Reasons = append(out.Body.Reasons, AlertsOf{reason, of.Number, alertsAt(of.At, in.Limit), alertsOf(of.Oldest)})
		}
	}
	return out, nil
}

// cursor names a place in the listing of what waits for somebody.
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
	millis, order, whole := strings.Cut(string(b), "/") // a page that ends between two milliseconds has no order
	if !whole {
		return nil, projections.ErrPlace
	}
	n, err := strconv.ParseInt(millis, 10, 64)
	return &projections.OpenPlace{At: time.UnixMilli(n), Order: order}, err
}

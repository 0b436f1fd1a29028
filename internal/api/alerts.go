package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
)

// AlertPage is a part of the open alerts.
type AlertPage struct {
	Alerts []Alert `json:"alerts" nullable:"false"`
	Elsewhere
	Next string `json:"next,omitempty" doc:"Give it as after to get the next page; left out on the last"`
}

func (s *Server) alerts(api huma.API) {
	huma.Register(api, huma.Operation{
		OperationID: "list-alerts", Method: http.MethodGet, Path: "/api/v1/alerts",
		Summary: "List the open alerts", Tags: []string{"orders"},
		Description: "Orders in state Error that wait for an operator, newest alert first.",
		Errors:      []int{http.StatusUnprocessableEntity, http.StatusServiceUnavailable},
	}, s.listAlerts)
}

type alertsInput struct {
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	After string `query:"after" doc:"The next of the page before"`
}

func (s *Server) listAlerts(ctx context.Context, in *alertsInput) (*struct{ Body AlertPage }, error) {
	i, ctx, done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var after *place
	if in.After != "" {
		if after, err = readPlace(in.After); err != nil {
			return nil, errCursor
		}
	}
	elsewhere := i.Elsewhere()
	newest := latest{limit: in.Limit + 1} // one more says that there is a next page
	if err := eachAlert(ctx, i, elsewhere, func(a *Alert) {
		if after == nil || placeOf(a).compare(*after) > 0 {
			newest.add(a)
		}
	}); err != nil {
		return nil, s.broken("list alerts", err)
	}
	out := &struct{ Body AlertPage }{AlertPage{Alerts: []Alert{}, Elsewhere: Elsewhere{elsewhere}}}
	for n, a := range newest.alerts {
		if n == in.Limit {
			out.Body.Next = placeOf(newest.alerts[n-1]).String()
			break
		}
		out.Body.Alerts = append(out.Body.Alerts, *a)
	}
	return out, nil
}

// eachAlert goes through all open alerts, but for those elsewhere. The store lists them by partition,
// so a page in order of time costs a look at every order in Error.
func eachAlert(ctx context.Context, i *orchestrator.Instance, elsewhere []int32, yield func(*Alert)) error {
	filter := projections.Filter{State: projections.Error, Without: elsewhere, Limit: 100}
	for {
		page, err := i.Store().List(i.Partitions(), filter)
		if err != nil {
			return err
		}
		for _, o := range page.Orders {
			if a := alertOf(o); a != nil {
				yield(a)
			}
		}
		if page.Next == nil {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		filter.After = page.Next
	}
}

// place is where an alert stands in the listing: newest first, then by order.
type place struct {
	millis int64
	order  string
}

func placeOf(a *Alert) place { return place{a.At.UnixMilli(), a.Order} }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(q.millis, p.millis), cmp.Compare(p.order, q.order))
}

func (p place) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.millis, 10) + "/" + p.order))
}

func readPlace(cursor string) (*place, error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return nil, err
	}
	millis, order, _ := strings.Cut(string(b), "/")
	n, err := strconv.ParseInt(millis, 10, 64)
	return &place{n, order}, err
}

// latest keeps the first alerts of the listing among those added, at most
// limit.
type latest struct {
	limit  int
	alerts []*Alert // in the order of the listing
}

func (l *latest) add(a *Alert) {
	at, _ := slices.BinarySearchFunc(l.alerts, placeOf(a), func(b *Alert, p place) int { return placeOf(b).compare(p) })
	if at == l.limit {
		return
	}
	if len(l.alerts) == l.limit {
		l.alerts = l.alerts[:l.limit-1]
	}
	l.alerts = slices.Insert(l.alerts, at, a)
}

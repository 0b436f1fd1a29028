package api

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// testWaits: what waits for an agent says so, and since when, for whom, and behind how many.
func (s *stage) testWaits() {
	if status, _, body := s.ask(request{method: http.MethodPost, path: "/api/v1/workflows", body: "workflow: idle\nsteps: [{name: call, agent: idler, timeout: 5s}]"}); status >= 300 {
		s.Fatalf("register: %d %s", status, body)
	}
	const orders = 12
	id := func(n int) string { return fmt.Sprint("idle-", n) }
	for n := range orders {
		if status, _, body := s.ask(request{method: http.MethodPost, path: "/api/v1/orders", body: fmt.Sprintf(`{"id":%q,"workflow":"idle"}`, id(n))}); status != 202 {
			s.Fatalf("submit: %d %s", status, body)
		}
	}
	// Each of the partitions has one under way; the others know their places.
	s.until(func() bool {
		underWay, places := 0, make(map[int32]map[int]bool)
		for n := range orders {
			o, err := s.client.Order(s.Context(), id(n))
			if err != nil {
				return false
			}
			w := o.Steps[0].Waits
			if o.ProcessState == projections.Processing && w == nil {
				underWay++
				continue
			}
			if w == nil || w.Before == nil || *w.UnderWay != 1 || *w.Window != 1 || *w.Probed {
				return false
			}
			if o.CompleteBy != nil || o.WaitsSince == nil || !o.WaitsSince.Equal(w.Since.Time) {
				s.Errorf("order %s waits since %v, and its complete-by is %v", o.OrderID, o.WaitsSince, o.CompleteBy)
			}
			if w.Agent != "idler" || w.Since.Before(o.AcceptedAt.Time) || w.SilentSince != nil {
				s.Errorf("order %s waits %+v", o.OrderID, w)
			}
			if places[o.Partition] == nil {
				places[o.Partition] = make(map[int]bool)
			}
			places[o.Partition][*w.Before] = true
		}
		for p, has := range places {
			for n := range has {
				if n >= len(has) {
					s.Fatalf("the places in partition %d are %v", p, has)
				}
			}
		}
		metrics := []string{fmt.Sprintf("waybill_agent_waiting{agent=\"idler\"} %d\n", orders-underWay), fmt.Sprintf("waybill_agent_under_way{agent=\"idler\"} %d\n", underWay), fmt.Sprintf("waybill_agent_window{agent=\"idler\"} %d\n", underWay)}
		_, _, body := s.ask(request{path: "/metrics"})
		for _, want := range metrics {
			if !strings.Contains(body, want) {
				return false
			}
		}
		return underWay > 0 && len(places) > 0
	})
	listed, err := s.client.Orders(s.Context(), Filter{Workflow: "idle", State: string(projections.Pending)}, 100, "")
	if err != nil || len(listed.Orders) == 0 {
		s.Fatalf("%+v, %v", listed, err)
	}
	for _, o := range listed.Orders {
		if o.CompleteBy != nil || o.WaitsSince == nil {
			s.Errorf("in the listing order %s waits since %v, and its complete-by is %v", o.OrderID, o.WaitsSince, o.CompleteBy)
		}
	}
	page, err := s.client.History(s.Context(), id(orders-1))
	if err != nil {
		s.Fatal(err)
	}
	if last, err := events.Decode[events.Event](page.Events[len(page.Events)-1]); err != nil || last.Reason != "waits for agent idler" {
		s.Errorf("its history ends with %+v, %v", last, err)
	}
	for n := range orders {
		s.ask(request{method: http.MethodPost, path: "/api/v1/orders/" + id(n) + "/cancel"})
	}
}

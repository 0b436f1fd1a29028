package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/projections"
)

// For how long an agent has been silent, once an operator was called for that, is there for
// machines.
func TestTheSilenceOfAgentsIsMeasured(t *testing.T) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(agentGauges(func() map[string]lane.Agent {
		return map[string]lane.Agent{"phone": {Waiting: 3, WaitingSince: time.Now().Add(-100 * time.Second), SilentSince: time.Now().Add(-90 * time.Second)}, "post": {UnderWay: 1}}
	}))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	said := w.Body.String()
	if !strings.Contains(said, "waybill_agent_silent_seconds{agent=\"post\"} 0\n") {
		t.Errorf("one that answers: %s", said)
	}
	silent := regexp.MustCompile(`waybill_agent_silent_seconds\{agent="phone"\} (.*)`).FindStringSubmatch(said)
	if silent == nil {
		t.Fatalf("one that is silent: %s", said)
	}
	if seconds, err := strconv.ParseFloat(silent[1], 64); err != nil || seconds < 90 {
		t.Errorf("one is silent for %s s, %v", silent[1], err)
	}
	if !regexp.MustCompile(`waybill_agent_waiting_seconds\{agent="phone"\} 1\d\d`).MatchString(said) || !strings.Contains(said, "waybill_agent_waiting_seconds{agent=\"post\"} 0\n") {
		t.Errorf("since when what waits longest does: %s", said)
	}
}

// How many callers' topics are owed something, and since when, is there for machines: as
// three numbers, however many topics callers make up.
func TestWhatCallersAreOwedIsMeasured(t *testing.T) {
	var owed map[string]lane.Caller
	registry := prometheus.NewRegistry()
	registry.MustRegister(callerGauges(func() map[string]lane.Caller { return owed }))
	measured := func(name string) float64 {
		t.Helper()
		w := httptest.NewRecorder()
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		found := regexp.MustCompile(`(?m)^` + name + ` (.*)$`).FindStringSubmatch(w.Body.String())
		if found == nil {
			t.Fatalf("no %s: %s", name, w.Body)
		}
		value, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	for _, name := range []string{"waybill_callers_owed", "waybill_callers_failing", "waybill_callers_oldest_seconds"} {
		if value := measured(name); value != 0 {
			t.Errorf("%s is %v while nobody is owed anything", name, value)
		}
	}
	owed = map[string]lane.Caller{"shop": {Failing: true, Since: time.Now().Add(-90 * time.Second)}, "mall": {Since: time.Now().Add(time.Hour)}, "new": {}}
	if n := measured("waybill_callers_owed"); n != 3 {
		t.Errorf("%v are owed something", n)
	}
	if n := measured("waybill_callers_failing"); n != 1 {
		t.Errorf("%v take nothing", n)
	}
	if s := measured("waybill_callers_oldest_seconds"); s < 90 || s > 3600 {
		t.Errorf("the oldest waits for %v s", s)
	}
}

// However many agents there are, a hundred have series of their own, and the others are one together.
func TestAgentsInLabelsAreBounded(t *testing.T) {
	all := make(map[string]lane.Agent)
	for n := range 10_000 {
		all[fmt.Sprint("a-", n)] = lane.Agent{Waiting: 1}
	}
	var names lane.Names
	for range 2 {
		by := labelled(all, &names, (*lane.Agent).Add)
		if len(by) != lane.MaxNames+1 || by[lane.OtherNames].Waiting != 10_000-lane.MaxNames {
			t.Errorf("%d have series, and for the others %d wait", len(by), by[lane.OtherNames].Waiting)
		}
	}
}

// Each gauge of what waits for somebody is of what it says.
func TestWhatWaitsForSomebodyIsMeasured(t *testing.T) {
	for desc, n := range stopped(&projections.Counts{Alerts: 7, Approvals: 5, Held: 2}) {
		want := map[*prometheus.Desc]int{alertsOpen: 7, approvalsOpen: 5, ordersHeld: 2}[desc]
		if n != want {
			t.Errorf("%v is %d, and not %d", desc, n, want)
		}
	}
}

// However many limits there are, a hundred have series of their own, the same ones each time, and the others are one together.
func TestLimitsInLabelsAreBounded(t *testing.T) {
	var all []*projections.Order
	for n := range 250 {
		all = append(all, &projections.Order{ID: events.LimitID(fmt.Sprint("l-", n)), Places: &projections.Places{Waiting: 1, Taken: 2}})
	}
	var names lane.Names
	for range 2 {
		by := placesOf(all, &names)
		if len(by) != lane.MaxNames+1 || by[lane.OtherNames] != (places{150, 300}) || by["l-0"] != (places{1, 2}) || by["l-99"] != (places{1, 2}) {
			t.Errorf("%d have series, and the others %+v", len(by), by[lane.OtherNames])
		}
		slices.Reverse(all) // who is first later takes no other's label
	}
}

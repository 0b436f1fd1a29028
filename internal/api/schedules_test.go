package api

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/projections"
)

// schedules asks about a schedule, and returns what it is then.
func (s *stage) schedules(method, path, body string, status int) (sc Schedule, answer string) {
	s.Helper()
	got, _, answer := s.ask(request{method: method, path: "/api/v1/schedules" + path, body: body})
	if got != status {
		s.Fatalf("%s %s with %s: %d instead of %d: %s", method, path, body, got, status, answer)
	}
	if status == http.StatusOK && path != "" && !strings.Contains(path, "preview") {
		if err := json.Unmarshal([]byte(answer), &sc); err != nil {
			s.Fatal(err)
		}
	}
	return sc, answer
}

// A schedule is applied, shown, listed, paused, resumed and deleted over HTTP, by those who may, and its orders begin.
func TestSchedules(t *testing.T) {
	access, keys := callers(t, slog.New(slog.DiscardHandler), map[string]string{
		"root": "roles: [admin]", "view": "roles: [viewer]", "op": "roles: [operator]", "sub": "roles: [operator, submitter], workflows: [bill]",
		"other": "roles: [operator, submitter], workflows: [other]",
	})
	s := newStage(t, func(cfg *Config) { cfg.Access = access })
	s.attach()
	s.token = keys["root"]
	register := func(name string) {
		if status, _, said := s.ask(request{method: "POST", path: "/api/v1/workflows", body: fmt.Sprintf("workflow: %s\nsteps: [{name: nap, sleep: 1h}]", name)}); status != http.StatusOK && status != http.StatusCreated {
			t.Fatalf("%d %s", status, said)
		}
	}
	register("bill")
	register("other")

	for body, says := range map[string]string{
		`{"workflow":"bill"}`: "nothing says when", `{"every":"1h"}`: "workflow", `{"every":"1h","workflow":"bill","overlap":"wait"}`: "overlap",
		`{"cron":"* * *","workflow":"bill"}`: "cron has 3 fields", `{"every":"1h","workflow":"bill","input":"` + strings.Repeat("x", 65<<10) + `"}`: "at most 65536",
	} {
		if _, said := s.schedules("PUT", "/nightly", body, http.StatusUnprocessableEntity); !strings.Contains(said, says) {
			t.Errorf("%.80s: %s", body, said)
		}
	}
	if _, said := s.schedules("PUT", "/nightly", `{"every":"1h","workflow":"none"}`, http.StatusConflict); !strings.Contains(said, "workflow none is not registered") {
		t.Errorf("%s", said)
	}
	s.schedules("PUT", "/Nightly", `{"every":"1h","workflow":"bill"}`, http.StatusUnprocessableEntity)
	for _, path := range []string{"/nightly", "/none", "/nightly/preview"} { // which could not be applied
		s.schedules("GET", path, "", http.StatusNotFound)
	}
	s.schedules("POST", "/none/pause", "", http.StatusNotFound)
	s.schedules("DELETE", "/none", "", http.StatusNotFound)

	s.token = keys["sub"]
	sc, _ := s.schedules("PUT", "/nightly", `{"cron":"30 3 * * *","zone":"Europe/Berlin","workflow":"bill","input":{"canary":1},"labels":{"canary":"x"},"note":"why"}`, http.StatusOK)
	if sc.Name != "nightly" || sc.Incarnation != 1 || sc.AppliedBy == nil || *sc.AppliedBy != "sub" || sc.Next == nil || sc.Zone != "Europe/Berlin" || !sc.Masked || sc.Input != nil || sc.Labels != nil {
		t.Errorf("%+v", sc)
	}
	if _, said := s.schedules("GET", "/nightly/preview?count=3&after=2026-10-24T12:00:00Z", "", http.StatusOK); !strings.Contains(said, `"tick":"2026-10-25T02:30:00.000Z"`) || strings.Count(said, `"tick"`) != 3 || !strings.Contains(said, "@nightly/1/2026-10-25T02:30:00Z") {
		t.Errorf("%s", said)
	}
	s.schedules("PUT", "/nightly", `{"every":"1h","workflow":"other"}`, http.StatusForbidden)

	// Who may do nothing to orders of its workflow sees none, and changes none.
	s.token = keys["other"]
	s.schedules("GET", "/nightly", "", http.StatusNotFound)
	s.schedules("POST", "/nightly/pause", "", http.StatusNotFound)
	s.schedules("DELETE", "/nightly", "", http.StatusNotFound)
	s.schedules("PUT", "/nightly", `{"every":"1h","workflow":"other"}`, http.StatusForbidden)
	if _, said := s.schedules("GET", "", "", http.StatusOK); strings.Contains(said, "nightly") {
		t.Errorf("%s", said)
	}
	s.token = keys["view"]
	s.schedules("POST", "/nightly/pause", "", http.StatusForbidden)
	s.schedules("PUT", "/nightly", `{"every":"1h","workflow":"bill"}`, http.StatusForbidden)
	for _, path := range []string{"", "/nightly"} {
		if _, said := s.schedules("GET", path, "", http.StatusOK); strings.Contains(said, "canary") || !strings.Contains(said, `"masked":true`) {
			t.Errorf("%s", said)
		}
	}
	if _, _, said := s.ask(request{path: "/api/v1/orders/@nightly/history"}); strings.Contains(said, "canary") || !strings.Contains(said, `"schedule":{"cron":"30 3 * * *"`) {
		t.Errorf("%s", said)
	}
	s.token = keys["op"] // who may act, and not submit
	s.schedules("PUT", "/nightly", `{"every":"1h","workflow":"bill"}`, http.StatusForbidden)
	if sc, _ := s.schedules("POST", "/nightly/pause", `{"note":"closed"}`, http.StatusOK); !sc.Paused {
		t.Errorf("%+v", sc)
	}
	if _, said := s.schedules("POST", "/nightly/pause", "", http.StatusConflict); !strings.Contains(said, "paused already") {
		t.Errorf("%s", said)
	}
	if sc, _ := s.schedules("POST", "/nightly/resume", "", http.StatusOK); sc.Paused {
		t.Errorf("%+v", sc)
	}
	s.token = keys["root"]
	if sc, _ := s.schedules("GET", "/nightly", "", http.StatusOK); string(sc.Input) != `{"canary":1}` || sc.Masked {
		t.Errorf("%+v", sc)
	}
	s.schedules("DELETE", "/nightly", `{"note":"no more"}`, http.StatusOK)
	s.schedules("GET", "/nightly", "", http.StatusNotFound)

	// It begins orders.
	for _, name := range []string{"a", "b", "c"} {
		s.schedules("PUT", "/"+name, `{"every":"1s","workflow":"bill","overlap":"skip"}`, http.StatusOK)
	}
	client, err := NewClient(s.url, WithToken(keys["root"]))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for after := ""; ; {
		page, err := client.Schedules(t.Context(), 2, after)
		if err != nil {
			t.Fatal(err)
		}
		for _, sc := range page.Schedules {
			all = append(all, sc.Name)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if len(all) != 3 {
		t.Errorf("listed are %q", all)
	}
	s.client = client
	s.until(func() bool {
		sc, err := client.Schedule(t.Context(), "a")
		return err == nil && len(sc.Open) == 1
	})
	sc2, err := client.Schedule(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	o := s.order(sc2.Open[0].Order, projections.Pending)
	if o.Parent == nil || o.Parent.Order != "@a" || o.Labels["schedule"] != "a" || sc2.Open[0].Tick.Sub(o.AcceptedAt.Time) > time.Minute {
		t.Errorf("%+v", o)
	}
	// What has passed begins orders beside.
	to := time.Now().Add(-time.Second)
	backfill := BackfillRequest{From: to.Add(-4 * time.Second), To: to, AtOnce: 2, Act: Act{Note: "the machine was down"}}
	for range 2 { // under one key it acts once
		if sc2, err = client.Backfill(t.Context(), "a", "k-1", &backfill); err != nil {
			t.Fatal(err)
		}
	}
	if sc2.Backfilled != 1 || len(sc2.Backfills) != 1 || len(sc2.Backfills[0].Open) != 2 || sc2.Backfills[0].Left != 2 || sc2.Backfills[0].AtOnce != 2 {
		t.Errorf("%+v", sc2)
	}
	if o := s.order(sc2.Backfills[0].Open[0].Order, projections.Pending); o.Parent == nil || o.Parent.Order != "@a" || o.Labels["backfill"] != "1" {
		t.Errorf("%+v", o)
	}
	backfill.To = to.Add(time.Hour)
	if _, err := client.Backfill(t.Context(), "a", "k-2", &backfill); err == nil || !strings.Contains(err.Error(), "has not passed") {
		t.Errorf("of what has not passed: %v", err)
	}
	s.schedules("POST", "/a/backfill", `{"from":"2026-01-01T00:00:00Z"}`, http.StatusUnprocessableEntity)
	s.token = keys["view"]
	s.schedules("POST", "/a/backfill", `{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z"}`, http.StatusForbidden)
	s.token = keys["root"]
	for _, name := range all {
		s.schedules("DELETE", "/"+name, "", http.StatusOK)
	}
}

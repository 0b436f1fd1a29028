package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a file says is shown without a server, and what is wrong with it.
func TestSchedulePreview(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nightly.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("schedule: nightly\ncron: 30 2 * * *\nzone: Europe/Berlin\nworkflow: bill\n")
	waybill(t, "", "schedule", "preview", file, "--count", "2", "--after", "2026-10-24T12:00:00Z").want(t, 0,
		"2026-10-25T00:30:00.000Z  2026-10-25T00:30:00.000Z  @nightly/1/2026-10-25T00:30:00Z\n2026-10-26T01:30:00.000Z", "")
	waybill(t, "", "schedule", "preview", file, "--count", "0").want(t, 2, "", "--count is from 1 to 1000")
	waybill(t, "", "schedule", "preview", file, "--after", "soon").want(t, 2, "", "--after: \"soon\" is no time")
	waybill(t, "", "schedule", "backfill", "nightly", "--from", "2026-10-24T12:00:00Z").want(t, 2, "", "--to is missing; give a time")
	waybill(t, "", "schedule", "backfill", "nightly", "--from", "yesterday", "--to", "2026-10-24T12:00:00Z").want(t, 2, "", `--from: "yesterday" is no time`)
	waybill(t, "", "schedule", "backfill", "nightly", "--from", "2026-10-24T12:00:00Z", "--to", "2026-10-25T12:00:00Z", "--at-once", "101").want(t, 2, "", "--at-once is from 1 to 100, this is 101")
	write("schedule: nightly\nworkflow: bill\n")
	waybill(t, "", "schedule", "preview", file).want(t, 1, "", "schedule nightly: nothing says when: set cron, or every")
	waybill(t, "workflow: bill", "schedule", "apply", "-").want(t, 1, "", `-:1:1: the schedule has no "schedule"; add it`)
}

// What is shown is that of a file where there is one of the name, and else of a schedule that can have it, dots and all.
func TestWhatAPreviewIsOf(t *testing.T) {
	t.Chdir(t.TempDir())
	asked := ""
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/schedules/{name}/preview", func(w http.ResponseWriter, r *http.Request) {
		if asked = r.PathValue("name"); asked == "none.yaml" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"status":404,"detail":"there is no schedule"}`)
			return
		}
		fmt.Fprint(w, `{"ticks":[]}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	preview := func(name string) call {
		asked = ""
		return waybill(t, "schedule: stdin\nevery: 1d\nworkflow: bill\n", "schedule", "preview", name, "--server", server.URL)
	}
	if err := os.Mkdir("nightly", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bill.eu", "nightly"} {
		if preview(name).want(t, 0, "TICK", ""); asked != name {
			t.Errorf("of %s the server was asked for %q", name, asked)
		}
	}
	for _, name := range []string{"bill.eu", "nightly.yaml", "plain"} {
		if err := os.WriteFile(name, []byte("schedule: s\nevery: 1d\nworkflow: bill\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if preview(name).want(t, 0, "@s/1/", ""); asked != "" {
			t.Errorf("of the file %s the server was asked for %q", name, asked)
		}
	}
	preview("-").want(t, 0, "@stdin/1/", "")
	preview("none.yaml").want(t, 3, "", "there is no file none.yaml here, and of a schedule of that name: there is no schedule")
	if preview("./none.yaml").want(t, 1, "", "open ./none.yaml"); asked != "" {
		t.Errorf("the server was asked for %q", asked)
	}
}

// What is done to a schedule or a limit is repeated under its key, as what is done to an order, where no answer comes or a proxy
// has none: nobody has to ask again, which would be another backfill.
func TestSchedulesAndLimitsAreActedOnUntilItIsKnown(t *testing.T) {
	clearEnvironment(t)
	keys := make(map[string][]string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := r.Method + " " + r.URL.Path
		keys[what] = append(keys[what], r.Header.Get("Idempotency-Key"))
		switch n := len(keys[what]); {
		case strings.Contains(what, "lost"):
			page(w, "504")
		case strings.Contains(what, "refused"):
			problem(w, 409, "it is refused")
		case n == 1:
			panic(http.ErrAbortHandler)
		case strings.HasPrefix(what, "DELETE"):
			problem(w, 404, "there is none")
		case n == 2:
			page(w, "502")
		case n == 3:
			problem(w, 503, "not known yet")
		default:
			fmt.Fprint(w, `{"name":"nightly","backfilled":1}`)
		}
	}))
	defer server.Close()
	t.Setenv("WAYBILL_SERVER", server.URL)
	backfill := func(name string) call {
		return waybill(t, "", "schedule", "backfill", name, "--from", "2026-10-24T12:00:00Z", "--to", "2026-10-25T12:00:00Z")
	}
	backfill("nightly").want(t, 0, "backfill", "")
	waybill(t, "", "schedule", "pause", "nightly").want(t, 0, "paused", "")
	waybill(t, "limit: crm\natATime: 2\n", "limit", "apply", "-").want(t, 0, "applied", "")
	for _, what := range []string{"POST /api/v1/schedules/nightly/backfill", "POST /api/v1/schedules/nightly/pause", "PUT /api/v1/limits/crm"} {
		if all := keys[what]; len(all) != 4 || all[0] == "" || len(slices.Compact(all)) != 1 {
			t.Errorf("%s came with the keys %q", what, all)
		}
	}
	waybill(t, "", "limit", "delete", "crm").want(t, exitNotFound, "", "there is none; if it was to be deleted, an attempt before this one did that\n")
	backfill("lost").want(t, exitAway, "", "; see in `waybill order history @lost` whether it begins, before it is asked for again: that is another backfill\n")
	if c := backfill("refused"); c.code != exitRefused || strings.Contains(c.errs, "another backfill") {
		t.Errorf("%+v", c)
	}
	server.Close()
	if c := backfill("nightly"); c.code != exitAway || strings.Contains(c.errs, "another backfill") {
		t.Errorf("%+v", c)
	}
}

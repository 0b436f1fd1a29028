package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

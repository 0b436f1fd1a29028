package main

import (
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

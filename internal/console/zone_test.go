package console

import (
	"strings"
	"testing"
	"time"
)

// What clocks show twice, or never, is no time, however far they are set; what is said with its offset always is.
func TestTimesAsClocksShowThem(t *testing.T) {
	for _, c := range []struct{ zone, text, want string }{
		{"Europe/Berlin", "2030-03-31 01:59", "2030-03-31T00:59:00Z"},
		{"Europe/Berlin", "2030-03-31 02:00", "the clocks of Europe/Berlin never show 2030-03-31 02:00: they are set forward then"},
		{"Europe/Berlin", "2030-03-31T02:59:59", "never show"},
		{"Europe/Berlin", "2030-03-31 03:00", "2030-03-31T01:00:00Z"},
		{"Europe/Berlin", "2030-10-27 01:59:59", "2030-10-26T23:59:59Z"},
		{"Europe/Berlin", "2030-10-27 02:00", "the clocks of Europe/Berlin show 2030-10-27 02:00 twice: write it with its offset, such as 2030-10-27T02:00:00+0"},
		{"Europe/Berlin", "2030-10-27T02:59:59", "twice"},
		{"Europe/Berlin", "2030-10-27T03:00", "2030-10-27T02:00:00Z"},
		{"Europe/Berlin", "2030-10-27T02:30:00+02:00", "2030-10-27T00:30:00Z"},
		{"Europe/Berlin", "2030-10-27T02:30:00+01:00", "2030-10-27T01:30:00Z"},
		{"Europe/Berlin", "2030-03-31T02:30:00Z", "2030-03-31T02:30:00Z"},
		{"America/New_York", "2030-03-10 02:30", "never show"},
		{"America/New_York", "2030-11-03 01:30", "twice"},
		{"Australia/Lord_Howe", "2030-04-07 01:29", "2030-04-06T14:29:00Z"},
		{"Australia/Lord_Howe", "2030-04-07 01:30", "twice"},
		{"Australia/Lord_Howe", "2030-04-07 01:59", "twice"},
		{"Australia/Lord_Howe", "2030-04-07 02:00", "2030-04-06T15:30:00Z"},
		{"Australia/Lord_Howe", "2030-10-06 02:15", "never show"},
		{"Antarctica/Troll", "2030-10-27 01:30", "twice"},
		{"Antarctica/Troll", "2030-10-27 02:59", "twice"},
		{"Antarctica/Troll", "2030-10-27 03:00", "2030-10-27T03:00:00Z"},
		{"UTC", "2030-10-27 02:30", "2030-10-27T02:30:00Z"},
		{"UTC", "2030-02-30 02:30", "cannot parse"},
		{"UTC", "soon", "cannot parse"},
	} {
		zone, err := zoneOf(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		at, err := timeIn(c.text, zone)
		got := at.UTC().Format(time.RFC3339)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s in %s: %s, and not %s", c.text, c.zone, got, c.want)
		}
	}
}

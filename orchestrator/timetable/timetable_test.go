package timetable

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
)

func of(t interface {
	Helper()
	Fatal(...any)
}, s events.Schedule,
) *Timetable {
	t.Helper()
	tt, err := Of(&s)
	if err != nil {
		t.Fatal(err)
	}
	return tt
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// Both changes of clocks, in zones that change them in other ways.
func TestClocksAreSet(t *testing.T) {
	for name, c := range map[string]struct {
		cron, zone, after string
		want              []string
	}{
		"fixed, set over it":              {"30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", []string{"2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"}},
		"fixed, several are set over":     {"0,15,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"}},
		"fixed, one where it goes on":     {"30 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"}},
		"fixed, just there":               {"0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"}},
		"fixed, set back":                 {"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"}},
		"fixed, from within the second":   {"30,45 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", []string{"2026-10-26T01:30:00Z"}},
		"fixed, set back, and the next":   {"0 2,3 * * *", "Europe/Berlin", "2026-10-24T22:00:00Z", []string{"2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z"}},
		"every hour, set over":            {"30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", []string{"2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z", "2026-03-29T02:30:00Z"}},
		"every hour, set back":            {"30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", []string{"2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"}},
		"every other hour, set over":      {"0 */2 * * *", "Europe/Berlin", "2026-03-28T22:30:00Z", []string{"2026-03-28T23:00:00Z", "2026-03-29T02:00:00Z", "2026-03-29T04:00:00Z"}},
		"every other hour, set back":      {"0 */2 * * *", "Europe/Berlin", "2026-10-24T21:30:00Z", []string{"2026-10-24T22:00:00Z", "2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T03:00:00Z"}},
		"every hour, there at once":       {"0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", []string{"2026-03-29T01:00:00Z"}},
		"half an hour, set over":          {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"}},
		"half an hour, set back":          {"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", []string{"2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"}},
		"no midnight":                     {"0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00:00Z", []string{"2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"}},
		"no such day":                     {"0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z", []string{"2011-12-30T10:00:00Z", "2012-12-29T22:00:00Z"}},
		"29 February, over a century":     {"0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", []string{"2104-02-29T00:00:00Z"}},
		"seconds":                         {"*/20 59 23 * * *", "UTC", "2026-01-01T23:59:30Z", []string{"2026-01-01T23:59:40Z", "2026-01-02T23:59:00Z"}},
		"a day of the week, or the month": {"0 0 13 * 5", "UTC", "2026-03-01T00:00:00Z", []string{"2026-03-06T00:00:00Z", "2026-03-13T00:00:00Z", "2026-03-20T00:00:00Z"}},
		"the last day":                    {"0 0 L * *", "UTC", "2026-02-01T00:00:00Z", []string{"2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt := of(t, events.Schedule{Cron: c.cron, Zone: c.zone})
			var have []string
			for next := at(t, c.after); len(have) < len(c.want); {
				next = tt.Next(next)
				have = append(have, events.TickText(next))
			}
			if !slices.Equal(have, c.want) {
				t.Errorf("%s in %s after %s ticks at\n%s, not at\n%s", c.cron, c.zone, c.after, strings.Join(have, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// Of days on which clocks are set, and those around, against a count of every minute.
func TestNextAgainstEveryMinute(t *testing.T) {
	zones := []struct{ zone, day string }{
		{"Europe/Berlin", "2026-03-29"},
		{"Europe/Berlin", "2026-10-25"},
		{"America/New_York", "2026-03-08"},
		{"America/New_York", "2026-11-01"},
		{"Australia/Lord_Howe", "2026-04-05"},
		{"Australia/Lord_Howe", "2026-10-04"},
		{"America/Sao_Paulo", "2018-11-04"},
		{"America/Havana", "2026-11-01"},
		{"Pacific/Apia", "2011-12-30"},
		{"Asia/Kathmandu", "2026-01-01"},
		{"UTC", "2026-01-01"},
	}
	rapid.Check(t, func(t *rapid.T) {
		z := rapid.SampledFrom(zones).Draw(t, "zone")
		minutes := rapid.SliceOfNDistinct(rapid.IntRange(0, 59), 1, 3, rapid.ID).Draw(t, "minutes")
		var hours []int
		var hour string
		if elapsed := rapid.Bool().Draw(t, "elapsed"); elapsed {
			step := rapid.IntRange(1, 6).Draw(t, "step")
			for h := 0; h < 24; h += step {
				hours = append(hours, h)
			}
			hour = fmt.Sprintf("*/%d", step)
		} else {
			hours = rapid.SliceOfNDistinct(rapid.IntRange(0, 5), 1, 4, rapid.ID).Draw(t, "hours")
			hour = strings.Trim(strings.Join(strings.Fields(fmt.Sprint(hours)), ","), "[]")
		}
		cron := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(minutes)), ","), "[]") + " " + hour + " * * *"
		tt := of(t, events.Schedule{Cron: cron, Zone: z.zone})
		middle, _ := time.Parse(time.DateOnly, z.day)
		from, to := middle.Add(-36*time.Hour), middle.Add(60*time.Hour)

		named := func(local time.Time) bool {
			return slices.Contains(minutes, local.Minute()) && slices.Contains(hours, local.Hour())
		}
		var want []time.Time
		first := make(map[string]time.Time) // when clocks show what
		const form = "2006-01-02 15:04"
		for at := from.Add(-48 * time.Hour); at.Before(to.Add(48 * time.Hour)); at = at.Add(time.Minute) {
			local := at.In(tt.zone)
			if _, shown := first[local.Format(form)]; !shown {
				first[local.Format(form)] = at
			}
			if strings.HasPrefix(hour, "*") && named(local) {
				want = append(want, at)
			}
		}
		if !strings.HasPrefix(hour, "*") {
			for local := from.Add(-24 * time.Hour); local.Before(to.Add(24 * time.Hour)); local = local.Add(time.Minute) {
				if !named(local) {
					continue
				}
				later := local
				for first[later.Format(form)].IsZero() { // they are set over it
					later = later.Add(time.Minute)
				}
				want = append(want, first[later.Format(form)])
			}
		}
		want = slices.Compact(want)
		want = slices.DeleteFunc(want, func(at time.Time) bool { return !at.After(from) || at.After(to) })
		var have []time.Time
		for next := tt.Next(from); !next.After(to); next = tt.Next(next) {
			have = append(have, next)
		}
		if slices.ContainsFunc(have, func(at time.Time) bool { return at.Location() != time.UTC }) {
			t.Fatalf("not all are in UTC: %v", have)
		}
		if !slices.EqualFunc(have, want, time.Time.Equal) {
			t.Fatalf("%s in %s ticks at\n%v, not at\n%v", cron, z.zone, have, want)
		}
		// From wherever one looks, it is the next of these.
		for range 20 {
			after := from.Add(time.Duration(rapid.Int64Range(0, int64(to.Sub(from))-1).Draw(t, "after")))
			i := slices.IndexFunc(want, func(at time.Time) bool { return at.After(after) })
			if next := tt.Next(after); i >= 0 && !next.Equal(want[i]) {
				t.Fatalf("%s in %s: after %v comes %v, not %v", cron, z.zone, after, next, want[i])
			}
		}
	})
}

func TestIntervals(t *testing.T) {
	for name, c := range map[string]struct {
		s     events.Schedule
		after string
		want  []string
	}{
		"from 1970":       {events.Schedule{Every: "7h"}, "2026-01-01T00:00:00Z", []string{"2026-01-01T07:00:00Z", "2026-01-01T14:00:00Z"}},
		"from its start":  {events.Schedule{Every: "7h", Start: at(t, "2026-01-01T01:00:00Z")}, "2025-01-01T00:00:00Z", []string{"2026-01-01T01:00:00Z", "2026-01-01T08:00:00Z"}},
		"until its end":   {events.Schedule{Every: "1d", End: at(t, "2026-01-03T00:00:00Z")}, "2026-01-01T00:00:00Z", []string{"2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z", ""}},
		"a cron's start":  {events.Schedule{Cron: "0 * * * *", Start: at(t, "2026-01-01T01:00:00Z")}, "2025-01-01T00:00:00Z", []string{"2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"}},
		"between seconds": {events.Schedule{Every: "1s", Start: at(t, "2026-01-01T01:00:00.5Z")}, "2025-01-01T00:00:00Z", []string{"2026-01-01T01:00:01Z", "2026-01-01T01:00:02Z"}},
		"just then":       {events.Schedule{Every: "1s"}, "2026-01-01T00:00:00.999Z", []string{"2026-01-01T00:00:01Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt, next := of(t, c.s), at(t, c.after)
			for _, want := range c.want {
				next = tt.Next(next)
				have := ""
				if !next.IsZero() {
					have = events.TickText(next)
				}
				if have != want {
					t.Errorf("the next is %q, not %q", have, want)
				}
			}
		})
	}
}

func TestWhatIsNoTimetable(t *testing.T) {
	for _, c := range []struct {
		s    events.Schedule
		says string
	}{
		{events.Schedule{}, "nothing says when: set cron, or every"},
		{events.Schedule{Cron: "* * * * *", Every: "1h"}, "keep one of them"},
		{events.Schedule{Cron: "* * * *"}, "cron has 4 fields; write five fields"},
		{events.Schedule{Cron: "@daily"}, "cron has 1 fields"},
		{events.Schedule{Cron: "TZ=UTC * * * * *"}, "say the zone in zone"},
		{events.Schedule{Cron: "61 * * * *"}, `cron is "61 * * * *": `},
		{events.Schedule{Cron: "0 0 30 2 *"}, "never comes"},
		{events.Schedule{Cron: "* * * * *", Zone: "Berlin"}, "IANA"},
		{events.Schedule{Cron: "* * * * *", Zone: "Local"}, "IANA"},
		{events.Schedule{Every: "1h", Zone: "Europe/Berlin"}, "leave it out"},
		{events.Schedule{Every: "10"}, "every is a duration"},
		{events.Schedule{Every: "500ms"}, "every is 500ms; it is from 1s"},
		{events.Schedule{Every: "1.5s"}, "whole seconds"},
		{events.Schedule{Every: "1h", Jitter: "2d"}, "jitter is 48h0m0s; it is from 0s to 24h0m0s"},
		{events.Schedule{Every: "1h", Window: "0s"}, "window is 0s"},
		{events.Schedule{Every: "1h", Start: at(t, "2026-01-02T00:00:00Z"), End: at(t, "2026-01-01T00:00:00Z")}, "is before the start"},
	} {
		if _, err := Of(&c.s); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, which does not say %q", c.s, err, c.says)
		}
	}
}

// The jitter of a tick is the same whoever asks, and ticks have different ones.
func TestJitter(t *testing.T) {
	tt, tick := of(t, events.Schedule{Every: "1h", Jitter: "10m"}), at(t, "2026-01-01T00:00:00Z")
	seen := make(map[time.Duration]bool)
	for n := range 100 {
		by := tt.Begins(events.TickID("nightly", n, tick), tick).Sub(tick)
		if by < 0 || by >= 10*time.Minute || by != tt.Begins(events.TickID("nightly", n, tick), tick).Sub(tick) {
			t.Fatalf("it begins %v later", by)
		}
		seen[by.Truncate(time.Minute)] = true
	}
	if len(seen) < 10 {
		t.Errorf("they begin in %d of 10 minutes", len(seen))
	}
}

// Whatever is written, reading it ends, and what it makes moves on.
func FuzzOf(f *testing.F) {
	for _, at := range []uint32{0, 1<<31 - 1, 1772323199, math.MaxUint32} {
		f.Add("0 0 * * *", "", "Europe/Berlin", at)
		f.Add("0 0 L * 5#3", "", "Asia/Tokyo", at)
		f.Add("", "1d", "", at)
	}
	f.Fuzz(func(t *testing.T, cron, every, zone string, from uint32) {
		tt, err := Of(&events.Schedule{Cron: cron, Every: every, Zone: zone})
		if err != nil {
			return
		}
		at := time.Unix(int64(from), 0)
		for range 10 {
			next := tt.Next(at)
			if next.IsZero() {
				return
			}
			if !next.After(at) {
				t.Fatalf("after %v comes %v", at, next)
			}
			at = next
		}
	})
}

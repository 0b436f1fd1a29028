// Package timetable says when schedules begin orders. It knows no clock, and no schedule's state.
package timetable

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
	_ "time/tzdata" // where the machine has no zones

	"github.com/netresearch/go-cron"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/yamlfile"
)

// Timetable is the times of one schedule, its ticks: whole seconds in UTC.
type Timetable struct {
	cron *cron.SpecSchedule // of local times; nil of intervals
	// elapsed says that time elapses from tick to tick, whatever clocks say: see [Timetable.Next].
	elapsed    bool
	zone       *time.Location
	every      time.Duration
	start, end time.Time

	// Jitter is by how much an order begins later than its tick, at most.
	Jitter time.Duration
	// Window is how late an order may begin.
	Window time.Duration
}

// How much may be said of time.
const (
	day         = 24 * time.Hour
	maxEvery    = 366 * day
	maxJitter   = day
	maxWindow   = 366 * day
	window      = day // unless the schedule says another
	searchYears = 12  // for the next time of a cron: 29 February comes after eight years, if a century ends
)

var parser = cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom | cron.Extended).WithMaxSearchYears(searchYears)

// Of is the timetable of a schedule, or what is wrong with that.
func Of(s *events.Schedule) (*Timetable, error) {
	t := &Timetable{zone: time.UTC, start: s.Start, end: s.End}
	var err error
	switch {
	case s.Cron == "" && s.Every == "":
		return nil, errors.New("nothing says when: set cron, or every")
	case s.Cron != "" && s.Every != "":
		return nil, errors.New("both cron and every say when; keep one of them")
	case s.Every != "":
		if s.Zone != "" {
			return nil, errors.New("zone is of cron: time elapses the same in all of them; leave it out")
		}
		if t.every, err = duration("every", s.Every, time.Second, maxEvery); err != nil {
			return nil, err
		}
	default:
		if err := t.read(s); err != nil {
			return nil, err
		}
	}
	if s.Jitter != "" {
		if t.Jitter, err = duration("jitter", s.Jitter, 0, maxJitter); err != nil {
			return nil, err
		}
	}
	if t.Window = window; s.Window != "" {
		if t.Window, err = duration("window", s.Window, time.Second, maxWindow); err != nil {
			return nil, err
		}
	}
	if !s.Start.IsZero() && !s.End.IsZero() && s.End.Before(s.Start) {
		return nil, fmt.Errorf("the end, %s, is before the start, %s", events.TickText(s.End), events.TickText(s.Start))
	}
	return t, nil
}

func duration(what, text string, least, most time.Duration) (time.Duration, error) {
	d, err := yamlfile.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s is a duration, for example 90m or 1d, this is %q", what, text)
	case d < least, d > most:
		return 0, fmt.Errorf("%s is %v; it is from %v to %v", what, d, least, most)
	case d%time.Second != 0:
		return 0, fmt.Errorf("%s is %v; it is of whole seconds", what, d)
	}
	return d, nil
}

// read reads a cron.
func (t *Timetable) read(s *events.Schedule) (err error) {
	const form = "write five fields, minute hour day-of-month month day-of-week, or six with seconds before them, for example 30 3 * * 1-5"
	fields := strings.Fields(s.Cron)
	if len(fields) != 5 && len(fields) != 6 {
		return fmt.Errorf("cron has %d fields; %s", len(fields), form)
	}
	if strings.Contains(fields[0], "=") {
		return fmt.Errorf("cron is %q; say the zone in zone", s.Cron)
	}
	parsed, err := parser.Parse(s.Cron)
	if err != nil {
		return fmt.Errorf("cron is %q: %w; %s", s.Cron, err, form)
	}
	spec, is := parsed.(*cron.SpecSchedule)
	if !is {
		return fmt.Errorf("cron is %q; %s", s.Cron, form)
	}
	spec.Location = time.UTC // local times are written in it
	t.cron, t.elapsed = spec, strings.HasPrefix(fields[len(fields)-4], "*")
	if t.zone, err = zone(cmp.Or(s.Zone, "UTC")); err != nil {
		return err
	}
	if spec.Next(time.Unix(0, 0).UTC()).IsZero() {
		return fmt.Errorf("cron is %q, which never comes", s.Cron)
	}
	return nil
}

// zone finds a zone, but for that of the machine, which differs between instances.
func zone(name string) (*time.Location, error) {
	if name != "Local" {
		if z, err := time.LoadLocation(name); err == nil {
			return z, nil
		}
	}
	return nil, fmt.Errorf("zone is %q, which is not known here; write the name of one in the IANA database, for example Europe/Berlin", name)
}

// Next is the first tick after a time, zero if there is none.
//
// A cron with fixed hours ticks once for each local time that it names: where clocks are set back, when
// that comes first, and where clocks are set forward over it, right after that. One whose hour is * or
// begins so, as */2, ticks whenever clocks say a time that it names, and an interval whenever that has
// elapsed.
func (t *Timetable) Next(after time.Time) time.Time {
	if !t.start.IsZero() && after.Before(t.start) {
		after = t.start.Add(-1)
	}
	after = after.UTC()
	var next time.Time
	switch {
	case t.cron == nil:
		next = t.interval(after)
	case t.elapsed:
		next = t.shown(after)
	default:
		next = t.once(after)
	}
	if !t.end.IsZero() && next.After(t.end) {
		return time.Time{}
	}
	return next
}

// interval is the next of an interval, which begins at a whole second.
func (t *Timetable) interval(after time.Time) time.Time {
	from := ceil(cmp.Or(t.start, time.Unix(0, 0)).UTC())
	if after.Before(from) {
		return from
	}
	n := (after.Unix()-from.Unix())/int64(t.every/time.Second) + 1
	return time.Unix(from.Unix()+n*int64(t.every/time.Second), 0).UTC()
}

// ceil is the first whole second that is not before t.
func ceil(t time.Time) time.Time {
	if whole := t.Truncate(time.Second); !whole.Equal(t) {
		return whole.Add(time.Second)
	}
	return t
}

// wall is what clocks show at a time, as if it were UTC; and set is when they are set next, zero for never.
func (t *Timetable) wall(at time.Time) (shown, set time.Time) {
	local := at.In(t.zone)
	_, offset := local.Zone()
	_, set = local.ZoneBounds()
	return at.Add(time.Duration(offset) * time.Second).UTC(), set
}

// shown is the next time at which clocks show what the cron names.
func (t *Timetable) shown(after time.Time) time.Time {
	for {
		from, set := t.wall(after)
		next := t.cron.Next(from)
		if next.IsZero() {
			return next
		}
		at := after.Add(next.Sub(from))
		if set.IsZero() || at.Before(set) {
			return at
		}
		// From there on they show something else.
		if from, _ = t.wall(set); t.cron.Next(from.Add(-time.Second)).Equal(from) {
			return set.UTC()
		}
		after = set.UTC()
	}
}

// once is the next time at which clocks show first what the cron names, or are set over it.
func (t *Timetable) once(after time.Time) time.Time {
	local, _ := t.wall(after)
	for {
		if local = t.cron.Next(local); local.IsZero() {
			return local
		}
		if at := t.first(local); at.After(after) {
			return at
		}
	}
}

// first is when clocks show a local time first, or are set over it. It is never before that of an earlier
// one.
func (t *Timetable) first(local time.Time) time.Time {
	at := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), 0, t.zone)
	from, to := at.ZoneBounds()
	switch shown, _ := t.wall(at); {
	case shown.After(local): // clocks were set over it before
		return from.UTC()
	case shown.Before(local): // and here after
		return to.UTC()
	case from.IsZero():
		return at.UTC()
	}
	_, offset := from.Add(-time.Second).Zone()
	if before := local.Add(-time.Duration(offset) * time.Second); before.Before(from) {
		return before
	}
	return at.UTC()
}

// Begins is when the order of a tick is to begin, whose id says how much of the jitter it has.
func (t *Timetable) Begins(id string, tick time.Time) time.Time {
	h := fnv.New64a()
	h.Write([]byte(id))
	x := h.Sum64() // the upper bits hardly differ between short texts: mix them
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return events.Time(tick.Add(time.Duration(float64(x>>11) / (1 << 53) * float64(t.Jitter))))
}

package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// Schedule is what begins orders at times.
type Schedule struct {
	Says        *events.Schedule // nil while there is none of the name
	Incarnation int
	By          string
	// Next is the tick that nothing was decided on, and Begins when it begins its order.
	Next, Begins, Last time.Time
	Open               []Tick
	Free               time.Time // when the last of these ended
	// Pauses are those of which ticks may not be decided on, and the last, which has not ended while Until is before its begin.
	Pauses           []Pause
	Started, Skipped int
	Backfilled       int
	Backfills        []Backfill // that have not ended
	Commands         []string   // that asked for them, the last hundred
}

// Pause is a time in which no tick begins an order.
type Pause struct{ From, Until time.Time }

// pausedAt says that a time is of a pause.
func (s *Schedule) pausedAt(at time.Time) bool {
	return slices.ContainsFunc(s.Pauses, func(p Pause) bool { return !at.Before(p.From) && at.Before(p.Until) })
}

// resumed is when the last pause that has ended did.
func (s *Schedule) resumed() time.Time {
	if len(s.Pauses) == 0 {
		return time.Time{}
	}
	return s.Pauses[len(s.Pauses)-1].Until
}

// over leaves out the pauses that are over for each tick to come, but for the last.
func (s *Schedule) over() {
	var left []Pause
	for i, p := range s.Pauses {
		if i == len(s.Pauses)-1 || !s.Next.IsZero() && p.Until.After(s.Next) {
			left = append(left, p)
		}
	}
	s.Pauses = left
}

// Backfill is ticks of before that begin orders. Left counts those from Next on, which is zero behind the Last.
type Backfill struct {
	Number     int
	Next, Last time.Time
	Left       int
	AtOnce     int
	By         string
	Open       []Tick
}

// Tick is one that began an order which has not ended.
type Tick struct {
	At       time.Time
	Order    string
	Recalled bool
}

// isSchedule says that an id is that of a schedule: others that begin so hold a slash.
func isSchedule(id string) bool { return strings.HasPrefix(id, "@") && !strings.Contains(id, "/") }

// scheduled takes the events of a schedule.
func (l *Ledger) scheduled(e *events.Event) {
	s := l.Schedule
	if l.rule("T4", s != nil && isSchedule(l.Order) && l.Format >= events.SchedulesFormat, "it is no schedule, or in format %d", l.Format); s == nil {
		return
	}
	if e.Type == events.ScheduleApplied {
		l.applied(e, s)
		return
	}
	if l.rule("P3", s.Says != nil, "there is no schedule of the name"); s.Says == nil {
		return
	}
	switch e.Type {
	case events.SchedulePaused:
		l.rule("P3", !l.Paused, "it is paused")
		l.Paused, s.Pauses = true, append(slices.Clone(s.Pauses), Pause{From: events.Time(e.At), Until: s.resumed()})
		s.over()
	case events.ScheduleResumed:
		l.rule("P3", l.Paused, "it is not paused")
		l.Paused, s.Pauses = false, slices.Clone(s.Pauses)
		if n := len(s.Pauses); n > 0 {
			s.Pauses[n-1].Until = events.Time(e.At)
		}
	case events.ScheduleDeleted:
		l.Schedule = &Schedule{Incarnation: s.Incarnation}
		l.Paused, l.Held, l.errored, l.Alerted = false, false, false, false
	case events.ScheduleBackfilled:
		l.backfilled(e, s)
	case events.ScheduleStarted, events.ScheduleSkipped, events.ScheduleEnded:
		switch {
		case e.Backfill > 0:
			l.ofBackfill(e, s)
		case e.Type == events.ScheduleStarted:
			l.ticks(e, s)
			l.starts(e, s)
		case e.Type == events.ScheduleSkipped:
			l.ticks(e, s)
			l.skips(e, s)
		default:
			l.ofTick(e, s)
		}
	case events.ScheduleRecalled:
		l.ofTick(e, s)
	default:
		l.rule("P4", false, "nobody knows this event")
	}
}

// backfilled: its ticks have passed, and it has a number of its own.
func (l *Ledger) backfilled(e *events.Event, s *Schedule) {
	l.rule("A3", e.Backfill == s.Backfilled+1, "its number is %d, and %d were there", e.Backfill, s.Backfilled)
	l.rule("T4", e.Count >= 1 && (e.Count == 1) == e.Last.Equal(e.Tick), "from %v to %v are %d", e.Tick, e.Last, e.Count)
	l.rule("T4", s.Next.IsZero() || e.Last.Before(s.Next), "it is about ticks until %v, and nothing was decided on those from %v on", e.Last, s.Next)
	l.rule("P3", e.AtOnce >= 1 && e.AtOnce <= events.MaxOpen && len(s.Backfills) < events.MaxBackfills && !l.Held, "%d at once, beside %d backfills", e.AtOnce, len(s.Backfills))
	if every, err := duration(s.Says.Every); err == nil {
		l.rule("T4", e.Last.Sub(e.Tick) == time.Duration(e.Count-1)*every, "from %v to %v are %d, every %v", e.Tick, e.Last, e.Count, every)
	}
	s.Backfilled = e.Backfill
	s.Backfills = append(slices.Clone(s.Backfills), Backfill{Number: e.Backfill, Next: e.Tick, Last: e.Last, Left: e.Count, AtOnce: e.AtOnce, By: e.By})
	if e.Command != "" {
		s.Commands = append(slices.Clone(s.Commands), e.Command)
		s.Commands = s.Commands[max(0, len(s.Commands)-100):]
	}
}

// ofBackfill: each tick begins one order, in turn, so many at a time, unless it is there no more.
func (l *Ledger) ofBackfill(e *events.Event, s *Schedule) {
	i := slices.IndexFunc(s.Backfills, func(b Backfill) bool { return b.Number == e.Backfill })
	if l.rule("T4", i >= 0, "there is no backfill %d", e.Backfill); i < 0 {
		return
	}
	s.Backfills = slices.Clone(s.Backfills)
	b := &s.Backfills[i]
	switch e.Type {
	case events.ScheduleStarted:
		id := fmt.Sprintf("%s/%d/%s/%d", l.Order, s.Incarnation, e.Tick.UTC().Format(time.RFC3339), b.Number)
		l.rule("A3", e.Child == id, "its order is %s, and must be %s", e.Child, id)
		l.rule("S4", e.Workflow == s.Says.Workflow, "its order is of workflow %s", e.Workflow)
		l.rule("T4", e.Tick.Equal(b.Next) && e.Due.IsZero(), "it is about tick %v, and the next is %v", e.Tick, b.Next)
		l.rule("T4", e.Next.IsZero() == (b.Left == 1) && (e.Next.IsZero() || e.Next.After(e.Tick)) && !e.Next.After(b.Last), "the next after %v is %v, and %d are left until %v", e.Tick, e.Next, b.Left-1, b.Last)
		l.rule("S1", len(b.Open) < b.AtOnce, "%d orders of the backfill have not ended", len(b.Open))
		l.rule("P3", !l.Paused, "it is paused")
		s.Started++
		b.Next, b.Left, b.Open = e.Next, b.Left-1, append(slices.Clone(b.Open), Tick{At: e.Tick, Order: e.Child})
	case events.ScheduleSkipped:
		l.rule("P1", (e.Reason == events.SkippedReplaced || e.Reason == events.SkippedRejected) && e.Tick.Equal(b.Next) && e.Last.Equal(b.Last) && e.Count == b.Left && e.Next.IsZero(), "%d are left from %v to %v", b.Left, b.Next, b.Last)
		s.Skipped += e.Count
		b.Next, b.Left = time.Time{}, 0
	default:
		n := slices.IndexFunc(b.Open, func(t Tick) bool { return t.Order == e.Child && t.At.Equal(e.Tick) })
		if l.rule("S2", n >= 0, "order %s of tick %v is not open", e.Child, e.Tick); n < 0 {
			return
		}
		l.rule("P4", strings.Contains(e.Source, ".internal/"), "it is from %q", e.Source)
		b.Open = slices.Delete(slices.Clone(b.Open), n, n+1)
	}
	if b.Next.IsZero() && len(b.Open) == 0 {
		s.Backfills = slices.Delete(s.Backfills, i, i+1)
	}
}

// unended are all of its orders that have not ended.
func (s *Schedule) unended() []Tick {
	all := slices.Clone(s.Open)
	for _, b := range s.Backfills {
		all = append(all, b.Open...)
	}
	return all
}

// applied: another incarnation begins only once the one before was deleted. No tick comes again.
func (l *Ledger) applied(e *events.Event, s *Schedule) {
	want := s.Incarnation
	if s.Says == nil {
		want++
	}
	l.rule("T4", e.Incarnation == want, "its incarnation is %d, and must be %d", e.Incarnation, want)
	l.rule("T4", e.Next.IsZero() || e.Next.After(s.Last), "its next tick is %v, and it has decided on %v", e.Next, s.Last)
	l.rule("V2", e.Next.IsZero() || !e.Next.Before(e.Schedule.Start) && (e.Schedule.End.IsZero() || !e.Next.After(e.Schedule.End)), "its next tick is %v, between %v and %v", e.Next, e.Schedule.Start, e.Schedule.End)
	s.Says, s.Incarnation, s.By = e.Schedule, e.Incarnation, e.By
	s.goOn(e)
	l.Refused = 0
	l.Held, l.errored, l.Alerted = false, false, false
}

func (s *Schedule) goOn(e *events.Event) {
	if s.Next, s.Begins = e.Next, e.Next; !e.Due.IsZero() {
		s.Begins = e.Due
	}
	s.over()
}

// ticks: each is decided on once, in their order, and none is left out.
func (l *Ledger) ticks(e *events.Event, s *Schedule) {
	last := e.Last
	if e.Type == events.ScheduleStarted {
		last = e.Tick
	}
	l.rule("T4", !e.Tick.IsZero() && e.Tick.Equal(s.Next), "it is about tick %v, and the next is %v", e.Tick, s.Next)
	l.rule("T4", e.Next.IsZero() || e.Next.After(last), "the next after %v is %v", last, e.Next)
	l.rule("V2", e.Due.IsZero() || e.Due.After(e.Next), "tick %v begins at %v", e.Next, e.Due)
	l.rule("V2", e.Type == events.ScheduleSkipped && e.Reason == events.SkippedReplaced || l.Doubted || !e.At.Before(s.Begins), "the tick begins at %v", s.Begins)
	if every, err := duration(s.Says.Every); err == nil && !e.Next.IsZero() {
		l.rule("T4", e.Next.Sub(last) == every, "the next after %v is %v, and there is one every %v", last, e.Next, every)
		l.rule("T4", e.Count == 0 || last.Sub(e.Tick) == time.Duration(e.Count-1)*every, "from %v to %v are %d, every %v", e.Tick, last, e.Count, every)
	}
	l.rule("P3", !l.Paused || e.Reason == events.SkippedReplaced, "it is paused")
}

// starts: an order begins, unless one before has not ended and the schedule says that it is in the way.
func (l *Ledger) starts(e *events.Event, s *Schedule) {
	id := fmt.Sprintf("%s/%d/%s", l.Order, s.Incarnation, e.Tick.UTC().Format(time.RFC3339))
	l.rule("A3", e.Child == id, "its order is %s, and must be %s", e.Child, id)
	l.rule("S4", e.Workflow == s.Says.Workflow, "its order is of workflow %s", e.Workflow)
	l.rule("P3", !s.pausedAt(s.Begins), "its order was to begin at %v, and the schedule was paused: %v", s.Begins, s.Pauses)
	l.rule("S1", len(s.Open) == 0 || s.Says.Overlap == events.OverlapAllow && len(s.Open) < events.MaxOpen, "%d orders have not ended, and it says %q", len(s.Open), s.Says.Overlap)
	s.Last, s.Started = e.Tick, s.Started+1
	s.Open = append(s.Open, Tick{At: e.Tick, Order: e.Child})
	s.goOn(e)
}

// skips: that none begins has a reason, which is so.
func (l *Ledger) skips(e *events.Event, s *Schedule) {
	l.rule("T4", e.Count >= 1 && (e.Count == 1) == e.Last.Equal(e.Tick) && !e.Last.Before(e.Tick), "from %v to %v are %d", e.Tick, e.Last, e.Count)
	holds := false
	switch e.Reason {
	case events.SkippedOverlap:
		holds = s.Says.Overlap != events.OverlapAllow && s.Says.Overlap != events.OverlapQueue && (e.Tick.Before(s.Free) || s.Says.Overlap == events.OverlapCancel)
	case events.SkippedMissed:
		holds = s.missed(e)
	case events.SkippedPaused:
		holds = s.pausedAt(s.Begins) && (s.Says.Jitter != "" || s.pausedAt(e.Last))
		if every, err := duration(s.Says.Every); err == nil && s.Says.Jitter == "" {
			for tick := e.Tick; holds && tick.Before(e.Last); tick = tick.Add(every) {
				holds = s.pausedAt(tick)
			}
		}
	case events.SkippedTooMany:
		holds = len(s.Open) >= events.MaxOpen
	case events.SkippedReplaced:
		holds = !e.Last.After(e.At)
	}
	l.rule("P1", l.Doubted || holds, "the reason %q does not hold", e.Reason)
	s.Last, s.Skipped = e.Last, s.Skipped+e.Count
	s.goOn(e)
}

// missed: the first of its ticks and the last would begin later than the schedule wants; or by more than a minute, if they did
// not wait for an order, and the schedule does not catch up, or does so with another that is due by now. Those of a pause are not
// missed.
func (s *Schedule) missed(e *events.Event) bool {
	late := min(e.At.Sub(s.Begins), e.At.Sub(e.Last))
	waited := s.Begins.Before(s.Free) && !s.Free.After(e.At) && s.Says.Overlap != events.OverlapAllow
	caughtUp := s.Says.CatchUp == events.CatchUpAll || s.Says.CatchUp == events.CatchUpLatest && !s.another(e)
	return !s.pausedAt(s.Begins) && (late > s.window() || late > time.Minute && !waited && !caughtUp)
}

// another says that one behind the ticks of an event is due. Of what is behind a pause that is known only where ticks are as far from each
// other as the schedule says.
func (s *Schedule) another(e *events.Event) bool {
	next := e.Next
	if !e.Due.IsZero() {
		next = e.Due
	}
	if every, err := duration(s.Says.Every); err == nil && s.Says.Jitter == "" {
		for !next.IsZero() && !next.After(e.At) && s.pausedAt(next) {
			next = next.Add(every)
		}
	}
	return !next.IsZero() && !next.After(e.At)
}

// window is how late an order of the schedule may begin.
func (s *Schedule) window() time.Duration {
	if d, err := duration(s.Says.Window); err == nil {
		return d
	}
	return 24 * time.Hour
}

// duration reads that of a schedule: whole days, if there are some, and what follows them.
func duration(text string) (time.Duration, error) {
	days, rest, some := strings.Cut(text, "d")
	if !some {
		return time.ParseDuration(text)
	}
	n, err := strconv.Atoi(days)
	if err != nil || rest == "" {
		return time.Duration(n) * 24 * time.Hour, err
	}
	more, err := time.ParseDuration(rest)
	return time.Duration(n)*24*time.Hour + more, err
}

// ofTick: what is said of an order is of one that has not ended.
func (l *Ledger) ofTick(e *events.Event, s *Schedule) {
	i := slices.IndexFunc(s.Open, func(t Tick) bool { return t.Order == e.Child && t.At.Equal(e.Tick) })
	if l.rule("S2", i >= 0, "order %s of tick %v is not open", e.Child, e.Tick); i < 0 {
		return
	}
	if e.Type == events.ScheduleRecalled {
		l.rule("S2", !s.Open[i].Recalled, "order %s was recalled before", e.Child)
		l.rule("S4", s.Says.Overlap == events.OverlapCancel, "it says %q", s.Says.Overlap)
		s.Open = slices.Clone(s.Open)
		s.Open[i].Recalled = true
		return
	}
	l.rule("P4", strings.Contains(e.Source, ".internal/"), "it is from %q", e.Source)
	if s.Open = slices.Delete(slices.Clone(s.Open), i, i+1); len(s.Open) == 0 {
		s.Open, s.Free = nil, events.Time(e.At)
	}
}

// scheduleWishes are what the orders of a schedule are asked for by an event.
func (l *Ledger) scheduleWishes(e *events.Event) (all []events.Wish) {
	s := l.Schedule
	w := events.Wish{Child: e.Child, Parent: e.Order, Step: e.Tick.UTC().Format(time.RFC3339), Reason: e.Reason}
	switch e.Type {
	case events.ScheduleStarted:
		w.Wish, w.Workflow, w.Version, w.Input, w.ReplyTo = "begin", s.Says.Workflow, s.Says.Version, s.Says.Input, s.Says.ReplyTo
		w.Priority, w.By = s.Says.Priority, s.By
		w.Labels = map[string]string{"schedule": e.Order[1:], "tick": w.Step}
		if e.Backfill > 0 {
			w.Labels["backfill"] = fmt.Sprint(e.Backfill)
		}
		for _, b := range s.Backfills {
			if b.Number == e.Backfill && b.By != "" {
				w.Submitters = []string{b.By}
			}
		}
		maps.Copy(w.Labels, s.Says.Labels)
		all = append(all, w)
	case events.ScheduleRecalled:
		w.Wish = "cancel"
		all = append(all, w)
	case events.ScheduleResumed, events.OrderReleased:
		for _, t := range s.unended() {
			all = append(all, events.Wish{Child: t.Order, Wish: "tell", Parent: e.Order, Step: t.At.UTC().Format(time.RFC3339), Reason: "the schedule was resumed"})
		}
	}
	return all
}

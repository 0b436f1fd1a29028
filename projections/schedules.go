package projections

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/waybill-dev/waybill/events"
)

// Schedules, which begin orders. Each has a record as orders do, and a history.

// Schedule is what a schedule says, and how far it is.
type Schedule struct {
	// Says is what was applied, nil if there is no schedule of the name: it was deleted, or could not be
	// applied. It is not changed in place.
	Says *events.Schedule
	// Incarnation is how many there were of the name with this one.
	Incarnation int
	// AppliedBy is who applied it, as far as that was said.
	AppliedBy string
	// Next is the first tick that is not decided on, zero if there is none, Begins when it begins its
	// order, and Last the last tick that was decided on.
	Next, Begins, Last time.Time
	// Open are its orders that have not ended, oldest first. It is not changed in place.
	Open []Tick
	// Free is when the last of them ended: what was due before did not begin then for that reason.
	Free time.Time
	// Resumed and PausedAt are when it was resumed, and paused, last: what was due in between begins nothing. Pauses are
	// those before of which ticks may wait for the end of an order. It is not changed in place.
	Resumed, PausedAt time.Time
	Pauses            []Pause
	// Started and Skipped count its ticks since it was applied first, with those of backfills.
	Started, Skipped int
	// Backfilled is how many backfills there were, and Backfills are those that have not ended. It is not
	// changed in place.
	Backfilled int
	Backfills  []Backfill
	// Commands are the ids of those that asked for backfills, the last [keptCommands]. Not changed in place.
	Commands []string
}

// Pause is a time in which a schedule was paused, Until not in it.
type Pause struct{ From, Until time.Time }

func (p Pause) has(at time.Time) bool { return !at.Before(p.From) && at.Before(p.Until) }

// PausedUntil is when the pause ended in which a time lies that is not before [Schedule.Next], zero if it lies in none.
func (s *Schedule) PausedUntil(at time.Time) time.Time {
	if last := (Pause{s.PausedAt, s.Resumed}); last.has(at) {
		return last.Until
	}
	for _, p := range s.Pauses {
		if p.has(at) {
			return p.Until
		}
	}
	return time.Time{}
}

// keptCommands bounds [Schedule.Commands].
const keptCommands = 100

// Backfill is ticks that have passed, and begin orders now.
type Backfill struct {
	Number int
	// Next is the first tick that has begun none yet, zero behind the Last; Left is how many there are.
	Next, Last time.Time
	Left       int
	AtOnce     int    // how many of its orders may be open
	By         string // who commanded it, as far as that was said
	Open       []Tick // as of [Schedule]
}

// Room says that its next tick can begin an order.
func (b *Backfill) Room() bool { return !b.Next.IsZero() && len(b.Open) < b.AtOnce }

// Tick is a tick that began an order.
type Tick struct {
	At    time.Time
	Order string // its id
	// Recalled says that it was asked to undo what it did, and end.
	Recalled bool
}

// Waits says that ticks wait for the end of an order, whatever time it is.
func (s *Schedule) Waits() bool {
	switch {
	case len(s.Open) == 0:
		return false
	case s.Says.Overlap == events.OverlapAllow:
		return false
	case s.Says.Overlap == events.OverlapCancel:
		return !slices.ContainsFunc(s.Open, func(t Tick) bool { return !t.Recalled })
	}
	return true
}

// Ticks is when the supervisor must look at a schedule: zero while its ticks wait for the end of an
// order, so that it costs nothing then.
func (o *Order) Ticks() time.Time {
	s := o.Schedule
	if s.Says == nil || o.Paused || o.Hold != nil {
		return time.Time{}
	}
	for i := range s.Backfills {
		if b := &s.Backfills[i]; b.Room() {
			return time.Unix(0, 0) // it has passed
		}
	}
	if s.Waits() {
		return time.Time{}
	}
	return s.Begins
}

// goOn has the schedule go on with the tick that follows.
func (s *Schedule) goOn(e *events.Event) {
	if s.Next, s.Begins = e.Next, e.Next; !e.Due.IsZero() {
		s.Begins = e.Due
	}
	s.Pauses = slices.DeleteFunc(slices.Clone(s.Pauses), func(p Pause) bool { return !s.waitedIn(p) })
	if len(s.Pauses) == 0 {
		s.Pauses = nil
	}
}

// waitedIn says that a tick on which nothing was decided may be of a pause.
func (s *Schedule) waitedIn(p Pause) bool { return !s.Next.IsZero() && s.Next.Before(p.Until) }

func applySchedule(o *Order, _ *Step, e *events.Event) {
	if o.Schedule == nil {
		o.Schedule = new(Schedule)
	}
	s := o.Schedule
	if s.Says == nil {
		o.AcceptedAt = e.At
	}
	s.Says, s.Incarnation, s.AppliedBy = e.Schedule, e.Incarnation, e.By
	s.goOn(e)
	o.Workflow, o.Version, o.Quiet, o.Refused = e.Schedule.Workflow, e.Schedule.Version, true, 0
	o.goOnAsSchedule()
}

func deleteSchedule(o *Order, _ *Step, _ *events.Event) {
	o.Schedule = &Schedule{Incarnation: o.Schedule.Incarnation}
	o.Paused = false
	o.goOnAsSchedule()
}

// goOnAsSchedule ends a hold: what panicked is gone.
func (o *Order) goOnAsSchedule() {
	if o.Hold != nil {
		o.State, o.Reason, o.Alert, o.Hold = Pending, "", nil, nil
	}
}

func pauseSchedule(o *Order, _ *Step, e *events.Event) {
	s := o.Schedule
	if before := (Pause{s.PausedAt, s.Resumed}); s.waitedIn(before) {
		s.Pauses = append(slices.Clip(s.Pauses), before)
	}
	o.Paused, s.PausedAt = true, events.Time(e.At)
}

func resumeSchedule(o *Order, _ *Step, e *events.Event) {
	o.Paused, o.Schedule.Resumed = false, events.Time(e.At)
}

func startTick(o *Order, _ *Step, e *events.Event) {
	s := o.Schedule
	s.Started++
	if e.Backfill > 0 {
		s.backfill(e.Backfill, func(b *Backfill) {
			if b.Next, b.Left = e.Next, b.Left-1; e.Next.IsZero() {
				b.Left = 0
			}
			b.Open = append(slices.Clip(b.Open), Tick{At: e.Tick, Order: e.Child})
		})
		return
	}
	s.Last = e.Tick
	s.Open = append(slices.Clip(s.Open), Tick{At: e.Tick, Order: e.Child})
	s.goOn(e)
}

func skipTicks(o *Order, _ *Step, e *events.Event) {
	s := o.Schedule
	s.Skipped += e.Count
	if e.Backfill > 0 {
		s.backfill(e.Backfill, func(b *Backfill) { b.Next, b.Left = time.Time{}, 0 })
		return
	}
	s.Last = e.Last
	s.goOn(e)
}

func backfillTicks(o *Order, _ *Step, e *events.Event) {
	s := o.Schedule
	s.Backfilled = e.Backfill
	s.Backfills = append(slices.Clip(s.Backfills), Backfill{Number: e.Backfill, Next: e.Tick, Last: e.Last, Left: e.Count, AtOnce: e.AtOnce, By: e.By})
	if e.Command != "" {
		s.Commands = append(slices.Clone(s.Commands[max(0, len(s.Commands)-keptCommands+1):]), e.Command)
	}
}

// backfill changes one, which leaves once all of its ticks have begun orders and these have ended.
func (s *Schedule) backfill(number int, change func(*Backfill)) {
	s.Backfills = slices.Clone(s.Backfills)
	for i := range s.Backfills {
		if b := &s.Backfills[i]; b.Number == number {
			if change(b); b.Next.IsZero() && len(b.Open) == 0 {
				s.Backfills = slices.Delete(s.Backfills, i, i+1)
			}
			break
		}
	}
	if len(s.Backfills) == 0 {
		s.Backfills = nil
	}
}

// without are the ticks but for that of an order; nil if there is no other.
func without(open []Tick, order string) []Tick {
	open = slices.DeleteFunc(slices.Clone(open), func(t Tick) bool { return t.Order == order })
	if len(open) == 0 {
		return nil
	}
	return open
}

func endTick(o *Order, _ *Step, e *events.Event) {
	s := o.Schedule
	if e.Backfill > 0 {
		s.backfill(e.Backfill, func(b *Backfill) { b.Open = without(b.Open, e.Child) })
		return
	}
	s.Open = without(s.Open, e.Child)
	if s.Open == nil {
		s.Free = events.Time(e.At)
	}
}

func recallTick(o *Order, _ *Step, e *events.Event) {
	s := o.Schedule
	s.Open = slices.Clone(s.Open)
	for i := range s.Open {
		s.Open[i].Recalled = s.Open[i].Recalled || s.Open[i].Order == e.Child
	}
}

// schedule writes that a record is of a schedule, and how that stands.
func (w *writer) schedule(o *Order) {
	s := o.Schedule
	if w.truth(s != nil); s == nil {
		return
	}
	says := ""
	if s.Says != nil {
		says = string(s.Says.Append(nil))
	}
	w.text(says)
	w.uint(uint64(s.Incarnation))
	w.text(s.AppliedBy)
	for _, at := range []time.Time{s.Next, s.Begins, s.Last, s.Free, s.Resumed, s.PausedAt} {
		w.time(at)
	}
	w.ticks(s.Open)
	w.uint(uint64(s.Started))
	w.uint(uint64(s.Skipped))
	w.uint(uint64(s.Backfilled))
	w.uint(uint64(len(s.Backfills)))
	for i := range s.Backfills {
		b := &s.Backfills[i]
		w.uint(uint64(b.Number))
		w.time(b.Next)
		w.time(b.Last)
		w.uint(uint64(b.Left))
		w.uint(uint64(b.AtOnce))
		w.text(b.By)
		w.ticks(b.Open)
	}
	w.uint(uint64(len(s.Commands)))
	for _, id := range s.Commands {
		w.text(id)
	}
}

func (w *writer) ticks(open []Tick) {
	w.uint(uint64(len(open)))
	for _, t := range open {
		w.time(t.At)
		w.text(t.Order)
		w.truth(t.Recalled)
	}
}

// schedule reads what the writer's schedule wrote.
func (r *reader) schedule(o *Order) {
	if !r.truth() {
		return
	}
	s := new(Schedule)
	if says := r.text(); says != "" {
		s.Says = decodeSays[events.Schedule](r, says)
	}
	s.Incarnation, s.AppliedBy = int(r.uint()), r.text()
	for _, at := range []*time.Time{&s.Next, &s.Begins, &s.Last, &s.Free, &s.Resumed, &s.PausedAt} {
		*at = r.time()
	}
	s.Open = r.ticks()
	s.Started, s.Skipped, s.Backfilled = int(r.uint()), int(r.uint()), int(r.uint())
	if n := r.count(); n > 0 {
		s.Backfills = make([]Backfill, n)
		for i := range s.Backfills {
			s.Backfills[i] = Backfill{Number: int(r.uint()), Next: r.time(), Last: r.time(), Left: int(r.uint()), AtOnce: int(r.uint()), By: r.text(), Open: r.ticks()}
		}
	}
	if n := r.count(); n > 0 {
		s.Commands = make([]string, n)
		for i := range s.Commands {
			s.Commands[i] = r.text()
		}
	}
	o.Schedule = s
}

// decodeSays is what was applied, as JSON.
func decodeSays[S events.Schedule | events.Limit](r *reader, text string) *S {
	says, err := events.Decode[S]([]byte(text))
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%w: %v", errDamaged, err)
	}
	return &says
}

func (r *reader) ticks() (open []Tick) {
	if n := r.count(); n > 0 {
		open = make([]Tick, n)
		for i := range open {
			open[i] = Tick{r.time(), r.text(), r.truth()}
		}
	}
	return open
}

// A schedule's record has the offsets of its last events only: of keptEvents at least, and less than
// twice as many. Its history goes on in the journal.
const keptEvents = 100

// recent takes away the offsets that a schedule's record does not have any more, once its event of the
// number seq is among them. It depends on nothing else, so that equal states have equal bytes.
func recent(offsets []byte, seq uint64) []byte {
	if seq < 2*keptEvents || seq%keptEvents != 0 {
		return offsets
	}
	all := journalOffsets(offsets)
	var kept []byte
	var last int64
	for _, offset := range all[max(0, len(all)-keptEvents):] {
		kept = appendOffset(kept, last, offset)
		last = offset
	}
	return kept
}

func appliedKey(partition int32, kind byte, name string) []byte {
	return append(appendPrefix(make([]byte, 0, 5+len(name)), partition, kind), name...)
}

// applied says that this is a schedule, or a limit, which is there.
func (o *Order) applied() bool {
	return o.Schedule != nil && o.Schedule.Says != nil || o.Places != nil && o.Places.Says != nil
}

// indexApplied has a schedule, or a limit, be in the list of them while there is one.
func (p *Partition) indexApplied(b *pebble.Batch, o, old *Order) error {
	key := appliedKey(p.id, kindSchedule, events.ScheduleOf(o.ID))
	if o.Places != nil {
		key = appliedKey(p.id, kindLimit, events.LimitOf(o.ID))
	}
	switch is := o.applied(); {
	case is == old.applied():
		return nil
	case is:
		return b.Set(key, nil, nil)
	default:
		return b.Delete(key, nil)
	}
}

// Schedules returns the records of schedules of all partitions below partitions but for those without, by
// partition and name, at most limit of them, behind the place after, and the place behind which there
// may be more, nil at the end. Those of workflows that are not visible are passed over; nil means that
// all are. It ends with ctx.
func (s *Store) Schedules(ctx context.Context, partitions int32, without []int32, after []byte, limit int, visible func(workflow string) bool) (all []*Order, next []byte, err error) {
	return s.applied(ctx, kindSchedule, events.ScheduleID, partitions, without, after, limit, visible)
}

// Limits returns in the same way the records of limits, without those who wait.
func (s *Store) Limits(ctx context.Context, partitions int32, without []int32, after []byte, limit int) (all []*Order, next []byte, err error) {
	return s.applied(ctx, kindLimit, events.LimitID, partitions, without, after, limit, nil)
}

func (s *Store) applied(ctx context.Context, kind byte, id func(name string) string, partitions int32, without []int32, after []byte, limit int, visible func(workflow string) bool) (all []*Order, next []byte, err error) {
	if err := checkPlace(after, partitions, kind); err != nil {
		return nil, nil, err
	}
	return s.summaries().allApplied(ctx, kind, id, partitions, without, after, limit, visible)
}

func (r *summaries) allApplied(ctx context.Context, kind byte, id func(name string) string, partitions int32, without []int32, after []byte, limit int, visible func(workflow string) bool) (all []*Order, next []byte, err error) {
	defer r.view.Close()
	for p := range partitions {
		if slices.Contains(without, p) {
			continue
		}
		all, next, err = r.applied(ctx, kind, id, p, after, limit, visible, all)
		if next != nil || err != nil {
			return all, next, err
		}
	}
	return all, nil, nil
}

func (r *summaries) applied(ctx context.Context, kind byte, id func(name string) string, p int32, place []byte, limit int, visible func(workflow string) bool, all []*Order) (_ []*Order, next []byte, err error) {
	from := prefix(p, kind)
	end := after(from)
	if slices.Compare(place, end) >= 0 {
		return all, nil, nil
	}
	behind, ends := append(slices.Clone(from), 0), true // before all of the partition, or behind the last that is visible
	if slices.Compare(place, from) > 0 {
		from, ends = place, false
	}
	it, err := r.view.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: end})
	if err != nil {
		return nil, nil, damage(err)
	}
	defer func() {
		if closing := it.Close(); closing != nil && err == nil {
			err = damage(closing)
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if len(all) == limit || r.enough() && ends {
			return all, behind, nil
		}
		r.keys++
		o, err := r.order(p, id(string(it.Key()[5:])))
		if err != nil {
			return nil, nil, err
		}
		if !o.applied() {
			return nil, nil, fmt.Errorf("%w: %q is listed as there, and is not", errDamaged, o.ID)
		}
		if visible == nil || visible(o.Workflow) {
			all = append(all, o)
			behind, ends = append(slices.Clone(it.Key()), 0), true
		}
	}
	return all, nil, it.Error()
}

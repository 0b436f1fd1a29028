package decide

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/timetable"
	"github.com/waybill-dev/waybill/orchestrator/workflow"
	"github.com/waybill-dev/waybill/projections"
)

// punctual is how late a tick may be decided on that somebody took in time.
const punctual = time.Minute

// A decision counts so many ticks at most, each of which takes a moment. The supervisor counts the others.
const countAtOnce = 100_000

// arrange decides on an input to a schedule, which need not be there if it is applied.
func arrange(env *Env, order *projections.Order, in *Input) Decision {
	switch {
	case in.Command != nil:
		if order == nil && env.Format < events.SchedulesFormat { // an older release could not read what follows
			return Decision{Aside: []Aside{{in.Record, fmt.Sprintf("schedules are of format %d, and the partition is of format %d: finish the upgrade (waybill upgrade finish)", events.SchedulesFormat, env.Format)}}}
		}
		if order == nil {
			order = &projections.Order{ID: in.Order, Schedule: new(projections.Schedule)}
		}
		return Operate(env, order, in)
	case in.Report != nil:
		d := newDecider(env, order)
		d.ended(in)
		return d.made()
	case in.Reply == nil && in.Signal == nil && in.Wish == nil:
		return submittedOwn(in)
	}
	d := &decider{env: env, order: order.Clone()}
	d.putAside(in.Record, fmt.Sprintf("%s is the schedule %s, and no order", in.Order, events.ScheduleOf(in.Order)))
	return d.made()
}

// CheckSchedule says what is wrong with a schedule, nil if nothing, but for what only those know who have the
// workflows.
func CheckSchedule(s *events.Schedule) error {
	if _, err := timetable.Of(s); err != nil {
		return err
	}
	switch s.Overlap {
	case "", events.OverlapSkip, events.OverlapQueueOne, events.OverlapQueue, events.OverlapCancel, events.OverlapAllow:
	default:
		return fmt.Errorf("overlap is %q; it is skip, queue-one, queue, cancel-other or allow", Cut(s.Overlap, MaxName))
	}
	switch s.CatchUp {
	case "", events.CatchUpNone, events.CatchUpLatest, events.CatchUpAll:
	default:
		return fmt.Errorf("catchUp is %q; it is none, latest or all", Cut(s.CatchUp, MaxName))
	}
	if s.Workflow == "" {
		return errors.New("no workflow is named whose orders it begins; set workflow")
	}
	if s.Version < 0 {
		return fmt.Errorf("version %d: versions begin with 1", s.Version)
	}
	if err := checkPriority(s.Priority); err != nil {
		return err
	}
	for _, name := range []string{events.ScheduleLabel, events.TickLabel, events.BackfillLabel} {
		if _, taken := s.Labels[name]; taken {
			return fmt.Errorf("the label %s says which tick began an order; choose another name", name)
		}
	}
	if err := events.CheckLabels(labelled(s, "", time.Time{}, 1)); err != nil {
		return err
	}
	if size := len(s.Append(nil)); size > events.MaxSchedule {
		return fmt.Errorf("it has %d bytes; at most %d are allowed: keep large data elsewhere, and pass a reference to it", size, events.MaxSchedule)
	}
	return nil
}

// labelled are the labels of an order of a schedule, begun by the backfill of a number, or by 0, the schedule
// itself.
func labelled(s *events.Schedule, name string, tick time.Time, backfill int) map[string]string {
	labels := make(map[string]string, len(s.Labels)+3)
	maps.Copy(labels, s.Labels)
	labels[events.ScheduleLabel], labels[events.TickLabel] = name, events.TickText(tick)
	if backfill > 0 {
		labels[events.BackfillLabel] = strconv.Itoa(backfill)
	}
	return labels
}

// operateSchedule does to a schedule what a command asks for, or says why that is not possible.
func (d *decider) operateSchedule(c *events.Command, act events.Event) (refusal string) {
	o, s := d.order, d.order.Schedule
	switch c.Command {
	case events.CommandApply, events.CommandDelete, events.CommandPause, events.CommandResume, events.CommandBackfill:
	case events.CommandRelease:
		return d.release(c, act)
	default:
		return fmt.Sprintf("it is a schedule, and no order: it can be applied, paused, resumed, backfilled and deleted, and released once it is held, which %s is not", Cut(c.Command, MaxName))
	}
	switch {
	case d.env.Doubted:
		return fmt.Sprintf("which ticks have passed is not known while the clocks of instance %s and of Kafka differ; send the command again when the clock is right", d.env.Instance)
	case c.Command == events.CommandApply:
		return d.apply(c.Schedule, act)
	case s.Says == nil:
		return "there is no schedule of this name"
	case c.Command == events.CommandDelete:
		if d.replace(); o.Hold == nil {
			d.endBackfills()
		}
		act.Type = events.ScheduleDeleted
		d.record(&act)
		d.resume()
		return ""
	case o.Hold != nil:
		return fmt.Sprintf("the schedule is held, and nothing is done to it before its release: waybill order release %s; or apply another, or delete it", quote(o.ID))
	case c.Command == events.CommandBackfill:
		return d.backfill(c, act)
	case c.Command == events.CommandPause && o.Paused:
		return "the schedule is paused already"
	case c.Command == events.CommandPause && len(s.Pauses) >= events.MaxPauses:
		return fmt.Sprintf("the schedule was paused more than %d times since %s, and its ticks from then on wait for the end of an order (waybill schedule show %s has it): see to that order first, or apply other ticks, or delete the schedule", events.MaxPauses, events.TickText(s.Next), quote(events.ScheduleOf(o.ID)))
	case c.Command == events.CommandResume && !o.Paused:
		return "the schedule is not paused"
	}
	if act.Type = events.SchedulePaused; c.Command == events.CommandResume {
		act.Type = events.ScheduleResumed
	}
	d.record(&act)
	d.tick()
	return ""
}

// apply has the schedule be as it says from here on: what was due before is not begun by it.
func (d *decider) apply(says *events.Schedule, act events.Event) (refusal string) {
	if says == nil {
		return "nothing says what the schedule is to be"
	}
	if err := CheckSchedule(says); err != nil {
		return err.Error()
	}
	if d.env.Workflow(says.Workflow, says.Version) == nil {
		name := says.Workflow
		if says.Version > 0 {
			name = workflow.ID(says.Workflow, says.Version)
		}
		return fmt.Sprintf("workflow %s is not registered; register it first", Cut(name, MaxName))
	}
	s := d.order.Schedule
	act.Type, act.Schedule, act.Incarnation = events.ScheduleApplied, says, s.Incarnation
	if s.Says == nil {
		act.Incarnation++
	}
	table, _ := timetable.Of(says) // it was checked
	k := &ticks{decider: d, schedule: s, table: table, incarnation: act.Incarnation}
	from := s.Last // no tick begins two orders
	other := s.Says == nil || !sameTicks(s.Says, says)
	if other {
		d.replace()
		if d.env.Now.After(from) {
			from = d.env.Now
		}
		k.upcoming(&act, from)
	} else if act.Next = s.Next; !s.Begins.Equal(s.Next) {
		act.Due = s.Begins
	}
	if d.record(&act); other {
		d.endBackfills()
	}
	d.resume()
	return ""
}

// sameTicks says that two schedules differ in nothing by which ticks are found: those that wait go on to.
func sameTicks(a, b *events.Schedule) bool {
	return a.Cron == b.Cron && a.Every == b.Every && a.Zone == b.Zone && a.Jitter == b.Jitter && a.Start.Equal(b.Start) && a.End.Equal(b.End)
}

// replaceAtMost bounds how many events say what becomes of ticks that nobody will decide on.
const replaceAtMost = 10

// replace passes over what is due, and was not decided on: the ticks of a timetable that is there no more.
func (d *decider) replace() {
	s := d.order.Schedule
	if s.Says == nil || d.order.Hold != nil {
		return
	}
	k := d.ticks()
	for range replaceAtMost {
		if s.Next.IsZero() || s.Next.After(d.env.Now) {
			return
		}
		k.skip(k.run(func(t time.Time) bool { return !t.After(d.env.Now) }), events.SkippedReplaced)
	}
}

// backfillAtMost is how many ticks one command has begin orders: counting them takes a moment.
const backfillAtMost = 10_000

// backfill has ticks begin orders that have passed.
func (d *decider) backfill(c *events.Command, act events.Event) (refusal string) {
	s, from, to := d.order.Schedule, events.Time(c.From), events.Time(c.To)
	switch {
	case from.IsZero() || to.IsZero():
		return "the first and the last time are missing whose ticks are meant (from, to)"
	case to.Before(from):
		return fmt.Sprintf("it ends at %s, before it begins, at %s", events.TickText(to), events.TickText(from))
	case to.After(d.env.Now):
		return fmt.Sprintf("it ends at %s, which has not passed: those ticks begin their orders by themselves", events.TickText(to))
	case !s.Next.IsZero() && !to.Before(s.Next):
		return fmt.Sprintf("it ends at %s, and on its own ticks from %s on the schedule has not decided yet; end before", events.TickText(to), events.TickText(s.Next))
	case c.ID != "" && slices.Contains(s.Commands, c.ID):
		return "a backfill was commanded under this id before, and acts once; give another its own id"
	case c.AtOnce < 0 || c.AtOnce > events.MaxOpen:
		return fmt.Sprintf("%d orders at a time; use 1 to %d", c.AtOnce, events.MaxOpen)
	case len(s.Backfills) >= events.MaxBackfills:
		return fmt.Sprintf("%d backfills have not ended, and no more may be; send the command again when one has", len(s.Backfills))
	}
	k := d.ticks()
	act.Type, act.Backfill, act.AtOnce = events.ScheduleBackfilled, s.Backfilled+1, cmp.Or(c.AtOnce, 1)
	for tick := k.table.Next(from.Add(-1)); !tick.IsZero() && !tick.After(to); tick = k.table.Next(tick) {
		if act.Last = tick; act.Count == 0 {
			act.Tick = tick
		}
		if act.Count++; act.Count > backfillAtMost {
			d.dear = true
			return fmt.Sprintf("from %s on there are %d ticks before %s, and at most %[2]d are backfilled at a time; send several commands", events.TickText(from), backfillAtMost, events.TickText(tick))
		}
	}
	if act.Count == 0 {
		return fmt.Sprintf("the schedule has no tick from %s to %s", events.TickText(from), events.TickText(to))
	}
	d.dear = d.dear || act.Count > backfillAtMost/10
	d.record(&act)
	d.tick()
	return ""
}

// endBackfills has no more ticks of them begin orders: those of a timetable that is there no more.
func (d *decider) endBackfills() {
	for _, b := range d.order.Schedule.Backfills {
		d.endBackfill(&b, events.SkippedReplaced)
	}
}

func (d *decider) endBackfill(b *projections.Backfill, why string) {
	if !b.Next.IsZero() {
		d.record(&events.Event{Type: events.ScheduleSkipped, Backfill: b.Number, Tick: b.Next, Last: b.Last, Count: b.Left, Reason: why})
	}
}

// openTick is an order that has not ended, of the schedule itself or of a backfill.
type openTick struct {
	projections.Tick
	backfill int
}

// open are all orders of a schedule that have not ended.
func open(s *projections.Schedule) (all []openTick) {
	for _, t := range s.Open {
		all = append(all, openTick{t, 0})
	}
	for _, b := range s.Backfills {
		for _, t := range b.Open {
			all = append(all, openTick{t, b.Number})
		}
	}
	return all
}

// ended takes that an order of the schedule has ended, and goes on with what waits for that.
func (d *decider) ended(in *Input) {
	r := in.Report
	for _, t := range open(d.order.Schedule) {
		if t.Order != r.Child || events.TickText(t.At) != r.Step {
			continue
		}
		d.record(&events.Event{Type: events.ScheduleEnded, Backfill: t.backfill, Tick: t.At, Child: t.Order, End: r.State, Error: r.Error, Source: in.Record.Source()})
		for _, b := range d.order.Schedule.Backfills {
			if b.Number == t.backfill && r.State == string(projections.Rejected) { // as the others would be
				d.endBackfill(&b, events.SkippedRejected)
			}
		}
		if !d.env.Doubted {
			d.tick()
		}
		return
	}
}

// tick decides on the ticks that are due, one after the other; those of the schedule itself first.
func (d *decider) tick() {
	s := d.order.Schedule
	if s.Says == nil || d.order.Hold != nil || d.order.Paused {
		return
	}
	k := d.ticks()
	for !s.Waits() && !s.Begins.IsZero() && !d.env.Now.Before(s.Begins) && !d.spent() {
		k.decide()
	}
	for i := 0; i < len(s.Backfills) && !d.spent(); {
		if b := s.Backfills[i]; b.Room() {
			k.fill(&b)
		} else {
			i++
		}
	}
}

// fill has the next tick of a backfill begin an order. It has no jitter.
func (k *ticks) fill(b *projections.Backfill) {
	e := events.Event{
		Type: events.ScheduleStarted, Backfill: b.Number, Tick: b.Next, Workflow: k.schedule.Says.Workflow,
		Child: events.BackfillID(events.ScheduleOf(k.order.ID), k.incarnation, b.Next, b.Number),
	}
	if next := k.table.Next(b.Next); !next.After(b.Last) {
		e.Next = next
	}
	k.record(&e)
	k.begun++
}

// ticks are those of a schedule.
type ticks struct {
	*decider
	schedule    *projections.Schedule // the decider's
	table       *timetable.Timetable
	incarnation int
}

func (d *decider) ticks() *ticks {
	s := d.order.Schedule
	table, err := timetable.Of(s.Says)
	if err != nil { // it was checked, where zones were known that are not here: the schedule is held
		panic(fmt.Sprintf("the schedule cannot be read by this instance: %v", err))
	}
	return &ticks{d, s, table, s.Incarnation}
}

// dueAs is what a tick is that was not decided on.
type dueAs int

const (
	ahead  dueAs = iota // it is not due
	paused              // it was, while the schedule was paused
	busy                // it was, before the end of an order
	late                // it was, and nobody took it in time
	onTime
)

func (k *ticks) id(tick time.Time) string {
	return events.TickID(events.ScheduleOf(k.order.ID), k.incarnation, tick)
}

// begins is when a tick begins its order.
func (k *ticks) begins(tick time.Time) time.Time {
	if k.table.Jitter == 0 {
		return tick
	}
	return k.table.Begins(k.id(tick), tick)
}

// is what a tick is now. An end of a time that is still to come is of a clock that was wrong.
func (k *ticks) is(tick time.Time) dueAs {
	at, now := k.begins(tick), k.env.Now
	switch s := k.schedule; {
	case now.Before(at):
		return ahead
	case !s.PausedUntil(at).IsZero():
		return paused
	case at.Before(s.Free) && !s.Free.After(now) && s.Says.Overlap != events.OverlapAllow:
		return busy
	case now.Sub(at) > punctual:
		return late
	}
	return onTime
}

// old says that an order of a tick would begin later than the schedule wants.
func (k *ticks) old(tick time.Time) bool {
	return k.env.Now.Sub(k.begins(tick)) > k.table.Window
}

// run is ticks that follow each other, from the next that is not decided on.
type run struct {
	first, last time.Time
	count       int
	before      time.Time // the last but one
	next        time.Time // what follows
}

// run are the ticks, from the first on, which are so; there is one.
func (k *ticks) run(so func(time.Time) bool) run {
	first := k.schedule.Next
	r := run{first: first, last: first, count: 1, next: k.table.Next(first)}
	for !r.next.IsZero() && so(r.next) {
		if r.count == countAtOnce {
			k.dear = true
			break
		}
		r.before, r.last, r.next = r.last, r.next, k.table.Next(r.next)
		r.count++
	}
	return r
}

// alike are the ticks from the first on that are the same.
func (k *ticks) alike() run {
	as := k.is(k.schedule.Next)
	return k.run(func(t time.Time) bool { return k.is(t) == as })
}

// skip passes over ticks.
func (k *ticks) skip(r run, why string) {
	e := events.Event{Type: events.ScheduleSkipped, Tick: r.first, Last: r.last, Count: r.count, Reason: why}
	k.upcoming(&e, r.last)
	k.record(&e)
}

// due says that of the ticks from one on some are due, and not of a pause.
func (k *ticks) due(tick time.Time) bool {
	for !tick.IsZero() {
		until := k.schedule.PausedUntil(k.begins(tick))
		if until.IsZero() {
			break
		}
		// Those of the pause are passed over at once.
		tick = k.table.Next(slices.MaxFunc([]time.Time{tick, until.Add(-k.table.Jitter - 1)}, time.Time.Compare))
	}
	return !tick.IsZero() && k.is(tick) != ahead
}

// butLast passes over ticks but for the last, and for that, too, if another that is no less due is behind it. It says
// whether it did: if not, it is one, and the last that is due.
func (k *ticks) butLast(r run, why string) bool {
	switch {
	case k.due(r.next):
	case r.count == 1:
		return false
	default:
		r.last, r.count = r.before, r.count-1
	}
	k.skip(r, why)
	return true
}

// upcoming says in an event which tick follows one, and when that begins its order.
func (k *ticks) upcoming(e *events.Event, after time.Time) {
	if e.Next = k.table.Next(after); e.Next.IsZero() {
		return
	}
	if at := k.begins(e.Next); !at.Equal(e.Next) {
		e.Due = at
	}
}

// decide decides on the next tick, which is due, and on those that follow as far as what becomes of them
// is the same.
func (k *ticks) decide() {
	s := k.schedule
	overlap, catchUp := cmp.Or(s.Says.Overlap, events.OverlapSkip), cmp.Or(s.Says.CatchUp, events.CatchUpNone)
	as, open := k.is(s.Next), len(s.Open)
	switch {
	case as == paused:
		k.skip(k.alike(), events.SkippedPaused)
	case open >= events.MaxOpen:
		k.skip(k.run(func(t time.Time) bool { return k.is(t) != ahead }), events.SkippedTooMany)
	case as == busy && overlap == events.OverlapSkip:
		k.skip(k.alike(), events.SkippedOverlap)
	case as == late && catchUp == events.CatchUpNone:
		k.skip(k.alike(), events.SkippedMissed)
	case as == late && catchUp == events.CatchUpLatest && k.butLast(k.alike(), events.SkippedMissed):
	case k.old(s.Next):
		k.skip(k.run(func(t time.Time) bool { return k.is(t) == as && k.old(t) }), events.SkippedMissed)
	case open > 0 && overlap == events.OverlapCancel:
		for _, t := range s.Open {
			if !t.Recalled {
				k.record(&events.Event{Type: events.ScheduleRecalled, Tick: t.At, Child: t.Order, Reason: fmt.Sprintf("schedule %s begins its next order", events.ScheduleOf(k.order.ID))})
			}
		}
	case as == busy && overlap == events.OverlapCancel && k.butLast(k.alike(), events.SkippedOverlap):
	case as == onTime && overlap == events.OverlapCancel && k.butLast(k.alike(), events.SkippedOverlap):
	default:
		k.start()
		why := map[dueAs]string{busy: events.SkippedOverlap, paused: events.SkippedPaused}
		for as == busy && overlap == events.OverlapQueueOne && !s.Next.IsZero() && why[k.is(s.Next)] != "" && !k.spent() {
			k.skip(k.alike(), why[k.is(s.Next)])
		}
	}
}

// start has the next tick begin an order.
func (k *ticks) start() {
	s := k.schedule
	e := events.Event{Type: events.ScheduleStarted, Tick: s.Next, Child: k.id(s.Next), Workflow: s.Says.Workflow}
	k.upcoming(&e, s.Next)
	k.record(&e)
	k.begun++
}

// scheduleWishes are what the orders of a schedule are asked for by an event: as those that do steps. One
// that was resumed asks them to tell once more whether they ended: what they told may be given up.
func scheduleWishes(o *projections.Order, e *events.Event) (all []*events.Wish) {
	s := o.Schedule
	w := events.Wish{Child: e.Child, Parent: o.ID, Step: events.TickText(e.Tick), Reason: e.Reason}
	switch e.Type {
	case events.ScheduleStarted:
		says := s.Says
		w.Wish, w.Workflow, w.Version, w.Input, w.ReplyTo = events.WishBegin, says.Workflow, says.Version, says.Input, says.ReplyTo
		for _, b := range s.Backfills {
			if b.Number == e.Backfill && b.By != "" {
				w.Submitters = []string{b.By} // who had it begin
			}
		}
		w.Priority, w.Labels, w.By = says.Priority, labelled(says, events.ScheduleOf(o.ID), e.Tick, e.Backfill), s.AppliedBy
		return []*events.Wish{&w}
	case events.ScheduleRecalled:
		w.Wish = events.WishCancel
		return []*events.Wish{&w}
	case events.ScheduleResumed, events.OrderReleased:
		for _, t := range open(s) {
			all = append(all, &events.Wish{Child: t.Order, Wish: events.WishTell, Parent: o.ID, Step: events.TickText(t.At), Reason: "the schedule was resumed"})
		}
	}
	return all
}

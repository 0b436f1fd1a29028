package decide

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/timetable"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/draw"
	"github.com/waybill-dev/waybill/test/inspect"
)

// TestScheduleHistories: whatever is applied, paused and deleted, while orders end or do not, the clock jumps over
// ticks, instances crash and deciding panics, the invariants hold after every step; and in the end every tick
// that there was began one order, or none for a reason, once.
func TestScheduleHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := newTimekeeper(t, inspect.Curtain, "*/7 * * * * *", "0 * * * *", "5,10 0-59/2 12 * * *")
		defer func() { k.close() }()
		k.perform(t)
	})
}

// TestScheduleHistoriesWhereClocksAreSet: the same in a night in which clocks are set forward, or back, while now and
// then nobody is there for minutes.
func TestScheduleHistoriesWhereClocksAreSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := draw.Of[time.Time](t, "set", time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC), time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC))
		k := newTimekeeper(t, set.Add(-2*time.Minute), "*/7 * * * * *", "0 58,59,0,1 2,3 * * *", "*/10 * 2 * * *", "0 * */2 * * *")
		defer func() { k.close() }()
		k.perform(t)
	})
}

// timekeeper draws what happens to schedules, on the stage of a historian.
type timekeeper struct {
	*historian
	crons []string
}

func newTimekeeper(t *rapid.T, now time.Time, crons ...string) *timekeeper {
	k := &timekeeper{&historian{stage: newStage(t), inspector: inspect.New()}, crons}
	k.now = now
	k.flows.Add(parseFlow(t, "workflow: flow\nsteps:\n  - {name: a, agent: a0, undo: b, timeout: 10s, retry: {attempts: 2}}\n"))
	k.takeOver(t, "i-1")
	k.apply(t)
	return k
}

var schedules = []string{events.ScheduleID("a"), events.ScheduleID("b")}

func (k *timekeeper) perform(t *rapid.T) {
	id := func(t *rapid.T) string { return draw.Of(t, "schedule", schedules...) }
	say := func(command string) func(*rapid.T) {
		return func(t *rapid.T) {
			k.command(t, id(t), events.Command{Command: command, ID: draw.Of(t, "id", "", "c-1")})
			k.soon(t)
		}
	}
	obey := func(t *rapid.T) {
		for _, id := range k.ids() {
			if !draw.One(t, "ends", 3) {
				k.obey(t, id)
			}
		}
		k.soon(t)
	}
	draw.Acts(t, draw.Of(t, "acts", 10, 30, 90), func() { k.check(t, k.inspector) },
		draw.Act{Weight: 2, Do: k.apply}, draw.Act{Weight: 1, Do: say(events.CommandPause)}, draw.Act{Weight: 2, Do: say(events.CommandResume)}, draw.Act{Weight: 1, Do: say(events.CommandDelete)},
		draw.Act{Weight: 1, Do: say(events.CommandRelease)}, draw.Act{Weight: 1, Do: k.backfill},
		draw.Act{Weight: 1, Do: func(t *rapid.T) { k.command(t, k.drawOf(t), events.Command{Command: events.CommandCancel}); k.soon(t) }},
		draw.Act{Weight: 1, Do: func(t *rapid.T) { k.signals = append(k.signals, signal{id: id(t), value: events.Signal{Signal: "go"}}) }},
		draw.Act{Weight: 3, Do: obey}, draw.Act{Weight: 2, Do: k.live}, draw.Act{Weight: 1, Do: k.punctual}, draw.Act{Weight: 3, Do: k.watch},
		draw.Act{Weight: 2, Do: func(t *rapid.T) { k.wait(time.Duration(draw.Amount(t, "ms", 1, 20_000)) * time.Millisecond) }},
		draw.Act{Weight: 1, Do: func(t *rapid.T) { k.wait(time.Duration(draw.Int(t, "s", 60, 600)) * time.Second) }},
		draw.Act{Weight: 1, Do: k.fall}, draw.Act{Weight: 1, Do: k.curse}, draw.Act{Weight: 1, Do: k.vanish},
		draw.Act{Weight: 1, Do: func(t *rapid.T) { k.read(t) }}, draw.Act{Weight: 1, Do: func(t *rapid.T) { k.commit(t) }},
		draw.Act{Weight: 1, Do: func(t *rapid.T) { k.mute = draw.One(t, "mute", 3) }},
	)
	k.rest(t)
}

// drawOf draws an order that has not ended, or a schedule.
func (k *timekeeper) drawOf(t *rapid.T) string {
	all := slices.Clone(schedules)
	for _, id := range k.ids() {
		if o := k.of(t, id); o.Schedule == nil && !o.State.Final() {
			all = append(all, id)
		}
	}
	return draw.Of(t, "of", all...)
}

// apply applies a schedule, or one that cannot be.
func (k *timekeeper) apply(t *rapid.T) {
	s := &events.Schedule{Workflow: draw.Of(t, "workflow", "flow", "flow", "flow", "flow", "none")}
	if draw.Flip(t, "cron") {
		s.Cron = draw.Of(t, "when", k.crons...)
		s.Zone = draw.Of(t, "zone", "", "Europe/Berlin")
	} else {
		s.Every = draw.Of(t, "every", "1s", "5s", "20s", "1m30s")
	}
	s.Overlap = draw.Of(t, "overlap", "", events.OverlapSkip, events.OverlapQueueOne, events.OverlapQueue, events.OverlapCancel, events.OverlapAllow)
	s.CatchUp = draw.Of(t, "catch up", "", events.CatchUpNone, events.CatchUpLatest, events.CatchUpAll)
	s.Window = draw.Of(t, "window", "", "", "30s", "2m", "0d2m", "1d2m")
	s.Jitter = draw.Of(t, "jitter", "", "", "3s")
	if draw.One(t, "ends", 4) {
		s.Start, s.End = events.Time(k.now.Add(10*time.Second)), events.Time(k.now.Add(5*time.Minute))
	}
	k.command(t, draw.Of(t, "schedule", schedules...), events.Command{Command: events.CommandApply, Schedule: s, By: "ana"})
	k.soon(t)
}

// backfill has ticks begin orders that have passed, or not all of which have.
func (k *timekeeper) backfill(t *rapid.T) {
	to := k.now.Add(time.Duration(draw.Amount(t, "to", -60, 2)) * time.Second)
	k.command(t, draw.Of(t, "schedule", schedules...), events.Command{
		Command: events.CommandBackfill, From: to.Add(-time.Duration(draw.Int(t, "from", -1, 40)) * time.Second), To: to,
		AtOnce: draw.Of(t, "at once", 0, 0, 1, 3, 100, 101), ID: draw.Of(t, "id", "", "b-1"),
	})
	k.soon(t)
}

// watch supervises until nothing more comes of it, which takes a few looks where many orders begin.
func (k *timekeeper) watch(t *rapid.T) {
	for range 10 {
		k.commit(t)
		k.state.Rescan()
		if k.supervise(t, page); len(k.records) == 0 {
			return
		}
	}
	t.Fatalf("something is decided at %v again and again", k.now)
}

// curse has deciding on a schedule panic, or heals it.
func (k *timekeeper) curse(t *rapid.T) {
	if clear(k.cursed); draw.One(t, "panics", 3) {
		k.cursed[draw.Of(t, "schedule", schedules...)] = true
	}
}

// rest ends all trouble, has every order end, and looks at every tick.
func (k *timekeeper) rest(t *rapid.T) {
	clear(k.cursed)
	k.mute = false
	for range 1000 {
		k.read(t)
		k.commit(t)
		busy := k.position.At(events.InputInternal) < int64(len(k.internal))
		for _, id := range k.ids() {
			switch o := k.of(t, id); {
			case o.Hold != nil:
				k.command(t, id, events.Command{Command: events.CommandRelease})
				busy = true
			case o.Schedule != nil:
				if o.Schedule.Says != nil {
					k.command(t, id, events.Command{Command: events.CommandDelete})
					busy = true
				}
			case o.State == projections.Error:
				k.command(t, id, events.Command{Command: events.CommandResubmit})
				busy = true
			case !o.State.Final():
				k.obey(t, id)
				busy = true
			}
		}
		k.supervise(t, page)
		busy = busy || len(k.records) > 0
		k.commit(t)
		k.check(t, k.inspector)
		if !busy {
			k.account(t)
			k.rebuild(t)
			return
		}
		k.wait(time.Second)
	}
	t.Fatalf("not all orders end: %v", k.ids())
}

// account holds every event of the schedules against the timetable that each had then.
func (k *timekeeper) account(t *rapid.T) {
	began := make(map[string]bool)
	for _, id := range schedules {
		var table *timetable.Timetable
		var next time.Time
		backfills := make(map[int]time.Time) // the next tick of each
		for _, e := range k.inspector.Histories[id] {
			switch e.Type {
			case events.ScheduleDeleted:
				clear(backfills)
			case events.ScheduleBackfilled:
				k.goOver(t, &events.Event{Order: id, Seq: e.Seq, Tick: e.Tick, Next: table.Next(e.Last)}, table, e.Tick, e.Last, e.Count)
				if table.Next(e.Tick.Add(-time.Second)) != e.Tick {
					t.Fatalf("%s: %v is no tick", id, e.Tick)
				}
				backfills[e.Backfill] = e.Tick
			case events.ScheduleApplied:
				var err error
				table, err = timetable.Of(e.Schedule)
				must(t, err)
				next = e.Next
				if !next.IsZero() && !table.Next(next.Add(-time.Second)).Equal(next) {
					t.Fatalf("%s: %v is no tick of %+v", id, next, e.Schedule)
				}
				if !next.IsZero() && e.Seq == 1 && !next.After(e.At) {
					t.Fatalf("%s: its first tick is %v, at %v", id, next, e.At)
				}
			case events.ScheduleStarted:
				if began[e.Child] {
					t.Fatalf("%s: tick %v began order %s before", id, e.Tick, e.Child)
				}
				began[e.Child] = true
				if e.Backfill > 0 {
					if !e.Tick.Equal(backfills[e.Backfill]) || !e.Next.IsZero() && !e.Next.Equal(table.Next(e.Tick)) {
						t.Fatalf("%s: backfill %d goes over %v to %v, and was at %v", id, e.Backfill, e.Tick, e.Next, backfills[e.Backfill])
					}
					backfills[e.Backfill] = e.Next
					continue
				}
				next = k.goOver(t, &e, table, next, e.Tick, 1)
			case events.ScheduleSkipped:
				if e.Backfill > 0 {
					continue
				}
				next = k.goOver(t, &e, table, next, e.Last, e.Count)
			}
		}
	}
	for _, id := range k.ids() {
		if history := k.inspector.Histories[id]; history[0].Parent != "" {
			if !began[id] {
				t.Fatalf("order %s was begun by no tick", id)
			}
			delete(began, id)
		}
	}
	if len(began) > 0 {
		t.Fatalf("these orders never came: %v", began)
	}
}

// goOver goes over the ticks of an event, and returns the next.
func (k *timekeeper) goOver(t *rapid.T, e *events.Event, table *timetable.Timetable, next, last time.Time, count int) time.Time {
	n, at := 1, e.Tick
	for ; at.Before(last); n++ {
		at = table.Next(at)
	}
	if !e.Tick.Equal(next) || !at.Equal(last) || n != count || !e.Next.Equal(table.Next(last)) {
		t.Fatalf("%s: event %d is about %d ticks from %v to %v and goes on with %v; they are %d from %v to %v, and the next is %v", e.Order, e.Seq, count, e.Tick, last, e.Next, n, next, at, table.Next(last))
	}
	return e.Next
}

// kept are some histories of schedules and their orders, always the same.
var kept = sync.OnceValue(func() []recording {
	var all []recording
	for seed := range 60 {
		all = append(all, timed.Example(seed)...)
	}
	return append(all, backfilled.Example(0)...)
})

// backfilled is a schedule some of whose ticks began orders when they had passed, all of which have ended.
var backfilled = rapid.Custom(func(t *rapid.T) []recording {
	k := newTimekeeper(t, inspect.Curtain, "0 * * * *")
	defer func() { k.close() }()
	settle := func() {
		k.read(t)
		k.commit(t)
		k.check(t, k.inspector)
	}
	k.command(t, "@b", events.Command{Command: events.CommandApply, Schedule: &events.Schedule{Every: "1m", Workflow: "flow", Overlap: events.OverlapAllow}, By: "bob"})
	for n, atOnce := range []int{2, 3} {
		k.command(t, "@b", events.Command{Command: events.CommandBackfill, From: k.now.Add(-4 * time.Minute), To: k.now, AtOnce: atOnce, By: "ana", ID: fmt.Sprint("b-", n)})
	}
	for range 20 {
		settle()
		for _, id := range k.ids() {
			if o := k.of(t, id); o.Schedule == nil && !o.State.Final() {
				k.obey(t, id)
			}
		}
		settle()
		k.supervise(t, page)
		k.commit(t)
		k.wait(time.Second)
	}
	if s := k.of(t, "@b").Schedule; s.Backfilled != 2 || len(s.Backfills) > 0 {
		t.Fatalf("not all of them have ended: %+v", s)
	}
	return k.record(t)
})

var timed = rapid.Custom(func(t *rapid.T) []recording {
	k := newTimekeeper(t, inspect.Curtain, "*/7 * * * * *", "0 * * * *", "5,10 0-59/2 12 * * *")
	defer func() { k.close() }()
	k.perform(t)
	return k.record(t)
})

// By whatever clock a schedule is applied, no tick comes again: of the same incarnation it would begin the same order.
func TestAScheduleIsAppliedByASlowerClock(t *testing.T) {
	s := newStage(t)
	defer s.close()
	s.flows.Add(parseFlow(t, "workflow: flow\nsteps: [{name: a, agent: a0}]"))
	s.takeOver(t, "i-1")
	apply := func(every string) *projections.Schedule {
		s.commands = append(s.commands, command{id: "@a", value: events.Command{Command: events.CommandApply, Schedule: &events.Schedule{Every: every, Workflow: "flow"}}})
		s.read(t)
		s.commit(t)
		return s.of(t, "@a").Schedule
	}
	apply("1s")
	s.now = s.now.Add(time.Second)
	s.supervise(t, page)
	s.commit(t)
	last := s.now
	s.now = s.now.Add(-time.Minute)
	if is := apply("2s"); !is.Last.Equal(last) || !is.Next.After(last) {
		t.Errorf("the last tick is %v, and the next %v", is.Last, is.Next)
	}
}

// While the clock is in doubt no tick is decided on, and nothing about which ticks have passed.
func TestASchedulesClockIsInDoubt(t *testing.T) {
	s := newStage(t)
	defer s.close()
	s.flows.Add(parseFlow(t, "workflow: flow\nsteps: [{name: a, agent: a0}]"))
	s.takeOver(t, "i-1")
	s.commands = append(s.commands, command{id: "@a", value: events.Command{Command: events.CommandApply, Schedule: &events.Schedule{Every: "1s", Workflow: "flow"}}})
	s.read(t)
	s.commit(t)
	s.now = s.now.Add(time.Second)
	s.supervise(t, page)
	s.commit(t)
	o := s.of(t, "@a")
	env := s.env("@a")
	env.Doubted, env.Now = true, s.now.Add(time.Hour)
	for _, name := range []string{events.CommandApply, events.CommandPause, events.CommandDelete} {
		in := s.input(s.topics.Commands, 1, "@a", nil, s.now)
		in.Command = &events.Command{Command: name, Schedule: o.Schedule.Says}
		d := On(env, o, &in)
		if e, err := events.Decode[events.Event](d.Messages[0].Value); err != nil || len(d.Messages) != 1 || e.Type != events.CommandRefused {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	in := s.input(s.topics.Internal, 1, "@a", nil, s.now)
	in.Report = &events.Report{Parent: "@a", Step: events.TickText(o.Schedule.Open[0].At), Child: o.Schedule.Open[0].Order, State: "Processed"}
	d := On(env, o, &in)
	if len(d.Messages) != 1 || len(d.Order.Schedule.Open) != 0 || !d.Order.Schedule.Last.Equal(o.Schedule.Last) {
		t.Errorf("the end of an order: %d messages, %+v", len(d.Messages), d.Order.Schedule)
	}
	// What ended by a clock that was ahead is no reason to begin nothing until then.
	env.Doubted, env.Now = false, s.now.Add(2*time.Second)
	if d := Supervise(env, d.Order, ""); d.Order == nil || d.Order.Schedule.Started != 2 {
		t.Errorf("then it is %+v", d.Order)
	}
}

// Each pause is known while ticks wait that were due before it, and so there is a bound.
func TestAScheduleIsPausedOften(t *testing.T) {
	s := newStage(t)
	defer s.close()
	s.flows.Add(parseFlow(t, "workflow: flow\nsteps: [{name: a, agent: a0}]"))
	s.takeOver(t, "i-1")
	say := func(c events.Command) {
		s.commands = append(s.commands, command{id: "@a", value: c})
		s.read(t)
		s.commit(t)
	}
	say(events.Command{Command: events.CommandApply, Schedule: &events.Schedule{Every: "1s", Workflow: "flow", Overlap: events.OverlapQueue}})
	s.now = s.now.Add(time.Second)
	s.supervise(t, page)
	s.commit(t)
	s.now = s.now.Add(time.Second)
	for range events.MaxPauses + 1 {
		say(events.Command{Command: events.CommandPause})
		s.now = s.now.Add(time.Second)
		say(events.Command{Command: events.CommandResume})
	}
	if is := s.of(t, "@a"); len(is.Schedule.Pauses) != events.MaxPauses || is.Paused {
		t.Fatalf("it knows %d pauses", len(is.Schedule.Pauses))
	}
	in := s.input(s.topics.Commands, 1, "@a", nil, s.now)
	in.Command = &events.Command{Command: events.CommandPause}
	e, err := events.Decode[events.Event](On(s.env("@a"), s.of(t, "@a"), &in).Messages[0].Value)
	if err != nil || e.Type != events.CommandRefused || !strings.Contains(e.Reason, "waybill schedule show a ") {
		t.Errorf("another pause: %+v, %v", e, err)
	}
}

// A schedule of every second, whose workflow keeps its orders for some minutes, fills no store: after hours that
// has about as many keys and bytes as after a few minutes more than orders are kept for.
func TestAStoreDoesNotGrowWithTicks(t *testing.T) {
	s := newStage(t)
	defer s.close()
	s.flows.Add(parseFlow(t, "workflow: flow\nkeep: 3m\nsteps: [{name: nap, sleep: 100ms}]"))
	s.takeOver(t, "i-1")
	s.commands = append(s.commands, command{id: "@a", value: events.Command{Command: events.CommandApply, Schedule: &events.Schedule{Every: "1s", Workflow: "flow", Overlap: events.OverlapAllow}}})
	size := func() (keys, bytes int) {
		must(t, s.state.Flush())
		for key, value := range dump(t, s.store) {
			keys, bytes = keys+1, bytes+len(key)+len(value)
		}
		return keys, bytes
	}
	var keys, bytes int
	const seconds = 6 * 60 * 60
	for n := range seconds {
		s.read(t)
		s.commit(t)
		s.supervise(t, page)
		s.commit(t)
		if s.now = s.now.Add(time.Second); n == 6*60 {
			keys, bytes = size()
		}
	}
	if more, many := size(); more > keys+keys/10 || many > bytes+bytes/10 {
		t.Errorf("it has %d keys, and %d bytes; before there were %d and %d", more, many, keys, bytes)
	}
	if is := s.of(t, "@a").Schedule; is.Started < seconds-2 || is.Skipped > 0 {
		t.Errorf("%+v", is)
	}
}

// Whoever has ticks begin orders that have passed may not approve what these ask for, as whoever submitted them.
func TestWhoBackfillsHasSubmitted(t *testing.T) {
	s := newStage(t)
	defer s.close()
	s.flows.Add(parseFlow(t, "workflow: flow\nsteps: [{name: a, agent: a0}]"))
	s.takeOver(t, "i-1")
	s.commands = append(s.commands,
		command{id: "@a", value: events.Command{Command: events.CommandApply, Schedule: &events.Schedule{Every: "1s", Workflow: "flow"}, By: "bob"}},
		command{id: "@a", value: events.Command{Command: events.CommandBackfill, From: s.now.Add(-time.Second), To: s.now, By: "ana"}})
	for range 3 {
		s.read(t)
		s.commit(t)
	}
	open := s.of(t, "@a").Schedule.Backfills[0].Open
	o := s.of(t, open[0].Order)
	if !o.Submitted("ana") || !o.Submitted("bob") || o.Submitted("eve") {
		t.Errorf("it was submitted by %q, and %q", o.SubmittedBy, o.Submitters)
	}
}

// Ticks that wait go on to a schedule by which the same ones are found, and to no other.
func TestSameTicks(t *testing.T) {
	at := inspect.Curtain
	one := events.Schedule{Cron: "0 7 * * *", Zone: "Europe/Zurich", Jitter: "1m", Start: at, End: at.Add(time.Hour), Workflow: "report"}
	for name, differs := range map[string]func(*events.Schedule){
		"cron": func(s *events.Schedule) { s.Cron = "0 8 * * *" }, "every": func(s *events.Schedule) { s.Every = "1h" },
		"zone": func(s *events.Schedule) { s.Zone = "" }, "jitter": func(s *events.Schedule) { s.Jitter = "" },
		"start": func(s *events.Schedule) { s.Start = time.Time{} }, "end": func(s *events.Schedule) { s.End = time.Time{} },
	} {
		other := one
		if differs(&other); sameTicks(&one, &other) || sameTicks(&other, &one) {
			t.Errorf("another %s has the same ticks", name)
		}
	}
	other := one
	other.Workflow, other.Overlap, other.Start, other.End = "bill", events.OverlapAllow, at.In(time.FixedZone("", 3600)), other.End.UTC()
	if !sameTicks(&one, &other) {
		t.Error("another workflow has other ticks")
	}
}

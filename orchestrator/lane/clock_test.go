package lane

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// clocked is a lane on a journal that Kafka stamps, with an order whose attempts
// have all expired by its clock.
func clocked(t *testing.T) (*clocks, *Lane, *asked) {
	t.Helper()
	l, s := overdue(t)
	now := l.time.Wall()
	c := &clocks{wall: now, timer: now, kafka: now, lane: l}
	l.time.Wall, l.time.Timer = func() time.Time { return c.wall }, func() time.Time { return c.timer }
	s.commits = func() { c.newest = c.kafka }
	l.clock.stamped = true
	c.commits(t)
	s.plays("at first it looks at its clock", 1, projections.Running, tick, c.told())
	s.n = 0
	return c, l, s
}

// clocks are those of a lane, and Kafka's.
type clocks struct {
	wall, timer, kafka time.Time
	newest             time.Time // record in the journal
	lane               *Lane
}

func (c *clocks) pass(d time.Duration) {
	c.wall, c.timer, c.kafka = c.wall.Add(d), c.timer.Add(d), c.kafka.Add(d)
}

// commits has the lane commit what it has decided, if that is anything.
func (c *clocks) commits(t *testing.T) (alerts []string) {
	t.Helper()
	c.pass(time.Millisecond) // after the one before
	l := c.lane
	l.current.moved = true
	l.begin()
	for _, r := range l.inflight.records {
		if r.Topic == l.topics.Alerts {
			alert, err := events.Decode[events.Alert](r.Value)
			must(t, err)
			alerts = append(alerts, alert.Reason)
		}
	}
	c.newest = c.kafka
	must(t, l.conclude(nil))
	return alerts
}

func (c *clocks) told() Happened { return Happened{What: Told, End: 7, Newest: c.newest} }

// A clock that is far off is not supervised by. The lane says so, once; and that it
// is right again it learns from a record that it writes.
func TestAClockThatIsFarOff(t *testing.T) {
	for _, test := range []struct {
		name string
		off  time.Duration
		says string
	}{
		{"ahead", 2 * time.Minute, "2m0s ahead"},
		{"behind", -2 * time.Minute, "2m0s behind"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, l, s := clocked(t)
			c.wall = c.wall.Add(test.off)
			c.commits(t)
			s.plays("a look at the clock", 1, projections.Running, tick, c.told(), tick, look)
			if err := l.Unwell(); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("it says %v", err)
			}
			if off, known := l.Clock(); !known || off.Round(time.Minute) != test.off {
				t.Errorf("it is %s off, which is known: %t", off, known)
			}
			l.look = true
			must(t, l.supervise())
			if len(l.due.found) > 0 {
				t.Errorf("it looks at its deadlines: %v", l.due.found)
			}
			// As long as it is wrong it looks again now and then, and says nothing more.
			c.pass(anewEvery)
			l.tick(true)
			if !l.current.moved || l.due.asks {
				t.Errorf("it writes a record: %t; it asks before that: %t", l.current.moved, l.due.asks)
			}
			c.commits(t)
			s.plays("another look", 2, projections.Running, tick, c.told())
			if l.Unwell() == nil {
				t.Error("it is believed")
			}
			// It is set right.
			c.wall = c.wall.Add(-test.off)
			l.tick(true)
			if !l.current.moved {
				t.Error("it writes no record when the clock is set")
			}
			c.commits(t)
			s.plays("it is right", 3, projections.Running, tick, c.told())
			if err := l.Unwell(); err != nil {
				t.Errorf("it is not believed: %v", err)
			}
			if off, known := l.Clock(); !known || off != 0 {
				t.Errorf("it is %s off, which is known: %t", off, known)
			}
			s.plays("it supervises", 4, projections.Expired, tick, look, c.told(), look)
		})
	}
}

// What a clock has found that then turns out to be wrong waits until it is right.
func TestAClockThatIsFarOffHasFoundSomething(t *testing.T) {
	c, _, s := clocked(t)
	c.wall = c.wall.Add(time.Hour)
	c.commits(t)
	s.plays("found", 1, projections.Running, tick, look)
	s.plays("it is wrong", 2, projections.Running, c.told(), c.told(), tick, look)
	c.wall = c.wall.Add(-time.Hour)
	c.commits(t)
	s.plays("it is right", 3, projections.Running, tick, look, c.told(), look)
	s.plays("found anew", 4, projections.Expired, tick, look, c.told(), look)
}

// Looking at the clock does not move the end of the replies that is waited for.
func TestALookAtTheClockWaitsForNoMore(t *testing.T) {
	c, l, s := clocked(t)
	first := c.told()
	first.End = 8
	s.plays("found", 1, projections.Running, tick, look, first)
	c.pass(clockEvery)
	c.commits(t)
	later := c.told()
	later.End = 9
	s.plays("a look at the clock", 2, projections.Running, tick, look, later)
	s.plays("what was there is read", 2, projections.Expired, late(s.reply(7, time.Now()), l))
}

// Without an answer about the clock none is believed that was set since the last, and
// one about the replies does not need it.
func TestNoAnswerAboutTheClock(t *testing.T) {
	_, _, s := clocked(t)
	s.plays("found", 1, projections.Running, tick, look)
	s.plays("as it was", 1, projections.Expired, Happened{What: Told, End: 7}, look)

	c, l, s := clocked(t)
	s.plays("found", 1, projections.Running, tick, look)
	c.wall = c.wall.Add(time.Hour)
	c.commits(t)
	s.plays("asked once more", 1, projections.Running, Happened{What: Told, End: 7})
	s.plays("no answer", 2, projections.Running, tick, look, Happened{What: Told, End: 7})
	if l.due.end >= 0 {
		t.Error("it is believed")
	}
}

// The alert is raised once.
func TestTheAlertOfAClock(t *testing.T) {
	c, l, _ := clocked(t)
	c.wall = c.wall.Add(time.Hour)
	c.commits(t)
	l.clock.asked = l.clock.wrote // with the question
	l.told(c.told())
	l.told(c.told())
	alerts := c.commits(t)
	if len(alerts) != 1 || !strings.Contains(alerts[0], "1h0m0s ahead") || !strings.Contains(alerts[0], "partition 5 of namespace waybill") {
		t.Errorf("alerts: %q", alerts)
	}
}

// A clock that was set since the lane wrote last is not believed, before a record
// shows that it was set right: a machine that was suspended.
func TestAClockThatWasSet(t *testing.T) {
	c, l, s := clocked(t)
	s.plays("found", 1, projections.Running, tick, look)
	c.wall, c.kafka = c.wall.Add(time.Hour), c.kafka.Add(time.Hour)
	s.plays("a record of before says nothing", 1, projections.Running, c.told())
	l.tick(true)
	if !l.current.moved {
		t.Error("it writes no record")
	}
	c.commits(t)
	s.plays("it agrees with Kafka's", 2, projections.Expired, tick, c.told(), look)
	if l.Unwell() != nil {
		t.Error("it is not believed")
	}
}

// However long anything takes, a clock that is right is believed: a commit, an
// answer, or the process. One that nobody stamps records by is never doubted.
func TestAClockThatIsRight(t *testing.T) {
	c, l, s := clocked(t)
	s.plays("found", 1, projections.Running, tick, look)
	answer := c.told()
	l.current.moved = true
	l.begin()
	c.pass(time.Hour)
	c.newest = c.kafka
	must(t, l.conclude(nil))
	c.pass(time.Hour)
	s.plays("the answer is old", 1, projections.Expired, answer, look)

	c, _, s = clocked(t)
	s.plays("found", 1, projections.Running, tick, look)
	answer = c.told()
	c.pass(time.Hour)
	c.commits(t)
	s.plays("the answer is of before the commit", 1, projections.Expired, answer, look)

	c, l, s = clocked(t)
	l.clock.stamped = false
	c.wall = c.wall.Add(time.Hour)
	s.plays("found", 1, projections.Running, tick, look)
	s.plays("nobody stamps", 1, projections.Expired, Happened{What: Told, End: 7}, look)

	c, l, s = clocked(t)
	l.cfg.Skew = 2 * time.Hour
	c.wall = c.wall.Add(time.Hour)
	c.commits(t)
	s.plays("found", 1, projections.Running, tick, look)
	s.plays("so much is allowed", 1, projections.Expired, c.told(), look)
}

// Nor does an operator lift a deadline by such a clock: what lets an order go on is refused where
// that has passed by it, and is done once the clock is right.
func TestAClockThatIsFarOffLiftsNoDeadline(t *testing.T) {
	for _, command := range []string{"resubmit", "skip-step", "release"} {
		for ahead, refused := range map[time.Duration]bool{20 * time.Minute: false, time.Hour: true} {
			a := withFlows(t, 100, "workflow: call\nsteps: [{name: call, agent: phone, timeout: 2h, retry: {attempts: 1}}, {name: again, agent: phone}]")
			deadline := events.Time(a.now.Add(30 * time.Minute))
			id := a.like(fmt.Sprintf(`{"workflow":"call","deadline":%q}`, events.AppendTime(nil, deadline)))
			if command == "release" {
				a.hold(id)
			} else {
				must(t, a.decide([]*kgo.Record{typed(a.topics.Replies, "", id, fmt.Sprintf(`{"order":%q,"step":"call","attempt":1,"status":"failed"}`, id))}))
				a.commit()
			}
			if o := a.order(id); o.State != projections.Error {
				t.Fatalf("the order is %s", o.State)
			}
			sends := func(n int) *projections.Order {
				must(t, a.decide([]*kgo.Record{typed(a.topics.Commands, "", id, fmt.Sprintf(`{"id":"c-%d","order":%q,"command":%q,"step":"call"}`, n, id, command))}))
				a.commit()
				return a.order(id)
			}
			right := a.now
			a.now = a.now.Add(ahead)
			a.clock.stamped = true
			a.clock.off.Store(int64(ahead))
			if o := sends(1); (o.Refusal != "") != refused || (o.State == projections.Error) != refused || !o.Deadline.Equal(deadline) {
				t.Errorf("%s by a clock that is %s ahead: it is %s until %s (%s)", command, ahead, o.State, o.Deadline, o.Refusal)
			}
			a.now = right.Add(time.Minute)
			a.clock.stamped = false
			if o := sends(2); refused && (o.State == projections.Error || !o.Deadline.Equal(deadline)) {
				t.Errorf("%s once the clock is right: it is %s until %s (%s)", command, o.State, o.Deadline, o.Refusal)
			}
		}
	}
}

// Where both clocks agree that a deadline has passed it is lifted as by a right one; where the
// clock is behind, or nobody knows how far it is off, nobody knows.
func TestWhetherADeadlineHasPassedIsNotKnown(t *testing.T) {
	for name, c := range map[string]struct {
		passed, ahead time.Duration
		known         bool
		want          projections.State
	}{
		"by both":                         {time.Hour, 2 * time.Minute, true, projections.Processing},
		"by the right one alone":          {time.Hour, -2 * time.Hour, true, projections.Error},
		"by the one that is ahead alone":  {-time.Hour, 2 * time.Hour, true, projections.Error},
		"by neither":                      {-time.Hour, -2 * time.Hour, true, projections.Processing},
		"by one that was set just before": {-time.Hour, 2 * time.Minute, false, projections.Error},
	} {
		t.Run(name, func(t *testing.T) {
			a := withFlows(t, 100, "workflow: call\nsteps: [{name: call, agent: phone, timeout: 9h, retry: {attempts: 1}}]")
			deadline := events.Time(a.now.Add(3 * time.Hour))
			id := a.like(fmt.Sprintf(`{"workflow":"call","deadline":%q}`, events.AppendTime(nil, deadline)))
			must(t, a.decide([]*kgo.Record{typed(a.topics.Replies, "", id, fmt.Sprintf(`{"order":%q,"step":"call","attempt":1,"status":"failed"}`, id))}))
			a.commit()
			a.now = deadline.Add(c.passed + c.ahead)
			a.clock.stamped = true
			if c.known {
				a.clock.off.Store(int64(c.ahead))
			} else {
				now := a.reading()
				a.clock.judged = reading{now.wall.Add(-time.Hour), now.timer}
			}
			must(t, a.decide([]*kgo.Record{typed(a.topics.Commands, "", id, fmt.Sprintf(`{"id":"c-1","order":%q,"command":"resubmit"}`, id))}))
			if o := a.order(id); o.State != c.want || o.State == projections.Processing && o.Deadline.IsZero() != (c.passed > 0) {
				t.Errorf("it is %s until %s: %s", o.State, o.Deadline, o.Refusal)
			}
		})
	}
}

// What is being undone has no deadline that could be lifted: it goes on by whatever clock.
func TestAClockThatIsFarOffKeepsNothingFromBeingUndone(t *testing.T) {
	a := withFlows(t, 100, "workflow: call\nsteps: [{name: call, agent: phone, timeout: 2h, undo: hang-up}, {name: again, agent: phone, timeout: 2h}]")
	id := a.like(fmt.Sprintf(`{"workflow":"call","deadline":%q}`, events.AppendTime(nil, a.now.Add(30*time.Minute))))
	a.answer(a.under[0])
	a.cancel(id)
	for _, failed := range []string{`"step":"again","attempt":1`, `"step":"call","attempt":1,"undo":true`} {
		must(t, a.decide([]*kgo.Record{typed(a.topics.Replies, "", id, fmt.Sprintf(`{"order":%q,%s,"status":"failed","error":{"code":"x","permanent":true}}`, id, failed))}))
		a.commit()
	}
	a.now = a.now.Add(time.Hour)
	a.clock.stamped = true
	a.clock.off.Store(int64(time.Hour))
	if o := a.order(id); o.State != projections.Error {
		t.Fatalf("the order is %s", o.State)
	}
	must(t, a.decide([]*kgo.Record{typed(a.topics.Commands, "", id, fmt.Sprintf(`{"id":"c-2","order":%q,"command":"resubmit"}`, id))}))
	if o := a.order(id); o.State != projections.Compensating {
		t.Errorf("it is %s: %s", o.State, o.Refusal)
	}
}

// By a clock that is not believed no deadline has passed: neither that of a submission, nor
// that of an order whose next step begins, nor the end of a wait. Once the clock is right
// the supervisor does what is to be done.
func TestAClockThatIsFarOffDecidesOnNoDeadline(t *testing.T) {
	for _, test := range []struct {
		name  string
		wrong func(*Lane, *clocks)
	}{
		{"found", func(l *Lane, _ *clocks) { l.clock.off.Store(int64(time.Hour)) }},
		{"set since it was looked at", func(_ *Lane, c *clocks) { c.wall = c.wall.Add(time.Hour) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newParkingLane(t)
			world := l.world
			world.flows.Add(parseFlow(t, "workflow: seq\nsteps: [{name: a, agent: payment}, {name: b, agent: office}]"))
			world.flows.Add(parseFlow(t, "workflow: wait\nsteps: [{name: a, agent: payment}, {name: b, agent: phone, after: [], queue: 30m}, {name: c, agent: office, after: [a]}]"))
			world.away[l.topics.Requests("phone")] = "it does not exist"
			now := events.Time(time.Now())
			c := &clocks{wall: now, timer: now, kafka: now, lane: l.Lane}
			l.time.Wall, l.time.Timer = func() time.Time { return c.wall }, func() time.Time { return c.timer }
			l.clock.stamped, l.clock.judged = true, l.reading()
			deadline := string(events.AppendTime(nil, now.Add(30*time.Minute)))
			must(t, l.decide(nil))
			l.reads(l.ids[0], `{"workflow":"seq","deadline":"`+deadline+`"}`)
			l.reads(l.ids[1], `{"workflow":"wait"}`)
			l.commits(t)
			if test.name == "found" {
				c.pass(time.Hour) // else it were parted, too
			}
			test.wrong(l.Lane, c)
			if l.believed() {
				t.Fatal("it is believed")
			}
			l.reads(l.ids[2], `{"workflow":"order","deadline":"`+deadline+`"}`)
			for _, id := range l.ids[:2] {
				r := typed(l.topics.Replies, "", id, `{"order":"`+id+`","step":"a","attempt":1,"status":"completed"}`)
				r.Timestamp = now
				must(t, l.decide([]*kgo.Record{r}))
			}
			for place, step := range map[int]string{0: "b", 1: "c", 2: "charge"} {
				o, err := l.order(l.ids[place])
				must(t, err)
				if s := o.Step(step); s == nil || o.State != projections.Processing || s.State != projections.Running {
					t.Fatalf("order %d is %s, and its step %s is %+v", place, o.State, step, s)
				}
			}
			if o, err := l.order(l.ids[1]); err != nil || o.Step("b").State != projections.NotStarted {
				t.Errorf("what waits is %s", o.Step("b").State)
			}
			l.commits(t)
			// It is right, and an hour has passed.
			l.clock.off.Store(0)
			c.timer = c.wall
			l.clock.judged = l.reading()
			l.looks(t)
			l.looks(t)
			l.commits(t)
			for place, want := range map[int]projections.State{0: projections.Error, 1: projections.Processing, 2: projections.Error} {
				o, err := l.order(l.ids[place])
				must(t, err)
				if o.State != want {
					t.Errorf("when the clock is right order %d is %s", place, o.State)
				}
			}
		})
	}
}

// By a clock that is known to be far ahead records are stamped as Kafka's clock says, which
// takes none of more than an hour ahead: what is committed, the alert of that clock with it, and
// what is delivered. What has a time keeps it, and by any other clock the client stamps it.
func TestRecordsOfAClockThatIsAhead(t *testing.T) {
	c, l, s := clocked(t)
	stamped := func(when string, right bool) {
		t.Helper()
		own := c.kafka.Add(-time.Hour)
		l.current.add(&kgo.Record{Topic: l.topics.Alerts}, &kgo.Record{Topic: l.topics.Orders, Timestamp: own})
		d := &Delivery{Topic: "reports", Records: []*kgo.Record{{Topic: "reports"}}}
		l.sends(s, new(target), d, new(atomic.Int64))
		l.begin()
		for _, r := range append(l.inflight.records, d.Records...) {
			switch far := r.Timestamp.Sub(c.kafka).Abs(); {
			case r.Topic == l.topics.Orders:
				if !r.Timestamp.Equal(own) {
					t.Errorf("%s, what has a time gets another: %s", when, r.Timestamp)
				}
			case right && far > time.Minute, !right && !r.Timestamp.IsZero():
				t.Errorf("%s, a record of %s is stamped with %s, and it is %s", when, r.Topic, r.Timestamp, c.kafka)
			}
		}
		c.newest = c.kafka
		must(t, l.conclude(nil))
	}
	stamped("while the clock is right", false)
	c.wall = c.wall.Add(2 * time.Hour)
	c.commits(t)
	stamped("before it is known", false)
	l.clock.asked = l.clock.wrote
	l.told(c.told())
	if l.Unwell() == nil {
		t.Fatal("it is believed")
	}
	stamped("once it is known", true)
	if at := l.notAhead(c.kafka.Add(time.Hour)); at.After(c.kafka.Add(aheadAtMost)) {
		t.Errorf("what is ahead of Kafka gets the time %s, and it is %s", at, c.kafka)
	}
	c.wall = c.wall.Add(-2 * time.Hour)
	stamped("once it was set right", false)
	c.wall = c.wall.Add(-2 * time.Hour)
	c.commits(t)
	l.clock.asked = l.clock.wrote
	l.told(c.told())
	stamped("once it is known to be behind", false)
}

package lane

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// V2: what a look found is decided by the end of the replies of then. An attempt that
// began since was not found by it: its reply may be behind that end.
func TestAnAttemptThatBeganSinceTheLook(t *testing.T) {
	l, world := newLane(t)
	l.cfg.SuperviseEvery = time.Minute
	world.flows.Add(parseFlow(t, "workflow: twice\nsteps: [{name: charge, agent: x, timeout: 1s, retry: {attempts: 2, backoff: 0s}}]"))
	here, _ := l.keys()
	base := l.time.Wall()
	now := base
	l.time.Wall = func() time.Time { return now }
	l.time.Timer = func() time.Time { return now }
	past := l.env()
	past.Now = base.Add(-2 * time.Second)
	l.take(decide.Submit(past, nil, &decide.Input{Record: new(decide.Record), Order: here, Submission: events.Submission{Workflow: "twice"}}))
	l.commits(t)
	l.position.Set(events.InputReplies, 7)
	s := &asked{T: t, lane: l}
	reply := func(off int64, attempt int, status string, w time.Time) Happened {
		r := typed(l.topics.Replies, "", here, fmt.Sprintf(`{"order":%q,"step":"charge","attempt":%d,"status":%q}`, here, attempt, status))
		r.Offset, r.Timestamp = off, w
		return Happened{What: Fetched, Fetches: brought(r)}
	}
	s.plays("found; the replies end at 9", 1, projections.Running, tick, look, told(9))
	s.plays("first failed in time, the second begins", 1, projections.Running, reply(7, 1, "failed", base.Add(-1500*time.Millisecond)))
	// The lane lags for 5 s; meanwhile attempt 2 was answered in time, at offset 9.
	now = base.Add(5 * time.Second)
	other := reply(8, 4, "completed", base)
	s.plays("the backlog was read up to 9", 1, projections.Running, other)
	s.plays("answer in time", 1, projections.Completed, reply(9, 2, "completed", base.Add(500*time.Millisecond)))
}

// A lane that is told to stop while some of what was read found no room leaves that to
// the next owner.
func TestWhatFoundNoRoomIsNotPassed(t *testing.T) {
	l := newParkingLane(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var records []*kgo.Record
	for i := range 3 {
		r := typed(l.topics.Orders, "", l.ids[i], `{"workflow":"order"}`)
		r.Offset = int64(i)
		records = append(records, r)
	}
	l.passed = time.UnixMilli(1) // it is behind markers, too
	b := &stopping{t: t, lane: l.Lane, stop: cancel, first: Happened{What: Fetched, Fetches: kgo.Fetches{{Topics: []kgo.FetchTopic{{
		Topic: l.topics.Orders, Partitions: []kgo.FetchPartition{{Partition: l.partition, Records: records}},
	}}}}}}
	must(t, l.Run(ctx, b))
	if b.wantedMore {
		t.Error("it takes more before what was read")
	}
	if at := l.Position(); at.At(events.InputOrders) != 1 {
		t.Errorf("the position is %s, and one was decided on", at.String())
	}
}

// stopping tells a lane to stop once its first batch commits.
type stopping struct {
	t          *testing.T
	lane       *Lane
	stop       func()
	first      Happened
	began      bool
	pending    bool
	wantedMore bool
}

func (s *stopping) Commit(*Batch)   { s.pending = true; s.stop() }
func (*stopping) Deliver(*Delivery) {}
func (*stopping) Confirm([]int64)   {}
func (*stopping) AskOrders()        {}
func (*stopping) Turn() bool        { return true }
func (*stopping) Ask()              {}
func (s *stopping) Next(w Wanted) Happened {
	s.wantedMore = s.wantedMore || w.Inputs && len(s.lane.rest) > 0
	switch {
	case !s.began:
		s.began = true
		for len(s.lane.current.records) < batchRecords-1 {
			s.lane.current.add(typed(s.lane.topics.DeadLetters, "", "", ""))
		}
		return s.first
	case s.pending:
		s.pending = false
		return Happened{What: Committed}
	}
	return Happened{What: Stopped}
}

// Kafka tells the greatest time of a journal. If its clock was ahead once, that is not
// the last record's for as long, and says nothing of anybody's clock.
func TestKafkasClockWasAheadOnce(t *testing.T) {
	c, l, _ := clocked(t)
	c.kafka = c.kafka.Add(24 * time.Hour)
	c.commits(t)
	greatest := c.newest // which Kafka tells from now on
	l.clock.asked = l.clock.wrote
	if l.told(c.told()); l.Unwell() == nil {
		t.Error("it is believed")
	}
	c.kafka = c.kafka.Add(-24 * time.Hour)
	c.pass(anewEvery)
	l.tick(true)
	c.commits(t)
	c.newest = greatest
	l.clock.asked = l.clock.wrote
	if l.told(c.told()); l.Unwell() != nil {
		t.Errorf("nobody can tell, and it says %v", l.Unwell())
	}
}

// Records of one millisecond do not hide that a clock is wrong, nor does an answer that
// knows of a later record than the question.
func TestAClockThatIsFarOffFromOneRecordToTheNext(t *testing.T) {
	ask := func(l *Lane) { l.clock.asked = l.clock.wrote }
	for _, test := range []struct {
		name   string
		answer time.Duration // after the question
	}{{"of one millisecond", 0}, {"behind the question", anewEvery}} {
		t.Run(test.name, func(t *testing.T) {
			c, l, _ := clocked(t)
			ask(l)
			c.pass(test.answer)
			c.commits(t)
			newest := c.newest
			l.told(c.told())
			c.wall = c.wall.Add(time.Hour)
			c.commits(t)
			ask(l)
			c.newest = newest // as if it were of now
			if l.told(c.told()); l.Unwell() == nil {
				t.Error("it is believed")
			}
		})
	}
}

// Where more wait for one agent than are kept in mind, those of another begin when that
// one is back.
func TestAnotherAgentThanThoseOfTheManyIsBack(t *testing.T) {
	l, world := newLane(t)
	l.away.most = 3 * DueAtOnce
	world.flows.Add(parseFlow(t, callFlow))
	world.flows.Add(parseFlow(t, "workflow: write\nsteps: [{name: write, agent: pen}]"))
	phone, pen := l.topics.Requests("phone"), l.topics.Requests("pen")
	world.away[phone], world.away[pen] = "gone", "electing"
	l.waitFor(t, 4*DueAtOnce)
	for l.look = true; l.look; {
		l.looks(t)
	}
	here, _ := l.keys()
	must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", here, `{"workflow":"write"}`)}))
	l.commits(t)
	for range 10 {
		l.looks(t)
	}
	delete(world.away, pen)
	for range 20 {
		l.looks(t)
		l.commits(t)
	}
	o, err := l.order(here)
	must(t, err)
	if o.Steps[0].State != projections.Running {
		t.Errorf("its agent is back, and it is %s", o.Steps[0].State)
	}
}

// Those that wait are passed over at once when they are found again.
func TestManyThatWaitHoldUpNothing(t *testing.T) {
	l, world := newLane(t)
	world.flows.Add(parseFlow(t, callFlow))
	world.flows.Add(parseFlow(t, "workflow: write\nsteps: [{name: write, agent: pen, timeout: 1s, retry: {attempts: 1}}]"))
	world.away[l.topics.Requests("phone")] = "gone"
	l.waitFor(t, 5*DueAtOnce)
	for l.look = true; l.look; {
		l.looks(t)
	}
	wall := l.time.Wall
	l.take(decide.Submit(l.env(), nil, &decide.Input{Record: new(decide.Record), Order: "late", Submission: events.Submission{Workflow: "write"}}))
	l.commits(t)
	l.time.Wall = func() time.Time { return wall().Add(time.Hour) }
	l.state.Rescan() // the clock was set back
	for l.look = true; l.look; {
		l.looks(t)
		l.commits(t)
	}
	l.looks(t)
	o, err := l.order("late")
	must(t, err)
	if o.Steps[0].State == projections.Running {
		t.Error("what has expired waits behind them for the next tick")
	}
}

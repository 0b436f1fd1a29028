package lane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// overdue is a lane with an order whose attempts have all expired a while ago, and
// what happens beside it.
func overdue(t *testing.T) (*Lane, *asked) {
	t.Helper()
	l, _ := newLane(t)
	l.cfg.SuperviseEvery = time.Minute
	past := l.env()
	past.Now = past.Now.Add(-time.Hour)
	here, _ := l.keys()
	l.take(decide.Submit(past, nil, &decide.Input{Record: new(decide.Record), Order: here, Submission: events.Submission{Workflow: "order"}}))
	l.seal(l.current)
	l.inflight, l.current = l.current, newBatch()
	must(t, l.conclude(nil))
	l.position.Set(events.InputReplies, 7)
	return l, &asked{T: t, lane: l}
}

// asked is a script that counts what Kafka is asked, and ends with a look at the
// charge of the order.
type asked struct {
	*testing.T
	lane  *Lane
	steps scripted
	n     int
	// commits, if it is there, hears of a commit before it ends.
	commits func()
}

func (s *asked) Commit(*Batch)   {}
func (*asked) Deliver(*Delivery) {}
func (*asked) Confirm([]int64)   {}
func (*asked) AskOrders()        {}
func (*asked) Turn() bool        { return true }
func (s *asked) Ask()            { s.n++ }
func (s *asked) Next(w Wanted) Happened {
	if s.steps[0].What == Idle && !w.Look {
		s.Error("there was nothing to look at")
	}
	return s.steps.Next(w)
}

// plays runs the lane through what happens, and wants that it asked Kafka so often
// until then, and that the charge is in a state.
func (s *asked) plays(what string, times int, state projections.StepState, happens ...Happened) {
	s.Helper()
	s.steps = append(slices.Clone(happens), Happened{What: Stopped})
	must(s.T, s.lane.Run(s.Context(), s))
	here, _ := s.lane.keys()
	o, err := s.lane.order(here)
	must(s.T, err)
	if got := o.Step("charge").State; got != state || s.n != times {
		s.Errorf("%s: it has asked %d times instead of %d, and the step is %v instead of %v", what, s.n, times, got, state)
	}
	if s.lane.inflight != nil {
		if s.commits != nil {
			s.commits()
		}
		must(s.T, s.lane.conclude(nil))
	}
}

// reply is the answer to the order's first attempt to charge, written at a time.
func (s *asked) reply(offset int64, written time.Time) Happened {
	here, _ := s.lane.keys()
	r := typed(s.lane.topics.Replies, "", here, fmt.Sprintf(`{"order":%q,"step":"charge","attempt":1,"status":"completed"}`, here))
	r.Offset, r.Timestamp = offset, written
	return Happened{What: Fetched, Fetches: brought(r)}
}

var tick, look = Happened{What: Ticked}, Happened{What: Idle}

func told(end int64) Happened { return Happened{What: Told, End: end} }

// V2: a reply that was there in time counts, though the lane was held up and has not
// read it when it finds that the attempt should have ended.
func TestAReplyThatWasThereInTime(t *testing.T) {
	l, s := overdue(t)
	s.plays("held up", 0, projections.Running)
	if !l.Overdue().IsZero() {
		t.Errorf("nothing was found, and it is due since %s", l.Overdue())
	}
	s.plays("the deadline is found", 1, projections.Running, tick, look)
	here, _ := l.keys()
	o, err := l.order(here)
	must(t, err)
	s.plays("there is one", 1, projections.Running, told(8), tick, look)
	if got, want := l.Overdue(), o.Step("charge").Deadline(); !got.Equal(want) {
		t.Errorf("it is due since %s, and not since %s", got, want)
	}
	s.plays("it is read", 1, projections.Completed, s.reply(7, time.UnixMilli(1)))
}

// What came behind the end that Kafka named came too late: an attempt does not wait
// for it, however much comes. Nothing is asked for while nothing is due.
func TestAnEndStands(t *testing.T) {
	l, s := overdue(t)
	s.plays("it asks", 1, projections.Running, tick, look, told(9))
	s.plays("one is read, and one is not", 1, projections.Running, late(s.reply(7, time.Now()), l), tick, look)
	s.plays("all are read that were there", 1, projections.Expired, late(s.reply(8, time.Now()), l))

	l, _ = newLane(t)
	s = &asked{T: t, lane: l, steps: scripted{tick, look, tick, look, {What: Stopped}}}
	must(t, l.Run(t.Context(), s))
	if s.n != 0 {
		t.Errorf("nothing is due, and it has asked %d times", s.n)
	}
}

// late makes a reply one of another step that nobody asked for.
func late(h Happened, l *Lane) Happened {
	here, _ := l.keys()
	h.Fetches.Records()[0].Value = fmt.Appendf(nil, `{"order":%q,"step":"ship","attempt":4,"status":"completed"}`, here)
	return h
}

// A question that failed is asked again with the next tick. What the answer to an
// older one says of the end is of no use.
func TestAskingForTheEnd(t *testing.T) {
	l, s := overdue(t)
	failed := Happened{What: Told, Err: errors.New("no leader")}
	s.plays("no answer", 2, projections.Running, tick, look, failed, tick, look)
	since := l.Overdue()
	s.plays("not again while it is asked", 2, projections.Running, tick, look, tick, look)
	wall := l.time.Wall
	l.time.Wall = func() time.Time { return wall().Add(-time.Minute) }
	s.plays("the clock is set back", 2, projections.Running, told(7), look)
	s.plays("found again", 3, projections.Running, tick, look)
	l.due = due{}
	l.state.Rescan()
	s.plays("found once more, while Kafka is asked", 4, projections.Running, tick, look, told(7), tick, look)
	s.plays("the answer", 4, projections.Expired, told(7), look)
	if since.IsZero() || !l.Overdue().IsZero() {
		t.Errorf("it was due since %s, and once it is decided on since %s", since, l.Overdue())
	}
}

// What cannot be read is waited for, as long as that is the reason, and not for ever.
func TestRepliesThatCannotBeRead(t *testing.T) {
	l, s := overdue(t)
	s.plays("found", 1, projections.Running, tick, look, told(9))
	ticks := int(repliesPatience / l.cfg.SuperviseEvery)
	for range ticks - 1 {
		s.plays("it waits", 1, projections.Running, tick, look)
	}
	s.plays("some can be read", 1, projections.Running, late(s.reply(7, time.Now()), l), tick, look)
	for range ticks - 1 {
		s.plays("it waits for the others", 1, projections.Running, tick, look)
	}
	l.current.moved = true
	l.begin()
	for !l.current.full() {
		l.current.add(typed(l.topics.DeadLetters, "", "", ""))
	}
	s.plays("it takes no inputs itself", 1, projections.Running, tick, tick, tick)
	if l.fair() {
		t.Error("it waited while it took no inputs itself")
	}
	l.current = newBatch()
	s.plays("it has waited", 1, projections.Expired, tick, look)
}

// What is due and held up for long is said in the log, once, with what it waits for; and not of what is being worked off.
func TestWhatHoldsUpWhatIsDue(t *testing.T) {
	for _, c := range []struct {
		waits  string
		before []Happened
		set    func(*Lane)
	}{
		{waits: "Kafka to say where the replies end"},
		{waits: "replies that cannot be read yet", before: []Happened{told(9)}},
		{waits: "Kafka to say whether the clock is right", set: func(l *Lane) { l.clock.stamped = true; l.clock.off.Store(1) }},
		{waits: "its turn to be committed", before: []Happened{told(7)}},
		{before: []Happened{told(7)}, set: func(l *Lane) {
			l.current.moved = true
			l.begin()
			for !l.current.full() { // there is room for no more now
				l.current.add(typed(l.topics.DeadLetters, "", "", ""))
			}
			must(t, l.supervise())
		}},
	} {
		l, s := overdue(t)
		var log bytes.Buffer
		l.log = slog.New(slog.NewTextHandler(&log, nil))
		l.cfg.SuperviseEvery = heldUpAfter / 2
		s.plays("found", 1, projections.Running, append([]Happened{tick, look}, c.before...)...)
		l.tellHeldUp()
		if c.set != nil {
			c.set(l)
		}
		if c.waits == "" {
			if l.tellHeldUp(); log.Len() > 0 {
				t.Errorf("what is being worked off is held up: %s", log.String())
			}
			continue
		}
		if log.Len() > 0 {
			t.Errorf("%s: it is said before its time: %s", c.waits, log.String())
		}
		for range 2 {
			l.tellHeldUp()
		}
		if told := log.String(); strings.Count(told, "\n") != 1 || !strings.Contains(told, "for="+strconv.Quote(c.waits)) || !strings.Contains(told, "steps=3 waited=1m0s") {
			t.Errorf("%s: the log says %q", c.waits, told)
		}
	}
}

// ends is a broker of one partition that ends somewhere.
type ends struct {
	Broker
	says string
}

func (b *ends) End(_ context.Context, at TopicPartition, committed bool) (int64, error) {
	b.says += fmt.Sprint(at, committed, " ")
	return 7, nil
}

func (b *ends) Newest(_ context.Context, at TopicPartition) (time.Time, error) {
	b.says += fmt.Sprint(at, " ")
	return time.UnixMilli(1), errors.New("no leader")
}

// What is asked for: also replies that cannot be read yet; and the clock where Kafka
// stamps the journal, which need not be answered.
func TestWhatKafkaIsAsked(t *testing.T) {
	l, _ := newLane(t)
	b := &ends{}
	l.broker = b
	if h := l.Ask(t.Context()); h.What != Told || h.End != 7 || h.Err != nil || b.says != "{waybill.replies 5} false " {
		t.Errorf("%+v, asked %s", h, b.says)
	}
	b.says, l.clock.stamped = "", true
	if h := l.Ask(t.Context()); h.End != 7 || h.Err != nil || !h.Newest.IsZero() || b.says != "{waybill.journal 5} {waybill.replies 5} false " {
		t.Errorf("%+v, asked %s", h, b.says)
	}
}

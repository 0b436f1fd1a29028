package lane

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// An input that cannot be forwarded now keeps waiting what came behind it on its topic,
// and nothing else; other submissions do not wait. It is forwarded once, as soon as it
// can be.
func TestForwardingWaits(t *testing.T) {
	for _, added := range []bool{false, true} {
		l := newParkingLane(t)
		_, elsewhere := l.keys()
		first := l.ids[0]
		must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", first, `{"workflow":"order"}`)}))
		l.commits(t)
		before := l.position
		var learnt []string
		l.world.learns = func(topics []string) { learnt = append(learnt, topics...) }

		stray, letter := typed(l.topics.Replies, "", elsewhere, "stray"), typed(l.topics.Replies, "", "\xff", "")
		reply := typed(l.topics.Replies, "", first, fmt.Sprintf(`{"order":%q,"step":"ship","attempt":1,"status":"completed"}`, first))
		letter.Offset, reply.Offset = 8, 9
		marker := typed(l.topics.Commands, "", "", "")
		marker.Attrs = kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true, Control: true})
		if added {
			l.position.SetOf(1, 17, 0)
			for _, r := range []*kgo.Record{stray, letter, reply, marker} {
				r.Partition = 17
			}
		}
		order, other := typed(l.topics.Orders, "", elsewhere, "hello"), typed(l.topics.Orders, "", l.ids[1], `{"workflow":"order"}`)
		order.Offset, other.Offset = 8, 9
		l.world.away[l.topics.Replies], l.world.away[l.topics.Orders], l.world.away[l.topics.Commands] = "no leader", "no leader", "no leader"
		read, orders := []*kgo.Record{stray, letter, reply, order, other, marker}, int64(8)
		if added { // and nothing is parked
			read, orders = []*kgo.Record{stray, letter, reply, other, marker}, 10
		}
		must(t, l.decide(read))
		if !l.closed || !l.Busy() {
			t.Error("it reads on what must wait")
		}
		written := func() (all []string) {
			for _, r := range l.current.records {
				if r.Topic == l.topics.Replies || r.Topic == l.topics.Orders || r.Topic == l.topics.DeadLetters {
					all = append(all, fmt.Sprintf("%s %q", r.Topic, r.Value))
				}
			}
			return all
		}
		if got := written(); len(got) != 0 || l.position.At(1) != before.At(1) || l.position.Of(1, 17) > 0 || l.position.At(0) != orders || l.position.At(2)+l.position.Of(2, 17) < 7 {
			t.Errorf("it wrote %q; the position is %v", got, l.position)
		}
		if o, err := l.order(l.ids[1]); err != nil || o == nil || o.State != projections.Processing {
			t.Errorf("another order: %+v, %v", o, err)
		}
		l.commits(t)
		learnt = nil
		must(t, l.supervise())
		if got := written(); len(got)+len(l.rest) != 0 || !slices.Contains(learnt, l.topics.Replies) {
			t.Errorf("it wrote %q, and asked about %q", got, learnt)
		}
		clear(l.world.away)
		must(t, l.supervise())
		must(t, l.decideOn(l.rest))
		want := []string{`waybill.orders "hello"`, `waybill.replies "stray"`, `waybill.dead-letters ""`}
		if added {
			want = append(want[1:], fmt.Sprintf("waybill.replies %q", reply.Value))
		}
		if got := written(); !slices.Equal(got, want) {
			t.Errorf("then it wrote %q", got)
		}
		if o, err := l.order(first); err != nil || !added && o.Step("ship").State != projections.Completed {
			t.Errorf("the reply behind it: %+v, %v", o, err)
		}
		if at := l.position.At(0); at != 10 || l.closed || l.Busy() && len(l.behind)+len(l.parked.inputs)+len(l.rest) > 0 {
			t.Errorf("the position in the orders is %d", at)
		}
		if at := max(l.position.At(1), l.position.Of(1, 17)); at != 10 {
			t.Errorf("the position in the replies is %d", at)
		}
	}
}

// What waits on an added partition keeps nothing waiting that is on another, and what waits
// among the lane's own commands nothing on an added one.
func TestWhatWaitsPausesItsPartitionAlone(t *testing.T) {
	for in := range events.Input(3) {
		l := newParkingLane(t)
		topic := [...]string{events.InputOrders: l.topics.Orders, events.InputReplies: l.topics.Replies, events.InputCommands: l.topics.Commands}[in]
		stray := typed(topic, "", l.ids[0], "hello")
		stray.Partition = 17
		l.position.SetOf(in, 17, 0)
		l.world.away[topic] = "no leader"
		must(t, l.decide([]*kgo.Record{stray}))
		want := map[TopicPartition]bool{{topic, 17}: true}
		if !maps.Equal(l.paused(), want) {
			t.Errorf("%s: it reads no more of %v", topic, l.paused())
		}
		clear(l.world.away)
		must(t, l.supervise())
		if len(l.paused()) > 0 {
			t.Errorf("%s: then it reads no more of %v", topic, l.paused())
		}
	}

	c := newCommanded(t)
	c.pauses(c.ids[0])
	c.position.SetOf(events.InputCommands, 17, 0)
	added := typed(c.topics.Commands, "", c.ids[1], `{"command":"pause"}`)
	added.Partition = 17
	must(t, c.decide([]*kgo.Record{added}))
	if got := c.position.Of(events.InputCommands, 17); got != 8 || len(c.early.inputs) != 1 || !maps.Equal(c.paused(), map[TopicPartition]bool{{c.topics.Commands, 5}: true}) {
		t.Errorf("an added partition was read to %d; %d commands wait, and no more is read of %v", got, len(c.early.inputs), c.paused())
	}
}

// paused are the partitions of which no more is read.
func (l *parkingLane) paused() map[TopicPartition]bool { return l.door.paused }

// expiring is a lane with two orders whose attempts have all expired a while ago; the first
// has discarded all that it records. Kafka is asked where the replies end, a stray one that nobody
// can forward was read, and behind it the answer to the first order's charge.
func expiring(t *testing.T, end int64) (l *Lane, s *asked, d *door, second string) {
	t.Helper()
	l, s = overdue(t)
	d = &door{paused: make(map[TopicPartition]bool)}
	l.inputs, l.orders = d, d
	here, elsewhere := l.keys()
	for n := 0; second == ""; n++ {
		if id := fmt.Sprint("p-", n); l.byKey.Of([]byte(id)) == l.partition && id != here {
			second = id
		}
	}
	past := l.env()
	past.Now = past.Now.Add(-time.Hour)
	o, err := l.order(here)
	must(t, err)
	full := *o
	full.Discarded = decide.MaxVoid
	l.take(decide.Decision{Order: &full})
	l.take(decide.Submit(past, nil, &decide.Input{Record: new(decide.Record), Order: second, Submission: events.Submission{Workflow: "order"}}))
	l.commits(t)
	l.world.(*still).away[l.topics.Replies] = "no leader"
	stray := typed(l.topics.Replies, "", elsewhere, "stray")
	s.plays("a stray one, and an answer", 1, projections.Running, tick, look,
		Happened{What: Fetched, Fetches: brought(stray)}, s.reply(8, time.UnixMilli(1)))
	if !d.paused[l.replies()] {
		t.Error("it reads on behind what strays")
	}
	s.plays("Kafka says where they end", 1, projections.Running, told(end), tick, look)
	return l, s, d, second
}

// V2: an attempt does not expire whose answer was read and stands behind a stray reply that
// cannot be forwarded, however long that lasts. Others do, once all replies were read that
// were there.
func TestNothingExpiresWhoseReplyStandsBehindAStrayOne(t *testing.T) {
	l, s, d, second := expiring(t, 10)
	stands := func(what string, want projections.StepState) {
		t.Helper()
		o, err := l.order(second)
		must(t, err)
		if got := o.Step("charge").State; got != want {
			t.Errorf("%s: the step of the other order is %v", what, got)
		}
	}
	if d.closed {
		t.Error("it does not read what may be the answer")
	}
	stands("before all was read", projections.Running)
	s.plays("all were read", 1, projections.Running, late(s.reply(9, time.Now()), l), look)
	stands("all were read", projections.Expired)
	if !d.paused[l.replies()] {
		t.Error("it reads on and on")
	}
	asks := s.n
	for range 3 * int(repliesPatience/l.cfg.SuperviseEvery) {
		s.plays("it stands", asks, projections.Running, tick, look)
	}
	clear(l.world.(*still).away)
	s.plays("it can be forwarded", asks, projections.Completed, tick, look)
	s.plays("what was passed over is found", asks+1, projections.Completed, tick, look, told(10), look)
	here, _ := l.keys()
	if o, err := l.order(here); err != nil || o.Step("ship").State == projections.Running {
		t.Errorf("nobody answered, and it is %v, %v", o.Step("ship").State, err)
	}
	if d.closed || l.position.At(events.InputReplies) != 10 {
		t.Errorf("the position is %v", l.position)
	}
}

// There is an end to what is kept; then what is due waits for as long as what strays does.
func TestWhatStandsBehindIsBounded(t *testing.T) {
	for name, padding := range map[string]string{"many": "", "large": strings.Repeat("x", 1_000_000)} {
		t.Run(name, func(t *testing.T) {
			l, s, d, second := expiring(t, 1e9)
			offset := int64(9)
			for ; !d.closed; offset++ {
				if offset > 7+maxBehind {
					t.Fatal("it reads on and on")
				}
				another := late(s.reply(offset, time.Now()), l)
				another.Fetches.Records()[0].Value = fmt.Appendf(nil, `{"order":%q,"step":"ship","attempt":4,"status":"completed","output":%q}`, "", padding)
				s.plays("another", 1, projections.Running, another)
			}
			if kept := offset - 7; name == "many" && kept != maxBehind || name == "large" && kept > 20 {
				t.Errorf("it keeps %d", kept)
			}
			for range 2 * int(repliesPatience/l.cfg.SuperviseEvery) {
				s.plays("full", 1, projections.Running, tick, look)
			}
			if o, err := l.order(second); err != nil || o.Step("charge").State != projections.Running {
				t.Errorf("its answer may be among what is not read: %v, %v", o.Step("charge").State, err)
			}
		})
	}
}

// An agent whose answers may stand behind a stray reply is not silent.
func TestWhoIsNotHeardIsNotSilent(t *testing.T) {
	q := newQuiet(t, callFlow, 3)
	q.inputs, q.orders = &door{paused: make(map[TopicPartition]bool)}, nil
	topic := q.topics.Requests("phone")
	delete(q.world.away, topic)
	q.agents.window(q.Lane, topic).Asked("call", time.Hour, q.now, q.now)
	_, elsewhere := q.keys()
	q.world.away[q.topics.Replies] = "no leader"
	must(t, q.decide([]*kgo.Record{typed(q.topics.Replies, "", elsewhere, "stray")}))
	all := q.alerts(t, 3*silentLeast)
	// Somebody hears of what stands in the way, once.
	if len(all) != 1 || !strings.Contains(all[0].Reason, "cannot be forwarded: no leader") || !strings.Contains(all[0].Reason, "what comes on partition "+fmt.Sprint(q.partition)+" of "+q.topics.Replies) {
		t.Errorf("it called an operator: %v", all)
	}
	q.behind = nil
	if all := q.alerts(t, 3*silentLeast); len(all) != 1 {
		t.Errorf("it is silent, and the lane raised %v", all)
	}
}

// What was passed over is found again also where the reply to its order changed nothing.
func TestWhatIsPassedOverIsFoundAgain(t *testing.T) {
	l, s, _, _ := expiring(t, 9)
	l.format = 2
	here, _ := l.keys()
	nothing := late(s.reply(8, time.Now()), l).Fetches.Records()
	l.behind[0].inputs = append(l.behind[0].inputs[:1], l.readInputs(nothing)...)
	s.plays("it stands behind", s.n, projections.Running, tick, look)
	clear(l.world.(*still).away)
	s.plays("it can be forwarded", s.n, projections.Running, tick, look)
	s.plays("it is found", s.n+1, projections.Expired, tick, look, told(9), look)
	if o, err := l.order(here); err != nil || o.Discarded != decide.MaxVoid {
		t.Errorf("it has discarded %d, %v", o.Discarded, err)
	}
}

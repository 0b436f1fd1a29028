package lane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// parkingLane is a lane that reads the orders of its partition.
type parkingLane struct {
	*Lane
	t      *testing.T
	world  *still
	ids    []string // of the partition
	offset int64
	*door
}

// door is a reader that can only be paused.
type door struct {
	logReader
	paused map[TopicPartition]bool
	closed bool // to some partition
}

func (d *door) Pause(at TopicPartition)  { d.paused[at], d.closed = true, true }
func (d *door) Resume(at TopicPartition) { delete(d.paused, at); d.closed = len(d.paused) > 0 }

func newParkingLane(t *testing.T) *parkingLane {
	l := &parkingLane{t: t, door: &door{paused: make(map[TopicPartition]bool)}}
	l.Lane, l.world = newLane(t)
	l.inputs, l.orders = l.door, l.door
	for n := 0; len(l.ids) < 9; n++ {
		if id := fmt.Sprint("o-", n); l.byKey.Of([]byte(id)) == l.partition {
			l.ids = append(l.ids, id)
		}
	}
	return l
}

// reads has the lane decide on a record of the orders, and returns its offset.
func (l *parkingLane) reads(id, value string) int64 {
	l.t.Helper()
	r := typed(l.topics.Orders, "", id, value)
	l.offset++
	r.Offset = l.offset
	must(l.t, l.decide([]*kgo.Record{r}))
	return r.Offset
}

// expects says which orders there must be, with how they stand, and up to where the
// orders were read.
func (l *parkingLane) expects(position int64, want ...string) {
	l.t.Helper()
	var got []string
	for id, c := range l.current.orders {
		got = append(got, fmt.Sprint(slices.Index(l.ids, id), " ", c.order.State))
	}
	for _, r := range l.current.records {
		if r.Topic == l.topics.DeadLetters || r.Topic == l.topics.Orders {
			got = append(got, r.Topic)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) || l.position.At(events.InputOrders) != position {
		l.t.Errorf("there are %q, not %q; the position is %d, not %d", got, want, l.position.At(events.InputOrders), position)
	}
}

// A submission of an unknown workflow is rejected only once the workflows were read to
// their end, and holds up no other. What would be doubled if it were read again waits.
func TestAnUnknownWorkflowIsSought(t *testing.T) {
	l := newParkingLane(t)
	l.world.found = 0
	_, elsewhere := l.keys()
	first := l.reads(l.ids[0], `{"workflow":"call"}`)
	l.reads(l.ids[1], `{"workflow":"order"}`)
	l.reads(l.ids[0], `{"workflow":"order"}`) // the same again
	l.reads(l.ids[2], `nonsense`)
	l.reads(elsewhere, `{"workflow":"order"}`)
	l.reads(l.ids[3], `{"workflow":"order"}`)
	last := l.reads(l.ids[4], `{"workflow":"none"}`)
	l.expects(first, "1 Processing", "3 Processing")
	must(t, l.supervise())
	l.expects(first, "1 Processing", "3 Processing")
	if !l.Busy() || l.world.sought != 2 {
		t.Errorf("busy: %t; %d questions", l.Busy(), l.world.sought)
	}

	l.world.flows.Add(parseFlow(t, callFlow)) // it was read of meanwhile
	must(t, l.supervise())
	l.expects(last, "0 Processing", "1 Processing", "3 Processing", l.topics.DeadLetters, l.topics.Orders)
	l.world.found = 1
	must(t, l.supervise())
	l.expects(last, "0 Processing", "1 Processing", "3 Processing", l.topics.DeadLetters, l.topics.Orders)
	l.world.found = 2
	must(t, l.supervise())
	l.expects(last+1, "0 Processing", "1 Processing", "3 Processing", "4 Rejected", l.topics.DeadLetters, l.topics.Orders)
	if l.reads(l.ids[5], `{"workflow":"order"}`); l.position.At(events.InputOrders) != last+2 {
		t.Errorf("the position is %d", l.position.At(events.InputOrders))
	}
}

// A submission of a retired version is rejected only once the workflows were read to their end: it may be
// restored by now.
func TestARetiredWorkflowIsSought(t *testing.T) {
	l := newParkingLane(t)
	l.world.found = 0
	l.world.flows.Retire("order", 1, true)
	first := l.reads(l.ids[0], `{"workflow":"order","version":1}`)
	last := l.reads(l.ids[1], `{"workflow":"order"}`)
	l.expects(first)
	l.world.flows.Retire("order", 1, false) // it was read of meanwhile
	l.world.found = 2
	must(t, l.supervise())
	l.expects(last+1, "0 Processing", "1 Processing")

	l.world.flows.Retire("order", 1, true)
	l.world.found = 3
	l.expects(l.reads(l.ids[2], `{"workflow":"order","version":1}`)+1, "0 Processing", "1 Processing", "2 Rejected")
}

// A topic for status messages is given up only once that is sure.
func TestACallersTopicInDoubt(t *testing.T) {
	l := newParkingLane(t)
	l.world.away["shop.status"] = "a broker does not know of it"
	first := l.reads(l.ids[0], `{"workflow":"order","replyTo":"shop.status"}`)
	l.reads(l.ids[1], `{"workflow":"order","replyTo":"waybill.requests.payment"}`)
	l.reads(l.ids[2], `{"workflow":"order","replyTo":"no topic"}`)
	l.expects(first, "1 Processing", "2 Processing")
	delete(l.world.away, "shop.status")
	l.world.refuses["shop.status"] = "no broker does"
	must(t, l.supervise())
	l.expects(first+3, "0 Processing", "1 Processing", "2 Processing")
	if o := l.current.orders[l.ids[0]].order; o.ReplyTo != "" {
		t.Errorf("its status messages go to %q", o.ReplyTo)
	}
}

// A submission waits until Kafka has said something of the topics of all agents that its
// workflow names: also that one is away.
func TestAnAgentsTopicThatNobodyAskedAbout(t *testing.T) {
	l := newParkingLane(t)
	for _, agent := range []string{"shipping", "office"} {
		l.world.away[l.topics.Requests(agent)] = unknown
	}
	l.world.flows.Add(parseFlow(t, callFlow))
	first := l.reads(l.ids[0], `{"workflow":"order"}`)
	l.reads(l.ids[1], `{"workflow":"call"}`)
	l.expects(first, "1 Processing")
	delete(l.world.away, l.topics.Requests("shipping"))
	must(t, l.supervise())
	l.expects(first, "1 Processing")
	l.world.away[l.topics.Requests("office")] = "it does not exist"
	must(t, l.supervise())
	l.expects(first+2, "0 Processing", "1 Processing")
	if o := l.current.orders[l.ids[0]].order; o.Steps[2].Attempt != 0 || o.Steps[1].Attempt != 1 {
		t.Errorf("its steps are %+v", o.Steps)
	}
}

// An answer that comes while the lane does something else is not missed by those who wait
// for it.
func TestAnAnswerInBetween(t *testing.T) {
	l := newParkingLane(t)
	if l.world.answered = make(chan struct{}); l.awaits() != nil {
		t.Error("it waits for nothing, and is woken")
	}
	l.world.away["shop.status"] = unknown
	l.reads(l.ids[0], `{"workflow":"order","replyTo":"shop.status"}`)
	if l.awaits() == nil || l.look {
		t.Fatal("nothing tells it of the answer")
	}
	close(l.world.answered)
	l.world.answered = make(chan struct{})
	l.reads(l.ids[1], `{"workflow":"order"}`)
	if !l.look {
		t.Error("it does not look")
	}
}

// A conflict is recorded, and counted, once: behind what is parked it waits.
func TestAConflictWaits(t *testing.T) {
	l := newParkingLane(t)
	l.format = 2
	l.reads(l.ids[1], `{"workflow":"order"}`)
	l.reads(l.ids[2], `{"workflow":"order"}`)
	l.world.found = 0
	first := l.reads(l.ids[0], `{"workflow":"call"}`)
	l.reads(l.ids[1], `{"workflow":"order","version":1}`)
	l.reads(l.ids[1], `{"workflow":"order","version":2}`)
	l.reads(l.ids[1], `{"workflow":"order"}`)
	l.reads(l.ids[2], `{"workflow":"none","replyTo":"shop.status"}`)
	l.reads(l.ids[3], `{"workflow":"order"}`)
	conflicted := func(want ...bool) {
		t.Helper()
		for n, want := range want {
			if is := l.current.orders[l.ids[n+1]].order.Conflicted; is != want {
				t.Errorf("another submission of order %d is recorded: %t", n+1, is)
			}
		}
	}
	l.expects(first, "1 Processing", "2 Processing", "3 Processing")
	conflicted(false, false)

	l.world.flows.Add(parseFlow(t, callFlow))
	must(t, l.supervise())
	l.expects(l.offset+1, "0 Processing", "1 Processing", "2 Processing", "3 Processing")
	conflicted(true, true)
	if owed := l.current.owed; len(owed) != 1 || owed[0].Topic != "shop.status" || l.current.dropped != 1 {
		t.Errorf("owed is %+v; %d are counted", owed, l.current.dropped)
	}

	// Of what is only counted nobody is told, so its topic does not matter.
	l.world.away["shop.status"] = "it has no leader"
	l.reads(l.ids[2], `{"workflow":"none","replyTo":"shop.status"}`)
	if l.current.dropped != 2 || len(l.parked.inputs) > 0 {
		t.Errorf("%d are counted, %d wait", l.current.dropped, len(l.parked.inputs))
	}
}

// A further submission of an order that is held changes nothing, so it may be read again;
// and a command for one that is parked waits for it, while others are done.
func TestWhatFollowsWhatIsParked(t *testing.T) {
	l := newParkingLane(t)
	l.reads(l.ids[1], `{"workflow":"order"}`)
	l.world.poisoned = true
	reply := typed(l.topics.Replies, "", l.ids[1], fmt.Sprintf(`{"order":%q,"step":"charge","attempt":1,"status":"completed"}`, l.ids[1]))
	must(t, l.decide([]*kgo.Record{reply}))
	l.world.poisoned = false
	held := l.current.orders[l.ids[1]].order
	if held.Hold == nil {
		t.Fatalf("it is %s", held.State)
	}
	l.world.found = 0
	l.reads(l.ids[0], `{"workflow":"call"}`)
	l.reads(l.ids[1], `{"workflow":"order"}`)
	if now := l.current.orders[l.ids[1]].order; len(now.Waiting) != len(held.Waiting) {
		t.Error("a submission is held")
	}
	command := typed(l.topics.Commands, "", l.ids[0], `{"command":"pause"}`)
	l.broker = ending{at: l.offset + 1}
	other := typed(l.topics.Commands, "", l.ids[7], `{"command":"pause"}`)
	must(t, l.decide([]*kgo.Record{other, command}))
	l.asksForOrders(t)
	if len(l.early.inputs) != 1 || l.early.inputs[0].Order != l.ids[0] {
		t.Errorf("%d commands wait", len(l.early.inputs))
	}
	l.world.flows.Add(parseFlow(t, callFlow))
	must(t, l.supervise())
	if o := l.current.orders[l.ids[0]]; o == nil || !o.order.Paused || len(l.early.inputs) > 0 {
		t.Errorf("the command was not done: %+v", o)
	}
}

// ending is a broker that knows where the orders end.
type ending struct {
	Broker
	at int64
}

func (b ending) End(context.Context, TopicPartition, bool) (int64, error) { return b.at, nil }

// There is an end to what is parked.
func TestParkingIsBounded(t *testing.T) {
	for name, padding := range map[string]string{"many": "", "large": strings.Repeat("x", 1_000_000)} {
		t.Run(name, func(t *testing.T) {
			l := newParkingLane(t)
			l.world.found = 0
			n := 0
			for ; !l.closed; n++ {
				if n > maxParked {
					t.Fatal("it reads on and on")
				}
				l.reads(l.ids[0], `{"workflow":"call","input":"`+padding+`"}`)
			}
			if name == "many" && n != maxParked || name == "large" && n != 17 {
				t.Errorf("it stopped after %d", n)
			}
			must(t, l.supervise())
			if !l.closed {
				t.Error("it reads on")
			}
			l.world.found = 1 << 30
			must(t, l.supervise())
			if l.closed || len(l.parked.inputs) > 0 || l.parked.bytes > 0 {
				t.Errorf("%d are parked, %d bytes; closed: %t", len(l.parked.inputs), l.parked.bytes, l.closed)
			}
		})
	}
}

// What is parked for too long is decided on with what is known.
func TestParkingEnds(t *testing.T) {
	l := newParkingLane(t)
	now := time.Now()
	l.time.Timer = func() time.Time { return now }
	l.world.away["shop.status"] = "it is not sure whether it is there"
	first := l.reads(l.ids[1], `{"workflow":"order","replyTo":"shop.status"}`)
	l.reads(l.ids[4], `{"workflow":"none","replyTo":"shop.status"}`)
	l.reads(l.ids[1], `{"workflow":"order"}`)
	l.reads(l.ids[2], `nonsense`)
	now = now.Add(parkedLongest - 1)
	must(t, l.supervise())
	l.expects(first)
	last := l.reads(l.ids[3], `{"workflow":"order","replyTo":"shop.status"}`)
	now = now.Add(1)
	must(t, l.supervise())
	l.expects(last, "1 Processing", "4 Rejected", l.topics.DeadLetters)
	for _, id := range []string{l.ids[1], l.ids[4]} {
		if o := l.current.orders[id].order; o.ReplyTo != "" {
			t.Errorf("the status messages of %s go to %q", id, o.ReplyTo)
		}
	}
}

// A submission is rejected as of an unknown workflow only once the workflows were read to
// their end, however long that takes, and what came for its order waits behind it.
func TestAnUnknownWorkflowIsSoughtForLong(t *testing.T) {
	l := newParkingLane(t)
	now := time.Now()
	l.time.Timer = func() time.Time { return now }
	l.world.found = 0
	first := l.reads(l.ids[0], `{"workflow":"call"}`)
	l.reads(l.ids[0], `{"workflow":"order"}`)
	l.reads(l.ids[2], `nonsense`)
	l.reads(l.ids[4], `{"workflow":"none"}`)
	now = now.Add(30 * parkedLongest)
	l.reads(l.ids[1], `{"workflow":"order"}`)
	must(t, l.supervise())
	l.expects(first, "1 Processing")
	l.world.flows.Add(parseFlow(t, callFlow))
	must(t, l.supervise())
	if o := l.current.orders[l.ids[0]].order; o.Workflow != "call" {
		t.Errorf("it is an order of %s", o.Workflow)
	}
	l.expects(first+3, "0 Processing", "1 Processing", l.topics.DeadLetters)
	l.world.found = 2
	must(t, l.supervise())
	l.expects(l.offset+1, "0 Processing", "1 Processing", "4 Rejected", l.topics.DeadLetters)
}

// What cannot be forwarded is not written, however long it waits. It keeps nothing waiting
// but what would be doubled if it were read again.
func TestWhatStraysWaitsOn(t *testing.T) {
	l := newParkingLane(t)
	now := time.Now()
	l.time.Timer = func() time.Time { return now }
	_, elsewhere := l.keys()
	l.format = 2
	l.world.away[l.topics.Orders], l.world.found = "no leader", 0
	l.reads(l.ids[1], `{"workflow":"order"}`)
	first := l.reads(elsewhere, `{"workflow":"order"}`)
	l.reads(l.ids[0], `{"workflow":"call"}`)
	l.reads(l.ids[2], `nonsense`)
	l.reads(l.ids[1], `{"workflow":"none"}`)
	now = now.Add(parkedLongest)
	l.world.found = 1
	must(t, l.supervise())
	l.expects(first, "0 Rejected", "1 Processing")
	if l.current.orders[l.ids[1]].order.Conflicted {
		t.Error("a conflict is recorded, and would be counted if it were read again")
	}
	clear(l.world.away)
	must(t, l.supervise())
	l.expects(l.offset+1, "0 Rejected", "1 Processing", l.topics.DeadLetters, l.topics.Orders)
}

// A command waits for a submission that was just parked, and those behind it with it; not
// for one that is parked for long.
func TestCommandsBehindWhatIsParked(t *testing.T) {
	l := newParkingLane(t)
	now := time.Now()
	l.time.Timer = func() time.Time { return now }
	l.reads(l.ids[1], `{"workflow":"order"}`)
	l.reads(l.ids[2], `{"workflow":"order"}`)
	l.world.found = 0
	l.reads(l.ids[0], `{"workflow":"call"}`)
	l.broker = ending{at: l.offset + 1}
	command := func(id string) {
		must(t, l.decide([]*kgo.Record{typed(l.topics.Commands, "", id, `{"command":"pause"}`)}))
	}
	command(l.ids[0])
	command(l.ids[1])
	now = now.Add(earlyLongest - 1)
	must(t, l.supervise())
	if len(l.early.inputs) != 2 || l.current.orders[l.ids[1]].order.Paused {
		t.Errorf("%d commands wait", len(l.early.inputs))
	}
	now = now.Add(1)
	must(t, l.supervise())
	command(l.ids[0])
	command(l.ids[2])
	if len(l.early.inputs) > 0 || !l.current.orders[l.ids[1]].order.Paused || !l.current.orders[l.ids[2]].order.Paused {
		t.Errorf("%d commands wait", len(l.early.inputs))
	}
	aside := 0
	for _, r := range l.current.records {
		if r.Topic == l.topics.DeadLetters && strings.Contains(events.Header(r, HeaderReason), "is not decided") {
			aside++
		}
	}
	if aside != 2 {
		t.Errorf("%d commands are put aside", aside)
	}
	if l.closed {
		t.Error("no more commands are read")
	}
}

// A submission of a workflow that this release cannot run is not decided on here, and holds
// up no other, however many come.
func TestSubmissionsOfNewerWorkflows(t *testing.T) {
	l := newParkingLane(t)
	now := time.Now()
	l.time.Timer = func() time.Time { return now }
	l.world.newer = map[string]int{"call": 2}
	l.world.flows.Add(parseFlow(t, callFlow)) // an older version of it
	first := l.reads(l.ids[0], `{"workflow":"call"}`)
	l.reads(l.ids[1], `{"workflow":"order"}`)
	now = now.Add(parkedLongest - 1)
	must(t, l.supervise())
	l.expects(first, "1 Processing")
	for len(l.parked.inputs) < maxParked/2 {
		l.reads(l.ids[2], `{"workflow":"call"}`)
	}
	l.reads(l.ids[3], `{"workflow":"call"}`)
	l.world.found = 0
	l.reads(l.ids[4], `{"workflow":"none"}`)
	l.expects(first, "1 Processing", "3 Rejected")
	if o := l.current.orders[l.ids[3]].order; !strings.Contains(o.Reason, "level 2 of the language") {
		t.Errorf("it is rejected since %s", o.Reason)
	}
	now = now.Add(1)
	must(t, l.supervise())
	l.expects(first+2, "0 Rejected", "1 Processing", "3 Rejected")
	if o := l.current.orders[l.ids[0]].order; !strings.Contains(o.Reason, "level 2 of the language") {
		t.Errorf("it is rejected since %s", o.Reason)
	}
	l.world.newer = nil
	must(t, l.supervise())
	l.expects(l.parked.inputs[0].record.Offset, "0 Rejected", "1 Processing", "2 Processing", "3 Rejected")
}

// A submission of a newer workflow is not rejected for what others are parked; those of newer
// workflows take half of the room at most, and leave the other half to others.
func TestSubmissionsOfNewerWorkflowsFindRoom(t *testing.T) {
	for name, padding := range map[string]string{"many": "", "large": strings.Repeat("x", 1_000_000)} {
		t.Run(name, func(t *testing.T) {
			l := newParkingLane(t)
			l.world.found, l.world.newer = 0, map[string]int{"call": 2}
			room := maxParked
			if padding != "" {
				room = 18
			}
			first := l.reads(l.ids[4], `{"workflow":"none"}`)
			for range room / 2 {
				l.reads(l.ids[5], `{"workflow":"none","input":"`+padding+`"}`)
			}
			l.reads(l.ids[0], `{"workflow":"call","input":"`+padding+`"}`)
			l.expects(first)
			if len(l.parked.inputs) != room/2+2 {
				t.Fatalf("%d are parked", len(l.parked.inputs))
			}
			l.world.newer["none"] = 2 // as is read now
			must(t, l.supervise())
			l.reads(l.ids[1], `{"workflow":"call"}`)
			l.expects(first, "1 Rejected")
		})
	}
}

package lane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

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
	closed bool
}

func (d *door) Pause(string)  { d.closed = true }
func (d *door) Resume(string) { d.closed = false }

func newParkingLane(t *testing.T) *parkingLane {
	l := &parkingLane{t: t, door: &door{}}
	l.Lane, l.world = newLane(t)
	l.inputs = l.door
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
	must(l.t, l.decide(l.t.Context(), []*kgo.Record{r}))
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
	must(t, l.supervise(t.Context()))
	l.expects(first, "1 Processing", "3 Processing")
	if !l.Busy() || l.world.sought != 2 {
		t.Errorf("busy: %t; %d questions", l.Busy(), l.world.sought)
	}

	l.world.flows.Add(parseFlow(t, callFlow)) // it was read of meanwhile
	must(t, l.supervise(t.Context()))
	l.expects(last, "0 Processing", "1 Processing", "3 Processing", l.topics.DeadLetters, l.topics.Orders)
	l.world.found = 1
	must(t, l.supervise(t.Context()))
	l.expects(last, "0 Processing", "1 Processing", "3 Processing", l.topics.DeadLetters, l.topics.Orders)
	l.world.found = 2
	must(t, l.supervise(t.Context()))
	l.expects(last+1, "0 Processing", "1 Processing", "3 Processing", "4 Rejected", l.topics.DeadLetters, l.topics.Orders)
	if l.reads(l.ids[5], `{"workflow":"order"}`); l.position.At(events.InputOrders) != last+2 {
		t.Errorf("the position is %d", l.position.At(events.InputOrders))
	}
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
	must(t, l.supervise(t.Context()))
	l.expects(first+3, "0 Processing", "1 Processing", "2 Processing")
	if o := l.current.orders[l.ids[0]].order; o.ReplyTo != "" {
		t.Errorf("its status messages go to %q", o.ReplyTo)
	}
}

// A conflict is recorded, and counted, once: behind what is parked it waits. Until it is
// sure whether its own topic is there it waits, too.
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
	l.world.away["shop.status"] = "a broker does not know of it"
	doubt := l.reads(l.ids[2], `{"workflow":"none","replyTo":"shop.status"}`)
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
	must(t, l.supervise(t.Context()))
	l.expects(doubt, "0 Processing", "1 Processing", "2 Processing", "3 Processing")
	conflicted(true, false)
	delete(l.world.away, "shop.status")
	must(t, l.supervise(t.Context()))
	l.expects(l.offset+1, "0 Processing", "1 Processing", "2 Processing", "3 Processing")
	conflicted(true, true)
	if told := l.current.records[len(l.current.records)-1]; told.Topic != "shop.status" || l.current.dropped != 1 {
		t.Errorf("it is told on %s; %d are counted", told.Topic, l.current.dropped)
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
	must(t, l.decide(t.Context(), []*kgo.Record{reply}))
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
	must(t, l.decide(t.Context(), []*kgo.Record{other, command}))
	if len(l.early.commands) != 1 || l.early.commands[0].Order != l.ids[0] {
		t.Errorf("%d commands wait", len(l.early.commands))
	}
	l.world.flows.Add(parseFlow(t, callFlow))
	must(t, l.supervise(t.Context()))
	if o := l.current.orders[l.ids[0]]; o == nil || !o.order.Paused || len(l.early.commands) > 0 {
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
			must(t, l.supervise(t.Context()))
			if !l.closed {
				t.Error("it reads on")
			}
			l.world.found = 1 << 30
			must(t, l.supervise(t.Context()))
			if l.closed || len(l.parked.inputs) > 0 || l.parked.bytes > 0 {
				t.Errorf("%d are parked, %d bytes; closed: %t", len(l.parked.inputs), l.parked.bytes, l.closed)
			}
		})
	}
}

package lane

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
)

// commanded is a lane that reads commands, on a clock of its own.
type commanded struct {
	*parkingLane
	now  time.Time
	next int64 // of the commands
}

func newCommanded(t *testing.T) *commanded {
	c := &commanded{parkingLane: newParkingLane(t), now: time.Now()}
	c.time.Timer = func() time.Time { return c.now }
	return c
}

// pauses has it read a command for each of these orders.
func (c *commanded) pauses(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		r := typed(c.topics.Commands, "", id, `{"command":"pause"}`)
		r.Offset, c.next = c.next, c.next+1
		must(c.t, c.decide([]*kgo.Record{r}))
	}
}

// expects says how many commands wait, whose orders are paused, and for which orders
// commands were put aside.
func (c *commanded) expects(what string, waiting int, paused, aside []string) {
	c.t.Helper()
	var are, letters []string
	for _, id := range c.ids {
		if o, err := c.order(id); err != nil || o != nil && o.Paused {
			are = append(are, id)
		}
	}
	for _, r := range c.current.records {
		if r.Topic == c.topics.DeadLetters {
			letters = append(letters, string(r.Key))
		}
	}
	if len(c.early.inputs) != waiting || !slices.Equal(are, paused) || !slices.Equal(letters, aside) || c.closed != (waiting > 0) ||
		c.position.At(events.InputCommands) != c.next-int64(waiting) {
		c.t.Errorf("%s: %d commands wait, %q are paused, of %q they are put aside; closed: %t; the position is %v",
			what, len(c.early.inputs), are, letters, c.closed, c.position)
	}
}

// movingEnd is a broker whose orders grow.
type movingEnd struct {
	Broker
	at *int64
}

func (b movingEnd) End(context.Context, TopicPartition, bool) (int64, error) { return *b.at, nil }

// A command is not decided by an end that was asked for before it came: the submission of
// its order may have been written since.
func TestCommandsWaitEachForItsOwnOrder(t *testing.T) {
	c := newCommanded(t)
	end := int64(2)
	c.broker = movingEnd{at: &end}
	c.pauses(c.ids[0], c.ids[1])
	c.askOrders(new(scripted))
	first := c.AskOrders(t.Context())
	end = 4 // submissions of others, and one of the order of the third command
	c.pauses(c.ids[2])
	c.ordersTold(first)
	must(t, c.supervise())
	c.expects("the orders are not read", 3, nil, nil)
	c.reads(c.ids[8], `{"workflow":"order"}`) // at 1
	c.expects("the first two never come", 1, nil, c.ids[:2])
	c.asksForOrders(t)
	c.reads(c.ids[7], `{"workflow":"order"}`)
	c.expects("the third may come", 1, nil, c.ids[:2])
	c.reads(c.ids[2], `{"workflow":"order"}`)
	c.expects("the third came", 0, c.ids[2:3], c.ids[:2])
}

// openEnd is a broker of whose orders not all can be read, since a transaction is open.
type openEnd struct {
	Broker
	readable, last *int64
}

func (b openEnd) End(_ context.Context, _ TopicPartition, committed bool) (int64, error) {
	if committed {
		return *b.readable, nil
	}
	return *b.last, nil
}

// A submission that was acknowledged may stand behind a transaction that is open: a command for it waits
// until that has ended, and no longer than for what never comes.
func TestCommandsBehindAnOpenTransaction(t *testing.T) {
	readable, last := int64(0), int64(3)
	begin := func() *commanded {
		readable, last = 0, 3
		c := newCommanded(t)
		c.broker = openEnd{readable: &readable, last: &last}
		c.pauses(c.ids[0], c.ids[1])
		c.asksForOrders(t)
		c.expects("nothing can be read", 2, nil, nil)
		return c
	}
	again := func(c *commanded, after time.Duration) {
		t.Helper()
		c.now = c.now.Add(after)
		c.early.rests = false
		must(t, c.supervise())
		c.asksForOrders(t)
	}
	t.Run("that ends", func(t *testing.T) {
		c := begin()
		if c.early.asks {
			t.Error("it asks again and again")
		}
		again(c, openLongest-time.Second)
		c.expects("it is still open", 2, nil, nil)
		readable, last = 9, 9
		again(c, time.Second)
		c.expects("they can be read", 2, nil, nil)
		c.now = c.now.Add(time.Hour)
		c.reads(c.ids[0], `{"workflow":"order"}`) // at 1
		c.expects("the first came", 1, c.ids[:1], nil)
		c.reads(c.ids[8], `{"workflow":"order"}`) // at 2, where they ended
		c.expects("the second was not there", 0, c.ids[:1], c.ids[1:2])
		if why := headerText(c.current.records[len(c.current.records)-1], HeaderReason); !strings.HasSuffix(why, "there is no order of this id") {
			t.Errorf("it was put aside: %s", why)
		}
	})
	t.Run("that stays open", func(t *testing.T) {
		c := begin()
		c.pauses(c.ids[2])
		again(c, openLongest)
		c.expects("the third is asked for on its own", 1, nil, c.ids[:2])
		for _, r := range c.current.records {
			if why := headerText(r, HeaderReason); r.Topic == c.topics.DeadLetters && !strings.Contains(why, "open: of partition 5 of waybill.orders nothing can be read from offset 0 on") {
				t.Errorf("it was put aside: %s", why)
			}
		}
		again(c, time.Second)
		c.expects("and waits as long", 1, nil, c.ids[:2])
		again(c, openLongest)
		c.expects("the third is put aside, too", 0, nil, c.ids[:3])
	})
	t.Run("that is reached late", func(t *testing.T) {
		c := begin()
		readable = 2
		again(c, openLongest)
		c.reads(c.ids[8], `{"workflow":"order"}`) // at 1
		c.expects("what is behind it may be readable by now", 2, nil, nil)
		readable = 3
		again(c, 0)
		c.reads(c.ids[1], `{"workflow":"order"}`) // at 2
		c.expects("the second came", 0, c.ids[1:2], c.ids[:1])
	})
}

// noEnd is a broker whose orders have no leader.
type noEnd struct{ Broker }

func (noEnd) End(context.Context, TopicPartition, bool) (int64, error) {
	return 0, errors.New("LEADER_NOT_AVAILABLE")
}

// Where Kafka cannot tell where the orders end, commands wait and nothing else. One is put
// aside once it was asked in vain after a while: that the lane was held up says nothing.
func TestCommandsWithoutOrders(t *testing.T) {
	c := newCommanded(t)
	c.broker = noEnd{}
	c.reads(c.ids[1], `{"workflow":"order"}`)
	c.pauses(c.ids[0], c.ids[1])
	c.asksForOrders(t)
	c.reads(c.ids[2], `{"workflow":"order"}`)
	if c.early.asks {
		t.Error("it asks again and again")
	}
	c.expects("at first", 2, nil, nil)
	if o, err := c.order(c.ids[2]); err != nil || o == nil {
		t.Errorf("a submission waits, too: %v", err)
	}

	tick := func() { c.early.rests = false; must(t, c.supervise()) }
	tick()
	c.askOrders(new(scripted))
	c.now = c.now.Add(earlyLongest)
	c.ordersTold(c.AskOrders(t.Context()))
	must(t, c.supervise())
	c.expects("it was asked at once", 2, nil, nil)
	tick()
	c.asksForOrders(t)
	c.expects("it was asked after a while", 0, c.ids[1:2], c.ids[:1])
	for _, r := range c.current.records {
		if why := headerText(r, HeaderReason); r.Topic == c.topics.DeadLetters && !strings.Contains(why, "nobody can tell") {
			t.Errorf("it was put aside: %s", why)
		}
	}
}

// What is held by more than one is read on once none holds it any more.
func TestATopicIsPausedWhileSomethingWaits(t *testing.T) {
	c := newCommanded(t)
	c.pauses(c.ids[0])
	c.position.SetOf(events.InputCommands, 17, 0)
	c.world.away[c.topics.Commands] = "no leader"
	stray := typed(c.topics.Commands, "", c.ids[1], `{"command":"pause"}`)
	stray.Partition = 17 // which was added
	must(t, c.decide([]*kgo.Record{stray}))
	if len(c.behind) != 1 {
		t.Fatal("what strays does not wait")
	}
	clear(c.world.away)
	must(t, c.supervise())
	must(t, c.decideOn(c.rest))
	if len(c.behind) > 0 || !c.closed {
		t.Errorf("commands are read on, and %d wait", len(c.early.inputs))
	}

	// The same with submissions that fill the room, and a stray one.
	c.early.inputs = nil
	must(t, c.supervise())
	c.world.found = 0
	for len(c.parked.inputs) < maxParked {
		c.reads(c.ids[2], `{"workflow":"call"}`)
	}
	c.world.away[c.topics.Orders] = "no leader"
	stray = typed(c.topics.Orders, "", c.ids[3], `{"workflow":"order"}`)
	stray.Partition = 17
	must(t, c.decide([]*kgo.Record{stray}))
	c.world.found = 1 << 30
	must(t, c.supervise())
	if len(c.parked.inputs) > 0 || !c.closed {
		t.Errorf("%d are parked; submissions are read on", len(c.parked.inputs))
	}
	clear(c.world.away)
	must(t, c.supervise())
	if c.closed {
		t.Error("they are not read on")
	}
}

// A command that strays, and cannot be forwarded by now, waits behind another, too.
func TestAStrayCommandBehindAnother(t *testing.T) {
	c := newCommanded(t)
	end := int64(1)
	c.broker = movingEnd{at: &end}
	_, elsewhere := c.keys()
	c.pauses(c.ids[0], elsewhere)
	c.world.away[c.topics.Commands] = "no leader"
	c.reads(c.ids[0], `{"workflow":"order"}`)
	c.expects("it cannot be written there", 1, c.ids[:1], nil)
	clear(c.world.away)
	must(t, c.supervise())
	c.expects("it can", 1, c.ids[:1], nil)
	c.asksForOrders(t)
	c.expects("no submission of its order is to come", 0, c.ids[:1], nil)
}

// A client whose partitioner is not ours puts the submission, and what it sends once that is acknowledged, into
// another partition. There they are read side by side; what comes of them is in turn.
func TestAStrayCommandFollowsItsOrder(t *testing.T) {
	_, elsewhere := newCommanded(t).keys()
	forwarded := func(c *commanded) (topics []string) {
		for _, r := range c.current.records {
			if string(r.Key) == elsewhere {
				topics = append(topics, r.Topic)
			}
		}
		return topics
	}
	t.Run("that comes", func(t *testing.T) {
		c := newCommanded(t)
		end := int64(3)
		c.broker = movingEnd{at: &end}
		c.pauses(elsewhere, c.ids[0])
		c.asksForOrders(t)
		c.expects("its order is not read", 2, nil, nil)
		c.reads(c.ids[0], `{"workflow":"order"}`)
		c.expects("another is", 2, nil, nil)
		c.reads(elsewhere, `{"workflow":"order"}`)
		c.expects("it is", 0, c.ids[:1], nil)
		if got, want := forwarded(c), []string{c.topics.Orders, c.topics.Commands}; !slices.Equal(got, want) {
			t.Errorf("forwarded to %q instead of %q", got, want)
		}
	})
	t.Run("behind what stays open", func(t *testing.T) {
		c := newCommanded(t)
		readable, last := int64(0), int64(3)
		c.broker = openEnd{readable: &readable, last: &last}
		c.pauses(elsewhere)
		c.asksForOrders(t)
		c.expects("nothing can be read", 1, nil, nil)
		c.now, c.early.rests = c.now.Add(earlyLongest), false
		must(t, c.supervise())
		c.asksForOrders(t)
		c.expects("it is not put aside: its order may be known where it belongs", 0, nil, nil)
		if got, want := forwarded(c), []string{c.topics.Commands}; !slices.Equal(got, want) {
			t.Errorf("forwarded to %q instead of %q", got, want)
		}
	})
}

// What a command has waited behind one that strays is nothing that Kafka was asked for in vain.
func TestACommandThatWaitedBehindAStrayOne(t *testing.T) {
	c := newCommanded(t)
	_, elsewhere := c.keys()
	c.broker = noEnd{}
	c.pauses(c.ids[0], elsewhere, c.ids[1])
	c.world.away[c.topics.Commands] = "no leader"
	c.reads(c.ids[0], `{"workflow":"order"}`)
	c.now = c.now.Add(earlyLongest)
	must(t, c.supervise())
	c.expects("behind what strays", 2, c.ids[:1], nil)
	clear(c.world.away)
	must(t, c.supervise())
	c.asksForOrders(t)
	c.expects("asked once", 2, c.ids[:1], nil)
	c.now, c.early.rests = c.now.Add(earlyLongest), false
	must(t, c.supervise())
	c.asksForOrders(t)
	c.expects("asked after a while", 0, c.ids[:1], c.ids[1:2])
}

// signalled is a lane that reads commands and signals.
type signalled struct {
	*commanded
	signals int64
	kafka   questions
}

// questions counts how often Kafka is asked where the orders end.
type questions struct {
	scripted
	n int
}

func (q *questions) AskOrders() { q.n++ }

func newSignalled(t *testing.T) *signalled {
	c := &signalled{commanded: newCommanded(t)}
	c.format = events.SignalsFormat
	return c
}

// tells has it read a signal for each of these orders, which does not listen.
func (c *signalled) tells(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		r := typed(c.topics.Signals, "", id, `{"signal":"go"}`)
		r.Offset, c.signals = c.signals, c.signals+1
		must(c.t, c.decide([]*kgo.Record{r}))
	}
}

// heard says how many signals wait, which orders had one, and for which orders they were put aside.
// The topic is read on if none waits.
func (c *signalled) heard(what string, waiting int, had, aside []string) {
	c.t.Helper()
	var have, letters []string
	for _, id := range c.ids {
		if o, err := c.order(id); err != nil || o != nil && o.Unheard > 0 {
			have = append(have, id)
		}
	}
	for _, r := range c.current.records {
		if r.Topic == c.topics.DeadLetters && strings.HasPrefix(headerText(r, "waybill_source"), c.topics.Signals) {
			letters = append(letters, string(r.Key))
		}
	}
	if len(c.earlySignals.inputs) != waiting || !slices.Equal(have, had) || !slices.Equal(letters, aside) ||
		c.door.paused[TopicPartition{c.topics.Signals, c.partition}] != (waiting > 0) || c.position.At(events.InputSignals) != c.signals-int64(waiting) {
		c.t.Errorf("%s: %d signals wait, of %q they were decided, of %q they are put aside; paused: %v; the position is %v",
			what, len(c.earlySignals.inputs), have, letters, c.door.paused, c.position)
	}
}

// A signal for an order whose submission is still to come waits for it, and those behind it. Where
// it never comes, it is put aside.
func TestSignalsWaitForTheirOrders(t *testing.T) {
	c := newSignalled(t)
	c.broker = movingEnd{at: new(int64(3))}
	c.reads(c.ids[1], `{"workflow":"order"}`) // at 1
	c.tells(c.ids[0], c.ids[1], c.ids[2])
	c.heard("the first is too early", 3, nil, nil)
	if !c.earlySignals.asks || c.early.asks {
		t.Error("it is for the signals that Kafka is to be asked")
	}
	c.askOrders(&c.kafka)
	c.ordersTold(c.AskOrders(t.Context()))
	must(t, c.supervise())
	c.heard("the submission may be among what is not read", 3, nil, nil)
	c.reads(c.ids[0], `{"workflow":"order"}`) // at 2
	c.heard("it was", 0, c.ids[:2], c.ids[2:3])
	c.tells(c.ids[0])
	c.heard("nothing waits any more", 0, c.ids[:2], c.ids[2:3])
}

// Neither waits for the other: applications do not hold up operators. What waits keeps more of
// its own topic from being read, and of no other.
func TestCommandsAndSignalsDoNotWaitForEachOther(t *testing.T) {
	c := newSignalled(t)
	c.broker = movingEnd{at: new(int64(9))}
	c.reads(c.ids[1], `{"workflow":"order"}`)
	c.tells(c.ids[0], c.ids[1])
	c.pauses(c.ids[1])
	if o, err := c.order(c.ids[1]); err != nil || !o.Paused || len(c.early.inputs) > 0 {
		t.Errorf("a command waits behind signals: %v", err)
	}
	c.heard("signals wait", 2, nil, nil)
	if c.door.paused[TopicPartition{c.topics.Commands, c.partition}] {
		t.Error("commands are not read on")
	}

	c = newSignalled(t)
	c.broker = movingEnd{at: new(int64(9))}
	c.reads(c.ids[1], `{"workflow":"order"}`)
	c.pauses(c.ids[0], c.ids[1])
	c.tells(c.ids[1])
	c.heard("a signal does not wait behind commands", 0, c.ids[1:2], nil)
	c.expects("commands wait", 2, nil, nil)
}

// One question serves both.
func TestOneQuestionServesCommandsAndSignals(t *testing.T) {
	c := newSignalled(t)
	c.broker = movingEnd{at: new(int64(2))}
	c.pauses(c.ids[0])
	c.tells(c.ids[1])
	for range 2 {
		if c.askOrders(&c.kafka); c.kafka.n != 1 {
			t.Errorf("Kafka was asked %d times", c.kafka.n)
		}
	}
	c.ordersTold(c.AskOrders(t.Context()))
	c.reads(c.ids[8], `{"workflow":"order"}`) // at 1, where they end
	c.heard("all orders were read", 0, nil, c.ids[1:2])
	c.expects("all orders were read", 0, nil, c.ids[:2]) // the dead letters of both
}

// Where one waits already, what comes of the other kind meanwhile has a question of its own.
func TestSignalsThatComeWhileItIsAskedForCommands(t *testing.T) {
	c := newSignalled(t)
	c.broker = movingEnd{at: new(int64)}
	c.pauses(c.ids[0])
	c.askOrders(&c.kafka)
	c.tells(c.ids[1])
	c.askOrders(&c.kafka)
	if c.kafka.n != 1 || !c.earlySignals.asks {
		t.Errorf("Kafka was asked %d times; it is asked again: %t", c.kafka.n, c.earlySignals.asks)
	}
	c.ordersTold(c.AskOrders(t.Context()))
	must(t, c.supervise())
	c.heard("its order may have been written since", 1, nil, nil)
	if len(c.early.inputs) > 0 {
		t.Error("the command waits on")
	}
	if c.askOrders(&c.kafka); c.kafka.n != 2 {
		t.Errorf("Kafka was asked %d times", c.kafka.n)
	}
	c.ordersTold(c.AskOrders(t.Context()))
	must(t, c.supervise())
	c.heard("it was not", 0, nil, c.ids[1:2])
}

// What was told of the one kind is not changed by the answer to a question for the other.
func TestWhatSignalsWereToldStays(t *testing.T) {
	for _, failure := range []error{nil, errors.New("no leader")} {
		c := newSignalled(t)
		end := int64(2)
		c.broker = movingEnd{at: &end}
		c.tells(c.ids[1])
		c.askOrders(&c.kafka)
		c.ordersTold(c.AskOrders(t.Context()))
		end = 9
		c.pauses(c.ids[0])
		c.askOrders(&c.kafka)
		told := c.AskOrders(t.Context())
		told.Err = failure
		c.ordersTold(told)
		c.reads(c.ids[8], `{"workflow":"order"}`) // at 1, where they ended for the signal
		c.heard("all orders were read that were there when it came", 0, nil, c.ids[1:2])
		if len(c.early.inputs) != 1 {
			t.Error("the command does not wait")
		}
	}
}

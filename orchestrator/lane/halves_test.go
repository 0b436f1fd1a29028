package lane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
)

// choosy is a Kafka that refuses some records, and the lanes of a partition, one after
// the other.
type choosy struct {
	*testing.T
	*Lane
	world   *still
	inputs  []*kgo.Record
	refuses func(*kgo.Record) error
	rate    int // bytes that it takes in a second, 0 if any number

	halves  Halves
	now     time.Time
	offset  int64 // of the journal
	written []*kgo.Record
	lanes   int
	pending *Batch
	read    bool
	looks   int
}

func newChoosy(t *testing.T) *choosy {
	c := &choosy{T: t, now: time.Now(), offset: 1}
	c.Lane, c.world = newLane(t)
	return c
}

// submits brings submissions of as many orders, and returns their ids.
func (c *choosy) submits(orders int) (ids []string) {
	for n := 0; len(ids) < orders; n++ {
		if id := fmt.Sprint("o-", n); c.byKey.Of([]byte(id)) == c.partition {
			ids = append(ids, id)
			c.brings(c.topics.Orders, id, `{"workflow":"order"}`)
		}
	}
	return ids
}

// brings has an input come, each topic from offset 0.
func (c *choosy) brings(topic, key, value string) {
	r := typed(topic, "", key, value)
	r.Offset = 0
	for _, other := range c.inputs {
		if other.Topic == topic {
			r.Offset++
		}
	}
	c.inputs = append(c.inputs, r)
}

// plays has lanes follow each other, a second after the one before, until one has
// nothing to do any more or there were as many as given.
func (c *choosy) plays(lanes int) {
	c.Helper()
	for range lanes {
		c.lanes++
		last := c.Lane
		c.state.Forget()
		c.Lane = New(last.cfg, c.partition, last.broker, c.world, c.state, last.log)
		c.time.Timer = func() time.Time { return c.now }
		c.time.Wall = func() time.Time { return c.now }
		c.Narrows(&c.halves)
		c.current, c.position, c.transaction = newBatch(), c.state.Head().Next, c.state.Head().Transaction
		for in := range c.topics.Inputs() {
			c.position.Set(in, max(0, c.position.At(in)))
		}
		c.state.Rescan()
		c.pending, c.read, c.looks = nil, false, 0
		err := c.Lane.Run(c.Context(), c)
		if c.now = c.now.Add(time.Second); err == nil {
			return
		}
		if refused := new(RefusedError); !errors.As(err, &refused) && !errors.Is(err, ErrLate) {
			c.Fatal(err)
		}
	}
}

func (c *choosy) Commit(b *Batch) { c.pending = b }
func (c *choosy) Ask()            {}

func (*choosy) Confirm([]int64)   {}
func (*choosy) AskOrders()        {}
func (*choosy) Turn() bool        { return true }
func (*choosy) Deliver(*Delivery) {}

func (c *choosy) Next(w Wanted) Happened {
	switch {
	case c.pending != nil:
		b := c.pending
		c.pending = nil
		if c.rate > 0 {
			took := time.Duration(b.bytes) * time.Second / time.Duration(c.rate)
			if c.now = c.now.Add(min(took, CommitTimeout)); took > CommitTimeout {
				return Happened{What: Committed, Err: &LateError{Topics: []string{c.topics.Journal}}}
			}
		}
		for _, r := range b.records {
			if err := c.refuses(r); err != nil {
				return Happened{What: Committed, Err: &RefusedError{Record: r, Err: err}}
			}
		}
		c.written = append(c.written, b.records...)
		for _, r := range b.records {
			if r.Topic == c.topics.Journal {
				r.Offset = c.offset
				c.offset++
			}
		}
		return Happened{What: Committed}
	case w.Inputs && !c.read:
		c.read = true
		var fetch kgo.Fetch
		for _, topic := range c.topics.Inputs() {
			in, _ := c.topics.Input(topic)
			var found []*kgo.Record
			for _, r := range c.inputs {
				if r.Topic == topic && r.Offset >= c.position.At(in) {
					found = append(found, r)
				}
			}
			fetch.Topics = append(fetch.Topics, kgo.FetchTopic{Topic: topic, Partitions: []kgo.FetchPartition{{Partition: c.partition, Records: found}}})
		}
		return Happened{What: Fetched, Fetches: kgo.Fetches{fetch}}
	case w.Look:
		return Happened{What: Idle}
	case c.looks < 3: // finds what is due, hears that all replies were read, decides
		if c.looks++; c.looks == 2 {
			return Happened{What: Told, End: 0}
		}
		return Happened{What: Ticked}
	}
	return Happened{What: Stopped}
}

// states are those of orders, as committed.
func (c *choosy) states(ids ...string) (states []projections.State) {
	c.Helper()
	for _, id := range ids {
		o, err := c.state.Order(id)
		must(c.T, err)
		if o == nil {
			o = &projections.Order{}
		}
		states = append(states, o.State)
	}
	return states
}

func (c *choosy) letters() (letters []*kgo.Record) {
	for _, r := range c.written {
		if r.Topic == c.topics.DeadLetters {
			letters = append(letters, r)
		}
	}
	return letters
}

// event says whether a record is an event of an order.
func (c *choosy) event(r *kgo.Record, typ events.Type, order string) bool {
	return r.Topic == c.topics.Journal && events.Header(r, events.HeaderType) == string(typ) && string(r.Key) == order
}

// One input whose records Kafka refuses, wherever it stands, is found and held, and all
// others are taken as they would be without it.
func TestOneInputIsRefused(t *testing.T) {
	for _, at := range []int{0, 13, 39} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			c := newChoosy(t)
			ids := c.submits(40)
			c.refuses = func(r *kgo.Record) error {
				if c.event(r, events.OrderAccepted, ids[at]) {
					return kerr.InvalidRecord
				}
				return nil
			}
			began := c.now
			c.plays(40)
			for i, state := range c.states(ids...) {
				if want := projections.Processing; i != at && state != want {
					t.Errorf("order %d is %q", i, state)
				}
			}
			if state := c.states(ids[at])[0]; state != projections.Rejected {
				t.Errorf("what is refused is %q", state)
			}
			if letters := c.letters(); len(letters) != 1 || headerText(letters[0], "waybill_source") != fmt.Sprint("waybill.orders/5/", at) ||
				!strings.Contains(headerText(letters[0], "waybill_reason"), kerr.InvalidRecord.Message) || len(letters[0].Value) == 0 {
				t.Errorf("put aside: %+v", letters)
			}
			if took := c.now.Sub(began); took < holdAfter {
				t.Errorf("that was sure after %s", took)
			}
			if c.lanes > 25 || c.position.At(events.InputOrders) != 40 {
				t.Errorf("%d lanes; the position is %v", c.lanes, c.position)
			}
			// Then batches are what they were.
			c.plays(1)
			for range 12 {
				c.current.moved = true
				c.begin()
				must(t, c.conclude(nil))
			}
			if c.halves.most != 0 || len(c.halves.suspects) != 0 {
				t.Errorf("it goes on with %+v", c.halves)
			}
		})
	}
}

// A Kafka that takes little in a second is given no more at a time than it takes before a
// commit's time is up, and more again once it takes that: no lane tries in vain what the
// one before did.
func TestASlowKafka(t *testing.T) {
	c := newChoosy(t)
	c.refuses = func(*kgo.Record) error { return nil }
	c.rate = 2_000
	c.submits(100)
	c.plays(10)
	if slow := c.halves.bytes; c.position.At(events.InputOrders) != 100 || c.lanes > 8 || slow == 0 || slow > c.rate*int(CommitTimeout/time.Second) {
		t.Errorf("of 100 orders %d lanes decided on %d, the last with batches of %d bytes", c.lanes, c.position.At(events.InputOrders), slow)
	}
	c.rate = 0
	c.submits(200)
	before := c.halves.bytes
	c.plays(1)
	if c.halves.bytes <= before {
		t.Errorf("%d bytes are as many as before", c.halves.bytes)
	}
	for range 100 {
		c.halves.took(batchBytes, 0)
	}
	if c.halves.bytes != 0 {
		t.Errorf("in the end it takes %d bytes", c.halves.bytes)
	}
	// One that is larger than all that is taken goes alone.
	c.halves.late(1)
	if c.full() {
		t.Error("nothing is tried any more")
	}
}

// A Kafka that refuses whatever is decided is not the fault of an input: all of it
// waits, and is taken as soon as it can be.
func TestAllInputsAreRefused(t *testing.T) {
	for name, topic := range map[string]string{"journal": "waybill.journal", "status": "waybill.status"} {
		t.Run(name, func(t *testing.T) {
			c := newChoosy(t)
			ids := c.submits(10)
			refused := 0
			c.refuses = func(r *kgo.Record) error {
				if refused < 60 && r.Topic == topic && r.Key != nil {
					refused++
					return kerr.InvalidRecord
				}
				return nil
			}
			c.plays(100)
			for i, state := range c.states(ids...) {
				if state != projections.Processing {
					t.Errorf("order %d is %q", i, state)
				}
			}
			if len(c.letters()) != 0 {
				t.Errorf("put aside: %+v", c.letters())
			}
		})
	}
}

// Of a topic that refuses every record the first ones are found, as is one that is refused
// for its own sake. Once the agent is away the others wait for it, and batches are what they
// were.
func TestATopicRefusesEveryRecord(t *testing.T) {
	c := newChoosy(t)
	ids, queue := c.submits(40), c.topics.Requests("payment")
	c.refuses = func(r *kgo.Record) error {
		if r.Topic == queue {
			return kerr.InvalidRecord
		}
		return nil
	}
	var orders []string
	c.world.hears = func(topic, order string) {
		if topic != queue {
			t.Errorf("%s refuses a record", topic)
		}
		if !slices.Contains(orders, order) {
			orders = append(orders, order)
		}
		if len(orders) == 3 {
			c.world.away[queue] = "it refuses every record"
		}
	}
	c.plays(60)
	if !slices.Equal(orders, ids[:3]) || len(c.halves.suspects) > 0 || c.position.At(events.InputOrders) != 40 {
		t.Errorf("refused were records of %q; it goes on with %+v at %v", orders, c.halves, c.position)
	}
	if slices.Contains(c.world.took, queue) || !slices.Contains(c.world.took, c.topics.Requests("shipping")) {
		t.Errorf("the topics that took something: %q", c.world.took)
	}
	for i, state := range c.states(ids...) {
		if want := projections.Processing; i > 1 && state != want {
			t.Errorf("order %d is %q", i, state)
		}
	}
	if n := len(c.letters()); n != 2 {
		t.Errorf("%d are put aside", n)
	}

	delete(c.world.away, queue)
	c.refuses = func(*kgo.Record) error { return nil }
	c.plays(1)
	for _, id := range ids[2:] {
		o, err := c.state.Order(id)
		must(t, err)
		if charge := o.Step("charge"); charge.State != projections.Running || charge.Attempt != 1 || o.FailureCount > 0 {
			t.Errorf("order %s: %+v", id, charge)
		}
	}
	if !slices.Contains(c.world.took, queue) {
		t.Error("nobody hears that it is back")
	}
}

// What is refused by a topic that takes nothing from now on is not looked for.
func TestWhatWaitsIsNotSuspected(t *testing.T) {
	for away, most := range map[string]int{"": 1, "it refuses every record": 0} {
		l, world := newLane(t)
		here, _ := l.keys()
		must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", here, `{"workflow":"order"}`)}))
		l.begin()
		queue := l.topics.Requests("payment")
		world.away[queue] = away
		request := &kgo.Record{Topic: queue, Partition: l.partition, Key: []byte(here)}
		if l.conclude(&RefusedError{Record: request, Err: kerr.InvalidRecord}) == nil || l.halves.most != most || len(l.halves.suspects) != most {
			t.Errorf("away %q: it goes on with %+v", away, l.halves)
		}
	}
}

// What was refused before and after another batch was taken is held, and not before
// one was.
func TestHeldOnlyAfterAnother(t *testing.T) {
	now := time.Now()
	var h Halves
	a := []unit{ofDue("a")}
	refused := func(after time.Duration, orders ...string) string {
		now = now.Add(after)
		var units []unit
		for _, order := range orders {
			units = append(units, ofDue(order))
		}
		h.refused(units, now, kerr.InvalidRecord, false)
		why, _ := h.held(a[0])
		return why
	}
	refused(0, "a", "b", "c", "d")
	refused(0, "a", "b")
	if why := refused(0, "a"); why != "" || h.most != 1 {
		t.Errorf("at once: %q, %+v", why, h)
	}
	if why := refused(holdAfter, "a"); why != "" || !h.unproven(now) {
		t.Errorf("while nothing else was taken: %q", why)
	}
	h.committed(nil, now)
	if h.unproven(now) || h.most != 1 || h.Proofs != 1 {
		t.Errorf("after that: %+v", h)
	}
	if why := refused(0, "b"); why != "" {
		t.Errorf("when another was refused: %q", why)
	}
	if why := refused(0, "a"); why == "" {
		t.Errorf("it is not held")
	}
	if why := refused(0, "a"); why != "" {
		t.Errorf("though what holds it is refused, too: %q", why)
	}
	h.committed(a, now)
	if len(h.suspects) != 1 || h.Proofs != 1 {
		t.Errorf("it was taken: %+v", h)
	}
	h.committed(nil, now.Add(suspectedFor+1))
	if len(h.suspects) != 0 || h.most != 2 {
		t.Errorf("later: %+v", h)
	}
	var young Halves
	young.refused(a, now, kerr.InvalidRecord, false)
	young.committed(nil, now)
	young.refused(a, now.Add(holdAfter-1), kerr.InvalidRecord, false)
	if why, _ := young.held(a[0]); why != "" {
		t.Errorf("held too soon: %q", why)
	}
}

// A reply is held with its order, and so is an order of which something is due.
func TestWhatIsRefusedOfAnOrder(t *testing.T) {
	for _, name := range []string{"reply", "due"} {
		t.Run(name, func(t *testing.T) {
			c := newChoosy(t)
			c.cfg.SuperviseEvery = time.Second
			ids := c.submits(4)
			c.refuses = func(*kgo.Record) error { return nil }
			c.plays(1)
			want := events.StepCompleted
			if name == "reply" {
				for _, id := range ids {
					c.brings(c.topics.Replies, id, fmt.Sprintf(`{"order":%q,"step":"ship","attempt":1,"status":"completed"}`, id))
				}
			} else {
				c.now, want = c.now.Add(time.Hour), events.StepExpired
			}
			c.refuses = func(r *kgo.Record) error {
				if c.event(r, want, ids[1]) {
					return kerr.InvalidRecord
				}
				return nil
			}
			c.plays(40)
			for i, id := range ids {
				o, err := c.state.Order(id)
				must(t, err)
				if (o.Hold != nil) != (i == 1) || o.Hold != nil && !strings.Contains(o.Reason, kerr.InvalidRecord.Message) {
					t.Errorf("order %d: held %v, because %q", i, o.Hold, o.Reason)
				}
				if waits := len(o.Waiting) == 1; waits != (i == 1 && name == "reply") {
					t.Errorf("of order %d wait %d", i, len(o.Waiting))
				}
				if ship := o.Step("ship"); i != 1 && ship.State == projections.Running && ship.Attempt == 1 {
					t.Errorf("order %d did not go on", i)
				}
			}
			if len(c.letters()) != 0 {
				t.Errorf("put aside: %+v", c.letters())
			}
			if name == "due" {
				return
			}
			// Who releases it hears why it cannot go on, and it goes on as soon as it can.
			release := func(id string) *projections.Order {
				c.brings(c.topics.Commands, ids[1], fmt.Sprintf(`{"command":"release","id":%q}`, id))
				c.plays(40)
				o, err := c.state.Order(ids[1])
				must(t, err)
				return o
			}
			if o := release("c-1"); o.Hold == nil || o.Command != "c-1" || !strings.Contains(o.Refusal, kerr.InvalidRecord.Message) {
				t.Errorf("released while Kafka refuses what follows: %v, %s %q", o.Hold, o.Command, o.Refusal)
			}
			c.refuses = func(*kgo.Record) error { return nil }
			if o := release("c-2"); o.Hold != nil || len(o.Waiting) != 0 || o.Command != "c-2" || o.Refusal != "" {
				t.Errorf("then: %v, %d wait, %s %q", o.Hold, len(o.Waiting), o.Command, o.Refusal)
			}
		})
	}
}

// Of an input whose dead letter is refused only the place is put aside, and of what
// cannot be forwarded the whole.
func TestADeadLetterIsRefused(t *testing.T) {
	c := newChoosy(t)
	_, elsewhere := c.keys()
	c.brings(c.topics.Orders, elsewhere, "poison")
	c.brings(c.topics.Orders, elsewhere, "good")
	c.brings(c.topics.Replies, "\xff", "poison")
	c.brings(c.topics.Replies, elsewhere, "forward")
	c.refuses = func(r *kgo.Record) error {
		if string(r.Value) == "poison" || string(r.Value) == "forward" && r.Topic == c.topics.Replies {
			return kerr.InvalidRecord
		}
		return nil
	}
	c.plays(80)
	var got []string
	for _, r := range c.written {
		if r.Topic != c.topics.Journal {
			got = append(got, fmt.Sprintf("%s %q of %s", r.Topic, r.Value, headerText(r, "waybill_source")))
		}
	}
	slices.Sort(got)
	if want := []string{
		`waybill.dead-letters "" of waybill.orders/5/0`, `waybill.dead-letters "" of waybill.replies/5/0`,
		`waybill.dead-letters "forward" of waybill.replies/5/1`, `waybill.orders "good" of `,
	}; !slices.Equal(got, want) {
		t.Errorf("written: %q", got)
	}
}

// A batch that may have one input has one, also beside commands that waited.
func TestABatchOfOne(t *testing.T) {
	l, _ := newLane(t)
	l.inputs, l.broker, l.halves.most = &adding{}, ending{at: 8}, 1
	here, _ := l.keys()
	command, order := typed(l.topics.Commands, "", here, `{"command":"pause"}`), typed(l.topics.Orders, "", here, `{"workflow":"order"}`)
	must(t, l.decide([]*kgo.Record{command, order}))
	if want := []unit{{topic: l.topics.Orders, partition: 5, offset: 7}}; !slices.Equal(l.current.units, want) {
		t.Errorf("it has %+v", l.current.units)
	}
	l.commits(t)
	must(t, l.supervise())
	if want := []unit{{topic: l.topics.Commands, partition: 5, offset: 7}}; !slices.Equal(l.current.units, want) {
		t.Errorf("then it has %+v", l.current.units)
	}
}

// Only what is about the record narrows: else an outage would have every input tried
// alone.
func TestWhatIsDefinite(t *testing.T) {
	for _, err := range []error{kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.CorruptMessage, kerr.PolicyViolation} {
		if !definite(fmt.Errorf("produce: %w", err)) {
			t.Errorf("%v says nothing of the record", err)
		}
	}
	l, _ := newLane(t)
	here, _ := l.keys()
	for _, err := range []error{
		kerr.RequestTimedOut, kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable,
		kerr.NotEnoughReplicas, kerr.TopicAuthorizationFailed, context.DeadlineExceeded, ErrLate,
	} {
		must(t, l.decide([]*kgo.Record{typed(l.topics.Orders, "", here, `{"workflow":"order"}`)}))
		l.begin()
		if l.conclude(&RefusedError{Record: l.inflight.records[0], Err: err}) == nil || l.halves.most != 0 || len(l.halves.suspects) != 0 {
			t.Errorf("%v has it go on with %+v", err, l.halves)
		}
		l.inflight = nil
	}
}

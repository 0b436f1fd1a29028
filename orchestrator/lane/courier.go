package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// courier gives callers' own topics the status messages that they are owed, behind the
// commit of the events from which these follow: such a topic may be away, slow or
// wrong, and a transaction that touched it would stand or fall with it (P1). What is
// owed stands in the state store, which is folded from the journal, so a topic that is
// away takes no memory, and whoever owns the partition next goes on. The journal says
// up to where each topic has what it is owed; it is told a moment later, so after a
// crash a topic may be given the same once more: at least once, with the same id, and
// for the first time in order. Topics of users' it gives events of theirs in the same way,
// as [emission] says.
type courier struct {
	targets   map[destination]*target // that are owed something
	past      map[string]*target      // that are owed no events of users' now
	came      []*target               // of which is to be decided what came of their last delivery
	failing   int                     // deliveries that are under way to those that failed
	look      []destination           // of which there may be something to give
	retry     []destination           // the same, of those that failed
	unflushed bool                    // what is owed is not all in the store yet
	// Only what is before confirmed was read in the journal. Of the transactions behind
	// it that owe something, unconfirmed are the last records.
	confirmed   int64
	unconfirmed []unconfirmed
	confirming  bool
	// Of what was owed before inherited the namespace's topic may have some: releases that
	// knew no layout 17 left that in the store.
	inherited int64
	// delivered is what the journal is to be told, since the timer said so.
	delivered map[string]int64
	since     time.Time
}

type unconfirmed struct {
	last     int64
	topics   []destination
	released []string // topics that are owed again what they were before
}

// destination is a topic of others', for status messages or for events of users'. What one has of
// either holds up nothing of the other.
type destination struct {
	topic string
	emits bool
}

// target is a caller's own topic, or one that is given events of users'.
type target struct {
	destination
	next   int64 // offset in the journal; what is before is delivered or refused, or is left behind
	window int   // so many messages at a time
	busy   bool
	looked bool // it is among those to look at
	// came is what came of the last delivery of events of users', and decided of how many of them that
	// was decided on.
	came    *Happened
	decided int
	left    leftBehind
	oldest  time.Time // message that it is owed, as far as it was looked at

	failures int       // in a row
	failing  time.Time // since when, by the timer
	failed   time.Time // last, by the timer
	again    time.Time // not before, by the timer
	why      string    // of the last failure
	doubt    UndeliverableError
	doubted  time.Time // when Kafka said that first, by the timer
	refused  time.Time // by the timer: until then that is so
}

const (
	// deliveredAtOnce is how many messages a topic is given at a time.
	deliveredAtOnce = 64
	// So many deliveries are under way in an instance, to topics that take them and to
	// topics that failed, and of the latter at least one of each lane: what they have in
	// memory is bounded, and those that are away take no room from others.
	deliveries, failingDeliveries = 64, 16
	// deliveredEvery is for how long the journal is not told of deliveries if there is
	// nothing else to commit.
	deliveredEvery = time.Second
	// DeliveryTimeout is how long a delivery may take.
	DeliveryTimeout = 10 * time.Second
	// A topic that takes nothing is tried again after a second, then after twice as
	// long each time, up to this.
	deliveryPause = 30 * time.Second
	// refusalProof is by how much later Kafka must refuse a message once more before that
	// is believed, and refusalLasts for how long it is then.
	refusalProof, refusalLasts = 5 * time.Second, time.Minute
	// patienceProof is for how long this owner itself must have failed, before the age
	// of a message counts: nobody may have tried before.
	patienceProof = time.Hour
	// How long an event of a user's waits is short, and nobody else takes it: a topic that takes none is
	// tried again after eventPause at the latest, and given eventsAtOnce.
	eventPause, eventsAtOnce = 2 * time.Second, 256
	// failureProof is for how long after it failed a topic counts as one that takes nothing.
	// By then it was looked at: after its pause, at the next tick.
	failureProof = time.Minute
)

// Delivery is what a caller's own topic, or another of users', is to be given.
type Delivery struct {
	Topic   string
	Records []*kgo.Record
	ends    []int64    // behind the event of each, in the journal; of status messages
	emitted []emission // whose each is, of events of users'

	under *atomic.Int64 // way, as one of these
}

// Deliveries counts those that are under way.
type Deliveries struct{ fine, failing atomic.Int64 }

// room says how deliveries to a topic are counted, and whether there is room for one: to
// one that failed there is if its lane has no other under way, whatever the others have.
func (d *Deliveries) room(t *target, others int) (*atomic.Int64, bool) {
	if t.failures > 0 {
		return &d.failing, others == 0 || d.failing.Load() < failingDeliveries
	}
	return &d.fine, d.fine.Load() < deliveries
}

// UndeliverableError says that Kafka does not take a message for what it is or where it
// goes: the same one would be refused again.
type UndeliverableError struct {
	Reason string
	// Message says that it is for what the message is, so that the next may be taken, and
	// Batch that it was among others: then it may be taken alone.
	Message, Batch bool
}

func (e *UndeliverableError) Error() string { return e.Reason }

// Deliver writes what a topic is owed. It runs beside the lane.
func (l *Lane) Deliver(ctx context.Context, d *Delivery) Happened {
	defer d.under.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, DeliveryTimeout)
	defer cancel()
	h := Happened{What: Delivered, Topic: d.Topic, emitted: d.emitted, untaken: l.broker.Deliver(ctx, d.Records)}
	for _, err := range h.untaken {
		switch {
		case err == nil && (h.Err == nil || d.emitted != nil):
			h.taken++
		case h.Err == nil:
			h.Err = err
		}
	}
	if h.untaken == nil {
		h.taken = len(d.Records)
	}
	if h.taken > 0 && d.emitted == nil {
		h.End = d.ends[h.taken-1]
	}
	return h
}

// ErrUndone says that a transaction is not in the journal that Kafka had acknowledged.
var ErrUndone = errors.New("a transaction that was acknowledged is not in the journal")

// Confirm reads the last records of transactions in the journal. It runs beside the
// lane. Kafka may acknowledge a commit, and leave it hanging: if the partition gets
// another owner then, that one ends it as an abort, and what follows from it was never
// so. Requests and other messages of the transaction go with it; what is delivered
// behind the commit would not.
func (l *Lane) Confirm(ctx context.Context, last []int64) Happened {
	h := Happened{What: Confirmed}
	if l.journal == nil {
		if l.journal, h.Err = l.broker.Read(l.partition, true); h.Err != nil {
			return h
		}
	}
	l.journal.Seek(map[string]int64{l.topics.Journal: last[0]})
	defer l.journal.Seek(nil)
	for len(last) > 0 {
		fetches := l.journal.Poll(ctx, PollRecords)
		if h.Err = errors.Join(fetches.Err(), ctx.Err()); h.Err != nil {
			return h
		}
		for _, r := range fetches.Records() {
			switch {
			case len(last) == 0 || r.Offset < last[0]:
			case r.Offset == last[0]:
				last, h.End = last[1:], r.Offset+1
			default:
				h.Err = fmt.Errorf("%w: that which ends at %d", ErrUndone, last[0])
				return h
			}
		}
	}
	return h
}

// confirm has the journal read, if something is owed by what was not read yet.
func (l *Lane) confirm(b Beside) {
	c := &l.courier
	if c.confirming || len(c.unconfirmed) == 0 {
		return
	}
	c.confirming = true
	last := make([]int64, len(c.unconfirmed))
	for i := range last {
		last[i] = c.unconfirmed[i].last
	}
	b.Confirm(last)
}

// isConfirmed takes what was read.
func (l *Lane) isConfirmed(h Happened) error {
	c := &l.courier
	c.confirming = false
	if h.Err != nil {
		return h.Err
	}
	if c.unflushed {
		if err := l.flush(); err != nil {
			return err
		}
	}
	for c.confirmed = h.End; len(c.unconfirmed) > 0 && c.unconfirmed[0].last < h.End; c.unconfirmed = c.unconfirmed[1:] {
		for _, topic := range c.unconfirmed[0].topics {
			l.owes(topic)
		}
		for _, topic := range c.unconfirmed[0].released {
			t := c.targets[destination{topic, true}]
			t.left.adds(0)
			t.left.again = time.Time{}
		}
	}
	return nil
}

// owing finds what is owed from before the takeover.
func (l *Lane) owing() error {
	head := l.state.Head().Offset
	l.courier = courier{targets: make(map[destination]*target), past: make(map[string]*target), confirmed: head, inherited: head}
	for _, emits := range []bool{false, true} {
		next := l.state.Owing
		if emits {
			next = l.state.EmittingTo
		}
		for topic := ""; ; {
			var err error
			if topic, err = next(topic); err != nil {
				return err
			}
			if topic == "" {
				break
			}
			l.owes(destination{topic, emits})
		}
	}
	return nil
}

// owes has a topic looked at, if it did not fail: then it is as its turn comes. One that
// was owed nothing for a moment goes on where it was, though the journal, or the store,
// may not know of that yet.
func (l *Lane) owes(to destination) {
	c := &l.courier
	switch t := c.targets[to]; {
	case t != nil:
	case to.emits:
		c.targets[to] = l.emitsTo(to)
	default:
		t = &target{destination: to, window: deliveredAtOnce, next: max(c.delivered[to.topic], l.current.delivered[to.topic])}
		if l.inflight != nil {
			t.next = max(t.next, l.inflight.delivered[to.topic])
		}
		c.targets[to] = t
	}
	if c.targets[to].failures == 0 {
		c.looks(c.targets[to])
	}
}

// looks has a target looked at.
func (c *courier) looks(t *target) {
	switch {
	case t.looked:
		return
	case t.failures > 0:
		c.retry = append(c.retry, t.destination)
	default:
		c.look = append(c.look, t.destination)
	}
	t.looked = true
}

// owe keeps what a batch owes that was committed.
func (l *Lane) owe(b *Batch) error {
	for order, topic := range b.diverted {
		if err := l.state.Divert(order, topic); err != nil {
			return err
		}
	}
	if len(b.owed)+len(b.emits) == 0 {
		return nil
	}
	u := unconfirmed{last: b.last.Offset}
	for i := range b.owed {
		o := &b.owed[i]
		o.Offset = o.event.Offset
		l.state.Owe(o.Owed)
		if to := (destination{topic: o.Topic}); !slices.Contains(u.topics, to) {
			u.topics = append(u.topics, to)
		}
	}
	for topic, released := range b.emits {
		u.topics = append(u.topics, destination{topic, true})
		if released {
			u.released = append(u.released, topic)
		}
	}
	l.courier.unflushed = true
	l.courier.unconfirmed = append(l.courier.unconfirmed, u)
	return nil
}

// deliver begins to give topics what they are owed. Those that failed first: they are no more
// than there may be room for. One that failed since it stands among the others leaves them: for
// it there may be no room where there is some for those behind.
func (l *Lane) deliver(b Beside) error {
	c := &l.courier
	if err := l.decideCame(); err != nil {
		return err
	}
	retry, look := c.retry, c.look
	c.retry, c.look = nil, nil
	for i, to := range retry {
		if l.current.full() { // of what was refused
			c.retry = append(c.retry, retry[i:]...)
			break
		}
		if err := l.give(b, c.targets[to]); err != nil {
			return err
		}
	}
	for i, to := range look {
		t := c.targets[to]
		if t.failures > 0 {
			t.looked = false
			c.looks(t)
			continue
		}
		_, room := l.cfg.Deliveries.room(t, c.failing)
		if l.current.full() || !room {
			c.look = append(look[i:], c.look...)
			break
		}
		if err := l.give(b, t); err != nil {
			return err
		}
	}
	return nil
}

// give begins to give a topic what it is owed, if there is room for that.
func (l *Lane) give(b Beside, t *target) error {
	c := &l.courier
	t.looked = false
	if t.busy || l.time.Timer().Before(t.again) {
		return nil
	}
	under, room := l.cfg.Deliveries.room(t, c.failing)
	if !room && l.undeliverable(t) == "" {
		return nil // it is looked at again in a while
	}
	if t.emits {
		return l.emit(b, t, under, room)
	}
	owed, err := l.owed(t.topic, t)
	if err != nil {
		return err
	}
	if len(owed) == 0 {
		delete(c.targets, t.destination)
		return nil
	}
	t.oldest = owed[0].Time
	why := l.undeliverable(t)
	if why == "" {
		if !room { // it was another message that waited for too long
			return nil
		}
		l.sends(b, t, l.delivery(t.topic, owed), under)
		return nil
	}
	if !l.deciding(owed[0].Order) {
		if err := l.refuse(t.topic, t, &owed[0], why); err != nil {
			return err
		}
	}
	c.looks(t)
	return nil
}

// sends begins a delivery, which is counted under what says under.
func (l *Lane) sends(b Beside, t *target, d *Delivery, under *atomic.Int64) {
	if t.failures > 0 {
		l.courier.failing++
	}
	t.busy = true
	under.Add(1)
	d.under = under
	l.stamp(d.Records)
	b.Deliver(d)
}

// owed is the next of what a topic is owed, without what is diverted.
func (l *Lane) owed(topic string, t *target) ([]projections.Owed, error) {
	c := &l.courier
	for {
		owed, err := l.state.Owed(topic, t.next, c.confirmed, t.window)
		if len(owed) == 0 || err != nil {
			return nil, err
		}
		left, err := l.undiverted(topic, owed)
		if len(left) > 0 || err != nil {
			return left, err
		}
		t.next = owed[len(owed)-1].Offset + 1
		c.settled(topic, t.next, l.time.Timer())
	}
}

// undiverted leaves out what the namespace's topic has instead, as far as that is not gone from
// the store: the transaction is not committed yet, or another release folded it.
func (l *Lane) undiverted(topic string, owed []projections.Owed) ([]projections.Owed, error) {
	left := owed[:0]
	for i := range owed {
		o := &owed[i]
		diverted := l.current.diverted[o.Order] == topic || l.inflight != nil && l.inflight.diverted[o.Order] == topic
		if !diverted && o.Offset < l.courier.inherited {
			order, err := l.order(o.Order)
			if err != nil {
				return nil, err
			}
			diverted = order != nil && !order.Forgotten && order.ReplyTo != topic
		}
		if !diverted || o.Anothers() {
			left = append(left, owed[i])
		}
	}
	return left, nil
}

// delivery makes records of what is owed. None is of an order of which one before it
// may fail: an order's messages are delivered in turn.
func (l *Lane) delivery(topic string, owed []projections.Owed) *Delivery {
	d := &Delivery{Topic: topic}
	orders := make(map[string]bool, len(owed))
	for i := range owed {
		o := &owed[i]
		if orders[o.Order] {
			break
		}
		orders[o.Order] = true
		d.Records = append(d.Records, l.status(topic, o))
		d.ends = append(d.ends, o.Offset+1)
	}
	return d
}

func (l *Lane) status(topic string, o *projections.Owed) *kgo.Record {
	envelope := events.Envelope{
		Source: l.topics.Source(), Type: events.OrderStatus,
		ID: o.ID, Order: o.Order, Time: o.Time, Traceparent: o.Traceparent,
	}
	r := envelope.Record(topic, o.Value)
	r.Partition = l.partition // on Waybill's own topic
	return r
}

// delivered takes the outcome of a delivery.
func (l *Lane) delivered(h Happened) error {
	c := &l.courier
	t := c.targets[destination{h.Topic, h.emitted != nil}]
	if t.emits {
		t.came = &h
		c.came = append(c.came, t)
		return l.decideCame()
	}
	l.over(t, &h, h.Err, false)
	return nil
}

// over notes that a delivery is over, what is wrong with the topic, and whether it may take others.
func (l *Lane) over(t *target, h *Happened, wrong error, others bool) {
	c := &l.courier
	if t.busy = false; t.failures > 0 {
		c.failing--
	}
	if h.taken > 0 && (t.emits || h.End > t.next) {
		if t.failures > 0 && h.Err == nil {
			l.log.Info("a topic takes again what it is owed", "topic", t.topic, "emitted", t.emits)
		}
		if t.failures > 0 {
			t.left.again = time.Time{}
		}
		t.failures, t.doubt, t.why, t.window = 0, UndeliverableError{}, "", min(2*t.window, t.most())
		if !t.emits {
			t.next = h.End
			c.settled(t.topic, t.next, l.time.Timer())
		}
	}
	if wrong != nil {
		l.failed(t, wrong, others)
	}
	c.looks(t)
}

// failed: a topic that does not take a message is tried again, with one, unless it may take others.
func (l *Lane) failed(t *target, err error, others bool) {
	now := l.time.Timer()
	t.why, t.failed = err.Error(), now
	refused, ok := errors.AsType[*UndeliverableError](err)
	if others && (!ok || !refused.Batch) {
		return
	}
	if t.window = 1; ok && refused.Batch {
		return // alone it may be taken
	}
	pause, lasts := deliveryPause, refusalLasts
	if t.emits {
		pause, lasts = eventPause, refusalProof
	}
	if t.failures++; t.failures == 1 {
		t.failing = now
		l.log.Warn("a topic does not take what it is owed, which waits", "topic", t.topic, "emitted", t.emits, "error", err)
	}
	t.again = now.Add(min(time.Second<<min(t.failures-1, 10), pause))
	switch {
	case !ok:
		t.doubt = UndeliverableError{}
	case t.doubt != *refused:
		t.doubt, t.doubted = *refused, now
	case now.Sub(t.doubted) > refusalProof:
		t.refused, t.again = now.Add(lasts), now
	}
}

// undeliverable says why a topic will not take the first message that it is owed, ""
// if it may: Kafka refused it, with proof, or it has waited for longer than it may, and
// the topic failed just now. Of one that was not tried since nothing is known. How long
// an event of a user's waits is its step's affair.
func (l *Lane) undeliverable(t *target) string {
	now, patience := l.time.Timer(), l.cfg.StatusPatience
	if now.Before(t.refused) {
		return t.doubt.Reason
	}
	failing, tried := now.Sub(t.failing), now.Sub(t.failed) <= failureProof+l.cfg.SuperviseEvery
	if !t.emits && t.failures > 0 && tried && failing >= min(patience, patienceProof) && l.believed() && l.time.Wall().Sub(t.oldest) >= patience {
		return fmt.Sprintf("it took nothing for %s, and the message waits for more than %s: %s", failing.Round(time.Second), patience, t.why)
	}
	return ""
}

// deciding says whether an order has events that are not in the journal, as far as the
// lane knows: then it may be owed more than the store says.
func (l *Lane) deciding(order string) bool {
	return l.current.orders[order] != nil || l.inflight != nil && l.inflight.orders[order] != nil
}

// refuse gives a message to the namespace's topic that its own does not take, and with it
// what else the order is owed there: whatever follows is of the transaction in which it
// is decided, and would come before.
func (l *Lane) refuse(topic string, t *target, o *projections.Owed, why string) error {
	c := &l.courier
	if c.unflushed {
		if err := l.flush(); err != nil {
			return err
		}
	}
	order, err := l.order(o.Order)
	if err != nil {
		return err
	}
	l.current.add(l.status(l.topics.Status, o))
	if d := decide.Undelivered(l.env(), order, topic, why); d.Order != nil {
		l.take(d)
		rest, err := l.state.OwedFor(o.Order, topic, o.Offset+1)
		if err != nil {
			return err
		}
		for i := range rest {
			if !rest[i].Anothers() {
				l.current.add(l.status(l.topics.Status, &rest[i]))
			}
		}
		l.current.diverted[o.Order] = topic
	}
	t.next = o.Offset + 1
	c.settled(topic, t.next, l.time.Timer())
	if t.doubt.Message { // the next is another
		t.doubt, t.refused = UndeliverableError{}, time.Time{}
	}
	return nil
}

// settled notes for the journal up to where a topic has what it was owed.
func (c *courier) settled(topic string, next int64, now time.Time) {
	if c.delivered == nil {
		c.delivered, c.since = make(map[string]int64), now
	}
	c.delivered[topic] = next
}

// tell puts into the batch what was delivered, if there is a batch, or it is time.
func (l *Lane) tell(now bool) {
	c := &l.courier
	if c.delivered == nil || !now && l.current.empty() && !l.tells() {
		return
	}
	e := events.Event{Type: events.PartitionDelivered, At: l.time.Wall(), Delivered: c.delivered}
	l.current.add(l.laneEvent(&e, fmt.Sprintf("delivered/%d", l.transaction+1)))
	l.current.delivered, c.delivered = c.delivered, nil
}

// tells says whether it is time for a batch that tells of nothing else.
func (l *Lane) tells() bool {
	c := &l.courier
	return c.delivered != nil && l.time.Timer().Sub(c.since) >= deliveredEvery
}

// again has all topics looked at that wait and did not fail, those that are refused now, and of
// the others so many as there may be room for: first those whose time came first, so that each
// has its turn.
func (l *Lane) again() {
	c, now := &l.courier, l.time.Timer()
	var due, failed []*target
	for _, t := range c.targets {
		switch {
		case t.busy || t.looked || now.Before(t.again):
		case t.failures > 0 && l.undeliverable(t) == "":
			failed = append(failed, t)
		default:
			due = append(due, t)
		}
	}
	soonest := func(a, b *target) int {
		return cmp.Or(a.again.Compare(b.again), cmp.Compare(a.topic, b.topic), cmp.Compare(bit(a.emits), bit(b.emits)))
	}
	slices.SortFunc(failed, soonest)
	due = append(due, failed[:min(len(failed), failingDeliveries)]...)
	slices.SortFunc(due, soonest)
	for _, t := range due {
		c.looks(t)
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// busy says whether callers are owed something, or the journal does not know yet that
// they have it.
func (c *courier) busy() bool { return len(c.targets)+len(c.unconfirmed)+len(c.delivered) > 0 }

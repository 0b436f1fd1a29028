package lane

import (
	"context"
	"errors"
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

// round is a lane whose courier is looked at: what it is to deliver, and what it has
// committed.
type round struct {
	*testing.T
	*Lane
	store       *projections.Store
	wall, timer time.Time
	end         int64 // of the journal
	orders      int
	deliveries  []*Delivery
	confirms    []int64
	committed   []*kgo.Record // by the last batch
}

func (r *round) Commit(*Batch)         {}
func (r *round) Ask()                  {}
func (r *round) Next(Wanted) Happened  { panic("nobody waits") }
func (r *round) Confirm(last []int64)  { r.confirms = last }
func (*round) AskOrders()              {}
func (*round) Turn() bool              { return true }
func (r *round) Deliver(d *Delivery)   { r.deliveries = append(r.deliveries, d) }
func (r *round) pass(d time.Duration)  { r.wall, r.timer = r.wall.Add(d), r.timer.Add(d) }
func (r *round) owes(to string, n int) { r.Helper(); r.decides(to, n); r.commits(); r.confirmed() }

func newRound(t *testing.T) *round {
	t.Helper()
	l, w := newLane(t)
	r := &round{T: t, Lane: l, store: w.store, wall: events.Time(time.Now()), timer: time.Now()}
	l.time.Wall, l.time.Timer = func() time.Time { return r.wall }, func() time.Time { return r.timer }
	l.format, l.cfg.StatusPatience = events.CourierFormat, 24*time.Hour
	return r
}

// decides takes n submissions that name a topic. Each is rejected, or it is accepted
// and its caller hears of that.
func (r *round) decides(to string, n int) (orders []string) {
	r.Helper()
	for range n {
		r.orders++
		order := fmt.Sprintf("o-%03d", r.orders)
		r.take(decide.Submit(r.env(), nil, &decide.Input{Record: new(decide.Record), Order: order, Submission: events.Submission{Workflow: "order", ReplyTo: to}}))
		orders = append(orders, order)
	}
	return orders
}

func (r *round) commits() {
	r.Helper()
	if r.committing() {
		must(r.T, r.conclude(nil))
	}
}

// committing has the journal take what was decided; the lane has not heard of that.
func (r *round) committing() bool {
	r.Helper()
	r.committed = nil
	if !r.begin() {
		return false
	}
	for _, record := range r.inflight.records {
		if record.Topic == r.topics.Journal {
			record.Offset, r.end = r.end, r.end+1
		}
	}
	r.end++
	r.committed = r.inflight.records
	return true
}

// confirmed has the journal read, and looks what is to be delivered.
func (r *round) confirmed() {
	r.Helper()
	r.confirm(r)
	if len(r.confirms) > 0 {
		must(r.T, r.isConfirmed(Happened{What: Confirmed, End: r.confirms[len(r.confirms)-1] + 1}))
		r.confirms = nil
	}
	must(r.T, r.deliver(r))
}

// ends is how the next delivery to a topic ends, after some of it was taken.
func (r *round) ends(topic string, taken int, err error) {
	r.Helper()
	i := slices.IndexFunc(r.deliveries, func(d *Delivery) bool { return d.Topic == topic })
	if i < 0 {
		r.Fatalf("nothing is delivered to %s", topic)
	}
	d := r.deliveries[i]
	r.deliveries = slices.Delete(r.deliveries, i, i+1)
	r.broker = takes{taken: taken, err: err}
	must(r.T, r.delivered(r.Lane.Deliver(r.Context(), d)))
	must(r.T, r.deliver(r))
}

// takes is how a delivery ends.
type takes struct {
	Broker
	taken int
	err   error
}

func (b takes) Deliver(_ context.Context, records []*kgo.Record) []error {
	untaken := make([]error, len(records))
	for i := range records[b.taken:] {
		untaken[b.taken+i] = b.err
	}
	return untaken
}

// tries has time pass, and the courier look again.
func (r *round) tries(after time.Duration) {
	r.Helper()
	r.pass(after)
	r.again()
	must(r.T, r.deliver(r))
}

// carries wants that so much is on its way, by topic: how many messages.
func (r *round) carries(what string, want map[string]int) {
	r.Helper()
	have := make(map[string]int)
	for _, d := range r.deliveries {
		have[d.Topic] += len(d.Records)
	}
	if fmt.Sprint(have) != fmt.Sprint(want) {
		r.Errorf("%s: it carries %v, and not %v", what, have, want)
	}
}

// written are the values that the last batch wrote to a topic, or of a type there.
func (r *round) written(topic string, kind events.Type) (values []string) {
	for _, record := range r.committed {
		if record.Topic == topic && headerText(record, events.HeaderType) == string(kind) {
			values = append(values, string(record.Value))
		}
	}
	return values
}

var errAway = errors.New("the broker does not answer")

// P1: a status message for a caller's own topic leaves behind the commit, once the
// journal was read; then the journal is told. In format 1 it is in the transaction.
func TestStatusMessagesLeaveBehindTheCommit(t *testing.T) {
	r := newRound(t)
	orders := r.decides("shop.status", 2)
	r.commits()
	if got := r.written("shop.status", events.OrderStatus); len(got) > 0 {
		t.Errorf("the transaction has %s", got)
	}
	must(t, r.deliver(r))
	r.carries("before the journal was read", nil)
	r.confirmed()
	r.carries("then", map[string]int{"shop.status": 2})
	for i, m := range r.deliveries[0].Records {
		if string(m.Key) != orders[i] || headerText(m, "ce_id") != orders[i]+"/1/status" || headerText(m, "ce_source") != "/waybill/waybill" ||
			headerText(m, events.HeaderType) != string(events.OrderStatus) || !strings.Contains(string(m.Value), `"received"`) {
			t.Errorf("%+v", m)
		}
	}
	r.commits()
	if len(r.committed) > 0 {
		t.Error("the journal is told before anything is delivered")
	}
	r.ends("shop.status", 2, nil)
	r.commits()
	if len(r.committed) > 0 {
		t.Error("for each delivery there is a transaction")
	}
	r.pass(deliveredEvery)
	r.commits()
	if got := r.written(r.topics.Journal, events.PartitionDelivered); len(got) != 1 || !strings.Contains(got[0], `"delivered":{"shop.status":5}`) {
		t.Errorf("the journal is told %s", got)
	}
	if topic, err := r.state.Owing(""); r.courier.busy() || topic != "" || err != nil {
		t.Errorf("something is left for %q: %v", topic, err)
	}

	r = newRound(t)
	r.format = 1
	r.decides("shop.status", 1)
	r.commits()
	if got := r.written("shop.status", events.OrderStatus); len(got) != 1 {
		t.Errorf("in format 1 the transaction has %d", len(got))
	}
	if r.confirmed(); len(r.deliveries) > 0 {
		t.Error("in format 1 it is delivered once more")
	}
}

// Without a crash or a takeover a message is delivered once, whenever the next comes: the
// topic is owed nothing meanwhile, and neither the journal nor the store knows yet that
// it has the first.
func TestNothingIsDeliveredTwiceByOneOwner(t *testing.T) {
	for _, test := range []struct {
		name  string
		moves func(*round) // between the first delivery and the next
	}{
		{"it was told to nobody", func(*round) {}},
		{"it is to be committed", func(r *round) { r.tell(true) }},
		{"it is being committed", func(r *round) { r.tell(true); r.committing() }},
		{"it was committed, and is not in the store", func(r *round) {
			r.tell(true)
			r.committing()
			r.decides("", 1) // so it is busy
			r.flushing.at = r.timer
			must(t, r.conclude(nil))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRound(t)
			r.owes("shop.status", 1)
			r.decides("shop.status", 1)
			r.commits()
			r.ends("shop.status", 1, nil)
			test.moves(r)
			r.confirmed()
			r.carries("the next alone", map[string]int{"shop.status": 1})
			if key := string(r.deliveries[0].Records[0].Key); key != "o-002" {
				t.Errorf("it gives that of %s", key)
			}
		})
	}
}

// A topic that takes nothing is tried again, with one message, after longer and longer,
// and holds up no other.
func TestATopicThatTakesNothingHoldsUpNoOther(t *testing.T) {
	r := newRound(t)
	r.owes("shop.dead", 3)
	r.owes("shop.fine", 2)
	r.carries("both", map[string]int{"shop.dead": 3, "shop.fine": 2})
	r.ends("shop.fine", 2, nil)
	r.ends("shop.dead", 0, errAway)
	r.owes("shop.fine", 1)
	r.carries("meanwhile", map[string]int{"shop.fine": 1})
	r.ends("shop.fine", 1, nil)
	for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, deliveryPause, deliveryPause} {
		r.tries(pause - 1)
		r.carries("too soon", nil)
		r.tries(1)
		r.carries("it is tried again", map[string]int{"shop.dead": 1})
		r.ends("shop.dead", 0, errAway)
	}
	r.tries(deliveryPause)
	r.ends("shop.dead", 1, nil)
	r.carries("it is back", map[string]int{"shop.dead": 2})
	r.ends("shop.dead", 2, nil)
	r.pass(deliveredEvery)
	r.commits()
	if got := r.written(r.topics.Journal, events.PartitionDelivered); len(got) != 1 || !strings.Contains(got[0], `"shop.dead":`) {
		t.Errorf("the journal is told %s", got)
	}
	if r.courier.busy() {
		t.Errorf("something is left: %+v", r.courier)
	}
}

// What was taken of a delivery is not given again, and an order's messages are given one
// after the other, so that the first of each come in order.
func TestAnOrdersMessagesAreDeliveredInTurn(t *testing.T) {
	r := newRound(t)
	orders := r.decides("shop.status", 2)
	o, err := r.order(orders[0])
	must(t, err)
	r.take(decide.Operate(r.env(), o, &decide.Input{Command: &events.Command{Command: events.CommandCancel, ID: "c-1"}}))
	r.decides("shop.status", 1)
	r.commits()
	r.confirmed()
	r.carries("up to the order's next", map[string]int{"shop.status": 2})
	r.ends("shop.status", 1, errAway)
	r.tries(time.Second)
	r.carries("without what was taken", map[string]int{"shop.status": 1})
	if string(r.deliveries[0].Records[0].Key) != orders[1] {
		t.Errorf("it gives that of %s", r.deliveries[0].Records[0].Key)
	}
	r.ends("shop.status", 1, nil)
	r.carries("then the next", map[string]int{"shop.status": 2})
	if id := headerText(r.deliveries[0].Records[0], "ce_id"); !strings.HasPrefix(id, orders[0]+"/") {
		t.Errorf("it gives %s", id)
	}
}

// What Kafka refuses is refused only when it says so again, more than five seconds
// later; then the namespace's topic has it, and what follows.
func TestARefusedDeliveryNeedsProof(t *testing.T) {
	gone := &UndeliverableError{Reason: "topic shop.gone does not exist"}
	r := newRound(t)
	r.owes("shop.gone", 3)
	r.ends("shop.gone", 0, gone)
	r.tries(refusalProof - time.Second)
	r.ends("shop.gone", 0, gone)
	r.tries(time.Second) // it was said in less
	r.carries("nothing is sure", nil)
	r.tries(time.Second)
	r.ends("shop.gone", 0, errAway)
	r.tries(deliveryPause)
	r.ends("shop.gone", 0, gone)
	r.tries(deliveryPause)
	r.carries("something else was said in between", map[string]int{"shop.gone": 1})
	r.ends("shop.gone", 0, gone)
	for range 3 {
		r.commits()
		if refused, told := r.written(r.topics.Journal, events.StatusRefused), r.written(r.topics.Status, events.OrderStatus); len(refused) != 1 || len(told) != 1 ||
			!strings.Contains(refused[0], "does not exist") || len(r.written(r.topics.Journal, events.PartitionDelivered)) != 1 {
			t.Errorf("it is refused: %s; the namespace's topic has %s", refused, told)
		}
		must(t, r.deliver(r))
	}
	if r.courier.busy() {
		t.Errorf("something is left: %+v", r.courier)
	}
}

// On the namespace's topic an order's messages come in the order of its events, too: with
// the first that its own topic does not take goes all that it is owed there, and no part
// of it is ever delivered, not by the next owner either. What others are owed stays, as
// does the answer to another submission of the order's id.
func TestWhatIsRefusedKeepsItsOrder(t *testing.T) {
	gone := &UndeliverableError{Reason: "topic shop.gone does not exist"}
	ids := func(records []*kgo.Record, topic string) (ids []string) {
		for _, m := range records {
			if m.Topic == topic && headerText(m, events.HeaderType) == string(events.OrderStatus) {
				ids = append(ids, headerText(m, "ce_id"))
			}
		}
		return ids
	}
	var old owed // of the order's, as a release before has left it in the store
	for _, test := range []struct {
		name string
		next func(*round) // before the topic is there
	}{
		{"the same owner", func(*round) {}},
		{"the next owner", func(r *round) { must(t, r.flush()); must(t, r.owing()) }},
		{"an owner after an upgrade", func(r *round) {
			must(t, r.flush())
			left := old.Owed
			left.Offset = r.state.Head().Offset - 1
			r.state.Owe(left)
			must(t, r.flush())
			must(t, r.owing())
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRound(t)
			orders := r.decides("shop.gone", 1)
			old = r.current.owed[0]
			r.commits()
			r.confirmed()
			r.ends("shop.gone", 0, gone)
			first, err := r.order(orders[0])
			must(t, err)
			r.take(decide.Operate(r.env(), first, &decide.Input{Command: &events.Command{Command: events.CommandCancel, ID: "c-1"}}))
			orders = append(orders, r.decides("shop.gone", 1)...)
			r.commits()
			r.confirmed()
			first, err = r.order(orders[0])
			must(t, err)
			again := &decide.Input{Record: &decide.Record{Topic: r.topics.Orders}, Order: orders[0], Submission: events.Submission{Workflow: "another", ReplyTo: "shop.gone"}}
			r.take(decide.On(r.env(), first, again))
			r.tries(refusalProof + time.Second)
			r.ends("shop.gone", 0, gone)
			r.commits() // of the conflict
			if got := ids(r.committed, r.topics.Status); len(got) > 0 {
				t.Errorf("while it is decided on the order, %q are given away", got)
			}
			must(t, r.deliver(r))
			r.commits()
			if got, refused := ids(r.committed, r.topics.Status), r.written(r.topics.Journal, events.StatusRefused); fmt.Sprint(got) != "[o-001/1/status o-001/5/status]" || len(refused) != 1 {
				t.Errorf("the namespace's topic has %q; refused is %s", got, refused)
			}
			r.pass(refusalLasts)
			test.next(r)
			var delivered []string
			for r.confirmed(); len(r.deliveries) > 0; r.tries(time.Second) {
				delivered = append(delivered, ids(r.deliveries[0].Records, "shop.gone")...)
				r.ends("shop.gone", len(r.deliveries[0].Records), nil)
			}
			r.commits()
			if got := ids(r.committed, r.topics.Status); fmt.Sprint(delivered) != "[o-002/1/status o-001/6/status]" || len(got) > 0 {
				t.Errorf("it delivers %q, and gives away %q", delivered, got)
			}
			if r.courier.busy() {
				t.Errorf("something is left: %+v", r.courier)
			}
		})
	}
}

// P1: what the namespace's topic has instead of its own is told nowhere again, whenever the order is forgotten.
func TestWhatIsRefusedOfAForgottenOrder(t *testing.T) {
	gone := &UndeliverableError{Reason: "topic shop.gone does not exist"}
	forgets := func(r *round) {
		o, err := r.order("o-001")
		must(r.T, err)
		r.pass(time.Minute)
		r.take(decide.Supervise(r.env(), o, ""))
		if o, err = r.order("o-001"); err != nil || !o.Forgotten {
			r.Fatalf("it is %s, and not forgotten: %v", o.State, err)
		}
	}
	commits := func(r *round) { r.commits() }
	flushes := func(r *round) { must(r.T, r.flush()) }
	for name, then := range map[string][]func(*round){
		"at once": {forgets},
		"while that is committed": {func(r *round) {
			r.committing()
			forgets(r)
			r.again()
			must(r.T, r.deliver(r))
			must(r.T, r.conclude(nil))
		}},
		"behind it":                     {commits, forgets, commits},
		"when the store knows":          {commits, flushes, forgets, commits, flushes},
		"before there is another owner": {commits, forgets, commits, flushes, func(r *round) { must(r.T, r.owing()) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRound(t)
			r.format = events.KeepFormat
			r.world.(*still).flows.Add(parseFlow(t, "workflow: nap\nkeep: 1s\nsteps: [{name: sleeps, sleep: 1h}]"))
			told := make(map[string]int)
			r.take(decide.Submit(r.env(), nil, &decide.Input{Record: new(decide.Record), Order: "o-001", Submission: events.Submission{Workflow: "nap", ReplyTo: "shop.gone"}}))
			r.commits()
			o, err := r.order("o-001")
			must(t, err)
			r.take(decide.Operate(r.env(), o, &decide.Input{Command: &events.Command{Command: events.CommandCancel, ID: "c-1"}}))
			r.commits()
			r.confirmed()
			r.ends("shop.gone", 0, gone)
			r.tries(refusalProof + time.Second)
			r.ends("shop.gone", 0, gone)
			tell := func() {
				for _, m := range r.committed {
					if m.Topic == r.topics.Status {
						told[headerText(m, "ce_id")]++
					}
				}
				r.committed = nil
			}
			for _, does := range then {
				does(r)
				tell()
			}
			for range 3 {
				r.tries(time.Second)
				r.commits()
				tell()
			}
			if want := map[string]int{"o-001/1/status": 1, "o-001/3/status": 1, "o-001/4/status": 1}; !maps.Equal(told, want) || len(r.deliveries) > 0 {
				t.Errorf("the namespace's topic has %v, and %d deliveries are under way", told, len(r.deliveries))
			}
			must(t, r.flush())
			if topic, err := r.state.Owing(""); topic != "" || err != nil {
				t.Errorf("%q is owed something, %v", topic, err)
			}
		})
	}
}

// An answer to a signal is its sender's, also on a topic that the order's caller named: what the order is
// owed there goes to the namespace's topic without it, and it is no reason for what the order is owed
// elsewhere to go there.
func TestAnswersToSignalsAreNotDiverted(t *testing.T) {
	gone := &UndeliverableError{Reason: "it does not exist"}
	r := newRound(t)
	r.format = events.SignalsFormat
	order := r.decides("shop.status", 1)[0]
	offset := int64(0)
	hears := func(to string) {
		o, err := r.order(order)
		must(t, err)
		offset++
		record := &decide.Record{Topic: r.topics.Signals, Partition: r.partition, Offset: offset}
		r.take(decide.On(r.env(), o, &decide.Input{Record: record, Order: order, Signal: &events.Signal{Signal: "go", ReplyTo: to}}))
	}
	words := func(records []*kgo.Record, topic string) (words []string) {
		for _, m := range records {
			if m.Topic == topic && headerText(m, events.HeaderType) == string(events.OrderStatus) {
				s, err := events.Decode[events.Status](m.Value)
				must(t, err)
				words = append(words, s.Status)
			}
		}
		return words
	}
	refused := func(topic string) {
		t.Helper()
		r.ends(topic, 0, gone)
		r.tries(refusalProof + time.Second)
		r.ends(topic, 0, gone)
		r.commits()
	}
	hears("bank.gone")
	r.commits()
	r.confirmed()
	r.ends("shop.status", 1, nil)
	refused("bank.gone")
	if got, why := words(r.committed, r.topics.Status), r.written(r.topics.Journal, events.StatusRefused); fmt.Sprint(got) != "[late]" || len(why) > 0 {
		t.Errorf("the namespace's topic has %q, and the order %s", got, why)
	}

	// The order's caller hears of it where it was, and then no more.
	o, err := r.order(order)
	must(t, err)
	r.take(decide.Operate(r.env(), o, &decide.Input{Command: &events.Command{Command: events.CommandCancel, ID: "c-1"}}))
	r.commits()
	hears("shop.status")
	r.commits()
	r.confirmed()
	if got := words(r.deliveries[0].Records, "shop.status"); fmt.Sprint(got) != "[compensating]" && fmt.Sprint(got) != "[cancelled]" {
		t.Errorf("its own topic is given %q", got)
	}
	refused("shop.status")
	if got := words(r.committed, r.topics.Status); slices.Contains(got, events.StatusLate) || len(got) == 0 {
		t.Errorf("the namespace's topic has %q", got)
	}
	r.pass(refusalLasts)
	var delivered []string
	for r.confirmed(); len(r.deliveries) > 0; r.tries(time.Second) {
		delivered = append(delivered, words(r.deliveries[0].Records, "shop.status")...)
		r.ends(r.deliveries[0].Topic, len(r.deliveries[0].Records), nil)
	}
	if fmt.Sprint(delivered) != "[late]" {
		t.Errorf("its own topic has %q", delivered)
	}
}

// What is refused for what it is, as for its size, is refused alone, and after it was alone.
func TestAMessageThatIsTooLarge(t *testing.T) {
	large := UndeliverableError{Reason: "too large", Message: true}
	batch := large
	batch.Batch = true
	r := newRound(t)
	r.owes("shop.small", 3)
	r.ends("shop.small", 0, &batch)
	r.carries("it is tried alone at once", map[string]int{"shop.small": 1})
	r.ends("shop.small", 0, &large)
	r.tries(time.Minute)
	r.ends("shop.small", 0, &large)
	r.commits()
	if got := r.written(r.topics.Status, events.OrderStatus); len(got) != 1 {
		t.Errorf("the namespace's topic has %s", got)
	}
	must(t, r.deliver(r))
	r.carries("the next is tried", map[string]int{"shop.small": 1})
	r.ends("shop.small", 1, nil)
}

// A topic that takes nothing for longer than it may loses the messages that are so old
// to the namespace's topic. A clock that is not believed says nothing of that.
func TestATopicThatIsAwayForTooLong(t *testing.T) {
	r := newRound(t)
	r.owes("shop.dead", 1)
	r.ends("shop.dead", 0, errAway)
	r.clock.stamped = true
	r.clock.off.Store(int64(time.Hour))
	r.pass(r.cfg.StatusPatience)
	r.owes("shop.dead", 1)
	r.tries(time.Minute)
	r.carries("the clock is wrong", map[string]int{"shop.dead": 1})
	r.clock.stamped = false
	r.ends("shop.dead", 0, errAway)
	r.tries(time.Minute)
	r.commits()
	if got := r.written(r.topics.Journal, events.StatusRefused); len(got) != 1 || !strings.Contains(got[0], "it took nothing for 24h2m0s, and the message waits for more than 24h0m0s: the broker does not answer") {
		t.Errorf("%s", got)
	}
	r.tries(time.Minute)
	r.carries("one that is not as old", map[string]int{"shop.dead": 1})
}

// Nobody was there for a day: a topic that has a moment's trouble when somebody comes is not
// one that took nothing for a day. It is, once it has failed for an hour, or for as long
// as messages wait if that is less.
func TestADayWithoutAnOwnerIsNotATopicsFault(t *testing.T) {
	for patience, proof := range map[time.Duration]time.Duration{24 * time.Hour: patienceProof, 10 * time.Minute: 10 * time.Minute} {
		t.Run(patience.String(), func(t *testing.T) {
			r := newRound(t)
			r.cfg.StatusPatience = patience
			r.owes("shop.status", 1)
			r.pass(patience)
			must(t, r.owing())
			r.deliveries = nil
			for tried := time.Duration(0); tried < proof; tried += deliveryPause {
				r.tries(deliveryPause)
				r.carries(fmt.Sprint("after ", tried), map[string]int{"shop.status": 1})
				r.ends("shop.status", 0, errAway)
			}
			r.tries(deliveryPause)
			r.commits()
			if got := r.written(r.topics.Journal, events.StatusRefused); len(got) != 1 || !strings.Contains(got[0], fmt.Sprintf("it took nothing for %s, and", proof)) {
				t.Errorf("%s", got)
			}
		})
	}
}

// What deliveries have in memory is bounded: each, and how many there are; and topics that
// take nothing cannot use it up against others.
func TestDeliveriesAreBounded(t *testing.T) {
	r := newRound(t)
	for n := range int64(4) {
		r.state.Owe(projections.Owed{Topic: "shop.large", Offset: n, ID: fmt.Sprint(n), Order: fmt.Sprint("o-", n), Time: r.wall, Value: make([]byte, projections.StatusOutput)})
	}
	must(t, r.state.Flush())
	r.courier.confirmed = 4
	r.Lane.owes(destination{topic: "shop.large"})
	must(t, r.deliver(r))
	r.carries("up to the message that reaches the bound", map[string]int{"shop.large": 2})
	r.ends("shop.large", 2, nil)
	r.ends("shop.large", 2, nil)

	dead := func(i int) string { return fmt.Sprint("shop.dead-", i) }
	for i := range deliveries + 1 {
		r.owes(dead(i), 1)
	}
	if len(r.deliveries) != deliveries {
		t.Errorf("%d are under way", len(r.deliveries))
	}
	for i := range deliveries + 1 {
		r.ends(dead(i), 0, errAway)
	}
	r.tries(time.Second)
	if len(r.deliveries) != failingDeliveries {
		t.Errorf("%d are under way to topics that are away", len(r.deliveries))
	}
	r.owes("shop.fine", 1)
	r.ends("shop.fine", 1, nil)
	tried := make(map[string]bool)
	for len(tried) <= deliveries { // each has its turn
		for len(r.deliveries) > 0 {
			tried[r.deliveries[0].Topic] = true
			r.ends(r.deliveries[0].Topic, 0, errAway)
		}
		r.tries(time.Second)
	}
}

// Topics that failed are tried in turn, whatever they are called: where they are more than
// there is room for, one that is back hears of that once the others had theirs.
func TestTopicsThatFailedAreTriedInTurn(t *testing.T) {
	const topics = 120
	r := newRound(t)
	ends, tried := make(map[*Delivery]time.Time), make(map[string]time.Time)
	for i := range topics {
		r.owes(fmt.Sprintf("shop.dead-%03d", i), 1)
	}
	for start := r.timer; r.timer.Sub(start) < time.Hour; r.tries(time.Second) {
		for _, d := range slices.Clone(r.deliveries) {
			if ends[d].IsZero() {
				ends[d], tried[d.Topic] = r.timer.Add(DeliveryTimeout), r.timer
			}
			if !r.timer.Before(ends[d]) {
				r.ends(d.Topic, 0, errAway)
			}
		}
	}
	if len(tried) != topics {
		t.Errorf("%d topics are tried", len(tried))
	}
	turn := deliveryPause + (topics/failingDeliveries+1)*(DeliveryTimeout+time.Second)
	for topic, last := range tried {
		if since := r.timer.Sub(last); since > turn {
			t.Errorf("%s was tried %s ago", topic, since)
		}
	}
}

// room says how many deliveries to topics that failed the instance has under way.
func (r *round) room(under int64) { r.cfg.Deliveries.failing.Store(under) }

// hangs has a delivery to a topic that failed under way, and no room for another.
func (r *round) hangs(topic string) {
	r.Helper()
	r.owes(topic, 1)
	r.ends(topic, 0, errAway)
	r.tries(time.Second)
	r.room(failingDeliveries)
}

// A topic that fails while it stands among those that did not, and for which there is no room now,
// keeps none of them waiting.
func TestATopicThatFailsInTheLineHoldsUpNoOther(t *testing.T) {
	r := newRound(t)
	r.hangs("shop.hangs")
	r.owes("shop.fails", 1) // it is under way
	r.cfg.Deliveries.fine.Store(deliveries)
	r.owes("shop.fails", 1)
	r.owes("shop.fine", 1)
	r.ends("shop.fails", 0, errAway)
	r.cfg.Deliveries.fine.Store(0)
	r.tries(time.Second)
	r.carries("there is room again", map[string]int{"shop.hangs": 1, "shop.fine": 1})
	r.room(failingDeliveries - 1)
	r.tries(time.Minute)
	r.carries("for one that failed, too", map[string]int{"shop.hangs": 1, "shop.fine": 1, "shop.fails": 1})
}

// What a topic is owed that failed has it tried no sooner than others whose turn it is.
func TestWhoIsOwedMoreIsNotTriedFirst(t *testing.T) {
	r := newRound(t)
	r.hangs("shop.hangs")
	for _, topic := range []string{"shop.quiet", "shop.busy"} {
		r.owes(topic, 1)
		r.ends(topic, 0, errAway)
		r.tries(time.Minute)
	}
	r.carries("there is no room", map[string]int{"shop.hangs": 1})
	r.room(failingDeliveries - 1)
	r.owes("shop.busy", 1)
	r.carries("another message", map[string]int{"shop.hangs": 1})
	r.tries(0)
	r.carries("who waits for longer", map[string]int{"shop.hangs": 1, "shop.quiet": 1})
}

// Whatever other lanes have under way, each tries one topic that failed, and one at a time.
func TestALaneHasRoomForOneTopicThatFailed(t *testing.T) {
	r := newRound(t)
	for _, topic := range []string{"shop.a", "shop.b"} {
		r.owes(topic, 1)
		r.ends(topic, 0, errAway)
	}
	r.room(failingDeliveries)
	for _, topic := range []string{"shop.a", "shop.b", "shop.a"} {
		r.tries(deliveryPause)
		r.carries("one", map[string]int{topic: 1})
		r.ends(topic, 0, errAway)
	}
	if under := r.cfg.Deliveries.failing.Load(); under != failingDeliveries {
		t.Errorf("%d are under way", under)
	}
}

// A topic that failed long ago and was not tried since, as there was no room, is not one
// that takes nothing. One that failed just now is, and no room is needed to say so.
func TestWhatWasNotTriedIsNotRefused(t *testing.T) {
	r := newRound(t)
	r.hangs("shop.hangs")
	r.owes("shop.dead", 1)
	r.ends("shop.dead", 0, errAway)
	r.tries(r.cfg.StatusPatience)
	r.room(failingDeliveries - 1)
	r.tries(failureProof)
	r.carries("there is room", map[string]int{"shop.hangs": 1, "shop.dead": 1})
	r.ends("shop.dead", 0, errAway)
	r.room(failingDeliveries)
	r.commits()
	if got := r.written(r.topics.Journal, events.StatusRefused); len(got) > 0 {
		t.Errorf("before it was tried it is refused: %s", got)
	}
	r.owes("shop.dead", 1)
	r.tries(deliveryPause)
	r.commits()
	if got := r.written(r.topics.Journal, events.StatusRefused); len(got) != 1 || !strings.Contains(got[0], `"shop.dead"`) || !strings.Contains(got[0], "it took nothing for 24h1m30s") {
		t.Errorf("once it was tried: %s", got)
	}
	must(t, r.deliver(r))
	r.carries("one that is not as old", map[string]int{"shop.hangs": 1})
}

// By a clock that is not believed nothing is given up, though the topic failed just now.
func TestAWrongClockRefusesNothing(t *testing.T) {
	r := newRound(t)
	r.owes("shop.dead", 1)
	r.ends("shop.dead", 0, errAway)
	r.tries(r.cfg.StatusPatience)
	r.ends("shop.dead", 0, errAway)
	r.clock.stamped = true
	r.clock.off.Store(int64(time.Hour))
	r.tries(deliveryPause)
	r.carries("the clock is wrong", map[string]int{"shop.dead": 1})
}

// What is in the store, and was not read in the journal yet, stays where the topic takes
// what came before.
func TestWhatIsNotConfirmedStaysBehindWhatIs(t *testing.T) {
	r := newRound(t)
	r.owes("shop.status", 1)
	r.decides("shop.status", 1)
	r.commits()
	must(t, r.flush())
	r.ends("shop.status", 1, nil)
	r.carries("before the journal was read", nil)
}

// A lane that looks once an hour has seen a topic fail an hour ago, and not since.
func TestALaneThatSeldomLooksRefuses(t *testing.T) {
	r := newRound(t)
	r.cfg.SuperviseEvery = time.Hour
	r.owes("shop.dead", 1)
	for range r.cfg.StatusPatience / time.Hour {
		r.ends("shop.dead", 0, errAway)
		r.tries(r.cfg.SuperviseEvery)
	}
	r.commits()
	if got := r.written(r.topics.Journal, events.StatusRefused); len(got) != 1 {
		t.Errorf("%s", got)
	}
}

// The next owner goes on with what is owed, as far as the journal was told.
func TestTheNextOwnerDelivers(t *testing.T) {
	r := newRound(t)
	r.owes("shop.a", 2)
	r.owes("shop.b", 1)
	r.ends("shop.a", 1, errAway)
	r.pass(deliveredEvery)
	r.commits()
	must(t, r.flush())
	must(t, r.owing())
	r.deliveries = nil
	must(t, r.deliver(r))
	r.carries("what is left", map[string]int{"shop.a": 1, "shop.b": 1})
}

// What is owed by a transaction that is not in the journal is not delivered: the lane
// ends.
func TestWhatIsNotInTheJournalIsNotDelivered(t *testing.T) {
	l, _ := newLane(t)
	for _, test := range []struct {
		name string
		read []int64
		want error
	}{
		{"it is there", []int64{3, 4, 5, 9}, nil},
		{"it was aborted", []int64{3, 4, 9}, ErrUndone},
		{"the next was aborted", []int64{5, 10}, ErrUndone},
	} {
		t.Run(test.name, func(t *testing.T) {
			reader := &offsets{read: test.read}
			l.journal = reader
			h := l.Confirm(t.Context(), []int64{5, 9})
			if !errors.Is(h.Err, test.want) || test.want == nil && h.End != 10 {
				t.Errorf("up to %d: %v", h.End, h.Err)
			}
			if fmt.Sprint(reader.sought) != "[map[waybill.journal:5] map[]]" {
				t.Errorf("it reads %v", reader.sought)
			}
		})
	}
	r := newRound(t)
	r.decides("shop.status", 1)
	r.commits()
	r.confirm(r)
	if err := r.isConfirmed(Happened{What: Confirmed, Err: ErrUndone}); !errors.Is(err, ErrUndone) {
		t.Errorf("the lane goes on: %v", err)
	}
}

// offsets is a journal of which some records can be read.
type offsets struct {
	Reader
	read   []int64
	sought []map[string]int64
}

func (o *offsets) Seek(from map[string]int64) { o.sought = append(o.sought, from) }

func (o *offsets) Poll(context.Context, int) kgo.Fetches {
	r := &kgo.Record{Topic: "waybill.journal", Offset: o.read[0]}
	o.read = o.read[1:]
	return brought(r)
}

// What a turn of a lane costs whose callers' topics are many: those that nobody has tried, and
// those that failed, wait for room.
func BenchmarkManyTopics(b *testing.B) {
	const topics = 10_000
	for _, failed := range []bool{false, true} {
		b.Run(fmt.Sprintf("failed=%t", failed), func(b *testing.B) {
			l, _ := newLane(b)
			l.format, l.cfg.StatusPatience, l.courier.confirmed = events.CourierFormat, 24*time.Hour, topics
			for n := range int64(topics) {
				topic := fmt.Sprint("shop.", n)
				l.state.Owe(projections.Owed{Topic: topic, Offset: n, ID: topic, Order: topic, Time: l.time.Wall(), Value: []byte("{}")})
				l.owes(destination{topic: topic})
				if failed {
					t := l.courier.targets[destination{topic: topic}]
					t.failures, t.failing = 1, l.time.Timer()
				}
			}
			must(b, l.state.Flush())
			l.cfg.Deliveries.fine.Store(deliveries)
			l.cfg.Deliveries.failing.Store(failingDeliveries)
			r := &round{Lane: l}
			must(b, l.deliver(r)) // one that failed has a place of its own
			for b.Loop() {
				if failed {
					l.again()
				}
				must(b, l.deliver(r))
			}
		})
	}
}

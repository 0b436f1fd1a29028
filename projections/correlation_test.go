package projections

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// correlated folds events of a correlation into a partition, one transaction each.
func correlated(t *testing.T, p *Partition, from uint64, more ...events.Event) {
	t.Helper()
	for n, e := range more {
		e.Order, e.Seq = "@k/signal.pay", from+uint64(n)
		if e.At.IsZero() {
			e.At = at(1)
		}
		e.Source = fmt.Sprintf("%s%d", e.Source, n)
		seal := events.Seal{Transaction: p.head.Transaction + 1, Events: 1}
		if err := p.Fold(p.head.Offset, e.Append(nil), seal.Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
}

// A correlation outlasts the store: who waits, what is kept and given, and which ids acted. Of one that is
// forgotten a few bytes are left, and none of its deadlines and payloads; what comes then is numbered on.
func TestCorrelationsAreStored(t *testing.T) {
	store, err := Temporary()
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	p, err := store.Partition(0)
	if err != nil {
		t.Fatal(err)
	}
	large := payloadOf(2 * inlinePayload)
	wait := events.Event{Type: events.WaitBegan, Waiter: "o", Step: "a", Wait: 2, Signal: "pay", Key: "k", Source: "internal/0/"}
	other := wait
	other.Waiter = "p"
	signal := func(kind events.Type, id, source string) events.Event {
		return events.Event{Type: kind, Signal: "pay", SignalID: id, Key: "k", Source: source, Due: at(100)}
	}
	given := signal(events.SignalGiven, "s", "signals/0/")
	given.Waiter, given.Step, given.Wait, given.Data, given.ReplyTo = "o", "a", 2, large, "shop"
	matched := signal(events.SignalMatched, "s", "signals/0/")
	matched.Waiter, matched.Step, matched.Wait, matched.Key, matched.Due = "o", "a", 2, "", time.Time{}
	again := func() *Order {
		t.Helper()
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		folded := p.orders["@k/signal.pay"].order
		stored, _, err := store.record(store.db, 0, "@k/signal.pay")
		if err != nil {
			t.Fatal(err)
		}
		if is, was := *stored, *folded; !reflect.DeepEqual(is.Correlation, was.Correlation) || !reflect.DeepEqual(is.Signals, was.Signals) {
			t.Fatalf("stored is\n %+v %+v, and folded\n %+v %+v", is.Correlation, is.Signals, was.Correlation, was.Signals)
		}
		return stored
	}
	correlated(t, p, 1, wait, other, given)
	if o := again(); len(o.Correlation.Waits) != 2 || len(o.Signals) != 1 || o.Signals[0].Under.Given != 3 {
		t.Fatalf("%+v", o)
	}
	matched.Source = "signals/0/2" // as it is numbered above
	matched.Seq = 4
	matched.Order, matched.At = "@k/signal.pay", at(1)
	ended := events.Event{Type: events.WaitEnded, Order: "@k/signal.pay", Seq: 5, At: at(1), Waiter: "o", Wait: 2, Source: "internal/0/9"}
	gone := ended
	gone.Waiter, gone.Seq = "p", 6
	for _, e := range []events.Event{matched, ended, gone} {
		if err := p.Fold(p.head.Offset, e.Append(nil), (&events.Seal{Transaction: p.head.Transaction + 1, Events: 1}).Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	o := again()
	if idle, until := o.Idle(); !idle || !until.Equal(at(100)) || o.Signals[0].ID != "s" {
		t.Fatalf("idle: %t until %v, %+v", idle, until, o.Signals)
	}
	if due, err := p.Due(at(100_000), 10); err != nil || len(due) != 1 || !due[0].At.Equal(o.Lapses()) {
		t.Fatalf("due is %v, %v, and must be at %v", due, err, o.Lapses())
	}
	correlated(t, p, 7, events.Event{Type: events.OrderForgotten, At: at(100_000)})
	keys := 0
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := store.Dump(0, func(Head) error { return nil }, func(k, v []byte) error {
		if k[4] != kindHead {
			if keys++; len(k)+len(v) > 40 {
				t.Errorf("left is %q: %q", k, v)
			}
		}
		return nil
	}); err != nil || keys != 1 {
		t.Fatalf("%d keys are left, %v", keys, err)
	}
	correlated(t, p, 8, wait)
	if o := again(); o.Correlation.First != 8 || len(o.Signals) != 0 || o.Forgotten {
		t.Fatalf("%+v", o)
	}
	if without, offsets, err := store.Journal(0, "@k/signal.pay"); err != nil || without != 7 || len(offsets) != 1 {
		t.Fatalf("its history is without %d, and has %v, %v", without, offsets, err)
	}
}

package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// A lane is behind once a submission was not read for a minute, and no longer than
// until it was.
func TestWhenALaneIsBehind(t *testing.T) {
	var at time.Duration
	next, decided := int64(-1), "none" // nothing was read yet
	b := &backlog{
		most: time.Minute, marks: make(map[int32][]mark), tried: make(map[int32]time.Time),
		read: func(_ int32, m mark) (bool, error) { return m.offset < next || m.order == decided, nil },
		now:  func() time.Time { return time.Unix(0, 0).Add(at) },
	}
	expect := func(what string, behind bool) {
		t.Helper()
		b.tried[0] = b.now() // one was let through just now
		if err := b.check(0); errors.Is(err, ErrBehind) != behind || err != nil && !behind {
			t.Errorf("%s: %v", what, err)
		}
	}
	expect("before anything was taken", false)
	b.took(0, 10, "o-1")
	at = 30 * time.Second
	b.took(0, 500, "o-2")
	at = 59 * time.Second
	expect("one waits for 59 s", false)
	at = time.Minute
	expect("one waits for 60 s", true)
	if err := b.check(1); err != nil {
		t.Errorf("another partition: %v", err)
	}
	decided = "o-2"
	expect("what came behind it was decided on, so it is parked", false)
	b.marks[0] = []mark{{time.Unix(0, 0), 10, "o-1"}, {time.Unix(30, 0), 500, "o-2"}}
	decided = "none"
	expect("both wait", true)
	next = 10
	expect("all before it were read", true)
	next = 11
	expect("it was read", false)
	at = 90 * time.Second
	expect("what came later waits", true)
	next = 501
	expect("all were read", false)

	for range 100_000 {
		at += time.Millisecond
		expect("all are read at once", false)
		b.took(0, next, "")
		next++
	}
	if n := len(b.marks[0]); n > 11 {
		t.Errorf("%d marks are kept", n)
	}
	at += time.Minute
	expect("all were read at once", false)
	b.took(0, next, "")
	at += time.Minute
	expect("the last one waits", true)
	at += 9*time.Minute - 1
	expect("it waits for nearly ten minutes", true)
	at++
	expect("it was lost", false)
	b.took(0, next, "")
	at += time.Minute
	expect("another one waits", true)
	b.most = 0
	expect("no limit", false)
}

// While a lane is behind, one submission is let through now and then: if it is read, what
// waits is parked.
func TestWhenALaneIsBehindOneIsLetThrough(t *testing.T) {
	at, next := time.Unix(0, 0), int64(0)
	b := &backlog{
		most: time.Minute, marks: make(map[int32][]mark), tried: make(map[int32]time.Time),
		read: func(_ int32, m mark) (bool, error) { return m.offset < next && m.order != "parked", nil },
		now:  func() time.Time { return at },
	}
	expect := func(what string, want ...bool) {
		t.Helper()
		for n, want := range want {
			if err := b.check(0); (err == nil) != want {
				t.Errorf("%s, %d: %v", what, n+1, err)
			}
		}
	}
	b.took(0, 0, "parked")
	at = at.Add(time.Minute)
	expect("one of many is let through", true, false, false)
	b.took(0, 1, "o-1")
	at = at.Add(6*time.Second - 1)
	expect("it is not read", false)
	at = at.Add(1)
	expect("another is let through", true, false)
	next = 2
	expect("it is read", true, true)
	if n := len(b.marks[0]); n > 0 {
		t.Errorf("%d marks are kept", n)
	}
}

// An instance takes no more orders for a lane that stands, and takes them again once
// it has read what there is.
func TestSubmissionsWhileALaneIsBehind(t *testing.T) {
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	i, err := New(t.Context(), Config{
		ID: "i-1", Namespace: topics.Namespace, DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...)},
		MaxLag: time.Hour, Logger: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	var late atomic.Int64
	i.backlog.now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
	submit := func(id string) error {
		_, err := i.Submit(t.Context(), id, &events.Submission{Workflow: "none"}, Context{}, nil)
		return err
	}
	must(t, submit("o-1"))
	must(t, submit("o-2"))
	late.Store(int64(time.Hour))
	must(t, submit("o-first")) // that shows whether the lane stands
	if err := submit("o-3"); !errors.Is(err, ErrBehind) {
		t.Errorf("an order for a lane that is an hour behind: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- i.Run(ctx) }()
	oracle.Until(t, "the lane has read all", func() error { return submit("o-4") })
	oracle.Until(t, "order o-4", func() error {
		_, _, err := i.Order("o-4")
		return err
	})
	if _, _, err := i.Order("o-3"); err == nil {
		t.Error("an order that was not taken is there")
	}
	late.Add(int64(time.Hour))
	i.backlog.tried[0] = i.backlog.now() // one was let through just now
	must(t, submit("o-5"))
	cancel()
	must(t, errors.Join(<-ended, i.Close()))
}

// A submission that waits for what nobody knows yet does not make its lane one that is
// behind: the others are read.
func TestSubmissionsBehindOneThatIsParked(t *testing.T) {
	t.Parallel()
	b := kafka.Embedded(t)
	topics := onePartition(t, b)
	begunInFormat1(t, b, &topics)
	i, err := New(t.Context(), Config{
		ID: "i-1", Namespace: topics.Namespace, DataDir: t.TempDir(), Kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...)},
		MaxLag: time.Minute, Logger: slog.New(slog.DiscardHandler), askPatience: time.Hour, RaiseAfter: time.Hour,
	})
	must(t, err)
	var late atomic.Int64
	i.backlog.now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
	stop := begins(t, i)
	oracle.Until(t, "ready", i.Ready)
	must(t, i.Register(t.Context(), parseFlow(t, silentFlow)))
	asked, release := holds(t, b, kmsg.Metadata, "shop.status")
	_, err = i.Submit(t.Context(), "o-1", &events.Submission{Workflow: "silent", ReplyTo: "shop.status"}, Context{}, nil)
	must(t, err)
	<-asked
	passes := func(d time.Duration) {
		late.Add(int64(d))
		i.backlog.tried[0] = i.backlog.now() // one was let through just now
	}
	passes(time.Minute)
	i.waits(t, "o-2", "2") // the lane knows that it has read o-1
	passes(time.Minute)
	i.waits(t, "o-3", "3")
	if head, err := i.store.Head(0); err != nil || head.Next.At(events.InputOrders) != 0 {
		t.Errorf("the position in the orders is %d: %v", head.Next.At(events.InputOrders), err)
	}
	if read := i.members.ordersRead(0); read < 3 {
		t.Errorf("orders were read up to %d", read)
	}
	// One that does not own the partition knows it by the orders.
	other := &Instance{store: i.store, members: newMembership(nil, 1, i.log), cfg: i.cfg}
	for offset, order := range []string{"o-1", "o-2"} {
		if read, err := other.wasRead(0, mark{offset: int64(offset), order: order}); err != nil || read != (order == "o-2") {
			t.Errorf("order %s was read: %t, %v", order, read, err)
		}
	}
	release()
	i.reaches(t, "o-1", projections.Processing)
	stop()
}

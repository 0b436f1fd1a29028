package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// A lane is behind once a submission was not read for a minute, and no longer than
// until it was.
func TestWhenALaneIsBehind(t *testing.T) {
	var at time.Duration
	next := int64(-1) // nothing was read yet
	b := &backlog{
		most: time.Minute, marks: make(map[int32][]mark),
		next: func(int32) (int64, error) { return next, nil },
		now:  func() time.Time { return time.Unix(0, 0).Add(at) },
	}
	expect := func(what string, behind bool) {
		t.Helper()
		if err := b.check(0); errors.Is(err, ErrBehind) != behind || err != nil && !behind {
			t.Errorf("%s: %v", what, err)
		}
	}
	expect("before anything was taken", false)
	b.took(0, 10)
	at = 30 * time.Second
	b.took(0, 500)
	at = 59 * time.Second
	expect("one waits for 59 s", false)
	at = time.Minute
	expect("one waits for 60 s", true)
	if err := b.check(1); err != nil {
		t.Errorf("another partition: %v", err)
	}
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
		b.took(0, next)
		next++
	}
	if n := len(b.marks[0]); n > 11 {
		t.Errorf("%d marks are kept", n)
	}
	at += time.Minute
	expect("all were read at once", false)
	b.took(0, next)
	at += time.Minute
	expect("the last one waits", true)
	at += 9*time.Minute - 1
	expect("it waits for nearly ten minutes", true)
	at++
	expect("it was lost", false)
	b.took(0, next)
	at += time.Minute
	expect("another one waits", true)
	b.most = 0
	expect("no limit", false)
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
		_, err := i.Submit(t.Context(), id, &events.Submission{Workflow: "none"}, "")
		return err
	}
	must(t, submit("o-1"))
	must(t, submit("o-2"))
	late.Store(int64(time.Hour))
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
	must(t, submit("o-5"))
	cancel()
	must(t, errors.Join(<-ended, i.Close()))
}

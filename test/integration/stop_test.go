package integration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	kit "github.com/waybill-dev/waybill/test/world"
)

// An instance that is told to stop while Kafka does not answer stops without it,
// and says so. What it was committing is not lost.
func TestStopWhileKafkaDoesNotAnswer(t *testing.T) {
	t.Parallel()
	b := kafka.Embedded(t)
	w := newWorld(t, b)
	said := &kit.Log{}
	one := w.Run("one", t.TempDir(), func(cfg *orchestrator.Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(said, nil))
		cfg.Kafka = append(cfg.Kafka, kgo.RequestTimeoutOverhead(10*time.Minute)) // no request ends by itself
	})
	w.Register(one, fulfilment)
	var silent, produces atomic.Int64
	silent.Store(1)
	// What lanes and members of the group ask is read, and never answered.
	b.Fake.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		if silent.Load() == 0 {
			return nil, nil, false
		}
		switch r := r.(type) {
		case *kmsg.ProduceRequest:
			if r.TransactionID == nil {
				return nil, nil, false
			}
			produces.Add(1)
			return nil, nil, true
		case *kmsg.EndTxnRequest, *kmsg.HeartbeatRequest, *kmsg.JoinGroupRequest, *kmsg.LeaveGroupRequest:
			return nil, nil, true
		}
		return nil, nil, false
	})
	for k := range 6 {
		w.Submit(fmt.Sprintf("o-%d", k), `{"workflow":"fulfilment"}`)
	}
	w.until("something is being committed", func() error {
		if produces.Load() == 0 {
			return fmt.Errorf("nothing is")
		}
		return nil
	})
	one.Stop() // an error fails the test
	if !strings.Contains(said.String(), "Kafka does not answer, and the instance stops without it") {
		t.Errorf("it says nothing about what it left:\n%s", said)
	}

	silent.Store(0)
	two := w.Run("two", t.TempDir())
	w.serveFulfilment()
	for k := range 6 {
		w.order(two, fmt.Sprintf("o-%d", k), in(projections.Processed))
	}
}

// A submission to which Kafka does not answer ends when its caller goes away; an
// instance that stops waits for its callers. Submitted again, it is one order.
func TestASubmissionEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	b := kafka.Embedded(t)
	w := newWorld(t, b)
	i := w.Run("i-1", t.TempDir(), func(cfg *orchestrator.Config) {
		cfg.Kafka = append(cfg.Kafka, kgo.ProduceRequestTimeout(time.Second), kgo.RequestTimeoutOverhead(time.Second))
	})
	w.Register(i, fulfilment)
	w.serveFulfilment()
	var silent atomic.Bool
	silent.Store(true)
	caller, goAway := context.WithCancel(t.Context())
	b.Fake.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		p, ok := r.(*kmsg.ProduceRequest)
		if !ok || p.TransactionID != nil || !silent.Load() {
			return nil, nil, false
		}
		goAway()
		return nil, nil, true
	})
	submission := &events.Submission{Workflow: "fulfilment"}
	if _, err := i.Submit(caller, "o-1", submission, orchestrator.Context{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the submission ended with %v", err)
	}
	silent.Store(false)
	if _, err := i.Submit(t.Context(), "o-1", submission, orchestrator.Context{}, nil); err != nil {
		t.Error(err)
	}
	w.order(i, "o-1", in(projections.Processed))
}

// A stop in good order lets others serve at once: nobody waits for a session to
// time out, which here is longer than the test has patience.
func TestHandOverWaitsForNoTimeout(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		long := func(cfg *orchestrator.Config) { cfg.SessionTimeout = 5 * time.Minute }
		one, two := w.Run("one", t.TempDir(), long), w.Run("two", t.TempDir(), long)
		w.Register(one, fulfilment)
		w.serveFulfilment()
		w.share(one, two)
		two.Stop()
		w.until("one owns all", func() error { return ownsAll(one) })
		w.complete(one, "o", 10)
	})
}

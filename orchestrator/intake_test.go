package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/cluster"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// hangs is an instance that callers submit to while a partition of the orders takes nothing.
type hangs struct {
	*torn
	at   *kafka.Unwritable
	stop func()
}

func newHangs(t *testing.T) *hangs {
	t.Helper()
	h := &hangs{torn: newTorn(t, kafka.Embedded(t))}
	h.instance, h.stop = runs(t, h.broker, Config{ID: "i-1", Namespace: h.topics.Namespace, Kafka: []kgo.Opt{
		kgo.SeedBrokers(h.broker.Brokers...), kgo.RequestTimeoutOverhead(10 * time.Minute), // no request ends by itself
	}})
	must(t, h.instance.Register(t.Context(), parseFlow(t, "workflow: order\nsteps: [{name: charge, agent: payment, timeout: 1h}]")))
	h.at = h.broker.Unwritable(t, h.topics.Orders, h.partition)
	return h
}

func (h *hangs) asks(ctx context.Context, id string) <-chan error {
	said := make(chan error, 1)
	go func() {
		_, err := h.instance.Submit(ctx, id, &events.Submission{Workflow: "order"}, Context{}, nil)
		said <- err
	}()
	return said
}

// tried waits until the partition was written to so often.
func (h *hangs) tried(n int64) {
	h.Helper()
	oracle.Until(h, "the partition is written to", func() error {
		if have := h.at.Tries(); have < n {
			return fmt.Errorf("%d of %d times", have, n)
		}
		return nil
	})
}

// line waits until so many are in line.
func (h *hangs) line(n int) {
	h.Helper()
	oracle.Until(h, "who waits in line", func() error {
		if have, _ := h.instance.intake.waiting(h.topics.Orders, h.partition); have != n {
			return fmt.Errorf("%d are, not %d", have, n)
		}
		return nil
	})
}

// waiting says how many are in line for a partition, and of how many partitions something is
// on its way.
func (in *intake) waiting(topic string, partition int32) (line, partitions int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.lines[lane.TopicPartition{Topic: topic, Partition: partition}]), len(in.lines)
}

// A caller that hangs up while its partition has no leader takes nobody along who waits
// there, too: that one is answered once there is a leader. What it asked for itself may be
// written then; once it has left the line, it is not.
func TestWhoHangsUpTakesNobodyAlong(t *testing.T) {
	h := newHangs(t)
	ctx, hangUp := context.WithCancel(t.Context())
	first := h.asks(ctx, "torn")
	h.tried(1)
	inLine := h.asks(ctx, h.earlier)
	stays := h.asks(t.Context(), h.waits)
	h.line(2)
	hangUp()
	for _, gone := range []<-chan error{first, inLine} {
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("who has hung up: %v", err)
		}
	}
	h.tried(h.at.Tries() + 2)                      // time enough to fail all that waits
	must(t, <-h.asks(t.Context(), h.elsewhere[0])) // others wait for nobody
	h.at.Heal()
	must(t, <-stays)
	h.started(h.waits)
	h.started("torn")
	if _, _, err := h.instance.Order(h.earlier); !errors.Is(err, projections.ErrNotFound) {
		t.Errorf("the order of who left the line: %v", err)
	}
}

// What Kafka does not answer ends, and what waits behind it is written then.
func TestWhatKafkaDoesNotAnswerEnds(t *testing.T) {
	h := newHangs(t)
	h.at.Silence()
	h.instance.intake.patience = 100 * time.Millisecond
	for h.at.Tries() == 0 { // a slow machine does not even send it in that time
		if err := <-h.asks(t.Context(), "torn"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("who was not answered: %v", err)
		}
	}
	h.at.Heal()
	oracle.Until(t, "another is written", func() error { return <-h.asks(t.Context(), h.waits) })
	h.started(h.waits)
}

// An instance stops beside a partition that takes nothing of what it was given.
func TestAnInstanceStopsBesideWhatIsNotWritten(t *testing.T) {
	for how, silent := range map[string]bool{"no leader": false, "no answer": true} {
		t.Run(how, func(t *testing.T) {
			h := newHangs(t)
			if silent {
				h.at.Silence()
			}
			h.instance.intake.patience = time.Hour
			ctx, hangUp := context.WithCancel(t.Context())
			first := h.asks(ctx, "torn")
			h.tried(1)
			second := h.asks(ctx, h.waits)
			h.line(1)
			hangUp()
			for _, gone := range []<-chan error{first, second} {
				if err := <-gone; !errors.Is(err, context.Canceled) {
					t.Errorf("who has hung up: %v", err)
				}
			}
			h.line(0)
			h.stop()
			if _, n := h.instance.intake.waiting(h.topics.Orders, h.partition); n != 0 {
				t.Errorf("%d partitions are written to", n)
			}
		})
	}
}

// desk is an intake in front of a client of Kafka that keeps what it is given until it is told
// what became of it, or its context ends.
type desk struct {
	*testing.T
	*intake

	mu    sync.Mutex
	given []string               // keys, in the order in which they came
	has   map[string]func(error) // by key
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{T: t, has: make(map[string]func(error))}
	d.intake = &intake{patience: produceTimeout, lines: make(map[lane.TopicPartition][]*entry), produce: d.take}
	return d
}

func (d *desk) take(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	key, told := string(r.Key), make(chan error, 1)
	if r.Context == nil { // as Kafka's client has it
		r.Context = ctx
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.given = append(d.given, key)
	d.has[key] = func(err error) { told <- err }
	go func() {
		select {
		case err := <-told:
			promise(r, err)
		case <-r.Context.Done():
			promise(r, r.Context.Err())
		case <-ctx.Done():
			promise(r, ctx.Err())
		}
	}()
}

// gave says what the client was given since the last time.
func (d *desk) gave(want ...string) {
	d.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.given, want) {
		d.Errorf("Kafka's client was given %q, not %q", d.given, want)
	}
	d.given = nil
}

// asks has a caller ask for a record of so many bytes.
func (d *desk) asks(ctx context.Context, topic string, partition int32, key string, bytes int) <-chan error {
	said := make(chan error, 1)
	r := &kgo.Record{Topic: topic, Partition: partition, Key: []byte(key), Value: make([]byte, bytes)}
	go func() { said <- d.put(ctx, r) }()
	synctest.Wait()
	return said
}

// Of a partition Kafka's client has one batch at a time, and others wait for nobody.
func TestOneBatchOfAPartitionAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		var all []<-chan error
		for _, key := range []string{"a", "b", "c"} {
			all = append(all, d.asks(t.Context(), "orders", 1, key, 1))
		}
		d.gave("a")
		all = append(all,
			d.asks(t.Context(), "orders", 1, "d", events.MaxBatch+1), d.asks(t.Context(), "orders", 1, "e", 1), // no room for both
			d.asks(t.Context(), "orders", 2, "f", 1), d.asks(t.Context(), "commands", 1, "g", 1))
		d.gave("f", "g")
		d.has["a"](nil)
		d.gave("b", "c")
		d.has["c"](nil)
		d.gave()
		refused := errors.New("refused")
		d.has["b"](refused)
		d.gave("d")
		d.has["d"](nil)
		d.gave("e")
		for _, key := range []string{"e", "f", "g"} {
			d.has[key](nil)
		}
		for n, said := range all {
			if err := <-said; !errors.Is(err, map[bool]error{n == 1: refused}[true]) {
				t.Errorf("number %d is told: %v", n, err)
			}
		}
		synctest.Wait()
		if _, n := d.waiting("orders", 1); n != 0 {
			t.Errorf("%d partitions are remembered", n)
		}
	})
}

// However many come and go while a partition takes nothing: of those that have left is in
// memory what was on its way, and that ends.
func TestWhoHasLeftLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		ctx, hangUp := context.WithCancel(t.Context())
		began := time.Now()
		first := d.asks(ctx, "orders", 1, "first", 1)
		var gone []<-chan error
		for n := range 1000 {
			gone = append(gone, d.asks(ctx, "orders", 1, fmt.Sprint(n), events.MaxValue))
		}
		time.Sleep(d.patience / 2)
		stays := d.asks(t.Context(), "orders", 1, "stays", 1)
		hangUp()
		for _, said := range append(gone, first) {
			if err := <-said; !errors.Is(err, context.Canceled) {
				t.Errorf("who has left is told: %v", err)
			}
		}
		d.gave("first")
		if line, _ := d.waiting("orders", 1); line != 1 {
			t.Errorf("%d are in line", line)
		}
		time.Sleep(time.Until(began.Add(d.patience)) - time.Nanosecond)
		d.gave()
		time.Sleep(time.Nanosecond)
		d.gave("stays")
		time.Sleep(d.patience / 2)
		if err := <-stays; !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*d.patience/2 {
			t.Errorf("who waits is told after %s: %v", time.Since(began), err)
		}
		time.Sleep(d.patience / 2)
		synctest.Wait()
		if _, n := d.waiting("orders", 1); n != 0 {
			t.Errorf("%d partitions are remembered", n)
		}
	})
}

// Who has hung up before it is asked for anything is told so, and nothing is done for nobody.
func TestWhoHasHungUpAsksForNothing(t *testing.T) {
	in := &intake{patience: produceTimeout} // it has no lines: to join one panics
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	if err := in.put(ctx, &kgo.Record{Topic: "orders"}); !errors.Is(err, context.Canceled) {
		t.Errorf("who has hung up is told: %v", err)
	}
}

// Before Kafka's client knows a topic it fails all that it has for it with the first. Who
// still waits is not told of that.
func TestWhatEndsWithAnotherPartitionIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		first := d.asks(t.Context(), "orders", 1, "first", 1)
		time.Sleep(d.patience / 2)
		second := d.asks(t.Context(), "orders", 2, "second", 1)
		d.gave("first", "second")
		d.has["second"](fmt.Errorf("given up: %w", context.DeadlineExceeded))
		d.gave("second")
		time.Sleep(3 * d.patience / 4)
		d.gave()
		if err := <-first; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first is told: %v", err)
		}
		d.has["second"](nil)
		if err := <-second; err != nil {
			t.Errorf("the second is told: %v", err)
		}
	})
}

// What ends because the patience is over is over for who waits, too: it is not written again,
// though the client may say so first.
func TestWhatEndsWithThePatienceIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		for n := range 1000 {
			go func() {
				_ = d.put(t.Context(), &kgo.Record{Topic: "orders", Partition: int32(n), Key: fmt.Append(nil, n)})
			}()
		}
		synctest.Wait()
		time.Sleep(2 * d.patience)
		if synctest.Wait(); len(d.given) != 1000 {
			t.Errorf("Kafka's client was given %d records of 1,000", len(d.given))
		}
	})
}

// So it is with Kafka's client.
func TestATopicThatIsNotKnownYet(t *testing.T) {
	b := kafka.Embedded(t)
	topics, err := events.NewTopics(kafka.Namespace(t))
	must(t, err)
	_, err = CreateTopics(t.Context(), b.Admin(t), &topics, 2, 1)
	must(t, err)
	ask := kmsg.NewPtrMetadataRequest()
	ask.Topics = []kmsg.MetadataRequestTopic{{Topic: &topics.Orders}}
	nobody, err := ask.RequestWith(t.Context(), b.Client(t))
	must(t, err)
	nobody.Topics[0].ErrorCode, nobody.Topics[0].Partitions = kerr.LeaderNotAvailable.Code, nil
	var known atomic.Bool
	b.Fake.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		nobody.SetVersion(r.GetVersion())
		return nobody, nil, !known.Load()
	})

	client := b.Client(t, kgo.RecordPartitioner(cluster.Partitioner(&topics)), kgo.MetadataMinAge(cluster.MetadataMinAge))
	puts := func(patience time.Duration, partition int32) <-chan error {
		in := &intake{produce: client.Produce, patience: patience, lines: make(map[lane.TopicPartition][]*entry)}
		said := make(chan error, 1)
		go func() {
			said <- in.put(t.Context(), &kgo.Record{Topic: topics.Orders, Partition: partition})
			in.running.Wait()
		}()
		oracle.Until(t, "the client has it", func() error {
			if have := client.BufferedProduceRecords(); have <= int64(partition) {
				return fmt.Errorf("it has %d", have)
			}
			return nil
		})
		return said
	}
	first := puts(time.Second, 0)
	second := puts(time.Hour, 1)
	if err := <-first; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the first is told: %v", err)
	}
	known.Store(true)
	must(t, <-second)
}

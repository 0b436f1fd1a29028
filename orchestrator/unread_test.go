package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
)

// Batches on the inputs that take more memory than an instance has, or that nobody can
// decompress, are put aside, and what is behind them is read. They take no memory.
func TestBatchesThatCannotBeRead(t *testing.T) {
	harmful := [][]byte{kafka.Zeros(t, 900<<20), kafka.Zeros(t, 1200<<20)}
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		h := newTorn(t, b)
		h.run("i-1")
		must(t, h.instance.Register(t.Context(), parseFlow(t, "workflow: order\nsteps: [{name: charge, agent: payment, timeout: 1h}]")))
		h.submit("torn")
		h.started("torn")

		batches := harmful
		if b.Kind == kafka.KindEmbedded { // Kafka looks into what it takes
			batches = append(slices.Clone(batches), kafka.Batch([]byte("no batch of zstd"), 4, 3))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var want []string
		for _, topic := range h.topics.Inputs() {
			for _, batch := range batches {
				want = append(want, fmt.Sprintf("%s/%d/%d", topic, h.partition, b.Put(t, topic, h.partition, batch)))
			}
		}
		h.submit(h.waits)
		h.reply("torn", "charge")
		h.ended("torn")
		h.started(h.waits)
		want = append(want, h.command(h.earlier))
		h.putAside(want)
		runtime.ReadMemStats(&after)
		took := (after.TotalAlloc - before.TotalAlloc) >> 20
		t.Logf("%d batches took %d MiB, one after the other", len(want), took)
		if took > uint64(len(want))*512 { // a buffer that grows to the limit; of the zeros it would be twice
			t.Errorf("%d batches took %d MiB", len(want), took)
		}
		for _, r := range oracle.Read(t, b.Brokers, h.topics.DeadLetters) {
			t.Logf("%s", events.Header(r, "waybill_reason"))
		}
		must(t, h.instance.Ready())
	})
}

// In the journal, and among the workflows, such a batch is damage: it is not passed
// over, and an operator is called.
func TestDamageThatCannotBeRead(t *testing.T) {
	t.Parallel()
	zeros := kafka.Zeros(t, events.MaxDecompressed)
	t.Run("in the journal", func(t *testing.T) {
		kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
			h := newTorn(t, b)
			stop := h.run("before")
			must(t, h.instance.Register(t.Context(), parseFlow(t, "workflow: order\nsteps: [{name: charge, agent: payment, timeout: 1h}]")))
			h.submit("torn")
			h.started("torn")
			stop()
			b.Put(t, h.topics.Journal, h.partition, zeros)
			h.run("after")
			h.started("torn") // as was folded before
			if why := h.alerted(); !strings.Contains(why, "a batch that cannot be read") {
				t.Errorf("the alert says: %s", why)
			}
			if err := h.instance.Ready(); err == nil {
				t.Error("it is ready")
			}
		})
	})
	t.Run("among the workflows", func(t *testing.T) {
		h := newTorn(t, kafka.Embedded(t))
		h.broker.Put(t, h.topics.Workflows, 0, zeros)
		h.run("i-1")
		if why := h.alerted(); !strings.Contains(why, "a batch that cannot be read") {
			t.Errorf("the alert says: %s", why)
		}
		if err := h.instance.Ready(); err == nil {
			t.Error("it is ready")
		}
	})
}

// What one answer of Kafka's takes is bounded, whoever reads: the workflows, or a history.
func TestWhatOneAnswerTakesIsBounded(t *testing.T) {
	t.Parallel()
	b := kafka.Embedded(t)
	topics, err := events.NewTopics(kafka.Namespace(t))
	must(t, err)
	_, err = CreateTopics(t.Context(), b.Admin(t), &topics, 1, 1)
	must(t, err)
	t.Run("of the workflows", func(t *testing.T) {
		n := b.Flood(t, topics.Workflows, 0)
		held := new(kafka.Held)
		c, err := newCatalogue([]kgo.Opt{kgo.SeedBrokers(b.Brokers...), kgo.WithHooks(held)}, &topics, slog.New(slog.DiscardHandler))
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.run(ctx) })
		oracle.Until(t, "all are read", func() error {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.read < int64(n) {
				return fmt.Errorf("%d of %d are", c.read, n)
			}
			return nil
		})
		stop()
		running.Wait()
		held.Bounded(t, 1)
	})
	t.Run("of a history", func(t *testing.T) {
		n := b.Flood(t, topics.Journal, 0)
		held := new(kafka.Held)
		i := &Instance{topics: topics, readers: newReaders(), kafka: []kgo.Opt{kgo.SeedBrokers(b.Brokers...), kgo.WithHooks(held)}}
		r, err := i.reader(t.Context())
		must(t, err)
		defer r.Close()
		r.AddConsumePartitions(map[string]map[int32]kgo.Offset{topics.Journal: {0: kgo.NewOffset().At(0)}})
		for read := 0; read < n; {
			fetches := r.poll(t.Context())
			must(t, fetches.Err())
			read += fetches.NumRecords()
		}
		held.Bounded(t, 1)
	})
}

// reply answers an order's request.
func (h *torn) reply(order, step string) {
	h.Helper()
	must(h, h.client.ProduceSync(h.Context(), &kgo.Record{
		Topic: h.topics.Replies, Partition: h.partition, Key: []byte(order),
		Value: fmt.Appendf(nil, `{"order":%q,"step":%q,"attempt":1,"status":"completed"}`, order, step),
	}).FirstErr())
}

// ended waits until an order has.
func (h *torn) ended(order string) {
	h.Helper()
	oracle.Until(h, "order "+order+" has ended", func() error {
		o, _, err := h.instance.Store().Order(h.instance.Partition(order), order)
		if err == nil && !o.State.Final() {
			err = errors.New("it has not")
		}
		return err
	})
}

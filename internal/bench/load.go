package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waybill-dev/waybill/events"
)

// load is the application: it submits orders and waits for their status.
type load struct {
	topics   *events.Topics
	shape    *Shape
	producer *kgo.Client
	statuses *kgo.Client

	next    atomic.Int64
	tokens  chan struct{} // one for each order that may be under way
	mu      sync.Mutex
	started map[string]time.Time
	done    []time.Duration // latencies, in order of completion
	arrived chan struct{}   // an order ended, when one at a time is measured
	failed  atomic.Pointer[error]

	received atomic.Int64 // orders that were accepted
	kafka    *container   // nil if nobody named one
	api      *site        // takes submissions in place of Kafka, unless it is nil
	asking   sync.WaitGroup
}

func newLoad(kafka []kgo.Opt, topics *events.Topics, partitions int32, shape *Shape) (*load, error) {
	l := &load{topics: topics, shape: shape, started: make(map[string]time.Time), arrived: make(chan struct{}, 1)}
	var err error
	if l.producer, err = kgo.NewClient(append(kafka[:len(kafka):len(kafka)],
		kgo.ProducerLinger(0), kgo.MaxBufferedRecords(1<<20), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))...); err != nil {
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	at := make(map[int32]kgo.Offset)
	for p := range partitions {
		at[p] = kgo.NewOffset().AtStart()
	}
	if l.statuses, err = kgo.NewClient(append(kafka[:len(kafka):len(kafka)],
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topics.Status: at}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))...); err != nil {
		l.producer.Close()
		return nil, fmt.Errorf("connect to Kafka: %w", err)
	}
	return l, nil
}

func (l *load) close() {
	l.asking.Wait()
	l.producer.Close()
	l.statuses.Close()
}

func (l *load) fail(err error) { l.failed.CompareAndSwap(nil, &err) }

func (l *load) err() error {
	if e := l.failed.Load(); e != nil {
		return *e
	}
	return nil
}

// measured begins the ids of the orders that are measured. No name of a topic has it: a pipe
// writes the id of another order wherever that of the first one stands.
const measured = "order-"

// order is the submission of the nth.
func (l *load) order(prefix string, n int64) *kgo.Record {
	return &kgo.Record{
		Topic: l.topics.Orders, Key: []byte(prefix + strconv.FormatInt(n, 10)),
		Value: []byte(`{"workflow":"bench","input":` + l.shape.input(n) + "}"),
	}
}

func (l *load) submit(ctx context.Context) {
	r := l.order(measured, l.next.Add(1))
	l.mu.Lock()
	l.started[string(r.Key)] = time.Now()
	l.mu.Unlock()
	l.produce(ctx, r)
}

// produce submits, and has the measurement fail if that is not taken.
func (l *load) produce(ctx context.Context, r *kgo.Record) {
	l.send(ctx, r, func(err error) { l.fail(fmt.Errorf("submit: %w", err)) })
}

// send submits, and says if Kafka does not take it. That the HTTP API does not has the measurement fail: nobody knows what
// became of it. What is asked of that is waited for, when all is measured, too.
func (l *load) send(ctx context.Context, r *kgo.Record, refused func(error)) {
	if l.api == nil {
		l.producer.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil && ctx.Err() == nil {
				refused(err)
			}
		})
		return
	}
	l.asking.Go(func() {
		asking, end := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer end()
		if err := l.api.submit(asking, r); err != nil && ctx.Err() == nil {
			l.fail(fmt.Errorf("submit over HTTP: %w", err))
		}
	})
}

// listen reads the status messages, and tells of the orders that have ended.
func (l *load) listen(ctx context.Context, ended func(id, status string, now time.Time, value []byte)) {
	for ctx.Err() == nil {
		fetches := l.statuses.PollFetches(ctx)
		now := time.Now()
		fetches.EachRecord(func(r *kgo.Record) {
			_, rest, _ := bytes.Cut(r.Value, []byte(`"status":"`))
			word, _, _ := bytes.Cut(rest, []byte(`"`))
			switch status := string(word); status {
			case events.StatusReceived:
				l.received.Add(1)
			case events.StatusCompensating:
			default:
				ended(string(r.Key), status, now, r.Value)
			}
		})
	}
}

// listening notes all orders that end, until end is called, with which the context ends.
func (l *load) listening(ctx context.Context) (until context.Context, end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { l.listen(ctx, l.ended) })
	return ctx, func() {
		cancel()
		running.Wait()
	}
}

// ended notes one of the orders of which so many are under way at a time.
func (l *load) ended(id, status string, now time.Time, value []byte) {
	if status != events.StatusCompleted && status != events.StatusCompensated {
		l.fail(fmt.Errorf("an order did not complete: %s", value))
		return
	}
	l.mu.Lock()
	start, ok := l.started[id]
	if ok {
		delete(l.started, id)
		l.done = append(l.done, now.Sub(start))
	}
	l.mu.Unlock()
	if !ok {
		l.fail(fmt.Errorf("order %s completed twice", id))
		return
	}
	select {
	case l.tokens <- struct{}{}:
	default:
	}
	select {
	case l.arrived <- struct{}{}:
	default:
	}
}

// one submits an order and waits until it has ended. The first one also waits until
// everything has started.
func (l *load) one(ctx context.Context) error {
	l.submit(ctx)
	select {
	case <-l.arrived:
		return l.err()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Minute):
		return errors.Join(errors.New("no order completed within a minute"), l.err())
	}
}

// start returns when everything has started, and some orders have warmed it up.
func (l *load) start(ctx context.Context, orders int) error {
	ctx, end := l.listening(ctx)
	defer end()
	for range orders {
		if err := l.one(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pile submits orders that wait for an agent that is not there, and returns once they do.
func (l *load) pile(ctx context.Context, orders int) error {
	ctx, end := l.listening(ctx)
	defer end()
	want := l.received.Load() + int64(orders)
	for n := range orders {
		l.produce(ctx, &kgo.Record{Topic: l.topics.Orders, Key: []byte("waits-" + strconv.Itoa(n)), Value: []byte(`{"workflow":"absent"}`)})
	}
	for l.received.Load() < want {
		if err := errors.Join(l.err(), wait(ctx, 10*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

// rest returns when no order is under way any more; after ten seconds in any case.
func (l *load) rest(ctx context.Context) error {
	ctx, end := l.listening(ctx)
	defer end()
	under := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.started)
	}
	for began := time.Now(); under() > 0 && time.Since(began) < 10*time.Second; {
		if err := errors.Join(l.err(), wait(ctx, 10*time.Millisecond)); err != nil {
			return err
		}
	}
	l.asking.Wait()
	return l.err()
}

// consumed is what Kafka's container has used; nil if nobody named one.
func (l *load) consumed(ctx context.Context) (*consumption, error) {
	if l.kafka == nil {
		return nil, nil
	}
	return l.kafka.read(ctx)
}

func (l *load) measure(ctx context.Context, o *Options, report *Report, written *writes) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	l.tokens = make(chan struct{}, o.InFlight)
	running.Go(func() { l.listen(ctx, l.ended) })

	l.take()
	for range o.Single {
		if err := l.one(ctx); err != nil {
			return err
		}
	}
	report.SingleP50, report.SingleP99 = percentiles(l.take())

	for len(l.tokens) < o.InFlight {
		l.tokens <- struct{}{}
	}
	submit := func() {
		for n := 0; o.Orders == 0 || n < o.Orders; n++ {
			select {
			case <-l.tokens:
				l.submit(ctx)
			case <-ctx.Done():
				return
			}
		}
	}
	if o.Orders == 0 {
		running.Go(submit)
		if err := wait(ctx, o.WarmUp); err != nil {
			return err
		}
	}
	kafka, err := l.consumed(ctx)
	if err != nil {
		return err
	}
	l.take()
	began, cpu, machine := time.Now(), processorTime(), theMachine()
	records, bytes, wire := written.read()
	requests, transactions := written.requests.Load(), written.transactions.Load()
	if o.Orders == 0 {
		if err := wait(ctx, o.Duration); err != nil {
			return err
		}
	} else {
		running.Go(submit)
		if err := l.await(ctx, o.Orders); err != nil {
			return err
		}
	}
	latencies := l.take()
	passed, used := time.Since(began), processorTime()-cpu
	report.Machine = theMachine().since(machine)
	records2, bytes2, wire2 := written.read()
	requests2, transactions2 := written.requests.Load(), written.transactions.Load()
	kafkas, err := l.consumed(ctx)
	if err != nil {
		return err
	}
	if err := l.err(); err != nil {
		return err
	}
	orders := float64(len(latencies))
	if orders == 0 {
		return errors.New("no order completed under load")
	}
	report.Seconds, report.Orders = passed.Seconds(), len(latencies)
	report.OrdersPerSecond = orders / passed.Seconds()
	report.P50, report.P99 = percentiles(latencies)
	report.RecordsPerOrder = float64(records2-records) / orders
	report.BytesPerOrder = float64(bytes2-bytes) / orders
	report.WireBytesPerOrder = float64(wire2-wire) / orders
	report.RequestsAnOrder = float64(requests2-requests) / orders
	report.TransactionsAnOrder = float64(transactions2-transactions) / orders
	report.CPU = used.Seconds() / passed.Seconds()
	report.CPUPerOrder = float64(used.Microseconds()) / orders
	report.Memory = residentMiB()
	if kafka != nil {
		report.Kafka = kafkas.since(kafka, len(latencies))
	}
	return nil
}

// await returns when that many orders have ended since take was last called.
func (l *load) await(ctx context.Context, orders int) error {
	for {
		l.mu.Lock()
		ended := len(l.done)
		l.mu.Unlock()
		if err := l.err(); err != nil || ended >= orders {
			return err
		}
		select {
		case <-l.arrived:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take returns the latencies of the orders that ended since it was last called.
func (l *load) take() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	done := l.done
	l.done = nil
	return done
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func percentiles(d []time.Duration) (p50, p99 float64) {
	slices.Sort(d)
	return quantile(d, 0.50), quantile(d, 0.99)
}

// quantile is in milliseconds, 0 of nothing.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return milliseconds(sorted[int(q*float64(len(sorted)-1))])
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// residentMiB is 0 where there is no /proc.
func residentMiB() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.Atoi(fields[1])
	return float64(pages) * float64(os.Getpagesize()) / (1 << 20)
}

// writes counts what the clients of this process wrote to Kafka, and what connections they have.
type writes struct{ records, bytes, wire, requests, transactions, all, connections atomic.Int64 }

func (w *writes) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err == nil {
		w.connections.Add(1)
	}
}

func (w *writes) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) {
	w.connections.Add(-1)
}

func (w *writes) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.ProduceBatchMetrics) {
	w.records.Add(int64(m.NumRecords))
	w.bytes.Add(int64(m.UncompressedBytes))
	w.wire.Add(int64(m.CompressedBytes))
}

func (w *writes) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err != nil {
		return
	}
	w.all.Add(1)
	switch {
	case kmsg.Key(key) == kmsg.Produce:
		w.requests.Add(1)
	case kmsg.Key(key) == kmsg.EndTxn:
		w.transactions.Add(1)
	}
}

func (w *writes) read() (records, bytes, wire int64) {
	return w.records.Load(), w.bytes.Load(), w.wire.Load()
}

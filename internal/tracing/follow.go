package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/projections"
)

// Journal makes the traces of orders from the journal, for one instance after the other. See docs/adr/0042.
type Journal struct {
	setup *Setup
	log   *slog.Logger
	since time.Time // where nobody said up to where a journal was read, it is read from here on

	sent, dropped, cut, skipped prometheus.Counter

	most     int           // what open orders may take in memory, in bytes
	atOnce   int           // spans that are sent together
	patience time.Duration // how long they are tried
	pause    time.Duration // before they are tried again, twice as long each time
}

const (
	// mark is the group whose offsets say up to where the spans of a journal were taken, behind the namespace.
	mark = "traces"
	// markEvery is how often that is said.
	markEvery = time.Second
	// longestPause is how long a collector that takes nothing is left alone.
	longestPause = 30 * time.Second
)

// Journal returns what makes the traces of orders; of nil it is nil.
func (s *Setup) Journal(metrics prometheus.Registerer, log *slog.Logger) *Journal {
	if s == nil {
		return nil
	}
	count := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		metrics.MustRegister(c)
		return c
	}
	return &Journal{
		setup: s, log: log, since: time.Now(), most: 64 << 20, atOnce: 512, patience: time.Hour, pause: time.Second,
		sent:    count("waybill_trace_spans_total", "Spans of orders that the collector has taken."),
		dropped: count("waybill_trace_spans_dropped_total", "Spans of orders that the collector did not take within an hour, or refused while it took others."),
		cut:     count("waybill_trace_orders_cut_total", "Orders of which spans could not be made, since what happened before is not known any more."),
		skipped: count("waybill_trace_records_skipped_total", "Records of the journal of which no spans were made, since it was trimmed behind those of which there were."),
	}
}

// source is an [orchestrator.Instance].
type source interface {
	Served() []int32
	Marks(ctx context.Context, group string) (map[int32]int64, error)
	Since(ctx context.Context, at time.Time) (map[int32]int64, error)
	Mark(ctx context.Context, group string, marks map[int32]int64) error
	History(ctx context.Context, id string, after uint64, limit int) (orchestrator.HistoryPage, error)
	Showing(id string) (*projections.Order, error)
}

// follower is a Journal at one instance.
type follower struct {
	*Journal
	instance source
	reader   lane.Journals
	orders   *orders
	reads    map[int32]int64 // from where each partition is read on whose spans before were taken
	marked   map[int32]int64
	at       time.Time           // when that was said
	gone     map[int32]bool      // what was marked there is not in the journal
	stuck    map[int32]time.Time // since when a record is tried
	wrong    throttle
}

// Run makes the traces of what the instance serves, until ctx ends. The instance must not be closed before that. Spans
// are made after their events are committed, and beside the lanes, which wait for none of it; where they were taken is
// marked behind that, so that what is not marked is made and sent once more, with the same ids. A nil Journal makes none.
func (j *Journal) Run(ctx context.Context, instance *orchestrator.Instance) error {
	if j == nil {
		return nil
	}
	f := &follower{
		Journal: j, instance: instance, reads: make(map[int32]int64), marked: make(map[int32]int64), gone: make(map[int32]bool), stuck: make(map[int32]time.Time),
		wrong: throttle{every: 10 * time.Second},
	}
	f.orders = newOrders(instance.Topics(), j.setup, j.most)
	f.orders.history, f.orders.origin = f.history, f.origin
	f.orders.lost = func(id string, why error) {
		f.cut.Inc()
		f.warn("spans of an order cannot be made: what happened before is not known any more", "order", id, "error", why)
	}
	var err error
	if f.reader, err = instance.Journals(); err != nil {
		return err
	}
	defer func() {
		for p := range f.reads { // kgo does not expect that a client is closed which fetches
			f.reader.Drop(p)
		}
		f.reader.Close()
	}()
	for ctx.Err() == nil {
		f.assign(ctx)
		f.take(ctx, f.reader.Poll(ctx))
		if time.Since(f.at) >= markEvery {
			f.mark(ctx)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	f.mark(last)
	return nil
}

// assign reads what the instance serves, and nothing else.
func (f *follower) assign(ctx context.Context) {
	serves := f.instance.Served()
	var begin []int32
	for _, p := range serves {
		if _, reading := f.reads[p]; !reading {
			begin = append(begin, p)
		}
	}
	for p := range f.reads {
		if !slices.Contains(serves, p) {
			f.drop(p)
		}
	}
	if len(begin) == 0 {
		return
	}
	marks, err := f.instance.Marks(ctx, mark)
	var since map[int32]int64
	if err == nil {
		since, err = f.instance.Since(ctx, f.since)
	}
	if err != nil {
		f.warn("no traces are made of partitions yet", "partitions", begin, "error", err)
		return
	}
	for _, p := range begin {
		at, said := marks[p]
		if !said || f.gone[p] {
			begins, known := since[p]
			if !known {
				continue
			}
			if said {
				f.skipped.Add(float64(max(0, begins-at)))
				f.log.Warn("the journal was trimmed behind what spans were made of: of what happened in between there are none", "partition", p, "from", at, "to", begins)
			}
			at = begins
		}
		delete(f.gone, p)
		f.reads[p] = at
		f.reader.Read(p, at)
	}
	f.mark(ctx) // from where on spans are owed, if nobody said so
}

func (f *follower) drop(p int32) {
	f.reader.Drop(p)
	f.orders.forget(p)
	delete(f.reads, p)
	delete(f.marked, p)
	delete(f.stuck, p)
}

// take makes and sends the spans of what was read.
func (f *follower) take(ctx context.Context, fetches kgo.Fetches) {
	defer func() { f.orders.ended = nil }()
	read := make(map[int32]int64) // up to where spans were made, and not all taken yet
	var again []int32
	fetches.EachPartition(func(fetched kgo.FetchTopicPartition) {
		p := fetched.Partition
		at, reads := f.reads[p]
		if !reads || ctx.Err() != nil {
			return
		}
		err := fetched.Err
		for _, r := range fetched.Records {
			if r.Offset < at {
				continue
			}
			if err = f.one(ctx, r); err != nil {
				break
			}
			read[p] = r.Offset + 1
			delete(f.stuck, p)
			if len(f.orders.ended) == 0 {
				maps.Copy(f.reads, read)
				clear(read)
			}
		}
		if err != nil && ctx.Err() == nil {
			f.warn("cannot read on for traces; trying again", "partition", p, "error", err)
			again = append(again, p)
			f.gone[p] = errors.Is(err, kerr.OffsetOutOfRange)
		}
	})
	if !f.send(ctx, 0) {
		return
	}
	maps.Copy(f.reads, read)
	if len(again) == 0 {
		return
	}
	f.mark(ctx)
	for _, p := range again { // assign has it read anew
		since := f.stuck[p]
		f.drop(p)
		f.stuck[p] = since
	}
	rest(ctx, f.pause)
}

// one makes the spans that end with a record, and sends them once there are many.
func (f *follower) one(ctx context.Context, r *kgo.Record) error {
	if r.Attrs.IsControl() {
		return nil
	}
	e, err := events.Decode[events.Event](r.Value)
	if err != nil {
		f.warn("a record of the journal cannot be read, and is passed over by traces", "partition", r.Partition, "offset", r.Offset, "error", err)
		return nil
	}
	if err := f.orders.take(ctx, r.Partition, &e); err != nil {
		if f.stuck[r.Partition].IsZero() {
			f.stuck[r.Partition] = time.Now()
		}
		if time.Since(f.stuck[r.Partition]) < f.patience {
			return fmt.Errorf("order %q: %w", e.Order, err)
		}
		f.orders.lost(e.Order, err)
	}
	if !f.send(ctx, f.atOnce) {
		return ctx.Err()
	}
	return nil
}

// send has the collector take what has ended, if that is so much or more, and tries for as long as it may. It returns
// false if ctx ended before.
func (f *follower) send(ctx context.Context, atLeast int) bool {
	spans := f.orders.ended
	if len(spans) < max(atLeast, 1) {
		return true
	}
	began, pause := time.Now(), f.pause
	for {
		err := f.setup.exporter.ExportSpans(ctx, spans)
		switch {
		case ctx.Err() != nil && err != nil:
			return false
		case err == nil:
			f.sent.Add(float64(len(spans)))
		case partly.MatchString(err.Error()): // it wants none of them again
			n := refused(err, len(spans))
			f.sent.Add(float64(len(spans) - n))
			f.dropped.Add(float64(n))
			f.warn("the collector refused some of the spans that it was sent", "spans", n, "error", err)
		case time.Since(began) < f.patience:
			f.warn("the collector takes no spans; trying again", "for", time.Since(began).Round(time.Second), "error", err)
			f.mark(ctx) // up to what it took before
			rest(ctx, pause)
			pause = min(2*pause, longestPause)
			continue
		default:
			f.dropped.Add(float64(len(spans)))
			f.log.Warn("the collector did not take some spans for too long: they are dropped", "spans", len(spans), "after", f.patience, "error", err)
		}
		f.orders.ended = nil
		return true
	}
}

// partly is what the exporter says where the collector has taken what it wants of a request, with how many it did not:
// there is no other sign of that.
var partly = regexp.MustCompile(`(?s)OTLP partial success: .*\((-?[0-9]+) spans rejected\)`)

// refused is how many of so many spans a collector did not want that took others.
func refused(err error, of int) int {
	n, wrong := strconv.Atoi(partly.FindStringSubmatch(err.Error())[1])
	if wrong != nil {
		return of // more than there are
	}
	return min(max(n, 0), of)
}

// mark says up to where the spans were taken, where that has changed.
func (f *follower) mark(ctx context.Context) {
	changed := make(map[int32]int64)
	for p, at := range f.reads {
		if before, there := f.marked[p]; !there || before != at {
			changed[p] = at
		}
	}
	f.at = time.Now()
	if len(changed) == 0 {
		return
	}
	if err := f.instance.Mark(ctx, mark, changed); err != nil {
		if ctx.Err() == nil {
			f.warn("cannot mark which spans were taken; after a restart they are sent again", "error", err)
		}
		return
	}
	maps.Copy(f.marked, changed)
}

// origin is what the store knows of an order.
func (f *follower) origin(id string) (accepted time.Time, traceparent string, known bool) {
	o, err := f.instance.Showing(id)
	if err != nil || o.Beside() {
		return accepted, "", false
	}
	return o.AcceptedAt, o.Traceparent, true
}

// history returns the events of an order before one.
func (f *follower) history(ctx context.Context, id string, before uint64) (all []events.Event, err error) {
	for uint64(len(all)) < before-1 {
		page, err := f.instance.History(ctx, id, uint64(len(all)), int(min(before-1-uint64(len(all)), orchestrator.MaxHistory)))
		if err != nil {
			return nil, err
		}
		if len(page.Events) == 0 {
			return nil, errBehind
		}
		if first := page.Events[0].Seq; first != uint64(len(all))+1 {
			return nil, fmt.Errorf("%w: of order %q it begins with event %d", projections.ErrNotFound, id, first)
		}
		all = append(all, page.Events...)
	}
	return all, nil
}

// errBehind says that the store has not folded what the journal has.
var errBehind = errors.New("what happened to the order before is not known here yet")

// warn says something now and then.
func (f *follower) warn(what string, about ...any) {
	if f.wrong.pass() {
		f.log.Warn(what, about...)
	}
}

// rest waits, unless ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// throttle lets something pass now and then.
type throttle struct {
	every time.Duration
	last  time.Time
}

func (t *throttle) pass() bool {
	if now := time.Now(); now.Sub(t.last) >= t.every {
		t.last = now
		return true
	}
	return false
}

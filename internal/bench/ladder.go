package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waybill-dev/waybill/events"
)

// Rung is what came of orders that arrived at a fixed rate, whatever became of those
// before. Latencies are from the moment at which an order was due to be submitted to the
// caller's reading of the status message with its end.
type Rung struct {
	Rate    float64 `json:"rate_per_s"`
	Seconds float64 `json:"seconds"`
	// Orders are those that were due in that time and were submitted, Reached how many
	// ended in a second of it.
	Orders  int     `json:"orders"`
	Reached float64 `json:"reached_per_s"`
	P50     float64 `json:"p50_ms"`
	P90     float64 `json:"p90_ms"`
	P99     float64 `json:"p99_ms"`
	Max     float64 `json:"max_ms"`
	// Late is how long after it was due an order was submitted, at most.
	Late float64 `json:"late_max_ms"`
	// Failed are orders that were refused or wait for an operator. They have no latency.
	// Compensated are those that were undone, as was asked for.
	Failed      int `json:"failed"`
	Compensated int `json:"compensated"`
	// BacklogBefore is how many orders were open when the measured time began, Backlog when
	// it was over. Settled is after how many seconds none was any more, or nobody waited
	// for longer: Unfinished are those of Orders that had not ended then. Theirs counts as
	// a latency until then.
	BacklogBefore int     `json:"backlog_before"`
	Backlog       int     `json:"backlog"`
	Settled       float64 `json:"settled_after_s"`
	Unfinished    int     `json:"unfinished"`
	// Carried says that neither backlog was more than arrives in a second, and that all
	// orders ended. If not, the latencies say how long the measurement was, more than
	// what they say of Waybill.
	Carried bool `json:"carried"`
	// Cut says that arrivals ceased because too many orders were open.
	Cut bool `json:"cut,omitzero"`
	// Of all that was measured while that went on. An order is one that ended.
	CPU             float64 `json:"cpu_cores"`
	CPUPerOrder     float64 `json:"cpu_us_per_order"`
	Memory          float64 `json:"memory_mib"`
	RequestsAnOrder float64 `json:"produce_requests_per_order"`
	// TransactionsAnOrder are those that were ended, by commit or not.
	TransactionsAnOrder float64 `json:"transactions_per_order"`
	// MarkersAnOrder are the markers by which Kafka ends a transaction, one in each partition to which it wrote; 0 if Kafka
	// did not say how many offsets its topics had.
	MarkersAnOrder float64 `json:"markers_per_order,omitzero"`
	Machine        Machine `json:"machine,omitzero"` // where the system is Linux
	Kafka          *Usage  `json:"kafka,omitempty"`
	Pages          *Pages  `json:"pages,omitempty"`
}

// Usage is what Kafka's container used in the measured time.
type Usage struct {
	CPU         float64 `json:"cpu_cores"`
	CPUPerOrder float64 `json:"cpu_us_per_order"`
	// Memory without what Linux can drop: files that were read.
	Memory float64 `json:"memory_mib"`
}

type ladder struct {
	*load
	*Options

	written  *writes
	admin    *kadm.Client
	consoles *consoles // nil if there are none
}

// climb measures one rate after the other. What was not carried has to end before the
// next one, or that and all behind it are left out.
func climb(rates []float64, measure func(rate float64) (*Rung, error)) (rungs []Rung, leftOut []float64, err error) {
	for n, rate := range rates {
		r, err := measure(rate)
		if err != nil {
			return nil, nil, fmt.Errorf("at %g orders/s: %w", rate, err)
		}
		rungs = append(rungs, *r)
		if r.Unfinished > 0 {
			return rungs, rates[n+1:], nil
		}
	}
	return rungs, nil, nil
}

func (l *ladder) rung(ctx context.Context, rate float64) (*Rung, error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	a := arrivals{time.Now(), rate}
	all := l.WarmUp + l.Duration
	p := newPassages(a.began.Add(l.WarmUp), a.began.Add(all), l.openLimit())
	running.Go(func() {
		l.listen(ctx, func(id, status string, now time.Time, value []byte) {
			if !p.end(id, status, now) {
				l.fail(fmt.Errorf("order %s ended twice: %s", id, value))
			}
		})
	})
	arrived := make(chan error, 1)
	running.Go(func() {
		arrived <- a.each(ctx, a.within(all), func(due time.Time) bool { return l.arrive(ctx, p, due) })
	})

	if err := wait(ctx, time.Until(p.from)); err != nil {
		return nil, err
	}
	before, err := l.used(ctx, p)
	if err != nil {
		return nil, err
	}
	if l.consoles != nil {
		l.consoles.since(0)
	}
	if err := <-arrived; err != nil {
		return nil, err
	}
	if err := wait(ctx, time.Until(p.until())); err != nil {
		return nil, err
	}
	after, err := l.used(ctx, p)
	if err != nil {
		return nil, err
	}
	var pages *Pages
	if l.consoles != nil {
		pages = l.consoles.since(after.at.Sub(before.at))
	}
	last := time.Now()
	atMost := max(all, 10*time.Second)
	for p.left() > 0 && time.Since(last) < atMost {
		if err := errors.Join(l.err(), wait(ctx, 10*time.Millisecond)); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	r := p.rung(a, now)
	r.Settled, r.Pages = now.Sub(last).Seconds(), pages
	after.since(&before, &r)
	return &r, l.err()
}

// arrive submits an order.
func (l *ladder) arrive(ctx context.Context, p *passages, due time.Time) bool {
	r := l.order(measured, l.next.Add(1))
	if !p.begin(string(r.Key), due, time.Now()) {
		return false
	}
	l.send(ctx, r, func(error) { p.end(string(r.Key), events.StatusFailed, time.Now()) })
	return true
}

// used is what was used by now.
type used struct {
	at                              time.Time
	orders                          int // that ended
	cpu                             time.Duration
	requests, transactions, records int64
	offsets                         int64 // of records and markers; -1 if Kafka did not say
	memory                          float64
	machine                         machine
	kafka                           *consumption
}

func (l *ladder) used(ctx context.Context, p *passages) (u used, err error) {
	if u.kafka, err = l.consumed(ctx); err != nil {
		return u, err
	}
	u.offsets = l.offsets(ctx)
	u.at, u.orders, u.cpu, u.memory, u.machine = time.Now(), p.endedSoFar(), processorTime(), residentMiB(), theMachine()
	u.requests, u.transactions = l.written.requests.Load(), l.written.transactions.Load()
	u.records = l.written.records.Load()
	return u, nil
}

// offsets are how many the run's topics have had. What of them is no record is a marker. All else is measured where Kafka does
// not say, too.
func (l *ladder) offsets(ctx context.Context) (n int64) {
	names, err := topicsOf(ctx, l.admin, l.topics.Namespace)
	if err == nil {
		n, err = length(ctx, l.admin, names...)
	}
	if err != nil {
		l.Logger.Warn("the markers of transactions are not counted", "error", err)
		return -1
	}
	return n
}

// since notes what was used since before.
func (u *used) since(before *used, r *Rung) {
	orders := float64(u.orders - before.orders)
	each := func(n float64) float64 {
		if orders == 0 {
			return 0
		}
		return n / orders
	}
	cpu := u.cpu - before.cpu
	r.CPU, r.CPUPerOrder, r.Memory = cpu.Seconds()/u.at.Sub(before.at).Seconds(), each(float64(cpu.Microseconds())), u.memory
	r.Machine = u.machine.since(before.machine)
	r.RequestsAnOrder = each(float64(u.requests - before.requests))
	r.TransactionsAnOrder = each(float64(u.transactions - before.transactions))
	if u.offsets >= 0 && before.offsets >= 0 {
		r.MarkersAnOrder = each(float64(u.offsets - before.offsets - (u.records - before.records)))
	}
	if u.kafka != nil {
		r.Kafka = u.kafka.since(before.kafka, u.orders-before.orders)
	}
}

package bench

import (
	"slices"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/events"
)

// passages is what becomes of the orders of a rung. Measured are those that are due in
// its measured time, however late they were submitted and whenever they end.
type passages struct {
	from, to time.Time // the measured time
	limit    int       // of orders that are open

	mu     sync.Mutex
	open   map[string]time.Time // when it was due, by its id
	took   []time.Duration      // of the measured that ended well
	late   time.Duration        // how late one was submitted, at most
	failed int                  // of the measured
	undone int                  // of took
	ended  int                  // in the measured time, whenever they were due
	all    int                  // that ended, whenever
	before int                  // of all, how many were open when the measured time began
	after  int                  // and when it was over
	cut    bool                 // the limit was reached, and nothing is submitted any more
}

func newPassages(from, to time.Time, limit int) *passages {
	return &passages{from: from, to: to, limit: limit, open: make(map[string]time.Time)}
}

func (p *passages) measures(at time.Time) bool { return !at.Before(p.from) && at.Before(p.to) }

// spans says whether an order that was due and ended then was open at a time between.
func spans(due, end, at time.Time) bool { return due.Before(at) && !end.Before(at) }

// begin notes an order that is submitted now, or returns false if too many are open.
func (p *passages) begin(id string, due, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) >= p.limit {
		p.cut = true
		if now.Before(p.to) {
			p.to = now
		}
		return false
	}
	p.open[id] = due
	if p.measures(due) {
		p.late = max(p.late, now.Sub(due))
	}
	return true
}

// end notes that an order has ended, or returns false if it is none of these.
func (p *passages) end(id, status string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	due, ok := p.open[id]
	if !ok {
		return false
	}
	delete(p.open, id)
	p.all++
	if spans(due, now, p.from) {
		p.before++
	}
	if spans(due, now, p.to) {
		p.after++
	}
	if p.measures(now) {
		p.ended++
	}
	switch {
	case !p.measures(due):
	case status == events.StatusCompleted:
		p.took = append(p.took, now.Sub(due))
	case status == events.StatusCompensated:
		p.took = append(p.took, now.Sub(due))
		p.undone++
	default:
		p.failed++
	}
	return true
}

// until is when the measured time ends.
func (p *passages) until() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.to
}

func (p *passages) endedSoFar() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all
}

func (p *passages) left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

// rung says what came of it by now. An order that is still open took at least as long as
// it is. Carried is a rate at which no more are open than arrive in a second.
func (p *passages) rung(a arrivals, now time.Time) Rung {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := Rung{Rate: a.rate, Cut: p.cut, Failed: p.failed, Compensated: p.undone, Late: milliseconds(p.late)}
	r.BacklogBefore, r.Backlog = p.before, p.after
	took := slices.Clone(p.took)
	for _, due := range p.open {
		if spans(due, now, p.from) {
			r.BacklogBefore++
		}
		if spans(due, now, p.to) {
			r.Backlog++
		}
		if p.measures(due) {
			took = append(took, now.Sub(due))
			r.Unfinished++
		}
	}
	r.Orders = len(took) + p.failed
	if measured := p.to.Sub(p.from); measured > 0 {
		r.Seconds = measured.Seconds()
		r.Reached = float64(p.ended) / r.Seconds
	}
	slices.Sort(took)
	r.P50, r.P90, r.P99, r.Max = quantile(took, 0.5), quantile(took, 0.9), quantile(took, 0.99), quantile(took, 1)
	r.Carried = !p.cut && len(p.open) == 0 && float64(max(r.BacklogBefore, r.Backlog)) <= max(1, a.rate)
	return r
}

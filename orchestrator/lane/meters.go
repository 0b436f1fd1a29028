package lane

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// Meters count and measure what the lanes of an instance have committed, since the process
// began: what came to nothing is in none of them but [Meters.failed]. They are a
// [prometheus.Collector], safe for concurrent use. Make them with [NewMeters].
type Meters struct {
	// Names as they stand in labels.
	Workflows, Agents, Limits Names

	accepted, ended, errored, ticks             *prometheus.CounterVec
	held, alerts, deadLetters, failed           prometheus.Counter
	attempts                                    *prometheus.HistogramVec
	timerLag, inputWait, commit, events, inputs prometheus.Histogram
	all                                         []prometheus.Collector
}

// NewMeters returns meters that stand at nothing.
func NewMeters() *Meters {
	m := new(Meters)
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.all = append(m.all, c)
		return c
	}
	counter := func(name, help string) prometheus.Counter { return counters(name, help).WithLabelValues() }
	histograms := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		m.all = append(m.all, h)
		return h
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return histograms(name, help, buckets).WithLabelValues().(prometheus.Histogram) //nolint:forcetypeassert // it is one
	}
	m.accepted = counters("waybill_orders_accepted_total", "Orders that were accepted.", "workflow")
	m.ended = counters("waybill_orders_ended_total", "Orders that ended, by the state in which they did. The Rejected are all of other, since they may name any workflow. One that was Processed and does a step of another may be Compensated later, too.", "workflow", "state")
	m.errored = counters("waybill_orders_errored_total", "Times that an order stopped in Error, where it waits for an operator.", "workflow")
	m.held = counter("waybill_orders_held_total", "Times that an order was held, because deciding on it failed.")
	m.alerts = counter("waybill_alerts_raised_total", "Alerts of orders and of agents that operators were sent, with reminders.")
	m.deadLetters = counter("waybill_dead_letters_total", "Inputs that were put aside, among the dead letters.")
	m.ticks = counters("waybill_schedule_ticks_total", "Ticks of schedules, with those of backfills, that began an order (started) or passed without one (skipped).", "outcome")
	m.attempts = histograms("waybill_attempt_seconds", "How long attempts of steps and undos took, from when their agent was asked: completed, failed, expired, or abandoned, since their order did not need them any more. Without those that began before a takeover, and had less time than their workflow gives.",
		[]float64{.005, .025, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}, "agent", "outcome")
	times := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	m.timerLag = histogram("waybill_timer_lag_seconds", "How late it was decided on what was due: deadlines, retries, ends of sleeps, ticks. Without what waits until its agent can be asked.", times)
	m.inputWait = histogram("waybill_input_wait_seconds", "How long that input had waited of each transaction which had waited longest, from the time of its record until it was decided on.", times)
	m.commit = histogram("waybill_commit_seconds", "How long transactions took to commit.", times[:12])
	sizes := []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500}
	m.events = histogram("waybill_commit_events", "Events of each transaction.", sizes)
	m.inputs = histogram("waybill_commit_inputs", "Inputs on which each transaction decides, with orders of which something was due.", sizes)
	m.failed = counter("waybill_commits_failed_total", "Transactions that did not commit, or of which this is not known. What they had decided is decided anew.")
	return m
}

// Describe implements [prometheus.Collector].
func (m *Meters) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(to)
	}
}

// Collect implements [prometheus.Collector].
func (m *Meters) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(to)
	}
}

// Totals are what was counted since the process began, by workflow as it stands in labels.
type Totals struct {
	Accepted, Ended, Errored map[string]float64 // Ended without those that were rejected
	Waited, Late             Sum                // as waybill_input_wait_seconds and waybill_timer_lag_seconds
}

// Sum is how often something was measured, and how many seconds that was in all.
type Sum struct {
	Count   uint64
	Seconds float64
}

// Totals returns them as they are now.
func (m *Meters) Totals() Totals {
	return Totals{byWorkflow(m.accepted), byWorkflow(m.ended), byWorkflow(m.errored), sumOf(m.inputWait), sumOf(m.timerLag)}
}

func byWorkflow(c *prometheus.CounterVec) map[string]float64 {
	all := make(map[string]float64)
	to := make(chan prometheus.Metric)
	go func() {
		defer close(to)
		c.Collect(to)
	}()
	for metric := range to {
		workflow, state, n := "", "", written(metric)
		for _, label := range n.GetLabel() {
			switch label.GetName() {
			case "workflow":
				workflow = label.GetValue()
			case "state":
				state = label.GetValue()
			}
		}
		if state != string(projections.Rejected) {
			all[workflow] += n.GetCounter().GetValue()
		}
	}
	return all
}

func sumOf(h prometheus.Histogram) Sum {
	n := written(h).GetHistogram()
	return Sum{n.GetSampleCount(), n.GetSampleSum()}
}

func written(metric prometheus.Metric) *dto.Metric {
	n := new(dto.Metric)
	if err := metric.Write(n); err != nil {
		panic(err) // it is ours, and right
	}
	return n
}

const (
	// MaxNames is how many names of a kind stand in labels.
	MaxNames = 100
	// OtherNames is the label of all others.
	OtherNames = "other"
)

// Names are those that stand in labels: the first [MaxNames] that came, of workflows and agents those that
// the catalogue has first. The zero value is ready, and safe for concurrent use.
type Names struct {
	mu    sync.Mutex
	known map[string]bool
}

// Label is the label of a name: itself, or [OtherNames].
func (n *Names) Label(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.known[name]:
	case len(n.known) >= MaxNames:
		return OtherNames
	case n.known == nil:
		n.known = map[string]bool{name: true}
	default:
		n.known[name] = true
	}
	return name
}

// tally is what the [Meters] are told of a batch, once it is committed.
type tally struct {
	orders                 map[became]int
	attempts               []attempted
	late                   []time.Duration
	oldest, decided        time.Time // when the oldest input was written, and decided on; zero if there was none
	held, started, skipped int
}

// became is what became of an order: accepted if state is empty.
type became struct {
	workflow string
	state    projections.State
}

// attempted is an attempt that ended.
type attempted struct {
	topic, outcome string
	took           time.Duration
}

// reads notes an input that is decided on.
func (t *tally) reads(written, now time.Time) {
	if t.oldest.IsZero() || written.Before(t.oldest) {
		t.oldest, t.decided = written, now
	}
}

// note notes what a decision made of an order, which is nil before if there was none.
func (t *tally) note(before *projections.Order, d *decide.Decision) {
	o := d.Order
	if before == nil {
		before = &projections.Order{}
	}
	switch {
	case o.Schedule != nil:
		was := projections.Schedule{}
		if before.Schedule != nil {
			was = *before.Schedule
		}
		t.started += max(0, o.Schedule.Started-was.Started)
		t.skipped += max(0, o.Schedule.Skipped-was.Skipped)
		return
	case o.Beside():
		return
	}
	if before.Hold == nil && o.Hold != nil {
		t.held++
	}
	if before.State == o.State {
		return
	}
	if t.orders == nil {
		t.orders = make(map[became]int)
	}
	workflow := o.Workflow
	if o.State == projections.Rejected { // whatever somebody wrote
		workflow = OtherNames
	}
	if before.State == "" && o.State != projections.Rejected {
		t.orders[became{workflow, ""}]++
	}
	if o.State == projections.Error || o.State.Final() {
		t.orders[became{workflow, o.State}]++
	}
}

// outcome is how an attempt ended of which is known what became of its step, or undo.
func outcome(was, is *projections.Work) string {
	switch {
	case is == nil:
		return "abandoned"
	case is.FailureCount > was.FailureCount && is.Unanswered:
		return "expired"
	case is.FailureCount > was.FailureCount:
		return "failed"
	case is.Attempt > was.Attempt, is.State == projections.Completed, is.State == projections.Repeating:
		return "completed"
	}
	return "abandoned"
}

// committed takes what a batch did.
func (m *Meters) committed(l *Lane, b *Batch) {
	m.commit.Observe(b.took.Seconds())
	m.events.Observe(float64(b.sealed.Events))
	m.inputs.Observe(float64(len(b.units)))
	t := &b.tally
	if !t.oldest.IsZero() {
		m.inputWait.Observe(max(0, t.decided.Sub(t.oldest).Seconds()))
	}
	for which, n := range t.orders {
		workflow := m.Workflows.Label(which.workflow)
		switch which.state {
		case "":
			m.accepted.WithLabelValues(workflow).Add(float64(n))
		case projections.Error:
			m.errored.WithLabelValues(workflow).Add(float64(n))
		default:
			m.ended.WithLabelValues(workflow, string(which.state)).Add(float64(n))
		}
	}
	var last attempted // most are like the one before
	var like prometheus.Observer
	for _, a := range t.attempts {
		if a.topic != last.topic || a.outcome != last.outcome {
			last, like = a, m.attempts.WithLabelValues(m.Agents.Label(l.topics.Agent(a.topic)), a.outcome)
		}
		like.Observe(max(0, a.took.Seconds()))
	}
	for _, late := range t.late {
		m.timerLag.Observe(max(0, late.Seconds()))
	}
	m.held.Add(float64(t.held))
	m.ticks.WithLabelValues("started").Add(float64(t.started))
	m.ticks.WithLabelValues("skipped").Add(float64(t.skipped))
	for _, r := range b.records {
		switch r.Topic {
		case l.topics.DeadLetters:
			m.deadLetters.Inc()
		case l.topics.Alerts:
			m.alerts.Inc()
		}
	}
}

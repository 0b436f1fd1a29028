// Package agentmetrics measures an agent for Prometheus:
//
//	observer, err := agentmetrics.New(prometheus.DefaultRegisterer, "payment")
//	...
//	agents.Serve(ctx, agents.Config{Agent: "payment", Observer: observer, ...}, operations)
//
// docs/metrics.md has all metrics.
package agentmetrics

import (
	"cmp"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-dev/waybill/agents"
)

// Observer is an [agents.Observer] with metrics. Make it with [New], for one [agents.Serve] at a time.
type Observer struct {
	state    atomic.Value // an agents.State
	states   *prometheus.GaugeVec
	queued   prometheus.Gauge
	late     prometheus.Counter
	waited   prometheus.Histogram
	underWay *prometheus.GaugeVec
	calls    *prometheus.HistogramVec
}

// New returns one that has its metrics with a registerer. It fails if there are such metrics of an agent of
// this name.
func New(registerer prometheus.Registerer, agent string) (*Observer, error) {
	of := prometheus.Labels{"agent": agent}
	buckets := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	o := &Observer{
		states: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "waybill_agent_state", ConstLabels: of,
			Help: "1 for the state in which the instance is: waiting (for its topic), serving, resting (its breaker is open) or trying (half open).",
		}, []string{"state"}),
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "waybill_agent_queue", ConstLabels: of, Help: "Requests that are read and not begun.",
		}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "waybill_agent_requests_late_total", ConstLabels: of, Help: "Requests that were not begun, since their complete-by had passed.",
		}),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "waybill_agent_request_wait_seconds", ConstLabels: of, Buckets: buckets, Help: "How long after they were written to Kafka requests were begun, by the clocks of both sides.",
		}),
		underWay: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "waybill_agent_calls_under_way", ConstLabels: of, Help: "Calls of operations that have not ended.",
		}, []string{"operation"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "waybill_agent_call_seconds", ConstLabels: of, Buckets: buckets,
			Help: "How long calls of operations took: completed, failed, permanent (failed for good), late (the complete-by passed) or later (somebody else answers). A request may be several.",
		}, []string{"operation", "outcome"}),
	}
	var failed error
	for _, c := range []prometheus.Collector{o.states, o.queued, o.late, o.waited, o.underWay, o.calls} {
		failed = errors.Join(failed, registerer.Register(c))
	}
	o.Turned(agents.Waiting)
	return o, failed
}

// State is in which the instance is.
func (o *Observer) State() agents.State { return o.state.Load().(agents.State) } //nolint:forcetypeassert // nothing else is stored

// Turned implements [agents.Observer].
func (o *Observer) Turned(state agents.State) {
	o.state.Store(state)
	for _, s := range agents.States {
		is := 0.0
		if s == state {
			is = 1
		}
		o.states.WithLabelValues(string(s)).Set(is)
	}
}

// Queued implements [agents.Observer].
func (o *Observer) Queued(n int) { o.queued.Set(float64(n)) }

// Taken implements [agents.Observer].
func (o *Observer) Taken(waited time.Duration, late bool) {
	if late {
		o.late.Inc()
		return
	}
	o.waited.Observe(max(0, waited.Seconds()))
}

// Began implements [agents.Observer].
func (o *Observer) Began(operation string) { o.underWay.WithLabelValues(known(operation)).Inc() }

// Ended implements [agents.Observer].
func (o *Observer) Ended(operation string, outcome agents.Outcome, took time.Duration) {
	o.underWay.WithLabelValues(known(operation)).Dec()
	o.calls.WithLabelValues(known(operation), string(outcome)).Observe(took.Seconds())
}

// known is the label of an operation.
func known(operation string) string { return cmp.Or(operation, "unknown") }

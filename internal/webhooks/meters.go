package webhooks

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// meters measure what becomes of alerts, by webhook.
type meters struct {
	sent, failed, givenUp *prometheus.CounterVec
	behind                *prometheus.GaugeVec
	waiting               *ages
}

func newMeters() meters {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"webhook"})
	}
	return meters{
		sent:    counter("waybill_webhook_sent_total", "Alerts that the receiver has taken."),
		failed:  counter("waybill_webhook_attempts_failed_total", "Attempts to tell the receiver of an alert that it did not take."),
		givenUp: counter("waybill_webhook_given_up_total", "Alerts that were given up, since the receiver did not take them for too long."),
		behind: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "waybill_webhook_behind_records", Help: "Records of the alerts' topic that have not been told or passed over yet, of the partitions from which this instance tells.",
		}, []string{"webhook"}),
		waiting: &ages{
			what: prometheus.NewDesc("waybill_webhook_oldest_seconds", "Seconds since the alert was raised that the receiver does not take, 0 if it takes them.", []string{"webhook"}, nil),
			all:  make(map[string]time.Time),
		},
	}
}

// ages are how long ago something was, by webhook, when that is asked; 0 for the zero time.
type ages struct {
	what *prometheus.Desc
	mu   sync.Mutex
	all  map[string]time.Time
}

func (a *ages) set(webhook string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all[webhook] = at
}

// Describe implements [prometheus.Collector].
func (a *ages) Describe(to chan<- *prometheus.Desc) { to <- a.what }

// Collect implements [prometheus.Collector].
func (a *ages) Collect(to chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for webhook, at := range a.all {
		age := 0.0
		if !at.IsZero() {
			age = time.Since(at).Seconds()
		}
		to <- prometheus.MustNewConstMetric(a.what, prometheus.GaugeValue, age, webhook)
	}
}

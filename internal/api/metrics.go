package api

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"

	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// metrics registers /metrics, and what the server itself has to say there.
func (s *Server) metrics(mux *http.ServeMux, registry *prometheus.Registry) {
	registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
		s.gauge("waybill_partitions", "Partitions of the namespace.", func(i *orchestrator.Instance) float64 { return float64(i.Partitions()) }),
		s.gauge("waybill_owned_partitions", "Partitions that this instance serves.", func(i *orchestrator.Instance) float64 { return float64(i.Owned()) }),
		s.gauge("waybill_behind_records", "Records of its journal that this instance has not folded yet, of the partition of which most are missing; not of those that it leaves to others; -1 if that is not known.", func(i *orchestrator.Instance) float64 { return float64(i.Behind()) }),
		s.gauge("waybill_ready", "1 if the instance serves all that it was given.", func(i *orchestrator.Instance) float64 {
			if i.Ready() == nil {
				return 1
			}
			return 0
		}),
		agentGauges(asked(s, (*orchestrator.Instance).Agents)),
		repeatCounts(asked(s, (*orchestrator.Instance).Repeats)),
		callerGauges(asked(s, (*orchestrator.Instance).Callers)),
	)
	if s.access != nil {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "waybill_access_file_wrong", Help: "1 if the access file is wrong as it is now, so that what it said before counts on.",
		}, func() float64 {
			if s.access.Wrong() != nil {
				return 1
			}
			return 0
		}))
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
}

// callerGauges are those of all callers' own topics together, over the partitions that the
// instance serves: there may be as many topics as submissions name.
type callerGauges func() map[string]lane.Caller

var (
	callersOwed    = ofCallers("waybill_callers_owed", "Topics of callers that wait for status messages.")
	callersFailing = ofCallers("waybill_callers_failing", "Topics of callers that wait for status messages, and did not take what they were given last.")
	callersOldest  = ofCallers("waybill_callers_oldest_seconds", "Seconds since the oldest event of which a caller's topic was not told yet; 0 if there is none.")
)

func ofCallers(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help+" Of the partitions that this instance serves.", nil, nil)
}

// Describe implements [prometheus.Collector].
func (callerGauges) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{callersOwed, callersFailing, callersOldest} {
		to <- desc
	}
}

// Collect implements [prometheus.Collector].
func (callers callerGauges) Collect(to chan<- prometheus.Metric) {
	owed, failing, oldest := 0, 0, 0.0
	for _, c := range callers() {
		owed++
		if c.Failing {
			failing++
		}
		oldest = max(oldest, secondsSince(c.Since))
	}
	for desc, value := range map[*prometheus.Desc]float64{callersOwed: float64(owed), callersFailing: float64(failing), callersOldest: oldest} {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
}

// agentGauges are those of each agent, over the partitions that the instance serves.
type agentGauges func() map[string]lane.Agent

var (
	agentWaiting  = ofAgent("waybill_agent_waiting", "Steps and undos that wait until the agent can be asked.")
	agentOldest   = ofAgent("waybill_agent_waiting_seconds", "Seconds since that could have begun which waits longest until the agent can be asked, 0 if nothing waits.")
	agentUnderWay = ofAgent("waybill_agent_under_way", "Requests that are with the agent.")
	agentWindow   = ofAgent("waybill_agent_window", "Requests that may queue at the agent; 0 while it gives no sign and is only probed, none while nothing waits and nothing is under way.")
	agentSilent   = ofAgent("waybill_agent_silent_seconds", "Seconds for which the agent has answered nothing in time, once an operator was called for that, else 0; the longest.")
)

func ofAgent(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help+" Of the partitions that this instance serves.", []string{"agent"}, nil)
}

// Describe implements [prometheus.Collector].
func (agentGauges) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{agentWaiting, agentOldest, agentUnderWay, agentWindow, agentSilent} {
		to <- desc
	}
}

// Collect implements [prometheus.Collector].
func (agents agentGauges) Collect(to chan<- prometheus.Metric) {
	for name, agent := range agents() {
		gauge := func(desc *prometheus.Desc, value float64) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, name)
		}
		gauge(agentWaiting, float64(agent.Waiting))
		gauge(agentOldest, secondsSince(agent.WaitingSince))
		gauge(agentUnderWay, float64(agent.UnderWay))
		if agent.Waiting+agent.UnderWay > 0 {
			gauge(agentWindow, agent.Window)
		}
		gauge(agentSilent, secondsSince(agent.SilentSince))
	}
}

// repeatCounts are of each agent's replies to requests that had a token.
type repeatCounts func() map[string]lane.Repeat

var agentReplies = prometheus.NewDesc("waybill_agent_replies_total",
	"Replies to requests that had a token: repeated, missing (without it), wrong (with another), or unknown (this instance has no keys). Those that this instance read.",
	[]string{"agent", "token"}, nil)

// Describe implements [prometheus.Collector].
func (repeatCounts) Describe(to chan<- *prometheus.Desc) { to <- agentReplies }

// Collect implements [prometheus.Collector].
func (counts repeatCounts) Collect(to chan<- prometheus.Metric) {
	for agent, is := range counts() {
		for token, n := range map[string]uint64{"repeated": is.Repeated, "missing": is.Missing, "wrong": is.Wrong, "unknown": is.Unknown} {
			to <- prometheus.MustNewConstMetric(agentReplies, prometheus.CounterValue, float64(n), agent, token)
		}
	}
}

// secondsSince is 0 for a time that is not there, or is still to come.
func secondsSince(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return max(0, time.Since(t).Seconds())
}

// gauge is 0 while there is no instance to ask.
func (s *Server) gauge(name, help string, value func(*orchestrator.Instance) float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, asked(s, value))
}

// asked is what the instance says, zero while there is none to ask.
func asked[T any](s *Server, what func(*orchestrator.Instance) T) func() T {
	return func() (said T) {
		u, why := s.borrow()
		if why != nil {
			return said
		}
		defer u.by.Done()
		return what(u.Instance)
	}
}

// KafkaMetrics returns an option that counts what all clients that are made
// with it do, together.
func KafkaMetrics(registry *prometheus.Registry) kgo.Opt {
	return kgo.WithHooks(&clients{Metrics: kprom.NewMetrics("waybill_kafka", kprom.Registry(cumulative{registry}),
		kprom.FetchAndProduceDetail(kprom.ByNode, kprom.UncompressedBytes))}) // not by topic: there may be as many as agents, and as callers name
}

// clients shares one set of metrics between clients. An instance has several
// for each partition, and they come and go with it; kprom itself wants one set
// for each.
type clients struct {
	*kprom.Metrics
	once sync.Once
}

// OnNewClient registers the metrics, for the first client only.
func (c *clients) OnNewClient(client *kgo.Client) {
	c.once.Do(func() { c.Metrics.OnNewClient(client) })
}

// OnClientClosed keeps the metrics: other clients go on with them.
func (c *clients) OnClientClosed(*kgo.Client) {}

// cumulative leaves out gauges, which would show the first client only.
type cumulative struct{ *prometheus.Registry }

// Register registers what is no gauge.
func (c cumulative) Register(collector prometheus.Collector) error {
	if _, ok := collector.(prometheus.GaugeFunc); ok {
		return nil
	}
	return c.Registry.Register(collector)
}

// MustRegister registers what is no gauge.
func (c cumulative) MustRegister(all ...prometheus.Collector) {
	for _, collector := range all {
		if err := c.Register(collector); err != nil {
			panic(err)
		}
	}
}

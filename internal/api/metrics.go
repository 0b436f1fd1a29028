package api

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/projections"
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
		s.gauge("waybill_readers_blocked_seconds", "Seconds since this instance first saw a transaction open that keeps readers from going on, as far as it knows: somebody's, on inputs of the partitions that it serves, or one of its own of which Kafka has yet to write a marker, or nobody may; 0 if none was seen open twice, ten seconds apart, or thrice if it waits for a marker.", func(i *orchestrator.Instance) float64 {
			return secondsSince(i.Blocked())
		}),
		s.gauge("waybill_ready", "1 if the instance serves all that it was given, and hears from Kafka.", func(i *orchestrator.Instance) float64 {
			if i.Ready() == nil {
				return 1
			}
			return 0
		}),
		agentGauges(asked(s, func(i *orchestrator.Instance) map[string]lane.Agent {
			return labelled(i.Agents(), &i.Meters().Agents, (*lane.Agent).Add)
		})),
		repeatCounts(asked(s, func(i *orchestrator.Instance) map[string]lane.Repeat {
			return labelled(i.Repeats(), &i.Meters().Agents, (*lane.Repeat).Add)
		})),
		gauges{s},
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
	agentAsked    = ofAgent("waybill_agent_oldest_request_seconds", "Seconds since that was asked for which is with the agent for longest, 0 if nothing is.")
	agentUnderWay = ofAgent("waybill_agent_under_way", "Requests that are with the agent.")
	agentWindow   = ofAgent("waybill_agent_window", "Requests that may queue at the agent; 0 while it gives no sign and is only probed, none while nothing waits and nothing is under way.")
	agentSilent   = ofAgent("waybill_agent_silent_seconds", "Seconds for which the agent has answered nothing in time, once an operator was called for that, else 0; the longest.")
)

func ofAgent(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help+" Of the partitions that this instance serves.", []string{"agent"}, nil)
}

// Describe implements [prometheus.Collector].
func (agentGauges) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{agentWaiting, agentOldest, agentAsked, agentUnderWay, agentWindow, agentSilent} {
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
		gauge(agentAsked, secondsSince(agent.AskedSince))
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

// labelled are those by names as they stand in labels: those that are one there are added.
func labelled[T any](all map[string]T, names *lane.Names, add func(*T, T)) map[string]T {
	by := make(map[string]T, min(len(all), lane.MaxNames+1))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		label := names.Label(name)
		sum := by[label]
		add(&sum, all[name])
		by[label] = sum
	}
	return by
}

// gauges say what waits, and how far the instance is with each partition. They are left out as long as
// that is not known.
type gauges struct{ *Server }

var (
	ordersOpen    = prometheus.NewDesc("waybill_orders", "Orders that have not ended. Of the partitions that this instance serves.", []string{"workflow", "state"}, nil)
	alertsOpen    = prometheus.NewDesc("waybill_alerts_open", "Orders in Error with an open alert. Of the partitions that this instance serves.", nil, nil)
	approvalsOpen = prometheus.NewDesc("waybill_approvals_open", "Orders that wait for people to decide. Of the partitions that this instance serves.", nil, nil)
	ordersHeld    = prometheus.NewDesc("waybill_orders_held", "Orders that are held, and limits, schedules and keys, because deciding on them failed, until an operator releases them. Of the partitions that this instance serves.", nil, nil)
	uncounted     = prometheus.NewDesc("waybill_partitions_uncounted", "Partitions that this instance serves of which it is not known yet how many orders wait: they are not in waybill_orders, waybill_alerts_open, waybill_approvals_open and waybill_orders_held.", nil, nil)
	limitWaiting  = prometheus.NewDesc("waybill_limit_waiting", "Attempts that wait for a place of the limit. Of limits with their home in a partition that this instance serves.", []string{"limit"}, nil)
	limitTaken    = prometheus.NewDesc("waybill_limit_taken", "Places of the limit that are taken. Of limits with their home in a partition that this instance serves.", []string{"limit"}, nil)
	folded        = prometheus.NewDesc("waybill_partition_folded_records", "Up to which offset of the partition's journal this instance has folded it: with those that it has to fold, how far a rebuild is.", []string{"partition"}, nil)
	behind        = prometheus.NewDesc("waybill_partition_behind_records", "Records of the partition's journal that this instance has not folded yet; -1 if that is not known.", []string{"partition"}, nil)
)

// Describe implements [prometheus.Collector].
func (gauges) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{ordersOpen, alertsOpen, approvalsOpen, ordersHeld, uncounted, limitWaiting, limitTaken, folded, behind} {
		to <- desc
	}
}

// collectWithin is how long reading the state store for metrics may take.
const collectWithin = 2 * time.Second

// Collect implements [prometheus.Collector].
func (g gauges) Collect(to chan<- prometheus.Metric) {
	u, why := g.borrow()
	if why != nil {
		return
	}
	defer u.by.Done()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	counts, missing := u.Counts()
	gauge(uncounted, float64(missing))
	if owned := u.Owned(); missing < owned || owned == 0 {
		by := make(map[projections.Standing]int)
		for _, which := range slices.SortedFunc(maps.Keys(counts.Orders), func(a, b projections.Standing) int { return strings.Compare(a.Workflow, b.Workflow) }) {
			by[projections.Standing{Workflow: u.Meters().Workflows.Label(which.Workflow), State: which.State}] += counts.Orders[which]
		}
		for which, n := range by {
			gauge(ordersOpen, float64(n), which.Workflow, string(which.State))
		}
		for desc, n := range stopped(&counts) {
			gauge(desc, float64(n))
		}
	}
	ctx, cancel := context.WithTimeout(u.alive, collectWithin)
	defer cancel()
	if limits, err := u.OwnLimits(ctx); err == nil {
		for label, of := range placesOf(limits, &u.Meters().Limits) {
			gauge(limitWaiting, float64(of.waiting), label)
			gauge(limitTaken, float64(of.taken), label)
		}
	}
	if folds, err := u.Folds(); err == nil {
		for p, f := range folds {
			gauge(folded, float64(f.Folded), strconv.Itoa(p))
			gauge(behind, float64(f.Behind), strconv.Itoa(p))
		}
	}
}

// stopped are how many orders wait for somebody, by for what.
func stopped(counts *projections.Counts) map[*prometheus.Desc]int {
	return map[*prometheus.Desc]int{alertsOpen: counts.Alerts, approvalsOpen: counts.Approvals, ordersHeld: counts.Held}
}

// places are those of limits that stand under one label.
type places struct{ waiting, taken int }

// placesOf are the places of limits by their names, as these stand in labels.
func placesOf(limits []*projections.Order, names *lane.Names) map[string]places {
	by := make(map[string]places, min(len(limits), lane.MaxNames+1))
	for _, o := range limits {
		label := names.Label(events.LimitOf(o.ID))
		of := by[label]
		by[label] = places{of.waiting + o.Places.Waiting, of.taken + o.Places.Taken}
	}
	return by
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

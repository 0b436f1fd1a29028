package lane

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/decide"
	"github.com/waybill-dev/waybill/projections"
)

// measured is a lane whose meters are read.
type measured struct {
	*testing.T
	*Lane
	registry *prometheus.Registry
	offset   int64
}

func measure(t *testing.T, l *Lane) *measured {
	m := &measured{T: t, Lane: l, registry: prometheus.NewRegistry()}
	m.registry.MustRegister(l.cfg.Meters)
	return m
}

// shows wants that meters stand at these values; of a histogram its name with _count or _sum. Those that
// are not named stand at 0.
func (m *measured) shows(when string, want map[string]float64) {
	m.Helper()
	families, err := m.registry.Gather()
	must(m.T, err)
	is := make(map[string]float64)
	for _, f := range families {
		for _, one := range f.GetMetric() {
			var labels []string
			for _, l := range one.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			name := strings.TrimPrefix(f.GetName(), "waybill_") + strings.TrimSuffix("{"+strings.Join(labels, ",")+"}", "{}")
			if h := one.GetHistogram(); h != nil {
				is[name+"_count"], is[name+"_sum"] = float64(h.GetSampleCount()), h.GetSampleSum()
			} else {
				is[name] = one.GetCounter().GetValue()
			}
		}
	}
	for name, n := range want {
		if is[name] != n {
			m.Errorf("%s: %s is %v, not %v", when, name, is[name], n)
		}
	}
	for name, n := range is {
		if _, named := want[name]; !named && n != 0 && !strings.HasPrefix(name, "commit_") && !strings.HasSuffix(name, "_sum") && !strings.HasPrefix(name, "input_wait_") {
			m.Errorf("%s: %s is %v", when, name, n)
		}
	}
}

// decides has the lane decide on inputs, and begin to commit that.
func (m *measured) decides(inputs ...*kgo.Record) {
	m.Helper()
	for _, r := range inputs {
		m.offset++
		r.Offset, r.Timestamp = m.offset, time.Now().Add(-time.Minute)
	}
	must(m.T, m.decide(inputs))
	if !m.begin() {
		m.Fatal("there is nothing to commit")
	}
}

func (m *measured) commits(inputs ...*kgo.Record) {
	m.Helper()
	m.decides(inputs...)
	m.inflight.ended = m.time.Wall()
	must(m.T, m.conclude(nil))
}

func (m *measured) reply(order, step, rest string) *kgo.Record {
	return typed(m.topics.Replies, "", order, fmt.Sprintf(`{"order":%q,"step":%q,"attempt":1,%s}`, order, step, rest))
}

// What a lane commits is measured: orders by what became of them, attempts by how they ended. What is
// decided and does not come to be is not.
func TestWhatIsCommittedIsMeasured(t *testing.T) {
	l, w := newLane(t)
	w.format = events.JournalFormat
	w.flows.Add(parseFlow(t, "workflow: pair\nsteps:\n  - {name: a, agent: left, after: []}\n  - {name: b, agent: right, after: [], exhausted: error, retry: {attempts: 2, backoff: 1ms}}\n"))
	m := measure(t, l)
	here, _ := l.keys()
	submission := func(order, workflow string) *kgo.Record {
		return typed(l.topics.Orders, "", order, fmt.Sprintf(`{"workflow":%q}`, workflow))
	}
	m.decides(submission(here, "pair"))
	m.shows("decided", nil)
	must(t, m.conclude(nil))
	want := map[string]float64{"orders_accepted_total{pair}": 1, "commit_seconds_count": 1, "commit_events_sum": 3, "commit_inputs_sum": 1}
	m.shows("accepted", want)

	m.commits(m.reply(here, "a", `"status":"completed"`))
	want["attempt_seconds{left,completed}_count"] = 1
	delete(want, "commit_seconds_count")
	delete(want, "commit_events_sum")
	delete(want, "commit_inputs_sum")
	m.shows("a step is done", want)

	m.commits(m.reply(here, "b", `"status":"failed","error":{"code":"busy","message":"not now"}`))
	want["attempt_seconds{right,failed}_count"] = 1
	m.shows("an attempt failed, and another follows", want)

	second := here
	for n := 0; second == here || l.byKey.Of([]byte(second)) != l.partition; n++ {
		second = fmt.Sprint("p-", n)
	}
	m.commits(submission(second, "pair"))
	m.commits(m.reply(second, "a", `"status":"completed"`), m.reply(second, "b", `"status":"completed"`), typed(l.topics.Replies, "", here, `{`))
	want["orders_accepted_total{pair}"], want["orders_ended_total{Processed,pair}"], want["dead_letters_total"] = 2, 1, 1
	want["attempt_seconds{left,completed}_count"], want["attempt_seconds{right,completed}_count"] = 2, 1
	m.shows("another has ended, and an input was put aside", want)
}

// An attempt that expires is measured as one, and how late that was decided on.
func TestWhatExpiresIsMeasured(t *testing.T) {
	l, _ := overdue(t)
	m := measure(t, l)
	want := map[string]float64{"orders_accepted_total{order}": 1}
	m.shows("before", want)
	l.looks(t)
	if !l.begin() {
		t.Fatal("nothing is decided")
	}
	m.shows("decided", want)
	must(t, l.conclude(nil))
	for _, agent := range []string{"payment", "shipping", "office"} {
		want["attempt_seconds{"+agent+",expired}_count"] = 1
	}
	want["timer_lag_seconds_count"] = 3
	want["orders_errored_total{order}"], want["alerts_raised_total"] = 1, 1
	m.shows("expired", want)
	families, err := m.registry.Gather()
	must(t, err)
	for _, f := range families {
		if late := f.GetMetric()[0].GetHistogram().GetSampleSum(); f.GetName() == "waybill_timer_lag_seconds" && (late < 3*3000 || late > 3*3700) {
			t.Errorf("three attempts of half a minute began an hour ago, and they expired %v s late in all", late)
		}
	}
}

// A transaction that does not commit counts as that, and as nothing else.
func TestWhatIsAbortedIsNotMeasured(t *testing.T) {
	l, _ := newLane(t)
	m := measure(t, l)
	here, _ := l.keys()
	m.decides(typed(l.topics.Orders, "", here, `{"workflow":"order"}`))
	if err := l.conclude(errors.New("fenced")); err == nil {
		t.Fatal("the lane goes on")
	}
	m.shows("aborted", map[string]float64{"commits_failed_total": 1})
}

// Who submits what no workflow is makes up no labels.
func TestRejectedOrdersMakeUpNoLabels(t *testing.T) {
	l, _ := newLane(t)
	m := measure(t, l)
	here, _ := l.keys()
	m.commits(typed(l.topics.Orders, "", here, `{"workflow":"made-up"}`))
	m.shows("rejected", map[string]float64{"orders_ended_total{Rejected,other}": 1})
}

// Names in labels are the first hundred, however many come.
func TestNamesInLabelsAreBounded(t *testing.T) {
	var names Names
	different := make(map[string]bool)
	for range 2 {
		for n := range 10_000 {
			label := names.Label(fmt.Sprint("w-", n))
			if different[label] = true; (n < MaxNames) != (label == fmt.Sprint("w-", n)) {
				t.Fatalf("the label of the name %d is %q", n, label)
			}
		}
	}
	if len(different) != MaxNames+1 || !different[OtherNames] {
		t.Errorf("there are %d labels", len(different))
	}
}

// How an attempt ended shows by what became of its step, also where the next one has begun.
func TestOutcomesOfAttempts(t *testing.T) {
	was := projections.Work{State: projections.Running, Attempt: 2, FailureCount: 1}
	for want, is := range map[string]*projections.Work{
		"completed": {State: projections.Completed, Attempt: 2, FailureCount: 1},
		"failed":    {State: projections.Running, Attempt: 3, FailureCount: 2},
		"expired":   {State: projections.Expired, Attempt: 2, FailureCount: 2, Unanswered: true},
		"abandoned": {State: projections.Skipped, Attempt: 2, FailureCount: 1},
	} {
		if got := outcome(&was, is); got != want {
			t.Errorf("%+v is %s, not %s", is, got, want)
		}
	}
	if got := outcome(&was, &projections.Work{State: projections.Running, Attempt: 3, FailureCount: 1}); got != "completed" {
		t.Errorf("one that is done again is %s", got)
	}
	if got := outcome(&was, nil); got != "abandoned" {
		t.Errorf("one that is not there any more is %s", got)
	}
}

// Ticks of schedules count by what became of them, and no schedule does as an order; an order that is held
// counts once.
func TestWhatIsNotedOfADecision(t *testing.T) {
	var of tally
	schedule := func(started, skipped int) *projections.Order {
		return &projections.Order{State: projections.Processing, Workflow: "w", Schedule: &projections.Schedule{Started: started, Skipped: skipped}}
	}
	of.note(nil, &decide.Decision{Order: schedule(1, 0)})
	of.note(schedule(1, 0), &decide.Decision{Order: schedule(2, 7)})
	if of.started != 2 || of.skipped != 7 || len(of.orders) > 0 {
		t.Errorf("of a schedule that began 2 orders and skipped 7 ticks is noted: %+v", of)
	}
	sound := &projections.Order{State: projections.Processing, Workflow: "w"}
	held := &projections.Order{State: projections.Error, Workflow: "w", Hold: new(projections.Hold)}
	of.note(sound, &decide.Decision{Order: held})
	of.note(held, &decide.Decision{Order: held})
	if of.held != 1 || of.orders[became{"w", projections.Error}] != 1 {
		t.Errorf("of an order that is held is noted: %+v", of)
	}
}

// The totals are those of the meters, by workflow, and an order that was rejected has not ended.
func TestTotals(t *testing.T) {
	m := NewMeters()
	m.accepted.WithLabelValues("a").Add(2)
	m.accepted.WithLabelValues("b").Add(3)
	m.ended.WithLabelValues("a", string(projections.Processed)).Add(1)
	m.ended.WithLabelValues("a", string(projections.Cancelled)).Add(4)
	m.ended.WithLabelValues("b", string(projections.Rejected)).Add(5)
	m.errored.WithLabelValues("b").Inc()
	m.inputWait.Observe(.5)
	m.inputWait.Observe(1)
	m.timerLag.Observe(2)
	want := Totals{map[string]float64{"a": 2, "b": 3}, map[string]float64{"a": 5}, map[string]float64{"b": 1}, Sum{2, 1.5}, Sum{1, 2}}
	if is := m.Totals(); !reflect.DeepEqual(is, want) {
		t.Errorf("%+v, not %+v", is, want)
	}
}

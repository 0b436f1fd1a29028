package lane

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/window"
)

// quiet is a lane with a clock, on which steps wait for an agent that says nothing.
type quiet struct {
	*Lane
	world *still
	now   time.Time
	said  bytes.Buffer
}

func newQuiet(t *testing.T, flow string, orders int) *quiet {
	t.Helper()
	l, world := newLane(t)
	q := &quiet{Lane: l, world: world, now: events.Time(time.Now())}
	l.at(&q.now)
	l.time.Timer = func() time.Time { return q.now }
	l.log = slog.New(slog.NewTextHandler(&q.said, &slog.HandlerOptions{Level: slog.LevelWarn})) // as `waybill dev` does
	world.flows.Add(parseFlow(t, flow))
	world.away[l.topics.Requests("phone")] = "it does not exist"
	l.waitFor(t, orders)
	l.wrote(t)
	return q
}

// alerts are those that the lane raises while time passes, a second at a time.
func (q *quiet) alerts(t *testing.T, d time.Duration) (all []events.Alert) {
	t.Helper()
	for until := q.now.Add(d); q.now.Before(until); {
		q.now = q.now.Add(time.Second)
		q.listen()
		for _, r := range q.current.records {
			if r.Topic == q.topics.Alerts {
				a, err := events.Decode[events.Alert](r.Value)
				must(t, err)
				all = append(all, a)
			}
		}
		q.commits(t)
	}
	return all
}

// answered has an answer be read to a step of one of the orders.
func (q *quiet) answered(t *testing.T) {
	t.Helper()
	for s := range q.away.steps {
		must(t, q.decide([]*kgo.Record{typed(q.topics.Replies, "", s.order, fmt.Sprintf(`{"order":%q,"step":"call","attempt":1,"status":"completed"}`, s.order))}))
		q.commits(t)
		return
	}
}

// An agent that answers other lanes of the instance has too much to do: this one waits for
// longer before it calls an operator, and says so. One that answers them too late is silent.
func TestABusyAgentIsNotSilent(t *testing.T) {
	for _, inTime := range []bool{true, false} {
		q := newQuiet(t, callFlow, 40)
		topic := q.topics.Requests("phone")
		delete(q.world.away, topic)
		q.agents.window(q.Lane, topic).Asked("call", time.Hour, q.now, q.now)
		other := window.New(1, 0, 0, q.cfg.Signs.Of(topic))
		var all []events.Alert
		for waited := time.Duration(0); waited < busyLeast-time.Second; waited += 10 * time.Second {
			if inTime {
				other.Asked("call", time.Minute, q.now, q.now)
				other.Answered("call", time.Minute, true, q.now, q.now, q.now, q.now)
			} else {
				other.Heard(q.now)
			}
			all = append(all, q.alerts(t, 10*time.Second)...)
		}
		if !inTime {
			if len(all) != 1 || strings.Contains(all[0].Reason, "other partitions") {
				t.Errorf("it answers all too late, and the lane raised %v", all)
			}
			continue
		}
		if len(all) > 0 {
			t.Errorf("before it was time it raised %v", all)
		}
		if all = q.alerts(t, 20*time.Second); len(all) != 1 || !strings.Contains(all[0].Reason, "it answers for other partitions") || !strings.Contains(all[0].Action, "more of them") {
			t.Errorf("it raised %v", all)
		}
	}
}

// An agent that answers nothing for a minute, while something waits for it, is one alert,
// and again one only after it has answered.
func TestAnAgentIsSilent(t *testing.T) {
	q := newQuiet(t, callFlow, 40)
	since := q.now.Add(time.Second) // it is looked at every second
	if all := q.alerts(t, time.Minute); len(all) > 0 {
		t.Errorf("within the minute it raised %v", all)
	}
	all := q.alerts(t, time.Hour)
	if len(all) != 1 {
		t.Fatalf("it raised %d alerts: %v", len(all), all)
	}
	for _, want := range []string{"agent phone has answered nothing in time since " + string(events.AppendTime(nil, since)), "40 steps wait", "it does not exist"} {
		if !strings.Contains(all[0].Reason, want) {
			t.Errorf("the alert does not say %q: %s", want, all[0].Reason)
		}
	}
	if all[0].Order != "" || !strings.Contains(all[0].Action, "waybill.requests.phone") {
		t.Errorf("it says to do %q, about order %q", all[0].Action, all[0].Order)
	}
	// Repeated answers are signs, too.
	q.answered(t)
	if !strings.Contains(q.said.String(), "silent no more") {
		t.Errorf("nobody hears that it answered: %s", &q.said)
	}
	if all := q.alerts(t, time.Minute-time.Second); len(all) > 0 {
		t.Errorf("a minute after an answer it raised %v", all)
	}
	if all := q.alerts(t, time.Hour); len(all) != 1 {
		t.Errorf("after the answer it raised %d alerts", len(all))
	}
}

// One that works for longer than a minute is not silent for that.
func TestLongWorkIsNoSilence(t *testing.T) {
	q := newQuiet(t, "workflow: call\nsteps: [{name: call, agent: phone, timeout: 1h}]", 3)
	if all := q.alerts(t, time.Hour); len(all) > 0 {
		t.Errorf("within the timeout it raised %v", all)
	}
	if all := q.alerts(t, time.Minute); len(all) != 1 {
		t.Errorf("behind it it raised %d alerts", len(all))
	}
}

// What nobody waits for any more is forgotten, after a while: a probe waits for its turn
// in between.
func TestASilenceIsForgotten(t *testing.T) {
	q := newQuiet(t, callFlow, 1)
	topic := q.topics.Requests("phone")
	line := q.away.topics[topic]
	q.alerts(t, 40*time.Second)
	delete(q.away.topics, topic) // as if it were on its way, and had expired
	q.alerts(t, 15*time.Second)
	q.away.topics[topic] = line
	if all := q.alerts(t, 10*time.Second); len(all) != 1 {
		t.Fatalf("with a pause in between it raised %d alerts", len(all))
	}
	delete(q.away.topics, topic)
	q.alerts(t, time.Minute+2*time.Second)
	if !strings.Contains(q.said.String(), "nothing is wanted") {
		t.Errorf("nobody hears that it is over: %s", &q.said)
	}
	q.away.topics[topic] = line
	if all := q.alerts(t, time.Minute); len(all) > 0 {
		t.Errorf("in another minute it raised %v", all)
	}
}

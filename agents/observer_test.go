package agents_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/agents/agentmetrics"
)

// gathered is what metrics of an agent say; of a histogram how many there were.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "waybill_agent_")
			for _, l := range m.GetLabel() {
				if l.GetName() != "agent" {
					name += " " + l.GetValue()
				}
			}
			all[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// Calls are measured by operation and outcome, requests by how long they waited, and the state of the instance
// follows its breaker.
func TestWhatAnAgentDoesIsMeasured(t *testing.T) {
	k := newKafka(t, 1)
	registry := prometheus.NewRegistry()
	observer, err := agentmetrics.New(registry, "payment")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agentmetrics.New(registry, "payment"); err == nil {
		t.Error("there are two of one agent with a registerer")
	}
	if observer.State() != agents.Waiting {
		t.Errorf("before it serves the instance is %s", observer.State())
	}
	config := k.config()
	config.Concurrency = 1 // in the order in which they are asked
	config.Observer, config.Breaker = observer, &agents.Breaker{Failures: 2, Window: 2, Delay: time.Hour}
	underWay := make(chan float64, 1)
	k.serve(config, agents.Operations{
		"charge": agents.Do(func(context.Context, agents.Request[any]) (any, error) {
			underWay <- gathered(t, registry)["calls_under_way charge"]
			return nil, nil
		}),
		"break": agents.Do(func(context.Context, agents.Request[any]) (any, error) { return nil, errors.New("away") }),
		"deny": agents.Do(func(context.Context, agents.Request[any]) (any, error) {
			return nil, agents.Permanent("no", errors.New("no"))
		}),
	})
	late := request("o-late", "charge", "")
	late.CompleteBy = time.Now().Add(-time.Minute)
	k.ask(late)
	for i, operation := range []string{"charge", "deny", "made-up"} {
		k.ask(request(fmt.Sprint("o-", i), operation, ""))
		k.reply()
	}
	if n := <-underWay; n != 1 {
		t.Errorf("%v calls are under way within one", n)
	}
	is := gathered(t, registry)
	for name, n := range map[string]float64{
		"call_seconds charge completed": 1, "call_seconds deny permanent": 1, "call_seconds unknown permanent": 1,
		"calls_under_way charge": 0, "request_wait_seconds": 3, "requests_late_total": 1, "queue": 0,
		"state serving": 1, "state resting": 0,
	} {
		if is[name] != n {
			t.Errorf("%s is %v, not %v", name, is[name], n)
		}
	}
	for i := range 2 {
		k.ask(request(fmt.Sprint("b-", i), "break", ""))
		k.reply()
	}
	if is := gathered(t, registry); is["state resting"] != 1 || is["state serving"] != 0 || is["call_seconds break failed"] != 2 || observer.State() != agents.Resting {
		t.Errorf("once its breaker is open the instance is %s: %v", observer.State(), is)
	}
}

package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
)

// V6: two supervisors, both alive, and one of them cut off for a while: one acts
// on an order at a time, and every expiry is counted once.
//
// V7: what a scan costs follows what expired. That is shown where scans can be
// seen: TestV7AScanReadsOnlyWhatExpired in projections.
func TestSupervisorsNeverFight(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		wire := &cable{}
		one := w.Run("i-1", t.TempDir(), through(wire), briefly)
		t.Cleanup(wire.plug)
		two := w.Run("i-2", t.TempDir(), briefly)
		w.share(one, two)
		const n = 24
		id := func(k int) string { return fmt.Sprintf("o-%d", k) }
		for k := range n { // each is alone with its agent: what others wait for, too, uses up no attempt
			w.Register(one, fmt.Sprintf("workflow: silent-%d\nsteps: [{name: call, agent: nobody-%[1]d, timeout: 200ms, retry: {attempts: 4, backoff: 100ms, multiplier: 1}}]", k))
			w.Submit(id(k), fmt.Sprintf(`{"workflow":"silent-%d"}`, k))
		}
		for k := range n { // some have expired, of both
			w.order(two, id(k), func(o *projections.Order) bool { return o.FailureCount > 0 })
		}
		wire.pull()
		w.owns(two)
		wire.plug()
		for k := range n {
			if o := w.order(two, id(k), in(projections.Error)); o.FailureCount != 4 || o.Steps[0].FailureCount != 4 {
				t.Errorf("order %s counts %d failures, its step %d", id(k), o.FailureCount, o.Steps[0].FailureCount)
			}
		}
		books := w.Audit()
		for k := range n {
			for attempt := 1; attempt <= 4; attempt++ {
				got := books.Count(id(k), func(e *events.Event) bool { return e.Type == events.StepExpired && e.Attempt == attempt })
				if got != 1 {
					t.Errorf("attempt %d of %s expired %d times", attempt, id(k), got)
				}
			}
		}
	})
}

// V1, S4: the supervisor looks at the states of steps only: two workflows that
// have nothing in common but their shape are dealt with in the same way, whatever
// their orders are about.
func TestTheSupervisorKnowsNoBusiness(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		const shape = `
workflow: %[1]s
steps:
  - {name: %[1]s-a, agent: %[1]s, do: %[2]s, undo: un%[2]s, timeout: 1h, retry: {attempts: 2, backoff: 10ms}}
  - {name: %[1]s-b, agent: %[1]s, do: %[2]s, timeout: 30ms, retry: {attempts: 2, backoff: 10ms}, exhausted: compensate}
`
		var told []string
		for name, x := range map[string]struct{ do, input string }{
			"surgery": {"operate", `{"patient":{"age":70}}`},
			"bakery":  {"bake", `"\u0000 nothing that anybody could read"`},
		} {
			w.Register(i, fmt.Sprintf(shape, name, x.do))
			agent := w.Hand(name)
			w.Submit(name, `{"workflow":"`+name+`","input":`+x.input+`}`)
			agent.Does(name, name+"-a", busy)
			agent.Does(name, name+"-a", done)
			agent.Undoes(name, name+"-a", done) // the second step is never answered
			w.order(i, name, in(projections.Compensated))
			var all []string
			for _, e := range w.history(name) {
				all = append(all, fmt.Sprintf("%s %s %d", e.Type, strings.TrimPrefix(e.Step, name), e.Attempt))
			}
			told = append(told, strings.Join(all, "\n"))
		}
		if told[0] != told[1] {
			t.Errorf("one is\n%s\nthe other\n%s", told[0], told[1])
		}
	})
}

// members are the ids of a group's members.
func (w *world) members(group string) []string {
	w.Helper()
	all, err := w.Admin.DescribeGroups(w.Context(), group)
	if err != nil {
		w.Fatal(err)
	}
	var ids []string
	for _, m := range all[group].Members {
		ids = append(ids, m.MemberID)
	}
	return ids
}

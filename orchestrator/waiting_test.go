package orchestrator

import (
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/orchestrator/lane"
)

// owing is a lane that owes callers something.
type owing struct {
	ends
	to map[string]lane.Caller
}

func (o owing) Callers() map[string]lane.Caller { return o.to }

// What a topic is owed by several partitions is of one topic: since the first of them, and
// it fails if it does for one.
func TestLanesAreSummedByCaller(t *testing.T) {
	first := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	i := &Instance{members: newMembership(nil, 12, slog.New(slog.DiscardHandler))}
	for p, to := range []map[string]lane.Caller{
		{"shop": {Since: first.Add(time.Minute)}, "new": {}}, {"shop": {Failing: true}, "mall": {Since: first}}, {"shop": {Since: first}}, {"shop": {Since: first.Add(time.Hour)}},
	} {
		i.members.owned[int32(p)] = &ownership{lane: owing{to: to}}
	}
	if got, want := i.Callers(), (map[string]lane.Caller{"shop": {Failing: true, Since: first}, "mall": {Since: first}, "new": {}}); !maps.Equal(got, want) {
		t.Errorf("they say %+v, and not %+v", got, want)
	}
}

// asks is a lane that has asked an agent.
type asks struct {
	ends
	of lane.Agent
}

func (a asks) Agents() map[string]lane.Agent { return map[string]lane.Agent{"phone": a.of} }

// An agent is silent since the first of the partitions says so.
func TestLanesAreSummedByAgent(t *testing.T) {
	first := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	i := &Instance{members: newMembership(nil, 12, slog.New(slog.DiscardHandler))}
	for p, a := range []lane.Agent{
		{Waiting: 1, UnderWay: 2, Window: 3}, {Waiting: 1, SilentSince: first.Add(time.Minute)}, {SilentSince: first}, {Waiting: 5, SilentSince: first.Add(time.Hour)},
	} {
		i.members.owned[int32(p)] = &ownership{lane: asks{of: a}}
	}
	if got, want := i.Agents()["phone"], (lane.Agent{Waiting: 7, UnderWay: 2, Window: 3, SilentSince: first}); got != want {
		t.Errorf("they say %+v, and not %+v", got, want)
	}
}

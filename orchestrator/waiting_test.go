package orchestrator

import (
	"log/slog"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/orchestrator/lane"
)

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

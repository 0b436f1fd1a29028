package orchestrator

import (
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/orchestrator/lane"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/oracle"
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
		{Waiting: 1, WaitingSince: first.Add(time.Second), UnderWay: 2, Window: 3},
		{Waiting: 1, WaitingSince: first, SilentSince: first.Add(time.Minute)},
		{SilentSince: first},
		{Waiting: 5, WaitingSince: first.Add(time.Hour), SilentSince: first.Add(time.Hour)},
	} {
		i.members.owned[int32(p)] = &ownership{lane: asks{of: a}}
	}
	if got, want := i.Agents()["phone"], (lane.Agent{Waiting: 7, WaitingSince: first, UnderWay: 2, Window: 3, SilentSince: first}); got != want {
		t.Errorf("they say %+v, and not %+v", got, want)
	}
}

// tarries is a lane that is to decide on something.
type tarries struct {
	ends
	since time.Time
}

func (t tarries) Overdue() time.Time { return t.since }
func (t tarries) Blocked() time.Time { return t.since }

// What was due first is that of any partition, and so is what keeps readers back.
func TestWhatWasDueFirst(t *testing.T) {
	first := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	i := &Instance{members: newMembership(nil, 12, slog.New(slog.DiscardHandler))}
	for p, since := range []time.Time{{}, {}, first.Add(time.Second), {}, first, first.Add(time.Hour), {}} {
		if p == 2 && !i.Overdue().IsZero() {
			t.Errorf("nothing is due, and it says %s", i.Overdue())
		}
		i.members.owned[int32(p)] = &ownership{lane: tarries{since: since}}
	}
	for range 50 { // lanes are asked in any order
		if due, blocked := i.Overdue(), i.Blocked(); !due.Equal(first) || !blocked.Equal(first) {
			t.Fatalf("it says %s and %s, and not %s", due, blocked, first)
		}
	}
}

// Whoever is asked names the silence of an agent for which an order waits: who owns its partition,
// and who only follows it.
func TestWhoFollowsKnowsWhoIsSilent(t *testing.T) {
	b := kafka.Embedded(t)
	topics, err := events.NewTopics(kafka.Namespace(t))
	must(t, err)
	_, err = CreateTopics(t.Context(), b.Admin(t), &topics, 2, 1)
	must(t, err)
	one, _ := runs(t, b, Config{ID: "i-1", Namespace: topics.Namespace})
	two, _ := runs(t, b, Config{ID: "i-2", Namespace: topics.Namespace})
	must(t, one.Register(t.Context(), parseFlow(t, "workflow: call\nsteps: [{name: call, agent: phone, timeout: 500ms, retry: {backoff: 100ms}}]")))
	for _, p := range []int32{0, 1} {
		for n, id := 0, 0; n < 20; id++ {
			if order := fmt.Sprint("o-", id); one.Partition(order) == p {
				n++
				_, err := one.Submit(t.Context(), order, &events.Submission{Workflow: "call"}, Context{}, nil)
				must(t, err)
			}
		}
	}
	for _, i := range []*Instance{one, two} {
		oracle.Until(t, "instance "+i.cfg.ID+" names the silence in both partitions, and owns one", func() error {
			probed, silent := make(map[int32]bool), make(map[int32]bool)
			for id := range 60 {
				o, _, err := i.Order(fmt.Sprint("o-", id))
				if err != nil {
					continue
				}
				w, err := i.Waits(o, &o.Steps[0])
				must(t, err)
				if w != nil && w.Place != nil && w.Place.Probed {
					probed[i.Partition(o.ID)] = true
				}
				if w != nil && !w.SilentSince.IsZero() {
					silent[i.Partition(o.ID)] = true
				}
			}
			if len(probed) != 1 || len(silent) != 2 {
				return fmt.Errorf("it knows of %v as the owner, and of %v", probed, silent)
			}
			return nil
		})
	}
}

//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/waybill-dev/waybill/events"
	"github.com/waybill-dev/waybill/internal/api"
	"github.com/waybill-dev/waybill/test/world"
)

// tickFlow is the workflow of the orders that schedules begin. They are forgotten soon.
const tickFlow = `
workflow: chaos-tick
keep: 20s
steps:
  - {name: tick, agent: alpha, do: quick, limit: chaos, timeout: 2s, retry: {attempts: 3, backoff: 100ms}, exhausted: continue}
`

func scheduleName(overlap string) string { return "every-second-" + overlap }

// applySchedules has orders begin every second, as soon as that is not refused: an owner whose clock is far off
// does not know what time it is. What is applied twice changes nothing.
func (r *run) applySchedules(ctx context.Context, operators *sync.WaitGroup) {
	for n, overlap := range world.Overlaps {
		operators.Go(func() {
			for i := n; ctx.Err() == nil; i++ {
				short, cancel := context.WithTimeout(ctx, 2*time.Second)
				_, err := r.instances[i%instances].client.Apply(short, scheduleName(overlap), "", &api.Application{ScheduleSpec: api.ScheduleSpec{
					Every: "1s", Overlap: overlap, CatchUp: events.CatchUpAll, Workflow: "chaos-tick",
				}})
				if cancel(); err == nil {
					break
				}
				hold(ctx, 100*time.Millisecond)
			}
		})
	}
}

// pauseSchedules has none begin any more, once they have decided on all ticks until the faults were over, and waits
// until all that they began have ended. Their orders wait for places of the limit, with hundreds of others.
func (r *run) pauseSchedules(ctx context.Context) {
	client, deadline := r.instances[0].client, time.Now().Add(endPatience)
	for _, overlap := range world.Overlaps {
		name := scheduleName(overlap)
		for {
			s, err := client.Schedule(ctx, name)
			if problem := new(api.Problem); errors.As(err, &problem) && problem.Status == http.StatusNotFound {
				break
			}
			if err == nil && s.Paused && len(s.Open) == 0 {
				break
			}
			if err == nil && !s.Paused && s.Next != nil && r.behind(overlap, s.Next.Time) == nil {
				_, err = client.ActOnSchedule(ctx, name, "", events.CommandPause, &api.Act{By: "chaos"})
			}
			if time.Now().After(deadline) {
				r.Errorf("schedule %s does not come to rest: %+v, %v", name, s, err)
				return
			}
			hold(ctx, 100*time.Millisecond)
		}
	}
}

// behind says that a schedule has not decided on the ticks until the faults were over. Those of a queue wait for the end
// of the order before, however many they are.
func (r *run) behind(overlap string, next time.Time) error {
	if overlap == events.OverlapQueue || !next.Before(r.calm) {
		return nil
	}
	return fmt.Errorf("schedule %s decided on ticks until %s, and there were faults until %s", scheduleName(overlap), events.TickText(next), events.TickText(r.calm))
}

// ticks holds what schedules decided against the clock.
func (r *run) ticks(f *findings) {
	for _, overlap := range world.Overlaps {
		id := events.ScheduleID(scheduleName(overlap))
		t := f.books.Ticks(id)
		f.broken = append(f.broken, t.Wrong...)
		f.ticked += t.Decided
		f.begun += t.Begun
		for why, n := range t.Skipped {
			f.skipped[why] += n
		}
		if t.Next.IsZero() { // it was never applied: that was refused as long as there were faults
			continue
		}
		if err := r.behind(overlap, t.Next); err != nil {
			f.stuck = append(f.stuck, err.Error())
		}
	}
}

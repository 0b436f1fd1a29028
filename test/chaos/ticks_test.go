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

// pauseSchedules has none begin any more, and waits until all that they began have ended.
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
			if err == nil && !s.Paused {
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
		// Those of a queue wait for the end of the order before, however many they are; one that was never applied was
		// refused as long as there were faults.
		if !t.Next.IsZero() && t.Next.Before(r.calm) && overlap != events.OverlapQueue {
			f.stuck = append(f.stuck, fmt.Sprintf("schedule %s decided on ticks until %s, and there were faults until %s", id, events.TickText(t.Next), events.TickText(r.calm)))
		}
	}
}

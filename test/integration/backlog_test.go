package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
	"github.com/waybill-dev/waybill/test/leftout"
)

// S1, A4: a burst for an agent that takes its time waits here, and not on the agent's
// topic, where it would expire.
func TestABurstWaitsForItsAgent(t *testing.T) {
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		if b.Kind == kafka.KindContainer {
			leftout.UnlessLong(t, "a burst, on Apache Kafka")
		}
		w := newWorld(t, b)
		i := w.Run("i-1", t.TempDir())
		w.Register(i, "workflow: burst\nsteps: [{name: only, agent: slow, do: it, timeout: 5s, retry: {attempts: 1}}]")
		var one sync.Mutex
		w.serve("slow", func(_ context.Context, r agents.Request[any]) (any, error) {
			one.Lock()
			defer one.Unlock()
			time.Sleep(5 * time.Millisecond)
			return r.IdempotencyKey, nil
		}, "it")
		const orders = 2_000
		began := time.Now()
		for n := range orders {
			w.Submit(fmt.Sprint("o-", n), `{"workflow":"burst"}`)
		}
		t.Log("submitted", time.Since(began))
		states := make(map[projections.State]int)
		w.until("all have ended", func() error {
			clear(states)
			for n := range orders {
				id := fmt.Sprint("o-", n)
				o, _, err := i.Store().Order(i.Partition(id), id)
				if err != nil {
					return err
				}
				if o != nil {
					states[o.State]++
				}
			}
			if n := states[projections.Processed] + states[projections.Error]; n < orders {
				return fmt.Errorf("%v", states)
			}
			return nil
		})
		t.Log(states, time.Since(began))
		if states[projections.Processed] != orders {
			t.Errorf("%v", states)
		}
	})
}

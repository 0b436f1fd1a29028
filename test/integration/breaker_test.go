package integration

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-dev/waybill/agents"
	"github.com/waybill-dev/waybill/projections"
	"github.com/waybill-dev/waybill/test/kafka"
)

// A1, A6, P5: of two instances of an agent one has lost its service. Its breaker
// opens, it leaves the group, and the healthy one gets the work: the orders do
// not wait for the sick one, nor burn their attempts on it.
func TestAnOpenBreakerGivesTheWorkAway(t *testing.T) {
	t.Parallel()
	kafka.Each(t, func(t *testing.T, b *kafka.Broker) {
		w := newWorld(t, b)
		r := w.Run("i-1", t.TempDir())
		w.Register(r, "{workflow: pay, steps: [{name: charge, agent: payment, timeout: 1m, retry: {attempts: 3, backoff: 0s}}]}")

		const failures = 2
		var sick, healthy atomic.Int64
		serve := func(charge func() error) {
			w.Serve(agents.Config{
				Agent: "payment", Concurrency: 1,
				Breaker:      &agents.Breaker{Failures: failures, Window: failures, Delay: time.Hour},
				KafkaOptions: []kgo.Opt{kgo.HeartbeatInterval(100 * time.Millisecond)},
			}, agents.Operations{"charge": agents.Do(func(context.Context, agents.Request[any]) (any, error) { return nil, charge() })})
		}
		serve(func() error { sick.Add(1); return errors.New("the bank does not answer") })
		w.until("the sick instance to be the only one", func() error {
			if n := len(w.members(w.Namespace + ".agent.payment")); n != 1 {
				return fmt.Errorf("%d members", n)
			}
			return nil
		})
		serve(func() error { healthy.Add(1); return nil })
		w.until("both to share the work", func() error {
			if n := len(w.members(w.Namespace + ".agent.payment")); n != 2 {
				return fmt.Errorf("%d members", n)
			}
			return nil
		})

		const orders = 60
		for i := range orders {
			w.Submit(fmt.Sprint("o-", i), `{"workflow":"pay"}`)
		}
		for i := range orders {
			w.order(r, fmt.Sprint("o-", i), func(o *projections.Order) bool { return o.State == projections.Processed })
		}
		if sick.Load() != failures || healthy.Load() < orders {
			t.Errorf("the sick instance was called %d times, not %d; the healthy one %d times for %d orders", sick.Load(), failures, healthy.Load(), orders)
		}
		if n := len(w.members(w.Namespace + ".agent.payment")); n != 1 {
			t.Errorf("%d instances are in the group", n)
		}
	})
}
